"""An ONNX model with readable tensors by name, where any tensor can be fed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import onnx
from onnx import helper

from cudnn_convert.apart import Apart
from cudnn_convert.artifacts.onnx import as_fed, open_session, subgraphs_of
from cudnn_convert.formats import CUTS_KEY, part_file
from cudnn_convert.graph.index import walk
from cudnn_convert.graph.passes import image_layouts
from cudnn_convert.model import Array, Part
from cudnn_convert.verification import effort
from cudnn_convert.verification.ops.models import StoredCuts
from cudnn_convert.verification.pieces.onnx import FUSED
from cudnn_convert.verification.pieces.piece_inputs import Artifact

_SHAPES: Final = frozenset({"Shape", "Size"})
#: What a tensor is called where it is fed.
_FED: Final = "fed/"


def open_model(artifact: Artifact, part: Part, _: Mapping[str, Array]) -> OnnxTensorFile:
    """Return the file of a part."""
    return OnnxTensorFile(part_file(artifact.path, part.name))


class OnnxTensorFile:
    """The main graph of a file: tensors and readers."""

    names_are_kept: ClassVar = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self.model = onnx.load(str(file))
        self.graph = self.model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.outputs = {value.name: value.name for value in self.graph.output}
        self._makers = {name: node for node in self.graph.node for name in node.output if name}

    @property
    def tensors(self) -> list[str]:
        """The names of all tensors made by nodes."""
        return [*self._makers]

    def list_namesakes(self, name: str) -> list[str]:
        """Return the source's tensors of possibly equal value; some may be absent."""
        # What was computed channels last may be channels first again in ONNX: its values tell.
        plain = name.replace(image_layouts.SUFFIX, "")
        return [*dict.fromkeys([name, plain])] if name.count(":") == 1 else []

    @cached_property
    def _reads(self) -> dict[int, list[str]]:
        return {
            id(node): [*filter(None, node.input), *sorted(_find_captured(node))] for node in self.graph.node
        }

    def leaves(self, sink: str, cuts: Collection[str]) -> tuple[frozenset[str], bool]:
        """Return the leaves of a sink, and whether a recurrence computes the sink.

        The leaves are the tensors whose values the sink is computed from.
        """

        def onward(name: str) -> list[str]:
            reads = self._reads[id(self._makers[name])] if name in self._makers else ()
            return [read for read in reads if read not in cuts]

        reached = {*walk([sink], onward)}
        nodes = [self._makers[name] for name in reached if name in self._makers]
        valued = [node for node in nodes if node.op_type not in _SHAPES]
        leaves = {read for node in valued for read in self._reads[id(node)] if read in cuts}
        leaves |= {name for name in reached if name not in self._makers and name not in self.constants}
        return frozenset(leaves), any(node.op_type in FUSED for node in nodes)

    def open(self, names: Sequence[str], cuts: Mapping[str, Array]) -> OnnxRunner:
        """Open the model with `cuts` as further inputs and `names` as outputs.

        The inputs have the types and ranks of `cuts`.
        """
        cut = onnx.ModelProto()
        cut.CopyFrom(self.model)
        graph = cut.graph
        renamed = {name: f"{_FED}{name}" for name in cuts}
        _rename_reads(graph, renamed)
        for name, value in cuts.items():
            kind = (
                onnx.TensorProto.STRING
                if value.dtype.kind in "OSU"
                else helper.np_dtype_to_tensor_dtype(value.dtype)
            )
            graph.input.append(helper.make_tensor_value_info(renamed[name], kind, [None] * value.ndim))
        kept = {value.name: value for value in [*graph.output]}
        del graph.output[:]
        graph.output.extend(kept.get(name) or onnx.ValueInfoProto(name=name) for name in names)
        _drop_unread(graph)
        content = cut.SerializeToString()
        inputs = {value.name for value in graph.input}
        return OnnxRunner(Apart(lambda: _open(content), effort.CALL_SECONDS), inputs, renamed)

    def read_cuts(self) -> StoredCuts | None:
        """Read the statement about shared tensors stored in the file, if any."""
        metadata = {entry.key: entry.value for entry in self.model.metadata_props}
        return StoredCuts.parse(metadata.get(CUTS_KEY))

    def write_cuts(self, cuts: StoredCuts) -> None:
        """Store the map to the source's tensors in the file.

        The map is added at the file's end, where it is read as one more of its metadata, however large the
        file: what is repeated may come in several parts of a message. Source: Protobuf's "Encoding".
        """
        more = onnx.ModelProto()
        more.metadata_props.add(key=CUTS_KEY, value=cuts.format())
        with self._file.open("ab") as file:
            file.write(more.SerializeToString())


def _open(content: bytes) -> Callable[..., list[Array]]:
    session = open_session(content, optimize=False)
    inputs = {value.name for value in session.get_inputs()}

    def run(names: Sequence[str], values: Mapping[str, Array]) -> list[Array]:
        fed = {name: value for name, value in values.items() if name in inputs}
        return [np.asarray(value) for value in session.run([*names], fed)]

    return run


class OnnxRunner:
    """An open model in a separate process; the model's kernels may end the process."""

    def __init__(self, apart: Apart, inputs: Collection[str], renamed: Mapping[str, str]) -> None:
        self._apart, self._inputs, self._renamed = apart, inputs, renamed

    def run(self, names: Sequence[str], feed: Mapping[str, Array], cuts: Mapping[str, Array]) -> list[Array]:
        """Compute tensors from given values of inputs by key and of cuts."""
        if not names:
            return []
        fed = {**feed, **{self._renamed[name]: value for name, value in cuts.items()}}
        values = {
            name: np.asarray(as_fed(value), order="C") for name, value in fed.items() if name in self._inputs
        }
        return [*self._apart.run([*names], values)]


def _find_captured(node: Any) -> set[str]:
    """Return the outer tensors read by the graphs in a node."""
    names: set[str] = set()
    for graph in subgraphs_of(node):
        own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
        own |= {name for inner in graph.node for name in inner.output}
        read = {value.name for value in graph.output}
        for inner in graph.node:
            read |= {*filter(None, inner.input)} | _find_captured(inner)
        names |= read - own
    return names


def _drop_unread(graph: Any) -> None:
    """Remove the nodes of a main graph unused by the outputs."""
    read, kept = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read |= {*node.input} | _find_captured(node)
    if len(kept) < len(graph.node):
        nodes = [copy.deepcopy(node) for node in reversed(kept)]
        del graph.node[:]
        graph.node.extend(nodes)


def _rename_reads(graph: Any, renamed: Mapping[str, str]) -> None:
    """Rename the inputs of all nodes, in nested graphs too.

    The names of tensors in nested graphs are their own.
    """
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for nested in subgraphs_of(node):
            _rename_reads(nested, renamed)
            for value in nested.output:
                if value.name in renamed and not any(value.name in inner.output for inner in nested.node):
                    inner = nested.node.add(
                        op_type="Identity", input=[renamed[value.name]], output=[f"{_FED}out/{value.name}"]
                    )
                    value.name = inner.output[0]
