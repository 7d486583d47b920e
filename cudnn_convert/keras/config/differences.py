"""Differences between layers of older Keras and tf_keras 2.21 or Keras 3.15, a row each.

`scripts/keras_census` runs the layers of each version; its answers are the evidence of each row.
`private/older_layers.py` has the arithmetic of a row, under the row's name, `private/older_keras3.py` that of
a row of Keras 3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cudnn_convert.keras.config import layer_tree
from cudnn_convert.keras.config.versions import Writer


class Versions(NamedTuple):
    """The versions from `first` on and before `end`.

    None where there is no such limit.
    """

    first: tuple[int, ...] | None = None
    end: tuple[int, ...] | None = None

    def has(self, written: tuple[int, ...]) -> bool:
        """Return True if a version lies within."""
        return (self.first or ()) <= written and (self.end is None or written < self.end)


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """A difference between layers of Keras, with the affected versions of each Keras.

    `older` says what the older layer does, `newer` what the newer ones do. `is_proven`: whether an artifact
    of newer layers may be written, for the proof tells whether its outputs depend on it. `setting`: the class
    and key whose value shows the difference unless it is among `neutral`; without it, building shows it.
    `classes` are those that have it, named where a file may be of a version with it or of one without.
    """

    name: str
    keras_team: Versions | None
    tensorflow: Versions | None
    older: str
    newer: str
    is_proven: bool = False
    setting: tuple[str, str] | None = None
    neutral: tuple[Any, ...] = (None,)
    classes: frozenset[str] = frozenset()
    keras_3: Versions | None = None

    def is_of(self, writer: Writer, written: tuple[int, ...]) -> bool:
        """Return True if a writer of version `written` has the difference."""
        if written >= (3,):
            span = self.keras_3
        else:
            span = self.keras_team if writer.is_keras_team else self.tensorflow
        return span is not None and span.has(written)

    def message(self, keras_version: str) -> str:
        """Describe the behavior of a file's Keras and of newer versions."""
        return f"Keras {keras_version} {self.older}, and later ones {self.newer}"

    def refusal(self, keras_version: str, layer: str) -> str:
        """Return the reason to refuse a layer in a format of layers."""
        expected = "expected a layer that later versions of Keras compute alike"
        return (
            f"layer {layer}: {expected}, found that {self.message(keras_version)}; write --format savedmodel"
        )


_ALL: Final = Versions()

