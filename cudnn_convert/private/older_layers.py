"""Layers of tf_keras computing as in older versions of Keras.

`keras/config/differences.py` says which version differs in what, and has the sources. The patches are seen by
all threads, as those of `keras_private` are.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import tensorflow as tf

#: The ops of an initial state that a call is not given (tf_keras v2.21.0 src/layers/rnn/rnn_utils.py).
_ZEROS: Final = frozenset({"Fill", "Const"})
#: cuDNN's least epsilon of a normalisation (tensorflow v2.11.0 python/ops/nn_impl.py fused_batch_norm).
_EPSILON: Final = 1.001e-5

#: Called with the name of a layer that computes otherwise.
Report = Callable[[str], None]
#: An attribute of a module or class, and what takes its place.
Patch = tuple[Any, str, Callable[..., Any]]


@contextmanager
def compute_as(differences: Collection[str]) -> Iterator[dict[str, list[str]]]:
    """Build layers of tf_keras with the arithmetic of an older Keras, within the context.

    `differences` are names of keras/config/differences.py. The dict gets the layers that compute otherwise
    than those of tf_keras, as often as they do, by the name of the difference.
    """
    layers: dict[str, list[str]] = {}

    def report(difference: str, layer: str) -> None:
        layers.setdefault(difference, []).append(layer)

    with ExitStack() as stack:
        for change in _patches(differences, report):
            stack.enter_context(patch.object(*change))
        yield layers


def _patches(differences: Collection[str], report: Callable[[str, str], None]) -> Iterator[Patch]:
    import tf_keras
    from tf_keras.src import backend
    from tf_keras.src.engine import functional

    first_state = "first_state_at_masked_steps" in differences
    if first_state or "last_output_at_masked_steps" in differences:
        yield _repeat_masked_steps(backend, report, first_state=first_state)
    if "bilinear_from_corners" in differences:
        yield _resize_from_corners(backend, partial(report, "bilinear_from_corners"))
    if "model_without_mask" in differences:
        yield _keep_mask_inside(functional.Functional, partial(report, "model_without_mask"))
    for name, (layer, change) in _LAYERS.items():
        if name in differences:
            yield from change(getattr(tf_keras.layers, layer), partial(report, name))


def _repeat_masked_steps(backend: Any, report: Callable[[str, str], None], *, first_state: bool) -> Patch:
    """Make recurrences repeat the preceding values at masked steps, also inside a Bidirectional.

    Repeated is the output, which begins with zeros, or with `first_state` the first state, which an initial
    state may begin. TimeDistributed has no mask.
    """
    steps = backend.rnn

    def rnn(step: Any, inputs: Any, initial_states: Any, **named: Any) -> Any:
        mask = named.pop("mask", None) if initial_states else None
        scope = tf.compat.v1.get_default_graph().get_name_scope()
        repeats_state = first_state and not named.get("unroll")
        given = [state for state in tf.nest.flatten(initial_states) if state.op.type not in _ZEROS]
        if mask is not None and repeats_state and given:
            report("first_state_at_masked_steps", scope)
        elif mask is not None and named.get("zero_output_for_mask"):
            report("last_output_at_masked_steps", scope)
        named = {**named, "zero_output_for_mask": False}
        if mask is None or not repeats_state:
            return steps(step, inputs, initial_states, **{**named, "mask": mask})

        kept_steps = tf.expand_dims(tf.cast(mask, tf.bool), -1)

        def step_or_repeat(given: Any, states: Any) -> Any:
            current, kept = given
            output, new_states = step(current, states)
            flat = tf.nest.flatten(states)
            new = [tf.where(kept, *pair) for pair in zip(tf.nest.flatten(new_states), flat, strict=False)]
            return tf.where(kept, output, flat[0]), tf.nest.pack_sequence_as(new_states, new)

        return steps(step_or_repeat, (inputs, kept_steps), initial_states, **named)

    return backend, "rnn", rnn


def _forget_states(layer: Any, report: Report) -> Iterator[Patch]:
    begin = layer.__init__

    def begin_without_states(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        if self.stateful:
            report(self.name)
            self.stateful = self.forward_layer.stateful = self.backward_layer.stateful = False

    yield layer, "__init__", begin_without_states


def _reverse_states(cells: Any, report: Report) -> Iterator[Patch]:
    """Make stacked cells keep states from the last to the first.

    tf_keras with `reverse_state_order` gives them out so, and takes them from the first to the last: src/
    layers/rnn/stacked_rnn_cells.py `call`, v2.21.0.
    """
    begin, call = cells.__init__, cells.call

    def begin_reversed(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **{**named, "reverse_state_order": True})

    def call_reversed(self: Any, inputs: Any, states: Any, *args: Any, **named: Any) -> Any:
        report(tf.compat.v1.get_default_graph().get_name_scope())
        outputs, new_states = call(self, inputs, states[::-1], *args, **named)
        return outputs, new_states[::-1]

    yield cells, "__init__", begin_reversed
    yield cells, "call", call_reversed


def _resize_from_corners(backend: Any, report: Report) -> Patch:
    """Make bilinear resizing take the values of pixels at the corners."""
    resize = backend.resize_images

    def resize_images(
        images: Any, rows: int, columns: int, data_format: str, interpolation: str = "nearest"
    ) -> Any:
        if interpolation != "bilinear":
            return resize(images, rows, columns, data_format, interpolation=interpolation)
        report(tf.compat.v1.get_default_graph().get_name_scope())
        channels_first = data_format == "channels_first"
        last = tf.transpose(images, [0, 2, 3, 1]) if channels_first else images
        known = last.shape[1:3]
        size = tf.constant(known.as_list()) if known.is_fully_defined() else tf.shape(last)[1:3]
        resized = tf.compat.v1.image.resize_bilinear(last, size * [rows, columns])
        return tf.transpose(resized, [0, 3, 1, 2]) if channels_first else resized

    return backend, "resize_images", resize_images


def _multiply_last_axes(layer: Any, report: Report) -> Iterator[Patch]:
    """Make a Dot of rank 4 or more a product of matrices.

    So it is, whatever axes of the last two it contracts. The tensor of the lower rank gets axes of size 1
    behind its own, which the product loses again.
    """
    merge = layer._merge_function

    def _merge_function(self: Any, inputs: Any) -> Any:
        ranks = [tensor.shape.rank for tensor in inputs]
        most, least = max(ranks), min(ranks)
        if most < 4:
            return merge(self, inputs)
        report(self.name)
        axes = self.axes if isinstance(self.axes, (list, tuple)) else (self.axes, self.axes)
        axes = [axis % rank for axis, rank in zip(axes, ranks, strict=True)]
        if self.normalize:
            inputs = [tf.linalg.l2_normalize(*pair) for pair in zip(inputs, axes, strict=True)]
        first, second = (_with_rank(tensor, most) for tensor in inputs)
        product = tf.matmul(first, second, transpose_a=axes[0] != most - 1, transpose_b=axes[1] == most - 1)
        if most == least:
            return product
        lost = ranks[0] + ranks[1] - 3 if ranks[0] > ranks[1] else ranks[0] - 1
        return tf.squeeze(product, list(range(lost, lost + most - least)))

    yield layer, "_merge_function", _merge_function


def _with_rank(tensor: Any, rank: int) -> Any:
    sizes = [1] * (rank - tensor.shape.rank)
    return tf.reshape(tensor, tf.concat([tf.shape(tensor), sizes], 0)) if sizes else tensor


def _ignore_mask(layer: Any, report: Report) -> Iterator[Patch]:
    call = layer.call

    def call_without_mask(self: Any, inputs: Any, mask: Any = None, **named: Any) -> Any:
        if mask is not None:
            report(self.name)
        return call(self, inputs, **named)

    yield layer, "call", call_without_mask


def _attend_everywhere(layer: Any, report: Report) -> Iterator[Patch]:
    """Make attention ignore the masks of queries and values, and stop all masks.

    A mask that is an argument counts.
    """

    def compute_attention_mask(
        self: Any, query: Any, value: Any, key: Any = None, attention_mask: Any = None, **_: Any
    ) -> Any:
        masks = [getattr(tensor, "_keras_mask", None) for tensor in (query, value, key)]
        if any(mask is not None for mask in masks):
            report(self.name)
        return attention_mask

    yield layer, "_compute_attention_mask", compute_attention_mask
    yield from _stop_mask(layer, report)


def _stop_mask(layer: Any, report: Report) -> Iterator[Patch]:
    def compute_mask(self: Any, inputs: Any, mask: Any = None) -> None:
        if mask is not None:
            report(self.name)

    yield layer, "compute_mask", compute_mask


def _keep_mask_inside(model: Any, report: Report) -> Patch:
    call = model.call

    def call_without_mask(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        outputs = call(self, inputs, training=training, mask=mask)
        for tensor in tf.nest.flatten(outputs):
            if getattr(tensor, "_keras_mask", None) is not None:
                report(self.name)
                tensor._keras_mask = None
        return outputs

    return model, "call", call_without_mask


def _end_in_zeros(wrapper: Any, report: Report) -> Iterator[Patch]:
    """Keep a saved layer's `zero_output_for_mask` in a Bidirectional.

    So it is, whatever the Bidirectional returns.
    """
    begin = wrapper.__init__

    def begin_with_zeros(self: Any, layer: Any, *args: Any, **named: Any) -> None:
        was_saved = getattr(layer, "zero_output_for_mask", False)
        begin(self, layer, *args, **named)
        if was_saved and not self.forward_layer.return_sequences:
            report(self.name)
            self.forward_layer.zero_output_for_mask = self.backward_layer.zero_output_for_mask = True

    yield wrapper, "__init__", begin_with_zeros


def _convolve(layer: Any, report: Report) -> Iterator[Patch]:
    """Make a transposed convolution compute as the base class, a plain convolution."""
    base = layer.__base__

    def build(self: Any, input_shape: Any) -> None:
        report(self.name)
        base.build(self, input_shape)

    yield layer, "build", build
    yield layer, "call", base.call
    yield layer, "compute_output_shape", base.compute_output_shape


def _leave_out_dilation(layer: Any, report: Report) -> Iterator[Patch]:
    build = layer.build

    def build_without_dilation(self: Any, input_shape: Any) -> None:
        if tuple(self.dilation_rate) != (1, 1):
            report(self.name)
            self.dilation_rate = (1, 1)
        build(self, input_shape)

    yield layer, "build", build_without_dilation


def _raise_epsilon(layer: Any, report: Report, *, rank: int) -> Iterator[Patch]:
    """Give normalisations of tensors of `rank` at least cuDNN's least epsilon.

    The versions of the layer share the base class.
    """
    base = layer.__base__
    build = base.build

    def build_with_epsilon(self: Any, input_shape: Any) -> None:
        build(self, input_shape)
        if self.fused and self.epsilon < _EPSILON and len(input_shape) == rank:
            report(self.name)
            self.epsilon = _EPSILON

    yield base, "build", build_with_epsilon


#: The layer that a difference changes, and how.
_LAYERS: Final[Mapping[str, tuple[str, Callable[[Any, Report], Iterator[Patch]]]]] = {
    "bidirectional_without_states": ("Bidirectional", _forget_states),
    "last_output_of_padding": ("Bidirectional", _end_in_zeros),
    "stacked_states_reversed": ("StackedRNNCells", _reverse_states),
    "dot_of_leading_axes": ("Dot", _multiply_last_axes),
    "softmax_without_mask": ("Softmax", _ignore_mask),
    "time_distributed_without_mask": ("TimeDistributed", _ignore_mask),
    "group_normalization_without_mask": ("GroupNormalization", _ignore_mask),
    "attention_without_mask": ("MultiHeadAttention", _attend_everywhere),
    "relu_without_mask": ("ReLU", _stop_mask),
    "regularization_without_mask": ("ActivityRegularization", _stop_mask),
    "transposed_as_convolution": ("Conv3DTranspose", _convolve),
    "transposed_without_dilation": ("Conv2DTranspose", _leave_out_dilation),
    "epsilon_of_cudnn": ("BatchNormalization", partial(_raise_epsilon, rank=4)),
    "epsilon_of_cudnn_in_films": ("BatchNormalization", partial(_raise_epsilon, rank=5)),
}
