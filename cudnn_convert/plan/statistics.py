"""Decides the replacement of batch statistics in a graph cut for inference.

The first of these that applies:

1. The author's flag leaves training mode: it is asked for, or its value in `--set` counts.
2. The graph has moving averages: they are taken, and a note says so.
3. The statistics are named, and the model is refused.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from cudnn_convert.errors import Reason, UnsupportedModelError
from cudnn_convert.graph import moving_averages, session
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, NodeDef, split
from cudnn_convert.graph.passes import batch_statistics, inference, subgraphs
from cudnn_convert.model import Array, Model
from cudnn_convert.plan import knobs
from cudnn_convert.text import list_some

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class CutGraph:
    """A graph cut for inference before simplification, with `outputs` and bound constants.

    `outputs` are tensors of the graph. `constants` has the values of `--set` by tensor of the source. `flags`
    are variables whose values in the file decide what is left for inference.
    """

    graph: Graph
    outputs: Sequence[str]
    constants: Mapping[str, Array]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The replacement of batch statistics.

    `averages` has the variable for each statistic `op:k` that it replaces; `asked` are statistics that the
    user's flag keeps.
    """

    averages: Mapping[str, str]
    asked: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def decide(model: Model, source: Graph, cut: CutGraph, simple: Graph) -> Decision:
    """Decide on the statistics left in the graph `simple`, made of `cut`.

    `source` has the assignments of training. A model with functions gets no averages: they do not change.
    Raises UnsupportedModelError where the author's flag must be set.
    """
    needed = simple.index.ancestors((split(name)[0] for name in cut.outputs), control=False)
    averages = moving_averages.find_averages(source.index, needed)
    list_left = partial(batch_statistics.find_statistics, outputs=cut.outputs, known=averages)
    left = list_left(simple)
    if not left:
        return Decision({})
    if flags := [name for name in cut.constants if _keeps_training(source, cut, name, list_left)]:
        words = ", ".join(f"{name}={_word(cut.constants[name])}" for name in flags)
        kept = f"{list_some(left, _SHOWN)}: statistics of the batch, as --set {words} asks"
        return Decision({}, frozenset(left), (f"{kept}; the answer to a row depends on the others",))
    flags_left = knobs.find_knobs(cut.graph, cut.outputs, list_left)
    if flags_left:
        cure = knobs.remedy(flags_left, source.index.nodes, "leave training mode with")
        expected = "expected batch normalisation with its moving averages, found it in training mode"
        listed = list_some(left, _SHOWN)
        raise UnsupportedModelError(model.path, [Reason(f"{listed}: {expected}; {cure}", cure)])
    taken = {} if model.has_functions else _choose(simple, averages, left)
    return Decision(taken, notes=tuple(_notes(model, source.index, taken)))


def _keeps_training(source: Graph, cut: CutGraph, name: str, list_left: partial[list[str]]) -> bool:
    """Return True if the opposite value of a user's flag would remove all statistics."""
    word = knobs.opposite(cut.constants[name])
    if word is None:
        return False
    others = {other: value for other, value in cut.constants.items() if other != name}
    others[name] = subgraphs.parse_value(source.shapes, name, word)
    graph, moved = subgraphs.extract_subgraph(source, inputs=(), constants=others, outputs=cut.outputs)
    outputs = [moved.get(output, output) for output in cut.outputs]
    return not list_left(inference.simplify_for_inference(graph, outputs), outputs=outputs)


def _word(value: Array) -> str:
    return str(value.reshape(()).item()).lower()


def _choose(simple: Graph, averages: Mapping[str, Sequence[str]], left: Sequence[str]) -> dict[str, str]:
    """Return the only average of each statistic of fully covered normalisations.

    A normalisation is covered if each statistic that it reads has one average.
    """
    index = simple.index
    chosen: dict[str, str] = {}
    for name in left:
        op, _ = split(name)
        names = [f"{op}:1", f"{op}:2"] if batch_statistics.trains(index.nodes[op]) else [name]
        variables = [averages.get(each, ()) for each in names]
        if all(len(each) == 1 for each in variables):
            chosen |= {each: kept[0] for each, kept in zip(names, variables, strict=True)}
    return chosen


def _notes(model: Model, index: Index, taken: Mapping[str, str]) -> Iterator[str]:
    if not taken:
        return
    names, variables = (list_some([*dict.fromkeys(each)], _SHOWN) for each in (taken, taken.values()))
    yield f"{names}: statistics of the batch, of training mode; their moving averages {variables} are taken"
    still = [name for name in dict.fromkeys(taken.values()) if _is_initial(model, index.nodes[name])]
    if still:
        yield (
            f"{list_some(still, _SHOWN)}: all 0 or all 1, as before the first update; "
            "did training run the UPDATE_OPS?"
        )


def _is_initial(model: Model, variable: NodeDef) -> bool:
    value = model.variables.get(session.checkpoint_key(variable))
    return value is not None and bool(np.all(value.read() == 0) or np.all(value.read() == 1))


def read_shape(model: Model, variable: NodeDef) -> tuple[int, ...]:
    """Return the shape of a variable's value."""
    return tuple(model.variables[session.checkpoint_key(variable)].shape)


def reasons(graph: Graph, outputs: Collection[str], asked: Collection[str]) -> Iterator[Reason]:
    """Yield a reason for each batch statistic needed by `outputs`, except `asked` statistics."""
    for name in batch_statistics.find_statistics(graph, outputs):
        node = graph.index.nodes[split(name)[0]]
        if name in asked:
            continue
        if batch_statistics.trains(node):
            expected = "expected batch normalisation with its moving averages, found it in training mode"
            yield Reason(f"{node.name}: {expected}; choose an output of the inference graph with --outputs")
        else:
            expected = "expected each answer to depend on its own row alone"
            actual = f"a statistic of the batch ({node.op}) without a moving average"
            cure = "make it an input with --inputs, or choose other --outputs"
            yield Reason(f"{name}: {expected}, found {actual}; {cure}")
