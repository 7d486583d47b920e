"""`--rename OLD=NEW`: other keys for variables, in a checkpoint and in its graph alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from cudnn_convert.errors import UsageError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import reference, split
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.graph.variables import checkpoint_key

#: tensorflow v1.15.0 python/framework/ops.py _VALID_OP_NAME_REGEX: a variable is an op.
_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def keys(names: Iterable[str], settings: Sequence[str]) -> dict[str, str]:
    """Each of `names` and its new one; OLD is a name, or what comes before a `/` of one, NEW "" to drop it.

    Settings apply one after the other. Raises UsageError where OLD is nowhere or two names become one.
    """
    found = {name: name for name in names}
    for setting in settings:
        old, equals, new = setting.partition("=")
        old, new = old.strip("/"), new.strip("/")
        if not equals or not old:
            raise UsageError(f"--rename: expected OLD=NEW, found {setting!r}")
        moved = {name: _moved(now, old, new) for name, now in found.items()}
        if not any(_inside(now, old) for now in found.values()):
            what = f"expected OLD to be a key or a scope, found no {old} among {_some(found)}"
            raise UsageError(f"--rename: {what}")
        found = moved
    by_new: dict[str, str] = {}
    for name, now in found.items():
        if not _NAME.fullmatch(now):
            raise UsageError(f"--rename: expected the name of a variable for {name}, found {now!r}")
        if now in by_new:
            raise UsageError(f"--rename: expected keys that differ, found {now} for {by_new[now]} and {name}")
        by_new[now] = name
    return found


def _inside(name: str, old: str) -> bool:
    return name == old or name.startswith(f"{old}/")


def _moved(name: str, old: str, new: str) -> str:
    return f"{new}{name.removeprefix(old)}".strip("/") if _inside(name, old) else name


def _some(found: Mapping[str, str]) -> str:
    names = sorted(found.values())
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def variables(graph: Any, renamed: Mapping[str, str], *, outputs: Collection[str]) -> Any:
    """A copy of `graph` whose variables have the keys that `renamed` gives for theirs, as their op names too.

    A variable that is one of the tensors `outputs` stays there under its old name too. Raises UsageError
    where another op has the new name.
    """
    found = {node.name: renamed[checkpoint_key(node)] for node in variable_ops(graph)}
    ops = {node.name: found[node.name] for node in variable_ops(graph) if node.name == checkpoint_key(node)}
    ops = {old: new for old, new in ops.items() if old != new}
    held = {old for old in ops if f"{old}:0" in outputs}
    taken = {node.name for node in graph.node} - set(ops) | held
    for old, new in ops.items():
        if new in taken:
            raise UsageError(f"--rename: expected a free name for {old}, found {new}, an op of the graph")
    nodes = []
    for node in build.placed(graph).node:
        old = node.name
        node.name = ops.get(old, old)
        for place, name in enumerate(node.input):
            node.input[place] = _reference(name, ops)
        if old in found and node.attr["shared_name"].s:
            node.attr["shared_name"].s = found[old].encode()
        nodes.append(node)
        if old in held:
            nodes.append(build.identity(old, node.name, node.attr["dtype"].type))
    return build.with_nodes(graph, nodes)


def _reference(name: str, changed: Mapping[str, str]) -> str:
    op, k = split(name)
    if op not in changed:
        return name
    return f"^{changed[op]}" if k < 0 else reference(f"{changed[op]}:{k}")
