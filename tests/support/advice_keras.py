"""Tables of `Advice`: messages about files of Keras."""

from __future__ import annotations

from typing import Any, Final

from support import asking_keras as asking
from support.advice import Advice
from support.keras_files import entry

_H5: Final = r"write (--format h5)"
#: What an HDF5 file without cuDNN layers is told: it is what h5 would give. Layers of others come next.
_GRAPH: Final = r"write (--format savedmodel)"
_PIECES: Final = "keras/build_keras3.py: layer {}: {}; write --format {}{}"
_INSTEAD: Final = "keras/build_keras3.py: {}; write --format {}"
_BRING: Final = "bring it for tf_keras with --custom-objects"
_KERAS: Final = ["--format", "keras"]
_ONNX: Final = ["--format", "onnx"]
_ALONE: Final = [*_KERAS, "--no-verify"]
_LSTM: Final = entry("LSTM", "lstm", units=3, activation="tanh", recurrent_activation="sigmoid")
_INNER: Final[dict[str, Any]] = {
    "class_name": "Sequential",
    "config": {"name": "lstm", "layers": [_LSTM, entry("Scale", "end")], "build_input_shape": [None, 6, 5]},
}


def refusing(*_: Any, **__: Any) -> Any:
    raise ValueError("Exception encountered: no such argument")


#: What Keras 3 cannot say, and the older format can.
WRITTEN: Final = (
    Advice(
        ["keras/translate.py: write --format {}", "keras/translate.py: , or bring one"],
        asking.behind(entry("ThresholdedReLU", "last", theta=0.1)),
        _KERAS,
        rf"{_H5}|bring one: (--custom-objects \S+)",
        {"MODULE": "thresholded"},
        prepare=lambda here, _: (here / "thresholded.py").write_text(asking.THRESHOLDED),
    ),
    Advice(
        ["keras/translate.py: write --format {}"],
        asking.behind(entry("Dense", "a/b", units=2), **{"a/b": asking.values((3, 2), (2,))}),
        _KERAS,
        _H5,
    ),
    Advice(
        ["keras/config/differences.py: write --format savedmodel"],
        asking.behind(
            entry("Reshape", "image", target_shape=[asking.STEPS, asking.UNITS, 1]),
            entry("UpSampling2D", "up", size=[2, 2], interpolation="bilinear"),
        ),
        _KERAS,
        r"write (--format savedmodel)",
    ),
    Advice(
        ["targets/layers.py: {}: {}; choose --format savedmodel"],
        asking.given_images,
        _KERAS,
        r"choose (--format savedmodel)",
    ),
    Advice(
        ["keras/config/differences.py: write --format savedmodel"],
        asking.masked_decoder,
        ["--format", "h5"],
        r"write (--format savedmodel)",
    ),
    Advice(
        ["keras/cut_layers.py: or convert what comes before it with"],
        asking.behind(entry("Lambda", "code")),
        _ONNX,
        r"or convert what comes before it with (--outputs \S+)$",
    ),
    Advice(["keras/translate.py: write --format {}"], asking.behind(entry("Lambda", "code")), _KERAS, _H5),
    Advice(
        ["keras/translate.py: , or write --format h5"],
        asking.without_shape,
        _ALONE,
        r"or write (--format h5)",
    ),
    Advice(
        ["keras/translate.py: Keras 3 has no such layer"],
        "tf.keras-1.15.5-time_major",
        _KERAS,
        r"write (--format savedmodel)$",
    ),
    Advice(
        ["keras/translate.py: found {}; write --format {}"],
        asking.dense(activation=entry("ReLU", "r")),
        _KERAS,
        _H5,
    ),
    Advice(
        ["keras/translate.py: to be equal in Keras 2 and 3"],
        asking.dense(activation="hard_sigmoid"),
        _KERAS,
        _H5,
    ),
    Advice(
        ["keras/build_keras3.py: a model that Keras 3 can build"],
        asking.dense(),
        _KERAS,
        _H5,
        patch=("keras.saving.deserialize_keras_object", refusing),
    ),
    Advice([_INSTEAD], asking.open_steps, _KERAS, _H5),
    Advice([_INSTEAD], asking.merged_mask, _KERAS, _H5),
    Advice([_INSTEAD], asking.dilated, _KERAS, _H5),
    Advice(
        [_INSTEAD],
        asking.dense(),
        _KERAS,
        _H5,
        patch=("cudnn_convert.keras.build_keras3.fill_variables", lambda *_: False),
    ),
    Advice([_PIECES], asking.apart(_LSTM, "a", "b"), _ALONE, _GRAPH, then=_BRING),
    Advice(
        [_PIECES],
        asking.apart(entry("TimeDistributed", "lstm", layer=_LSTM), "a", "b", "c", steps=None),
        _ALONE,
        _GRAPH,
        then=_BRING,
    ),
    Advice(
        [_PIECES, "keras/build_keras3.py: or bring it with"],
        asking.apart(entry("RNN", "lstm", cell=entry("StackedRNNCells", "s", cells=[entry("Mine", "mine")]))),
        _ALONE,
        _GRAPH,
        then=_BRING,
    ),
    Advice(
        [_PIECES],
        asking.apart(
            entry("Bidirectional", "lstm", layer=entry("Mine", "mine")), "forward_mine/a", "forward_mine/b"
        ),
        _ALONE,
        _GRAPH,
        then=_BRING,
    ),
    Advice([_PIECES], asking.apart(_INNER, "lstm/a", "elsewhere/b"), _ALONE, _GRAPH, then=_BRING),
    Advice(
        ["keras/translate.py: write --format {}"],
        asking.plain(asking.behind(entry("ThresholdedReLU", "last", theta=0.1))),
        _KERAS,
        _GRAPH,
    ),
    Advice([_INSTEAD], asking.plain(asking.dilated), _KERAS, _GRAPH),
)

