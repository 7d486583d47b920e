"""YAML of a model's config: what older Keras wrote with it, and what must not be made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.read import yaml_config

HERE = Path("model.yaml")


def test_tuples_and_texts_of_python_are_plain_values() -> None:
    content = (
        b"class_name: Sequential\nconfig:\n- class_name: Dense\n  config:\n"
        b"    batch_input_shape: !!python/tuple\n    - null\n    - 7\n"
        b"    name: !!python/unicode 'dense'\n    rate: 1.0e-05\n"
    )
    assert yaml_config.is_yaml(content)
    (layer,) = yaml_config.parse_yaml(HERE, content)["config"]
    assert layer["config"] == {"batch_input_shape": [None, 7], "name": "dense", "rate": 1e-5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"class_name: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        (b"class_name: &a [*a]", "a value that holds itself"),
        (
            b"class_name: x\na: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
            b"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
            b"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
            "more than 1000000 values",
        ),
        (b"- class_name: x", "expected a YAML mapping, found list"),
        (b"class_name: [x", "expected YAML of a model"),
    ],
    ids=["code", "loop", "bomb", "list", "damaged"],
)
def test_what_is_no_config_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        yaml_config.parse_yaml(HERE, content)
