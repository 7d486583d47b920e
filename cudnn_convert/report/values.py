"""Values of a report on a conversion, a comparison or a map."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cudnn_convert.values import Axis, Network, SearchRules


@dataclass(frozen=True, slots=True)
class TensorRegion:
    """The part of a tensor with given values.

    `part` is its slice in Python's notation, `axes` how cuDNN's matrix lies in it.

    `axes`: `as it is`, `transposed`, `reshaped` (value after value in the other shape), `summed` (both biases
    in one), or with what is added, such as `summed, 1 less`.
    """

    tensor: str
    part: str
    axes: str


@dataclass(frozen=True, slots=True)
class GateReport:
    """A gate's matrix or bias in a pseudo-layer, with `weights` as the field.

    `source` is where the source has it, `target` where the artifact does; None where no part of a tensor has
    those values, or where they are all alike, so that their place cannot be told. `doubt` says what is odd
    about the target beside those of the other weights: gates in another order, a transposed recurrent kernel.
    """

    layer: int
    direction: str
    gate: str
    weights: str
    source: TensorRegion | None
    target: TensorRegion | None
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class LayoutReport:
    """The order of the gates in the tensors of a side.

    `names` are the layouts of `layouts.LAYOUTS` that have this order.
    """

    gates: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableReport:
    """A variable or graph constant of the source outside all decoded recurrences.

    `role`: `needed` by the outputs, `not needed`, or `other copy` of a recurrence's weights. `target` is the
    artifact's tensor of the same values, None where there is none.
    """

    source: str
    shape: tuple[int, ...]
    role: str
    target: str | None


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """The map from each tensor of the source to a place in the artifact.

    Made for `--report` alone. `gates` and the layouts are by the node of each recurrence.
    """

    gates: dict[str, tuple[GateReport, ...]]
    source_layouts: dict[str, LayoutReport]
    target_layouts: dict[str, LayoutReport]
    variables: tuple[VariableReport, ...]


@dataclass(frozen=True, slots=True)
class RecurrenceReport:
    """A cuDNN node, with the sizes and the copy of the weights used.

    `weights` is `canonical` or `raw`.
    """

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
class Element:
    """A value of an output.

    What is no finite number is told as text.
    """

    feed: int
    index: tuple[int, ...]
    expected: float | int | bool | str
    found: float | int | bool | str


@dataclass(frozen=True, slots=True)
class OverTime:
    """The largest absolute error of each `group` steps along `axis`, over all feeds."""

    axis: int
    group: int
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The numbers of values by share of the tolerance used.

    `exact` had no error. `counts[k]` are those with `first + k*width <= log10(error / tolerance)` and less
    than the next; the outermost bins take what lies beyond them.
    """

    exact: int
    first: float
    width: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutputReport:
    """The comparison of an output over all feeds.

    `worst` is the largest difference, `needed` the largest share of the tolerance used, `atol` and `rtol` the
    bound. Floats have more: `max_abs` and `max_rel`, the largest absolute and relative errors, the latter of
    expected values larger than `rel_floor`; `ulp`, the largest distance in units of the last place of the
    coarser type; `cosine`, of the angle between expected and found. `worst_element` used most of its
    tolerance, or is the first unequal one where equality is asked. A field without meaning for the output is
    None. `judged` is false where the bound is too wide to judge by: `message` then has both numbers. `origin`
    of the bound: the rounding of the output's `type`, the model's `noise`, `given` by the user, `max_error`.
    `moves_with`: the recurrences that move the output when what they give is disturbed.
    """

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
    max_abs: float | None = None
    max_rel: float | None = None
    rel_floor: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    worst_element: Element | None = None
    over_time: OverTime | None = None
    distribution: Distribution | None = None
    judged: bool = True
    origin: str = "type"
    moves_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceReport:
    """The verdict on layers of the recurrence `node`, run alone in the artifact.

    `piece` names that place. Where `asked` is false nothing was, `message` says why, and the numbers are 0.
    `worst` is the largest absolute error, `needed` the largest share of the tolerance
    `atol + rtol * |expected|` of its run; the tolerance told is that of one step. `smallest`: tolerances by
    which the answer to the chosen inputs would move at least with gates exchanged, a kernel transposed or
    zero, a bias dropped or the directions exchanged; `weakest`: the same for any single weight moved by 1e-3
    of the Frobenius norm of its gate's matrix. None: there is no such weight. `sampled`: the rows of each
    gate's matrix whose single weights were looked at, None for all. `unseen` names what would move it by less
    than ten tolerances.
    """

    node: str
    layers: tuple[int, ...]
    asked: bool
    passed: bool
    message: str = ""
    piece: str = ""
    compared: int = 0
    worst: float = 0.0
    needed: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0
    smallest: float | None = None
    weakest: float | None = None
    sampled: int | None = None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GlueReport:
    """The comparison of the glue around recurrences, with given recurrence outputs.

    Made where outputs hide part of it. `needed` is the largest share of the tolerance, infinite for another
    shape; `unjudged` are the tensors whose noise is too large to judge. Where `asked` is false `message` says
    why.
    """

    asked: bool
    passed: bool = True
    compared: int = 0
    needed: float = 0.0
    unjudged: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class OpDifference:
    """The first difference between the ops of an artifact and of the source.

    `tensor` is the source's, `ops` what computes it there, `values` which inputs show the difference: empty
    where the ops themselves differ. `message` says how.
    """

    tensor: str
    ops: tuple[str, ...]
    message: str
    values: str = ""


