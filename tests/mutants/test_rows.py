"""Every row of the gate table, every mode in it, every pair of its gates: swapped in what uses the row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mutants.conversions import Flags, exit_code, is_caught
from mutants.rows import ROWS, pairs, swap
from support import keras_public
from support.samples import GRAPHLESS, ROOT, fixture
from support.tiers import combinations, tier

from cudnn_convert.model import Mode
from cudnn_convert.weights import layouts

LSTM, GRU = "1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi"
KERAS = {found.name: found.prefix for found in GRAPHLESS}


def checkpoint(name: str) -> Callable[[Path], Path]:
    return lambda _: KERAS[name] if name in KERAS else fixture(name).prefix


def arrays(name: str) -> Callable[[Path], Path]:
    return lambda _: ROOT / "tests/data/arrays" / name


def block_of_tensorflow_2(folder: Path) -> Path:
    """A frozen graph with a BlockLSTMV2 of 3 inputs and 4 units."""
    drawn = np.random.default_rng(3).uniform(-0.8, 0.8, (8, 16)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 3], "x")
        zeros = tf.zeros([tf.shape(x)[1], 4])
        steps = tf.cast(tf.shape(x)[0], tf.int64)
        unused = tf.zeros([4])
        found = tf.raw_ops.BlockLSTMV2(
            seq_len_max=steps, x=x, cs_prev=zeros, h_prev=zeros,
            w=tf.constant(drawn[:7]), wci=unused, wcf=unused, wco=unused, b=tf.constant(drawn[7]),
        )  # fmt: skip
        tf.identity(found.h, "y")
    path = folder / "block.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@dataclass(frozen=True)
class Use:
    """A conversion that goes through a row in one mode, from or to where nothing else can hide a mistake."""

    row: str
    mode: Mode
    source: Callable[[Path], Path]
    flags: Flags

    @property
    def name(self) -> str:
        return "-".join([self.row, self.mode.value, *(word for word in self.flags if "-" not in word[:2])])


def of(form: str, *more: str) -> Flags:
    return ("--format", form, *more)


CANONICAL, RAW = ("--weights", "canonical"), ("--weights", "raw")
FUSED = of("onnx", *(str(flag) for flag in fixture("1.15.5-block_fused").case["flags"]))
USES = [
    # read from canonical tensors, then written for a network of TensorFlow 1, whose own op reads them
    Use("contrib", Mode.LSTM, checkpoint(LSTM), of("onnx", *CANONICAL)),
    Use("contrib", Mode.GRU, checkpoint(GRU), of("onnx", *CANONICAL)),
    Use("contrib", Mode.LSTM, checkpoint(LSTM), of("checkpoint", *RAW)),
    Use("contrib", Mode.LSTM, checkpoint(LSTM), of("checkpoint", "--lowering", "portable", *RAW)),
    Use("contrib", Mode.GRU, checkpoint(GRU), of("checkpoint", *RAW)),
    Use("compatible_gru", Mode.GRU, checkpoint(GRU), of("checkpoint")),
    Use("lstm_cell", Mode.LSTM, checkpoint(LSTM), of("checkpoint", "--cell", "lstm_block")),
    Use("basic_lstm_cell", Mode.LSTM, checkpoint(LSTM), of("checkpoint", "--cell", "basic_lstm")),
    Use("keras", Mode.LSTM, checkpoint("1.15.5-keras_weights_lstm"), of("onnx")),
    Use("keras", Mode.GRU, checkpoint("1.15.5-keras_weights_gru_bi"), of("onnx")),
    Use("block_lstm", Mode.LSTM, block_of_tensorflow_2, of("onnx", "--outputs", "y:0")),
    Use("block_lstm_v1", Mode.LSTM, checkpoint(LSTM), of("savedmodel")),
    Use("block_lstm_v1", Mode.LSTM, checkpoint("1.15.5-block_fused"), FUSED),
    Use("loop", Mode.LSTM, checkpoint(LSTM), of("savedmodel", "--lowering", "portable")),
    Use("loop", Mode.GRU, checkpoint(GRU), of("savedmodel")),
    Use("onnx", Mode.LSTM, checkpoint(LSTM), of("onnx")),
    Use("onnx", Mode.GRU, checkpoint(GRU), of("onnx")),
    Use("lingvo", Mode.LSTM, checkpoint(LSTM), of("onnx", "--gate-order", "lingvo", *CANONICAL)),
    Use("miopen", Mode.LSTM, checkpoint(LSTM), of("onnx", "--gate-order", "miopen", *RAW)),
    Use("miopen", Mode.GRU, checkpoint(GRU), of("onnx", "--gate-order", "miopen", *RAW)),
    Use("flax", Mode.LSTM, arrays("flax/lstm_bi/weights.msgpack"), of("onnx")),
    Use("flax", Mode.GRU, arrays("flax/nnx_gru_bi/weights.npz"), of("onnx")),
    Use("haiku", Mode.LSTM, arrays("haiku/lstm/weights.npz"), of("onnx")),
    Use("mxnet", Mode.LSTM, arrays("mxnet/lstm/saved.params"), of("onnx")),
    Use("mxnet", Mode.GRU, arrays("mxnet/gru/saved.params"), of("onnx")),
]


#: Of the row for ONNX files the first tier tries all pairs, of other rows one.
WITNESS = (0, 1)


def mutant(use: Use, pair: tuple[int, int]) -> Any:
    """A swap, of the class of its row, and of the class of its gates whatever the row."""
    name = f"{pair[0]}-{pair[1]}"
    is_first = use.row == "onnx" or pair == WITNESS
    marks = (
        pytest.mark.mutant(f"row {use.row}: two gates swapped", f"row: gates {name} swapped"),
        *tier(first=is_first),
    )
    return pytest.param(use, pair, id=f"{use.name}-{name}", marks=marks)


MUTANTS = [mutant(use, pair) for use in USES for pair in pairs(ROWS[use.row], use.mode)]


@pytest.mark.parametrize(("use", "pair"), MUTANTS)
def test_two_gates_swapped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, use: Use, pair: tuple[int, int]
) -> None:
    swap(monkeypatch, use.row, use.mode, pair)
    assert is_caught(monkeypatch, use.source(tmp_path), tmp_path / "out", *use.flags)


@combinations(lambda use: use is USES[0], use=USES, ids=lambda use: use.name)
def test_without_a_swap_all_is_well(tmp_path: Path, use: Use) -> None:
    assert exit_code(use.source(tmp_path), tmp_path / "out", *use.flags) == 0


def test_the_whole_table_is_walked() -> None:
    assert {layout.name for layout in layouts.LAYOUTS} | set(layouts._MISPLACED) <= set(ROWS)


#: Files of Keras 1 become files of Keras 2 as they are read: what their Keras answered judges that.
KERAS_1 = {Mode.LSTM: "char_rnn", Mode.GRU: "gru_sentiment"}


@pytest.mark.parametrize(
    ("mode", "pair"),
    [
        pytest.param(
            *(mode, pair),
            marks=(
                pytest.mark.mutant(f"row keras_1: two gates of a {mode.value} swapped"),
                *tier(first=pair == WITNESS),
            ),
            id=f"{mode.value}-{pair[0]}-{pair[1]}",
        )
        for mode in KERAS_1
        for pair in pairs(layouts.KERAS_1, mode)
    ],
)
def test_two_gates_of_keras_1_swapped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode, pair: tuple[int, int]
) -> None:
    swap(monkeypatch, "keras_1", mode, pair)
    outcome = keras_public.check_case("keras-1.2.2", KERAS_1[mode], "onnx", tmp_path, verify=False)
    assert " off" in outcome


def test_every_pair_of_every_row_is_tried() -> None:
    """A new row, or a new mode of one, needs a conversion here that goes through it."""
    tried = {(use.row, use.mode, pair) for use in USES for pair in pairs(ROWS[use.row], use.mode)}
    tried |= {("keras_1", mode, pair) for mode in KERAS_1 for pair in pairs(layouts.KERAS_1, mode)}
    there = {
        (row, mode, pair) for row, one in ROWS.items() for mode in one.gates for pair in pairs(one, mode)
    }
    assert tried == there


@pytest.mark.mutant("row contrib: two copies that disagree")
@pytest.mark.parametrize("pair", pairs(layouts.CONTRIB, Mode.LSTM), ids=str)
def test_two_copies_that_disagree_are_refused_before_the_proof(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], pair: tuple[int, int]
) -> None:
    swap(monkeypatch, "contrib", Mode.LSTM, pair)
    assert exit_code(fixture(LSTM).prefix, tmp_path / "out") == 1
    assert "expected canonical keys and raw blob to agree" in capsys.readouterr().err


def test_a_failed_proof_has_its_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swap(monkeypatch, "block_lstm_v1", Mode.LSTM, (0, 1))
    written = tmp_path / "report.json"
    assert exit_code(fixture(LSTM).prefix, tmp_path / "out", "--json", "--report", str(written)) == 3
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(written.read_text())
    assert told["verification"]["passed"] is False
    assert told["recurrences"][0]["mode"] == "lstm"
