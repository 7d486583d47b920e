"""The flags of the subcommands, each group once."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from cudnn_convert.context import Limits
from cudnn_convert.errors import UsageError
from cudnn_convert.options import CELLS, GATE_ORDERS, LAYOUTS, MODES, WEIGHTS


class Parser(argparse.ArgumentParser):
    """Usage errors in one line, as all others; no abbreviations, which later flags would break."""

    def __init__(self, **names: str) -> None:
        super().__init__(allow_abbrev=False, **names)  # type: ignore[arg-type]

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


def add_signature(parser: argparse.ArgumentParser) -> None:
    """What is taken and given."""
    spec = "[KEY=]TENSOR[[shape]],..."
    repeated: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--inputs", metavar=spec, help="tensors to take; repeatable", **repeated)
    parser.add_argument("--outputs", metavar=spec, help="tensors to give; repeatable", **repeated)
    parser.add_argument("--set", metavar="TENSOR=VALUE", help="bind a constant; repeatable", **repeated)


def add_source(parser: argparse.ArgumentParser) -> None:
    """How the source is read."""
    add = parser.add_argument
    add("--signature", metavar="KEY", help="which signature; default serving_default")
    add("--tag", metavar="TAG", help="which graph of a SavedModel; default serve")
    add("--weights", choices=WEIGHTS, default="auto", help="which copy; default %(default)s")
    add(
        "--forget-bias",
        type=float,
        default=0.0,
        metavar="X",
        help="added to the forget gate of canonical LSTM biases; default 0",
    )
    add("--trust", action="store_true", help="run more than arithmetic, and follow links out of SOURCE")
    add("--gate-order", choices=GATE_ORDERS, default="tf", help="of the source; default %(default)s")
    alone = parser.add_argument_group("sources without a graph")
    alone.add_argument("--mode", choices=MODES, help="what the recurrence is")
    alone.add_argument("--layers", type=int, metavar="N", help="how many")
    alone.add_argument("--units", type=int, metavar="N", help="of one direction")
    alone.add_argument("--directions", type=int, choices=(1, 2), help="2 where it is bidirectional")
    alone.add_argument("--layout", choices=LAYOUTS, help="first axis of inputs and outputs")
    alone.add_argument("--states", action="store_true", help="take initial states too")
    alone.add_argument("--lengths", action="store_true", help="take sequence_lengths too")
    keras = parser.add_argument_group("sources of Keras")
    keras.add_argument("--architecture", type=Path, metavar="JSON", help="the model of a weights file")
    keras.add_argument(
        "--custom-objects",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a class that the model may be built with; repeatable",
    )
    keras.add_argument("--allow-plain", action="store_true", help="convert even where no layer is cuDNN's")


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """What `--format checkpoint` alone has."""
    group = parser.add_argument_group("--format checkpoint")
    group.add_argument("--cell", choices=CELLS, default="compatible", help="whose LSTM variables to write")
    group.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="a scope or a name; repeatable"
    )
    group.add_argument("--slots", action="store_true", help="keep optimizer slots, split per cell")


def add_verification(parser: argparse.ArgumentParser) -> None:
    """How a result is judged."""
    parser.add_argument("--data", type=Path, metavar="NPZ", help="real inputs to compare on, by input key")
    parser.add_argument("--atol", type=float, help="absolute tolerance; default by dtype and noise floor")
    parser.add_argument("--rtol", type=float, help="relative tolerance; default by dtype and noise floor")
    parser.add_argument("--seed", type=int, metavar="N", help="other random inputs; default the artifact's")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the report goes."""
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report: .html, or JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="nothing on stderr but errors")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """What a file may ask of the machine."""
    names = ", ".join(field.name for field in fields(Limits))
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help=f"what SOURCE may ask of this machine: {names}; 8G is 8*1024^3; repeatable",
    )
