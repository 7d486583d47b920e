"""Collects the obstacles between a graph and a CPU, a target or a proof.

`check_runs_on_cpu`: what stays in the graph must run on a CPU, always with the same result; else all reasons
are raised at once. `undrawable`: what a proof by random inputs must know of a plan's inputs, and the flags
that say it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.formats import Keeps
from cudnn_convert.graph import gpu_ops, ops, session
from cudnn_convert.graph.graph import Graph, extract_nodes
from cudnn_convert.graph.index import OUTPUTS, Index, NodeDef, split
from cudnn_convert.graph.passes import channels_last, half_precision, plain_convolutions, subgraphs
from cudnn_convert.graph.passes.inference import MASKS, mask
from cudnn_convert.model import Recurrence
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan, axes, knobs, statistics
from cudnn_convert.plan.statistics import CutGraph
from cudnn_convert.private import tf_private
from cudnn_convert.recurrences.parameter_source import parameters_only
from cudnn_convert.text import list_some

_SHOWN: Final = 5
#: Ops of replicas that meet, as far as `replicas` left them.
_COLLECTIVE: Final = "Collective"
_SAME: Final = "expected the same numbers in every run"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def check_runs_on_cpu(
    path: Path,
    graph: Graph,
    *,
    outputs: Mapping[str, str] = _NONE,
    hint: str | None = None,
    asked: Collection[str] = (),
    cut: CutGraph | None = None,
) -> None:
    """Check `graph` for obstacles to running on a CPU deterministically.

    `outputs` are tensors by their keys in the signature, `asked` statistics of the batch that the user's flag
    keeps. `cut` is what the graph was simplified from. Raises UnsupportedModelError with one line for
    each kind of obstacle, and the `hint`.
    """
    whole, ends = graph.index, [*outputs.values()] or _unread(graph)
    hidden = parameters_only(whole, {split(name)[0] for name in outputs.values()})
    index = extract_nodes(graph, whole.nodes.keys() - hidden).index if hidden else whole
    reasons = [
        *_random(graph, index, outputs, cut or CutGraph(graph, ends, {})),
        *statistics.reasons(graph, ends, asked),
        *_calls_of_python(graph, cut),
        *_without_kernel(graph, index, outputs),
        *reserve_space_readers(index, outputs.values()),
    ]
    if reasons:
        raise UnsupportedModelError(path, reasons + ([f"{hint}; others with --outputs"] if hint else []))


def _random(graph: Graph, index: Index, outputs: Mapping[str, str], cut: CutGraph) -> Iterator[str]:
    """Yield reasons for active dropout and random ops, with the `--set` as a remedy.

    `cut` is what `graph` was made of, and still has the author's flags.
    """
    masks = {
        node.name: mask_
        for node in index.nodes.values()
        if node.op in MASKS and (mask_ := mask(index, f"{node.name}:0")) is not None
    }
    drawn = {node.name for node in index.nodes.values() if node.op in ops.RANDOM}
    # Beyond its own numbers a mask needs the shape of what it masks, and that may need others.
    explained = {name for each in masks for name in index.ancestors([each], stop=drawn) & drawn}
    rates = [rate for rate, _ in masks.values()]
    all_off = knobs.find_knobs(cut.graph, cut.outputs, _list_random, rates) if drawn else []
    others = [node for node in index.nodes.values() if node.name in drawn - explained]
    if all_off and others:
        cure = knobs.remedy(all_off, cut.graph.index.nodes, "turn it off with")
        names, kinds = (
            list_some([*dict.fromkeys(items)], _SHOWN)
            for items in zip(*((n.name, n.op) for n in others), strict=True)
        )
        yield Reason(f"{names}: {_SAME}, found the random op {kinds}; {cure}", cure)
        others = []
    if masks:
        off = all_off or knobs.find_knobs(cut.graph, cut.outputs, _list_masks, rates)
        yield from _dropouts(index, masks, off, cut)
    for node in others:
        kept = subgraphs.CutFinder(index, outputs=outputs).without(node.name)
        yield Reason(
            f"{node.name}: {_SAME}, found the random op {node.op}; "
            f"bind it with --set {node.name}:0=VALUE or cut the graph behind it with --inputs"
            f"{f', or {kept}' if kept else ''}",
            kept,
        )


def _unread(graph: Graph) -> list[str]:
    return [f"{node.name}:0" for node in graph.node if not graph.index.is_read(node.name)]


def _list_random(graph: Graph) -> list[str]:
    return [node.name for node in graph.node if node.op in ops.RANDOM]


def _list_masks(graph: Graph) -> list[str]:
    return [node.name for node in graph.node if node.op in MASKS and mask(graph.index, f"{node.name}:0")]


def _dropouts(
    index: Index, masks: Mapping[str, tuple[str, int]], off: Sequence[knobs.Knob], cut: CutGraph
) -> Iterator[str]:
    """Yield a single reason for active dropout if the knobs `off` turn off all dropout.

    The knobs are those of the author. Else there is a reason for each rate, which is bound where it enters
    loops.
    """
    groups: dict[str, list[str]] = {}
    if off:
        groups[""] = [*masks]
    names = cut.graph.index.nodes
    rates: dict[int, list[str]] = {}
    for name, (rate, neutral) in masks.items() if not off else ():
        rates.setdefault(neutral, []).append(index.origin(rate, ops.PASSAGES | ops.IDENTITIES))
        groups.setdefault(f"{neutral}", []).append(name)
    for key, members in groups.items():
        knob_list = off or [knobs.Knob(rate, key) for rate in dict.fromkeys(rates[int(key)])]
        cure = knobs.remedy(knob_list, names, "turn it off with")
        what = "expected no dropout at inference, found dropout that is on"
        yield Reason(f"{list_some(members, _SHOWN)}: {what}; {cure}", cure)


def _calls_of_python(graph: Graph, cut: CutGraph | None) -> Iterator[Reason]:
    """Yield a reason for Python calls removable by the author's flag, such as data augmentation."""
    calls = _list_calls(graph)
    off = knobs.find_knobs(cut.graph, cut.outputs, _list_calls) if calls and cut else []
    if off and cut:
        cure = knobs.remedy(off, cut.graph.index.nodes, "leave it out with")
        expected = (
            "expected ops that any program can run, found Python code that only the original program has"
        )
        yield Reason(f"{list_some(calls, _SHOWN)}: {expected}; {cure}", cure)


