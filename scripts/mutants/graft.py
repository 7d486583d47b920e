"""Puts a mutant into this process, where its module and all that use it are loaded already."""

from __future__ import annotations
import __future__

import ast
import gc
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from sites import Mutant

#: Objects that Python shares between unrelated places: finding one says nothing of where it came from.
_SHARED = (int, float, str, bytes, bool, type(None))


def graft(mutant: Mutant, root: Path) -> None:
    """From now on the functions and tables of the mutant's module are the mutant's.

    A function keeps its identity and gets other code, so that whoever imported it by name runs it too. What
    a module assigns is computed again, and takes the old value's place wherever that went under its name.
    """
    path = root / mutant.path
    tree = mutant.tree(root)
    if mutant.scope is None:
        _assign_again(tree, mutant.line, path)
        return
    place = (mutant.scope.name, mutant.scope.first)
    codes = _codes(compile(tree, str(path), "exec", dont_inherit=True))
    made = next(code for code in codes if _place(code) == place)
    old = [found for found in functions() if _is_of(found, path) and _place(found.__code__) == place]
    if not old:
        raise LookupError(f"{mutant.name}: no such function is loaded")
    for function in old:
        function.__code__ = made


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for found in code.co_consts:
        if isinstance(found, CodeType):
            yield found
            yield from _codes(found)


@cache
def functions() -> list[FunctionType]:
    """All that are loaded. Looked for once, before any fork: looking at an object copies it to the child."""
    return [one for one in gc.get_objects() if isinstance(one, FunctionType)]


def _is_of(function: FunctionType, path: Path) -> bool:
    return function.__code__.co_filename == str(path)


def _assign_again(tree: ast.Module, line: int, path: Path) -> None:
    module = next(found for found in [*sys.modules.values()] if getattr(found, "__file__", "") == str(path))
    later = [
        one for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign) and one.end_lineno >= line
    ]
    code = compile(
        ast.Module(later, []), str(path), "exec", __future__.annotations.compiler_flag, dont_inherit=True
    )
    old = dict(vars(module))
    exec(code, vars(module))
    for name, value in old.items():
        if vars(module)[name] is not value:
            _spread(name, value, vars(module)[name])


def _spread(name: str, old: object, new: object) -> None:
    """Other modules that imported the value by name, and parameters whose default it is."""
    for module in [*sys.modules.values()]:
        if isinstance(module, ModuleType) and vars(module).get(name) is old:
            vars(module)[name] = new
    if isinstance(old, _SHARED):
        return
    for function in functions():
        defaults = function.__defaults__ or ()
        if any(value is old for value in defaults):
            function.__defaults__ = tuple(new if value is old else value for value in defaults)
        for key, value in (function.__kwdefaults__ or {}).items():
            if value is old:
                function.__kwdefaults__[key] = new