#: Layers of others, and what is left out.
BROUGHT: Final = (
    Advice(
        [
            "keras/trace.py: convert it with",
            "keras/trace.py: one for Keras 3 too",
            "keras/config/validate.py: with --custom-objects",
        ],
        "keras-2.2.4-custom_layer",
        _KERAS,
        r"convert it with (--no-verify)|(--custom-objects \S+),(?= for --format keras one for Keras 3 too)",
        {"MODULE:Scale": "scale_for_tf_keras:Scale --custom-objects scale_for_keras:Scale"},
    ),
    Advice(["keras/config/validate.py: --trust"], asking.with_code, [], r"vouch for the file with (--trust)"),
    Advice(
        ["keras/config/validate.py: --trust"],
        asking.archive_with_code,
        _ONNX,
        r"vouch for the file with (--trust)",
    ),
    Advice(
        ["keras/config/validate.py: with --custom-objects"],
        asking.archive_of_a_class,
        _ONNX,
        r"bring it for Keras 3 with (--custom-objects [^\s,]+)",
        {"MODULE": "scale_for_keras"},
    ),
    Advice(
        ["keras/config/validate.py: with --custom-objects"],
        "keras-2.2.4-custom_layer",
        _ONNX,
        r"bring it for tf_keras with (--custom-objects \S+)$",
        {"MODULE": "scale_for_tf_keras"},
    ),
    Advice(
        ["keras/restore_keras3.py: bring it with"],
        asking.of_another_module,
        _ONNX,
        r"bring it with (--custom-objects \S+)",
        {"MODULE": "starting"},
        prepare=lambda here, _: (here / "starting.py").write_text(
            "import keras\n\n\nclass Start(keras.initializers.Zeros):\n    pass\n"
        ),
    ),
    Advice(
        ["targets/h5.py: found one of Keras {}; choose --format {}"],
        asking.keras_3,
        ["--format", "h5"],
        r"choose (--format keras)",
    ),
    Advice(
        ["targets/h5.py: found one of Keras {}; choose --format {}"],
        asking.archive,
        ["--format", "h5"],
        r"choose (--format savedmodel)",
    ),
    Advice(
        ["keras/cpu_layers.py: --slots"],
        "keras-2.2.4-adam",
        ["--format", "h5"],
        r"dropped; keep it with (--slots)",
    ),
)
