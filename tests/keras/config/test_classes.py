"""Lambdas for Keras 3: their code goes on as it was, and nobody here runs it."""

from __future__ import annotations

import base64
import json
import marshal
import sys
from typing import Any

import keras
import numpy as np
import pytest
from support.keras_files import entry, sequential
from support.keras_samples import KERAS_FIXTURES

from cudnn_convert.keras.config import classes

CODE = "4wEAAAAAAAAAAQAAAAIAAABDAAAAcwwAAAB8AGQBFABkAhgAUwA="


def config(**more: Any) -> dict[str, Any]:
    stored = {"name": "code", "function": [CODE, None, None], "function_type": "lambda", "module": "__main__"}
    return {**stored, "output_shape": None, "output_shape_type": "raw", "arguments": {}, **more}


def coded(code: Any, closure: Any = None) -> dict[str, Any]:
    return {"class_name": "__lambda__", "config": {"code": code, "defaults": None, "closure": closure}}


def test_code_stays_what_it_is() -> None:
    assert classes.modern(config(dtype=entry("Policy", "float16"))) == {
        "name": "code",
        "dtype": "float16",
        "function": coded(CODE),
        "arguments": {},
    }
    made = classes.modern(config(function=[CODE, None, [2]]))
    assert made["function"] == coded(CODE, [2])
    made = classes.modern(config(function=[CODE, [1.5], None]))
    assert made["function"] == coded([CODE, [1.5], None])


def test_shapes_arguments_and_named_functions() -> None:
    stored = config(
        function="twice",
        function_type="function",
        output_shape=[6, 5],
        arguments={"by": {"type": "ndarray", "value": [1, 2]}, "bias": 0.5},
    )
    found = classes.modern(stored)
    named = {"module": None, "class_name": "function", "config": "twice", "registered_name": "twice"}
    assert (found["function"], found["output_shape"]) == (named, [6, 5])
    array = {"class_name": "__numpy__", "config": {"value": [1, 2], "dtype": "int64"}}
    assert found["arguments"] == {"by": array, "bias": 0.5}
    stored = {"module": "keras.layers", "class_name": "Lambda", "config": found, "registered_name": None}
    layer = keras.saving.deserialize_keras_object(
        stored, custom_objects={"twice": lambda x, by, bias: 2 * x * by + bias}
    )
    assert layer(np.float32([[3, 5]])).numpy().tolist() == [[6.5, 20.5]]
    shaped = classes.modern(config(output_shape=[CODE, None, None], output_shape_type="lambda"))
    assert shaped["output_shape"] == coded(CODE)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"mask": [CODE, None, None]}, "without a mask of its own, found one"),
        ({"function_type": "raw"}, "a Lambda's function as Keras 2 writes it, found function_type raw"),
        ({"function": CODE}, "a Lambda's function as Keras 2 writes it"),
        ({"arguments": "by"}, "a Lambda's arguments with their names, found arguments without names"),
        ({"output_shape": 3, "output_shape_type": "lambda"}, "a Lambda's output_shape as Keras 2 writes it"),
    ],
)
def test_what_has_no_place_in_keras_3(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        classes.modern(config(**more))


def dumped(function: Any) -> str:
    return base64.b64encode(marshal.dumps(function.__code__)).decode()


def test_bytecode_tells_which_pythons_wrote_it() -> None:
    """The samples say who wrote them; the running Python says its own version."""
    written = [one for one in KERAS_FIXTURES if "lambda" in one.case and one.path.suffix == ".h5"]
    assert {one.case["python"]: classes.python(stored(one)) for one in written} == {
        "3.6.15": "3.7 or older",
        "3.11.7": "3.11 or newer",
    }
    expected = "3.8 to 3.10" if sys.version_info < (3, 11) else "3.11 or newer"
    factor = 3

    def inside(x: Any) -> Any:
        return [x + step for step in range(factor)]

    for function in (lambda x: x * 2.0, lambda x: x * factor, lambda x: lambda: x, inside):
        assert classes.python(dumped(function)) == expected


def stored(sample: Any) -> str:
    import h5py

    with h5py.File(sample.path) as file:
        layers = json.loads(file.attrs["model_config"])["config"]["layers"]
    (code,) = (layer["config"]["function"][0] for layer in layers if layer["class_name"] == "Lambda")
    return str(code)


@pytest.mark.parametrize("code", ["", "!", "AAAA", "4wEAAAAAAAAA", None, 7, CODE[:44]])
def test_what_is_no_bytecode_tells_nothing(code: Any) -> None:
    assert classes.python(code) is None


def test_bytecode_of_another_python_does_not_run_here() -> None:
    own = sequential({"class_name": "Lambda", "config": config(function=[dumped(lambda x: x), None, None])})
    assert not [*classes.other_bytecode(own)]
    configs = (config(), config(function="twice", function_type="function"))
    model = sequential(*({"class_name": "Lambda", "config": given} for given in configs))
    here = ".".join(map(str, sys.version_info[:2]))
    reason = f"layer code: expected bytecode that Python {here} runs, found that of Python 3.7 or older"
    assert [*classes.other_bytecode(model)] == [reason]


def test_notes_say_what_a_loader_needs() -> None:
    model = sequential(
        {"class_name": "Lambda", "config": config()},
        {
            "class_name": "Lambda",
            "config": config(name="by_name", function="twice", function_type="function"),
        },
        entry("TFOpLambda", "op", function="math.multiply"),
        entry("TensorFlowOpLayer", "without_code", node_def={"op": "Mul"}),
    )
    runs = "code, op: code of the source is in the file, and runs where it is loaded"
    told = "code: its bytecode is of Python 3.7 or older, and runs in the very version that wrote it"
    named = "loading needs custom_objects with twice, the function of layer by_name"
    assert [*classes.notes(model, safe_mode=True)] == [named, runs, "loading needs safe_mode=False", told]
    assert [*classes.notes(model, safe_mode=False)] == [named, runs, told]
    assert not [*classes.notes(sequential(entry("Dense", "d")), safe_mode=True)]
