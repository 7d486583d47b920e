"""The registries that pages tell newcomers of: a format's two modules, and the places of a mode."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.package_modules import nodes, trees
from support.samples import ROOT

from cudnn_convert.artifacts.runners import Opener
from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS, Content
from cudnn_convert.model import Mode
from cudnn_convert.options import choose_format
from cudnn_convert.targets import Target
from cudnn_convert.verification.pieces.ask import Asker

PACKAGE = ROOT / "cudnn_convert"
#: What is in these rooms beside the modules of formats.
SHARED = {
    "targets": {
        "__init__",
        "accuracy_gate",
        "bundle",
        "eight_bits",
        "firmware",
        "fused_ops",
        "flags",
        "layers",
    },
    "artifacts": {"__init__", "micro", "micro_operators", "runners", "safety"},
}


def missing(module: str, wanted: type) -> set[str]:
    """The functions of a protocol that a module lacks, or has with another number of parameters."""
    there = vars(import_module(f"cudnn_convert.{module}"))
    functions = {name: value for name, value in vars(wanted).items() if inspect.isfunction(value)}
    functions = {name: value for name, value in functions.items() if not name.startswith("_")}
    assert functions, wanted
    return {name for name, value in functions.items() if taken(there.get(name)) != taken(value) - {"self"}}


def taken(function: Any) -> set[str]:
    """The names of a function's parameters."""
    return set(inspect.signature(function).parameters) if inspect.isfunction(function) else set()


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_has_all_its_functions(form: str) -> None:
    row = FORMATS[form]
    assert not missing(f"targets.{row.module}", Target)
    assert not missing(f"artifacts.{row.module}", Opener)
    # Nothing stands around its recurrences.
    left = {"runner"} if row.content is Content.RECURRENCES else set()
    assert not row.pieces or missing(f"verification.pieces.{row.pieces}", Asker) == left
    if row.pieces == "graph_glue":
        assert callable(import_module(f"cudnn_convert.artifacts.{row.module}").load_graph)


@pytest.mark.parametrize("out", ["model-1.2", "d/keras-3.15.1-lstm"])
def test_a_version_in_the_name_of_a_folder_is_no_suffix(out: str) -> None:
    assert choose_format(Path(out), None) == "savedmodel"


#: The suffixes of formats, as a message lists them.
SUFFIXES = ".pb, .onnx, .tflite, .keras, .h5, .hdf5, .npz, .safetensors"


