"""Tables of `Advice`: messages about the flags of a call, about formats, and about what a proof needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.batch.results import open_results
from cudnn_convert.graph.passes.run import Pass, name_pass
from cudnn_convert.lower import tflite, tflite_fused
from support import asking_files, asking_graphs
from support.advice import Advice
from support.asking_graphs import X
from support.command_line import command, copied
from support.micro_fixtures import CASES
from support.samples import ROOT

FUSED: Final = ["--format", "tflite", "--lowering", "fused"]
INT8: Final = ["--format", "onnx", "--quantize", "int8", "--data", "{here}/feeds.npz"]
#: A network with inputs of fixed sizes.
_TOKENS: Final = CASES["tokens_lstm-frozen"]
_MARK: Final = tflite_fused._mark_as_lstm
_GOLDEN: Final = ROOT / "tests" / "data" / "recordings" / "params_lstm_bi-1.4.1.npz"
_ARCHITECTURE: Final = ROOT / "tests" / "data" / "keras" / "keras-2.2.4" / "weights_sequential" / "model.json"
Prepare = Callable[[Path, Path], Any]


def without(passes: tuple[Pass, ...], name: str) -> tuple[Pass, ...]:
    """A list of passes that lacks one."""
    return tuple(each for each in passes if name_pass(each) != name)


def _leave_unmarked(name: str, sized: tflite_fused.SizedRecurrence, /) -> Any:
    """The function of a fused op, which the converter takes for any other."""
    return _MARK(name, sized).python_function


def with_feeds(**values: Any) -> Prepare:
    """Makes feeds.npz."""
    return lambda here, _: np.savez(here / "feeds.npz", **values)


def converted(*flags: str, name: str = "artifact") -> Prepare:
    """Makes an artifact of the source."""

    def made(here: Path, source: Path) -> None:
        assert command(source, here / name, *flags).code == 0

    return made


_FEEDS: Final = with_feeds(x=X)

#: Of the flags that quantize, each that misses or is one too many.
QUANTIZED: Final = (
    Advice(
        ["targets/accuracy_gate.py: --max-error needs"],
        asking_graphs.plain,
        ["--max-error", "0.5"],
        r"needs (--quantize)|use (--atol) in place of (?P<gone>--max-error)",
        {"--quantize": "int8", "--atol": "1e-3"},
        then="--quantize: expected --format onnx",
    ),
    Advice(
        ["targets/flags.py: expected --format {}"],
        asking_graphs.plain,
        ["--max-error", "0.5", "--quantize", "int8", "--data", "{here}/feeds.npz"],
        r"expected (--format onnx)",
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/accuracy_gate.py: the largest error that you accept"],
        asking_graphs.plain,
        INT8,
        r"needs (--max-error)",
        {"--max-error": "0.5"},
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/accuracy_gate.py: leave out --no-verify"],
        asking_graphs.plain,
        [*INT8, "--max-error", "0.5", "--no-verify"],
        r"leave out (?P<gone>--no-verify)",
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/accuracy_gate.py: inputs of yours"],
        asking_graphs.plain,
        ["--max-error", "0.5", "--quantize", "int8", "--format", "onnx"],
        r"needs (--data)",
        {"--data": "{here}/feeds.npz"},
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/accuracy_gate.py: cannot be combined with --weights-dtype"],
        asking_graphs.plain,
        [*INT8, "--max-error", "0.5", "--weights-dtype", "float16"],
        r"with (?P<gone>--weights-dtype) float16; leave one out",
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/accuracy_gate.py: is judged by --max-error alone"],
        asking_graphs.plain,
        [*INT8, "--max-error", "0.5", "--atol", "0.5"],
        r"leave out (?P<gone>--atol and --rtol)",
        prepare=_FEEDS,
    ),
    Advice(
        [
            "targets/accuracy_gate.py: leave out --quantize and --max-error",
            "targets/accuracy_gate.py: raise --max-error",
            "targets/accuracy_gate.py: expected {}, found {}; {}",
        ],
        asking_graphs.plain,
        [*INT8, "--max-error", "1e-9"],
        r"raise (--max-error)|leave out (?P<gone>--quantize and --max-error)",
        {"--max-error": "0.5"},
        prepare=_FEEDS,
    ),
    Advice(
        ["targets/onnx.py: --quantize: expected {}, found none"],
        asking_graphs.of_relu,
        [*INT8, "--max-error", "0.5"],
        r"leave out (?P<gone>--quantize and --max-error)",
        prepare=_FEEDS,
    ),
    Advice(
        ["lower/onnx/reduced_precision.py: leave out --quantize"],
        asking_graphs.infinite,
        [*INT8, "--max-error", "0.5"],
        r"leave out (?P<gone>--quantize and --max-error)",
        then="expected nan",
        prepare=_FEEDS,
    ),
)

#: Of files of fixed sizes.
SIZED: Final = (
    Advice(
        ["options.py: found neither; leave out --steps"],
        asking_graphs.plain,
        ["--steps", "5"],
        r"leave out (?P<gone>--steps)$",
    ),
    Advice(
        [
            "plan/fix_sizes.py: give the number of steps with --steps",
            "plan/fix_sizes.py: --lowering fused: expected an input of fixed sizes",
        ],
        "1.15.5-bilstm_tagger",
        FUSED,
        r"--lowering fused: .*; give the number of steps with (--steps)$",
        {"--steps": "5"},
    ),
    Advice(
        ["plan/fix_sizes.py: give all sizes, as in"], "1.15.5-block_fused", FUSED, r"as in (--inputs '.*')$"
    ),
    Advice(
        ["plan/fix_sizes.py: --steps {}: {}, {}; leave it out"],
        "1.15.5-bilstm_tagger",
        [*FUSED, "--steps", "7", "--inputs", "ids=ids:0[1,6]"],
        r"(?P<gone>--steps) 7: .*; leave it out$",
    ),
    Advice(
        ["lower/tflite_fused.py: leave out --lowering fused and --steps"],
        "1.15.5-gru_bi",
        [*FUSED, "--steps", str(tflite_fused.MOST_STEPS + 1)],
        r"leave out (?P<gone>--lowering fused and --steps), and the file loops",
    ),
    Advice(
        ["targets/fused_ops.py: leave out --lowering fused and --steps"],
        "1.15.5-bilstm_tagger",
        [*FUSED, "--steps", "6"],
        r"found none: .*; leave out (?P<gone>--lowering fused and --steps)$",
        patch=("cudnn_convert.lower.tflite_fused._mark_as_lstm", _leave_unmarked),
    ),
    Advice(
        ["targets/accuracy_gate.py: of TensorFlow Lite needs --lowering fused"],
        lambda _: _TOKENS.source,
        ["--format", "tflite", *INT8[2:], "--limit-examples", "20"],
        r"needs (--lowering fused): loops stay in float32$",
        prepare=with_feeds(**_TOKENS.data),
    ),
    Advice(
        [
            "targets/accuracy_gate.py: give a larger one with --max-error",
            "targets/accuracy_gate.py: leave out --quantize",
        ],
        lambda _: _TOKENS.source,
        [*FUSED, *INT8[2:], "--limit-examples", "20"],
        r"give a larger one with (--max-error)|leave out (?P<gone>--quantize)$",
        {"--max-error": "0.5"},
        prepare=with_feeds(**_TOKENS.data),
        patch=("cudnn_convert.verification.effort.SHARE_OF_INT8", 1e-6),
    ),
)

#: Flags that another format has, or another source.
FORMATS: Final = (
    Advice(["cli/parser.py: --help"], asking_graphs.plain, ["--zip"], r"see cudnn-convert (--help-all)"),
    Advice(
        ["options.py: leave out --format"],
        asking_graphs.plain,
        ["--format", "npz"],
        r"leave out (?P<gone>--format)",
        out="m.pb",
    ),
    Advice(
        ["targets/flags.py: expected --format {}"],
        asking_graphs.plain,
        ["--cell", "lstm_block"],
        r"expected (--format checkpoint)",
    ),
    Advice(
        ["targets/flags.py: expected --format {}"],
        asking_graphs.plain,
        ["--weights-dtype", "float16"],
        r"expected (--format onnx)",
    ),
    Advice(
        ["targets/flags.py: expected --format {} or {}"],
        asking_graphs.plain,
        ["--jit", "--format", "onnx"],
        r"expected (--format savedmodel) or (?P<other>frozen)",
    ),
    Advice(
        ["targets/flags.py: --jit cannot be combined"],
        asking_graphs.plain,
        ["--jit", "--lowering", "portable"],
        r"with (?P<gone>--lowering) portable; leave one out",
    ),
    Advice(
        ["targets/flags.py: expected --format {} or {}"],
        asking_graphs.plain,
        ["--slots"],
        r"expected (--format checkpoint), keras or (?P<other>h5)",
        then="--format h5: expected the layers of a Keras model",
    ),
    Advice(
        ["targets/flags.py: --format {}: expected"],
        asking_graphs.plain,
        ["--format", "h5"],
        r"(--format) h5: .* choose (\w+)",
    ),
    Advice(
        ["targets/flags.py: give --architecture, or "],
        "keras-2.2.4-weights_sequential",
        ["--format", "h5"],
        r"give (--architecture)",
        {"--architecture": str(_ARCHITECTURE)},
    ),
    Advice(
        ["targets/flags.py: give --architecture, or --recurrences-only"],
        "keras-2.2.4-weights_sequential",
        ["--format", "keras"],
        r"give (--architecture)|or (--recurrences-only)",
        {"--architecture": str(_ARCHITECTURE)},
    ),
    Advice(
        ["targets/flags.py: --recurrences-only: expected a source without Keras layers"],
        "keras-2.2.4-siamese",
        ["--format", "keras", "--recurrences-only"],
        r"leave out (?P<gone>--recurrences-only)",
    ),
    Advice(
        ["plan/keras_recurrences.py: --layout: expected batch with --format keras"],
        asking_files.graphless("1.15.5-gru_bi"),
        ["--format", "keras", "--layout", "time"],
        r"leave out (?P<gone>--layout)",
    ),
    Advice(
        ["plan/keras_recurrences.py: --lengths: expected no lengths with --format keras"],
        asking_files.graphless("1.15.5-gru_bi"),
        ["--format", "keras", "--lengths"],
        r"leave out (?P<gone>--lengths)",
    ),
    Advice(
        ["targets/flags.py: give --recurrences-only"],
        lambda folder: asking_graphs.behind(folder, lambda y: tf.nn.relu(y, "scores")),
        ["--format", "keras"],
        r"give (--recurrences-only)",
    ),
    Advice(
        ["inspection/inspect.py: the whole model needs"],
        "keras-2.2.4-weights_sequential",
        [],
        r"the whole model needs (--architecture)",
        {"--architecture": str(_ARCHITECTURE)},
        verb="inspect",
    ),
    Advice(
        ["targets/__init__.py: --jit: expected a model"],
        asking_graphs.frozen_plain,
        ["--jit", "--outputs", "scores"],
        r"(?P<gone>--jit): .*; leave it out",
    ),
    Advice(
        ["targets/checkpoint.py: --cell {}: expected"],
        asking_graphs.of_relu,
        ["--cell", "lstm_block", "--format", "checkpoint"],
        r"(?P<gone>--cell) lstm_block: .*; leave it out",
    ),
    Advice(
        ["options.py: --golden cannot be combined"],
        "1.3.0-params_lstm_bi",
        ["{here}/artifact", "--golden", str(_GOLDEN), "--data", "{here}/feeds.npz"],
        r"with (?P<gone>--data): .*; leave one out",
        verb="verify",
        prepare=converted(),
    ),
    Advice(
        ["cli/commands.py: --format cannot be combined"],
        asking_graphs.plain,
        ["{here}/artifact", "--format", "onnx"],
        r"(?P<gone>--format) cannot .*; leave one out",
        verb="map",
        prepare=converted(),
    ),
    Advice(
        ["graph/session.py: choose --format"],
        asking_graphs.plain,
        ["--format", "frozen"],
        r"choose (--format savedmodel)",
        patch=("cudnn_convert.graph.session._LIMIT", 10),
    ),
    Advice(
        ["lower/onnx/convert.py: choose --format"],
        asking_graphs.an_op_of_tensorflow,
        ["--format", "onnx"],
        r"choose (--format savedmodel) or (?P<other>frozen)",
    ),
    Advice(
        ["targets/tflite.py: choose --format"],
        asking_graphs.an_op_of_tensorflow,
        ["--format", "tflite"],
        r"choose (--format savedmodel) or (?P<other>frozen)",
    ),
    Advice(
        ["pipeline.py: runtime accepts, found an error"],
        asking_graphs.states_in_a_list,
        ["--format", "tflite"],
        r"choose (--format savedmodel)$",
        patch=("cudnn_convert.lower.tflite.PASSES", without(tflite.PASSES, "replace_lists")),
    ),
    Advice(
        ["targets/tflite.py: unproven with"],
        "1.15.5-partitioned",
        ["--format", "tflite"],
        r"write a kernel of TensorFlow's unproven with (--no-verify)$",
    ),
    Advice(
        ["targets/tflite.py: choose --format"],
        "1.15.5-block_cell_loop",
        ["--format", "tflite"],
        r"found LSTMBlockCell; choose (--format savedmodel) or (?P<other>frozen)$",
        patch=("cudnn_convert.lower.tflite.BEFORE_BLOCKS", without(tflite.BEFORE_BLOCKS, "replace_cells")),
    ),
    Advice(
        ["lower/tflite.py: choose --format"],
        asking_graphs.solved,
        ["--format", "tflite"],
        r"found MatrixSolveLs; choose (--format savedmodel) or (?P<other>frozen)$",
    ),
    Advice(
        ["lower/inexact_kernels.py: choose --format"],
        asking_graphs.raised,
        ["--format", "tflite"],
        r"found another; choose (--format savedmodel) or (?P<other>frozen)$",
    ),
    Advice(
        ["lower/infinities.py: choose --format"],
        asking_graphs.masked_twice,
        ["--format", "tflite"],
        r"found both; choose (--format savedmodel) or (?P<other>frozen)$",
    ),
    Advice(
        ["lower/onnx/checker.py: or choose"],
        asking_graphs.plain,
        ["--format", "onnx"],
        r"or choose (--format savedmodel)",
        patch=("cudnn_convert.lower.onnx.checker.DOMAINS", ()),
    ),
    Advice(
        ["lower/onnx/reduced_precision.py: leave out --weights-dtype"],
        asking_graphs.of_large_weights,
        ["--format", "onnx", "--weights-dtype", "float16"],
        r"leave out (?P<gone>--weights-dtype)",
    ),
    Advice(
        ["pipeline.py: or choose with"],
        asking_files.graphless("1.15.5-two_layers"),
        ["--format", "onnx"],
        r"or choose with (--signature)",
        {"--signature": "outer_inner_encoder"},
        out="out.onnx",
    ),
    Advice(
        ["plan/requests.py: {}; choose with --signature"],
        "keras-3.15.1-raw_ops",
        ["--format", "onnx"],
        r"choose with (--signature)",
        {"--signature": "chain"},
    ),
)

#: What a file may ask of the machine.
LIMITED: Final = (
    Advice(
        ["read/checks.py: --limit nodes"],
        "keras-3.15.1-lstm",
        ["--limit", "nodes=10"],
        r"if that is meant, give (--limit \S+)",
    ),
    Advice(
        ["context.py: --limit expanded"],
        asking_graphs.expanding,
        ["--limit", "expanded=100"],
        r"if that is meant, give (--limit \S+)",
    ),
    Advice(
        ["storage/staging.py: --limit staged"],
        asking_files.stored,
        ["--limit", "staged=100"],
        r"if that is meant, give (--limit \S+)",
    ),
)


def of_another_model(here: Path, _: Path) -> None:
    """The OUT of another model of the same name."""
    copied(here / "other", "1.15.5-keras_weights_lstm")
    assert command("batch", here / "other" / "source", *_words(here)).code == 0


def of_a_running_batch(here: Path, _: Path) -> None:
    _RUNNING.enter_context(open_results(here / "out"))


def of_another_program(here: Path, _: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "results.jsonl").write_text('{"accuracy": 0.9}\n')


def _words(here: Path) -> list[str]:
    return [word.format(here=here) for word in _BATCH]


_RUNNING: Final = ExitStack()
_BATCH: Final = ["--format", "npz", "--no-verify", "--out", "{here}/out"]
_ELSEWHERE: Final = r"choose another (--out)|replace it with (--force)"
#: A folder that a batch cannot write to.
BATCHES: Final = tuple(
    Advice(
        [piece],
        "1.15.5-object_lstm_2l",
        _BATCH,
        _ELSEWHERE,
        {"--out": "{here}/more"},
        verb="batch",
        prepare=prepare,
    )
    for piece, prepare in (
        ("batch/jobs.py: choose another --out", of_another_model),
        ("batch/results.py: another batch writes here", of_a_running_batch),
        ("batch/results.py: or move the file away", of_another_program),
    )
)

#: What a proof needs, or what reads and runs a model without converting it.
PROVEN: Final = (
    Advice(
        ["pipeline.py: or convert with"],
        asking_graphs.rare,
        [],
        r"give inputs on which one does with (--data)|convert with (--no-verify)",
        {"--data": "{here}/feeds.npz"},
        prepare=with_feeds(x=X + 20),
        patch=("cudnn_convert.verification.compare.proven_alone", lambda _: ()),
    ),
    Advice(
        ["verification/compare.py: give inputs on which they do"],
        asking_graphs.rare,
        [],
        r"give inputs on which they do with (--data)",
        {"--data": "{here}/feeds.npz"},
        prepare=with_feeds(x=X + 20),
    ),
    Advice(
        ["artifacts/safety.py: --trust"],
        asking_graphs.plain,
        ["{here}/acting"],
        r"vouch for the file with (--trust)",
        verb="verify",
        prepare=lambda here, _: asking_files.acting_artifact(here / "acting"),
    ),
    Advice(
        ["verification/record.py: --trust"],
        asking_graphs.acting_without_recurrence,
        ["--data", "{here}/feeds.npz", "--out", "{here}/golden.npz", "--outputs", "scores"],
        r"vouch for the file with (--trust)",
        verb="record",
        prepare=_FEEDS,
    ),
    Advice(
        ["pipeline.py: for the original is recorded as it is"],
        asking_graphs.without_recurrence,
        ["--states", "--data", "{here}/feeds.npz", "--out", "{here}/golden.npz", "--outputs", "scores"],
        r"(?P<gone>--states): expected no such flag",
        verb="record",
        prepare=_FEEDS,
    ),
    Advice(
        ["artifacts/runners.py: {}; name them with"],
        asking_graphs.plain,
        ["{here}/named_otherwise.onnx"],
        r"name them with (--inputs NAME=TENSOR)",
        {"NAME=TENSOR": "features=x:0"},
        verb="verify",
        prepare=lambda here, source: asking_files.named_otherwise(source, here / "named_otherwise.onnx"),
    ),
    Advice(
        ["artifacts/runners.py: when freezing"],
        asking_graphs.plain,
        ["{here}/graph.pb"],
        r"name them with (--inputs NAME=TENSOR)",
        {"NAME=TENSOR": "features=x:0"},
        verb="verify",
        prepare=lambda here, source: asking_files.frozen_otherwise(source, here / "graph.pb"),
    ),
    Advice(
        ["artifacts/runners.py: choose with"],
        asking_graphs.plain,
        ["{here}/two_signatures"],
        r"choose with (--signature)",
        {"--signature": "a"},
        verb="verify",
        prepare=lambda here, source: asking_files.two_signatures(source, here / "two_signatures"),
    ),
)

#: What is said of a model that runs on a CPU as it is.
PORTABLE: Final = (
    Advice(
        ["pipeline.py: --force-convert"], "tf_keras-2.21.0-portable", [], r"; (--force-convert) writes it"
    ),
    Advice(
        ["inspection/alternatives.py: --force-convert"],
        "tf_keras-2.21.0-portable",
        [],
        r"; (--force-convert) writes a copy",
        verb="inspect",
        then_verb="",
    ),
    Advice(
        ["inspection/inspect.py: --tag {}"],
        "1.15.5-saved_model_tags",
        [],
        r"other graphs than [\w ]+: (--tag \S+)",
        verb="inspect",
    ),
    Advice(
        ["cli/terminal.py: --json"],
        "tf_keras-2.21.0-portable",
        [],
        r"dead \((--json) lists them\)",
        verb="inspect",
    ),
)
