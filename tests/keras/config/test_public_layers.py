"""What is said of layers of public code, and that Keras' own of the same name are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.keras.config import public_layers, validate

DOCS = Path(__file__).resolve().parents[3] / "docs"


def layer(class_name: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": {"name": name, **config}}


def row(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "row", "layers": [*layers]}}


@pytest.mark.parametrize("name", ["AttentionWithContext", "Capsule", "Mine>AttentionLayer"])
def test_a_class_to_be_copied(name: str) -> None:
    (refused,) = validate.layers_not_allowed(row(layer(name, "a")))
    assert str(refused) == (
        f"layer a: expected a layer of Keras itself, found {name}, of public code, which no file holds; "
        "copy the class to a module with imports of tf_keras; bring it for tf_keras with --custom-objects "
        f"MODULE:{name.removeprefix('Mine>')}"
    )


def test_a_crf_is_no_layer_of_its_own() -> None:
    (refused,) = validate.layers_not_allowed(row(layer("CRF", "tags")))
    assert "found CRF, which decodes what comes before it" in str(refused)


def test_an_attention_of_keras_is_told_by_its_config() -> None:
    """The name is Keras' own since TensorFlow 1.13, and older kernels go on to be used."""
    own, other = layer("Attention", "own", use_scale=False), layer("Attention", "other", step_dim=7)
    assert [
        refused.layer for refused in validate.layers_not_allowed(row(own, other), keras_version="2.4.0")
    ] == ["other"]


def test_the_pages_name_each_class() -> None:
    for page in ("troubleshooting/old-keras.md", "tutorials/keras-files.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        assert [name for name in public_layers._KNOWN if f"`{name}`" not in text] == [], page
