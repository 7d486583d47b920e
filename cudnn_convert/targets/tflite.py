"""Writes a TensorFlow Lite file with the provenance in the metadata.

The converter takes a SavedModel of TensorFlow 1's form and converts its control flow to functions. It is
limited to built-in ops; unverified models may also use TensorFlow's kernels ("Flex").

Source: tensorflow v2.21.0 lite/python/lite.py TFLiteSavedModelConverterV2,
compiler/mlir/lite/schema/schema.fbs (Metadata, Buffer, OperatorCode).
"""

import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.artifacts.tflite import flex_ops, operator_kind, pack_model, schema, unpack_model
from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError
from cudnn_convert.formats import TFLITE_KEY, part_file
from cudnn_convert.graph import safe_ops
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.passes.subgraphs import CutFinder
from cudnn_convert.lower import infinities, tflite
from cudnn_convert.model import SERVING, Array, Cell, Part, Signature, UserGraph, is_float
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.report.provenance import with_pieces
from cudnn_convert.targets import eight_bits, fused_ops
from cudnn_convert.targets import saved_model as write_saved_model
from cudnn_convert.text import first_line, list_some

_BUILT_IN: Final = (tf.lite.OpsSet.TFLITE_BUILTINS,)
_ALL: Final = (*_BUILT_IN, tf.lite.OpsSet.SELECT_TF_OPS)
_ELSE: Final = "choose --format savedmodel or frozen"
#: How the converter says which node it does not take: type, name, perhaps the function it lies in, and why.
_SAID: Final = re.compile(r'error: loc\(.*?fused\["(\w+):", "([^"@]+).*?\)+: (.+)')
_CUSTOM: Final = "\nCustom ops: "
_NO_OP: Final = "is neither a custom op nor a flex"


