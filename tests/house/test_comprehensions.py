"""Comprehensions read the names that they seem to read, in every Python that the package supports.

Python 3.12.0 to 3.12.3 run a comprehension within its function: a name that one of them binds is then unbound
in another that means the global one. Source: python/cpython#118513, mended in 3.12.4; #156664 for names of an
enclosing function, which is open.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import package_modules
from support.samples import ROOT

FOLDERS = ("cudnn_convert", "scripts", "tests", "models")
#: What has names to itself, as a comprehension has not.
SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.GeneratorExp | ast.ClassDef


@dataclass
class Names:
    """The names of a scope: its own, those its comprehensions bind, and those they read from outside."""

    own: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, scope: ast.AST) -> Names:
        names = cls()
        if isinstance(scope, ast.GeneratorExp):
            names.own |= targets(scope.generators)
        for child in ast.iter_child_nodes(scope):
            names.visit(child, None)
        return names

    def visit(self, node: ast.AST, within: frozenset[str] | None) -> None:
        """Note the names of a node; `within`: those bound by comprehensions around it, None without any."""
        match node:
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                inner = targets(node.generators)
                self.bound |= inner
                self.visit(node.generators[0].iter, within)  # which is evaluated before
                rest = [
                    child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.comprehension)
                ]
                rest += [part for each in node.generators for part in each.ifs]
                rest += [each.iter for each in node.generators[1:]]
                for part in rest:
                    self.visit(part, inner | (within or frozenset()))
                return
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.own.add(name)
                return
            case ast.Lambda() | ast.GeneratorExp():
                return
            case ast.Name(id=name, ctx=ast.Load()):
                if within is not None and name not in within:
                    self.read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                self.own.add(name)
            case ast.alias(name=name, asname=alias):
                self.own.add((alias or name).partition(".")[0])
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.own.add(name)
        for child in ast.iter_child_nodes(node):
            self.visit(child, within)


def targets(generators: Iterable[ast.comprehension]) -> frozenset[str]:
    """The names that a comprehension binds."""
    return frozenset(
        node.id for each in generators for node in ast.walk(each.target) if isinstance(node, ast.Name)
    )


def shadowed(tree: ast.Module) -> Iterator[str]:
    """The names that one comprehension binds and another of the same scope reads from outside of it."""
    for scope in package_modules.nodes(tree):
        if isinstance(scope, ast.Module | SCOPES):
            names = Names.of(scope)
            yield from (names.bound & names.read) - names.own


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = [ops for ops in x]; return {y for y in x if y in ops.CUDNN}", ["ops"]),
        ("a = {k: [op for op in ops] for k, ops in x}; return [ops for _ in x]", ["ops"]),
        ("a = [ops for ops in x]; return [y for y in ops]", []),  # evaluated before
        ("a = [ops for ops in x]; return any(y in ops for y in x)", []),  # a function to itself
        ("ops = 1; a = [ops for ops in x]; return [ops for _ in x]", []),  # the function's own
        ("a = [ops for ops in x]; return [ops for ops in x]", []),
    ],
)
def test_what_is_looked_for(body: str, expected: list[str]) -> None:
    assert [*shadowed(ast.parse(f"import ops\ndef f(x): {body}"))] == expected


def parsed(folder: str) -> Mapping[Path, ast.Module]:
    """The modules of a folder by their paths in it."""
    if folder == package_modules.PACKAGE.name:
        return package_modules.trees()
    files = sorted((ROOT / folder).rglob("*.py"))
    return {file.relative_to(ROOT / folder): ast.parse(file.read_text(encoding="utf-8")) for file in files}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.first("cudnn_convert")
def test_no_comprehension_takes_a_name_from_another(folder: str) -> None:
    faults = {path: names for path, tree in parsed(folder).items() if (names := [*shadowed(tree)])}
    assert not faults, "name the variable of one comprehension otherwise"
