"""Figures of the package's structure: what a newcomer has to follow.

    python scripts/measure_house.py

Prints a row for each figure, with its bound, which `tests/house/test_figures.py` asserts.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.package_modules import imported, module_name, nodes, trees  # noqa: E402

from cudnn_convert.formats import Format  # noqa: E402

#: Fields of Model and Plan that one kind of source has and another lacks.
VARIANTS: Final = frozenset({"architecture", "graph", "saved", "whole"})
#: Names that TensorFlow 1 gives to classes of two of its modules, which `compat` has both.
OF_TENSORFLOW: Final = frozenset({"CudnnGRU", "CudnnLSTM", "CudnnRNN", "CudnnRNNRelu", "CudnnRNNTanh"})


def measure_function(file: str, name: str) -> tuple[int, int]:
    """The lines of a function and its cyclomatic complexity: one more than its branches."""
    (function,) = (
        node for node in trees()[Path(file)].body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    branches = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.And, ast.Or)
    count = sum(isinstance(node, branches) for node in ast.walk(function))
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1, 1 + count


def list_variant_questions() -> list[str]:
    """Comparisons of a field of a model or plan with None, but for asserts."""
    found = []
    for path, tree in trees().items():
        asserted = {
            id(node)
            for statement in nodes(tree)
            if isinstance(statement, ast.Assert)
            for node in ast.walk(statement)
        }
        for node in nodes(tree):
            if isinstance(node, ast.Compare) and id(node) not in asserted and _asks_variant(node):
                found.append(f"{path}:{node.lineno}")
    return found


def _asks_variant(node: ast.Compare) -> bool:
    left, right = node.left, node.comparators[0]
    if not isinstance(left, ast.Attribute) or left.attr not in VARIANTS:
        return False
    owner = ast.unparse(left.value).rpartition(".")[2]
    is_none = isinstance(right, ast.Constant) and right.value is None
    return is_none and (owner.endswith("model") or owner in ("plan", "source", "self"))


def list_questions_after_singles() -> list[str]:
    """Conditions that ask whether a plan has single recurrences."""
    found = []
    for path, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
                parts = [part.operand if isinstance(part, ast.UnaryOp) else part for part in parts]
                if any(isinstance(part, ast.Attribute) and part.attr == "singles" for part in parts):
                    found.append(f"{path}:{node.lineno}")
    return found


def list_repeated_classes() -> dict[str, list[str]]:
    """Class names that several modules define with different meanings, and the modules."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name.strip("_")].add(str(path))
    return {
        name: sorted(paths)
        for name, paths in sorted(modules.items())
        if len(paths) > 1 and name not in OF_TENSORFLOW
    }


def list_untested_modules() -> list[str]:
    """Modules without a test file of their name at their place."""
    return [
        str(path)
        for path in trees()
        if path.name not in ("__init__.py", "__main__.py")
        and not (ROOT / "tests" / path.parent / f"test_{path.name}").is_file()
    ]


def find_circle() -> list[str]:
    """A circle of modules that import each other, in functions too; empty if there is none."""
    modules = {module_name(path): tree for path, tree in trees().items()}
    graph = {name: {*imported(tree, modules)} - {name} for name, tree in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def list_format_fields() -> tuple[list[str], list[str]]:
    """The fields of a format's row, and those of them that are booleans."""
    names = [field.name for field in fields(Format)]
    return names, [field.name for field in fields(Format) if field.type in ("bool", bool)]


def figures() -> Iterator[tuple[str, int, int]]:
    """Each figure: what it counts, its value, its bound."""
    lines, complexity = measure_function("plan/make.py", "make_plan")
    yield "lines of make_plan", lines, 25
    yield "complexity of make_plan", complexity, 10
    yield "questions after None-variants of Model and Plan", len(list_variant_questions()), 10
    yield "questions after singles", len(list_questions_after_singles()), 5
    names, booleans = list_format_fields()
    yield "fields of Format", len(names), 13
    yield "booleans of Format", len(booleans), 2
    yield "modules in a circle", len(find_circle()), 0
    yield "class names with several meanings", len(list_repeated_classes()), 8
    yield "modules without a test file of their name", len(list_untested_modules()), 20


def main() -> int:
    """Print the figures."""
    rows = [*figures()]
    for words, value, most in rows:
        print(f"{value:5}  at most {most:3}  {words}")
    return int(any(value > most for _, value, most in rows))


if __name__ == "__main__":
    sys.exit(main())
