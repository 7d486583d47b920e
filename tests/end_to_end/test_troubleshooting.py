"""docs/troubleshooting.md: each failure is real, its commands print what stands there, and it is gone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import artifacts, user_processes
from support.command_line import command
from support.keras3_samples import Signature
from support.troubleshooting import CASES, MASKED, PARAGRAPHS


def test_every_paragraph_has_its_case() -> None:
    assert [*PARAGRAPHS] == [*CASES]


@dataclass
class Walked:
    """What came of a paragraph: of its commands, of its failures, of what a user runs afterwards."""

    folder: Path
    printed: list[tuple[int, str]]
    said: list[str]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walked]:
    """All commands in this process, then all failures and all artifacts in a user's."""
    found = {}
    for heading, case in CASES.items():
        folder = tmp_path_factory.mktemp("paragraph") / "work"
        folder.mkdir()
        for made in case.files:
            made(folder)
        shutil.copytree(folder, folder.parent / "before")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            found[heading] = Walked(folder, [typed(words) for words, _ in PARAGRAPHS[heading]], [])
    before = [(heading, "before", name) for heading, case in CASES.items() for name, _ in case.failures]
    after = [(heading, "work", name) for heading, case in CASES.items() for name in case.after]
    told = failed([(found[heading].folder.parent / where, name) for heading, where, name in before + after])
    for (heading, _, _), said in zip(before + after, told, strict=True):
        found[heading].said.append(said)
    jobs = [
        located(job, found[heading].folder, n)
        for heading in CASES
        for n, job in enumerate(CASES[heading].jobs)
    ]
    artifacts.answer(jobs)
    return found


def typed(words: list[str]) -> tuple[int, str]:
    """The exit code of a command of the page, and what it prints, without spaces at the end of lines."""
    program, *rest = words
    if program == "rm":
        Path(*rest).unlink()
        return 0, ""
    assert program == "cudnn-convert"
    ended = command(*rest)
    lines = f"{ended.stderr}{ended.stdout}".splitlines()
    return ended.code, "".join(f"{line.rstrip()}\n" for line in lines)


def failed(jobs: list[tuple[Path, str]]) -> list[str]:
    """What each failure raises, in a process where cudnn_convert cannot be imported."""
    process = user_processes.user(tensorflow=True)
    return process.ask([{"module": "failures", "call": name, "folder": str(path)} for path, name in jobs])


