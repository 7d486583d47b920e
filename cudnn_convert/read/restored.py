"""The values of the variables in a SavedModel of TensorFlow 2, whose checkpoint names objects, not variables.

Which key is whose stands in one place that cannot be mistaken: the function that restores the variables,
where the key's tensor is assigned to the variable. It is read, not run.
Source: tensorflow v2.21.0 python/saved_model/save.py `_AssetAndSaverGraph`, python/checkpoint/
functional_saver.py `_traced_restore`, python/training/saving/saveable_object_util.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from cudnn_convert.model import Tensor
from cudnn_convert.read import graphs

#: Of a number of an output: no op has so many.
_DIGITS: Final = 10


def variables(meta: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by the name of the VarHandleOp that they are restored into."""
    root = {node.name: node for node in meta.graph_def.node}
    functions = {function.signature.name: function for function in meta.graph_def.library.function}
    call = root.get(meta.saver_def.restore_op_name.removesuffix(":0"))
    function = functions.get(call.attr["f"].func.name) if call is not None else None
    if call is None or function is None:
        return {}
    arguments = zip((arg.name for arg in function.signature.input_arg), call.input, strict=False)
    handles = {name: given for name, given in arguments if given in root}
    return {
        handles[argument]: tensors[key]
        for argument, key in _assigned(function)
        if argument in handles and root[handles[argument]].op == "VarHandleOp" and key in tensors
    }


def _assigned(function: Any) -> Iterator[tuple[str, str]]:
    """The argument of each assignment in a restore function, and the key of what is assigned to it."""
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        if node.op == "AssignVariableOp":
            source, name = _behind_identities(nodes, node.input[1])
            if source is not None and source.op == "RestoreV2":
                keys = graphs.strings(nodes.get(_op(source.input[1])))
                place = name.rpartition(":")[2]
                # Where it does not say which key it is, the variable has no value, and is refused for that.
                if place.isdecimal() and len(place) < _DIGITS and int(place) < len(keys):
                    yield node.input[0], keys[int(place)]


def _behind_identities(nodes: Mapping[str, Any], name: str) -> tuple[Any, str]:
    """The node that makes a tensor of a function, None for an argument, and the tensor: `node:output:k`."""
    node = nodes.get(_op(name))
    while node is not None and node.op == "Identity":
        name = node.input[0]
        node = nodes.get(_op(name))
    return node, name


def _op(name: str) -> str:
    return name.partition(":")[0]


def plain(graph: Any, assets: Collection[str]) -> Any:
    """A copy in the way of TensorFlow 1: a variable is called what its node is, for two objects may share a
    name, and a file's name is the tensor in `assets` itself, not a variable that holds it.
    """
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef()
    made.CopyFrom(graph)
    held = {
        node.input[0]: _op(node.input[1])
        for node in made.node
        if node.op == "AssignVariableOp" and f"{_op(node.input[1])}:0" in assets
    }
    reads = {node.name: node.input[0] for node in made.node if node.op == "ReadVariableOp"}
    names = {name: held[variable] for name, variable in reads.items() if variable in held}
    for node in made.node:
        if node.op == "VarHandleOp":
            node.attr["shared_name"].s = node.name.encode()
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
    return made
