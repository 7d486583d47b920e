"""Private parts of tf2onnx: the log is read, the order patched for equal bytes.

tf2onnx iterates sets of names and nodes in random order, and numbers names across all calls in a process. Of
nested loops it rewrites the outer one first, which breaks the inner one (tf2onnx v1.17.0
tf2onnx/rewriter/loop_rewriter_base.py run_internal, which takes loops in the order of the nodes). It moves a
Transpose behind the only node that reads it, into a loop's body too, and loses the node's output there
(tf2onnx/optimizer/transpose_optimizer.py _handle_nhwc_tranpose). Of two Reshapes it keeps the second, whose 0
stands for a size of the first one's result, and of two Casts the second, though the first may round
(tf2onnx/optimizer/back_to_back_optimizer.py _optimize_reshape_reshape, _optimize_cast). A convolution that
has a bias gets a second one, and a transposed one, whose end may be padded later, gets one too early
(tf2onnx/rewriter/conv2d_with_add_rewriter.py, tf2onnx/onnx_opset/nn.py ConvTranspose). It prints the shapes
of a GRU's weights (tf2onnx/rewriter/gru_rewriter.py process_weights).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSet
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from tf2onnx import optimizer, tfonnx, utils
from tf2onnx.optimizer import back_to_back_optimizer
from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer
from tf2onnx.rewriter import loop_rewriter_base
from tf2onnx.rewriter.loop_rewriter_base import LoopRewriterBase

from cudnn_convert.graph import control_flow, index

_LOOP: Final = "LoopCond"
_BIAS: Final = "BiasAdd"
_TRANSPOSED: Final = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")
_RESHAPES, _CASTS = ("Reshape",), ("Cast",)


class InsertionSet(MutableSet[Any]):
    """A set in insertion order, with the methods used by tf2onnx."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self._elements = dict.fromkeys(elements)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, value: Any) -> None:
        self._elements[value] = None

    def discard(self, value: Any) -> None:
        self._elements.pop(value, None)

    def update(self, elements: Iterable[Any]) -> None:
        self._elements.update(dict.fromkeys(elements))

    def union(self, elements: Iterable[Any]) -> InsertionSet:
        return InsertionSet((*self, *elements))

    def intersection(self, elements: Iterable[Any]) -> InsertionSet:
        others = frozenset(elements)
        return InsertionSet(element for element in self if element in others)

    def issubset(self, elements: Iterable[Any]) -> bool:
        return self._elements.keys() <= frozenset(elements)


@contextmanager
def fix_order() -> Iterator[None]:
    """Make tf2onnx work in a fixed order within the context.

    The caller holds the process lock.
    """
    with ExitStack() as changes:
        for module in _modules():
            changes.enter_context(_patch(module, "set", InsertionSet))
        changes.enter_context(_patch(utils, "INTERNAL_NAME", 1))
        yield


def _modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.partition(".")[0] == "tf2onnx"]


@contextmanager
def rewrite_from_within(graph: Any) -> Iterator[None]:
    """Make tf2onnx rewrite the inner loops of a GraphDef first, within the context.

    The caller holds the process lock.
    """
    around = control_flow.frames(index.Index(graph))
    loops = {node.name: around[node.name] for node in graph.node if node.op == _LOOP and node.name in around}
    rewrite, run = tfonnx.rewrite_generic_loop, LoopRewriterBase.run_internal

    def run_whole(rewriter: Any, *arguments: Any, **options: Any) -> Any:
        _complete(rewriter.g, around)
        return run(rewriter, *arguments, **options)

    with ExitStack() as changes:
        changes.enter_context(
            _patch(loop_rewriter_base, "is_tf_loopcond_op", lambda op: _is_innermost(op, loops))
        )
        changes.enter_context(_patch(LoopRewriterBase, "run_internal", run_whole))
        changes.enter_context(
            _patch(tfonnx, "rewrite_generic_loop", lambda graph, _: _from_within(graph, rewrite))
        )
        yield


def keep_biases_apart() -> AbstractContextManager[None]:
    """Keep tf2onnx from adding a second bias to a convolution, within the context.

    A transposed convolution gets none. The caller holds the lock.
    """
    rewrite = tfonnx.rewrite_biasadd_with_conv2d

    def rewrite_first(graph: Any, nodes: Any) -> Any:
        behind = [
            node for node in nodes if node.type == _BIAS and node.inputs[0].type in (_BIAS, *_TRANSPOSED)
        ]
        for node in behind:
            node.type = f"{_BIAS} of a sum"
        rewritten = rewrite(graph, nodes)
        for node in behind:
            node.type = _BIAS
        return rewritten

    return _patch(tfonnx, "rewrite_biasadd_with_conv2d", rewrite_first)


def keep_transposes_outside() -> AbstractContextManager[None]:
    """Keep tf2onnx from moving a Transpose into a body, within the context.

    The caller holds the lock.
    """
    move = TransposeOptimizer._handle_nhwc_tranpose

    def move_within(optimizer: Any, transpose: Any) -> Any:
        readers = transpose.graph.find_output_consumers(transpose.output[0])
        is_inside = len(readers) == 1 and readers[0].graph is not transpose.graph
        return False if is_inside else move(optimizer, transpose)

    return _patch(TransposeOptimizer, "_handle_nhwc_tranpose", move_within)


