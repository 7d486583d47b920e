"""Mistakes that published figures of real cuDNN see, in artifacts and in the reference itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from mutants import changes, fused, reference, steps
from support import artifacts
from support.published_artifacts import compare_answers, prepare_job, write_checkpoint, write_frozen
from support.published_networks import NETWORKS, get_bound
from support.tiers import tier

Mutant = Callable[[pytest.MonkeyPatch], None]


def spoil(change: changes.Change) -> Mutant:
    return partial(changes.lowers, change=changes.in_each_cell(change))


BACKWARD: Final = partial(steps.computes, change=steps.backward_as_forward)
#: Network, format, mistake, and the sums that must see it. A wrong direction changes y least. The first tier
#: tries each mistake once.
ARTIFACTS: Final[dict[str, tuple[str, str, Mutant, set[str]]]] = {
    "tanh-recurrent_bias": ("sample-tanh", "onnx", spoil(changes.without_recurrent_bias), {"y", "hy"}),
    "lstm-bias": ("sample-lstm", "onnx", spoil(changes.without_bias), {"y", "hy", "cy"}),
    "gru-reset-onnx": ("sample-gru", "onnx", fused.resets_before_product, {"y", "hy"}),
    "tanh-backward_as_forward": ("torch-tanh", "savedmodel", BACKWARD, {"hy"}),
}
MORE_ARTIFACTS: Final[dict[str, tuple[str, str, Mutant, set[str]]]] = {
    "relu-bias": ("sample-relu", "savedmodel", spoil(changes.without_bias), {"y", "hy"}),
    "gru-bias": ("sample-gru", "onnx", spoil(changes.without_bias), {"y", "hy"}),
    "gru-recurrent_bias": ("sample-gru", "onnx", spoil(changes.without_recurrent_bias), {"y", "hy"}),
    "gru-reset-savedmodel": ("sample-gru", "savedmodel", steps.resets_before_product, {"y", "hy"}),
    "lstm-backward_as_forward": ("torch-lstm", "savedmodel", BACKWARD, {"hy", "cy"}),
}
#: Network, mistake, and the sums that must see it.
REFERENCE: Final[dict[str, tuple[str, Mutant, set[str]]]] = {
    "relu-bias": ("sample-relu", partial(reference.drops_bias, which=0), {"y", "hy"}),
    "tanh-recurrent_bias": ("sample-tanh", partial(reference.drops_bias, which=1), {"y", "hy"}),
    "lstm-bias": ("sample-lstm", partial(reference.drops_bias, which=0), {"y", "hy", "cy"}),
    "gru-bias": ("sample-gru", partial(reference.drops_bias, which=0), {"y", "hy"}),
    "gru-recurrent_bias": ("sample-gru", partial(reference.drops_bias, which=1), {"y", "hy"}),
    "gru-reset": ("sample-gru", reference.resets_before_product, {"y", "hy"}),
    "relu-backward_as_forward": ("torch-relu", reference.runs_backward_forward, {"hy"}),
    "tanh-backward_as_forward": ("torch-tanh", reference.runs_backward_forward, {"hy"}),
    "lstm-backward_as_forward": ("torch-lstm", reference.runs_backward_forward, {"hy", "cy"}),
    "gru-backward_as_forward": ("torch-gru", reference.runs_backward_forward, {"hy"}),
}


def titles(what: str, first: Iterable[str], others: Iterable[str] = ()) -> Any:
    """The class of a mistake in artifacts is without network and format."""
    rows = [
        pytest.param(
            title,
            marks=(
                pytest.mark.mutant(f"published {what}: {title.split('-')[1]}"),
                *tier(first=title not in others),
            ),
        )
        for title in (*first, *others)
    ]
    return pytest.mark.parametrize("title", rows)


@titles("artifact", ARTIFACTS, MORE_ARTIFACTS)
def test_a_mistake_in_an_artifact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, title: str) -> None:
    name, form, mutant, seeing = (ARTIFACTS | MORE_ARTIFACTS)[title]
    network = NETWORKS[name]
    write = write_checkpoint if name == "torch-lstm" else write_frozen  # no graph of 40 MB is copied
    source = write(network, tmp_path)
    mutant(monkeypatch)
    job = prepare_job(network, source, form, tmp_path / title)
    artifacts.answer([job])
    distances, bound = compare_answers(network, job), get_bound(network, form)
    assert all(distances[key] > 5 * bound for key in seeing), distances


@titles("reference", REFERENCE)
def test_a_mistake_in_the_reference(monkeypatch: pytest.MonkeyPatch, title: str) -> None:
    name, mutant, seeing = REFERENCE[title]
    mutant(monkeypatch)
    distances = NETWORKS[name].compare_reference()
    assert all(distances[key] > 5 * get_bound(NETWORKS[name]) for key in seeing), distances
