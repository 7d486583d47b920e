"""Loops whose bodies run on one thread never wait for themselves: each way to call them ends in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from support.cases import BATCH, Case
from support.samples import ROOT

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import replace_nodes
from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.lower.tensorflow.lower import lower
from cudnn_convert.model import SERVING, Mode, Part
from cudnn_convert.targets import saved_model as write_saved_model

PROGRAM: Final = ROOT / "tests" / "support" / "programs" / "call_in_many_ways.py"
#: Seconds until a process counts as waiting for ever; it takes some ten.
LIMIT: Final = 240
#: Each loop of several steps an iteration, and the odd ones: 16 + 4 + 1.
STEPS: Final = 21
#: Loops side by side in two directions, and a branch in a branch: the block for few steps, no loop for one.
GRU, LSTM = Case(Mode.GRU, 2, 2), Case(Mode.LSTM, 1, 1)
WAYS: Final = {
    *("session", "session, four callers", "function", "function, four callers"),
    *("branch", "branch in a loop", "gradient"),
}


def write(case: Case, folder: Path, *, many: bool) -> None:
    graph, signature = case.graph()
    outputs = [*signature.outputs.values()]
    if case.mode is not Mode.LSTM:
        zero = node_defs.constant("c", np.zeros([], np.float32))
        graph = replace_nodes(graph, {"c": zero})
    lowered = lower(graph, [case.recurrence()], {}, outputs=outputs, lowering="fast")
    bodies = [node for function in lowered.graph.library.function for node in function.node_def]
    loops = [node for node in bodies if node.op in {"While", "StatelessWhile"}]
    attributes = [dict(node.attr["body"].func.attr) for node in loops]  # asking a proto's map adds to it
    executors = {found["_executor"].s if "_executor" in found else b"" for found in attributes}
    assert executors == {b"SINGLE_THREADED_EXECUTOR"} | ({b""} if many else set())
    nodes = [*lowered.graph.node, *bodies]
    branches = [
        dict(node.attr["then_branch"].func.attr) for node in nodes if node.op in {"If", "StatelessIf"}
    ]
    bound = sum("_executor" in attributes for attributes in branches)
    assert bound == case.layers * case.directions, "each direction's loops run on one thread"
    parts = (Part(SERVING, signature),)
    write_saved_model.write(folder, lowered.graph, parts, lowered.variables, provenance="{}")


def write_feeds(case: Case, path: Path, batch: int) -> None:
    feeds = case.feeds(STEPS, batch)
    direction = np.random.default_rng(3).normal(size=feeds["x"].shape)
    reach = 1e-4
    ends = [
        case.expected(feeds | {"x": feeds["x"].astype(np.float64) + sign * reach * direction})[0].sum()
        for sign in (1, -1)
    ]
    slope = (ends[0] - ends[1]) / (2 * reach)
    expected = case.expected(feeds)[0]
    taken = feeds if case.mode is Mode.LSTM else {key: feeds[key] for key in ("x", "h")}
    values: dict[str, Any] = {"expected": expected, "direction": direction.astype(np.float32)}
    np.savez(path, **taken, **values, slope=np.float32(slope))


@pytest.mark.usefixtures("shipped_loops")
@pytest.mark.parametrize(
    "threads",
    [
        pytest.param((1, 1), marks=pytest.mark.slow("cudnn_convert/lower/tensorflow/")),
        pytest.param((2, 1), marks=pytest.mark.every),
        pytest.param((2, 2), marks=pytest.mark.every),
    ],
    ids=["one_thread", "one_between_ops", "two_threads"],
)
@pytest.mark.parametrize(
    ("case", "batch"),
    [(GRU, BATCH), (LSTM, BATCH), (GRU, layer_stack._MANY)],
    ids=["gru", "lstm", "gru_of_many_rows"],
)
def test_no_way_to_call_waits_for_ever(
    case: Case, batch: int, threads: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = case is LSTM or batch == layer_stack._MANY
    if large:
        monkeypatch.setattr(layer_stack, "_CACHED", 0)
    (tmp_path / "saved_model").mkdir()
    write(case, tmp_path / "saved_model", many=large)
    write_feeds(case, tmp_path / "feeds.npz", batch)
    call = [sys.executable, "-I", str(PROGRAM), str(tmp_path / "saved_model"), str(tmp_path / "feeds.npz")]
    ended = subprocess.run(
        [*call, *map(str, threads)], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {*ended.stdout.splitlines()} == WAYS
