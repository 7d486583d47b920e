"""Makes batches of examples by `tf.data`: shuffled, batched, parsed at once, prefetched.

A batch is made before it is parsed: one call of `tf.io.parse_example` for many examples costs a fraction of
one call for each. Where a batch is refused, its records are looked at one by one for the one that is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import casts
from cudnn_convert.errors import UsageError
from cudnn_convert.feeds import records
from cudnn_convert.feeds.features import BITS, InputFeature
from cudnn_convert.feeds.records import FLAG, RecordPlace
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private
from cudnn_convert.text import first_line

#: Examples among which each is drawn: of more, those near each other in the files make a batch.
_SHUFFLED: Final = 10_000
#: After an input's key: the steps of each example.
_STEPS: Final = "/steps"
_PARSED: Final = {"float": tf.float32, "int64": tf.int64, "bytes": tf.string}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A choice of examples for batches: `taken` of `known`, shuffled by `seed` if given."""

    known: int
    taken: int
    batch: int
    seed: int | None

    @property
    def calls(self) -> int:
        """The number of batches."""
        return -(-self.taken // self.batch)


def batch_examples(
    examples: Any, drawing: Drawing, features: Mapping[str, InputFeature], locate: Callable[[int], str]
) -> list[dict[str, Array]]:
    """Return the arrays of each batch by input key.

    `examples` is a dataset of serialized Examples, `locate` says where the one of a number is. Raises
    UsageError for the first example that is damaged or does not fit its features.
    """
    with tf_private.eager_mode():  # the source's graph may stand open
        drawn = _draw(examples, drawing)
        parsed = drawn.map(
            tf.autograph.experimental.do_not_convert(
                lambda numbers, serialized: (numbers, _parse(serialized, features))
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        ).prefetch(tf.data.AUTOTUNE)
        batches = []
        try:
            for numbers, values in parsed:
                arrays = {key: value.numpy() for key, value in values.items()}
                # TensorFlow takes an example that lacks a feature for one without values.
                if _has_empty(arrays) and (reason := _explain(drawn, features, locate, {*numbers.numpy()})):
                    raise UsageError(f"{FLAG} {reason}")
                for key, feature in features.items():
                    if (row := _find_cut_off(arrays[key], feature)) is not None:
                        where, value = f"{FLAG} {locate(int(numbers[row]))}: {key}", arrays[key][row]
                        loss = casts.explain_loss(value, feature.dtype, of=f" as {feature} says")
                        raise UsageError(f"{where}: {loss}")
                batches.append({key: _finish(arrays[key], feature) for key, feature in features.items()})
        except (tf.errors.OpError, UnicodeDecodeError) as cause:  # the latter of a message that quotes bytes
            if reason := _explain(drawn, features, locate):
                raise UsageError(f"{FLAG} {reason}") from cause
            raise UsageError(
                f"{FLAG}: expected examples with these features, found an error: {first_line(cause)}"
            ) from cause
        return batches


def _draw(examples: Any, drawing: Drawing) -> Any:
    """Return a dataset of batches of numbers and serialized Examples."""
    numbered = examples.take(drawing.known).enumerate()
    if drawing.seed is not None:
        numbered = numbered.shuffle(
            min(drawing.known, _SHUFFLED), drawing.seed, reshuffle_each_iteration=False
        )
    return numbered.take(drawing.taken).batch(drawing.batch)


def draw_numbers(drawing: Drawing) -> list[Array]:
    """Return the numbers of the examples of each batch, the same as of records."""
    with tf_private.eager_mode():
        return [numbers.numpy() for numbers, _ in _draw(tf.data.Dataset.range(drawing.known), drawing)]


def read_records(places: Sequence[RecordPlace]) -> Any:
    """Return a dataset of the serialized Examples in all files of `places`, in order."""
    with tf_private.eager_mode():
        files = [path for path, _ in groupby(places, lambda record: record.path)]
        parts = [
            tf.data.TFRecordDataset([*map(str, paths)], compression_type="GZIP" if compressed else "")
            for compressed, paths in groupby(files, records.is_compressed)
        ]
        return reduce(lambda whole, part: whole.concatenate(part), parts)


def hold(serialized: Sequence[bytes]) -> Any:
    """Return a dataset of serialized Examples in memory."""
    with tf_private.eager_mode():
        return tf.data.Dataset.from_tensor_slices(tf.constant([*serialized], tf.string, [len(serialized)]))


def _parse(serialized: Any, features: Mapping[str, InputFeature]) -> dict[str, Any]:
    """Return tensors by input key, and the numbers of steps as `KEY/steps`.

    The numbers are there for features whose examples vary in length.
    """
    wanted = [feature for feature in features.values() if feature.length_of is None]
    # An input may be made of the feature that another is made of: each feature is parsed once.
    parsed = tf.io.parse_example(serialized, {feature.name: _spec_of(feature) for feature in wanted})
    values: dict[str, Any] = {}
    for feature in wanted:
        value = parsed[feature.name]
        if feature.coding:
            value, steps = _decode(value, feature)
        elif feature.is_variable:
            steps = value.row_lengths() // feature.inner
            steps = _check_multiple(steps, value.row_lengths(), feature.inner)
            pad = _pad(feature, value.dtype)
            value = value.to_tensor(pad)
        else:
            steps = None
        sizes = [-1 if size is None else size for size in feature.shape]
        if steps is not None:
            sizes[0] = tf.cast(tf.reduce_max(tf.concat([steps, [0]], 0)), tf.int32)
            values[feature.key + _STEPS] = steps
        values[feature.key] = tf.reshape(value, tf.stack([tf.size(serialized), *sizes]))
    for feature in features.values():
        if feature.length_of is not None:
            values[feature.key] = values[feature.length_of + _STEPS]
    return values


def _pad(feature: InputFeature, dtype: Any) -> Any:
    if dtype == tf.string:
        return tf.constant(b"")
    return tf.constant(np.asarray(feature.pad).astype(dtype.as_numpy_dtype))


def _spec_of(feature: InputFeature) -> Any:
    kind = _PARSED[feature.kind]
    if feature.coding:
        return tf.io.FixedLenFeature([], kind)
    if feature.is_variable:
        return tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature([feature.inner], kind)


def _check_multiple(steps: Any, counts: Any, share: int) -> Any:
    with tf.control_dependencies([tf.debugging.assert_equal(steps * share, counts)]):
        return tf.identity(steps)


def _decode(strings: Any, feature: InputFeature) -> tuple[Any, Any]:
    """Return the elements of byte strings, and the steps of each string.

    Elements are padded, and steps counted, where the number of steps varies.
    """
    sizes, share = tf.cast(tf.strings.length(strings), tf.int64), feature.bytes_per_step
    steps = _check_multiple(sizes // share, sizes, share)
    if not feature.is_variable:
        steps = _check_multiple(steps, tf.ones_like(steps), 1)
    kind = tf.uint8 if feature.coding == BITS else tf.as_dtype(feature.dtype)
    raw = tf.uint8 if kind == tf.bool else kind
    longest = tf.cast(tf.reduce_max(tf.concat([steps, [0]], 0)), tf.int32)
    if feature.is_variable:
        # A length of 0 is none that the op takes.
        values = tf.io.decode_raw(strings, raw, fixed_length=tf.maximum(longest, 1) * share)[
            :, : longest * (share // raw.size)
        ]
    else:
        values = tf.io.decode_raw(strings, raw)
    if feature.coding == BITS:
        # The highest bit of a byte is the first; bits after the last one of an example are left out.
        powers = tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)
        bits = values[..., None] // powers % 2
        values = tf.reshape(bits, [tf.size(strings), -1])
        values = values if feature.is_variable else values[:, : feature.inner]
    if not feature.is_variable:
        return values, None
    inside = tf.sequence_mask(steps * feature.inner, longest * feature.inner)
    return tf.where(inside, values, _pad(feature, values.dtype)), steps


def _has_empty(arrays: Mapping[str, Array]) -> bool:
    """Return True if a feature of any example is empty."""
    return any((steps == 0).any() for key, steps in arrays.items() if key.endswith(_STEPS))


def _explain(
    drawn: Any,
    features: Mapping[str, InputFeature],
    locate: Callable[[int], str],
    among: set[int] | None = None,
) -> str | None:
    """Return the first wrong example of `among`, and the fault, or None."""
    try:
        for numbers, serialized in drawn:
            for number, each in zip(numbers.numpy(), serialized.numpy(), strict=True):
                if among is not None and number not in among:
                    continue
                if fault := records.find_fault(each, features):
                    return f"{locate(int(number))}: {fault}"
    except tf.errors.OpError:
        return None
    return None


def _find_cut_off(value: Array, feature: InputFeature) -> int | None:
    """Return the first row with a number outside the feature's type, or None."""
    if feature.divisor is not None or feature.dtype.kind == "O" or value.dtype == feature.dtype:
        return None
    outside = casts.find_changed(value, feature.dtype).reshape(len(value), -1).any(1)
    return int(np.argmax(outside)) if outside.any() else None


def _finish(value: Array, feature: InputFeature) -> Array:
    """Return an input in the type and axes of the feature."""
    if feature.divisor is not None:
        kind = feature.dtype if feature.dtype.kind == "f" else np.dtype(np.float32)
        value = (value / np.asarray(feature.divisor, np.float64)).astype(kind)
    else:
        value = value.astype(feature.dtype)
    return np.ascontiguousarray(np.moveaxis(value, 0, feature.axis)) if feature.axis else value
