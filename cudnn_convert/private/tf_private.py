"""Functions of TensorFlow that have no public name.

Source: tensorflow v2.21.0, the modules that are imported here. `tests/private` calls each.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Final

from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context, record
from tensorflow.python.framework import kernels, meta_graph, op_def_registry, ops
from tensorflow.python.ops import script_ops
from tensorflow.python.training.saving import saveable_object

#: The base class of what a `tf.compat.v1.train.Saver` saves beside variables, and of one tensor of it.
SaveableObject: Any = saveable_object.SaveableObject
SaveSpec: Any = saveable_object.SaveSpec

#: Loops and branches of TensorFlow 2, and the attributes of what `run_on_one_thread` binds.
_BOUND: Final = MappingProxyType(
    {
        **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
        **dict.fromkeys(("If", "StatelessIf"), ("then_branch",)),
    }
)


def find_op(name: str) -> Any:
    """The OpDef of an op, with inputs, outputs and attributes; None for an unknown op."""
    return op_def_registry.get(name)


def list_kernels(op: str) -> Any:
    """The KernelDefs of an op, for all devices. Slow: TensorFlow looks through all its kernels."""
    return kernels.get_registered_kernels_for_op(op).kernel


def list_all_kernels() -> Any:
    """The KernelDefs of all ops, for all devices."""
    return kernels.get_all_registered_kernels().kernel


def strip_defaults(meta: Any) -> None:
    """Remove attributes at their default from all nodes of a MetaGraphDef, in place."""
    meta_graph.strip_graph_default_valued_attrs(meta)


def optimize_graph(config: Any, meta: Any) -> Any:
    """The GraphDef of a MetaGraphDef after the passes of Grappler that the ConfigProto names.

    Raises ValueError or `tf.errors.OpError` where a pass fails.
    """
    from tensorflow.python.grappler import tf_optimizer

    return tf_optimizer.OptimizeGraph(config, meta)


def register_function(function: Callable[..., Any]) -> str:
    """The token by which a `PyFunc` node calls a function; TensorFlow holds the function weakly."""
    token: str = script_ops._py_funcs.insert(function)
    return token


def eager_mode() -> AbstractContextManager[None]:
    """Eager execution within, also where a graph stands open."""
    mode: AbstractContextManager[None] = context.eager_mode()
    return mode


@contextmanager
def without_callbacks() -> Iterator[None]:
    """Record no gradients, and call nothing for each op, as `tf.debugging.enable_check_numerics` does."""
    current = context.context()
    callbacks = [*current.op_callbacks]
    for callback in callbacks:
        current.remove_op_callback(callback)
    try:
        with record.stop_recording():
            yield
    finally:
        for callback in callbacks:
            current.add_op_callback(callback)


def share_memory(array: Any, dtype: Any) -> Any:
    """An eager tensor in the memory of a NumPy array, copied only if not aligned.

    `tf.constant` copies an array twice (python/framework/constant_op.py).
    """
    current = context.context()
    current.ensure_initialized()
    return ops.EagerTensor(array, device=current.device_name, dtype=dtype.as_datatype_enum)


def list_devices() -> Any:
    """The devices of this process as DeviceAttributes, the CPU first."""
    return device_lib.list_local_devices()


def write_fingerprint(folder: str) -> None:
    """Write `fingerprint.pb` beside the `saved_model.pb` of a folder."""
    from tensorflow.python.saved_model import fingerprinting_utils

    fingerprinting_utils.write_fingerprint(folder)


def dynamic_update_slice(values: Any, update: Any, indices: Any) -> Any:
    """`values` with `update` written at `indices`: XlaDynamicUpdateSlice, which `tf.raw_ops` lacks."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_dynamic_update_slice(input=values, update=update, indices=indices)


def parse_xspace(content: bytes) -> Any:
    """The trace that TensorFlow's profiler wrote, an XSpace."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2.XSpace.FromString(content)


def run_on_one_thread(op: Any) -> None:
    """Have both functions of a loop, or the first of a branch, run op after op on one thread.

    `op` is the loop or branch, or reads it; nothing happens where it is none of TensorFlow 2. It stays an op
    when the graph runs: by default TensorFlow makes Switch and Merge nodes of it, and its scheduler handles
    each node of each iteration. A loop in such a branch runs whole on the caller's thread; elsewhere each
    iteration may go on with another. The functions must hold no branch or call: with a pool of one thread
    those would wait for ever.
    Source: tensorflow v2.21.0 core/common_runtime/function.cc (`_executor`), single_threaded_executor.cc,
    core/kernels/functional_ops.cc (WhileOp::Compute).
    """
    while op.type not in _BOUND:
        if op.type != "Identity":
            return
        op = op.inputs[0].op
    op._clear_attr("_lower_using_switch_merge")
    for name in _BOUND[op.type]:
        value = attr_value_pb2.AttrValue()
        value.CopyFrom(op.node_def.attr[name])
        value.func.attr["_executor"].s = b"SINGLE_THREADED_EXECUTOR"
        op._set_attr(name, value)
