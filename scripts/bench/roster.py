"""Everyone who takes part; who is not installed is named, not passed over."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from contender import (
    FUNCTION,
    JIT,
    ONNX,
    ONNX_INT8,
    OPENVINO_ONNX,
    SESSION,
    TFLITE,
    TFLITE_FUSED,
    TOLERANCE_INT8,
    Contender,
)

#: What each is, by its name in the results, in the order of the tables, and our artifact that it is compared
#: with: that which is called in the same way. The forms of our own lowering follow ours in a Session.
PEERS: Final = MappingProxyType(
    {
        SESSION: ("our SavedModel, in a Session", SESSION),
        JIT: ("our SavedModel of `--jit`, in a Session", SESSION),
        "tf1": ("TensorFlow 1: compatible cells in `dynamic_rnn`", SESSION),
        FUNCTION: ("our SavedModel, `tf.saved_model.load`", FUNCTION),
        "tf_keras": ("tf_keras, exported for a CPU", FUNCTION),
        "keras": ("Keras 3, exported for a CPU", FUNCTION),
        ONNX: ("our ONNX model", ONNX),
        ONNX_INT8: ("our ONNX model, `--quantize int8`", ONNX),
        OPENVINO_ONNX: ("our ONNX model in OpenVINO, float32", ONNX),
        TFLITE: ("our TensorFlow Lite file, a loop", ONNX),
        TFLITE_FUSED: ("our TensorFlow Lite file, `--lowering fused`", ONNX),
        "bare_node": ("ONNX Runtime's fused node alone", ONNX),
        "tf2onnx_tf_keras": ("tf2onnx of the tf_keras model", ONNX),
        "tf2onnx_tf1": ("tf2onnx of the TensorFlow 1 graph", ONNX),
        "torch": ("PyTorch, `nn.LSTM` and `nn.GRU`", ONNX),
        "openvino": ("OpenVINO in float32, the fused node alone", ONNX),
    }
)
FORM: Final = "form_"
#: Our files in other runtimes than TensorFlow, beside the fused nodes that users would have instead.
RUNTIMES: Final = (ONNX, OPENVINO_ONNX, TFLITE, TFLITE_FUSED, "bare_node", "openvino")
OURS: Final = (SESSION, FUNCTION, ONNX)


def words(name: str) -> str:
    """What one is."""
    return f"our lowering, form `{name.removeprefix(FORM)}`" if name.startswith(FORM) else PEERS[name][0]


def own(name: str) -> str:
    """Our artifact that one is compared with."""
    return SESSION if name.startswith(FORM) else PEERS[name][1]


def ordered(names: Iterable[str]) -> list[str]:
    """Each once, in the order of the tables."""
    place = {name: k for k, name in enumerate(PEERS)}
    return sorted({*names}, key=lambda name: (place.get(name, place["tf1"]), name.startswith(FORM), name))


def contenders() -> dict[str, Contender]:
    """All of them by name. Imports TensorFlow, and nothing that may be missing."""
    import keras_peers
    import ours
    import runtimes
    import tensorflow_one

    found = [
        Contender(SESSION, ours.savedmodel),
        Contender(JIT, ours.savedmodel_jit),
        Contender("tf1", tensorflow_one.build),
        *(
            Contender(f"{FORM}{name}", partial(ours.form, name), fits=partial(ours.fits, name))
            for name in ours.FORMS
        ),
        Contender(FUNCTION, ours.savedmodel_function),
        Contender("tf_keras", keras_peers.tf_keras_export),
        Contender("keras", keras_peers.keras_export),
        Contender(ONNX, ours.onnx),
        Contender(ONNX_INT8, ours.onnx_int8, fits=ours.is_lstm, tolerance=TOLERANCE_INT8),
        Contender(OPENVINO_ONNX, ours.onnx_in_openvino, package="openvino"),
        Contender(TFLITE, ours.tflite),
        Contender(TFLITE_FUSED, ours.tflite_fused, fits=ours.is_lstm),
        Contender("bare_node", runtimes.bare_node),
        Contender("tf2onnx_tf_keras", keras_peers.tf2onnx_of_tf_keras),
        Contender("tf2onnx_tf1", runtimes.tf2onnx_of_tensorflow_1),
        Contender("torch", runtimes.torch_module, package="torch"),
        Contender("openvino", runtimes.openvino_node, package="openvino"),
    ]
    return {one.name: one for one in found}


def absent(given: Iterable[Contender]) -> list[str]:
    """The names of those whose package is not installed."""
    return [one.name for one in given if one.package and find_spec(one.package) is None]
