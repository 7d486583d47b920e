"""What a training config says, for a message about one that is left out."""

from __future__ import annotations

from typing import Any

import pytest
from support.keras_samples import keras_fixture

from cudnn_convert.keras.config import values
from cudnn_convert.read import read

WRAPPED = {"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}}


def optimizer(name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": name, "config": config}


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {
                "optimizer_config": optimizer("Adam", learning_rate=0.0010000000474974513),
                "loss": "categorical_crossentropy",
            },
            "Adam(learning_rate=0.001), categorical_crossentropy",
        ),
        (
            {"optimizer_config": optimizer("SGD", lr=1), "loss": "mse", "metrics": ["mae", "acc"]},
            "SGD(learning_rate=1), mse, metrics mae, acc",
        ),
        (
            {"optimizer_config": optimizer("Custom>Adam", lr=0.5), "loss": {"a": "mse", "b": None}},
            "Adam(learning_rate=0.5), a: mse",
        ),
        (
            {
                "optimizer_config": optimizer(
                    "Adam", learning_rate={"class_name": "CosineDecay", "config": {}}
                ),
                "loss": {"class_name": "Huber", "config": {"delta": 2.0}},
                "metrics": [[WRAPPED]],
            },
            "Adam(learning_rate=CosineDecay), Huber, metrics mean_absolute_error",
        ),
        ({"optimizer_config": optimizer("Mine"), "loss": None}, "Mine, no loss"),
        ({}, "no optimizer, no loss"),
    ],
)
def test_a_training_config_is_told_in_a_line(training: dict[str, Any], said: str) -> None:
    assert values.describe_training(training) == f"compiled with {said}"


def test_a_dropped_one_is_told_with_its_values() -> None:
    training = {"optimizer_config": optimizer("Lion9", learning_rate=0.25), "loss": "mse"}
    assert values.keep_training_config(training) == (
        None,
        (
            "training config dropped, compiled with Lion9(learning_rate=0.25), mse: its optimizer Lion9 is "
            "not Keras's own",
        ),
    )
    training = {"optimizer_config": optimizer("Adam"), "loss": "ours"}
    assert values.keep_training_config(training) == (
        None,
        ("training config dropped, compiled with Adam, ours: its loss ours is not Keras's own",),
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("keras-2.2.4-adam", "Adam(learning_rate=0.01), mse, metrics mae"),
        ("keras-2.2.4-compiled", "RMSprop(learning_rate=0.001), categorical_crossentropy, metrics accuracy"),
        ("tf_keras-2.21.0-adam", "Adam(learning_rate=0.01), mse, metrics mean_absolute_error"),
    ],
)
def test_files_of_each_writer(name: str, said: str) -> None:
    training = read(keras_fixture(name).path).architecture.training
    assert values.describe_training(training) == f"compiled with {said}"


def test_what_is_not_keras_own_leaves_a_training_config_and_the_rest_stays() -> None:
    """In lists, in dicts of outputs, by a name or by a config."""
    own = {"class_name": "Huber", "module": "keras.losses", "config": {}}
    foreign = {"class_name": "Mine", "module": "models", "config": {}}
    registered = {**own, "registered_name": "models>Huber"}
    training = {
        "optimizer_config": optimizer("Custom>Adam"),
        "loss": {"a": "mse", "b": own},
        "metrics": {"a": ["mae", "ours"], "b": [foreign, own], "c": None},
        "weighted_metrics": [registered, "acc"],
    }
    kept, notes = values.keep_training_config(training)
    assert kept == {
        "optimizer_config": optimizer("Adam"),
        "loss": training["loss"],
        "metrics": {"a": ["mae"], "b": [own], "c": None},
        "weighted_metrics": ["acc"],
    }
    assert notes == (
        "metrics dropped, for they are not Keras's own: Mine, ours",
        "weighted_metrics dropped, for they are not Keras's own: Huber",
    )
    _, (note,) = values.keep_training_config({**training, "loss": [own, foreign]})
    assert note.endswith("its loss Mine is not Keras's own")


def test_older_forms_of_values_become_lists_and_numbers() -> None:
    shape = {"class_name": "TensorShape", "items": [None, {"type": "int", "dtype": "int64", "value": 4}]}
    array = {"type": "ndarray", "value": [1.5, 2.5], "dtype": "float32"}
    other = {"class_name": "__numpy__", "config": {"value": [3], "dtype": "int32"}}
    stored = {"pair": {"class_name": "__tuple__", "items": [shape, array]}, "other": [other]}
    assert values.plain_value(stored) == {"pair": [[None, 4], [1.5, 2.5]], "other": [[3]]}


def test_what_older_versions_refuse_is_left_out_where_it_says_nothing() -> None:
    norm = {"module": "keras.layers", "class_name": "BatchNormalization"}
    defaults = {"axis": -1, "renorm": False, "renorm_clipping": None, "renorm_momentum": 0.99}
    assert values.without_new_arguments({**norm, "config": defaults}) == {**norm, "config": {"axis": -1}}
    others = {"renorm": True, "renorm_clipping": {"rmax": 3}, "renorm_momentum": 0.9}
    assert values.without_new_arguments({**norm, "config": others}) == {**norm, "config": others}
    custom = {"module": "theirs", "class_name": "Dense", "config": {"quantization_config": None}}
    assert values.without_new_arguments(custom) == custom
    entry = {"class_name": "InputLayer", "config": {"name": "x", "optional": False}}
    assert values.without_optional(entry) == {"class_name": "InputLayer", "config": {"name": "x"}}
    entry["config"] = {"optional": True}
    assert values.without_optional(entry) == entry
    assert values.without_optional({**entry, "class_name": "Theirs"}) == {**entry, "class_name": "Theirs"}
