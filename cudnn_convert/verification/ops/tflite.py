"""A TensorFlow Lite file with readable and feedable tensors in the first subgraph.

The converter calls a tensor as the source's node, joins several by semicolons, and adds a number where a name
is taken. Which of them it is its value tells. Source: tensorflow v2.21.0
compiler/mlir/lite/flatbuffer_export.cc, utils/name_utils.cc.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from cudnn_convert.apart import Apart
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.tflite import pack_model, schema
from cudnn_convert.formats import CUTS_KEY, part_file
from cudnn_convert.graph.index import walk
from cudnn_convert.model import Array, Part
from cudnn_convert.verification import effort
from cudnn_convert.verification.ops.models import StoredCuts
from cudnn_convert.verification.pieces import tflite
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.pieces.tflite import OPS
from cudnn_convert.verification.pieces.tflite_glue import find_ends

_SHAPES: Final = frozenset({OPS.SHAPE, OPS.RANK})
_NUMBER: Final = re.compile(r"\d+$")


def open_model(artifact: Artifact, part: Part, _: Mapping[str, Array]) -> TfliteTensorFile:
    """Return the file of a part."""
    return TfliteTensorFile(part_file(artifact.path, part.name, ".tflite"), part)


class TfliteTensorFile:
    """The first subgraph of a file: tensors by name, and readers."""

    names_are_kept: ClassVar = False

    def __init__(self, file: Path, part: Part) -> None:
        self._file = file
        self._model = tflite.read_model(file)
        self._graph = self._model.content.subgraphs[0]
        inputs, outputs = find_ends(self._model)
        names = runners.pair_inputs(file, part.signature.inputs, inputs)
        self.inputs = {key: self._name(inputs[name]) for key, name in names.items()}
        keys = runners.pair_outputs(part.signature.outputs, outputs)
        self.outputs = {keys[name]: self._name(index) for name, index in outputs.items()}

    def _name(self, index: int) -> str:
        return str(self._graph.tensors[index].name.decode())

    @cached_property
    def _places(self) -> dict[str, int]:
        """The numbers of tensors with a unique name."""
        places: dict[str, list[int]] = {}
        for index in range(len(self._graph.tensors)):
            places.setdefault(self._name(index), []).append(index)
        return {name: index for name, (index, *others) in places.items() if not others}

    @cached_property
    def _makers(self) -> dict[int, Any]:
        return tflite.makers_of(self._graph)

    @cached_property
    def tensors(self) -> list[str]:
        """The names of all operator outputs of types known to NumPy."""
        tensors = {name: self._graph.tensors[k] for name, k in self._places.items() if k in self._makers}
        return [name for name, tensor in tensors.items() if tensor.type in tflite.TYPES]

    def list_namesakes(self, name: str) -> list[str]:
        """Return the source's tensors of possibly equal value; some may be absent."""
        nodes = dict.fromkeys(filter(None, reversed(name.split(";"))))
        bare = dict.fromkeys(_NUMBER.sub("", node) for node in nodes)
        return [node if ":" in node else f"{node}:0" for node in {**nodes, **bare}]

    @cached_property
    def _recurrences(self) -> set[int]:
        """The identities of the recurrence loops."""
        loops = self._model.loops()
        names = {name for recorded in self._model.read_recorded().values() for name in recorded}
        return {id(loops[name][1]) for name in names if name in loops}

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[frozenset[str], bool]:
        """Return the leaves of a sink, and whether a recurrence computes the sink.

        The leaves are the tensors whose values the sink is computed from.
        """
        ends = {self._places[name] for name in cuts}
        operators, leaves = self._walk_back([self._places[sink]], ends)
        for op in operators.values():
            if self._model.code(op) not in _SHAPES:
                leaves |= ends.intersection(map(int, op.inputs))
        return frozenset(map(self._name, leaves)), not self._recurrences.isdisjoint(operators)

    def _walk_back(self, sinks: Iterable[int], ends: Collection[int]) -> tuple[dict[int, Any], set[int]]:
        """Return the operators behind tensors, by identity, and the inputs of the file there.

        What makes `ends` is left out.
        """

        def onward(index: int) -> list[int]:
            reads = self._makers[index].inputs if index in self._makers else ()
            return [int(read) for read in reads if read >= 0 and int(read) not in ends]

        reached = {*walk(sinks, onward)}
        operators = [self._makers[index] for index in reached if index in self._makers]
        inputs = {index for index in reached if index not in self._makers and self._is_fed(index)}
        return {id(op): op for op in operators}, inputs

    def _is_fed(self, index: int) -> bool:
        """Return True if a tensor without a maker is an input of the file."""
        tensor = self._graph.tensors[index]
        return not (self._model.is_constant(tensor) or tensor.isVariable)

    def open(self, names: Sequence[str], cuts: Collection[str]) -> TfliteRunner:
        """Open the file with `cuts` as further inputs and `names` as outputs."""
        alone = schema.SubGraphT()
        alone.name, alone.tensors = b"main", [*self._graph.tensors]
        fed: dict[int, int] = {}
        for name in cuts:
            fed[self._places[name]] = len(alone.tensors)
            alone.tensors.append(copy.copy(self._graph.tensors[self._places[name]]))
        operators, inputs = self._walk_back([self._places[name] for name in names], fed)
        alone.operators = []
        for op in self._graph.operators:
            if id(op) in operators:
                moved = copy.copy(op)
                moved.inputs = [fed.get(int(read), int(read)) for read in op.inputs]
                inputs |= {fed[int(read)] for read in op.inputs if int(read) in fed}
                alone.operators.append(moved)
        alone.inputs, alone.outputs = sorted(inputs), [self._places[name] for name in names]
        originals = {number: self._name(index) for index, number in fed.items()}
        ends = [
            (originals.get(index) or self._name(index), self._model.dtype(alone.tensors[index]))
            for index in alone.inputs
        ]
        return TfliteRunner(self._model, alone, ends, self.inputs)

    def read_cuts(self) -> StoredCuts | None:
        """Read the statement about shared tensors stored in the file, if any."""
        return StoredCuts.parse(self._model.read_metadata(CUTS_KEY.encode()))

    def write_cuts(self, cuts: StoredCuts) -> None:
        """Store the map to the source's tensors in the file."""
        content, entry, buffer = self._model.content, schema.MetadataT(), schema.BufferT()
        buffer.data = np.frombuffer(cuts.format().encode(), np.uint8)
        entry.name, entry.buffer = CUTS_KEY.encode(), len(content.buffers)
        content.buffers = [*content.buffers, buffer]
        content.metadata = [*(content.metadata or ()), entry]
        self._file.write_bytes(pack_model(content))


class TfliteRunner:
    """An open subgraph in a separate process; the subgraph's kernels may end the process."""

    def __init__(
        self, model: Any, alone: Any, reads: Sequence[tuple[str, Any]], inputs: Mapping[str, str]
    ) -> None:
        self._reads, self._inputs = reads, inputs
        self._apart = Apart(lambda: _open(model, alone), effort.CALL_SECONDS)

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """Compute all outputs from given values of inputs by key and of cuts by name."""
        del names
        fed = {self._inputs[key]: value for key, value in feed.items()} | dict(cuts)
        given = [np.asarray(fed[name], kind, order="C") for name, kind in self._reads]
        return [np.asarray(value) for value in self._apart.run(given)]


def _open(model: Any, alone: Any) -> Any:
    interpreter = tflite.open_subgraph(model, alone)
    return lambda given: tflite.run_subgraph(interpreter, given)