@pytest.mark.parametrize(
    ("out", "form"),
    [
        *(("m.onnx", "onnx"), ("m.pb", "frozen"), ("m.tflite", "tflite"), ("m.keras", "keras")),
        *(("m.h5", "h5"), ("m.hdf5", "h5"), ("m.npz", "npz"), ("m.safetensors", "safetensors")),
        *(("m.ONNX", "onnx"), ("m.Pb", "frozen"), ("m.HDF5", "h5"), ("m.NPZ", "npz")),
        *(("m", "savedmodel"), ("m.onnx/m", "savedmodel"), ("../m", "savedmodel"), (".m", "savedmodel")),
    ],
)
def test_the_suffix_of_out_names_the_format(out: str, form: str) -> None:
    assert choose_format(Path(out), None) == form
    assert choose_format(Path(out), form) == form
    is_file = bool(Path(out).suffix)
    assert FORMATS[form].target(Path(out)) == (not is_file, Path(out))
    if is_file:
        with pytest.raises(
            UsageError, match=f"--format savedmodel, found {Path(out).suffix}, the suffix of {form}; leave"
        ):
            choose_format(Path(out), "savedmodel")


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("d/m.onxx", "found .onxx; name it m.onnx, or write m.onxx/ for a folder"),
        ("m.ONXX", "found .ONXX; name it m.onnx, or write m.ONXX/ for a folder"),
        ("m.tflit", "found .tflit; name it m.tflite, or write m.tflit/ for a folder"),
        ("m.hd5", "found .hd5; name it m.hdf5, or write m.hd5/ for a folder"),
        ("m.pt", f"found .pt; choose one of {SUFFIXES}, or write m.pt/ for a folder"),
        ("m.v2", f"found .v2; choose one of {SUFFIXES}, or write m.v2/ for a folder"),
    ],
)
def test_a_suffix_of_no_format_is_refused(out: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_format(out, None)
    assert str(caught.value) == f"OUT {out}: expected the suffix of a format or none, {message}"


def test_a_folder_may_have_any_suffix_where_that_is_said(tmp_path: Path) -> None:
    assert choose_format("m.v2/", None) == "savedmodel"
    assert choose_format("m.onxx/", "onnx") == "onnx"
    assert choose_format("m.v2", "onnx") == "onnx"
    (tmp_path / "m.v2").mkdir()
    assert choose_format(tmp_path / "m.v2", None) == "savedmodel"
    with pytest.raises(
        UsageError, match=r"OUT m\.onxx: .*; name it m\.onnx\, or write m\.onxx/ for a folder"
    ):
        choose_format("m.onxx", "onnx")
    with pytest.raises(UsageError, match=r"OUT m\.onnx/: .*found \.onnx; leave out the slash, or the suffix"):
        choose_format("m.onnx/", None)


def test_keras_loads_its_suffix_in_lower_case_alone() -> None:
    with pytest.raises(UsageError, match=r"OUT m\.KERAS: .*found \.KERAS; name it m\.keras"):
        choose_format("m.KERAS", None)


def test_every_module_of_a_format_is_in_a_row() -> None:
    for folder, shared in SHARED.items():
        modules = {path.stem for path in (PACKAGE / folder).glob("*.py")}
        assert modules == shared | {row.module for row in FORMATS.values()}, folder


def test_no_other_module_compares_the_names_of_formats() -> None:
    """What differs between formats is a field of their rows, or a function of their modules."""
    wrong = []
    for path, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.Compare) and re.search(r"\b(form|format)$", ast.unparse(node.left)):
                words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                wrong += [f"{path.stem}:{node.lineno}"] if words & FORMATS.keys() else []
    assert not wrong


def test_a_plan_reads_what_a_format_holds_alone() -> None:
    """`has_layers` and `is_keras3` are read from these two fields."""
    read = {
        node.attr
        for path, tree in trees().items()
        if path.parts[0] == "plan"
        for node in nodes(tree)
        if isinstance(node, ast.Attribute)
        and re.fullmatch(r"(?:\w+\.)?form|FORMATS\[.+\]", ast.unparse(node.value))
    }
    assert read == {"content", "keeps", "has_layers", "is_keras3"}
    assert [name for name, form in FORMATS.items() if form.is_keras3] == ["keras"]


MODE = re.compile("|".join(sorted((mode.value for mode in Mode), key=len, reverse=True)))
#: How code names a mode, in any of its forms.
NAMED = re.compile(rf"Mode\.(?:LSTM|GRU|RNN_)|[\"'(|](?:{MODE.pattern})[\"')|]")
PAGE = (ROOT / "docs" / "adding-a-mode.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w/]+\.py)` \| (`.*`) \|", re.MULTILINE)


def sources(file: str) -> dict[str, str]:
    """The text of each definition and constant of a module, by name."""
    text = (PACKAGE / file).read_text(encoding="utf-8")
    texts = {}
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                texts[name] = ast.get_source_segment(text, node) or ""
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                texts[name] = ast.get_source_segment(text, node) or ""
    return texts


def test_every_place_of_a_mode_is_there() -> None:
    first, second = (PAGE.split("\n## ")[number] for number in (1, 2))
    for part, needed in ((first, len(Mode)), (second, 1)):
        rows = ROW.findall(part)
        assert rows
        for file, names in rows:
            texts = sources(file)
            for name in re.findall(r"`(\w+)`", names):
                text = texts[name].replace("_PLAIN", texts.get("_PLAIN", "_PLAIN")).lower()
                assert len(set(MODE.findall(text))) >= needed, f"{file}: {name}"


def test_no_module_that_mentions_a_mode_is_missing_on_the_page() -> None:
    modules = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if NAMED.search(re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    }
    assert modules == {name for name in re.findall(r"`([\w/]+\.py)`", PAGE) if "tests/" not in name}
