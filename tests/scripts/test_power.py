"""The attacker of the proof is trusted where it corrupts, sees what that changes, and tells what passed."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from support.keras_files import entry, sequential, whole
from support.samples import ROOT

POWER = ROOT / "scripts" / "power"
KERNEL = np.float32([[1.0, -2.0], [0.5, 3.0]])


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(POWER))


@pytest.fixture(scope="module")
def runtime() -> Iterator[Any]:
    """The process in which artifacts run, one for all tests."""
    sys.path.insert(0, str(POWER))
    try:
        from workers import Worker

        with Worker() as worker:
            yield worker
    finally:
        sys.path.remove(str(POWER))


def gated_onnx(path: Path) -> Path:
    """`answer = x @ kernel` where any value of `x [2, 2]` is above 50, else zeros."""
    nodes = [
        helper.make_node("MatMul", ["x", "kernel"], ["hidden"]),
        helper.make_node("ReduceMax", ["x"], ["largest"], axes=[1], keepdims=1),
        helper.make_node("Greater", ["largest", "limit"], ["gate"]),
        helper.make_node("Where", ["gate", "hidden", "zeros"], ["answer"]),
    ]
    constants = {"kernel": KERNEL, "limit": np.float32(50.0), "zeros": np.zeros((2, 2), np.float32)}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    x, answer = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", "answer"))
    graph = helper.make_graph(nodes, "gated", [x], [answer], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


#: One value of `x` below, at, a little above and far above the limit.
FEEDS = [{"x": np.float32([[value, 1.0], [0.25, -1.0]])} for value in (1.0, 50.0, 50.02, 90.0)]


class Fake:
    """A proof that converts to the gated file, and has one verdict on every artifact."""

    def __init__(self, verdict: str, corrupted: str = "") -> None:
        self.verdicts = [verdict, corrupted or verdict]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        from answers import Artifact

        if function.__name__ == "convert":
            names = ({"x": "x:0"}, {"answer": "answer:0"})
            return Artifact("onnx", gated_onnx(arguments[1] / "out.onnx"), *names)
        return self.verdicts[arguments[1].parent.name != "onnx"], "because"


def attacked(folder: Path, runtime: Any, proof: Fake, **how: Any) -> list[Any]:
    import trials
    from sources import Model

    drawn = how.pop("feeds", FEEDS)
    model = Model("gated", "", lambda _: folder, lambda _: drawn, lambda _: [])
    settings = trials.Attack(runtime, runtime, proof, **{"count": 1000, "seed": 1, **how})
    return [*trials.attack(model, folder / "source", "onnx", settings)]


def test_changes_of_a_constant(tmp_path: Path) -> None:
    from corruptions import of_constants

    stored: list[Mapping[str, np.ndarray]] = []
    constants = {
        "a": np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3),
        "b": np.full((2, 3), 2.0, np.float32),
        "flag": np.array(True),
        "axes": np.array([2, 0]),
        "words": np.array([b"no", b"yes"], object),
    }
    listed = [*of_constants(constants, lambda _, changed: stored.append(changed), seed=3)]
    for corruption in listed:
        corruption.write(tmp_path)
    changed = {one.name.partition("[")[0]: new for one, new in zip(listed, stored, strict=True)}
    moved = changed["value a"]["a"] - constants["a"]
    assert np.count_nonzero(moved) == 1
    assert moved.max() == pytest.approx(1e-3 * np.linalg.norm(constants["a"]), rel=1e-3)
    assert not changed["zeroed a"]["a"].any()
    np.testing.assert_array_equal(changed["rows a 0 and 1"]["a"], constants["a"][::-1])
    (columns,) = (new["a"] for name, new in changed.items() if name.startswith("columns a"))
    assert sorted(columns[0]) == [1, 2, 3]
    assert list(columns[0]) != [1, 2, 3]
    assert changed["exchanged a with b"] == {"a": constants["b"], "b": constants["a"]}
    assert not changed["value flag"]["flag"]
    assert np.abs(changed["value axes"]["axes"] - [2, 0]).sum() == 1
    assert list(changed["rows words 0 and 1"]["words"]) == [b"yes", b"no"]
    assert not [name for name in changed if name.startswith(("rows b", "columns b", "value words"))]


def test_a_sample_has_each_kind_and_is_always_the_same() -> None:
    from corruptions import KINDS, Corruption, draw_sample

    every = [Corruption(kind, str(number), lambda _: None) for kind in KINDS for number in range(20)]
    first = draw_sample(every, 2 * len(KINDS), seed=5)
    assert [one.kind for one in first] == [*KINDS, *KINDS]
    assert first == draw_sample(every, 2 * len(KINDS), seed=5)
    assert first != draw_sample(every, 2 * len(KINDS), seed=6)
    assert len(draw_sample(every[:3], 9, seed=1)) == 3


@pytest.mark.slow()
def test_what_a_believer_misses(tmp_path: Path, runtime: Any) -> None:
    """A proof that calls all equal misses each corruption that counts, those of gates among them."""
    intact, *found = attacked(tmp_path, runtime, Fake("equal"))
    assert (intact.corruption, intact.outcome, intact.counts) == ("intact", "equal", False)
    missed = {one.corruption.partition("[")[0]: one.change for one in found if one.is_missed}
    for name in (
        *("op out/gate: Greater to GreaterOrEqual", "op out/gate: Greater to Less"),
        *("op out/answer: branches exchanged", "op out/largest: ReduceMax to ReduceMean"),
        *("value out/kernel", "zeroed out/kernel", "rows out/kernel 0 and 1", "columns out/kernel 0 and 1"),
        *("value out/limit", "zeroed out/limit", "exchanged out/kernel with out/zeros"),
        "wire out/answer: input 1 to x",
    ):
        assert missed[name], name
    at_limit = missed["op out/gate: Greater to GreaterOrEqual"]
    assert at_limit == "call 1: answer[0, 0] 0 becomes 50.5"
    outcomes = {one.corruption: one.outcome for one in found}
    assert outcomes["attribute out/largest: axes to 2 at its end"] == "does not run"


def test_what_no_input_shows_does_not_count(tmp_path: Path, runtime: Any) -> None:
    place = "Greater to GreaterOrEqual"
    _, found = attacked(tmp_path, runtime, Fake("equal"), places=[place], feeds=[FEEDS[0], FEEDS[3]])
    assert (found.outcome, found.counts) == ("no effect", False)


@pytest.mark.first("proof2-False", "proof4-True")
@pytest.mark.parametrize(
    ("proof", "is_failure"),
    [
        (("equal", "differs"), False),
        (("equal", "not reached"), True),
        (("not reached", "differs"), False),
        (("equal", "equal"), True),
        (("differs", "differs"), True),
    ],
)
def test_failures(tmp_path: Path, runtime: Any, proof: tuple[str, str], is_failure: bool) -> None:
    """One place of the file; the command ends with 1 for what is missed and for an intact file refused."""
    command = runpy.run_path(str(POWER / "__main__.py"))
    found = attacked(tmp_path, runtime, Fake(*proof), places=["Greater to GreaterOrEqual"])
    assert len(found) == 2
    assert command["has_failed"](found) == is_failure
    heads, row, total = (line.split() for line in command["table"](found).splitlines())
    column = {"differs": -3, "not reached": -2, "equal": -1}[proof[1]]
    assert row[:6] == ["onnx", "1", "1", "0", "0", "1"]
    assert [row[column], total[column]] == ["1", "1"]
    assert heads[-1] == "MISSED"


def test_one_in_a_hundred_may_be_left() -> None:
    from trials import Trial

    command = runpy.run_path(str(POWER / "__main__.py"))
    seen, left = (Trial("gated", "onnx", "op", outcome) for outcome in ("differs", "not reached"))
    assert not command["has_failed"]([seen] * 99 + [left])
    assert command["has_failed"]([seen] * 98 + [left])


def test_what_ends_a_process_or_hangs_is_told() -> None:
    from workers import LostError, Worker

    with Worker() as worker:
        assert worker.call(abs, -3) == 3
        with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero"):
            worker.call(eval, "1 / 0")
        with pytest.raises(LostError, match="SIGKILL"):
            worker.call(exec, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert worker.call(abs, -4) == 4
    with Worker(patience=0.5) as worker, pytest.raises(LostError, match=r"more than 0\.5 s"):
        worker.call(time.sleep, 3600)


def listed(made: Any) -> dict[str, Any]:
    return {one.name.partition("[")[0]: one for one in made}


def test_places_of_a_graph(tmp_path: Path) -> None:
    import graph_places

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3, 2], "x")
        last = tf.strided_slice(x, [0, -1], [0, 0], begin_mask=1, end_mask=1, shrink_axis_mask=2, name="last")
        gate = tf.reduce_any(tf.greater(last, 5.0, name="above"), name="gate")
        answer = tf.where(gate, tf.matmul(last, KERNEL, name="product"), last)
        tf.identity(answer, "answer")
        tf.constant(1.0, name="unread")
    path = tmp_path / "out.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    places = listed(graph_places.list_corruptions(path, ["answer:0"], seed=1))
    for name in (
        *(
            "op above: Greater to GreaterEqual",
            "op gate: Any to All",
            "attribute product: transpose_b to True",
        ),
        *("zeroed product/b", "step last: axis 1", "wire SelectV2: input 1 to last"),
    ):
        assert name in places
    assert not [name for name in places if "unread" in name]
    for corruption in places.values():
        path.write_bytes(graph.as_graph_def().SerializeToString())
        corruption.write(path)
        assert path.read_bytes() != graph.as_graph_def().SerializeToString(), corruption.name
    places["step last: axis 1"].write(path)
    changed = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    ends = {
        node.name: tf.make_ndarray(node.attr["value"].tensor) for node in changed.node if node.op == "Const"
    }
    assert list(ends["last/begin"]) == [0, -2]
    assert list(ends["last/end"]) == [0, -1]


def test_places_of_layers(tmp_path: Path) -> None:
    import layer_places

    layers = [
        entry("ReLU", "above", threshold=9.0, batch_input_shape=[None, 2]),
        entry("Dense", "head", units=2),
    ]
    weights = {"above": [], "head": [("head/kernel:0", KERNEL), ("head/bias:0", np.float32([1, 2]))]}
    path = whole(tmp_path / "out.h5", sequential(*layers), weights)
    content = path.read_bytes()
    places = listed(layer_places.list_corruptions(path, seed=1))
    kernel = "model_weights/head/head/kernel:0"
    places[f"zeroed {kernel}"].write(path)
    with h5py.File(path) as file:
        assert not file[kernel][...].any()
    path.write_bytes(content)
    places["attribute above: threshold 9.0 to 13.5"].write(path)
    with h5py.File(path) as file:
        assert '"threshold": 13.5' in file.attrs["model_config"]


def test_forty_models() -> None:
    from sources import MODELS

    assert len({model.name for model in MODELS}) == 40
    for model in MODELS:
        drawn = model.calls()
        assert len(drawn) > 4 * len(model.signatures), model.name
        again = model.calls()
        for (_, one), (_, other) in zip(drawn, again, strict=True):
            assert all(np.array_equal(one[key], other[key]) for key in one)
