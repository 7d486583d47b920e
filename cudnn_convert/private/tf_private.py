"""Functions of TensorFlow with private names only.

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
    """Return the OpDef of an op, with inputs, outputs and attributes.

    None for an unknown op.
    """
    return op_def_registry.get(name)


def list_kernels(op: str) -> Any:
    """Return the KernelDefs of an op, for all devices.

    Slow: TensorFlow looks through all its kernels.
    """
    return kernels.get_registered_kernels_for_op(op).kernel


def list_all_kernels() -> Any:
    """Return the KernelDefs of all ops, for all devices."""
    return kernels.get_all_registered_kernels().kernel


def strip_defaults(meta: Any) -> None:
    """Remove default-valued attributes from all nodes of a MetaGraphDef, in place."""
    meta_graph.strip_graph_default_valued_attrs(meta)


def optimize_graph(config: Any, meta: Any) -> Any:
    """Return the GraphDef of a MetaGraphDef after the ConfigProto's passes of Grappler.

    Raises ValueError or `tf.errors.OpError` where a pass fails.
    """
    from tensorflow.python.grappler import tf_optimizer

    return tf_optimizer.OptimizeGraph(config, meta)


def register_function(function: Callable[..., Any]) -> str:
    """Return the token of a function for `PyFunc` nodes.

    TensorFlow holds the function weakly.
    """
    token: str = script_ops._py_funcs.insert(function)
    return token


def eager_mode() -> AbstractContextManager[None]:
    """Return a context of eager execution, even beside an open graph."""
    mode: AbstractContextManager[None] = context.eager_mode()
    return mode


@contextmanager
def without_callbacks() -> Iterator[None]:
    """Stop the recording of gradients and the callbacks of ops, within the context.

    `tf.debugging.enable_check_numerics` sets such a callback.
    """
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
    """Return an eager tensor in a NumPy array's memory, copied only if misaligned.

    `tf.constant` copies an array twice (python/framework/constant_op.py).
    """
    current = context.context()
    current.ensure_initialized()
    return ops.EagerTensor(array, device=current.device_name, dtype=dtype.as_datatype_enum)


def list_devices() -> Any:
    """Return the devices of the process as DeviceAttributes, the CPU first."""
    return device_lib.list_local_devices()


def write_fingerprint(folder: str) -> None:
    """Write `fingerprint.pb` beside the `saved_model.pb` of a folder."""
    from tensorflow.python.saved_model import fingerprinting_utils

    fingerprinting_utils.write_fingerprint(folder)


def dynamic_update_slice(values: Any, update: Any, indices: Any) -> Any:
    """Return `values` with `update` written at `indices`.

    The op is XlaDynamicUpdateSlice, which `tf.raw_ops` lacks.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_dynamic_update_slice(input=values, update=update, indices=indices)


def parse_xspace(content: bytes) -> Any:
    """Parse a trace of TensorFlow's profiler, an XSpace."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2.XSpace.FromString(content)


def run_on_one_thread(op: Any) -> None:
    """Make both functions of a loop, or a branch's first, run on a single thread.

    Their ops run one after the other. `op` is the loop or branch, or reads it; nothing happens where it is
    none of TensorFlow 2. It stays an op when the graph runs: by default TensorFlow makes Switch and Merge
    nodes of it, and its scheduler handles each node of each iteration. A loop in such a branch runs whole on
    the caller's thread; elsewhere each iteration may go on with another. The functions must hold no branch or
    call: with a pool of one thread those would wait for ever. Source: tensorflow v2.21.0
    core/common_runtime/function.cc (`_executor`), single_threaded_executor.cc, core/kernels/functional_ops.cc
    (WhileOp::Compute).
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
