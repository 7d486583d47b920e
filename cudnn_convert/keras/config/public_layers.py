"""Layers of public code named in files of Keras, with a remedy for each.

Source: tensorflow v1.14.0 python/keras/layers/dense_attention.py Attention.get_config; keras v3.15
src/layers/attention/attention.py; keras-contrib keras_contrib/layers/crf.py, capsule.py.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_COPIED: Final = "of public code, which no file holds; copy the class to a module with imports of {library}"
_DECODER: Final = "which decodes what comes before it, and whose code no file holds"
#: By the name of a class: what it is, or what helps.
_KNOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("Attention", "AttentionLayer", "AttentionWithContext", "AttLayer", "AttentionDecoder"),
                *("AttentionWeightedAverage", "Capsule", "CapsuleLayer", "PrimaryCap"),
            ),
            _COPIED,
        ),
        "CRF": _DECODER,
    }
)
#: By the name of a class that Keras has too: a key that its own config always has.
_OWN_KEY: Final = MappingProxyType({"Attention": "use_scale"})


def describe(class_name: str, library: str) -> str:
    """Return advice on an unknown class, to stand behind the class's name.

    It is empty where the class is not known.
    """
    advice = _KNOWN.get(class_name)
    return "" if advice is None else f", {advice.format(library=library)}"


def has_name_of_keras(entry: Mapping[str, Any]) -> bool:
    """Return True if a layer has a Keras class's name, but a different config."""
    key, config = _OWN_KEY.get(str(entry["class_name"])), entry["config"]
    return key is not None and isinstance(config, Mapping) and key not in config
