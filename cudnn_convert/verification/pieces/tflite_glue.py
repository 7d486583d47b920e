"""A TensorFlow Lite file with given recurrence outputs.

Operators whose inputs are there run together, as a file of their own; then what waits for them is given.
Branches and loops of the model with a recurrence inside are followed, pass by pass.
Source: tensorflow v2.21.0 lite/kernels/while.cc, lite/kernels/if.cc.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.tflite import schema
from cudnn_convert.formats import part_file
from cudnn_convert.model import SERVING, Array
from cudnn_convert.verification import effort
from cudnn_convert.verification.judges import nearest
from cudnn_convert.verification.pieces import piece_inputs, tflite
from cudnn_convert.verification.pieces.glue_runs import (
    GlueResult,
    GlueRun,
    LayerValues,
    RunGlue,
    match_values,
)
from cudnn_convert.verification.pieces.tflite import (
    LENGTHS,
    OPS,
    ROWS,
    TURNED,
    C,
    H,
    LoopCut,
    TfliteModel,
    UncutError,
    X,
    cut,
)

#: Every layer whose loops the files of an artifact name.
pieces = tflite.pieces


def runner(artifact: piece_inputs.Artifact) -> RunGlue:
    """Return a function for the glue of a file, branches and loops included."""

    def run(passes: Sequence[GlueRun]) -> Iterator[GlueResult]:
        plan = artifact.plan
        if len(plan.parts) != 1:
            raise LookupError("the artifact is several files")
        (part,) = plan.parts
        file = part_file(artifact.path, part.name, ".tflite")
        model = tflite.read_model(file)
        layers, others = _find_recorded(model, {recurrence.node for recurrence in plan.recurrences})
        named = {layer.name: (layer.node, layer.layer) for layer in layers}
        inputs, outputs = find_ends(model)
        names = runners.pair_inputs(file, part.signature.inputs, inputs)
        keys = {tensor: key for key, tensor in plan.signature.inputs.items()}
        outputs_by_key = runners.pair_outputs(part.signature.outputs, outputs)
        for call in passes:
            given = match_values(plan, call.calls, named, projected=True)
            running = _Running(model, layers, others, given)
            values = running.main({inputs[names[keys[name]]]: value for name, value in call.feed.items()})
            yield GlueResult(
                {outputs_by_key[name]: values[output] for name, output in outputs.items()},
                [*running.entered, *running.list_missed()],
            )

    return run


@dataclass(frozen=True, slots=True)
class _Layer:
    """A direction of a layer: `name` is the loop's name, `cut` the loop's place."""

    name: str
    node: str
    layer: int
    direction: int
    cut: LoopCut


def _find_recorded(model: TfliteModel, nodes: Collection[str]) -> tuple[list[_Layer], list[LoopCut]]:
    """Return the layers of `nodes`, and the loops of remaining nodes, to be run."""
    loops = model.loops()
    layers, others = [], []
    for (node, number), names in model.read_recorded().items():
        for direction, name in enumerate(names):
            if name not in loops:
                raise LookupError(f"the artifact has no loop {name}")
            try:
                part = cut(model, *loops[name], backward=direction > 0)
            except UncutError as cause:
                raise LookupError(str(cause)) from cause
            if node in nodes:
                layers.append(_Layer(name, node, number, direction, part))
            else:
                others.append(part)
    return layers, others


def find_ends(model: TfliteModel) -> tuple[dict[str, int], dict[str, int]]:
    """Return the tensors of a file's inputs and outputs by signature name."""
    listed = model.content.signatureDefs or ()
    signatures = {signature.signatureKey.decode(): signature for signature in listed}
    if SERVING not in signatures or signatures[SERVING].subgraphIndex:
        raise LookupError(f"the artifact has no signature {SERVING} of its first subgraph")
    both = signatures[SERVING].inputs, signatures[SERVING].outputs
    inputs, outputs = ({end.name.decode(): int(end.tensorIndex) for end in ends or ()} for ends in both)
    return inputs, outputs


