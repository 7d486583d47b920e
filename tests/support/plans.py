"""Plans of graphs by single flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, from_graph


def plan_graph(source: Model, *, constants: Sequence[str] = (), **flags: Any) -> Plan:
    """The plan of a source with a graph, for an artifact without a proof; `constants` is `--set`."""
    return from_graph.plan_graph(source, Options(set=constants, verify=False, **flags))
