"""What a node of a syntax tree may be changed into: the small mistakes that people make."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import singledispatch
from itertools import pairwise

#: (the change in words, what the node becomes).
Variant = tuple[str, ast.AST]
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


#: Arguments that change nothing but on another system, where the code is wrong already, or the time it takes.
GUARDS = ("encoding", "strict", "parallel_iterations")
#: Functions whose first two arguments may change places.
SYMMETRIC = ("maximum", "minimum", "max", "min", "equal", "not_equal", "array_equal", "logaddexp")


@singledispatch
def variants(node: ast.AST) -> Iterator[Variant]:
    """Each change of one node, itself left as it is; none for most kinds."""
    yield from ()


def _change(before: ast.AST, after: ast.AST) -> Variant:
    return f"{_text(before)} -> {_text(after)}", after


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _exchanged(elements: list[ast.expr], first: int) -> list[ast.expr]:
    """Two neighbours in each other's place."""
    return [*elements[:first], elements[first + 1], elements[first], *elements[first + 2 :]]


@variants.register
def _(node: ast.Compare) -> Iterator[Variant]:
    if len(node.ops) == 1:
        yield _change(node, _with(node, ops=[_COMPARISONS[type(node.ops[0])]()]))


@variants.register
def _(node: ast.BinOp) -> Iterator[Variant]:
    if type(node.op) in _ARITHMETIC:
        yield _change(node, _with(node, op=_ARITHMETIC[type(node.op)]()))


@variants.register
def _(node: ast.BoolOp) -> Iterator[Variant]:
    yield _change(node, _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()))


@variants.register
def _(node: ast.UnaryOp) -> Iterator[Variant]:
    yield _change(node, node.operand)


@variants.register
def _(node: ast.Constant) -> Iterator[Variant]:
    if isinstance(node.value, bool):
        yield _change(node, _with(node, value=not node.value))
    elif isinstance(node.value, int | float):
        yield _change(node, _with(node, value=node.value + 1))


@variants.register(ast.Tuple)
@variants.register(ast.List)
def _(node: ast.Tuple | ast.List) -> Iterator[Variant]:
    if isinstance(node.ctx, ast.Load):
        for k, (one, other) in enumerate(pairwise(map(_text, node.elts))):
            if one != other:
                told = f"{one}, {other} -> {other}, {one}"
                yield told, _with(node, elts=_exchanged(node.elts, k))


@variants.register
def _(node: ast.Attribute) -> Iterator[Variant]:
    if node.attr == "T":
        yield _change(node, node.value)


@variants.register
def _(node: ast.Slice) -> Iterator[Variant]:
    for end in ("lower", "upper"):
        if getattr(node, end) is not None:
            yield _change(node, _with(node, **{end: None}))


@variants.register
def _(node: ast.IfExp) -> Iterator[Variant]:
    yield _change(node, node.body)
    yield _change(node, node.orelse)


@variants.register
def _(node: ast.If) -> Iterator[Variant]:
    for value in (True, False):
        made = ast.copy_location(ast.Constant(value), node.test)
        yield f"{_text(node.test)} -> {value}", _with(node, test=made)


@variants.register(ast.Raise)
@variants.register(ast.AugAssign)
@variants.register(ast.Continue)
@variants.register(ast.Break)
def _(node: ast.stmt) -> Iterator[Variant]:
    yield _change(node, ast.Pass())


@variants.register
def _(node: ast.Expr) -> Iterator[Variant]:
    if isinstance(node.value, ast.Call):
        yield _change(node, ast.Pass())


@variants.register
def _(node: ast.Call) -> Iterator[Variant]:
    called = _text(node.func)
    first_two, symmetric = node.args[:2], called.rpartition(".")[2] in SYMMETRIC
    starred = any(isinstance(argument, ast.Starred) for argument in first_two)
    if len(first_two) == 2 and not starred and not symmetric:
        first, second = map(_text, first_two)
        if first != second:
            change = f"{called}({first}, {second}) -> {called}({second}, {first})"
            yield change, _with(node, args=_exchanged(node.args, 0))
    for k, keyword in enumerate(node.keywords):
        if keyword.arg in GUARDS:
            continue
        kept = node.keywords[:k] + node.keywords[k + 1 :]
        yield f"{called}({_text(keyword)}) -> {called}()", _with(node, keywords=kept)