#: The values of a subgraph's tensors.
_Values = dict[int, Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A part of a subgraph run at once, with the tensors read and made."""

    reads: frozenset[int]
    makes: frozenset[int]
    run: Callable[[_Values], None]


@dataclass(slots=True)
class _Running:
    """A run with given values for `layers`; the loops of `others` are run.

    `entered` is what was seen, as `GlueResult` has it.
    """

    model: TfliteModel
    layers: Sequence[_Layer]
    others: Sequence[LoopCut]
    values_by_loop: Mapping[str, Sequence[LayerValues]]
    entered: list[tuple[str, Array, Array]] = field(default_factory=list)
    _given: dict[str, set[int]] = field(default_factory=dict)
    _steps: dict[int, list[_Step]] = field(default_factory=dict)

    def main(self, fed: Mapping[int, Array]) -> _Values:
        """Return the values of the first subgraph's outputs on given inputs."""
        tensors = self.model.content.subgraphs[0].tensors
        return self._values(0, {k: value.astype(self.model.dtype(tensors[k])) for k, value in fed.items()})

    def list_missed(self) -> list[tuple[str, Array, Array]]:
        """Return the inputs of the source's calls missing from the file."""
        given: dict[tuple[Any, ...], set[int]] = {}
        keys = {
            layer.name: (layer.direction, *map(id, self.values_by_loop[layer.name])) for layer in self.layers
        }
        for name, key in keys.items():
            given.setdefault(key, set()).update(self._given.get(name, ()))
        return [
            (f"input of {name}", np.empty(0, np.float32), missing.x)
            for name, key in keys.items()
            for position, missing in enumerate(self.values_by_loop[name])
            if position not in given[key]
            and not any(_are_alike(missing, self.values_by_loop[name][k]) for k in given[key])
        ]

    def _values(self, number: int, values: _Values) -> _Values:
        """Add the values of a subgraph's outputs to the values of the inputs."""
        graph = self.model.content.subgraphs[number]
        if number not in self._steps:
            self._steps[number] = self._plan(number)
        for step in self._steps[number]:
            step.run(values)
        return values | {int(output): self._value(graph, values, output) for output in graph.outputs}

    def _value(self, graph: Any, values: _Values, index: int) -> Array:
        index = int(index)
        return values[index] if index in values else self.model.constant(graph.tensors[index])

    def _call(self, number: int, arguments: Sequence[Array]) -> list[Array]:
        graph = self.model.content.subgraphs[number]
        values = self._values(number, dict(zip(map(int, graph.inputs), arguments, strict=True)))
        return [values[int(output)] for output in graph.outputs]

    def _plan(self, number: int) -> list[_Step]:
        """Return the steps of a subgraph, each behind the steps before in data flow."""
        graph = self.model.content.subgraphs[number]
        layers = [layer for layer in self.layers if layer.cut.graph is graph]
        waiting, plain = self._givings(graph, layers), []
        inside = {id(layer.cut.graph) for layer in self.layers}
        for op in self._live(graph, layers):
            if any(id(self.model.content.subgraphs[k]) in inside for k in self.model.find_reached(op)):
                waiting.append(self._step(graph, op.inputs, op.outputs, partial(self._follow, graph, op)))
            else:
                plain.append(op)
        there, steps = {int(index) for index in graph.inputs}, list[_Step]()
        while plain or waiting:
            now, later = list[Any](), list[Any]()
            for op in plain:  # each stands behind those that it reads
                is_ready = self._reads(graph, op.inputs) <= there
                (now if is_ready else later).append(op)
                there |= {int(index) for index in op.outputs} if is_ready else set()
            ready = [step for step in waiting if step.reads <= there]
            if not now and not ready:
                raise LookupError("in the artifact a recurrence takes what it gives itself")
            others = [self._reads(graph, graph.outputs), *(step.reads for step in waiting)]
            others += [self._reads(graph, op.inputs) for op in later]
            steps += [self._segment(graph, now, frozenset().union(*others))] if now else []
            steps += ready
            there |= {index for step in ready for index in step.makes}
            plain, waiting = later, [step for step in waiting if step not in ready]
        return steps

    def _live(self, graph: Any, layers: Sequence[_Layer]) -> list[Any]:
        """Return the operators behind outputs and recurrence inputs, except for the recurrences."""
        makers = tflite.makers_of(graph)
        given = {index for layer in layers for index in layer.cut.gives.values()}
        loops = {id(layer.cut.operators[0]): layer.name for layer in layers}
        todo = [*graph.outputs, *(index for layer in layers for _, index in layer.cut.enters)]
        live: set[int] = set()
        while todo:
            index = int(todo.pop())
            op = None if index in given else makers.get(index)
            if op is None or id(op) in live:
                continue
            if id(op) in loops:
                raise LookupError(f"in the artifact more of {loops[id(op)]} is read than a recurrence gives")
            live.add(id(op))
            todo += [*op.inputs]
        return [op for op in graph.operators if id(op) in live]

    def _reads(self, graph: Any, places: Iterable[int]) -> frozenset[int]:
        """Return the tensors of the places, except for constants.

        A place of -1 is a tensor that an operator does without.
        """
        tensors = graph.tensors
        return frozenset(int(k) for k in places if k >= 0 and not self.model.is_constant(tensors[k]))

    def _step(
        self, graph: Any, reads: Iterable[int], makes: Iterable[int], run: Callable[[_Values], None]
    ) -> _Step:
        return _Step(self._reads(graph, reads), frozenset(map(int, makes)), run)

    def _segment(self, graph: Any, operators: Sequence[Any], read_later: frozenset[int]) -> _Step:
        """Pack operators as a file with outputs for later readers."""
        alone = schema.SubGraphT()
        alone.name, alone.tensors = b"main", [*graph.tensors]
        alone.operators = [*operators]
        makes = {int(index) for op in operators for index in op.outputs}
        reads = self._reads(graph, (index for op in operators for index in op.inputs)) - makes
        alone.inputs = sorted(reads)
        alone.outputs = sorted(makes & read_later)
        interpreter = cache(partial(tflite.open_subgraph, self.model, alone))

        def run(values: _Values) -> None:
            given = [values[index] for index in alone.inputs]
            values.update(zip(alone.outputs, tflite.run_subgraph(interpreter(), given), strict=True))

        return _Step(reads, frozenset(makes), run)

    def _follow(self, graph: Any, op: Any, values: _Values) -> None:
        """Run a branch, or the passes of a loop."""
        given, of = [self._value(graph, values, index) for index in op.inputs], op.builtinOptions
        if self.model.code(op) == OPS.IF:
            number = of.thenSubgraphIndex if given[0].all() else of.elseSubgraphIndex
            answers = self._call(number, given[1:])
        else:
            answers = given
            while self._call(of.condSubgraphIndex, answers)[0].all():
                answers = self._call(of.bodySubgraphIndex, answers)
        values.update(zip(map(int, op.outputs), answers, strict=True))

    def _givings(self, graph: Any, layers: Sequence[_Layer]) -> list[_Step]:
        steps = []
        for layer in layers:
            takes, gives = [index for _, index in layer.cut.enters], layer.cut.gives.values()
            steps.append(self._step(graph, takes, gives, partial(self._give, graph, layer)))
        return steps

    def _give(self, graph: Any, layer: _Layer, values: _Values) -> None:
        """Give the values of a direction of a layer, and note the inputs."""
        entering = [(what, self._value(graph, values, index)) for what, index in layer.cut.enters]
        by_name = dict(entering)
        c, lengths = by_name.get(C), by_name.get(LENGTHS)
        # A fused op begins with zeros.
        width = self.values_by_loop[layer.name][0].h.shape[-1]
        h = by_name[H] if H in by_name else np.zeros((by_name[X].shape[1], width), np.float32)
        inputs = [value.reshape(-1, len(h), value.shape[-1]) for what, value in entering if what in (X, ROWS)]
        if not inputs:
            raise LookupError(f"in the artifact {layer.name} has no product of its inputs")
        fits = [_of_direction(given, layer.direction) for given in self.values_by_loop[layer.name]]
        of = nearest(fits, inputs[0], h[None], None if c is None else c[None])
        self._given.setdefault(layer.name, set()).update(k for k, fit in enumerate(fits) if fit is of)
        full = np.full(len(h), len(of.x))
        self.entered += [(f"input of {layer.name}", value, of.x) for value in inputs]
        self.entered.append((f"initial h of {layer.name}", h, of.h[0]))
        self.entered += [] if c is None else [(f"initial c of {layer.name}", c, of.c[0])]
        both = (full if value is None else value for value in (lengths, of.lengths))
        actual, expected = (value.astype(np.float32) for value in both)
        self.entered.append((f"lengths of {layer.name}", actual, expected))
        gives = {"y": of.y[:, 0], TURNED: of.y[::-1, 0], H: of.h_end[0], C: of.c_end[0]}
        values.update({index: np.ascontiguousarray(gives[what]) for what, index in layer.cut.gives.items()})


def _are_alike(given: LayerValues, other: LayerValues) -> bool:
    """Return True if two calls had inputs close enough to be exchanged by rounding."""
    pairs = ((given.x, other.x), (given.h, other.h), (given.c, other.c))
    most = [effort.ALIKE_PASSES * np.abs(a[np.isfinite(a)]).max(initial=0.0) for a, _ in pairs]
    return all(
        a.shape == b.shape and np.allclose(a, b, 0.0, atol, equal_nan=True)
        for (a, b), atol in zip(pairs, most, strict=True)
    )


def _of_direction(given: LayerValues, direction: int) -> LayerValues:
    """Return the given values of a single direction of a layer."""
    only = slice(direction, direction + 1)
    values = {name: getattr(given, name)[only] for name in ("h", "c", "h_end", "c_end")}
    return replace(given, y=given.y[:, only], **values)
