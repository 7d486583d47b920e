"""The architecture as its imports: rooms look up, never down."""

from __future__ import annotations

import ast
import re

from support.package_modules import PACKAGE, imported, imports, module_name, nodes, trees
from support.samples import ROOT

#: The syntax tree of each module by its name in the package.
MODULES = {module_name(path): tree for path, tree in trees().items()}

#: The rooms inside rooms, and the modules that are rooms by themselves, each with a rule of its own.
SUBROOMS = (
    *("graph.passes", "keras.config", "read.arrays", "read.dialects", "read.tensorbundle"),
    *("lower.tensorflow", "lower.onnx", "storage.staging"),
    *("verification.pieces", "verification.ops", "verification.check"),
)

#: Each room, from the lowest up, and the rooms that it may import from, its own always among them.
ALLOWED = {
    "version": "",
    "text": "",
    "errors": "text",
    "reference": "",
    "decode": "",
    "private": "",
    "formats": "",
    "context": "errors private",
    "storage": "text errors",
    "process": "errors context storage",
    "apart": "text process",
    "workers": "errors context process",
    "model": "errors",
    "values": "model",
    "casts": "errors model",
    "requirements": "version errors",
    "options": "text errors requirements formats context",
    "weights": "errors model context",
    "calls": "errors context process options",
    "report": "version text errors model values storage",
    "graph": "text errors private model",
    "graph.passes": "text errors private model values graph",
    "keras_cells": "private",
    "recurrences": "text errors private keras_cells model weights graph graph.passes",
    "keras.config": "errors model graph.ops",
    "keras": "text errors private model weights graph recurrences keras.config",
    "read.tensorbundle": "errors model weights",
    "read.dialects": "errors model weights read.tensorbundle",
    "read.arrays": "text errors context model weights read.dialects",
    "read": "text errors private context model graph.index graph.ops keras.config read.tensorbundle "
    "read.dialects read.arrays",
    "lower.tensorflow": "errors private model weights graph graph.passes recurrences",
    "compat": "private model weights lower.tensorflow",
    "lower": "text errors private decode model values weights graph graph.passes recurrences "
    "lower.tensorflow",
    "lower.onnx": "version text errors model values weights graph graph.passes recurrences "
    "lower.block_lstm lower.search lower.missing_ops lower.tensor_lists",
    "plan": "text errors private formats context model values options weights graph graph.passes "
    "recurrences keras keras.config read",
    "artifacts": "text errors private formats context storage apart model casts report.values "
    "graph recurrences keras keras.config read",
    "storage.staging": "errors formats context storage options read artifacts",
    "feeds": "text errors private context storage model casts options weights read.tensorbundle "
    "storage.staging",
    "targets": "text errors private formats context model values options weights report graph "
    "graph.passes recurrences keras keras.config lower lower.tensorflow lower.onnx plan artifacts.tflite "
    "artifacts.micro_operators",
    "verification": "text errors private formats context model values casts options weights reference "
    "report graph graph.passes recurrences plan artifacts storage.staging feeds",
    "verification.pieces": "text errors private formats model weights reference report graph graph.passes "
    "recurrences plan artifacts verification",
    "verification.ops": "text errors apart private formats model weights reference report graph "
    "graph.passes recurrences plan artifacts verification verification.pieces",
    "verification.check": "errors context formats model options plan report artifacts verification "
    "verification.pieces verification.ops",
    "weight_map": "model weights report graph plan artifacts",
    "testing": "text errors private formats context model weights report keras.config artifacts verification",
    "inspection": "errors formats context model options weights graph graph.passes recurrences keras "
    "keras.config read read.dialects read.tensorbundle plan targets storage.staging",
    "pipeline": "version text errors formats context storage model options weights report recurrences "
    "read plan targets artifacts storage.staging feeds verification verification.check weight_map",
    "torch": "errors model options calls recurrences lower plan pipeline",
    "batch": "version text errors formats context storage process workers options report read "
    "storage.staging pipeline",
    "benchmark": "text errors private formats context storage process workers model casts options weights "
    "report feeds plan artifacts pipeline",
    "cli": "version text errors formats context storage process model options report artifacts inspection "
    "pipeline batch benchmark",
    "__main__": "cli",
    "__init__": "version errors context options calls report artifacts recurrences inspection pipeline "
    "benchmark",
}

