"""Prints of each handler of an op how many variants of the census see that it is gone.

    python scripts/check_op_handlers.py [PATTERN ...]

What makes an op right, or refuses it, is taken away, one op at a time, and the variants that have the op are
asked before and after: those whose outcome is another one see it. Rules that refuse an op before anything
is written are asked without the proof, which would refuse it later. Exit code 1 where nothing sees a handler
go.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import op_census

from cudnn_convert.graph.passes.run import name_pass
from cudnn_convert.lower import empty_axes, inexact_kernels, infinities, missing_pools, tflite
from cudnn_convert.lower.onnx import convert, lossy_casts, wrong_ops

#: At most so many variants of an op are asked.
MOST = 24


@dataclass(frozen=True)
class Handler:
    """What makes `op` right in a format; `gone` is the context in which it does not.

    `verdict`: which variants are asked, where it is for those of one alone.
    """

    name: str
    form: str
    op: str
    gone: Callable[[], AbstractContextManager[Any]]
    verdict: str = ""
    proven: bool = True
    opset: int = 17


def handlers() -> Iterator[Handler]:
    """Every handler of the lowerings to ONNX and TensorFlow Lite."""
    for op in convert._EXACT:
        opset = OLDER if op in BY_OPSET else 17
        handler = Handler(f"onnx/{op}", "onnx", op, lambda op=op: without(convert, "_EXACT", op), opset=opset)
        yield replace(handler, verdict="refused", proven=False) if op == "Prod" else handler
    for op in (*wrong_ops._NEVER, *wrong_ops._NO_DOUBLE, *RULED):
        yield Handler(
            f"wrong_ops/{op}", "onnx", op, lambda op=op: silent(op), verdict="refused", proven=False
        )
    for op in ("Bincount", "RaggedRange"):
        yield Handler(
            f"lossy_casts/{op}",
            "onnx",
            op,
            lambda: mock.patch.object(lossy_casts, "find_lossy", lambda *_: {}),
            verdict="refused",
            proven=False,
        )
    for (passes, function), op in MISSING.items():
        yield Handler(
            f"missing_ops/{function}",
            "onnx",
            op,
            lambda passes=passes, name=function: skipping(convert, passes, name),
        )
    for op in (*missing_pools._POOLS, "MaxPoolV2", "FusedBatchNormV2"):
        yield Handler(
            f"missing_pools/{op}", "tflite", op, lambda: skipping(tflite, "PASSES", "replace_pools")
        )
    for op in inexact_kernels._BODIES:
        yield Handler(
            f"inexact_kernels/{op}", "tflite", op, lambda op=op: without(inexact_kernels, "_BODIES", op)
        )
    for op in empty_axes._REDUCTIONS:
        left = empty_axes._REDUCTIONS - {op}
        yield Handler(
            f"empty_axes/{op}",
            "tflite",
            op,
            lambda left=left: mock.patch.object(empty_axes, "_REDUCTIONS", left),
        )
    for op in sorted(empty_axes._SIZED.keys() - SEEN_BY_TESTS):
        yield Handler(f"empty_axes/sized {op}", "tflite", op, lambda op=op: without(empty_axes, "_SIZED", op))
    for op in ("IsInf", "Select"):
        yield Handler(
            f"infinities/{op}",
            "tflite",
            op,
            lambda: mock.patch.object(infinities, "restore_infinities", lambda *_: None),
        )


#: Ops whose sizes no variant feeds, which tests/end_to_end/test_empty_outputs.py does.
SEEN_BY_TESTS = frozenset("StridedSlice Reshape BroadcastTo Pad PadV2 MirrorPad".split())
#: Handlers that no opset needs in which ONNX has the op for integers, and an opset that needs them.
BY_OPSET = ("LessEqual", "GreaterEqual", "Max", "Min", "Maximum", "Minimum")
OLDER = 11
#: Ops that rules refuse by their attributes.
RULED = (
    "AsString",
    "DynamicStitch",
    "CropAndResize",
    "QuantizeAndDequantizeV2",
    "AvgPool",
    "MaxPool",
    "Equal",
)
#: An op for each pass that replaces what ONNX lacks, by the list that it is in.
MISSING = {
    ("PASSES", "replace_spectra"): "RFFT",
    ("PASSES", "replace_buckets"): "Bucketize",
    ("BEFORE_BLOCKS", "replace_gru_cells"): "GRUBlockCell",
    ("PASSES", "replace_sign_bits"): "Bitcast",
}


def without(module: Any, name: str, op: str) -> AbstractContextManager[Any]:
    """A table of a module that lacks an op."""
    table: Mapping[str, Any] = getattr(module, name)
    return mock.patch.object(module, name, {key: value for key, value in table.items() if key != op})


def skipping(module: Any, passes: str, name: str) -> AbstractContextManager[Any]:
    """A list of passes of a module that lacks one."""
    kept = tuple(each for each in getattr(module, passes) if name_pass(each) != name)
    return mock.patch.object(module, passes, kept)


def silent(op: str) -> AbstractContextManager[Any]:
    """The rules without what they say of an op."""
    find = wrong_ops.find_wrong

    def others(graph: Any) -> dict[str, str]:
        kinds = {node.name: node.op for node in graph.node}
        return {name: why for name, why in find(graph).items() if kinds[name] != op}

    return mock.patch.object(wrong_ops, "find_wrong", others)


def variants_of(handler: Handler, verdicts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The variants of the census that have the handler's op, its own first."""
    listed = op_census.names_of(handler.form)
    own = [name for name in listed if name.partition("/")[0] == handler.op]
    listed = own + [name for name in listed if name not in own and handler.op in op_census.ops_of(name)]
    return [name for name in listed if handler.verdict in ("", verdicts.get(name, {}).get(handler.form, ""))][
        :MOST
    ]


def ask(handler: Handler) -> tuple[int, int]:
    """How many variants see that a handler is gone, and how many were asked."""
    names = variants_of(handler, op_census.read_verdicts())
    call = {"verify": handler.proven, "opset": handler.opset}
    before = op_census.judge(names, handler.form, **call) if names else {}
    with handler.gone():
        after = op_census.judge(names, handler.form, **call) if names else {}
    return sum(is_other(handler, before[name], after[name]) for name in names), len(names)


def is_other(handler: Handler, before: str, after: str) -> bool:
    """Whether an outcome is another one; of a refusal, whether it names the op no more."""
    named = f"found {handler.op}"
    return op_census.verdict(before) != op_census.verdict(after) or (named in before) != (named in after)


def work(names: list[str], pipe: Any) -> None:
    """Ask of each handler, in a process that kernels may end."""
    for handler in handlers():
        if handler.name in names:
            pipe.send((handler.name, *ask(handler)))


def main(patterns: list[str]) -> int:
    """Print a line for each handler."""
    names = [handler.name for handler in handlers()]
    names = [name for name in names if not patterns or any(fnmatchcase(name, each) for each in patterns)]
    unseen = []
    while names:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        worker = context.Process(target=work, args=(names, theirs), daemon=True)
        worker.start()
        theirs.close()
        try:
            while names:
                name, seen, asked = ours.recv()
                names.remove(name)
                unseen += [] if seen else [name]
                print(f"{name}: seen by {seen} of {asked}", flush=True)
        except EOFError:
            print(f"{names.pop(0)}: the process ends", flush=True)
        worker.join()
    print("nothing sees these go:", ", ".join(unseen) or "none")
    return int(bool(unseen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
