"""The recorded samples: genuine TensorFlow 1 checkpoints, and real models where they are at hand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]
TF1 = ROOT / "tests" / "data" / "tf1"
REAL = Path(os.environ.get("CUDNN_CONVERT_REAL_MODELS", ROOT.parent / "shared" / "real"))
#: Set by `make test-every`: every sample of every writer goes to every format.
EVERY = "CUDNN_CONVERT_EVERY" in os.environ
#: The formats that any source can become; the others hold the layers of a Keras model.
ANY_SOURCE = {name: form for name, form in FORMATS.items() if not form.layers}
#: Those that hold what is around the recurrences too.
GRAPH_FORMATS = {name: form for name, form in ANY_SOURCE.items() if not form.alone}


#: Their steps lie in TensorArrays, or their rows in several variables: ops that TensorFlow Lite lacks.
FLEXIBLE = (
    *("block_cell_bidirectional", "block_cell_clip", "block_cell_loop", "compatible_gru_loop"),
    *("decode_attention", "decode_beam", "partitioned"),
)
#: A case of each plan, for the formats that not every case goes to: modes, directions, layers, versions of
#: the op, states, lengths, either layout, dtypes, projection, skipped input, shared weights, several
#: recurrences, branches, loops, resources, partitions, cells without a cuDNN op.
PLANS = frozenset(
    "bilstm_tagger block_cell_bidirectional block_fused_lengths compatible_gru_loop cond dropout_placeholder "
    "final_state_only gru_bi gru_bi_2l_float64 iterator_input keras_go_backwards keras_lstm_states "
    "keras_siamese lstm_bi_2l_states lstm_float16 lstm_uni_3l op_proj_lstm op_skip_lstm op_skip_relu "
    "partitioned resource_vars rnn_relu_bi rnn_relu_uni_2l rnn_tanh_bi_2l two_layers v3_batch_major "
    "v3_gru_lengths v3_lengths_batch_major v3_lengths_time_major while_refine while_rows".split()
)
#: Plans that differ in what TensorFlow Lite's files are too plain for: how variables lie, which op it was.
NOT_FOR_TFLITE = frozenset(
    "dropout_placeholder final_state_only gru_bi iterator_input keras_go_backwards keras_lstm_states "
    "keras_siamese op_skip_relu resource_vars rnn_relu_bi v3_lengths_batch_major while_refine".split()
)
#: What tells them apart is chosen before anything is lowered: a SavedModel of some shows it.
CHOOSING = frozenset(
    "attention_memory averages_saver cond_training cond_training_default decoder_inputs features_loss "
    "horovod horovod_gathered lengths_mask printed_scatter regression target_saver two_heads".split()
)
CHOSEN = frozenset(
    "attention_memory averages_saver cond_training cond_training_default horovod lengths_mask "
    "printed_scatter target_saver".split()
)
#: Cases of a format alone: loops in loops, which tf2onnx rewrites, and what TensorFlow fuses in constants.
MORE = {"onnx": ("cond_in_while", "while_nested"), "frozen": ("frozen_layer_norm",)}
#: The format that every case goes to: what stands right of `Model` never asks which reader ran.
WITH_ALL = "onnx"
#: What ONNX has no table or Print for, and loops that tf2onnx takes seconds for: as SavedModels.
AS_SAVED_MODEL = frozenset(
    "saved_model_words printed_scatter decode_attention decode_beam while_nested cond_in_while".split()
)


@dataclass(frozen=True)
class Fixture:
    """A genuine TensorFlow 1 checkpoint with TensorFlow's own CPU answer."""

    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def prefix(self) -> Path:
        """What to convert: a checkpoint's prefix, a folder or a file."""
        return self.folder / str(self.case.get("source", "model.ckpt"))

    @property
    def case(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "case.json").read_text()))

    @property
    def options(self) -> dict[str, Any]:
        """The flags that the case needs, as the library's keywords."""
        flags = self.case["flags"]
        found: dict[str, Any] = {}
        for flag, value in zip(flags[::2], flags[1::2], strict=True):
            name = flag.removeprefix("--")
            found[name] = [value] if name in ("set", "inputs", "outputs") else value
        return found

    def fits(self, form: str) -> bool:
        """Whether a format can hold the case: tables need a SavedModel, cells have no projection."""
        if self.folder.name in ("saved_model_words", "two_lookups"):
            return form == "savedmodel"
        if form == "tflite":
            return self.folder.name not in FLEXIBLE
        return form != "checkpoint" or not self.folder.name.startswith("op_proj")

    @property
    def is_plan(self) -> bool:
        return self.folder.parent.name == "1.15.5" and self.folder.name in PLANS

    @property
    def form(self) -> str:
        """The format that it goes to whatever it is a case of."""
        return "savedmodel" if self.folder.name in AS_SAVED_MODEL else WITH_ALL

    def goes_to(self, form: str) -> bool:
        """Whether it is converted to a format: all to one, a case of each plan to the others."""
        is_left = form == "tflite" and self.folder.name in NOT_FOR_TFLITE
        if self.folder.name in CHOOSING and not EVERY:
            return form == self.form and self.folder.parent.name == "1.15.5" and self.folder.name in CHOSEN
        is_more = self.folder.name in MORE.get(form, ())
        return self.fits(form) and (EVERY or form == self.form or is_more or (self.is_plan and not is_left))

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """The recorded tensors of each feed, inputs and outputs, by the source's names."""
        with np.load(self.folder / "golden.npz") as data:
            count = len({key.partition("/")[0] for key in data.files})
            return [
                {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"feed{n}/")}
                for n in range(count)
            ]


_STORED = tuple(Fixture(path.parent) for path in sorted(TF1.glob("*/*/case.json")))
#: Weights that Keras wrote by objects, of CPU layers most of them: no answers, for nothing runs them alone.
WEIGHTS = tuple(found for found in _STORED if found.case.get("weights"))
#: Refused, or told of, with flags that test_printed_commands takes literally: of no other plan than others.
ASKING = frozenset({"string_outputs", "phase", "unknown_rank", "two_lookups"})
_ALL = tuple(
    found for found in _STORED if found not in WEIGHTS and (EVERY or found.folder.name not in ASKING)
)
#: Weights without a graph; their golden tensors are those of each recurrence alone.
GRAPHLESS = tuple(found for found in _ALL if found.case.get("graphless"))
#: Models that keep state in variables: their feeds are calls in a row, with the state before and after each.
STATEFUL = tuple(found for found in _ALL if found.case.get("stateful"))
FIXTURES = tuple(found for found in _ALL if found not in GRAPHLESS + STATEFUL)
assert FIXTURES, f"no fixtures under {TF1}"
assert {found.folder.name for found in FIXTURES if found.is_plan} == PLANS


def fixture(name: str) -> Fixture:
    """One fixture by `<version>-<case>`."""
    return next(found for found in _STORED if found.name == name)
