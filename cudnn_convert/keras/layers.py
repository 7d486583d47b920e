"""The layer classes of Keras 2: which are Keras's own, which are cuDNN's, what a missing key meant.

Source: keras 2.0.9-2.3.1 layers/, tensorflow v1.15.0 python/keras/layers/, tf_keras v2.21.0 src/layers/.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.keras import architecture
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.model import Architecture, Mode

#: The CPU layer that takes the place of each cuDNN layer.
CUDNN: Final = MappingProxyType({"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"})
MODES: Final = MappingProxyType(
    {"CuDNNLSTM": Mode.LSTM, "CuDNNGRU": Mode.GRU, "LSTM": Mode.LSTM, "GRU": Mode.GRU}
)
_RECURRENT: Final = MappingProxyType(
    {"activation": "tanh", "use_bias": True, "dropout": 0.0, "recurrent_dropout": 0.0}
)
#: What the arithmetic of cuDNN is in the words of a CPU layer.
CPU: Final = MappingProxyType({**_RECURRENT, "recurrent_activation": "sigmoid", "unroll": False})
#: What Keras 2 and TensorFlow 1 took for a key that a config leaves out; newer classes take something else.
MISSING: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        name: MappingProxyType({**_RECURRENT, "recurrent_activation": "hard_sigmoid", **more})
        for names, more in (("LSTM LSTMCell", {}), ("GRU GRUCell", {"reset_after": False}))
        for name in names.split()
    }
)
ACTIVATIONS: Final = frozenset(
    "elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softmax softplus softsign "
    "swish tanh".split()
)
#: Layers whose arithmetic is code in the file, or in another file.
CODE: Final = frozenset("Lambda TFOpLambda TensorFlowOpLayer SlicingOpLambda ClassMethod".split())
BUILT_IN: Final = frozenset(
    """
    Model Functional Sequential InputLayer
    Activation ActivityRegularization AlphaDropout Dense Dropout EinsumDense Embedding Flatten Masking Permute
    RepeatVector Reshape SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout GaussianNoise
    ELU LeakyReLU PReLU ReLU Softmax ThresholdedReLU
    Add Average Concatenate Dot Maximum Minimum Multiply Subtract
    Attention AdditiveAttention MultiHeadAttention
    AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    BatchNormalization BatchNormalizationV1 BatchNormalizationV2 SyncBatchNormalization LayerNormalization
    GroupNormalization UnitNormalization
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose DepthwiseConv1D DepthwiseConv2D
    SeparableConv1D SeparableConv2D Cropping1D Cropping2D Cropping3D UpSampling1D UpSampling2D UpSampling3D
    ZeroPadding1D ZeroPadding2D ZeroPadding3D LocallyConnected1D LocallyConnected2D
    RNN SimpleRNN SimpleRNNCell LSTM LSTMCell GRU GRUCell StackedRNNCells ConvLSTM1D ConvLSTM2D ConvLSTM3D
    ConvLSTM2DCell CuDNNLSTM CuDNNGRU Bidirectional TimeDistributed Rescaling
    """.split()
)


def is_own(entry: Entry) -> bool:
    """Whether an entry is of a class of Keras, not of a user's class that bears the name of one."""
    registered = entry.get("registered_name")
    module = str(entry.get("module") or "keras")
    return (
        entry["class_name"] in BUILT_IN
        and registered in (None, entry["class_name"])
        and module.partition(".")[0] in ("keras", "tf_keras")
    )


def registered(entry: Entry) -> str:
    """The name by which a loader finds an entry's class: `package>name`, or the class name alone."""
    return str(entry.get("registered_name") or entry["class_name"])


def bare(entry: Entry) -> str:
    """The name of an entry's class, without the package that it may be registered with."""
    return str(entry["class_name"]).rpartition(">")[2]


def is_cudnn(entry: Entry) -> bool:
    """Whether an entry is one of Keras's cuDNN layers."""
    return is_own(entry) and entry["class_name"] in CUDNN and isinstance(entry["config"], Mapping)


def cudnn_layers(model: Architecture) -> list[str]:
    """The paths of a model's cuDNN layers, each once."""
    found = (path for path, entry in architecture.below(model.config) if is_cudnn(entry))
    return list(dict.fromkeys(found))
