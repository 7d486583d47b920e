"""Messages as people paste them lead to their paragraph of docs/troubleshooting/ by the words in them."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from support.samples import ROOT

#: What Keras 3.0 to 3.15, tf_keras 2.21 and TensorFlow 2.10 to 2.15 say of files of other versions.
MESSAGES = {
    "ValueError: Unrecognized keyword arguments passed to LSTM: {'time_major': False}": "time_major",
    "TypeError: Error when deserializing class 'LSTM' Unrecognized keyword arguments: ['time_major']": (
        "time_major"
    ),
    "Unrecognized keyword arguments passed to GRU: {'time_major': False, 'implementation': 2}": "time_major",
    "TypeError: Could not locate class 'LSTM'. Make sure custom classes and functions are decorated with "
    "`@keras.saving.register_keras_serializable()`.": "Could not locate class 'LSTM'",
    "TypeError: Could not locate class 'GRU'. Make sure custom classes and functions are decorated": (
        "Could not locate class 'LSTM'"
    ),
    "ValueError: Input 0 with name 'None' of layer 'lstm_1' is incompatible with the layer: expected ndim=3, "
    "found ndim=4. Full shape received: (None, None, 7, 3)": "expected ndim=3",
    "('Keyword argument not understood:', 'input_dtype')": "input_dtype",
    "TypeError: LSTM.__init__() missing 1 required positional argument: 'units'": "input_dtype",
    "ValueError: Unknown layer: 'Merge'. Please ensure you are using a `keras.utils.custom_object_scope`": (
        "input_dtype"
    ),
    "ValueError: Unknown layer: 'Highway'": "input_dtype",
    "ValueError: Unknown layer: 'NotEqual'": "NotEqual",
    "TypeError: Could not deserialize 'keras.metrics.mse' because it is not a KerasSaveable subclass": "mse",
    "TypeError: Could not deserialize class 'Functional' because its parent module "
    "tf_keras.src.models.functional cannot be imported": "parent module",
    "Error when deserializing class 'InputLayer' using config={'batch_shape': [None, 7]} Unrecognized "
    "keyword arguments: ['batch_shape']": "parent module",
    "ValueError: Requested the deserialization of a `Lambda` layer whose `function` is a Python lambda. This "
    "carries a potential risk of arbitrary code execution": "Lambda layer",
    "ValueError: bad marshal data (unknown type code)": "Lambda layer",
    "NameError: Exception encountered when calling layer ctc (type Lambda). name 'K' is not defined": (
        "Lambda layer"
    ),
    "ValueError: Unknown layer: 'CRF'": "AttentionWithContext",
    "ValueError: No model config found in the file at weights.h5": "No model config",
    "ValueError: Layer count mismatch when loading weights from file. Model expected 3 layers, found 0": (
        "No model config"
    ),
    "KeyError: \"Unable to synchronously open object (object 'vars' doesn't exist)\"": "No model config",
    "ValueError: You are trying to load a weight file containing 3 layers into a model with 2 layers.": (
        "No model config"
    ),
    "ValueError: Unknown layer: 'CuDNNLSTM'": "Unknown layer: 'CuDNNLSTM'",
    "TypeError: GlorotUniform.__init__() got an unexpected keyword argument 'dtype'": "GlorotUniform",
}


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text.lower())}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_leads_to_its_paragraph(message: str) -> None:
    pages = (ROOT / "docs" / "troubleshooting").glob("*.md")
    parts = {
        part.partition("\n")[0]: _words(part)
        for page in pages
        for part in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    }
    counts = Counter(word for words in parts.values() for word in words)
    scores = {
        heading: sum(math.log(len(parts) / counts[word]) for word in _words(message) & words)
        for heading, words in parts.items()
    }
    best = max(scores, key=lambda heading: scores[heading])
    assert MESSAGES[message] in best.replace("`", "")
