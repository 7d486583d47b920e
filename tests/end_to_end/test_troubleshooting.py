"""docs/troubleshooting/: each failure is real, its commands print what stands there, and it is gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support import artifacts, user_processes
from support.command_line import command
from support.keras3_samples import Signature
from support.recorded import assert_close
from support.troubleshooting import CASES, MASKED, PARAGRAPHS

#: The paragraphs whose commands are typed each time. Those of the others are the same but for the file, or
#: print and write what the tests of a format see.
TYPED: Final = (
    "Troubleshooting",
    "Key stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias not found in "
    "checkpoint",
    "The passed save_path is not a valid checkpoint: model.ckpt/",
    "module 'tensorflow' has no attribute 'contrib'",
    "Wrong outputs on the CPU, and no error",
    "CudnnCompatibleLSTMCell is not faster than LSTMBlockCell",
    "expected tensors of numbers at the end of the graph, and: outputs leave out",
    "Unknown layer: 'CuDNNLSTM'",
    "No Op registered for CudnnRNNV3 with domain_version",
    "My SavedModel is full of CudnnRNNV3, but it runs",
)
#: Of these, what is typed to the letter; the others' conversions leave out the proof, of which a page shows
#: nothing: what they wrote is compared with recorded answers below.
PROVEN: Final = ("CudnnCompatibleLSTMCell is not faster than LSTMBlockCell",)


def test_every_paragraph_has_its_case() -> None:
    assert {*PARAGRAPHS} == {*CASES}


def made(heading: str, folder: Path) -> Path:
    """An empty folder with the files of a paragraph."""
    folder.mkdir()
    for write in CASES[heading].files:
        write(folder)
    return folder


def typed(words: list[str], *, proven: bool) -> tuple[int, str]:
    """The exit code of a command of the page, and what it prints, without spaces at the end of lines."""
    program, *rest = words
    if program == "rm":
        Path(*rest).unlink()
        return 0, ""
    assert program == "cudnn-convert"
    converts = rest[0] not in ("inspect", "verify")
    ended = command(*rest, *(["--no-verify"] if converts and not proven else []))
    lines = f"{ended.stderr}{ended.stdout}".splitlines()
    return ended.code, "".join(f"{line.rstrip()}\n" for line in lines)


def failed(folder: Path, names: Sequence[str]) -> list[str]:
    """What each failure raises, in a process where cudnn_convert cannot be imported."""
    process = user_processes.user(tensorflow=True)
    return process.ask([{"module": "failures", "call": name, "folder": str(folder)} for name in names])


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


@pytest.mark.parametrize("heading", [heading for heading, case in CASES.items() if case.failures])
def test_the_failure_is_real(tmp_path: Path, heading: str) -> None:
    failures = CASES[heading].failures
    said = failed(made(heading, tmp_path / "work"), [name for name, _ in failures])
    for (name, expected), told in zip(failures, said, strict=True):
        assert (expected in told) if expected else not told, f"{name}: {told}"


def tiered() -> Iterator[Any]:
    files = ("docs/troubleshooting", "tests/support/troubleshooting.py", "cudnn_convert/cli/")
    for heading in CASES:
        yield pytest.param(heading, marks=() if heading in TYPED else pytest.mark.slow(*files))


@pytest.mark.first("Unknown layer: 'CuDNNLSTM'", "Troubleshooting")
@pytest.mark.parametrize("heading", tiered())
def test_what_is_typed_prints_what_is_shown_and_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str
) -> None:
    """Afterwards nothing fails, and a user's process gets the original's answers."""
    case, folder = CASES[heading], made(heading, tmp_path / "work")
    monkeypatch.chdir(folder)
    for words, shown in PARAGRAPHS[heading]:
        code, printed = typed(words, proven=heading in PROVEN or heading not in TYPED)
        assert pattern(shown).fullmatch(printed), f"{words}\n{printed}"
        assert (code != 0) == any(line.startswith("cudnn-convert: ") for line in shown)
    assert failed(folder, case.after) == [""] * len(case.after)
    jobs = [located(job, folder, number) for number, job in enumerate(case.jobs)]
    artifacts.answer(jobs)
    for given, found in zip(case.jobs, jobs, strict=True):
        agree(given, found)
    if heading in MORE:
        MORE[heading](folder, jobs)


def agree(given: dict[str, Any], found: dict[str, Any]) -> None:
    """The user's answers are the original's; where it has lengths, those that are not padding."""
    with np.load(found["answers"]) as answers, np.load(found["golden"]) as golden:
        assert answers.files
        for key in answers.files:
            feed, _, name = key.partition("/")
            expected = golden[f"{feed}/{found['outputs'][name]['source']}"]
            kept = valid(feed, expected) if given["golden"] == MASKED.signatures[0] else ...
            assert_close(answers[key][kept], expected[kept])


def valid(feed: str, value: np.ndarray) -> np.ndarray:
    return [*MASKED.signatures[0].calls()][int(feed.removeprefix("feed"))].valid(value)


# What some paragraphs say of an artifact besides.


def see_the_padded_part(folder: Path, jobs: list[dict[str, Any]]) -> None:
    import tensorflow as tf

    with np.load(jobs[0]["answers"]) as answers, np.load(jobs[0]["golden"]) as on_a_cpu:
        for name in MASKED.signatures[0].zero_past_length:
            padded = ~valid("feed0", answers[f"feed0/{name}"])
            assert padded.any()
            assert not answers[f"feed0/{name}"][padded].any()
        kept = valid("feed0", on_a_cpu["feed0/steps"])
        for row, length in zip(on_a_cpu["feed0/steps"], kept.sum(axis=1), strict=True):
            assert (row[length:] == row[length - 1]).all()
            assert row[length - 1].all()
    loaded = tf.saved_model.load(str(folder / "lstm_cpu"))
    x = tf.constant(np.random.default_rng(3).standard_normal([2, 5, 16]), tf.float32)
    found = loaded.signatures["serving_default"](inputs=x, sequence_lengths=tf.constant([2, 5]))
    y = found["outputs"].numpy()
    assert not y[0, 2:].any()
    assert y[0, :2].all()
    assert y[1].all()


def see_rows_of_length_0(folder: Path, _: object) -> None:
    """Of these states the initial one is zeros."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder / "model_cpu"))
    x = tf.constant(np.random.default_rng(4).standard_normal([5, 3, 4]), tf.float32)
    found = loaded.signatures["serving_default"](x=x, lengths=tf.constant([0, 5, 2]))
    y, h = found["rnn_out"].numpy(), found["state_h"].numpy()
    assert not y[:, 0].any()
    assert not h[:, 0].any()
    assert y[:, 1].all()
    assert h[:, 1:].all()


def see_one_fused_node_a_layer(folder: Path, _: object) -> None:
    import onnx

    nodes = [node.op_type for node in onnx.load(str(folder / "model.onnx")).graph.node]
    assert nodes.count("LSTM") == 1
    assert not {"Loop", "Scan"} & {*nodes}


MORE: Final[dict[str, Callable[[Path, list[dict[str, Any]]], None]]] = {
    "The GPU and the CPU differ in the padded part": see_the_padded_part,
    "CUDNN_STATUS_BAD_PARAM": see_rows_of_length_0,
    "CudnnCompatibleLSTMCell is not faster than LSTMBlockCell": see_one_fused_node_a_layer,
}
assert {*MORE} | {*TYPED} <= {*CASES}