DIFFERENCES: Final = (
    # keras v2.3.1 backend/tensorflow_backend.py rnn leaves the steps to TensorFlow; tensorflow v1.13.2
    # keras/backend.py rnn.
    VersionDifference(
        "first_state_at_masked_steps",
        Versions(end=(2, 3)),
        Versions(end=(2, 2, 4)),
        "gives out the initial state for padding before a row",
        "do not",
    ),
    # tensorflow v1.13.0 keras/layers/wrappers.py Bidirectional: `zero_output_for_mask` of its layers.
    VersionDifference(
        "last_output_at_masked_steps",
        _ALL,
        Versions(end=(2, 2, 4)),
        "repeats at masked steps what came before",
        "give zeros",
        is_proven=True,
    ),
    # keras v2.1.4 layers/wrappers.py Bidirectional sets `stateful` before Layer.__init__ resets it; so does
    # tensorflow v1.15.0 keras/layers/wrappers.py.
    VersionDifference(
        "bidirectional_without_states",
        Versions(first=(2, 1, 4)),
        Versions((2, 1, 4), (2, 3)),
        "lets a stateful Bidirectional forget its states after each call",
        "carry them on",
    ),
    # keras v2.2.2 layers/recurrent.py StackedRNNCells; keras v2.2.3 and tensorflow v1.12.0 do so only with
    # `reverse_state_order`.
    VersionDifference(
        "stacked_states_reversed",
        Versions(end=(2, 2, 3)),
        Versions(end=(2, 1, 6)),
        "has the states of stacked cells from the last cell to the first",
        "have them from the first to the last",
    ),
    # keras v2.2.4, v2.3.1 backend/tensorflow_backend.py resize_images.
    VersionDifference(
        "bilinear_from_corners",
        _ALL,
        None,
        "resizes bilinearly from the corners of pixels",
        "do so from their centres",
        setting=("UpSampling2D", "interpolation"),
        neutral=(None, "nearest"),
    ),
    # keras v2.3.1, tensorflow v2.0.4 keras/backend.py batch_dot: each contracts one axis.
    VersionDifference(
        "dot_of_leading_axes",
        Versions(end=(2, 3)),
        Versions(end=(2, 3)),
        "multiplies matrix by matrix for each index of the axes before the last two",
        "contract one axis and keep all others",
    ),
    # tensorflow v2.4.0 keras/layers/advanced_activations.py Softmax.call takes a mask.
    VersionDifference(
        "softmax_without_mask",
        _ALL,
        Versions(end=(2, 5)),
        "lets a Softmax ignore the mask before it",
        "give masked values no weight",
    ),
    # keras v2.2.0, tensorflow v1.12.0 layers/wrappers.py TimeDistributed hands the mask on; not v1.8.0.
    VersionDifference(
        "time_distributed_without_mask",
        Versions(end=(2, 2)),
        Versions(end=(2, 1, 6)),
        "hands no mask to the layer in a TimeDistributed",
        "hand it over",
    ),
    # keras v2.10.0 layers/attention/multi_head_attention.py _compute_attention_mask.
    VersionDifference(
        "attention_without_mask",
        None,
        Versions(end=(2, 10)),
        "lets a MultiHeadAttention ignore the masks before it, and pass none on",
        "give masked values no weight, and pass the mask of the query on",
    ),
    # keras v2.14.0 layers/normalization/group_normalization.py `call` takes a mask; not v2.13.1.
    VersionDifference(
        "group_normalization_without_mask",
        None,
        Versions(end=(2, 14)),
        "lets a GroupNormalization ignore the mask before it",
        "leave masked values out of its statistics",
    ),
    # tensorflow v2.5.0 keras/layers/advanced_activations.py: ReLU's `supports_masking` was spelled otherwise.
    VersionDifference(
        "relu_without_mask", None, Versions(end=(2, 5)), "lets no mask pass a ReLU", "let it pass"
    ),
    # tensorflow v1.14.0 keras/layers/core.py ActivityRegularization.
    VersionDifference(
        "regularization_without_mask",
        None,
        Versions(end=(2, 2, 4, 14)),
        "lets no mask pass an ActivityRegularization",
        "let it pass",
        classes=frozenset({"ActivityRegularization"}),
    ),
    # tensorflow v1.12.0, v1.13.0 keras/engine/base_layer.py _set_mask_metadata; not v1.8.0.
    VersionDifference(
        "model_without_mask",
        None,
        Versions((2, 1, 6), (2, 2, 4, 14)),
        "lets no mask come out of a model inside a model",
        "let it come out",
        classes=frozenset({"Model", "Functional", "Sequential"}),
    ),
    # tensorflow v1.13.2 keras/layers/wrappers.py Bidirectional: `zero_output_for_mask`, whatever it returns.
    VersionDifference(
        "last_output_of_padding",
        None,
        Versions((2, 2, 4), (2, 2, 4, 14)),
        "gives zeros for the last output of a Bidirectional that ends in padding",
        "give that of the last step before it",
    ),
    # tensorflow v1.4.1 keras/_impl/keras/layers/convolutional.py Conv3DTranspose is a Conv3D.
    VersionDifference(
        "transposed_as_convolution",
        None,
        Versions(end=(2, 1)),
        "computes a Conv3D where a Conv3DTranspose stands",
        "transpose it",
    ),
    # tensorflow v1.13.0 keras/layers/convolutional.py Conv2DTranspose; keras v2.2.4 dilates.
    VersionDifference(
        "transposed_without_dilation",
        None,
        Versions(end=(2, 2, 4)),
        "leaves out the dilation_rate of a transposed convolution",
        "dilate",
        setting=("Conv2DTranspose", "dilation_rate"),
        neutral=(None, 1, [1, 1]),
    ),
    # tensorflow v2.11.0 python/ops/nn_impl.py fused_batch_norm: at least 1.001e-5, as cuDNN asks. Inference
    # calls it since keras v2.2.0 backend/tensorflow_backend.py batch_normalization.
    VersionDifference(
        "epsilon_of_cudnn",
        Versions(first=(2, 2)),
        Versions(end=(2, 12)),
        "takes an epsilon below 1.001e-5 for 1.001e-5 where it normalizes images",
        "take it as it is",
    ),
    # keras v2.6.0 layers/normalization/batch_normalization.py: `fused` for ranks 4 and 5, v2.5.0 for rank 4.
    VersionDifference(
        "epsilon_of_cudnn_in_films",
        None,
        Versions((2, 6), (2, 12)),
        "takes an epsilon below 1.001e-5 for 1.001e-5 where it normalizes films",
        "take it as it is",
    ),
    # keras v3.3.3 layers/layer.py `__call__` asks its first argument for a mask, and a list has none; v3.4.0
    # asks each tensor in it.
    VersionDifference(
        "masks_of_several",
        None,
        None,
        "lets no mask pass a layer of several inputs",
        "let it pass",
        keras_3=Versions(end=(3, 4)),
    ),
    # keras v3.4.0 layers/merging/base_merge.py _apply_merge_op_and_or_mask, multiply.py; not v3.3.3.
    VersionDifference(
        "masked_values_in_merges",
        None,
        None,
        "takes masked values in a Maximum, Minimum or Multiply as they are",
        "leave them out",
        keras_3=Versions(end=(3, 4)),
    ),
    # keras v3.10.0 layers/activations/softmax.py; v3.9.2 adds -1e9 to what is masked, and no more.
    VersionDifference(
        "softmax_of_padding",
        None,
        None,
        "spreads a Softmax over masked values where no others are left",
        "give zeros there",
        is_proven=True,
        keras_3=Versions(end=(3, 10)),
    ),
    # keras v3.11.0 layers/layer.py `__call__`, previous_mask; v3.10.0 has the mask of the first argument.
    VersionDifference(
        "given_mask_ends",
        None,
        None,
        "lets a mask that a call is given end in its layer",
        "pass it on",
        keras_3=Versions(end=(3, 11)),
    ),
)