@dataclass(frozen=True, slots=True)
class OpsReport:
    """The comparison of everything around recurrences, op by op.

    `ops` counts the source's ops that were compared, `constants` its constants and variables, `gates` the ops
    that choose: comparisons, selections, branches. `regions` are the groups of ops that were fed with values
    of their own; without them every op was compared as it is written. `not_reached` names what no values
    showed, `not_looked_at` what could not be compared, and `odd` the ops that differ on NaN, infinities,
    denormals or extremes alone. Where `asked` is false `message` says why.
    """

    asked: bool
    ops: int = 0
    constants: int = 0
    gates: int = 0
    regions: int = 0
    not_reached: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    difference: OpDifference | None = None
    message: str = ""

    @property
    def passed(self) -> bool:
        """True for equal ops.

        It is so where no op was seen to differ.
        """
        return self.difference is None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.difference is not None:
            ops = f" ({', '.join(self.difference.ops)})" if self.difference.ops else ""
            where = f"{self.difference.tensor}{ops}"
            values = f", on {self.difference.values}" if self.difference.values else ""
            return f"differs at {where}{values}: {self.difference.message}"
        if not self.asked:
            return f"not looked at op by op: {self.message}"
        left = [
            f"{what}: {', '.join(names)}"
            for what, names in (("not reached", self.not_reached), ("not looked at", self.not_looked_at))
            if names
        ]
        return "; ".join(["equal op by op", *left])


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The comparison of an artifact fed in chunks of steps with the whole.

    `chunks` are the kinds of chunks: `of 1`, `of 7`, `of ragged sizes`. `compared` counts values of judged
    outputs over all of them, `worst` and `needed` are as in `OutputReport`; `unjudged` are the outputs whose
    bound is too wide to judge by. `message` describes the first difference. `beside` is what judged them:
    `the whole`, or `the source's own calls` where it holds states in variables.
    """

    passed: bool
    chunks: tuple[str, ...]
    compared: int
    worst: float
    needed: float
    unjudged: tuple[str, ...] = ()
    message: str = ""
    beside: str = "the whole"


@dataclass(frozen=True, slots=True)
class DecodingReport:
    """The comparison of an artifact's search with NumPy's, on the artifact's own numbers.

    The numbers are those of its step. `examples` were searched, of which `judged` hang on no rounding; of the
    others `ties` had another answer. `ended` counts sequences that chose the end, `compared` the tokens of
    all. `worst` is the largest difference of a score, `needed` its share of the tolerance. `message`
    describes the first difference.
    """

    passed: bool
    kind: str
    examples: int
    judged: int
    ties: int
    ended: int
    compared: int
    worst: float
    needed: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class DecoderReport(SearchRules):
    """A search in the artifact beside the model: rules, inputs and outputs.

    `token` and `logits` are the source's tensors.
    """

    token: str
    logits: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateReport:
    """A state with input and output keys.

    It is of a recurrence or a variable, and its kind is `h`, `c` or nothing. `begin_key` is the output that
    has the state to begin with, None where another signature gives it or it is zeros. `begin_value` is that
    state where it depends on no input: `[layers*directions, 1, units]`, or of the shape of the variable.
    """

    recurrence: str
    kind: str
    key: str
    next_key: str
    begin_key: str | None = None
    begin_value: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The two sides of a `verify` or a map; a Report has the same fields.

    `artifact` is None where the map is that of a conversion which was not kept. `alone`: of the source only
    its recurrences are there. `unverified` are the layers, signatures and functions that no proof runs;
    `warnings` tell what of the source is lost, and how to have it.
    """

    source: str
    kind: str
    format: str
    artifact: str | None
    inputs: dict[str, str]
    outputs: dict[str, str]
    recurrences: tuple[RecurrenceReport, ...]
    notes: tuple[str, ...]
    weights: WeightsReport | None = None
    states: tuple[StateReport, ...] = ()
    network: Network | None = None
    alone: bool = False
    unverified: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the JSON object of `map --json`."""
        return _json(self)


@dataclass(frozen=True, slots=True)
class Proof:
    """The comparison of an artifact with the float64 reference.

    `feeds` has the shape of each input, a dict per feed. `seed` is None where `cudnn_convert.testing`
    compared two models without a reference. `subject` is None inside a conversion's report. `recording`
    describes the recording that replaced the reference: its `file`, `recorder`, `source`, versions, `devices`
    and `tf32`. `recurrences` are the reports of single recurrences, empty where two models were compared.
    `end_to_end` is `equal`, `different` or `not judged`, over all outputs; `unproven` names the recurrences
    without any proof; `glue` is None where the outputs show the glue; `ops` is None where nothing stands
    around recurrences, or two models were compared. `misplaced` has a line for each weight
    that the map finds nowhere in the artifact, or in another order than the others. `streaming` is None where
    the artifact was not run in chunks, `decoding` where it has no search. `data` says which data of the user
    the feeds are, None where they are not the user's. `warnings` are for a person to act on; `remarks` say
    what else was seen: noise, choices too close to call, what was not compared.
    """

    passed: bool
    seed: int | None
    feeds: tuple[dict[str, tuple[int, ...]], ...]
    outputs: tuple[OutputReport, ...]
    warnings: tuple[str, ...]
    subject: Subject | None = None
    recording: dict[str, Any] | None = None
    recurrences: tuple[PieceReport, ...] = ()
    end_to_end: str = "equal"
    unproven: tuple[str, ...] = ()
    glue: GlueReport | None = None
    ops: OpsReport | None = None
    misplaced: tuple[str, ...] = ()
    streaming: StreamReport | None = None
    data: str | None = None
    decoding: DecodingReport | None = None
    remarks: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the JSON object of `verify --json`."""
        return _json(self)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an artifact: the sources' SHA-256, versions, and the command line.

    `versions` are those of the packages that made and proved it; `command` has the words that convert the
    source once more, of a library call too.
    """

    files: dict[str, str]
    versions: dict[str, str]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MicroReport:
    """The needs of a TensorFlow Lite file in TensorFlow Lite Micro.

    `bytes` is the size of the file. `arena` is the smallest tensor arena in which it ran, in bytes: a
    multiple of 16, measured with the package tflite-micro, on a machine of 64 bits, in kernels without a
    processor's own instructions. None where it was not measured. `operators` have the names of TensorFlow
    Lite's schema, in alphabetical order; `missing` are those without a kernel in Micro. `variables` counts
    the bytes of the tensors that keep their values from call to call; they lie in the arena. `flash` counts
    the bytes of the model in the source of firmware, without names and metadata. `errors` has the largest
    absolute error of each float output in Micro's interpreter, and is empty where it was not run.
    """

    bytes: int
    arena: int | None
    operators: tuple[str, ...]
    missing: tuple[str, ...]
    variables: int
    flash: int = 0
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The needs in words, each after a name."""
        arena = "not measured"
        if self.arena is not None:
            arena = f"{self.arena:,} bytes, the smallest in which it ran with 64 bits"
        facts = (
            ("file", f"{self.bytes:,} bytes" + (f", {self.flash:,} in firmware" if self.flash else "")),
            ("arena", arena),
            ("state", f"{self.variables:,} bytes from call to call" if self.variables else "none"),
            ("operators", ", ".join(self.operators)),
        )
        return (*facts, ("without a kernel", ", ".join(self.missing))) if self.missing else facts


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion. `inputs` and `outputs` map signature keys to tensors of the source.

    `states` are those among them that go from chunk to chunk. `out` is None where the source is portable
    already and nothing was written; `origin` is then None too. `axes` has for keys of inputs and outputs the
    name, the size or None of each axis, as far as they are known; `decoder` is a search over the model.
    `alone`, `unverified` and `warnings` are as in `Subject`. `micro` is None for all but files for TensorFlow
    Lite Micro.
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
    verification: Proof | None
    weights: WeightsReport | None = None
    states: tuple[StateReport, ...] = ()
    network: Network | None = None
    origin: Origin | None = None
    axes: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    decoder: DecoderReport | None = None
    alone: bool = False
    unverified: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    micro: MicroReport | None = None

    def as_subject(self, artifact: str | None) -> Subject:
        """Return the source's part of the report for a verification or a map."""
        names = {entry.name for entry in fields(Subject)} - {"artifact"}
        return Subject(artifact=artifact, **{name: getattr(self, name) for name in names})

    def to_json(self) -> str:
        """Return the report as the JSON object of `--json` and `--report`."""
        return _json(self)


def _json(value: Any) -> str:
    return json.dumps(_finite(asdict(value)), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    """Replace infinite and NaN floats by None, in nested values.

    JSON has no such numbers.
    """
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
