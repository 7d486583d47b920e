"""The command of an inspection, and the choices that a source leaves open."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import command, copied
from support.graphs import BLOB, drawing, lstm, placeholder, v1
from support.keras3_samples import exported
from support.keras_samples import keras_fixture
from support.samples import Fixture, fixture

import cudnn_convert
from cudnn_convert import cli
from cudnn_convert.errors import Reason, Remedy
from cudnn_convert.inspection import alternatives
from cudnn_convert.options import READING, VOUCHED, Options

# The command: words for a shell, an OUT that nothing has, and every choice that a source leaves open.


def without_graph(name: str, folder: Path) -> Path:
    """The prefix of a sample without its MetaGraph."""
    shutil.copytree(fixture(name).folder, folder, ignore=shutil.ignore_patterns("*.meta"))
    return folder / "model.ckpt"


def ran(words: tuple[str, ...], form: str = "") -> int:
    """The exit code of a command, as a shell would split it; the candidates of a source share an OUT.

    `form` is a cheaper format, where the source and its flags are what the command is about.
    """
    _, source, out, *flags = shlex.split(shlex.join(words))
    more = ["--format", form] if form else []
    code = command(source, out, *flags, *more, "--no-verify", "--quiet").code
    shutil.rmtree(out) if Path(out).is_dir() else Path(out).unlink(missing_ok=True)
    return code


NAMES = {
    "model.ckpt": "model_cpu",
    "model.ckpt.index": "model_cpu",
    "model.ckpt-1200.meta": "model.ckpt-1200_cpu",
    "frozen graph.pb": "frozen graph_cpu",
    "weights.weights.h5": "weights_cpu",
    "model": "model_cpu",
    ".h5": ".h5_cpu",
}


@pytest.mark.parametrize(("name", "out"), NAMES.items())
def test_out_is_named_after_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = alternatives.command(Path(name), Options())
    assert words == ("cudnn-convert", name, out, "--format", "savedmodel")
    (tmp_path / out).mkdir()
    assert alternatives.command(Path(name), Options())[2] == f"{out}_2"
    (tmp_path / f"{out}_2").symlink_to("nowhere")
    assert alternatives.command(Path(name), Options())[2] == f"{out}_3"


def test_formats_of_layers_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert alternatives.command(Path("m.h5"), Options(format="keras"))[2] == "m_cpu.keras"
    (tmp_path / "m_cpu.h5").touch()
    assert alternatives.command(Path("m.h5"), Options(format="h5"))[2] == "m_cpu_2.h5"


def test_a_source_that_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OUT lies beside it, for in it no artifact may lie."""
    shutil.copytree(fixture("1.15.5-saved_model_words").prefix, tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    for source in (".", "saved_model.pb"):
        found = cudnn_convert.inspect(source)
        assert found.command is not None
        assert found.command[2] == str(tmp_path / "model_cpu")
    assert ran(found.command) == 0


@pytest.mark.parametrize("name", [*sorted(cli.SUBCOMMANDS), "-model", "a model; rm x"])
def test_a_name_that_means_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    prefix = copied(tmp_path)
    monkeypatch.chdir(prefix.parent)
    for path in [*prefix.parent.glob("model.ckpt.*")]:
        path.rename(path.name.replace("model.ckpt", name))
    found = cudnn_convert.inspect(name)
    assert found.command is not None
    assert ran(found.command, "npz") == 0


def test_flags_repeat_every_option() -> None:
    """Each of those that say how a source is read comes back as the command line's own word."""
    said = Options(
        inputs=("x=x:0[?,?,3]", "h:0"),
        outputs=["y:0"],
        set=("rate=0",),
        signature="score",
        tag="serve,gpu",
        weights="raw",
        forget_bias=1.0,
        gate_order="miopen",
        mode="gru",
        layers=2,
        units=5,
        directions=1,
        layout="batch",
        states=True,
        lengths=True,
        architecture=Path("a b.json"),
        custom_objects=["mine:Scale"],
        limit=["nodes=8"],
        trust=True,
        verify=False,
    )
    usual = Options()
    beam = Options(
        **{"decode": "beam", "steps": 9, "width": 3, "end": 2, "pad": 1, "length_penalty": 0.5},
        **{"history": True, "token": "x:0", "logits": "y:0", "pad_mask": "0,3-5", "initial_scores": True},
    )
    sample = Options(decode="sample", steps=9, top_k=4, temperature=0.5)
    every = (said, beam, sample)
    assert all(
        any(getattr(one, name) != getattr(usual, name) for one in every) for name in (*READING, *VOUCHED)
    )
    assert {field.name for field in fields(Options)} >= {*READING, *VOUCHED}
    assert alternatives.flags(said) == (
        "--inputs=x=x:0[?,?,3]", "--inputs=h:0", "--outputs=y:0", "--set=rate=0", "--signature=score",
        "--tag=serve,gpu", "--weights=raw", "--forget-bias=1", "--gate-order=miopen", "--mode=gru",
        "--layers=2", "--units=5", "--directions=1", "--layout=batch", "--states", "--lengths",
        "--architecture=a b.json", "--custom-objects=mine:Scale", "--limit=nodes=8",
        "--trust", "--no-verify",
    )  # fmt: skip
    assert alternatives.flags(beam) == (
        "--steps=9", "--decode=beam", "--width=3", "--end=2", "--pad=1", "--length-penalty=0.5", "--history",
        "--pad-mask=0,3-5", "--initial-scores", "--token=x:0", "--logits=y:0",
    )  # fmt: skip
    assert alternatives.flags(sample) == ("--steps=9", "--decode=sample", "--top-k=4", "--temperature=0.5")
    assert alternatives.flags(usual) == ()


#: Without their graph, what must be said of these samples: tests/end_to_end/test_graphless.py.
OPEN = {
    "1.15.5-raw_only": ("--mode=gru", "--layers=1", "--units=4", "--directions=2"),
    "1.3.0-params_tanh_2l": ("--mode=rnn_tanh", "--layers=2", "--units=5", "--directions=1"),
    "1.2.1-params_relu_2l": ("--mode=rnn_relu", "--layers=2", "--units=5", "--directions=1"),
    "1.2.1-params_lstm_2l": ("--directions=1",),
    "1.3.0-params_lstm_bi": ("--mode=lstm", "--layers=1", "--units=5", "--directions=2"),
    "1.3.0-params_gru_bi_2l": ("--mode=gru", "--layers=2", "--units=5", "--directions=2"),
}


@pytest.mark.parametrize(("name", "flags"), OPEN.items())
def test_what_weights_leave_open_is_a_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = without_graph(name, tmp_path / "source")
    found = cudnn_convert.inspect(source)
    assert found.command is None
    assert found.reasons
    [way] = [way for way in found.candidates if way.flags == flags]
    assert ran(way.command, "npz") == 0
    said = dict(flag.removeprefix("--").split("=") for flag in flags)
    kept = {key: int(value) if value.isdigit() else value for key, value in said.items()}
    assert cudnn_convert.inspect(source, **kept).command is not None


def twins(path: Path) -> Path:
    """A frozen graph of one layer called twice, each with an output of its own."""
    with drawing() as graph:
        params = v1.constant(BLOB, name="params")
        for name in ("left", "right"):
            v1.identity(lstm(placeholder(f"{name}_x"), params, name=name).output * 2.0, f"{name}_out")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_twins_that_nothing_tells_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = cudnn_convert.inspect(twins(tmp_path / "twins.pb"))
    assert [(one.name, one.live) for one in found.recurrences] == [("left", None), ("right", None)]
    assert found.runs_on_cpu is None
    assert [way.flags for way in found.candidates] == [("--outputs=left_out:0",), ("--outputs=right_out:0",)]
    for way in found.candidates:
        assert ran(way.command) == 0
    [left, right] = cudnn_convert.inspect("twins.pb", outputs="right_out:0").recurrences
    assert (left.live, right.live) == (False, True)


def test_tags_are_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    monkeypatch.chdir(tmp_path)
    shutil.copytree(fixture("1.15.5-saved_model_tags").prefix, tmp_path / "model")
    path = tmp_path / "model" / "saved_model.pb"
    found = cudnn_convert.inspect("model")
    assert "other graphs than that of serve: --tag serve,gpu" in found.notes
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (served,) = (meta for meta in saved.meta_graphs if [*meta.meta_info_def.tags] == ["serve"])
    served.meta_info_def.tags[:] = []
    path.write_bytes(saved.SerializeToString())
    notes = cudnn_convert.inspect("model").notes
    assert "other graphs than the one without tags: --tag serve,gpu" in notes
    served.meta_info_def.tags[:] = ["tpu"]
    path.write_bytes(saved.SerializeToString())
    found = cudnn_convert.inspect("model")
    assert {way.flags for way in found.candidates} == {("--tag=tpu",), ("--tag=serve,gpu",)}
    assert all(one.live is None for one in found.recurrences)
    assert "choose with --tag" in found.reasons[0]
    assert all(ran(way.command) == 0 for way in found.candidates)
    path.write_bytes(saved_model_pb2.SavedModel(meta_graphs=[served]).SerializeToString())
    assert not [note for note in cudnn_convert.inspect("model").notes if "other graphs" in note]


def test_a_keras_model_without_cudnn_goes_to_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = keras_fixture("keras-2.2.4-sequential_lstm").path
    for form in ("h5", "keras"):
        cudnn_convert.convert(source, tmp_path / f"made.{form}", format=form, verify=False)
        found = cudnn_convert.inspect(tmp_path / f"made.{form}", format=form)
        assert (found.runs_on_cpu, found.command, found.candidates) == (True, None, ())
        assert len(found.reasons) == 1
    assert cudnn_convert.inspect(tmp_path / "made.keras").command is None
    found = cudnn_convert.inspect(tmp_path / "made.h5")
    assert found.runs_on_cpu
    assert found.command is not None
    assert found.command[-1] == "keras"
    assert ran(found.command) == 0


def test_a_graph_of_a_keras_model_needs_every_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, what in (("custom_layer", "--custom-objects MODULE:Scale"), ("lambda_harmless", "--trust")):
        found = cudnn_convert.inspect(keras_fixture(f"keras-2.2.4-{name}").path, format="onnx")
        assert (found.command, found.candidates) == (None, ())
        assert what in found.reasons[0]
    source = keras_fixture("keras-2.2.4-stacked").path
    found = cudnn_convert.inspect(source, outputs="second/transpose_2:0")
    assert found.command is not None
    assert found.command[3:] == ("--format", "savedmodel", "--outputs=second/transpose_2:0")
    archive = exported("keras-3.15.1-archive").archive
    assert archive is not None
    found = cudnn_convert.inspect(archive, format="onnx")
    assert found.command is not None
    assert ran(found.command) == 0


def test_an_op_that_tensorflow_does_not_know_is_a_reason(tmp_path: Path) -> None:
    with drawing() as graph:
        v1.identity(lstm(placeholder("x"), v1.constant(BLOB, name="params")).output * 2.0, "out")
    definition = graph.as_graph_def()
    definition.node.add(name="strange", op="NoSuchOp")
    [node] = [node for node in definition.node if node.op == "CudnnRNN"]
    node.input[0] = "strange"
    source = tmp_path / "model.pb"
    source.write_bytes(definition.SerializeToString())
    found = cudnn_convert.inspect(source)
    assert (found.command, found.runs_on_cpu) == (None, None)
    [one] = found.recurrences
    assert (one.name, one.mode, one.live, one.raw[0].name) == ("rnn", "lstm", None, "params")
    [reason] = found.reasons
    assert "Op type not registered 'NoSuchOp'" in reason
    assert command(source, tmp_path / "out", "--quiet").code == 1


def test_the_wanted_format_is_in_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample: Fixture = fixture("1.15.5-gru_uni_2l")
    for source, form in ((sample.prefix, "onnx"), (keras_fixture("keras-2.2.4-stacked").path, "h5")):
        found = cudnn_convert.inspect(source, format=form)
        assert found.command is not None
        assert found.command[3:] == ("--format", form)
        assert ran(found.command) == 0


# The remedies of a refusal as options: how several reasons go together, and what was said already.


def reason(*changes: dict[str, Any]) -> Reason:
    return Reason("a: expected b, found c", *map(Remedy, changes))


COPIES = reason({"weights": "canonical"}, {"weights": "raw"})
A, B = reason({"set": ("a:0=1",)}), reason({"set": ("b:0=1",)})
SIZES = [
    {"mode": "lstm", "layers": 1, "units": 2, "directions": 1},
    {"mode": "gru", "layers": 2, "units": 4, "directions": 2},
]

REMEDIES: dict[str, tuple[list[Reason], list[dict[str, Any]]]] = {
    "one": ([A], [{"set": ("a:0=1",)}]),
    "two constants and none": ([A, B, reason()], [{"set": ("a:0=1", "b:0=1")}]),
    "the same constant twice": ([A, A], [{"set": ("a:0=1",)}]),
    "alternatives": ([COPIES], [{"weights": "canonical"}, {"weights": "raw"}]),
    "several options at once": ([reason(*SIZES)], SIZES),
    "the same alternative twice": ([reason(SIZES[0], SIZES[0])], [SIZES[0]]),
    "one of each reason": (
        [A, COPIES],
        [{"set": ("a:0=1",), "weights": "canonical"}, {"set": ("a:0=1",), "weights": "raw"}],
    ),
    "the first of two choices": ([COPIES, reason(*SIZES)], [{"weights": "canonical"}, {"weights": "raw"}]),
    "none": ([reason()], []),
    "text alone": ([Reason("a: expected b, found c; choose with --weights raw")], []),
}


@pytest.mark.parametrize(("reasons", "changes"), REMEDIES.values(), ids=REMEDIES)
def test_remedies_are_applied(reasons: list[Reason], changes: list[dict[str, Any]]) -> None:
    given = Options()
    assert alternatives.follow_remedies(reasons, given) == [replace(given, **change) for change in changes]


def test_what_was_said_is_not_contradicted() -> None:
    assert alternatives.follow_remedies([COPIES], Options(weights="ema")) == []
    assert alternatives.follow_remedies([COPIES], Options(weights="raw")) == []
    (chosen,) = alternatives.follow_remedies([reason(*SIZES)], Options(layers=2))
    assert chosen == Options(**SIZES[1])
    listed = Options(outputs=["y:0"])  # as the command line has it
    assert alternatives.follow_remedies([reason({"outputs": ("y:0",)})], listed) == [
        replace(listed, outputs=("y:0",))
    ]
    assert alternatives.follow_remedies([reason({"outputs": ("z:0",)})], listed) == []


def test_constants_add_up() -> None:
    (chosen,) = alternatives.follow_remedies([A], Options(set=("z:0=2",)))
    assert chosen.set == ("z:0=2", "a:0=1")
    assert alternatives.follow_remedies([A], chosen) == []
