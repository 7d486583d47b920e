"""Checks of decoders' arguments, and of steps' answers.

All raise ValueError with a line: the argument, what was expected, what was found. Sizes that are unknown
while the graph is built are not checked here; TensorFlow refuses them when it runs the graph.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

#: `step(tokens [m], states) -> (log_probs [m, vocabulary], states)`.
Step: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]


def refuse(where: str, expected: str, actual: object) -> ValueError:
    """Make the exception of an argument."""
    return ValueError(f"{where}: expected {expected}, found {actual}")


def check_count(where: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise refuse(where, f"a whole number of at least {least}", repr(value))
    return int(value)


def check_number(where: str, value: Any) -> float:
    """Return a finite number."""
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise refuse(where, "a finite number", repr(value))
    return float(value)


def check_token(where: str, token: Any, vocabulary: int | None) -> None:
    """Refuse a token beyond the vocabulary, if of known size."""
    check_count(where, token, least=0)
    if vocabulary is not None and token >= vocabulary:
        raise refuse(where, f"a token below {vocabulary}, the size of the vocabulary", token)


def check_shape(where: str, value: Any, dims: str) -> Any:
    """Return a tensor with an axis for each word of `dims`."""
    tensor, axes = tf.convert_to_tensor(value), dims.split()
    if tensor.shape.rank not in (None, len(axes)):
        raise refuse(where, f"rank {len(axes)}, [{', '.join(axes)}]", describe(tensor))
    return tensor


def check_floats(where: str, value: Any, dims: str) -> Any:
    """Return floats with an axis for each word of `dims`; narrower types become float32."""
    tensor = check_shape(where, value, dims)
    if not tensor.dtype.is_floating:
        raise refuse(where, "floats", describe(tensor))
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def check_integers(where: str, value: Any, dims: str) -> Any:
    """Return int32 or int64 with an axis for each word of `dims`."""
    tensor = check_shape(where, value, dims)
    if tensor.dtype not in (tf.int32, tf.int64):
        raise refuse(where, "int32 or int64", describe(tensor))
    return tensor


def check_lengths(lengths: Any, sequences: Any) -> Any:
    """Return lengths `[n]` int32 of `sequences [n, time, ...]`, by default all of time."""
    if lengths is None:
        return tf.fill(tf.shape(sequences)[:1], tf.shape(sequences)[1])
    lengths = check_integers("lengths", lengths, "n")
    if not lengths.shape.is_compatible_with(sequences.shape[:1]):
        raise refuse("lengths", f"one for each of {sequences.shape[0]} rows", describe(lengths))
    return tf.cast(lengths, tf.int32)


def take_rows(value: Any, rows: Any) -> Any:
    """Take rows of a tensor as `tf.gather` does, but by a single node.

    `tf.gather` has a second node for the axis. In a beam search that would be a twentieth of all nodes.
    """
    return tf.raw_ops.Gather(params=value, indices=rows)


def keep_shape(where: str, value: Any, before: Any) -> Any:
    """Return the tensor `value` with all known sizes of `before`, a loop's earlier value.

    Raises ValueError where dtype or shape differ. What is not known yet TensorFlow checks at every step.
    """
    if value.dtype != before.dtype or not value.shape.is_compatible_with(before.shape):
        raise refuse(where, f"{describe(before)} as before the step", describe(value))
    return with_shape(value, before.shape)


def with_shape(value: Any, shape: Any) -> Any:
    """Return the tensor `value` with all known sizes of a `shape`.

    It comes back as it is where these are nothing more.
    """
    shape, before = tf.TensorShape(shape), value.shape
    is_known = before.rank is not None and shape.merge_with(before).as_list() == before.as_list()
    return value if is_known else tf.ensure_shape(value, shape)


def keep_shapes(after: Any, before: Any) -> Iterator[Any]:
    """Yield the fields of a named tuple, single or nested tensors, through `keep_shape`."""
    for where, new, old in zip(after._fields, after, before, strict=True):
        yield tf.nest.map_structure(partial(keep_shape, where), new, old)


def never(dtype: Any) -> Any:
    """Return minus infinity, the log probability of nonexistent sequences."""
    return tf.constant(-math.inf, dtype)


def choose(condition: Any, x: Any, y: Any) -> Any:
    """Return `tf.where` of log probabilities, including minus infinity, exact under tf2onnx too.

    Of floats tf2onnx makes `condition * x + (1 - condition) * y`, in which minus infinity becomes NaN, unless
    one of both is a constant that has an infinity (tf2onnx v1.17.0 tf2onnx/onnx_opset/controlflow.py Select).
    """
    return tf.maximum(tf.where(condition, x, never(x.dtype)), tf.where(condition, never(y.dtype), y))


def describe(tensor: Any) -> str:
    """Return the dtype and shape of a tensor, as `float32 [?, 3]`."""
    if tensor.shape.rank is None:
        return f"{tensor.dtype.name} of unknown rank"
    return f"{tensor.dtype.name} [{', '.join('?' if dim is None else str(dim) for dim in tensor.shape)}]"


@dataclass(frozen=True, slots=True)
class SearchArguments:
    """The checked arguments common to all searches, with a row for each of n examples.

    `dtype` is that of scores. `bias`, `[vocabulary]` or `[n, vocabulary]`, is what a `pad_mask` adds to log
    probabilities: minus infinity for tokens that are forbidden, else 0.
    """

    tokens: Any
    states: Any
    end: int | None
    pad: int
    dtype: Any
    bias: Any

    @classmethod
    def of(
        cls, tokens: Any, states: Any, *, end: Any, pad: Any, pad_mask: Any, scores: Any = None
    ) -> SearchArguments:
        """Check arguments; scores are float64 where a state or the initial `scores` are, else float32."""
        tokens = check_integers("tokens", tokens, "n")
        states = tf.nest.map_structure(tf.convert_to_tensor, states)
        for state in tf.nest.flatten(states):
            if state.shape.rank is not None and not state.shape[:1].is_compatible_with(tokens.shape):
                raise refuse("states", f"as many rows as tokens {describe(tokens)}", describe(state))
        check_count("pad", pad, least=tokens.dtype.min)
        floats = [tensor.dtype for tensor in [*tf.nest.flatten(states), scores] if tensor is not None]
        dtype = tf.float64 if tf.float64 in floats else tf.float32
        bias = None
        if pad_mask is not None:
            mask = tf.convert_to_tensor(pad_mask)
            if mask.dtype != tf.bool or mask.shape.rank not in (1, 2):
                raise refuse("pad_mask", "bool [vocabulary] or [n, vocabulary]", describe(mask))
            bias = tf.where(mask, never(dtype), tf.constant(0, dtype))
        return cls(tokens, states, end, int(pad), dtype, bias)

    @property
    def never(self) -> Any:
        """The score of nonexistent sequences."""
        return never(self.dtype)

    @property
    def padding(self) -> Any:
        """`pad` as an output token."""
        return tf.constant(self.pad, self.tokens.dtype)

    def call(self, step: Step, tokens: Any, states: Any) -> tuple[Any, Any]:
        """Call the step: log probabilities `[m, vocabulary]` in the dtype of scores, and new states."""
        log_probs, after = step(tokens, states)
        log_probs = check_floats("log_probs", log_probs, "m vocabulary")
        vocabulary = log_probs.shape[1]
        if self.end is not None:
            check_token("end", self.end, vocabulary)
        if self.bias is not None and self.bias.shape[-1] not in (None, vocabulary) and vocabulary is not None:
            raise refuse("pad_mask", f"{vocabulary} tokens, as log_probs have", self.bias.shape[-1])
        try:
            tf.nest.assert_same_structure(states, after)
        except (TypeError, ValueError):
            raise refuse("states", f"the structure of {_outline(states)}", _outline(after)) from None
        return tf.cast(log_probs, self.dtype), tf.nest.map_structure(tf.convert_to_tensor, after)


def _outline(states: Any) -> str:
    """Describe a structure by each tensor's dtype and shape."""
    return str(tf.nest.map_structure(lambda state: describe(tf.convert_to_tensor(state)), states))
