"""Regions: both graphs cut at shared tensors, with each part fed alone.

Every part gets the same values on both sides and must give the same. First those of a run; then others, which
no run may bring: see `values`. All parts are computed in one run a round, since a cut gives its readers what
is fed, whatever it is computed to be.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

import numpy as np

from cudnn_convert.graph.index import split
from cudnn_convert.model import Array
from cudnn_convert.report.values import OpDifference
from cudnn_convert.text import first_line
from cudnn_convert.verification import effort
from cudnn_convert.verification.ops import differences, values
from cudnn_convert.verification.ops.differences import Slack
from cudnn_convert.verification.ops.models import FileRunner, TensorFile
from cudnn_convert.verification.ops.source import FedSource, Region
from cudnn_convert.verification.ops.values import Leaf

#: Styles whose differences are noted, and refuse nothing.
_NOTED: Final = frozenset({*values.ODD, values.EMPTY})
_NODE: Final = re.compile(r"\{\{(?:function_)?node ([^}]+)\}\}")
#: Ops that are not named in a report of a region.
_PLAIN: Final = frozenset("Const Identity Shape StridedSlice Pack ConcatV2 Placeholder PyFunc".split())
#: Ops whose answers hang on the order of a sum, or on how a function is approximated.
_ROUNDING: Final = frozenset(
    "MatMul BatchMatMul BatchMatMulV2 Conv2D Conv3D DepthwiseConv2dNative Einsum Sum Mean Prod Softmax "
    "LogSoftmax Cumsum SquaredDifference Exp Log Tanh Sigmoid Erf Elu Selu Softplus Softsign Sin Cos Tan Pow "
    "Rsqrt Sqrt FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 AvgPool AddN SegmentSum UnsortedSegmentSum "
    "ResizeBilinear LRN L2Loss RealDiv Div Reciprocal Log1p Expm1 Cosh Sinh Asinh Acosh Atanh Asin Acos Atan "
    "Lgamma Digamma BlockLSTM LSTMBlockCell GRUBlockCell PyFunc Merge If StatelessIf While "
    "StatelessWhile".split()
)
#: Functions between -1 and 1, and those that are computed as a sum with 1: what is much smaller may be 0.
_AROUND_ONE: Final = frozenset("Sigmoid Tanh Softmax Erf Elu Selu Expm1 Log1p Softplus".split())
#: Functions that runtimes bring large arguments of near zero for, each in its own precision.
_PERIODIC: Final = frozenset({"Sin", "Cos", "Tan"})
#: Arithmetic that is the same on both sides, unless several ops of it were folded into one.
_ARITHMETIC: Final = frozenset("Add AddV2 Sub Mul BiasAdd".split())


@dataclass(slots=True)
class Parts:
    """Both sides, cut: `cuts` and `sinks` map the artifact's tensors to the source's.

    `sinks` are the tensors that are compared. `recurrent` are sinks that a recurrence stands before: it is
    asked by itself, and rounds more than others. `is_whole`: the artifact runs whole, whatever is asked of
    it. `copies` are sinks that hand on a cut, as a layer of dropout does: they give what is fed.
    """

    cuts: dict[str, str]
    sinks: dict[str, str]
    regions: dict[str, Region] = field(default_factory=dict)
    recurrent: set[str] = field(default_factory=set)
    is_whole: bool = False
    copies: set[str] = field(default_factory=set)


def cut(source: FedSource, model: TensorFile, shared: Mapping[str, str], ends: Mapping[str, str]) -> Parts:
    """Cut both sides at `shared` tensors, giving each part equal inputs on both.

    `shared` and `ends`, the outputs, map the artifact's tensors to the source's. A cut that one side of a
    part reads alone is given up.
    """
    cuts, sinks = dict(shared), {**shared, **ends}
    while True:
        parts, odd = Parts(cuts, sinks), set[str]()
        roots = {*cuts.values()}
        for name, root in sinks.items():
            region = source.region(root, roots)
            leaves, is_recurrent = model.leaves(name, cuts)
            parts.is_whole |= leaves is None
            if leaves is not None:
                read = {cuts[leaf] for leaf in leaves if leaf in cuts}
                odd |= (region.leaves - {*source.graph.fed}) ^ read
            parts.regions[root] = region
            parts.recurrent |= {root} if is_recurrent or source.is_recurrent(region) else set()
        if not odd:
            first = {root: name for name, root in reversed(cuts.items())}
            if parts.is_whole:
                parts.copies = {name for name, root in sinks.items() if first.get(root, name) != name}
            return parts
        last = max(odd, key=lambda root: (source.order.get(split(root)[0], 0), root))
        cuts = {name: root for name, root in cuts.items() if root != last}
        sinks = {**cuts, **ends}  # what reads it has it inside


@dataclass(slots=True)
class Findings:
    """The findings: a difference, differences on odd values by tensor, and unreached values."""

    difference: OpDifference | None = None
    odd: dict[str, str] = field(default_factory=dict)
    not_reached: list[str] = field(default_factory=list)


class Asking:
    """The feeding of all regions of both sides, round after round.

    `keys` has the artifact's name of each input of the source, `slack` is allowed where the
    artifact stores its constants in half, or the user gives a bound.
    """

    def __init__(
        self,
        source: FedSource,
        model: TensorFile,
        parts: Parts,
        keys: Mapping[str, str],
        *,
        seed: int,
        slack: Slack,
        left: Mapping[str, str],
        is_fresh: bool,
    ) -> None:
        self._source, self._model, self._parts = source, model, parts
        self._keys, self._seed, self._slack = keys, seed, slack
        self._is_fresh = is_fresh
        #: The parts that differ on values that no run brings, and refuse nothing.
        self.left = dict(left)
        self._leaves = self._describe_leaves()
        owners = {
            f"{name}:0": root for root, region in reversed(parts.regions.items()) for name in region.nodes
        }
        self._gates = {gate: owners[gate] for gate in source.list_gates() if gate in owners}
        self._seen: dict[str, set[bool]] = {gate: set() for gate in self._gates}
        self._runners: dict[tuple[str, ...], FileRunner] = {}
        self._base: Mapping[str, Array] = {}
        #: What was found so far.
        self.asked = Findings()

    def ask(self, runs: Sequence[Mapping[str, Array]], recorded: Sequence[Mapping[str, Array]]) -> None:
        """Ask on the values of runs, then on varied values.

        `recorded` are the values of the cuts on each run.
        """
        everything = [*self._parts.sinks.items()]
        varied = [(name, root) for name, root in everything if self._is_varied(root)]
        for feed, known in zip(runs, recorded, strict=True):
            if self._round(values.RUN, {**feed, **known}, everything):
                return
        if varied:
            usual = min(1, len(runs) - 1)  # the first run is the smallest
            self._ask_others({**runs[usual], **recorded[usual]}, varied)
        reached = [gate for gate, seen in self._seen.items() if len(seen) < 2]
        self.asked.not_reached += [f"{gate} was never {_other(self._seen[gate])}" for gate in reached]

    def _is_varied(self, root: str) -> bool:
        """Return True if a sink is asked on values beyond a run.

        A recurrence by itself is not.
        """
        region = self._parts.regions[root]
        if root in self.left or self._source.is_bound(region):
            return False
        return root not in self._parts.recurrent or self._source.hides(region)

    def list_run_alone(self) -> list[str]:
        """Describe left-out parts, and parts with choices or products asked on a run's values alone."""
        bound = {
            root: f"{root}, behind a loop or a fused LSTM, on other values than those of a run"
            for root, region in self._parts.regions.items()
            if self._source.is_bound(region) and self._source.hides(region)
        }
        return [*(bound | {root: f"{root}: {what}" for root, what in self.left.items()}).values()]

    def _ask_others(self, base: Mapping[str, Array], varied: Sequence[tuple[str, str]]) -> None:
        """Ask on values outside of any run."""
        self._base, count = base, 0
        turns = Counter[str]()
        for style in values.FINITE:
            count += 1
            given = self._vary(style, base, count, turns[style])
            turns[style] += 1
            if self._round(style, given, varied):
                return
        for number in range(self._count_rows(base)):
            if self._round(values.ROWS, self._list_rows(base, number), varied):
                return
        if self._open_gates(base, varied) or self._combine_choices(base, varied):
            return
        for style in values.ODD:
            count += 1
            if self._round(style, self._vary(style, base, count), varied):
                return
        reducing = [sink for sink in varied if self._source.reduces(self._parts.regions[sink[1]])]
        for axis in range(2):
            self._round(
                values.EMPTY, {name: values.empty(value, axis) for name, value in base.items()}, reducing
            )

    def _open_gates(self, base: Mapping[str, Array], varied: Sequence[tuple[str, str]]) -> bool:
        """Give values on each side of gate thresholds, for gates seen in a single way.

        Returns whether a difference was found.
        """
        for gate in [gate for gate, seen in self._seen.items() if len(seen) < 2]:
            root = self._gates[gate]
            region = self._parts.regions[root]
            near = [*self._source.list_constants(region)][: effort.MOST_LIMITS]
            leaves = [name for name in region.leaves if not self._leaves.get(name, Leaf(counts=True)).counts]
            for constant, step in itertools.product(near, (1, -1, 0)):
                given = {name: values.step_over(base[name], constant, step) for name in leaves}
                sinks = [(name, each) for name, each in varied if each == root]
                if len(self._seen[gate]) < 2 and self._round(values.SIDES, {**base, **given}, sinks):
                    return True
        return False

    def _combine_choices(self, base: Mapping[str, Array], varied: Sequence[tuple[str, str]]) -> bool:
        """Give each combination of the small values with a joint decision in a part.

        A branch within a branch is taken where two of them are as they should be. Returns whether a
        difference was found.
        """
        rng = np.random.default_rng([self._seed])
        for sink in varied:
            region = self._parts.regions[sink[1]]
            choices = {
                leaf: values.list_choices(base[leaf], self._leaves.get(leaf, Leaf(fixed=True)))
                for leaf in sorted(region.leaves)
            }
            choices = {leaf: options for leaf, options in choices.items() if options}
            every = [*itertools.product(*choices.values())]
            if len(every) <= 2 or not self._source.chooses(region):
                continue
            drawn = rng.permutation(len(every))[: effort.MOST_COMBINATIONS]
            for number in drawn:
                given = dict(zip(choices, every[number], strict=True))
                if self._round(values.CHOSEN, {**base, **given}, [sink]):
                    return True
        return False

    def _vary(self, style: str, base: Mapping[str, Array], count: int, turn: int = 0) -> dict[str, Array]:
        rng = np.random.default_rng([self._seed, count])
        return {
            name: values.vary(rng, style, value, self._leaves.get(name, Leaf(fixed=True)), turn)
            for name, value in sorted(base.items())
        }

    def _count_rows(self, base: Mapping[str, Array]) -> int:
        """Return the number of rounds needed for every row of the tables."""
        most = [-(-leaf.rows // max(1, base[name].size)) for name, leaf in self._leaves.items() if leaf.rows]
        for name, leaf in self._leaves.items():
            seen = effort.MOST_ROW_ROUNDS * base[name].size
            if leaf.rows > seen:
                self.asked.not_reached.append(f"{leaf.rows - seen} rows of the table that {name} picks from")
        return min(effort.MOST_ROW_ROUNDS, max(most, default=0))

    def _list_rows(self, base: Mapping[str, Array], number: int) -> dict[str, Array]:
        rows = {name: leaf.rows for name, leaf in self._leaves.items()}
        return {
            name: values.list_rows(value, rows[name], number) if rows.get(name) else value
            for name, value in base.items()
        }

    def _round(self, style: str, given: Mapping[str, Array], sinks: Sequence[tuple[str, str]]) -> bool:
        """Ask all regions on a set of values; return whether a difference was found."""
        expected = self._answer_source(style, given, sinks)
        left = {} if style == values.RUN else self.left
        wanted = [(name, root) for name, root in sinks if root in expected and root not in left]
        actual = self._answer_artifact(style, wanted, given, tuple(name for name, _ in sinks))
        if self.asked.difference is not None:
            return True
        moved = cache(partial(self._move_source, given, [*expected]))
        for name, root in wanted:
            if name not in actual:
                continue
            reference = given[root] if name in self._parts.copies else expected[root]
            what, is_pole = self._compare(style, root, actual[name], reference, moved)
            if not what:
                continue
            region = self._parts.regions[root]
            if (style in _NOTED or is_pole) and not self._source.tests_finiteness(region):
                self.asked.odd.setdefault(root, f"{what} ({style})")
            elif self._leaves_out(style, root) and not self._is_shown_by_one(style, given, name, root):
                self.left[root] = f"differs on {style}: {what}"
            else:
                self.asked.difference = OpDifference(root, _name_ops(region), what, style)
                return True
        return False

    def _compare(
        self,
        style: str,
        root: str,
        value: Array,
        reference: Array,
        moved: Callable[[int], Mapping[str, Array]],
    ) -> tuple[str, bool]:
        """Describe a sink's difference, and tell whether only poles differ.

        `moved` gives a draw of `_move_source`.
        """
        region = self._parts.regions[root]
        slack = self._allow(root, region)
        noisy: list[Array] = []
        what = differences.find_difference(value, reference, noisy, slack)
        if what and not (style in values.SHARP and self._is_exact(region)):
            # Of whole numbers, as places of the largest, one draw may leave what another turns.
            for draw in range(1 if reference.dtype.kind == "f" else effort.MOST_REGION_DRAWS):
                noisy += [moved(draw)[root]] if root in moved(draw) else []
                if not (what := differences.find_difference(value, reference, noisy, slack)):
                    break
        if what and root in self._parts.recurrent and differences.is_amplified(reference, moved(0).get(root)):
            if self._source.hides(region):
                self.left.setdefault(root, "its recurrence amplifies rounding")
            return "", False
        if not what or style == values.RUN:
            return what, False
        at_poles = differences.take_poles(value, reference)
        return what, not differences.find_difference(at_poles, reference, noisy, slack)

    def _is_shown_by_one(self, style: str, given: Mapping[str, Array], name: str, root: str) -> bool:
        """Return True if a single leaf shows a region's difference.

        All other leaves have the values of a run. A value that a threshold is beside, or a boolean, may then
        well come.
        """
        if style not in values.NEARBY:
            return False
        for leaf in sorted(self._parts.regions[root].leaves):
            values_by_root = {**self._base, leaf: given[leaf]}
            expected = self._answer_source(style, values_by_root, [(name, root)])
            cuts = {key: values_by_root[cut] for key, cut in self._parts.cuts.items()}
            feed = {
                key: values_by_root[tensor] for tensor, key in self._keys.items() if tensor in values_by_root
            }
            try:
                (value,) = self._model.open((name,), cuts).run((name,), feed, cuts)
            except Exception:  # noqa: BLE001 - each runtime has exceptions of its own
                continue
            if root in expected:
                moved = cache(partial(self._move_source, values_by_root, [root]))
                what, is_pole = self._compare(style, root, value, expected[root], moved)
                if what and not is_pole:
                    return True
        return False

    def _leaves_out(self, style: str, root: str) -> bool:
        """Return True if a difference is reported but accepted.

        A runtime may reduce a large argument of a periodic function in its own type. Of many ops together,
        values that no run brings need not be such that the model takes them. The file says which parts these
        are, so that they are left out from then on.
        """
        if not self._is_fresh or style == values.RUN:
            return False
        kinds = self._parts.regions[root].kinds
        is_coarse = style == values.LARGE and not _PERIODIC.isdisjoint(kinds)
        return is_coarse or sum(kind not in _PLAIN for kind in kinds) > effort.FEW_OPS

    def _answer_artifact(
        self,
        style: str,
        sinks: Sequence[tuple[str, str]],
        given: Mapping[str, Array],
        opened: tuple[str, ...],
    ) -> dict[str, Array]:
        """Return the artifact's values, except for failing regions.

        `opened` are the outputs to open for. Where all together fail, halves are tried.
        """
        if not sinks:
            return {}
        names = {name for name, _ in sinks}
        cuts = {name: given[root] for name, root in self._parts.cuts.items()}
        feed = {key: given[tensor] for tensor, key in self._keys.items() if tensor in given}
        try:
            if opened not in self._runners:
                self._runners[opened] = self._model.open(opened, cuts)
            answers = self._runners[opened].run(opened, feed, cuts)
            return {name: value for name, value in zip(opened, answers, strict=True) if name in names}
        except Exception as cause:
            self._runners.pop(opened, None)
            if style == values.RUN:  # the whole runs on these: it is the cutting that fails
                raise
            if self._parts.is_whole or len(sinks) == 1 == len(opened):
                for _, root in sinks:
                    self._note_failure(style, root, first_line(cause))
                return {}
            half = len(sinks) // 2 if len(opened) == len(sinks) else len(sinks)
            answered: dict[str, Array] = {}
            for part in (sinks[:half], sinks[half:]):
                answered |= self._answer_artifact(style, part, given, tuple(name for name, _ in part))
            return answered

    def _note_failure(self, style: str, root: str, reason: str) -> None:
        """Note a failure of a region in the artifact, where the source succeeds.

        Integers that are sizes stay as they are.
        """
        what = f"the artifact fails: {reason}"
        if style in _NOTED or self._parts.is_whole:
            self.asked.odd.setdefault(root, f"{what} ({style})")
        elif self._leaves_out(style, root):
            self.left[root] = f"{what} ({style})"
        else:
            ops = _name_ops(self._parts.regions[root])
            self.asked.difference = OpDifference(root, ops, what, style)

    def _answer_source(
        self, style: str, given: Mapping[str, Array], sinks: Sequence[tuple[str, str]]
    ) -> dict[str, Array]:
        """Return the source's values, except for refusing regions."""
        wanted = list(dict.fromkeys(root for _, root in sinks))
        for _ in range(effort.MOST_REFUSALS):
            asked = {*wanted}
            gates = [gate for gate, root in self._gates.items() if root in asked]
            try:
                answers = self._run_source([*wanted, *gates], given, is_run=style == values.RUN)
            except Exception as cause:  # noqa: BLE001 - TensorFlow's errors, and those of the reference
                refused = self._find_refused(cause, wanted)
                if not refused or not (wanted := [root for root in wanted if root not in refused]):
                    return {}
                continue
            for gate, value in zip(gates, answers[len(wanted) :], strict=True):
                self._seen[gate] |= {bool(each) for each in np.unique(value)}
            return dict(zip(wanted, answers, strict=False))
        return {}

    def _move_source(self, given: Mapping[str, Array], wanted: Sequence[str], draw: int) -> dict[str, Array]:
        """Return the source's values with every given value moved by a last-place unit."""
        rng = np.random.default_rng(1 + draw)
        nudged = {name: values.nudge(rng, value) for name, value in given.items()}
        try:
            return dict(zip(wanted, self._run_source(wanted, nudged), strict=True))
        except Exception:  # noqa: BLE001 - what a neighbour of an accepted value may raise
            return {}

    def _run_source(
        self, wanted: Sequence[str], given: Mapping[str, Array], *, is_run: bool = False
    ) -> list[Array]:
        roots = {*self._parts.cuts.values()}
        cuts = {root: value for root, value in given.items() if root in roots}
        feed = {key: given[key] for key in self._keys if key in given}
        return self._source.run(wanted, feed, cuts, limited=not is_run)

    def _find_refused(self, cause: Exception, wanted: Collection[str]) -> set[str]:
        """Return the sinks of regions with the node named in an error."""
        match = _NODE.search(str(cause))
        name = match[1] if match else getattr(getattr(cause, "op", None), "name", "")
        return {root for root in wanted if name in self._parts.regions[root].nodes}

    def _describe_leaves(self) -> dict[str, Leaf]:
        """Return the allowed variation of each tensor read by regions."""
        leaves: dict[str, Leaf] = {}
        for root, region in self._parts.regions.items():
            if not self._is_varied(root):
                continue
            rows, near = self._source.rows(region), tuple(self._source.list_constants(region))
            for name in region.leaves:
                leaf = leaves.setdefault(name, Leaf(is_positive=self._source.is_positive(name)))
                leaf.near = (*leaf.near, *(each for each in near if each not in leaf.near))
                if name in rows:
                    leaf.rows = min(leaf.rows or rows[name], rows[name])
                else:
                    leaf.counts |= not self._source.is_free(region, name)
        return leaves

    def _is_exact(self, region: Region) -> bool:
        """Return True if a region gives the same bits on both sides."""
        is_simple = sum(kind in _ARITHMETIC for kind in region.kinds) < 2
        return is_simple and not self._source.is_bound(region) and _ROUNDING.isdisjoint(region.kinds)

    def _allow(self, root: str, region: Region) -> Slack:
        """Return the difference allowed for a tensor beside rounding."""
        slack = self._slack
        if root in self._parts.recurrent:
            share, atol = effort.RECURRENT_TOLERANCE
            slack = replace(slack, share=max(slack.share, share), atol=max(slack.atol, atol))
        if not _AROUND_ONE.isdisjoint(region.kinds):
            slack = replace(slack, atol=max(slack.atol, effort.NEAR_ONE))
        if "ResizeBilinear" in region.kinds:
            slack = replace(slack, share=max(slack.share, effort.BETWEEN_PIXELS))
        return slack


def _name_ops(region: Region) -> tuple[str, ...]:
    kinds = {*region.kinds}
    return tuple(sorted(kinds - _PLAIN)) or tuple(sorted(kinds))


def _other(seen: Collection[bool]) -> str:
    """Return the unseen results of a gate."""
    return " or ".join(str(value).lower() for value in (True, False) if value not in seen)
