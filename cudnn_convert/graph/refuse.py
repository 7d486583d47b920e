"""What stays in the graph must run on a CPU, always with the same result; else all reasons at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import branches, build, fold
from cudnn_convert.graph.before import Cuts
from cudnn_convert.graph.index import CUDNN_OPS, OUTPUTS, Index, split
from cudnn_convert.graph.simplify import RANDOM, mask
from cudnn_convert.graph.trace import parameters_only

#: The op that makes a mask of random numbers; the Cast behind it would name the same mask again.
_MASKS: Final = frozenset({"Floor", "GreaterEqual"})
_SHOWN: Final = 5


def unsupported(path: Path, graph: Any, *, outputs: Iterable[str] = (), hint: str | None = None) -> None:
    """Raises UnsupportedModelError with one line for each kind of obstacle in `graph`, and the `hint`."""
    whole = Index(graph)
    hidden = parameters_only(whole, {split(name)[0] for name in outputs})
    index = Index(build.kept(graph, {node.name for node in graph.node} - hidden))
    reasons = [
        *_random(index),
        *_training(index, whole),
        *_without_kernel(graph, index),
        *reserved(index, outputs),
    ]
    if reasons:
        raise UnsupportedModelError(path, reasons + ([f"{hint}; others with --outputs"] if hint else []))


def _random(index: Index) -> Iterator[str]:
    """Dropout that is on, with the `--set` that turns it off, and any other random op."""
    explained: set[str] = set()
    drawn = {node.name for node in index.nodes.values() if node.op in RANDOM}
    for node in index.nodes.values():
        found = mask(index, f"{node.name}:0") if node.op in _MASKS else None
        if found is None:
            continue
        rate, neutral = found
        # Beyond its own numbers a mask needs the shape of what it masks, and that may need others.
        explained |= index.ancestors([node.name], stop=drawn) & drawn
        cure = _cure(index, rate, neutral)
        yield f"{node.name}: expected no dropout at inference, found one that is on; turn it off with {cure}"
    for node in index.nodes.values():
        if node.op in RANDOM and node.name not in explained:
            yield (
                f"{node.name}: expected the same numbers in every run, found the random op {node.op}; "
                f"bind it with --set {node.name}:0=VALUE or cut behind it with --inputs"
            )


def _cure(index: Index, rate: str, neutral: int) -> str:
    """The `--set` of the placeholder that decides a dropout rate, or of the rate itself."""
    held = [name for name in index.ancestors([split(rate)[0]]) if index.nodes[name].op in branches.SOURCES]
    for setting in (neutral, 1 - neutral):
        if len(held) == 1 and fold.scalar(index, rate, {held[0]: setting}) == neutral:
            return f"--set {held[0]}:0={setting}"
    return f"--set {rate}={neutral}"


def _training(index: Index, whole: Index) -> Iterator[str]:
    """Batch normalisation of training, with what leaves its branch, which `whole` knows."""
    for node in index.nodes.values():
        # tensorflow v2.21.0 core/ops/nn_ops.cc: is_training defaults to true.
        training = "is_training" not in node.attr or node.attr["is_training"].b
        if training and node.op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
            held = branches.leaving(whole, node.name)
            cure = "choose an output of the inference graph with --outputs"
            cure = f"leave its branch with {branches.flag(*held)}" if held else cure
            yield (
                f"{node.name}: expected batch normalisation with its moving averages, found it in "
                f"training mode; {cure}"
            )


def _without_kernel(graph: Any, index: Index) -> Iterator[str]:
    library = {function.signature.name for function in graph.library.function}
    found: dict[tuple[str, str], list[str]] = {}
    for node in index.nodes.values():
        if node.op in library or node.op in CUDNN_OPS:
            continue
        if op_def_registry.get(node.op) is None:
            found.setdefault((node.op, "unknown to TensorFlow " + tf.__version__), []).append(node.name)
        elif not _has_cpu_kernel(node.op):
            found.setdefault((node.op, "without a CPU kernel"), []).append(node.name)
    for (op, what), names in sorted(found.items()):
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        avoid = {name for others in found.values() for name in others}
        cure = Cuts(index, index.nodes).before(names[0], avoid) or "choose other --outputs"
        yield f"{shown}: expected ops that run on a CPU, found {op}, {what}; {cure}"


@cache
def _has_cpu_kernel(op: str) -> bool:
    """Asked once for each op: TensorFlow looks through all its kernels."""
    listed = kernels.get_registered_kernels_for_op(op).kernel
    # Ops without any kernel are structural: the runtime replaces them (PartitionedCall, If, While).
    return any(kernel.device_type in ("CPU", "DEFAULT") for kernel in listed) or (
        not listed and not op.startswith("Cudnn")
    )


def reserved(index: Index, outputs: Iterable[str]) -> Iterator[str]:
    """Readers of what a cuDNN node keeps for its gradient, which no CPU form has."""
    for node in index.nodes.values():
        if node.op in CUDNN_OPS:
            for reader in index.consumers(node.name):
                used = {k for op, k in map(split, reader.input) if op == node.name}
                if max(used) >= OUTPUTS:
                    yield (
                        f"{reader.name}: expected to read outputs 0 to 2 of {node.name}, found "
                        f"{node.name}:{max(used)}, which only gradients need; choose other --outputs"
                    )
    for name in outputs:
        op, k = split(name)
        if index.nodes[op].op in CUDNN_OPS and k >= OUTPUTS:
            yield (
                f"--outputs {name}: expected outputs 0 to 2 of {op}, found {name}, which only gradients "
                "need; choose others"
            )