def located(given: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """A job by its full paths."""
    answers, golden = (folder.parent / f"{name}.{number}.npz" for name in ("answers", "golden"))
    if isinstance(given["golden"], Signature):
        calls = [{**call.feeds, **call.answers} for call in given["golden"].calls()]
        np.savez(
            golden, **{f"feed{n}/{key}": value for n, call in enumerate(calls) for key, value in call.items()}
        )
        given = {**given, "golden": str(golden)}
    return {**given, "artifact": str((folder / given["artifact"]).resolve()), "answers": str(answers)}


def pattern(shown: Sequence[str]) -> re.Pattern[str]:
    """The lines of the page, where `...` stands for lines, or for the rest of a line's words."""
    parts = []
    for line in shown:
        inner = ".*".join(map(re.escape, line.rstrip().split("...")))
        parts.append("(.*\n)*?" if line == "..." else f"{inner}\n")
    return re.compile("".join(parts))


@pytest.mark.parametrize("heading", CASES)
@pytest.mark.xdist_group("troubleshooting")
def test_what_is_typed_prints_what_is_shown(walked: dict[str, Walked], heading: str) -> None:
    for (words, shown), (code, printed) in zip(PARAGRAPHS[heading], walked[heading].printed, strict=True):
        assert pattern(shown).fullmatch(printed), f"{words}\n{printed}"
        assert (code != 0) == any(line.startswith("cudnn-convert: ") for line in shown)


@pytest.mark.parametrize("heading", [heading for heading, case in CASES.items() if case.failures])
@pytest.mark.xdist_group("troubleshooting")
def test_the_failure_is_real_and_goes_away(walked: dict[str, Walked], heading: str) -> None:
    case, said = CASES[heading], walked[heading].said
    for (name, expected), told in zip(case.failures, said, strict=False):
        assert (expected in told) if expected else not told, f"{name}: {told}"
    assert said[len(case.failures) :] == [""] * len(case.after)


@pytest.mark.parametrize("heading", [heading for heading, case in CASES.items() if case.jobs])
@pytest.mark.xdist_group("troubleshooting")
def test_what_was_written_answers_as_the_original_did(walked: dict[str, Walked], heading: str) -> None:
    for number, given in enumerate(CASES[heading].jobs):
        found = located(given, walked[heading].folder, number)
        with np.load(found["answers"]) as answers, np.load(found["golden"]) as golden:
            for key in answers.files:
                feed, _, name = key.partition("/")
                expected = golden[f"{feed}/{found['outputs'][name]['source']}"]
                if given["golden"] == MASKED.signatures[0]:  # past the lengths they differ, see below
                    kept = valid(feed, expected)
                    assert artifacts.within(answers[key][kept], expected[kept], atol=1e-5, rtol=1e-5) <= 1
                else:
                    assert artifacts.within(answers[key], expected, atol=1e-5, rtol=1e-5) <= 1


def valid(feed: str, value: np.ndarray) -> np.ndarray:
    return [*MASKED.signatures[0].calls()][int(feed.removeprefix("feed"))].valid(value)


@pytest.mark.xdist_group("troubleshooting")
def test_the_padded_part(walked: dict[str, Walked]) -> None:
    import tensorflow as tf

    heading = "The GPU and the CPU differ in the padded part"
    found = located(CASES[heading].jobs[0], walked[heading].folder, 0)
    with np.load(found["answers"]) as answers, np.load(found["golden"]) as on_a_cpu:
        for name in MASKED.signatures[0].zero_past_length:
            padded = ~valid("feed0", answers[f"feed0/{name}"])
            assert padded.any()
            assert not answers[f"feed0/{name}"][padded].any()
        kept = valid("feed0", on_a_cpu["feed0/steps"])
        for row, length in zip(on_a_cpu["feed0/steps"], kept.sum(axis=1), strict=True):
            assert (row[length:] == row[length - 1]).all()
            assert row[length - 1].all()
    loaded = tf.saved_model.load(str(walked[heading].folder / "lstm_cpu"))
    x = tf.constant(np.random.default_rng(3).standard_normal([2, 5, 16]), tf.float32)
    y = loaded.signatures["serving_default"](inputs=x, sequence_lengths=tf.constant([2, 5]))[
        "outputs"
    ].numpy()
    assert not y[0, 2:].any()
    assert y[0, :2].all()
    assert y[1].all()


@pytest.mark.xdist_group("troubleshooting")
def test_rows_of_length_0(walked: dict[str, Walked]) -> None:
    """Of these states the initial one is zeros."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(walked["CUDNN_STATUS_BAD_PARAM"].folder / "model_cpu"))
    x = tf.constant(np.random.default_rng(4).standard_normal([5, 3, 4]), tf.float32)
    found = loaded.signatures["serving_default"](x=x, lengths=tf.constant([0, 5, 2]))
    y, h = found["rnn_out"].numpy(), found["state_h"].numpy()
    assert not y[:, 0].any()
    assert not h[:, 0].any()
    assert y[:, 1].all()
    assert h[:, 1:].all()


@pytest.mark.xdist_group("troubleshooting")
def test_one_fused_node_a_layer(walked: dict[str, Walked]) -> None:
    import onnx

    folder = walked["CudnnCompatibleLSTMCell is not faster than LSTMBlockCell"].folder
    nodes = [node.op_type for node in onnx.load(str(folder / "model.onnx")).graph.node]
    assert nodes.count("LSTM") == 1
    assert not {"Loop", "Scan"} & {*nodes}
