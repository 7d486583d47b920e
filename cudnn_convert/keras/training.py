"""What of a model's training can be kept where nobody brings the code that it was trained with.

Source: keras 2.2.4 losses.py, metrics.py, optimizers.py; tf_keras v2.21.0, the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OPTIMIZERS: Final = frozenset("sgd rmsprop adagrad adadelta adam adamax nadam ftrl".split())
_LOSSES: Final = frozenset(
    """
    mse mean_squared_error mae mean_absolute_error mape mean_absolute_percentage_error msle
    mean_squared_logarithmic_error hinge squared_hinge categorical_hinge logcosh log_cosh huber huber_loss
    categorical_crossentropy sparse_categorical_crossentropy binary_crossentropy kld
    kullback_leibler_divergence kl_divergence poisson cosine_similarity cosine_proximity cosine
    """.split()
)
_METRICS: Final = _LOSSES | frozenset(
    """
    acc accuracy binary_accuracy categorical_accuracy sparse_categorical_accuracy top_k_categorical_accuracy
    sparse_top_k_categorical_accuracy ce crossentropy
    """.split()
)


def kept(training: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The training config that tf_keras can read without a user's code, and what had to go."""
    if training is None:
        return None, ()
    optimizer = training.get("optimizer_config")
    kind = str(optimizer.get("class_name", "")).rpartition(">")[2] if isinstance(optimizer, Mapping) else ""
    if kind.lower() not in _OPTIMIZERS or not isinstance(optimizer, Mapping):
        return None, (f"training config dropped: its optimizer {kind or 'of no name'} is not Keras's own",)
    foreign = sorted(_unknown(training.get("loss"), _LOSSES))
    if foreign:
        return None, (f"training config dropped: its loss {', '.join(foreign)} is not Keras's own",)
    notes = []
    made = {**training, "optimizer_config": {**optimizer, "class_name": kind}}
    for key in ("metrics", "weighted_metrics"):
        lost = sorted(_unknown(training.get(key), _METRICS))
        if lost:
            made[key] = _without(training[key], set(lost))
            notes.append(f"{key} dropped, for they are not Keras's own: {', '.join(lost)}")
    return made, tuple(notes)


def _unknown(value: Any, known: frozenset[str]) -> set[str]:
    """The names in a list or dict of losses or metrics that are not known."""
    if isinstance(value, str):
        return set() if value.lower() in known else {value}
    if isinstance(value, Mapping) and "class_name" in value:
        own = str(value.get("module") or "keras").partition(".")[0] in ("keras", "tf_keras", "builtins")
        return set() if own and not value.get("registered_name") else {str(value["class_name"])}
    if isinstance(value, Mapping):
        return set().union(*(_unknown(one, known) for one in value.values()))
    if isinstance(value, list):
        return set().union(*(_unknown(one, known) for one in value))
    return set()


def _without(value: Any, lost: set[str]) -> Any:
    if isinstance(value, Mapping) and "class_name" not in value:
        return {key: _without(one, lost) for key, one in value.items()}
    if not isinstance(value, list):
        return None if _unknown(value, _METRICS) else value
    kept_ones = (_without(one, lost) for one in value)
    return [one for one in kept_ones if one is not None]
