"""What a conversion or a verification did: one value, the same for the library and for `--json`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from cudnn_convert.model import CanonicalEvidence, Recurrence


@dataclass(frozen=True, slots=True)
class RecurrenceReport:
    """One cuDNN node: its sizes, and which copy of its weights was taken (`canonical` or `raw`)."""

    node: str
    op: str
    mode: str
    layers: int
    directions: int
    units: int
    input_size: int
    dtype: str
    weights: str


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output over all feeds: the worst difference, the share of the tolerance it used, and the bound."""

    output: str
    passed: bool
    compared: int
    worst: float
    needed: float
    atol: float
    rtol: float
    reason: str
    excused: int
    message: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The artifact against the float64 reference. `feeds` holds the shape of each input, a dict per feed."""

    passed: bool
    seed: int
    feeds: tuple[dict[str, tuple[int, ...]], ...]
    outputs: tuple[OutputReport, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> str:
        """The JSON object that `verify --json` gives."""
        return _json(self)


@dataclass(frozen=True, slots=True)
class Report:
    """A conversion. `inputs` and `outputs` map signature keys to tensors of the source.

    `out` is None where the source is portable already and nothing was written.
    """

    source: str
    kind: str
    format: str
    out: str | None
    inputs: dict[str, str]
    outputs: dict[str, str]
    recurrences: tuple[RecurrenceReport, ...]
    notes: tuple[str, ...]
    flags: tuple[str, ...]
    verification: Verification | None

    def to_json(self) -> str:
        """The report as the JSON object that `--json` and `--report` give."""
        return _json(self)


def _json(value: Any) -> str:
    return json.dumps(_finite(asdict(value)), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no word for an infinite difference, such as that of a missing output: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def of_recurrence(recurrence: Recurrence) -> RecurrenceReport:
    """The report's line for one recurrence."""
    sizes = recurrence.sizes
    return RecurrenceReport(
        node=recurrence.node,
        op=recurrence.op,
        mode=sizes.mode.value,
        layers=sizes.layers,
        directions=sizes.directions,
        units=sizes.units,
        input_size=sizes.input_size,
        dtype=recurrence.dtype.name,
        weights="canonical" if isinstance(recurrence.evidence, CanonicalEvidence) else "raw",
    )


def provenance(report: Report, *, tensors: dict[str, dict[str, str]], options: dict[str, Any]) -> str:
    """What an artifact says of its own origin: enough to verify it again, nothing that changes by the day.

    `tensors` maps `inputs` and `outputs` to key -> tensor name in the artifact.
    """
    return json.dumps(
        {
            "cudnn_convert": options.pop("version"),
            "source": {"name": report.source.rpartition("/")[2], "kind": report.kind},
            "format": report.format,
            "inputs": report.inputs,
            "outputs": report.outputs,
            "tensors": tensors,
            "recurrences": [asdict(found) for found in report.recurrences],
            "notes": list(report.notes),
            "options": options,
        },
        indent=2,
    )
