"""The recorded exports: SavedModels of Keras as a machine with a GPU writes them.

`tests/data/keras3_exports/<writer>/<case>/` holds `saved_model/`, golden.npz (the answers of the same model
exported without a GPU) and `case.json`. `scripts/make_keras3_exports.py` makes them and says how, and
`scripts/record_tf1_export.py` the one that TensorFlow 1.15 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from support.samples import ROOT

EXPORTS = ROOT / "tests" / "data" / "keras3_exports"


@dataclass(frozen=True)
class Call:
    """One call of a signature: what goes in and what must come out; where there is a mask, its lengths."""

    feeds: dict[str, np.ndarray]
    answers: dict[str, np.ndarray]
    lengths: tuple[int, ...] | None

    def valid(self, value: np.ndarray) -> np.ndarray:
        """`[B, T]` for an output `[B, T, ...]`: true where a row's step is not padding."""
        assert self.lengths is not None
        return np.arange(value.shape[1]) < np.array(self.lengths)[:, None]


@dataclass(frozen=True)
class Signature:
    """A signature, with its part of case.json.

    Of the outputs in `per_step` only valid steps compare with the answers: past them Keras on a CPU repeats a
    step where cuDNN has zeros. Those in `zero_past_length` are a recurrence's own, and are zeros there.
    """

    fixture: Export
    name: str
    described: dict[str, Any]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Each cuDNN node that it reaches: mode, units, input_size, layers, directions, backwards, masked."""
        return list(self.described["recurrences"])

    @property
    def recurrences(self) -> list[dict[str, Any]]:
        """Those that an output hangs on."""
        return [node for node in self.nodes if node["needed"]]

    @property
    def runs_on_cpu(self) -> bool:
        return self.described["fails_on_cpu"] is None

    @property
    def per_step(self) -> tuple[str, ...]:
        return tuple(self.described["per_step"])

    @property
    def zero_past_length(self) -> tuple[str, ...]:
        return tuple(self.described["zero_past_length"])

    def calls(self) -> Iterator[Call]:
        """In order: a stateful model answers them in a row, from its zero state."""
        step = "call" if self.fixture.case["stateful"] else "feed"
        with np.load(self.fixture.folder / "golden.npz") as data:
            number = 0
            while any(key.startswith(f"{self.name}/{step}{number}/") for key in data.files):
                start = f"{self.name}/{step}{number}/"
                found = {key.removeprefix(start): data[key] for key in data.files if key.startswith(start)}
                yield Call(
                    {key: value for key, value in found.items() if not key.startswith("out/")},
                    {
                        key.removeprefix("out/"): value
                        for key, value in found.items()
                        if key.startswith("out/")
                    },
                    tuple(self.described["lengths"][number]) if self.described["lengths"] else None,
                )
                number += 1
            assert number, f"{self.fixture.name}: no answers of {self.name}"


@dataclass(frozen=True)
class Export:
    """A SavedModel that Keras wrote, with Keras' answers on a CPU."""

    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"

    @cached_property
    def case(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "case.json").read_text()))

    @property
    def path(self) -> Path:
        return self.folder / "saved_model"

    @property
    def archive(self) -> Path | None:
        """The .keras file beside it."""
        name = self.case["archive"]
        return None if name is None else self.folder / str(name)

    @property
    def portable(self) -> bool:
        """Whether every signature runs on a CPU as it is."""
        return all(signature.runs_on_cpu for signature in self.signatures)

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Those with answers; `aliases` names the others."""
        found = self.case["signatures"].items()
        return tuple(Signature(self, name, each) for name, each in found if "same_as" not in each)

    @property
    def aliases(self) -> dict[str, str]:
        """A signature's second name, and the signature that it stands for."""
        found = self.case["signatures"].items()
        return {name: str(each["same_as"]) for name, each in found if "same_as" in each}


EXPORTED = tuple(Export(path.parent) for path in sorted(EXPORTS.glob("*/*/case.json")))
assert EXPORTED, f"no samples under {EXPORTS}"
BROKEN = tuple(sample for sample in EXPORTED if not sample.portable)
PORTABLE = tuple(sample for sample in EXPORTED if sample.portable)


def exported(name: str) -> Export:
    """The sample `<writer>-<case>`, e.g. `keras-3.15.1-masked`."""
    (found,) = [sample for sample in EXPORTED if sample.name == name]
    return found
