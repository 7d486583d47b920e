"""Weights of other frameworks, in every format, against what those frameworks computed on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support import artifacts
from support.recorded import BOUNDS, assert_close
from support.samples import ANY_SOURCE, ROOT
from support.tiers import tier

import cudnn_convert
from cudnn_convert.formats import Content

ARRAYS = ROOT / "tests/data/arrays"
#: The files by dialect, and the flags for what their names leave open.
CASES: dict[str, dict[str, Any]] = {
    "torch/lstm_bi_2l/weights.npz": {},
    "torch/lstm_bi_2l/weights.safetensors": {},
    "torch/gru_2l/weights.npz": {},
    "torch/gru_2l/weights.safetensors": {},
    "torch/lstm_cell/weights.npz": {},
    "torch/lstm_float16/weights.npz": {},
    "torch/lstm_bfloat16/weights.safetensors": {},
    "torch/model/weights.safetensors": {},
    "torch/lstm_bi_2l/weights.pt": {},
    "torch/gru_bi/weights.pt": {},
    "torch/lstm_float16/weights.pt": {},
    "torch/lstm_no_bias_2l/weights.pt": {},
    "torch/lstm_projected_bi_2l/weights.pt": {},
    "torch/rnn_tanh_bi_2l/weights.pt": {"mode": "rnn_tanh"},
    "torch/rnn_relu_2l/weights.pt": {"mode": "rnn_relu"},
    "torch/model/weights.pt": {},
    "torch/containers/lightning.ckpt": {},
    "torch/containers/strided.pt": {},
    **{
        f"flax/{name}": {"layout": "time"}
        for name in (
            *("lstm/weights.msgpack", "lstm/weights.npz", "gru/weights.msgpack", "gru/weights.npz"),
            *("lstm_bi/weights.msgpack", "lstm_bi/chunked.msgpack", "lstm_bi/kinds.msgpack"),
            *("optimized_lstm/weights.msgpack", "lstm_bfloat16/weights.msgpack"),
            *("nnx_lstm/weights.npz", "nnx_optimized_lstm/weights.npz", "nnx_gru_bi/weights.npz"),
        )
    },
    "flax/simple_tanh/weights.msgpack": {"layout": "time", "mode": "rnn_tanh"},
    "flax/simple_relu/weights.msgpack": {"layout": "time", "mode": "rnn_relu"},
    "flax/nnx_simple_relu/weights.npz": {"layout": "time", "mode": "rnn_relu"},
    "haiku/lstm/weights.npz": {},
    "haiku/vanilla_one_bias/weights.npz": {},
    "jax/lstm/weights.npy": {"mode": "lstm", "layers": 1, "units": 5, "directions": 1},
    "jax/lstm_bi_2l/weights.npy": {"mode": "lstm", "layers": 2, "units": 5, "directions": 2},
    "mxnet/lstm/collected.params": {},
    "mxnet/lstm/saved.params": {},
    "mxnet/gru/saved.params": {},
    "mxnet/rnn_relu/saved.params": {"mode": "rnn_relu"},
    "mxnet/rnn_tanh/collected.params": {"mode": "rnn_tanh"},
    "mxnet/lstm_projection/saved.params": {},
    "mxnet/lstm_float64/saved.params": {},
    "mxnet/net/exported-0000.params": {},
    "mxnet/net/saved.params": {},
    "mxnet/cell_lstm/collected.params": {},
    "mxnet/cells_gru/saved.params": {},
    "mxnet/cells_lstm_bidirectional/saved.params": {},
    "mxnet/fused_gru/packed-0001.params": {},
    "mxnet/fused_gru/unpacked-0001.params": {},
    "mxnet/fused_lstm/packed-0001.params": {},
    "mxnet/fused_lstm/unpacked-0001.params": {},
    "mxnet/symbol_cells/packed-0001.params": {},
    "mxnet/symbol_cells/unpacked-0001.params": {},
    "mxnet/formats/legacy.params": {"mode": "rnn_tanh"},
    "cntk/lstm/saved.model": {},
    "cntk/lstm_bidirectional/saved.model": {},
    "cntk/lstm_float64/saved.model": {},
    "cntk/gru/saved.model": {},
    "cntk/rnn_relu/saved.model": {},
    "cntk/rnn_tanh/saved.model": {},
    "cntk/net/saved.model": {"signature": "inner"},
    "cntk/formats/split.model": {},
}
#: Files that do not say how cells follow each other: the flags, and the signatures of each layer, forward
#: and backward ones apart where the file does not pair them.
_TIME = {"layout": "time"}
STACKS: dict[str, tuple[dict[str, Any], list[list[str]]]] = {
    "flax/lstm_2l/weights.msgpack": (_TIME, [["params_LSTMCell_0"], ["params_LSTMCell_1"]]),
    "flax/lstm_2l/train_state.msgpack": (_TIME, [["params_LSTMCell_0"], ["params_LSTMCell_1"]]),
    "flax/optimized_lstm_bi_2l/weights.msgpack": (
        _TIME,
        [[f"params_OptimizedLSTMCell_{number}" for number in pair] for pair in ((0, 1), (2, 3))],
    ),
    "flax/gru_bi_2l/weights.msgpack": (_TIME, [["params_lower"], ["params_upper"]]),
    "flax/gru_bi_2l/weights.npz": (_TIME, [["params_lower"], ["params_upper"]]),
    "haiku/lstm_2l/weights.npz": ({}, [["lstm"], ["lstm_1"]]),
    "haiku/lstm_bi/weights.npz": ({"mode": "lstm", "units": 5}, [["tagger___forward", "tagger___backward"]]),
    "haiku/vanilla_2l/weights.npz": ({}, [["vanilla_rnn"], ["vanilla_rnn_1"]]),
}
#: Those that go to every format in the first tier; the others go to ONNX alone there, if at all.
EVERYWHERE = ("torch/lstm_bi_2l/weights.npz",)
#: Those that show nothing in ONNX that another file does not: their names and their container have a witness.
TWICE = frozenset(
    (
        *("torch/gru_2l/weights.safetensors", "torch/lstm_bi_2l/weights.pt", "torch/lstm_float16/weights.pt"),
        *("torch/model/weights.pt", "flax/lstm/weights.npz", "flax/gru/weights.npz"),
        *("jax/lstm/weights.npy", "cntk/lstm/saved.model"),
    )
)
#: Those that the first tier proves too, beside what their frameworks computed: one of each dialect, in each
#: format that it goes to.
PROVEN = (
    *(*EVERYWHERE, "flax/lstm_bi/weights.msgpack", "haiku/lstm/weights.npz", "jax/lstm_bi_2l/weights.npy"),
    *("mxnet/lstm_projection/saved.params", "cntk/lstm_float64/saved.model"),
    "torch/lstm_bfloat16/weights.safetensors",
)
#: NumPy's files know no bfloat16, so that users feed formats that take float32 in its place.
FED_FLOAT32 = ("onnx", "npz", "safetensors")
#: The keys of a golden file, and those of a source without a graph.
INPUTS = {"x": "inputs", "h0": "initial_h", "c0": "initial_c", "lengths": "sequence_lengths"}
OUTPUTS = {"y": "outputs", "h": "state_h", "c": "state_c"}

Call = dict[str, np.ndarray]


def calls(golden: Call) -> Iterator[Call]:
    """The recorded calls of one recurrence: from zeros, from states, and with lengths."""
    time, batch = golden["x"].shape[:2]
    full = {"inputs": golden["x"]}
    full |= {INPUTS[key]: np.zeros_like(golden[key]) for key in ("h0", "c0") if key in golden}
    if "lengths" in golden:
        full["sequence_lengths"] = np.full(batch, time, np.int32)
    for ending, own in (("", ()), ("s", ("h0", "c0")), ("l", ("lengths",))):
        if f"y{ending}" in golden:
            given = {INPUTS[key]: golden[key] for key in own if key in golden}
            ends = {name: golden[key + ending] for key, name in OUTPUTS.items() if key + ending in golden}
            yield full | given | ends


def recorded_calls(folder: Path) -> dict[str, list[Call]]:
    """The recorded calls by the name of the signature, "" where there is one."""
    with np.load(folder / "golden.npz") as file:
        values = {key: file[key] for key in file.files}
    parts: dict[str, Call] = {}
    for key, value in values.items():
        part, _, name = key.rpartition("/")
        parts.setdefault(part.replace(".", "_"), {})[name] = value
    return {part: [*calls(golden)] for part, golden in sorted(parts.items())}


def is_first(form: str, case: str) -> bool:
    """Whether the first tier converts a source to a format."""
    return (form == "onnx" and case not in TWICE) or (case in EVERYWHERE and form in ("savedmodel", "npz"))


@pytest.mark.parametrize(
    ("form", "case"),
    [
        pytest.param(
            form, case, marks=tier(first=is_first(form, case)), id=f"{case.replace('/', '-')}-{form}"
        )
        for form in ANY_SOURCE
        for case in CASES
        if "bfloat16" not in case or form in FED_FLOAT32
        if "projection" not in case or form != "checkpoint"
    ],
)
def test_answers_as_the_framework_did(tmp_path: Path, is_first_tier: bool, case: str, form: str) -> None:
    source, parts = ARRAYS / case, recorded_calls((ARRAYS / case).parent)
    lengths = any("sequence_lengths" in call for each in parts.values() for call in each)
    flags = {"format": form, "states": True, "lengths": lengths} | CASES[case]
    verify = case in PROVEN or not is_first_tier
    report = cudnn_convert.convert(source, tmp_path / "out", verify=verify, **flags)
    assert (report.verification is not None) == verify
    assert report.verification is None or report.verification.passed
    dtype = report.recurrences[0].dtype
    fed_type = "float32" if dtype == "bfloat16" else dtype
    feeds = {}
    for part, each in parts.items():
        for number, call in enumerate(each):
            for key, value in call.items():
                fed = value.astype(fed_type) if value.dtype.kind == "f" else value
                feeds["/".join(filter(None, (f"feed{number}", part, key)))] = fed
    np.savez(tmp_path / "golden.npz", **feeds)
    jobs = artifacts.jobs_of_parts(tmp_path / "out", form, tmp_path / "golden.npz", tmp_path / "answers")
    if ANY_SOURCE[form].content is Content.RECURRENCES:
        for job in jobs:
            job["inputs"] = {
                key: one for key, one in job["inputs"].items() if f"feed0/{one['source']}" in feeds
            }
    artifacts.answer(jobs)
    bound = BOUNDS["float32" if form in ("onnx", "tflite") and dtype == "float64" else dtype]
    compared = 0
    for job in jobs:
        with np.load(job["answers"]) as answers:
            for key in answers.files:
                feed, _, name = key.partition("/")
                expected = parts[job["signature"]][int(feed.removeprefix("feed"))].get(name)
                if expected is None:  # c of what has no cell state
                    continue
                assert_close(answers[key].astype(expected.dtype), expected, bound, name=(case, key))
                compared += 1
    recorded = [key for each in parts.values() for call in each for key in call if key in OUTPUTS.values()]
    assert compared == len(recorded)


def reverse(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The steps of each row in reverse, up to its length."""
    turned = x.copy()
    for row, length in enumerate(lengths):
        turned[:length, row] = x[:length, row][::-1]
    return turned


