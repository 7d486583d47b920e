"""The architecture as its imports: rooms look up, never down."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from samples import ROOT

PACKAGE = ROOT / "cudnn_convert"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

#: Each room, and the rooms that it may import from, its own always among them.
ALLOWED = {
    "visible": "",
    "errors": "visible",
    "quiet": "",
    "reference": "",
    "formats": "",
    "limits": "errors",
    "progress": "",
    "model": "errors",
    "matrices": "",
    "layouts": "errors model matrices",
    "opaque": "errors model",
    "report": "errors model",
    "layers": "errors model opaque",
    "graph": "errors model matrices layouts opaque layers",
    "keras": "errors model layouts opaque graph",
    "npz": "limits model",
    "weights": "model graph npz",
    "read": "errors limits model matrices layouts opaque layers keras",
    "specs": "errors model graph",
    "notes": "errors model graph specs layers",
    "states": "errors model graph specs",
    "plan": "errors model layouts opaque graph specs states notes",
    "lower": "errors model matrices layouts opaque layers graph version",
    "write": "errors progress model formats layouts layers graph keras weights",
    "verification": "errors progress model formats layers npz weights reference report graph keras plan "
    "write.place write.saved_model write.keras_archive write.keras_hdf5 write.tflite "
    "read.assets read.hdf5 read.keras_archive read.meta_graph write.frozen_graph",
    "lineage": "errors model layers layouts opaque report graph plan weights read.hdf5 read.keras_archive",
    "page": "visible errors model report write.place",
    "testing": "errors model formats report quiet keras verification page",
    "options": "errors formats limits",
    "gate": "errors report options",
    "targets": "errors model formats report graph keras weights options gate plan lower write",
    "planning": "errors progress model formats graph keras plan options read",
    "inspection": "errors model formats layouts opaque quiet keras read graph plan planning options targets",
    "pipeline": "errors progress notes model matrices formats report quiet keras read graph plan planning "
    "write verification options gate specs targets lineage weights version",
    "torch": "errors model graph plan lower options pipeline",
    "tables": "visible errors model formats report",
    "cli": "visible errors progress formats limits options report inspection pipeline tables page version "
    "write.place write.holder",
    "__main__": "cli",
    "__init__": "errors report options inspection weights pipeline",
}


#: What the command line loads before anything else, and what such a module may not import.
FIRST = """
__init__ __main__ cli cli.commands cli.flags errors formats inspection inspection.value model reference
report tables visible
""".split()
HEAVY = {"tensorflow", "onnx", "onnxruntime", "tf2onnx", "keras", "tf_keras", "h5py", "google"}


@cache
def parsed(module: str) -> ast.Module:
    """The syntax tree of a module, read once."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(node: ast.AST) -> list[str]:
    """The full names that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def imported(module: str) -> Iterator[str]:
    """The modules of the package that a module imports anywhere, by name without the package."""
    for node in ast.walk(parsed(module)):
        for name in imports(node):
            package, _, rest = name.partition(".")
            if package == "cudnn_convert":
                yield "version" if rest == "__version__" else _module(rest)


def _module(name: str) -> str:
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def room(module: str) -> str:
    return module.partition(".")[0]


def test_every_room_has_a_rule() -> None:
    assert {room(module) for module in MODULES} == set(ALLOWED)


def test_rooms_look_up() -> None:
    for module in MODULES:
        allowed = {room(module), *ALLOWED[room(module)].split()}
        refused = {name for name in imported(module) if not {name, room(name)} & allowed}
        assert not refused, f"{module} may not import {sorted(refused)}"


def test_the_rules_themselves_have_no_cycle() -> None:
    order = list(ALLOWED)
    for name, allowed in ALLOWED.items():
        below = [other for other in map(room, allowed.split()) if other in order]
        assert all(order.index(other) < order.index(name) for other in below), name


def test_only_the_command_line_talks() -> None:
    for module in MODULES:
        calls = {
            node.func.id
            for node in ast.walk(parsed(module))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert room(module) in ("cli", "tables") or not calls & {"print", "exit", "quit"}, module


def test_what_the_command_line_loads_first_is_light() -> None:
    for module in FIRST:
        names = {name.partition(".")[0] for node in parsed(module).body for name in imports(node)}
        assert not names & HEAVY, module
