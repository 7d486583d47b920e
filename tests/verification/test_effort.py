"""The table of the proof's numbers: it has them all, and none that nothing reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cudnn_convert.verification import effort

ROOM = Path(effort.__file__).parent
TABLE = Path(effort.__file__)
MODULES = {
    ".".join(path.relative_to(ROOM).with_suffix("").parts): path
    for path in sorted(ROOM.rglob("*.py"))
    if path != TABLE
}

#: Numbers that say how something is laid out, and stay beside the code that knows it.
ELSEWHERE = {
    "channels_first.IMAGE": "which input is an image, by op",
    "channels_first.ROWS": "which inputs have a size for each axis, by op",
    "compare._FIRST_BIN": "the edges of a plot, which no verdict reads",
    "compare._BIN_WIDTH": "the edges of a plot, which no verdict reads",
    "compare._BINS": "the edges of a plot, which no verdict reads",
    "compare._MOST_STEPS": "the points of a plot, which no verdict reads",
    "trials._TURNS": "how often each feed is run, for the progress that is shown",
    "newer_kernels._LAST_OF_TF1": "a version of TensorFlow's graphs",
    "recordings.VERSION": "the version of a file",
    "ops.ask._ANSWERS": "how many tensors a recurrence gives",
    "ops.source._READ": "how many inputs carry values, by op",
    "ops.values._TIES": "the values of a style",
    "ops.values._WIDE": "the values of a style",
    "ops.values._SINGLE": "how many of the values above fit in 32 bits",
    "pieces.carve._STATES": "how many inputs of an op come before its lengths",
    "pieces.onnx._WEIGHTS": "the places of inputs",
    "pieces.tflite._STATES": "the places of inputs",
}


def is_numbers(node: ast.expr | None) -> bool:
    """Whether an expression is a number, or a tuple or table of numbers."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return not isinstance(value, bool)
        case ast.UnaryOp(operand=inner):
            return is_numbers(inner)
        case ast.BinOp(left=left, right=right):
            return is_numbers(left) and is_numbers(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            return bool(parts) and all(map(is_numbers, parts))
    return False


def numbers_of(path: Path) -> Iterator[str]:
    """The names that a module binds to numbers."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and is_numbers(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_no_other_module_of_the_proof_binds_such_numbers() -> None:
    found = {f"{module}.{name}" for module, path in MODULES.items() for name in numbers_of(path)}
    assert found == {*ELSEWHERE}


def test_the_table_imports_nothing_of_the_package() -> None:
    assert "cudnn_convert" not in TABLE.read_text(encoding="utf-8")


def test_each_number_has_a_reason_and_a_reader() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    read = {
        name
        for path in (TABLE, *MODULES.values())
        for name in re.findall(r"\beffort\.([A-Z0-9_]+)|\*\*([A-Z_]+)", path.read_text(encoding="utf-8"))
        for name in name
    }
    names = {node: line for line in range(len(lines)) if (node := lines[line].partition(":")[0]).isupper()}
    assert len(names) > 70
    for name, line in names.items():
        assert lines[line - 1].startswith("#: ") and name in read, name
