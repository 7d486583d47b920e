"""The package's modules as syntax trees, and the imports among them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "cudnn_convert"


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of each module by its path in the package, read once."""
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree in the order of `ast.walk`, listed once."""
    return tuple(ast.walk(tree))


def module_name(path: Path) -> str:
    """The dotted name of a module in the package; that of a folder for its `__init__.py`."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imports(node: ast.AST) -> list[str]:
    """The full names that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def imported(tree: ast.Module, modules: Container[str]) -> Iterator[str]:
    """The modules of the package that a tree imports anywhere, in functions too."""
    for node in nodes(tree):
        for name in imports(node):
            package, _, rest = name.partition(".")
            while rest and rest not in modules:
                rest = rest.rpartition(".")[0]
            if package == PACKAGE.name and rest:
                yield rest
