"""Small trained networks as each kind of source, and what their frameworks answer.

`tests/data/micro/<network>/` holds the sources, golden.npz and case.json. `scripts/make_micro_fixtures.py`
makes them and says how. golden.npz has `classes`, the class of each of the 500 test rows, and floats of the
first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from support.micro_data import TEST_ROWS, TEST_SEED, Examples, Maker, make_keywords, make_motions, make_tokens
from support.recorded import FLOAT32, assert_close
from support.samples import ROOT

MICRO: Final = ROOT / "tests" / "data" / "micro"
#: The key under which an answer of a stream has its scores of each step.
STEPS: Final = "steps"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class MicroCase:
    """A source and its rows: `input` takes them, and `output` has the scores of the classes.

    `flags` are keywords of `cudnn_convert.convert`. `floats` has, for arrays of golden.npz, the outputs that
    they were recorded of. `states` has, for each input of a stream that takes a state, the output that goes
    into it at the next step.
    """

    path: str
    make: Maker
    input: str
    output: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    floats: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return MICRO / self.path

    @property
    def expected(self) -> Path:
        return MICRO / Path(self.path).parts[0] / "golden.npz"

    @cached_property
    def golden(self) -> Arrays:
        with np.load(self.expected) as stored:
            return {key: stored[key] for key in stored.files}

    @cached_property
    def rows(self) -> Examples:
        """The test rows and their labels."""
        return self.make(TEST_ROWS, TEST_SEED)

    @cached_property
    def data(self) -> Arrays:
        """The test rows by input key, as `--data` has them. The axis of rows comes first.

        Of a stream, row r is step r modulo the number of steps, with the states that the trained network had
        before that step, rounded to float16.
        """
        inputs = self.rows.inputs
        if not self.states:
            return {self.input: inputs}
        numbers = np.arange(len(inputs))
        fed = {key: self.golden[f"fed_{key}"].astype(np.float32) for key in self.states}
        return {self.input: inputs[numbers, numbers % inputs.shape[1]][:, None]} | fed

    def answer(self, ask: Callable[[Arrays], Arrays], rows: int = TEST_ROWS) -> Arrays:
        """The answers to the first rows. `ask` gives the outputs of a call by key.

        A stream is asked step by step, beginning with zeros. The answers of its last step come back, and
        under STEPS the scores of all steps.
        """
        inputs = self.rows.inputs[:rows]
        if not self.states:
            return ask({self.input: inputs})
        width = self.golden["state_h"].shape[1]
        states = {key: np.zeros([rows, width], np.float32) for key in self.states}
        scores = []
        for step in range(inputs.shape[1]):
            answers = ask({self.input: inputs[:, step : step + 1]} | states)
            states = {key: answers[following] for key, following in self.states.items()}
            scores.append(answers[self.output])
        return answers | {STEPS: np.stack(scores, axis=1)}

    def classify(self, answers: Arrays) -> np.ndarray:
        """The class of each row.

        A recurrence alone needs the layer that was trained behind its last state. golden.npz has it.
        """
        scores = answers[self.output]
        if "head_kernel" in self.golden:
            scores = scores[0] @ self.golden["head_kernel"] + self.golden["head_bias"]
        return (scores[:, 0] > 0.5).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)

    def count_agreements(self, answers: Arrays) -> float:
        """The share of rows whose class is that of the trained network."""
        classes = self.classify(answers)
        return float((classes == self.golden["classes"][: len(classes)]).mean())

    def assert_close(self, answers: Arrays, bound: float = FLOAT32) -> None:
        """Compare all floats of golden.npz with the answers to at least as many rows."""
        for key, output in ({"outputs": self.output} | self.floats).items():
            expected, found = self.golden[key], answers[output]
            if output.startswith("state_"):  # of layers and directions, of which there is one
                (found,) = found
            assert_close(found[: len(expected)], expected, bound, name=(self.path, key))


_KEYWORDS: Final[dict[str, Any]] = {"make": make_keywords, "input": "features"}
_MOTIONS: Final[dict[str, Any]] = {"make": make_motions, "input": "axes"}
_TOKENS: Final[dict[str, Any]] = {"make": make_tokens, "input": "tokens"}

CASES: Final = {
    "keyword_lstm-checkpoint": MicroCase("keyword_lstm/model.ckpt", output="probabilities", **_KEYWORDS),
    "keyword_stack-h5": MicroCase("keyword_stack/model.h5", output="keyword", **_KEYWORDS),
    "motion_bidirectional-h5": MicroCase("motion_bidirectional/model.h5", output="motion", **_MOTIONS),
    "motion_bidirectional-saved_model": MicroCase(
        "motion_bidirectional/saved_model", output="output_0", **_MOTIONS
    ),
    "motion_gru-h5": MicroCase("motion_gru/model.h5", output="motion", **_MOTIONS),
    "motion_stream-h5": MicroCase(
        "motion_stream/model.h5",
        output="motion",
        floats={"state_h": "next_h", "state_c": "next_c", STEPS: STEPS},
        states={"h": "next_h", "c": "next_c"},
        **_MOTIONS,
    ),
    "tokens_lstm-archive": MicroCase("tokens_lstm/model.keras", output="good", **_TOKENS),
    "tokens_lstm-frozen": MicroCase("tokens_lstm/frozen.pb", output="probabilities", **_TOKENS),
    "keyword_torch-weights": MicroCase(
        "keyword_torch/weights.pt",
        make_keywords,
        input="inputs",
        output="state_h",
        flags={"layout": "batch"},
        floats={"outputs": "outputs", "state_h": "state_h", "state_c": "state_c"},
    ),
}