def prepare(plan: Plan, options: Options) -> Plan:
    """Add notes on float types turned into float32."""
    return replace(plan, notes=(*plan.notes, *tflite.notes(plan.graph)))


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a file for each part of a plan; return notes on states and kernels."""
    ends = [*plan.signature.tensors, *(name for part in plan.all_parts for name in part.signature.tensors)]
    ends, values = [*dict.fromkeys(ends)], plan.model.variables
    lowered = tflite.lower_tflite(
        plan.graph, plan.recurrences, values, ends=ends, fused=options.has_fixed_sizes
    )
    notes = []
    for part in plan.all_parts:
        file = part_file(path, part.name, ".tflite")
        ops = write(
            lowered.graph,
            part.signature,
            file,
            provenance=with_pieces(provenance, lowered.pieces),
            built_in=options.verify,
            user=plan.find_user_graph(part.signature),
            recurrences={recurrence.node for recurrence in plan.recurrences},
            fused=lowered.fused if options.has_fixed_sizes else None,
            examples=[{key: _in_float32(value) for key, value in call.items()} for call in plan.examples],
        )
        notes += [f"{file.name} needs TensorFlow's own kernels (Flex) for {', '.join(ops)}"] if ops else []
    return (*lowered.notes, *notes)


def _in_float32(value: Array) -> Array:
    """Return an input in the float type of the file."""
    return value.astype(np.float32) if is_float(value.dtype) else value


def write(
    graph: Any,
    signature: Signature,
    path: Path,
    *,
    provenance: str,
    built_in: bool,
    user: UserGraph | None = None,
    recurrences: Collection[str] = (),
    fused: Mapping[str, Cell] | None = None,
    examples: Sequence[Mapping[str, Array]] = (),
) -> tuple[str, ...]:
    """Write a frozen float32 GraphDef to `path`; return the ops in need of Flex.

    `user` is the user's graph, where a cut may be advised, by default this one; `recurrences` are its
    recurrences, which every advised cut keeps. `fused` has the cells of fused ops by the ops' names, for a
    file of fixed sizes. With `examples`, calls by key, the file computes in 8 bits, calibrated on them. The
    file has the one signature `serving_default`, with the keys of `signature`, and deterministic bytes.
    Raises UnsupportedModelError with a line for each op that TensorFlow Lite lacks, or without `built_in`
    that Flex lacks too.
    """
    pruned = prune(Graph.of(graph), signature.tensors)
    index = pruned.index
    cuts = CutFinder(index, user, outputs=signature.outputs, recurrences=recurrences)
    if others := [*safe_ops.ops_run_by_converter(pruned)]:
        names = {node.name for node in others}
        reasons = [_unknown([op.name], op.op, cuts.before(op.name, names)) for op in others]
        raise UnsupportedModelError("tflite", reasons)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        write_saved_model.write(Path(folder), pruned, [Part(SERVING, signature)], {}, provenance="")
        content = _run_converter(folder, cuts, examples, built_in=built_in)
    model = unpack_model(content)
    if fused is not None:
        fused_ops.name_fused_ops(model, fused)
        fused_ops.unclip_cells(model)
        _broadcast_selects(model)
    if examples:
        eight_bits.align_scales(model)
    infinities.restore_infinities(model, pruned)
    entry, buffer = schema.MetadataT(), schema.BufferT()  # without arguments before TensorFlow 2.21
    entry.name, entry.buffer, buffer.data = TFLITE_KEY, len(model.buffers), [*provenance.encode()]
    model.metadata.append(entry)
    model.buffers.append(buffer)
    path.write_bytes(pack_model(model))
    return flex_ops(path)


def _broadcast_selects(model: Any) -> None:
    """Make a SELECT_V2 of each SELECT, which TensorFlow Lite Micro lacks.

    They agree where all shapes are equal. All operators of a kind share a code, so one SELECT of other shapes
    leaves all as they are.
    """
    selects = [
        (graph, op)
        for graph in model.subgraphs
        for op in graph.operators or ()
        if operator_kind(model, op) == schema.BuiltinOperator.SELECT
    ]
    if not all(_is_elementwise(graph, op) for graph, op in selects):
        return
    for _, op in selects:
        code = model.operatorCodes[op.opcodeIndex]
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.SELECT_V2
        op.builtinOptionsType = schema.BuiltinOptions.SelectV2Options
        op.builtinOptions = schema.SelectV2OptionsT()


def _is_elementwise(graph: Any, op: Any) -> bool:
    shapes = [[*(graph.tensors[k].shape if graph.tensors[k].shape is not None else ())] for k in op.inputs]
    return all(shape == shapes[0] for shape in shapes)


def _run_converter(
    folder: str, cuts: CutFinder, examples: Sequence[Mapping[str, Array]], *, built_in: bool
) -> bytes:
    try:
        return _by(folder, _BUILT_IN, examples)
    except Exception as error:  # the converter raises its own, MLIR's and Python's
        if built_in:
            # No kernel of TensorFlow stands in for what the converter calls a custom op.
            more = "" if _CUSTOM in str(error) else "write a kernel of TensorFlow's unproven with --no-verify"
            raise UnsupportedModelError("tflite", _reasons(error, cuts, more)) from error
    try:
        return _by(folder, _ALL, examples)
    except Exception as error:
        raise UnsupportedModelError("tflite", _reasons(error, cuts)) from error


def _by(folder: str, ops: tuple[Any, ...], examples: Sequence[Mapping[str, Array]]) -> bytes:
    converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[SERVING])
    converter.target_spec.supported_ops = list(ops)
    if examples:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ((SERVING, dict(example)) for example in examples)
        # Ops without a kernel of 8 bits stay as they are.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, *ops]
    with eight_bits.calibrate(examples):  # without examples nothing is calibrated
        content: bytes = converter.convert()
    return content


def _reasons(error: Exception, cuts: CutFinder, more: str = "") -> list[Reason]:
    """Return a line for each op missing from TensorFlow Lite.

    `more` is advice besides a cut.
    """
    matches: list[tuple[str, str, str]] = _SAID.findall(str(error))
    avoid = {name for _, name, _ in matches}
    unknown: dict[str, list[str]] = {}
    refused: dict[str, Reason] = {}
    for op, name, why in matches:
        if _NO_OP in why:
            unknown.setdefault(op, []).append(name)
        else:  # of one node it may say several; the first is the cause
            expected = f"a {op} that TensorFlow Lite's converter accepts"
            cure = cuts.before(name, avoid)
            actual = f"found one that it refuses: {why}; {cure or _ELSE}"
            refused.setdefault(name, Reason(f"{name}: expected {expected}, {actual}", cure))
    reasons = [_unknown(names, op, cuts.before(names[0], avoid), more) for op, names in unknown.items()]
    reasons += refused.values()
    actual = f"{type(error).__name__}: {first_line(error)}"
    other = f"expected a graph that TensorFlow Lite's converter accepts, found an error: {actual}; {_ELSE}"
    return reasons or [Reason(other)]


def _unknown(names: list[str], op: str, cure: Remedy | None, more: str = "") -> Reason:
    advice = ", or ".join(str(part) for part in (cure, more) if part) or _ELSE
    expected = f"{list_some(names, 1)}: expected an op that TensorFlow Lite has"
    return Reason(f"{expected}, found {op}; {advice}", cure)
