"""Finds the values set by a model's author for inference: flags, keep probabilities.

What belongs to training hangs on placeholders and small variables. Each of them is set to its values in turn,
the graph is simplified as a conversion does it, and the value counts that leaves the least of training.

    dropout(x, keep_prob), cond(is_training, f, g)  ->  --set keep_prob:0=1 | --set is_training:0=false
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Final

import tensorflow as tf

from cudnn_convert.errors import Remedy
from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, NodeDef, split, tensor
from cudnn_convert.graph.passes import inference, subgraphs
from cudnn_convert.model import Array

#: What is left of training in a simplified graph, as names.
Training = Callable[[Graph], Collection[str]]
#: How many settings are tried: each simplifies the graph once.
_MOST: Final = 24


@dataclass(frozen=True, slots=True)
class Knob:
    """A tensor `op:k`, and the word of `--set` to turn training off."""

    tensor: str
    word: str

    def __str__(self) -> str:
        return f"{self.tensor}={self.word}"


def find_knobs(
    graph: Graph, outputs: Sequence[str], training: Training, rates: Iterable[str] = ()
) -> list[Knob]:
    """Find the fewest knobs for removing all `training` from `graph`, cut to the tensors `outputs`.

    `rates` are tensors on which what is left of training hangs, beside the predicates of branches. Empty
    where no knob removes all of it.
    """
    left = set(training(inference.simplify_for_inference(graph, outputs)))
    turned: list[Knob] = []
    candidates = [*_list_candidates(graph.index, rates)][:_MOST]
    while left and candidates:
        tried = [(set(training(_turn(graph, outputs, [*turned, knob]))), knob) for knob in candidates]
        rest, knob = min(tried, key=lambda item: len(item[0]))
        if len(rest) >= len(left):
            return []
        turned, left = [*turned, knob], rest
        candidates = [other for other in candidates if other.tensor != knob.tensor]
    return [] if left else turned


def _turn(graph: Graph, outputs: Sequence[str], knobs: Sequence[Knob]) -> Graph:
    """Bind knobs as `--set` does, and simplify the graph."""
    values = {knob.tensor: subgraphs.parse_value(graph.shapes, knob.tensor, knob.word) for knob in knobs}
    bound, moved = subgraphs.extract_subgraph(graph, inputs=(), constants=values, outputs=outputs)
    return inference.simplify_for_inference(bound, [moved.get(name, name) for name in outputs])


def _list_candidates(index: Index, rates: Iterable[str]) -> Iterator[Knob]:
    """Yield each scalar deciding a branch or a rate, with each value; flags come first."""
    frames = control_flow.frames(index)
    deciding = []
    for node in index.nodes.values():
        if node.op not in ops.SWITCHES or _is_of_loop(index, node):
            continue
        # A predicate in a loop is the author's flag only where it comes in from outside as it is.
        predicate = split(index.origin(node.input[1], ops.PASSAGES | ops.IDENTITIES))[0]
        if not frames.get(predicate):
            deciding.append(predicate)
    named = index.ancestors([*deciding, *(split(name)[0] for name in rates)], control=False)
    scalars = [index.nodes[name] for name in index.nodes if name in named and _is_scalar(index.nodes[name])]
    for node in sorted(scalars, key=lambda node: not _kind(node).is_bool):
        kind = _kind(node)
        words = ("false", "true") if kind.is_bool else ("0", "1", "2") if kind.is_integer else ("1", "0")
        yield from (Knob(f"{node.name}:0", word) for word in words)


def _is_of_loop(index: Index, switch: NodeDef) -> bool:
    return index.nodes[split(switch.input[1])[0]].op == "LoopCond"


def _kind(node: NodeDef) -> tf.DType:
    return tf.as_dtype(node.attr["dtype"].type)


def _is_scalar(node: NodeDef) -> bool:
    """Return True if a node is a placeholder or variable, possibly of a single number."""
    if node.op not in ops.ALL_PLACEHOLDERS | ops.VARIABLES:
        return False
    kind, shape = _kind(node), node.attr["shape"].shape if "shape" in node.attr else None
    is_number = kind.is_bool or kind.is_integer or kind.is_floating
    if shape is None or shape.unknown_rank:
        return is_number and node.op in ops.ALL_PLACEHOLDERS
    return is_number and not shape.dim


def remedy(knobs: Sequence[Knob], names: Collection[str], lead: str) -> Remedy:
    """Return the remedy to set knobs, with a glob for knobs of equal value.

    A glob matches no other of the ops `names`.
    """
    words = dict.fromkeys(knob.word for knob in knobs)
    groups = [[knob.tensor for knob in knobs if knob.word == word] for word in words]
    settings = (
        f"{name}={word}" for word, group in zip(words, groups, strict=True) for name in glob(group, names)
    )
    return Remedy({"set": tuple(settings)}, lead)


def glob(tensors: Sequence[str], names: Collection[str]) -> list[str]:
    """Return a single `--set` pattern for several tensors, or else all tensors.

    The pattern matches no other of the ops `names`.
    """
    if len(tensors) < 2:
        return [*tensors]
    parts = [split(name)[0].split("/") for name in tensors]
    for pattern in _list_patterns(parts):
        matched = {name for name in names if fnmatchcase(name, pattern)}
        if matched == {split(name)[0] for name in tensors} and all(
            tensor(name).endswith(":0") for name in tensors
        ):
            return [f"{pattern}:0"]
    return [*tensors]


def _list_patterns(parts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield patterns for names in segments, the plainest first."""
    ends = [part[-1] for part in parts]
    if len(set(ends)) == 1:
        yield f"*/{ends[0]}"
    if len({len(part) for part in parts}) == 1:
        yield "/".join(_merge(column, "*") for column in zip(*parts, strict=True))
        yield "/".join(_merge(column, "?") for column in zip(*parts, strict=True))
    yield _merge(["/".join(part) for part in parts], "*")


def _merge(words: Sequence[str], mark: str) -> str:
    """Merge words: the common beginning and end, with the mark in between."""
    if len(set(words)) == 1:
        return words[0]
    begin = _common(words)
    end = _common([word[len(begin) :][::-1] for word in words])[::-1]
    widths = {len(word) - len(begin) - len(end) for word in words}
    return begin + (mark * max(widths) if mark == "?" and len(widths) == 1 else mark) + end


def _common(words: Sequence[str]) -> str:
    """Return the common beginning of all words."""
    alike = takewhile(lambda letters: len({*letters}) == 1, zip(*words, strict=False))
    return words[0][: sum(1 for _ in alike)]


def opposite(value: Array) -> str | None:
    """Return the word for a flag's opposite value.

    None for what is no flag.
    """
    if value.size != 1:
        return None
    number = value.reshape(()).item()
    if isinstance(number, bool):
        return "false" if number else "true"
    return {0: "1", 1: "0"}.get(number)
