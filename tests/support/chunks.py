"""A sequence in chunks through an artifact, in a process that knows what a user knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from support import user_processes

CHUNKS = [3, 1, 4]


def planned(source: Path, form: str, **flags: Any) -> Plan:
    options = Options(format=form, states=True, **flags)
    return make_plan(read_source(source, options, tag=None), options)


def job_of(plan: Plan, out: Path, form: str, rows: int) -> dict[str, Any]:
    """What a user knows: the artifact's own record, and where the steps lie."""
    _, _, recorded = runners.identify(out)
    streaming = plan.streaming
    assert recorded is not None
    assert streaming is not None
    shapes = {state.key: (state.depth, state.width) for state in streaming.states}
    states = [
        each | dict(zip(("depth", "width"), shapes[each["key"]], strict=True)) for each in recorded["states"]
    ]
    parts = {part.name.replace("serving_default", "model"): part.signature for part in plan.all_parts}
    return {
        "format": form,
        "artifact": str(out),
        "steps": dict(streaming.inputs),
        "outputs": dict(streaming.outputs),
        "states": states,
        "rows": rows,
        "chunks": CHUNKS,
        "tensors": {name: [dict(each.inputs), dict(each.outputs)] for name, each in parts.items()},
    }


def chunked(plan: Plan, out: Path, form: str, feeds: dict[str, Any], folder: Path, *, rows: int) -> Any:
    """The answers of a user's process."""
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job_of(plan, out, form, rows)))
    np.savez(folder / "feeds.npz", **feeds)
    process = user_processes.user(tensorflow=form != "onnx")
    [error] = process.ask([{"module": "stream_user", "call": "run", "folder": str(folder)}])
    assert not error, f"{error}\n{process.printed()}"
    return np.load(folder / "answers.npz")