def of_writer(writer: Writer) -> Iterator[VersionDifference]:
    """Yield the differences of a file's Keras, where the version is known."""
    if writer.numbers is not None:
        yield from (row for row in DIFFERENCES if row.is_of(writer, writer.numbers))


def of_older_releases(writer: Writer, config: Mapping[str, Any]) -> Iterator[VersionDifference]:
    """Yield the differences in the oldest possible release of a file, absent from the newest.

    Those alone whose classes lie in the model's `config`.
    """
    if writer.numbers is None or writer.oldest is None or writer.oldest == writer.numbers:
        return
    inner = {str(entry["class_name"]) for _, entry in layer_tree.below(config)}
    for row in DIFFERENCES:
        if row.classes & inner and row.is_of(writer, writer.oldest) and not row.is_of(writer, writer.numbers):
            yield row


def of_layer(writer: Writer, class_name: str, config: Mapping[str, Any]) -> Iterator[VersionDifference]:
    """Yield the differences shown by a layer's config."""
    for difference in of_writer(writer):
        if difference.setting is not None:
            kind, key = difference.setting
            if class_name == kind and config.get(key) not in difference.neutral:
                yield difference


#: What versions of TensorFlow do not save: class, key, what it is read as.
_UNSAVED: Final = (
    # tensorflow v1.4.1 keras/_impl/keras/layers/convolutional.py SeparableConv2D.get_config.
    (Versions(end=(2, 1)), "SeparableConv2D", "dilation_rate", "1"),
    # tensorflow v1.13.2, v1.14.0 keras/layers/convolutional.py UpSampling2D.get_config.
    (Versions((2, 2, 4), (2, 2, 4, 15)), "UpSampling2D", "interpolation", "nearest"),
)


def note_unsaved(writer: Writer, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note, with layers, for each setting unsaved by the writer's Keras."""
    for span, kind, key, default in _UNSAVED:
        if writer.numbers is None or writer.is_keras_team or not span.has(writer.oldest or writer.numbers):
            continue
        layers = [
            path
            for path, entry in layer_tree.below(config)
            if entry["class_name"] == kind and key not in entry["config"]
        ]
        if layers:
            yield (
                f"{', '.join(layers)}: Keras {writer.version} does not save the {key} of a {kind}, "
                f"which is read as {default}; compare with verify --golden where it was another"
            )