def _list_calls(graph: Graph) -> list[str]:
    return [node.name for node in graph.node if node.op in ops.PYTHON]


def _without_kernel(graph: Graph, index: Index, outputs: Mapping[str, str]) -> Iterator[str]:
    nodes: dict[tuple[str, str], list[str]] = {}
    for node in index.nodes.values():
        if node.op in graph.functions or node.op in ops.CUDNN:
            continue
        if tf_private.find_op(node.op) is None:
            nodes.setdefault((node.op, "unknown to TensorFlow " + tf.__version__), []).append(node.name)
        elif not _has_cpu_kernel(node.op):
            nodes.setdefault((node.op, "without a CPU kernel"), []).append(node.name)
        elif lacking := _lacking(node):
            nodes.setdefault((node.op, lacking), []).append(node.name)
    for (op, what), names in sorted(nodes.items()):
        avoid = {name for others in nodes.values() for name in others}
        cure = subgraphs.CutFinder(index, outputs=outputs).before(names[0], avoid)
        reason = f"{list_some(names, _SHOWN)}: expected ops that run on a CPU, found {op}, {what}"
        yield Reason(f"{reason}; {cure or 'choose other --outputs'}", cure)


def _lacking(node: NodeDef) -> str:
    """Return the reason if a node lacks a CPU kernel despite the op's kernels.

    Empty where the node has a kernel.
    """
    row = gpu_ops.find_row(node)
    if row is not None and row.type:
        return f"without a CPU kernel for {row.type.partition('=')[2]}"
    if node.op.startswith(_COLLECTIVE):
        return "which waits for other programs"
    packed = "data_format" in node.attr and node.attr["data_format"].s.endswith(b"VECT_C")
    if packed or channels_last.lacks_kernel(node):  # and was not replaced: a rank or a window is open
        return "without a kernel that every CPU has for its images"
    # What JAX exported; source: tensorflow v2.21.0 compiler/tf2xla/ops/xla_ops.cc XlaCallModule, `platforms`.
    platforms = node.attr["platforms"].list.s if node.op == "XlaCallModule" else ()
    if platforms and b"CPU" not in platforms:
        return f"compiled for {', '.join(each.decode() for each in platforms)} alone"
    return ""