def keep_copied_sizes() -> AbstractContextManager[None]:
    """Keep two Reshapes apart where the second copies a size, within the context.

    The caller holds the process lock.
    """
    merge = back_to_back_optimizer._func_map[_RESHAPES]

    def merge_others(graph: Any, node: Any, readers: Any) -> Any:
        shapes = [reader.inputs[1] for reader in readers]
        copies = any(shape.is_const() and 0 in shape.get_tensor_value() for shape in shapes)
        return [] if copies else merge(graph, node, readers)

    return _merge(_RESHAPES, merge_others)


def keep_casts() -> AbstractContextManager[None]:
    """Keep two Casts apart within the context: the first may round, or wrap around.

    The caller holds the process lock.
    """
    return _merge(_CASTS, lambda *_: [])


def _merge(key: tuple[str, ...], merge: Callable[[Any, Any, Any], Any]) -> AbstractContextManager[None]:
    """Merge consecutive ops by another function, within the context."""
    rules = back_to_back_optimizer._func_map
    return _patch(back_to_back_optimizer, "_func_map", {**rules, key: merge})


def passes() -> Mapping[str, Any]:
    """Return the passes of tf2onnx's optimizer, except the pass making pools of reductions.

    Of an axis without values a reduction is a number, and a pool of ONNX Runtime fails.
    """
    return {name: each for name, each in optimizer._optimizers.items() if name != "global_pool_optimizer"}


@contextmanager
def _patch(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module or class inside the context, then undo.

    An attribute that did not exist is deleted again.
    """
    before = [original for key, original in vars(owner).items() if key == name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        for original in before:
            setattr(owner, name, original)


def _complete(graph: Any, around: Mapping[str, tuple[str, ...]]) -> None:
    """Add the nodes expected by tf2onnx in a loop, in place.

    Each loop variable has a Switch, also where only the condition reads it. A condition is computed by a node
    of the loop, also where it is a loop variable itself.
    """
    nodes = list(graph.get_nodes())
    conditions = {around.get(node.name): node for node in nodes if node.type == _LOOP}
    for condition in conditions.values():
        (source,), (name,) = condition.inputs, condition.input
        if source.type == "Merge":
            shapes, kinds = source.output_shapes[:1], source.output_dtypes[:1]
            copy = graph.make_node("Identity", [name], shapes=shapes, dtypes=kinds)
            graph.replace_input(condition, name, copy.output[0], 0)
    for node in nodes:
        condition = conditions.get(around.get(node.name, ()))
        is_variable = node.type == "Merge" and any(source.type == "NextIteration" for source in node.inputs)
        if is_variable and condition is not None:
            readers = graph.find_output_consumers(node.output[0])
            if not any(reader.type == "Switch" for reader in readers):
                shapes, kinds = node.output_shapes[:1] * 2, node.output_dtypes[:1] * 2
                inputs = [node.output[0], condition.output[0]]
                graph.make_node("Switch", inputs, output_count=2, shapes=shapes, dtypes=kinds)


def _is_innermost(op: Any, loops: dict[str, tuple[str, ...]]) -> bool:
    """Return True if a tf2onnx node is the LoopCond of an innermost loop."""
    if op.type != _LOOP:
        return False
    own = loops.get(op.name)
    others = (loops.get(other.name, ()) for other in op.graph.get_nodes() if other.type == _LOOP)
    return not own or not any(len(other) > len(own) and other[: len(own)] == own for other in others)


def _from_within(graph: Any, rewrite: Callable[[Any, Any], Any]) -> Any:
    """Rewrite innermost loops while the number of loops falls; return the graph's nodes."""
    nodes = graph.get_nodes()
    left = _count(nodes)
    while True:
        nodes = rewrite(graph, nodes)
        before, left = left, _count(nodes)
        if not 0 < left < before:
            return nodes


def _count(nodes: Iterable[Any]) -> int:
    return sum(node.type == _LOOP for node in nodes)


def in_one_line(error: object) -> str:
    """Return the text of an exception in a single line."""
    return " ".join(str(error).split())


@contextmanager
def listen(failures: dict[str, str]) -> Iterator[None]:
    """Silence tf2onnx and TensorFlow; record the reason for each unconverted node in `failures`.

    tf2onnx raises the first handler's error and nothing for an unknown op; its log has them all
    (tf2onnx v1.17.0 tf2onnx/tfonnx.py tensorflow_onnx_mapping).
    """

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
                return
            if record.msg.startswith("Tensorflow op [%s: %s] is not supported"):
                failures[str(record.args[0])] = ""
            elif record.msg.startswith("Failed to convert node %r") and record.exc_info:
                failures[str(record.args[0])] = in_one_line(record.exc_info[1])

    loggers = [logging.getLogger(name) for name in ("tf2onnx", "tensorflow")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [Listener(logging.ERROR)], False
        logger.setLevel(logging.ERROR)
    try:
        with ExitStack() as changes:
            for module in _modules():  # not the process's own output, into which other threads may print
                changes.enter_context(_patch(module, "print", lambda *_, **__: None))
            yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
