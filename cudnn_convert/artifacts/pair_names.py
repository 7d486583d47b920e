"""Matches signature keys to an artifact's tensor names where no provenance says them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from cudnn_convert.errors import UsageError
from cudnn_convert.model import SERVING, Part, Signature


def inputs(path: Path, wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Signature key -> the artifact's input: that of the key, else of the source's tensor, else its op.

    `wanted` are the source's tensors by key, `there` the names of the artifact's inputs. Raises UsageError
    where a key finds none, or an input no key.
    """
    names = {key: name for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    lost = [key for key in wanted if key not in names]
    unfed = [name for name in there if name not in names.values()]
    if lost or unfed:
        what = f"the artifact's {', '.join(sorted(there)) or 'none'}"
        raise UsageError(
            f"{path}: inputs: expected {what}, found {', '.join(wanted)}; name them with --inputs NAME=TENSOR"
        )
    return names


def keys(wanted: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """The artifact's output -> signature key, as `inputs`; one that no key finds stands for itself."""
    paired = {name: key for key, tensor in wanted.items() if (name := _name(key, tensor, there))}
    return {name: paired.get(name, name) for name in there}


def _name(key: str, tensor: str, there: Collection[str]) -> str | None:
    op = tensor.removesuffix(":0")
    return next((name for name in (key, f"{key}:0", tensor, op) if name in there), None)


def tensors(path: Path, told: Signature, ops: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Signature key -> tensor, of inputs and of outputs, in a graph of `ops`, which has no keys of its own.

    The source's own name, which our artifacts keep, else what the key names. An output that neither names is
    left out; an input is refused with a UsageError.
    """
    inputs, outputs = (
        {key: name_there for key, name in wanted.items() if (name_there := _tensor(key, name, ops))}
        for wanted in (told.inputs, told.outputs)
    )
    lost = [name for key, name in told.inputs.items() if key not in inputs]
    if lost:
        name_there = f"expected {', '.join(lost)} in the graph, found no such op"
        cure = "name them with --inputs NAME=TENSOR, or keep them when freezing"
        raise UsageError(f"{path}: inputs: {name_there}; {cure}")
    return inputs, outputs


def _tensor(key: str, tensor: str, ops: Collection[str]) -> str | None:
    names = (tensor, key if ":" in key else f"{key}:0")
    return next((name for name in names if name.partition(":")[0] in ops), None)


def outputs_of_graph(path: Path, graph: Any, parts: Iterable[Part]) -> list[str]:
    """The tensors of a GraphDef that are outputs of parts, as `tensors` names them."""
    ops = {node.name for node in graph.node}
    return [name for part in parts for name in tensors(path, part.signature, ops)[1].values()]


def signature(path: Path, name: str, there: Collection[str]) -> str:
    """The signature of a name, or the only one there. Raises UsageError."""
    if name in there:
        return name
    if len(there) == 1 and name == SERVING:
        return next(iter(there))
    listed = ", ".join(sorted(there)) or "none"
    raise UsageError(f"{path}: signatures: expected {name}, found {listed}; choose with --signature")