def note_gpu_ops(graph: Graph) -> Iterator[str]:
    """Yield notes on ops run in the source's form by a GPU alone."""
    first = [node.op for node in graph.node if channels_last.is_channels_first(node)]
    if first:
        yield f"computed channels last, as every CPU does: {_count(first)}"
    plain = [node.op for node in graph.node if not plain_convolutions.is_plain(node)]
    if plain:
        yield f"computed by other convolutions, which every CPU has: {_count(plain)}"
    single = [node.op for node in graph.node if half_precision.is_only_single(node)]
    if single:
        yield f"computed in float32, for no CPU does in half: {_count(single)}"


def _count(names: Sequence[str]) -> str:
    counts = Counter(names)
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in sorted(counts.items()))


@cache
def _has_cpu_kernel(op: str) -> bool:
    """Return True if an op has a CPU kernel; cached, since TensorFlow searches all kernels."""
    listed = tf_private.list_kernels(op)
    # Ops without any kernel are structural: the runtime replaces them (PartitionedCall, If, While). A
    # TensorFlow that is built without CUDA has none of those that GPUs alone run either.
    return any(kernel.device_type in ("CPU", "DEFAULT") for kernel in listed) or (
        not listed and not gpu_ops.is_gpu_only(op)
    )


def reserve_space_readers(index: Index, outputs: Iterable[str]) -> Iterator[str]:
    """Yield reasons for readers of cuDNN's gradient outputs, missing from the CPU form."""
    for node in index.nodes.values():
        if node.op in ops.CUDNN:
            for reader in index.consumers(node.name):
                used = {k for op, k in map(split, reader.input) if op == node.name}
                if max(used) >= OUTPUTS:
                    yield (
                        f"{reader.name}: expected to read outputs 0 to 2 of {node.name}, found "
                        f"{node.name}:{max(used)}, which only gradients need; choose other --outputs"
                    )
    for name in outputs:
        op, k = split(name)
        if index.nodes[op].op in ops.CUDNN and k >= OUTPUTS:
            yield (
                f"--outputs {name}: expected outputs 0 to 2 of {op}, found {name}, which only gradients "
                "need; choose others"
            )


#: In the order in which ranks are tried: sequences of vectors, of ids, a row each, pictures, films.
_RANKS: Final = (3, 2, 1, 4, 5)


def check_format(plan: Plan, options: Options) -> None:
    """Raise UnsupportedModelError for tables and cells unsupported by the format of `options`."""
    keeps = options.form.keeps
    if Keeps.TABLES not in keeps:
        words = (f"{key}={tensor}" for key, tensor in plan.source.inputs.items())
        named = dict(zip(plan.signature.inputs.values(), words, strict=True))
        session.refuse(plan.model.path, plan.graph, named, plan.signature.outputs.values(), options.format)
    if Keeps.CELLS in keeps:
        refuse_cells(plan.model.path, plan.recurrences)


def refuse_cells(path: Path, recurrences: Sequence[Recurrence]) -> None:
    """Refuse recurrences unfit for storage as CPU-compatible cells.

    Raises UnsupportedModelError with all reasons.
    """
    reasons, what = [], "--format checkpoint: expected"
    dtypes: dict[str, Any] = {}
    for recurrence in recurrences:
        if recurrence.sizes.projection:
            reasons.append(
                f"{recurrence.node}: {what} no projection, found one, which its cell does not have"
            )
        dtype = dtypes.setdefault(recurrence.shared, recurrence.dtype)
        if dtype != recurrence.dtype:
            types = f"{dtype} and {recurrence.dtype}"
            reasons.append(f"{recurrence.node}: {what} one dtype for {recurrence.shared}, found {types}")
    if reasons:
        raise UnsupportedModelError(path, [f"{reason}; take another format" for reason in reasons])


