"""A fixture's files beside the export: golden.npz and case.json, written once the export is what they say."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from . import graph, reproducible
from .case import Case

#: Per signature, per feed: values by name.
Answers = dict[str, list[dict[str, np.ndarray]]]
#: What TensorFlow says of an op that has no kernel for the machine's devices.
REFUSED = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError)


@dataclasses.dataclass(frozen=True)
class Fixture:
    """An export in `folder`/saved_model, its case, and what goes in and comes out."""

    folder: Path
    writer: str
    case: Case
    fed: Answers
    answers: Answers

    def write(self, build: Callable[..., Case]) -> None:
        """Fixes what differs from run to run, checks the export against its description, writes the rest."""
        reproducible.fingerprint(self.folder / "saved_model")
        found = graph.meta_graph(self.folder / "saved_model")
        described = {
            "name": build.__name__,
            "writer": self.writer,
            "tensorflow": tf.__version__,
            "python": platform.python_version(),
            "about": " ".join((build.__doc__ or "").split()),
            "stateful": self.case.stateful,
            "archive": "gpu_archive.keras" if self.case.archive else None,
            "signatures": {name: self.describe(found, name) for name in self.case.signatures}
            | self.aliases(found),
        }
        self.write_golden()
        (self.folder / "case.json").write_text(json.dumps(described, indent=2) + "\n")

    def describe(self, found: Any, name: str) -> dict[str, Any]:
        ends, signature = found.signature_def[name], self.case.signatures[name]
        return {
            "inputs": sorted(ends.inputs),
            "outputs": sorted(ends.outputs),
            "fails_on_cpu": self.check(found, name),
            "recurrences": [vars(recurrence) for recurrence in signature.recurrences],
            "lengths": [list(lengths) for lengths in signature.lengths],
            "per_step": list(signature.per_step),
            "zero_past_length": list(signature.zero_past_length),
        }

    def aliases(self, found: Any) -> dict[str, Any]:
        """The names under which Keras makes the first endpoint visible once more."""
        first = next(iter(self.case.signatures))
        others = sorted(set(found.signature_def) - set(self.case.signatures) - {"__saved_model_init_op"})
        return {name: {"same_as": first} for name in others}

    def check(self, found: Any, name: str) -> str | None:
        """The signature reaches the nodes that the case says, and a CPU cannot run them: the error's type."""
        nodes = graph.reached(found, name)
        modes = sorted(node.attr["rnn_mode"].s.decode() or "lstm" for node in nodes)
        assert modes == sorted(recurrence.mode for recurrence in self.case.signatures[name].recurrences), (
            modes
        )
        for answer in self.answers[name]:
            for key, value in answer.items():
                assert np.isfinite(value).all(), key
                assert np.abs(value).max() > 1e-3, key
        model = tf.saved_model.load(str(self.folder / "saved_model"))
        for feed, answer in zip(self.fed[name], self.answers[name], strict=True):
            try:
                again = model.signatures[name](**{key: tf.constant(value) for key, value in feed.items()})
            except REFUSED as error:
                assert nodes, error
                assert "CudnnRNN" in str(error), error
                return type(error).__name__
            assert not nodes, f"{name} ran on a CPU"
            for key, value in answer.items():
                np.testing.assert_allclose(again[key], value, rtol=1e-5, atol=1e-6)
        return None

    def write_golden(self) -> None:
        step = "call" if self.case.stateful else "feed"
        arrays: dict[str, np.ndarray] = {}
        for name in self.case.signatures:
            for number, (feed, answer) in enumerate(zip(self.fed[name], self.answers[name], strict=True)):
                where = f"{name}/{step}{number}"
                arrays.update({f"{where}/{key}": value for key, value in feed.items()})
                arrays.update({f"{where}/out/{key}": value for key, value in answer.items()})
        reproducible.savez(self.folder / "golden.npz", arrays)
