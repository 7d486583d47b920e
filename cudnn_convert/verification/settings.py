"""Settings of a proof: judge, user's options, feeds or recording, types and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.feeds.data import Data, DataCalls, read_calls
from cudnn_convert.formats import FORMATS, Computes
from cudnn_convert.model import Part
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.plan.source import user_code
from cudnn_convert.verification import effort, judges, recordings
from cudnn_convert.verification.judges import Judge
from cudnn_convert.verification.recordings import Golden
from cudnn_convert.weights import lazy

#: Recurrences of these types are judged by the rounding of that type, measured on the model itself.
COARSENESS: Final = ("float64", "float32", "float16", "bfloat16")
#: Of these the bound is their rounding, a thousandth and more of a value.
COARSE: Final = frozenset(COARSENESS[2:])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a proof: judge, options, and a recording or feeds, if any.

    `dtype` is the coarsest of the recurrences' and of what the artifact stores weights in. `scores` has, for
    each output that is a choice, the tensor that decides it and the axis of the choice.
    """

    judge: Judge
    options: Options
    golden: Golden | None
    calls: DataCalls | None
    dtype: np.dtype[Any]
    scores: Mapping[str, tuple[str, int]]
    seed: int

    @property
    def plan(self) -> Plan:
        """The plan of the source, with variables of the judging values."""
        return self.judge.plan

    @property
    def trust(self) -> bool:
        """True if the source may run more than arithmetic."""
        return self.options.trust

    @property
    def wanted(self) -> list[str]:
        """The tensors asked of the source: outputs, then scores behind choices."""
        return [*self.plan.signature.outputs.values(), *(name for name, _ in self.scores.values())]

    @property
    def has_bound(self) -> bool:
        """True if the user gave a bound, or asked for an inexact artifact."""
        options = self.options
        return {options.atol, options.rtol, options.max_error, options.quantize} != {None}

    @property
    def is_large(self) -> bool:
        """True if a recurrence is too large for repeated evaluation."""
        return any(lazy.exceeds_memory_budget(own.sizes, own.dtype) for own in self.plan.recurrences)


def make_settings(plan: Plan, options: Options, *, shared: bool = False) -> Settings:
    """Collect the settings for judging an artifact of a plan.

    Reads the user's feeds, unless shards are `shared` out. Raises UsageError for another plan's recording,
    and for data that cannot be read.
    """
    judge = choose_judge(plan)
    golden = recordings.open_recording(judge, options.golden) if options.golden else None
    dtype, seed = _choose_dtype(judge, options), choose_seed(options)
    data = Data.of(options, seed=seed)
    calls = None if data is None else data.describe() if shared else read_calls(data)
    return Settings(judge, options, golden, calls, dtype, judge.scores(), seed)


def choose_seed(options: Options) -> int:
    """Return the seed of a proof's random inputs."""
    return effort.SEED if options.seed is None else options.seed


def choose_judge(plan: Plan) -> Judge:
    """Return the judge of a plan; only a judge with a graph needs TensorFlow."""
    if isinstance(plan, RecurrencesPlan) and plan.model.checkpoint is None:
        return judges.StandaloneJudge(plan)
    from cudnn_convert.verification.graph_judge import GraphJudge, with_restored_values

    plan = with_restored_values(plan)  # only a graph may name values otherwise than its reader did
    return judges.StandaloneJudge(plan) if isinstance(plan, RecurrencesPlan) else GraphJudge(plan)


def _choose_dtype(judge: Judge, options: Options) -> np.dtype[Any]:
    """Return the coarsest type of recurrences or of stored weights.

    ONNX and TFLite compute doubles as float32.
    """
    single = np.dtype(np.float32)
    kinds = {*(recurrence.dtype for recurrence in judge.plan.recurrences), *judge.dtypes()}
    if options.weights_dtype != "float32":
        kinds.add(np.dtype(options.weights_dtype))
    coarsest = max(kinds, key=lambda kind: COARSENESS.index(kind.name), default=single)
    is_narrowed = coarsest == np.float64 and FORMATS[options.format].computes is not Computes.AS_SOURCE
    return single if is_narrowed else coarsest


def open_runner(
    settings: Settings, artifact: Path | runners.Runner, parts: Sequence[Part] = ()
) -> runners.Runner:
    """Open parts of an artifact, by default all of the plan. Raises as `open_artifact`."""
    if not isinstance(artifact, Path):
        return artifact
    options = settings.options
    return runners.open_artifact(options.format, artifact, parts or settings.plan.parts, user_code(options))
