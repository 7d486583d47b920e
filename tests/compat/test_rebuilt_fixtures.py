"""TensorFlow 1's own model code runs on with the drop-in: its checkpoints, answers, and files for it."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf
from support.samples import ROOT
from support.tiers import some

from cudnn_convert.weights import parameter_blob

PROGRAM: Final = ROOT / "tests" / "support" / "programs" / "rebuilt_fixtures.py"
FIXTURES: Final = ROOT / "tests" / "data" / "tf1" / "1.15.5"
#: What TensorFlow 1.15 said of the files (scripts/check_tf1_compat.py).
JUDGED: Final = json.loads((ROOT / "tests" / "data" / "tf1_compat.json").read_text())["cases"]
#: Every mode; scopes, an explicit build, a blob alone, lengths, training, a branch, a loop, cells.
FIRST: Final = (
    "build_prefix", "cond_in_while", "gru_bi", "lstm_bi_2l_states", "v3_lengths_batch_major",
    "block_cell_clip", "compatible_gru_loop",
)  # fmt: skip
OTHERS: Final = (
    "bilstm_tagger", "block_cell_bidirectional", "block_cell_loop", "block_fused", "block_fused_clip",
    "block_fused_lengths", "block_fused_peephole", "block_fused_stacked", "cond", "dropout_needs_set",
    "dropout_placeholder", "final_state_only", "gru_bi_2l_float64", "gru_uni_2l", "iterator_input",
    "lstm_float16", "lstm_uni_3l", "queue_input", "raw_only", "resource_vars", "rnn_relu_bi",
    "rnn_relu_uni_2l", "rnn_tanh_bi_2l", "rnn_tanh_uni", "twins_training", "same_sizes",
    "state_gru_resource", "state_lstm", "state_reset", "state_scalar", "towers_split",
    "twins_backprop", "two_layers", "v2_gru", "v3_batch_major", "v3_gru_lengths", "v3_lengths_time_major",
    "while_nested", "while_refine", "while_rows",
)  # fmt: skip
#: By the dtype of an answer: what rounding in another order gives.
BOUNDS: Final = {"float64": 1e-12, "float32": 5e-6, "float16": 2e-3}
CASES: Final = some(FIRST, *OTHERS)

pytestmark = pytest.mark.xdist_group("rebuilt_fixtures")


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder in which one process has rebuilt every case of this run."""
    out = tmp_path_factory.mktemp("rebuilt")
    names = FIRST if request.config.getoption("fast") else (*FIRST, *OTHERS)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(ROOT), str(out), *names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def read_all(prefix: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key) for key in sorted(reader.get_variable_to_shape_map())}


@pytest.mark.parametrize("name", CASES)
def test_restored_weights_give_the_recorded_answers(rebuilt: Path, name: str) -> None:
    answers, golden = np.load(rebuilt / f"{name}.npz"), np.load(FIXTURES / name / "golden.npz")
    assert set(answers.files) == set(golden.files)
    for key in golden.files:
        expected = golden[key]
        if expected.dtype.kind == "f":
            bound = BOUNDS[expected.dtype.name]
            np.testing.assert_allclose(answers[key], expected, rtol=bound, atol=bound, err_msg=key)
        else:
            np.testing.assert_array_equal(answers[key], expected, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_has_the_keys_and_values_of_tensorflow_1(rebuilt: Path, name: str) -> None:
    saved, original = (read_all(folder / name / "model.ckpt") for folder in (rebuilt, FIXTURES))
    assert set(saved) == set(original)
    states = json.loads((FIXTURES / name / "case.json").read_text()).get("states", {})
    for key, value in original.items():
        if f"{key}:0" not in states and not key.endswith("/opaque_kernel"):
            np.testing.assert_array_equal(saved[key], value, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_the_blob_has_the_weights_where_cudnn_packs_them(rebuilt: Path, name: str) -> None:
    """Matrices as they were; the sum of both biases as it was, for a restore halves it."""
    from cudnn_convert.model import Gate, Mode, Sizes

    saved, original = (read_all(folder / name / "model.ckpt") for folder in (rebuilt, FIXTURES))
    for found in json.loads((FIXTURES / name / "case.json").read_text())["recurrences"]:
        mode = Mode(found["mode"])
        sizes = Sizes(mode, found["layers"], found["directions"], found["units"], found["input_size"])
        keys = [key for key in original if key.endswith("/opaque_kernel")]
        fitting = [key for key in keys if original[key].size == parameter_blob.length(sizes)]
        assert fitting
        for key in fitting:
            pairs = (parameter_blob.split(values[key], sizes, where=key) for values in (saved, original))
            for ours, theirs in (
                (a, b) for row in zip(*pairs, strict=True) for a, b in zip(*row, strict=True)
            ):
                np.testing.assert_array_equal(ours.kernel, theirs.kernel)
                np.testing.assert_array_equal(ours.recurrent_kernel, theirs.recurrent_kernel)
                np.testing.assert_array_equal(
                    ours.bias + ours.recurrent_bias, theirs.bias + theirs.recurrent_bias
                )
                if mode is Mode.GRU:
                    last = mode.gates.index(Gate.CANDIDATE)
                    np.testing.assert_array_equal(ours.recurrent_bias[last], theirs.recurrent_bias[last])


@pytest.mark.parametrize("name", some(sorted(set(FIRST) & set(JUDGED)), *sorted(set(JUDGED) & set(OTHERS))))
def test_the_files_are_those_that_tensorflow_1_restored(rebuilt: Path, name: str) -> None:
    """By their checksum; after a change of what is saved run scripts/check_tf1_compat.py."""
    checksum = 0
    for key, value in read_all(rebuilt / name / "model.ckpt").items():
        whole = np.ascontiguousarray(value)  # of a scalar one value
        head = f"{key} {whole.dtype} {whole.shape}".encode()
        checksum = zlib.crc32(head + whole.tobytes(), checksum)
    assert f"{checksum:08x}" == JUDGED[name]["values"]
    assert JUDGED[name].get("worst", 0.0) <= 1e-5