#: Each part of the package, what it does, and its rooms.
PARTS = {
    "core": (
        "reads a model, plans, and writes the artifact",
        "version text errors private formats context storage storage.staging process apart model values "
        "casts requirements options weights report graph graph.passes keras_cells recurrences "
        "keras.config keras "
        "read.tensorbundle read.dialects read.arrays read lower.tensorflow lower lower.onnx plan targets",
    ),
    "proof": (
        "runs the artifact and compares it with the source",
        "reference artifacts feeds verification verification.pieces verification.ops verification.check "
        "weight_map",
    ),
    "products": (
        "what users call, on top of both",
        "inspection pipeline calls __init__ torch testing decode compat workers batch benchmark cli __main__",
    ),
}
#: The product that a room of the core builds into artifacts.
BUILT_IN = {"lower": {"decode"}}

#: The page that shows the tables of rooms, and the lines around them.
PAGE = ROOT / "docs" / "imports.md"
IMPORTS = "<!-- imports -->\n{}<!-- /imports -->"
PARTS_TABLE = "<!-- parts -->\n{}<!-- /parts -->"

#: What the command line loads before anything else, and what such a module may not import.
FIRST = """
__init__ __main__ cli cli.commands errors formats inspection model reference
report version
""".split()
HEAVY = {"tensorflow", "onnx", "onnxruntime", "tf2onnx", "keras", "tf_keras", "h5py", "google"}


def room(module: str) -> str:
    """The room of a module: a folder of the package, or a module at its top."""
    inner = ".".join(module.split(".")[:2])
    return inner if inner in SUBROOMS else module.partition(".")[0]


def import_table() -> str:
    """The rules of import as a table of Markdown, a row for each room."""
    rows = ["| room | may import |", "| --- | --- |"]
    rows += [f"| `{name}` | {_listed(allowed) or 'nothing'} |" for name, allowed in ALLOWED.items()]
    return "\n".join(rows) + "\n"


def parts_table() -> str:
    """The parts of the package as a table of Markdown, a row for each."""
    rows = ["| part | what it does | rooms |", "| --- | --- | --- |"]
    rows += [f"| {part} | {does} | {_listed(rooms)} |" for part, (does, rooms) in PARTS.items()]
    return "\n".join(rows) + "\n"


def _listed(rooms: str) -> str:
    return ", ".join(f"`{name}`" for name in rooms.split())


def test_the_page_of_imports_has_the_rules() -> None:
    """Where they differ, the failure shows the lines to paste."""
    for table in (IMPORTS.format(import_table()), PARTS_TABLE.format(parts_table())):
        assert table in PAGE.read_text(encoding="utf-8"), f"{PAGE.name}: expected these lines:\n{table}"


def test_every_room_has_a_rule_and_a_part() -> None:
    assert {room(module) for module in MODULES} == set(ALLOWED)
    assert sorted(ALLOWED) == sorted(name for _, rooms in PARTS.values() for name in rooms.split())


def test_core_and_proof_import_no_product() -> None:
    products = {*PARTS["products"][1].split()}
    for part in ("core", "proof"):
        for name in PARTS[part][1].split():
            above = {room(other) for other in ALLOWED[name].split()}
            assert above & products == BUILT_IN.get(name, set()), name


def test_rooms_look_up() -> None:
    for module, tree in MODULES.items():
        allowed = {room(module), *ALLOWED[room(module)].split()}
        refused = {name for name in imported(tree, MODULES) if not {name, room(name)} & allowed}
        assert not refused, f"{module} may not import {sorted(refused)}"


def test_each_room_imports_from_rooms_before_it() -> None:
    order = list(ALLOWED)
    for name, allowed in ALLOWED.items():
        assert all(order.index(room(other)) < order.index(name) for other in allowed.split()), name


def test_only_the_command_line_talks() -> None:
    for module, tree in MODULES.items():
        calls = {
            node.func.id
            for node in nodes(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert room(module) == "cli" or not calls & {"print", "exit", "quit"}, module


def test_what_the_command_line_loads_first_is_light() -> None:
    for module in FIRST:
        names = {name.partition(".")[0] for node in MODULES[module].body for name in imports(node)}
        assert not names & HEAVY, module


def test_front_doors_list_their_modules_and_what_they_may_import() -> None:
    for name, allowed in ALLOWED.items():
        door = PACKAGE.joinpath(*name.split("."), "__init__.py")
        if name.startswith("__") or not door.is_file():
            continue
        text = " ".join((ast.get_docstring(ast.parse(door.read_text())) or "").split())
        modules = [path for path in door.parent.glob("*.py") if path != door]
        for path in [*modules, *door.parent.glob("*/__init__.py")]:
            module = path.stem if path in modules else path.parent.name
            first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
            assert re.search(rf"\* {module} *: {re.escape(first)}", text), f"{name}: {module}"
        assert f"May import: {', '.join(allowed.split()) or 'nothing'}." in text, name
