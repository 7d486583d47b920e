"""Provenance in an artifact: the origin as JSON, enough to repeat the verification."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from cudnn_convert.report.values import Conversion


def with_pieces(text: str, pieces: Sequence[dict[str, Any]]) -> str:
    """Add the places of layers in the artifact to a provenance.

    A place is a `piece`, with `node` and `layer`.
    """
    return json.dumps(json.loads(text) | {"pieces": [*pieces]}, indent=2) if pieces else text


def make_provenance(
    report: Conversion,
    *,
    tensors: dict[str, dict[str, str]],
    options: dict[str, Any],
    begins: Mapping[str, str] = MappingProxyType({}),
    encoded: Sequence[str] = (),
) -> str:
    """Return an artifact's origin as JSON, enough to repeat the verification.

    It has neither date, verdict nor folders. `tensors` maps `inputs` and `outputs` to key -> tensor name in
    the artifact. `begins` are inputs of the source that states took the place of, `encoded` the keys of
    inputs that are the same at all steps.
    """
    streaming = {"states": [asdict(state) for state in report.states], "begins": dict(begins)}
    streaming |= {"encoded": [*encoded]} if encoded else {}
    digests = {"sha256": report.origin.files} if report.origin else {}
    versions = {"versions": report.origin.versions} if report.origin else {}
    return json.dumps(
        {
            "cudnn_convert": options["version"],
            **versions,
            "source": {"name": PurePath(report.source).name, "kind": report.kind, **digests},
            "format": report.format,
            "inputs": report.inputs,
            "outputs": report.outputs,
            "tensors": tensors,
            **({"axes": report.axes} if report.axes else {}),
            "recurrences": [asdict(recurrence) for recurrence in report.recurrences],
            **(streaming if report.states else {}),
            "notes": list(report.notes),
            "options": {name: value for name, value in options.items() if name != "version"},
        },
        indent=2,
    )
