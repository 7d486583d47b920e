"""What a message says is a value too: no code reads a message, and no string has flags that a value has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from support.flag_messages import pieces
from support.package_modules import nodes, trees

from cudnn_convert.options import READING, Options, flag_of

#: Where a text of another library is read, which gives no value.
FOREIGN: Final = {
    "process.py": "what the system says where memory is short",
    "text.py": "any: its first line",
    "lower/onnx/tf2onnx_private.py": "tf2onnx",
    "private/keras_private.py": "Keras",
    "targets/bundle.py": "TensorFlow",
    "targets/tflite.py": "TensorFlow Lite",
    "targets/weights.py": "safetensors",
    "verification/ops/regions.py": "TensorFlow: the node that refuses a value",
}
#: Flags with values in strings: no remedies, for nobody but a user can apply them.
WRITTEN_OUT: Final = {
    "artifacts/runners.py": "a call that is wrong",
    "graph/passes/subgraphs.py": "a call that is wrong",
    "inspection/inspect.py": "other commands",
    "options.py": "a call that is wrong",
    "plan/decoding.py": "a call repeated",
    "plan/fix_sizes.py": "a call that is wrong",
    "plan/from_graph.py": "a call repeated",
    "plan/moving_averages.py": "a note",
    "plan/notes.py": "notes",
    "plan/obstacles.py": "a value that only the user knows, and a call that is wrong",
    "plan/requests.py": "a note",
    "plan/statistics.py": "a note",
    "read/dialects/contrib.py": "a note",
    "read/dialects/regions.py": "what no option mends, for it is found while reading",
    "recurrences/graphless.py": "a number of units in the place of those that fit",
    "recurrences/parameter_source.py": "a value that only the user knows",
}
_TAKES_APART: Final = frozenset(
    "startswith endswith partition rpartition split splitlines find index removeprefix removesuffix".split()
)
_MATCHES: Final = frozenset("search match fullmatch findall finditer".split())
_CAUGHT: Final = frozenset({"error", "cause", "refusal", "exception"})


def is_message(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="reason" | "message") | ast.Attribute(attr="reason" | "reasons" | "message"):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in _CAUGHT or name == "reason"
        case ast.Subscript(value=ast.Attribute(attr="args" | "reasons")):
            return True
        case ast.NamedExpr(value=value):
            return is_message(value)
    return False


def reads(tree: ast.AST) -> Iterator[str]:
    """The expressions that look into a message, or compare it."""
    for node in nodes(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=[*values]) if any(
                isinstance(op, ast.In | ast.NotIn | ast.Eq | ast.NotEq) for op in ops
            ) and any(map(is_message, [left, *values])):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments) if (
                name in _TAKES_APART and is_message(value)
            ) or (name in _MATCHES and any(map(is_message, arguments))):
                yield ast.unparse(node)


def test_no_code_reads_a_message() -> None:
    found = {path.as_posix(): lines for path, tree in trees().items() if (lines := [*reads(tree)])}
    assert not {name: read for name, read in found.items() if name not in FOREIGN}
    assert found.keys() == FOREIGN.keys(), "no text is read there any more"


def test_reading_is_seen() -> None:
    for line in (
        "'--set' in str(error)",
        "'half' in reason",
        "reason.startswith('a')",
        "error.reasons[0].partition(';')",
        "pattern.findall(reason)",
        "report.message == 'x'",
    ):
        assert [*reads(ast.parse(line))] == [line]
    assert not [*reads(ast.parse("reason.remedies == () and [reason for reason in reasons if reason]"))]


def test_flags_with_values_are_of_remedies() -> None:
    """A refusal's flags are written by its remedies, so that none of them lacks its value for a program."""
    known = {
        str(choice)
        for name in READING
        for choice in Options.__dataclass_fields__[name].metadata.get("choices", ())
    }
    flag = re.compile(rf"(?:{'|'.join(map(flag_of, READING))})[ =]([^\s,;:]+)")
    written = {
        piece.file
        for piece in pieces()
        if not piece.is_remedy and not piece.is_place
        for value in flag.findall(piece.text)
        if "{" in value or value.isdigit() or value in known or value.endswith("TENSOR")
    }
    assert written == {*WRITTEN_OUT}, written ^ {*WRITTEN_OUT}