def check_inputs(plan: Plan, options: Options) -> None:
    """Raise UnsupportedModelError for inputs impossible to draw in a proof by random inputs."""
    if options.draws_inputs and (reasons := undrawable(plan)):
        raise UnsupportedModelError(plan.model.path, reasons)


def undrawable(plan: Plan) -> list[str]:
    """Return a reason for each input impossible to draw, with the flags to help.

    An input that nothing reads may have any value.
    """
    if isinstance(plan, RecurrencesPlan):
        return []
    index = plan.graph.index
    asked = {op for op, _ in map(split, plan.signature.inputs.values()) if index.is_read(op)}
    if all(_is_plain(node) for node in plan.graph.node if node.name in asked):
        return []
    return [*_undrawable(plan, plan.graph.shapes, asked)]


def _is_plain(node: NodeDef) -> bool:
    """Return True if a placeholder has a shape of known rank and a non-string dtype."""
    shape = node.attr["shape"].shape if "shape" in node.attr else None
    return shape is not None and bool(shape.dim) and node.attr["dtype"].type != tf.string.as_datatype_enum


def _undrawable(plan: Plan, seen: tf.Graph, read: Collection[str]) -> Iterator[str]:
    pairs = zip(plan.signature.inputs.values(), plan.source.inputs.values(), strict=True)
    origin = {name: source for name, source in pairs if split(name)[0] in read}
    tensors = {name: seen.get_tensor_by_name(name) for name in origin}
    unknown = [name for name, tensor in tensors.items() if tensor.shape.rank is None]
    shapes = {name: shape for name in unknown if (shape := _likely(plan, name)) is not None}
    for name, tensor in tensors.items():
        if name in unknown:
            cure = (
                Remedy({"inputs": (_inputs(plan, shapes),)}, "give its shape with")
                if name in shapes
                else None
            )
            advice = cure or "choose a later tensor as the input"
            yield Reason(f"{origin[name]}: expected a known rank, found an unknown one; {advice}", cure)
        elif tensor.dtype == tf.string and not _has_words(plan):
            yield f"{origin[name]}: expected numbers, found strings; give --data"
        elif tensor.dtype.is_integer and tensor.shape.rank == 0:
            expected = "expected an input for random numbers, found one integer of unknown meaning"
            yield f"{origin[name]}: {expected}; give --data, or bind it with --set {origin[name]}=VALUE"


def _has_words(plan: Plan) -> bool:
    """Return True if a table of the model has string keys for drawing inputs."""
    return bool(plan.initializers) and any(
        node.op in ops.TABLES and node.attr["key_dtype"].type == tf.string.as_datatype_enum
        for node in plan.graph.node
    )


def _inputs(plan: Plan, shapes: Mapping[str, axes.Shape]) -> str:
    """Return the value of `--inputs` for all inputs, with `shapes` by the plan's tensor names."""
    pairs = zip(plan.source.inputs.items(), plan.signature.inputs.values(), strict=True)
    return ",".join(f"{key}={tensor}{_bracket(shapes.get(name))}" for (key, tensor), name in pairs)


def _bracket(shape: axes.Shape | None) -> str:
    return "" if shape is None else subgraphs.shape_as_text(shape)


def _likely(plan: Plan, name: str) -> axes.Shape | None:
    """Return a shape for an input, fitting the graph and the width of the recurrence."""
    for rank in _RANKS:
        shape: axes.Shape = (None,) * rank
        widths = axes.infer_widths(plan.graph, name, shape, plan.recurrences)
        if widths is None:
            continue
        for recurrence in plan.recurrences:
            if widths[recurrence.node] not in (None, recurrence.sizes.input_size):
                break
            for axis in reversed(range(rank)):
                wide = tuple(recurrence.sizes.input_size if k == axis else None for k in range(rank))
                more = axes.infer_widths(plan.graph, name, wide, plan.recurrences)
                if widths[recurrence.node] is None and more is not None and more[recurrence.node] is not None:
                    return wide
        else:
            return shape
    return None
