"""Each flag that a message names is typed as the message says, and leads where it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from unittest import mock

import pytest
from support import advice_calls, advice_graphs, advice_keras, advice_weights, asking_graphs, user_processes
from support.advice import Advice, called, followed, offered
from support.flag_messages import Piece, pieces
from support.keras3_samples import EXPORTED
from support.keras_samples import KERAS_FIXTURES
from support.samples import fixture

ROWS: Final = (
    *(*advice_graphs.ASKED, *advice_graphs.NOTES, *advice_weights.WEIGHTS),
    *(*advice_calls.QUANTIZED, *advice_calls.SIZED, *advice_calls.FORMATS, *advice_calls.LIMITED),
    *(*advice_calls.PROVEN, *advice_calls.PORTABLE, *advice_calls.BATCHES),
    *(*advice_keras.WRITTEN, *advice_keras.BROUGHT),
)
#: What is said of a process, of which a command is the child, and the limits that are too narrow for one.
OF_PROCESS: Final = MappingProxyType(
    {"process.py: --limit seconds": "seconds=1", "process.py: --limit memory": "memory=100M"}
)
#: What names a flag and does not say that it be given.
EXCEPTIONS: Final = MappingProxyType(
    {
        "cli/terminal.py: what --format {} writes": "the title of a map",
        "cli/terminal.py: note: format {}": "another call, which test_commands.py makes",
        "artifacts/runners.py: input {}": "another call of `run`, which test_call.py makes",
        "artifacts/runners.py: give inputs with --data": "another call of `run`, which test_call.py makes",
        "cli/commands.py: on those of --data": "what the help says of `run`",
        "pipeline.py: --data {}": "where the mistake is, with the path",
        "cli/files.py: --data {}": "where the mistake is, with the path",
        "cli/commands.py: examples": "calls, which test_parser.py parses",
        "requirements.py: pip install --no-deps": "a flag of pip",
        "options.py: --format checkpoint": "the title of a section of the help",
        "options.py: no suffix of another format": "the flag that was given",
        "targets/accuracy_gate.py: --max-error {}": "the bound that was given",
        "recurrences/graphless.py: --mode {} --units {}": "the message has N for the units of each set",
        "recurrences/graphless.py: --mode {} --layers {} --units {} --directions 2": "of a half",
        "plan/requests.py: --signature {}": "the message lists the keys beside its flag",
        "read/graph_def.py: its checkpoint with --architecture {}": "another SOURCE",
        "read/checkpoint.py: for the whole model, --architecture {}": "a note that names a file",
        "read/saved_model.py: --tag chooses another": "a note; tests/read/test_saved_model.py gives it",
        "inspection/inspect.py: --tag={}": "a command, which test_inspect.py runs",
        "plan/notes.py: --set={}": "a call repeated, which test_printed_commands.py types",
        "plan/statistics.py: {}: statistics of the batch, as --set": "the flag that was given",
        "plan/notes.py: --signature chooses {}": "a note, whose signature test_from_graph.py of plan takes",
        "plan/notes.py: because --set binds them": "the flag that was given",
        "plan/notes.py: --set changes it": "a note, whose variable test_from_graph.py of plan binds",
        "plan/from_graph.py: --weights={}": "a call repeated, which test_printed_commands.py types",
        "report/page.py: Nothing was compared": "the flag that was given",
        "verification/check.py: fewer steps of values": "what was looked at, beside its warning",
        "benchmark/models.py: {} in the first model or --data": "where feeds are from",
        "benchmark/models.py: input {}": "another call of `benchmark`, with data of the user's",
        "benchmark/rounds.py: inputs: {}": "what was chosen for the axes",
        "benchmark/rounds.py: its steps are fixed": "the flag that was given",
        "cli/benchmark.py: --steps cannot": "the flags that were given, which test_benchmark.py makes",
        "feeds/data.py: {}: {} (--limit-examples, --batch)": "what was chosen, which test_data.py changes",
        "feeds/data.py: with the model's keys": "names the features of the data, not the model's inputs",
        "feeds/data.py: expected --features for records": "the question, whose answer stands beside it",
        "feeds/data.py: {}: --jobs: {}": "which test_shards.py provokes",
        "report/files.py: --card {}: expected a file": "where the mistake is, which test_card.py provokes",
        "feeds/data.py: --features: expected records or tables": "which test_data.py leaves out",
        "feeds/data.py: expected a column for each input": "a value that only the user knows",
        "options.py: the examples that it is about": "a path that only the user knows",
        "pipeline.py: streaming: not proven": "of chaos alone; test_streaming.py of verification provokes it",
        "options.py: no --decode": "the flag that was not given",
        "options.py: expected --decode {}": "what a flag belongs to; leaving it out is advised",
        "options.py: expected --decode {}, or --lowering fused": "likewise",
        "pipeline.py: name one without suffix": "another OUT, which end_to_end/test_decoding.py refuses",
        "read/checkpoint.py: put that file beside the checkpoint": "a file that only the user has",
        "read/unknown.py: give the weights, and this with --architecture": "another SOURCE",
        "read/keras_hdf5.py: give the JSON of the model": "a file that only the user has",
        "plan/applicable.py: give the source that it was trained in": "as with all weights alone",
        "plan/decoding.py: --decode={}": "a call repeated, which test_decoding.py of plan looks at",
        "plan/decoding.py: --steps={}": "a call repeated",
        "plan/decoding.py: --width={}": "a call repeated",
        "plan/decoding.py: --token={}": "a call repeated",
        "plan/decoding.py: --logits={}": "a call repeated",
        "plan/decoding.py: {}; choose other --outputs": "of another rank, in test_decoding.py of plan",
        "plan/decoding.py: make the ids the input": "of features, in test_decoding.py of plan",
        "plan/decoding.py: {}; give it another key": "which test_decoding.py of plan does",
        "plan/decoding.py: as the only input with steps": "as in plan/streaming.py",
        "plan/decoding.py: {}; convert without --decode": "of a batch that is kept, as in plan/streaming.py",
        "plan/decoding.py: logits: {}; convert without": "of a table that lacks tokens, likewise",
        "verification/decoding.py: not proven": "of ties alone; verification/test_decoding.py provokes it",
        "artifacts/weights.py: weights as --format": "what another file is expected to be",
        "batch/ray_cluster.py: give it more memory": "of a lost worker, which test_ray_cluster.py provokes",
        "batch/ray_cluster.py: --engine ray: expected Ray": "the flag that was given",
        "cli/batch.py: --ray-address": "the flag that was given, which test_ray_cluster.py provokes",
        "process.py: native code ended a process of --jobs": "the flag that was given",
        "keras/config/differences.py: compare with verify --golden": "answers that only the user has",
        "keras/trace.py: compare with verify --golden": "answers that only the user has",
        "verification/shards.py: give --data with a pattern": "which test_shards.py provokes",
        "verification/shards.py: --jobs: expected shards": "where the mistake is",
        "verification/shards.py: --jobs: {}; leave it out": "which test_shards.py provokes",
    }
)
#: What stays out of `--fast` in any case: each costs half a second and more.
_COSTLY: Final = frozenset(
    {
        "cli/terminal.py: --json",
        "plan/choose_outputs.py: --outputs {}",
        "recurrences/graphless.py: --mode {} --layers {} --units {} --directions {}",
        "recurrences/graphless.py: --mode, --layers",
        "recurrences/graphless.py: --mode chooses",
        "recurrences/graphless.py: choose with --signature",
        "targets/checkpoint.py: keep them with",
        "keras/build_keras3.py: a model that Keras 3 can build",
        "keras/build_keras3.py: a fixed number of steps",
        "keras/build_keras3.py: {}; write --format {}",
        "keras/build_keras3.py: layer {}: {}; write --format {}{}",
        "keras/translate.py: found {}; write --format {}",
        "keras/translate.py: to be equal in Keras 2 and 3",
        "read/dialects/contrib.py: need --forget-bias",
        "recurrences/graphless.py: --layout chooses",
        "inspection/alternatives.py: --force-convert",
        "keras/trace.py: convert it with",
        "read/checks.py: --limit nodes",
        "targets/tflite.py: choose --format",
        "targets/tflite.py: unproven with",
        "recurrences/saved_functions.py: convert it alone",
        "recurrences/saved_functions.py: convert one call",
        "recurrences/weight_copies.py: they agree with --forget-bias",
        "recurrences/weight_copies.py: choose with",
        "graph/control_flow.py: --set {}:0={}",
        "keras/translate.py: Keras 3 has no such layer",
    }
)
#: Files whose first row takes more than a second; other tests provoke each.
_DEAR: Final = frozenset(
    {
        "pipeline.py",
        "plan/decoding.py",
        "plan/fix_sizes.py",
        "plan/streaming.py",
        "batch/jobs.py",
        "keras/trace.py",
        "options.py",
        "targets/fused_ops.py",
        "lower/infinities.py",
        "lower/tflite_fused.py",
        "keras/translate.py",
        "plan/obstacles.py",
        "verification/scales.py",
    }
)
#: What is typed each time beside the first of its file: test_attacks.py provokes it, but takes seconds.
_ALWAYS: Final = frozenset(
    {"verification/feeds.py: needs more", "keras/build_keras3.py: a model that Keras 3 can build"}
)
_SOURCES: Final = {one.name: one.path for one in (*KERAS_FIXTURES, *EXPORTED)}


def _rows() -> Iterator[Any]:
    """The first row of each file, and the others for `make test-every` or where their files changed."""
    seen = {*_COSTLY, *_DEAR}
    for row in ROWS:
        files = {piece.partition(": ")[0] for piece in row.pieces}
        is_first = row.pieces[0] not in _COSTLY and not files & seen
        seen |= files if is_first else set()
        slow = pytest.mark.slow(*(f"cudnn_convert/{file}" for file in files))
        is_seen = is_first or row.pieces[0] in _ALWAYS
        marks = [pytest.mark.xdist_group("advice"), *([] if is_seen else [slow])]
        yield pytest.param(row, id=row.name, marks=marks)


@pytest.mark.parametrize("row", _rows())
def test_what_is_advised_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: Advice) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(user_processes.FOLDER)
    if isinstance(row.source, str):
        source = _SOURCES[row.source] if row.source in _SOURCES else fixture(row.source).prefix
    else:
        (tmp_path / "source").mkdir()
        source = row.source(tmp_path / "source")
    if row.prepare:
        row.prepare(tmp_path, source)
    with mock.patch(*row.patch) if row.patch else nullcontext():
        first = called(row, source, tmp_path, row.flags)
    ways = offered(row, first)
    assert ways, first.stderr
    for piece in row.pieces:
        assert any(meant(piece).pattern.search(line) for line, _ in ways), piece
    taken = [flags for _, match in ways for flags in followed(row, match)]
    for number, flags in enumerate(taken):
        ended = called(row.next(number), source, tmp_path, flags)
        assert "portable already: nothing" not in ended.stderr, flags
        if ended.code:
            assert row.then, f"{flags}: {ended.stderr}"
            assert re.search(row.then, ended.stderr), f"{flags}: {ended.stderr}"


def meant(words: str) -> Piece:
    """The piece of a file that has these words in it, or no others."""
    file, _, text = words.partition(": ")
    found = [piece for piece in pieces() if piece.file == file and text in piece.text]
    exact = [piece for piece in found if piece.text == text]
    (one,) = exact or found
    return one


def test_every_message_that_names_a_flag_is_followed() -> None:
    """A message that is added needs a row, or a reason why nobody types what it says."""
    rows = {meant(words) for row in ROWS for words in row.pieces}
    known = rows | {meant(words) for words in (*OF_PROCESS, *EXCEPTIONS)}
    left = [f"{piece.file}: {piece.text}" for piece in pieces() if not piece.is_place and piece not in known]
    assert left == []
    assert not rows & {meant(words) for words in EXCEPTIONS}


@pytest.mark.slow("cudnn_convert/cli/child_process.py", "cudnn_convert/process.py")
@pytest.mark.parametrize("words", OF_PROCESS)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count the same memory")
def test_what_a_process_is_told_helps(tmp_path: Path, words: str) -> None:
    source = asking_graphs.plain(tmp_path)
    narrow = OF_PROCESS[words]

    def ended(limit: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "cudnn_convert", str(source), str(tmp_path / "out"), "--limit", limit]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    refused = ended(narrow)
    assert refused.returncode == 1, refused.stderr
    match = re.search(r"--limit (\w+=)NUMBER", refused.stderr)
    assert match, refused.stderr
    assert meant(words).pattern.search(refused.stderr)
    assert not (tmp_path / "out").exists()
    helped = ended(match[1] + ("600" if "seconds" in match[1] else "16G"))
    assert helped.returncode == 0, helped.stderr
