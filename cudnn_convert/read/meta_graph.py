"""What a MetaGraph says beside its graph: its signatures, and the ops that fill tables.

Source: tensorflow v1.15.0 core/protobuf/meta_graph.proto, python/saved_model/constants.py,
python/saved_model/loader_impl.py get_init_op, python/framework/ops.py GraphKeys.TABLE_INITIALIZERS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from cudnn_convert.model import Signature

#: Signatures whose names begin so are ops to run, not models.
_RESERVED: Final = "__saved_model_"
_INIT_OP: Final = "__saved_model_init_op"
_COLLECTIONS: Final = ("saved_model_main_op", "legacy_init_op", "table_initializer")


def signatures(meta: Any) -> dict[str, Signature]:
    """The signatures by key, tensors as `op:k`, without those that name no tensor.

    A sparse tensor is three, called `<key>_indices`, `<key>_values` and `<key>_dense_shape` as TensorFlow 2's
    loader calls them (tensorflow v2.21.0 python/saved_model/load_v1_in_v2.py).
    """
    found = {}
    for key in sorted(meta.signature_def):
        proto = meta.signature_def[key]
        signature = Signature(dict(_tensors(proto.inputs)), dict(_tensors(proto.outputs)))
        if signature.outputs and not key.startswith(_RESERVED):
            found[key] = signature
    return found


def _tensors(infos: Any) -> Iterator[tuple[str, str]]:
    for key in sorted(infos):
        info = infos[key]
        if info.name:
            yield key, _tensor(info.name)
        elif info.HasField("coo_sparse"):
            sparse = info.coo_sparse
            yield f"{key}_indices", _tensor(sparse.indices_tensor_name)
            yield f"{key}_values", _tensor(sparse.values_tensor_name)
            yield f"{key}_dense_shape", _tensor(sparse.dense_shape_tensor_name)
        for number, part in enumerate(info.composite_tensor.components):
            yield f"{key}_component_{number}", _tensor(part.name)


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def initializers(meta: Any) -> tuple[str, ...]:
    """The ops that a loader runs once variables are restored, each once."""
    named = [meta.signature_def[_INIT_OP]] if _INIT_OP in meta.signature_def else []
    names = [info.name for proto in named for info in proto.outputs.values()]
    for key in _COLLECTIONS:
        if key in meta.collection_def:
            names += meta.collection_def[key].node_list.value
    return _ops(names)


def _ops(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names))
