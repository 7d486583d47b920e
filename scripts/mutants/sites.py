"""Every small change that the hunt makes to a module: found in its syntax tree, told in one line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from operators import GUARDS, variants

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Fields that no test can see: what raises says, what a type checker reads, how a function is wrapped, in
#: which order exceptions are caught together.
_UNSEEN = {ast.Raise: "exc cause", ast.arg: "annotation", ast.AnnAssign: "annotation"}
_UNSEEN |= {ast.FunctionDef: "returns decorator_list", ast.JoinedStr: "values", ast.Assert: "msg"}
_UNSEEN |= {ast.ExceptHandler: "type"}


@dataclass(frozen=True)
class Scope:
    """A function by what its code object says of itself, and its last line."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Mutant:
    """One change; `site` and `variant` number it within its module, `line` to `last` are its lines.

    `scope` is the outermost function around it, or None in what a module assigns to `table`.
    """

    path: Path
    line: int
    last: int
    scope: Scope | None
    table: str
    code: str
    change: str
    site: int
    variant: int

    @property
    def name(self) -> str:
        """One line for people, with nothing in it that moves when lines are added above."""
        return f"{self.path.as_posix()}: {self.code}: {self.change}"

    def tree(self, root: Path) -> ast.Module:
        """The changed module."""
        tree = ast.parse((root / self.path).read_text(encoding="utf-8"))
        site = next(found for k, found in enumerate(_sites(tree)) if k == self.site)
        site.replace([*variants(site.node)][self.variant][1])
        return ast.fix_missing_locations(tree)


def mutants(path: Path, root: Path) -> Iterator[Mutant]:
    """All mutants of the module at `root/path`, in the order of its lines."""
    source = (root / path).read_text(encoding="utf-8")
    lines = source.splitlines()
    for number, site in enumerate(_sites(ast.parse(source))):
        for variant, (change, _) in enumerate(variants(site.node)):
            line, last = site.node.lineno, site.node.end_lineno or site.node.lineno
            code, scope = lines[line - 1].strip(), _scope(site.scope)
            yield Mutant(path, line, last, scope, site.table, code, change, number, variant)


def _scope(function: ast.FunctionDef | None) -> Scope | None:
    if function is None:
        return None
    first = min([function.lineno, *(found.lineno for found in function.decorator_list)])
    return Scope(function.name, first, function.end_lineno or first)


@dataclass
class _Site:
    """A node, where it hangs, and the outermost function around it."""

    node: ast.expr | ast.stmt
    parent: ast.AST
    field: str
    place: int | None
    scope: ast.FunctionDef | None
    table: str

    def replace(self, node: ast.AST) -> None:
        ast.copy_location(node, self.node)
        if self.place is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.place] = node


def _sites(node: ast.AST, scope: ast.FunctionDef | None = None, table: str = "") -> Iterator[_Site]:
    """Whatever can be run again in place: functions, and what a module assigns; no body of a class."""
    if scope is None and isinstance(node, ast.Assign | ast.AnnAssign):
        table = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        if table == "__all__" or _is_alias(node.value):  # for readers, for type checkers
            return
    unseen = _UNSEEN.get(type(node), "").split()
    for name, value in ast.iter_fields(node):
        if name in unseen:
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_idle(child, node, scope):
                continue
            inside = child if scope is None and isinstance(child, Function) else scope
            if isinstance(child, ast.expr | ast.stmt) and not _is_looked_through(child, node):
                yield _Site(child, node, name, place, scope, table)
            yield from _sites(child, inside, table)


def _is_alias(value: ast.expr | None) -> bool:
    """Whether a module gives a type a name: `tuple[int, ...]`, `Sequence[str]`."""
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
        return False
    name = value.value.id
    return name[0].isupper() or name in ("tuple", "list", "dict", "set", "type")


def _is_looked_through(child: ast.AST, parent: ast.AST) -> bool:
    """Whether something is sought in a tuple, whose order then is no matter; its elements are."""
    seeks = isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.In | ast.NotIn)
    return seeks and isinstance(child, ast.Tuple | ast.List)


def _is_idle(child: ast.AST, parent: ast.AST, scope: ast.FunctionDef | None) -> bool:
    """Docstrings, imports, and what a class or a signature says outside its functions."""
    if isinstance(child, ast.Import | ast.ImportFrom | ast.Global):
        return True
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if isinstance(child, ast.keyword) and child.arg in GUARDS:
        return True
    if isinstance(parent, ast.UnaryOp) and isinstance(child, ast.Constant):  # to NumPy any -k is as -1
        return True
    outside = scope is None and not isinstance(child, Function)
    if isinstance(parent, ast.ClassDef) and outside:
        return True
    return isinstance(child, ast.arguments) and parent is scope
