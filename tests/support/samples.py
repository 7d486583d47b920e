"""The recorded samples: genuine TensorFlow 1 checkpoints, and real models where they are at hand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.formats import FORMATS, Content

ROOT = Path(__file__).resolve().parents[2]
TF1 = ROOT / "tests" / "data" / "tf1"
REAL = Path(os.environ.get("CUDNN_CONVERT_REAL_MODELS", ROOT.parent / "shared" / "real"))
#: The formats that any source can become; the others hold the layers of a Keras model.
ANY_SOURCE = {name: form for name, form in FORMATS.items() if not form.has_layers}
#: Those that hold what is around the recurrences too.
GRAPH_FORMATS = {name: form for name, form in ANY_SOURCE.items() if form.content is not Content.RECURRENCES}


#: They have a CTC decoder, or rows in several variables, or they print: ops TensorFlow Lite lacks.
FLEXIBLE = ("partitioned", "printed_scatter", "project_reader", "project_speech")
#: The format that a case of every kind goes to: what stands right of `Model` never asks which reader ran.
WITH_ALL = "onnx"
#: What ONNX has no table or Print for, and loops that tf2onnx takes seconds for: as SavedModels.
AS_SAVED_MODEL = frozenset(
    "saved_model_words printed_scatter decode_attention decode_beam while_nested cond_in_while "
    "project_reader".split()
)
#: Cases of TensorFlow 1.15 that the first tier converts to the other formats: what a lowering or a writer
#: asks of a plan. Modes, directions, layers, states, lengths, either layout, dtypes, projection, skipped
#: input, several recurrences, branches, loops, kinds of variables, cells without a cuDNN op. To TensorFlow
#: Lite goes what differs inside its loop.
FIRST = {
    "savedmodel": frozenset(
        "block_cell_bidirectional cond gru_uni_2l iterator_input keras_go_backwards lstm_bi_2l_states "
        "lstm_float16 op_proj_lstm rnn_relu_uni_2l rnn_tanh_uni v3_batch_major v3_gru_lengths "
        "v3_lengths_batch_major while_rows".split()
    ),
    "frozen": frozenset("cond frozen_layer_norm lstm_bi_2l_states while_rows".split()),
    "checkpoint": frozenset(
        "cond gru_uni_2l keras_go_backwards lstm_bi_2l_states lstm_float16 op_skip_relu rnn_relu_uni_2l "
        "v3_batch_major v3_gru_lengths v3_lengths_time_major".split()
    ),
    "tflite": frozenset("lstm_float16 rnn_relu_uni_2l while_rows".split()),
}
#: What tells them apart is chosen before anything is lowered; test_choose_outputs.py shows it of each.
CHOOSING = frozenset(
    "attention_memory averages_saver cond_training cond_training_default decoder_inputs features_loss "
    "horovod horovod_gathered lengths_mask printed_scatter regression target_saver two_heads".split()
)
#: Those that are converted in the first tier too.
CHOSEN = frozenset("cond_training_default horovod".split())
#: Of plans and readers that others have: repeats, and what goes to another format in the first tier.
ALIKE = frozenset(
    "bilstm_tagger block_cell_bidirectional block_cell_clip block_cell_loop block_fused_clip "
    "block_fused_lengths block_fused_peephole block_fused_stacked build_prefix checkpoint_sharded "
    "checkpoint_v1 checkpoint_v1_sharded compatible_gru_loop cond_in_while dataset_input "
    "decode_attention decode_beam dropout_in_loop dropout_needs_set dropout_placeholder frozen_binary "
    "frozen_layer_norm frozen_text gru_bi horovod iterator_input keras_gru_bi keras_lstm keras_siamese "
    "keras_tagger lstm_uni_3l mirrored multi_worker op_auto_gru op_auto_linear op_proj_plain "
    "op_skip_relu partitioned project_agent project_characters project_forecast project_handwriting "
    "project_music project_pointer project_reader project_speech project_tasks project_translation "
    "queue_input rnn_relu_bi rnn_tanh_bi_2l same_sizes saved_model_tags saved_model_words "
    "statistics_by_hand statistics_flag statistics_layers statistics_slim towers_split twins_backprop "
    "twins_training two_layers v3_lengths_batch_major while_nested while_refine".split()
)
#: Cases whose planning takes longest; test_choose_outputs.py plans those among which a user has a choice.
LONG = frozenset(
    "cond_in_while decode_attention decode_beam dropout_in_loop keras_tagger project_agent "
    "project_characters project_handwriting project_music project_pointer project_reader "
    "project_speech project_tasks project_translation statistics_slim".split()
)
#: Refused, or told of, with flags that test_printed_commands.py takes literally: plans that others have too.
ASKING = frozenset("string_outputs phase unknown_rank two_lookups".split())
#: What an older TensorFlow wrote otherwise than the newest, and the format of the first tier.
OLDER = {
    "1.2.1": {"op_auto_lstm": "onnx", "params_relu_2l": "onnx"},
    "1.3.0": {"params_gru_bi_2l": "onnx", "params_tanh_2l": "onnx"},
    "1.8.0": {"cond": "savedmodel", "lstm_bi_2l_states": "onnx"},
    "1.12.3": {"gru_bi": "onnx"},
}


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
        """Whether a format can hold the case: ONNX has no table or Print, cells have no projection."""
        if self.folder.name in ("saved_model_words", "two_lookups"):
            return form == "savedmodel"
        if form == "onnx":
            return self.folder.name not in ("printed_scatter", "project_reader")
        if form == "tflite":
            return self.folder.name not in FLEXIBLE
        return form != "checkpoint" or self.folder.name not in ("op_proj_double", "op_proj_lstm")

    @property
    def form(self) -> str:
        """The format that it goes to whatever it is a case of."""
        return "savedmodel" if self.folder.name in AS_SAVED_MODEL else WITH_ALL

    def is_first(self, form: str) -> bool:
        """Whether the first tier converts it to a format: a case of each kind to one, few to the others."""
        writer, case = self.folder.parent.name, self.folder.name
        if not self.fits(form) or case in ASKING:
            return False
        if writer in OLDER:
            return OLDER[writer].get(case) == form
        is_left = case in ALIKE or case in CHOOSING - CHOSEN
        return case in FIRST.get(form, ()) or (form == self.form and not is_left)

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
_ALL = tuple(found for found in _STORED if found not in WEIGHTS)
#: Weights without a graph; their golden tensors are those of each recurrence alone.
GRAPHLESS = tuple(found for found in _ALL if found.case.get("graphless"))
#: Models that keep state in variables: their feeds are calls in a row, with the state before and after each.
STATEFUL = tuple(found for found in _ALL if found.case.get("stateful"))
FIXTURES = tuple(found for found in _ALL if found not in GRAPHLESS + STATEFUL)
assert FIXTURES, f"no fixtures under {TF1}"


def fixture(name: str) -> Fixture:
    """One fixture by `<version>-<case>`."""
    return next(found for found in _STORED if found.name == name)