@pytest.mark.parametrize("case", STACKS)
def test_recurrences_that_are_stacked_by_hand_answer_as_the_framework_did(
    tmp_path: Path, is_first_tier: bool, case: str
) -> None:
    flags, layers = STACKS[case]
    (recorded,) = recorded_calls((ARRAYS / case).parent).values()
    lengths = any("sequence_lengths" in call for call in recorded)
    flags = {"format": "onnx", "states": True, "lengths": lengths} | flags
    report = cudnn_convert.convert(ARRAYS / case, tmp_path / "out", verify=not is_first_tier, **flags)
    assert {each.node.partition("/")[0] for each in report.recurrences} == {*itertools.chain(*layers)}
    sessions = {
        name: onnxruntime.InferenceSession(tmp_path / "out" / f"{name}.onnx")
        for name in itertools.chain(*layers)
    }
    for call in recorded:
        x, number = call["inputs"], 0
        given = call.get("sequence_lengths", np.full(x.shape[1], len(x), np.int32))
        ends: dict[str, list[np.ndarray]] = {"state_h": [], "state_c": []}
        for names in layers:
            sides = []
            for side, name in enumerate(names):
                session = sessions[name]
                inputs = {each.name: each.shape for each in session.get_inputs()}
                rows = slice(number, number + inputs["initial_h"][0])
                feeds = {key: call[key][rows] for key in ("initial_h", "initial_c") if key in inputs}
                feeds |= {"sequence_lengths": given} if lengths else {}
                fed = x if side == 0 else reverse(x, given)
                keys = [each.name for each in session.get_outputs()]
                answers = dict(zip(keys, session.run(keys, {"inputs": fed, **feeds}), strict=True))
                sides.append(answers["outputs"] if side == 0 else reverse(answers["outputs"], given))
                number = rows.stop
                for key in ends.keys() & answers.keys():
                    ends[key].append(answers[key])
            x = np.concatenate(sides, axis=-1)
        found = {"outputs": x} | {key: np.concatenate(states) for key, states in ends.items() if states}
        for key, value in found.items():
            assert_close(value, call[key], BOUNDS["float32"], name=(case, key))
