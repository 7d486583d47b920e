"""One model, one sequence of bytes: nodes, names and dimensions of an ONNX model in a canonical order.

tf2onnx numbers its names and orders its nodes by sets of objects, so that two runs differ. Here a walk from
the outputs fixes the order of nodes (what no output needs falls away) and every internal name, in all nested
graphs, is made from that order. Value infos of internal tensors, doc strings and the producer's stamp go.
Source: onnx v1.18 onnx/onnx.proto (a nested graph sees the names of the graphs around it).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import onnx

from cudnn_convert import __version__
from cudnn_convert.lower.onnx_lean import lean
from cudnn_convert.lower.onnx_order import all_nodes, is_identity, ordered, settle, subgraphs

_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_UNKNOWN: Final = re.compile(r"unk__\d+")  # tf2onnx v1.17.0 tf2onnx/utils.py make_onnx_shape


def canonical(model: Any, *, names: Mapping[str, str] = _NO_NAMES) -> Any:
    """A copy of a ModelProto that is equal byte for byte whenever the model is the same.

    The inputs and outputs of the graph are renamed by `names`; those not in it keep their names.
    """
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    lean(graph, next(opset.version for opset in model.opset_import if not opset.domain))
    settle(graph, {value.name: value.name for value in graph.input})
    kept = {value.name: names.get(value.name, value.name) for value in chain(graph.input, graph.output)}
    made = onnx.ModelProto(
        ir_version=model.ir_version, producer_name="cudnn-convert", producer_version=__version__
    )
    made.graph.CopyFrom(_Names(kept.values()).graph(graph, "cudnn_convert", {"": ""}, kept))
    used = {node.domain for node in all_nodes(made.graph)} | {""}
    opsets = {opset.domain: opset.version for opset in model.opset_import if opset.domain in used}
    made.opset_import.extend(onnx.helper.make_opsetid(*opset) for opset in sorted(opsets.items()))
    made.metadata_props.extend(sorted(model.metadata_props, key=lambda entry: str(entry.key)))
    return made


def _claims(graph: Any) -> dict[str, str]:
    """For each tensor that a node makes for an output: the first output that is it, Identities aside.

    tf2onnx lets chance decide which of two outputs of one tensor is the Identity of the other.
    """
    sources = {node.output[0]: node.input[0] for node in graph.node if is_identity(node)}
    produced = {name for node in graph.node for name in node.output}
    claims: dict[str, str] = {}
    for value in graph.output:
        name = value.name
        while name in sources:
            name = sources[name]
        if name in produced:
            claims.setdefault(name, value.name)
    return claims


class _Names:
    """Gives out names, in one sequence for all graphs of a model, and writes graphs that use them."""

    def __init__(self, reserved: Any) -> None:
        self.taken = set(reserved)
        self.counts: Counter[str] = Counter()
        self.dimensions: dict[str, str] = {}

    def fresh(self, stem: str) -> str:
        """`stem_<k>` for the next k of that stem."""
        self.counts[stem] += 1
        return self.free(f"{stem}_{self.counts[stem] - 1}")

    def free(self, name: str) -> str:
        """`name`, lengthened where an input or output of the model has taken it."""
        while name in self.taken:
            name += "_"
        return name

    def graph(self, source: Any, name: str, around: Mapping[str, str], kept: Mapping[str, str]) -> Any:
        """A GraphProto; `around` maps the names seen from outside, `kept` those of the model's own ends.

        The name of what is left out, "", is one of those `around`, and stays.
        """
        made = onnx.GraphProto(name=name)
        constants = {tensor.name: tensor for tensor in source.initializer}
        scope = {old: new for old, new in around.items() if old not in constants}
        for value in source.input:
            scope[value.name] = kept.get(value.name) or self.fresh("input")
            made.input.append(self.value(value, scope[value.name]))

        def find(old: str) -> str:
            if old not in scope:
                scope[old] = self.fresh("constant")
                tensor = made.initializer.add()
                tensor.CopyFrom(constants[old])
                tensor.name = scope[old]
                tensor.ClearField("doc_string")
            return scope[old]

        claims = _claims(source)
        wanted = {root: kept[value] for root, value in claims.items() if value in kept}
        for node, reads in ordered(source):
            for old in reads:
                find(old)
            if is_identity(node):
                scope[node.output[0]] = scope[node.input[0]]
            else:
                made.node.append(self.node(node, scope, wanted))
        own = set(claims.values())
        for value in source.output:
            found = find(value.name)
            name = kept.get(value.name) or (found if value.name in own else self.fresh("output"))
            if name != found:
                made.node.add(op_type="Identity", name=self.fresh("Identity"), input=[found], output=[name])
            made.output.append(self.value(value, name))
        return made

    def node(self, source: Any, scope: dict[str, str], wanted: Mapping[str, str]) -> Any:
        """A NodeProto; its outputs, named as wanted or afresh, are added to `scope`."""
        made = onnx.NodeProto(op_type=source.op_type, domain=source.domain, name=self.fresh(source.op_type))
        made.input.extend(scope[name] for name in source.input)
        for old in sorted(source.attribute, key=lambda attribute: str(attribute.name)):
            attribute = made.attribute.add()
            attribute.CopyFrom(old)
            attribute.ClearField("doc_string")
        for k, nested in enumerate(subgraphs(made)):
            nested.CopyFrom(self.graph(nested, f"{made.name}/graph_{k}", scope, _NO_NAMES))
        for k, name in enumerate(source.output):
            if name:
                scope[name] = wanted.get(name) or self.free(f"{made.name}:{k}")
            made.output.append(scope[name])
        return made

    def value(self, source: Any, name: str) -> Any:
        """A ValueInfoProto of another name, whose unknown dimensions are numbered in order."""
        made = onnx.ValueInfoProto()
        made.CopyFrom(source)
        made.name = name
        made.ClearField("doc_string")
        for dimension in made.type.tensor_type.shape.dim:
            old = dimension.dim_param
            if _UNKNOWN.fullmatch(old):
                dimension.dim_param = self.dimensions.setdefault(old, f"dim_{len(self.dimensions)}")
        return made
