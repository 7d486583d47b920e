"""Records the original model on the local machine: the original graph, cuDNN nodes and all.

A recording also says what bears on its numbers: versions, devices and settings. A parameter blob that a
checkpoint does not hold itself is restored as TensorFlow would, by the ops of the graph's own saver
(`CudnnRNNCanonicalToParams`), not by anything of ours.
"""

import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.feeds.data import DataCalls
from cudnn_convert.graph import ops
from cudnn_convert.graph.graph import Graph, extract_nodes, import_graph, prune
from cudnn_convert.graph.index import AnyGraph, Index, split, tensor
from cudnn_convert.graph.session import Restore, checkpoint_key, session, variable_ops
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.private import tf_private
from cudnn_convert.text import first_line
from cudnn_convert.verification import graph_judge, recordings, trials


def facts() -> dict[str, Any]:
    """Return the facts about the machine for a recording's `meta`."""
    built, devices_here = tf.sysconfig.get_build_info(), devices()
    return {
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cuda": built.get("cuda_version"),
        "cudnn": built.get("cudnn_version"),
        "devices": devices_here,
        "tf32": tf32(
            [device["description"] for device in devices_here if device["type"] == "GPU"],
            enabled=bool(tf.config.experimental.tensor_float_32_execution_enabled()),
            environment=os.environ,
        ),
    }


def devices() -> list[dict[str, str]]:
    """Return TensorFlow's devices: `name`, `type`, and a `description`, possibly empty."""
    return [
        {"name": device.name, "type": device.device_type, "description": device.physical_device_desc}
        for device in tf_private.list_devices()
    ]


def tf32(gpus: Sequence[str], *, enabled: bool, environment: Mapping[str, str]) -> dict[str, Any]:
    """Report if float32 has 10 bits of mantissa; `gpus` are TensorFlow's GPU descriptions.

    Devices of compute capability 8.0 and later do so unless told not to (tensorflow v2.21.0 python/framework/
    config.py enable_tensor_float_32_execution).
    """
    known = [match for gpu in gpus if (match := re.search(r"compute capability: (\d+)\.", gpu))]
    newest = max((int(match[1]) for match in known), default=0)
    meaning = {
        name: value
        for name, value in environment.items()
        if name.startswith("TF_ENABLE_") or name == "NVIDIA_TF32_OVERRIDE"
    }
    off = [
        *(["no GPU"] if not gpus else []),
        *([f"compute capability {newest}, TF32 needs 8"] if known and newest < 8 else []),
        *(["NVIDIA_TF32_OVERRIDE=0"] if meaning.get("NVIDIA_TF32_OVERRIDE") == "0" else []),
        *([] if enabled else ["switched off in TensorFlow"]),
    ]
    reason = off[0] if off else f"compute capability {newest}"
    return {"on": not off, "reason": reason, "execution_enabled": enabled, "environment": meaning}


#: What TensorFlow with cuDNN 9 runs on no device: recorded of v2.21.0 in tests/data/cudnn/tensorflow.json.
#: The first two have no lengths, which cuDNN asks for; the others end the process.
_NOWHERE: Final = frozenset(
    {"CudnnRNN", "CudnnRNNV2", "CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2"}
)
_WHERE_TRAINED: Final = "scripts/record_tf1.py where the model was trained"
#: What TensorFlow says where no device has the op (v2.21.0 core/framework/op_kernel.cc).
_NO_KERNEL: Final = re.compile(r"No OpKernel was registered to support Op '(\w+)'")
_STATE: Final = "the feeds ran in order in one session; variables keep what a feed left in them"


def record_source(
    plan: Plan, calls: DataCalls, out: Path, *, constants: Sequence[str], trust: bool
) -> dict[str, Any]:
    """Run the source on the user's calls, write a recording, return the recording's `meta`.

    Raises UsageError for the feeds, UnsupportedModelError where the source cannot run here.
    """
    plan = graph_judge.with_restored_values(plan)
    fed = recordings.read_feeds(graph_judge.GraphJudge(plan), calls)
    restores = restoring(plan)
    graph = runnable(plan, restores)
    if not trust:
        graph_judge.refuse_effects(
            plan,
            _without(graph, restores, _ends(plan)),
            cure="vouch for the file with --trust",
            doing="recording",
        )
    if dead := sorted({node.op for node in graph.node} & _NOWHERE):
        expected = f"an op that TensorFlow {tf.__version__} can run, found one that it runs on no device"
        reasons = [f"op {op}: expected {expected}; record with {_WHERE_TRAINED}" for op in dead]
        raise UnsupportedModelError(plan.model.path, reasons)
    try:
        answers = _answers(plan, graph, fed, restores)
    except tf.errors.OpError as cause:
        raise _refuse(plan, calls, cause) from cause
    meta = {
        **facts(),
        "recorder": "cudnn-convert record",
        "data": calls.summary,
        "source": plan.model.path.name,
        "set": list(constants),
        "state": _STATE,
        "initialized": [],
        "inputs": _describe(plan.source.inputs, plan.signature.inputs, graph),
        "outputs": _describe(plan.source.outputs, plan.signature.outputs, graph),
    }
    by_key = [{key: _plain(value) for key, value in trials.by_key(plan, feed).items()} for feed in fed]
    recordings.write(out, meta, by_key, answers)
    return meta


def restoring(plan: Plan) -> list[Restore]:
    """Return the restore ops of variables stored only in a different form.

    Raises UnsupportedModelError where the graph has none.
    """
    whole, index, nodes, reasons = plan.whole, Index(plan.model.graph), [], []
    folder = plan.model.path / "variables"
    prefix = folder / "variables" if folder.is_dir() else plan.model.path
    needed = Index(whole).ancestors(_ends(plan))
    for node in variable_ops(whole):
        if node.name in needed and checkpoint_key(node) not in plan.model.variables:
            op, files = _restore(index, node.name)
            if op is None:
                expected = "a value in the file or an op that restores it"
                cure = "give the checkpoint that holds it"
                reasons.append(f"variable {node.name}: expected {expected}, found neither; {cure}")
            else:
                nodes.append(Restore(node.name, op, files, prefix))
    if reasons:
        raise UnsupportedModelError(plan.model.path, reasons)
    return nodes


def _ends(plan: Plan) -> list[str]:
    return [*(split(name)[0] for name in plan.signature.tensors), *plan.initializers]


def _restore(index: Index, variable: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the assignment of a saver's computed value to a variable, with the file tensors.

    A variable that a saver reads as it is would be read by the variable's own key, which the file does not
    have.
    """
    for node in index.consumers(variable):
        if node.op in ops.OVERWRITES and split(node.input[0])[0] == variable:
            value = split(node.input[1])[0]
            below = map(index.nodes.__getitem__, index.ancestors([value]))
            reads = [reading for reading in below if reading.op in ops.RESTORES]
            if reads and index.nodes[value] not in reads:
                return str(node.name), tuple(sorted({tensor(reading.input[0]) for reading in reads}))
    return None, ()


def runnable(plan: Plan, restores: Collection[Restore]) -> Graph:
    """Return the cut graph with original cuDNN nodes, and the restore ops of the variables."""
    whole = prune(Graph.of(plan.whole), _ends(plan))
    if not restores:
        return whole
    present = {node.name for node in whole.node}
    needed = Index(plan.model.graph).ancestors([restore.op for restore in restores]) - present
    savers = extract_nodes(plan.model.graph, needed | present)
    return Graph(whole, [*whole.node, *(node for node in savers.node if node.name in needed)])


def _without(graph: Graph, restores: Collection[Restore], ends: Iterable[str]) -> Graph:
    """Remove the readers of the source's checkpoint and the variable assignments from a graph."""
    left_out = {restore.op for restore in restores}
    # Their files are fed while variables are restored, and nowhere else.
    files = {name for restore in restores for name in restore.files}
    index = Index(graph)
    own = index.ancestors(left_out) - index.ancestors(ends)
    reads = (index.nodes[name] for name in own if index.nodes[name].op in ops.RESTORES)
    left_out |= {node.name for node in reads if tensor(node.input[0]) in files}
    return Graph(graph, (node for node in graph.node if node.name not in left_out))


def _answers(
    plan: Plan, graph: AnyGraph, fed: Sequence[Mapping[str, Array]], restores: Sequence[Restore]
) -> list[dict[str, Array]]:
    model, outputs = plan.model, plan.signature.outputs
    answers = []
    with session(
        graph,
        model.variables,
        initializers=plan.initializers,
        assets=model.assets,
        restores=restores,
        on_cpu=False,
    ) as running:
        for feed in fed:
            values = running.run([*outputs.values()], dict(feed))
            answers.append({key: _plain(value) for key, value in zip(outputs, values, strict=True)})
    return answers


def _plain(value: Any) -> Array:
    """Return the array free of objects, because files can only pickle objects."""
    plain_value = np.asarray(value)
    if plain_value.dtype != object:
        return np.char.encode(plain_value, "utf-8") if plain_value.dtype.kind == "U" else plain_value
    texts = [item.encode() if isinstance(item, str) else bytes(item) for item in plain_value.ravel()]
    if any(text.endswith(b"\0") for text in texts):
        raise UsageError(
            "strings: expected no zero byte at the end, which a file of arrays would drop, found one"
        )
    return np.reshape(np.array(texts, "S"), plain_value.shape)


def _describe(names: Mapping[str, str], tensors: Mapping[str, str], graph: AnyGraph) -> dict[str, Any]:
    """Describe each tensor of the cut graph by the source's name and the type."""
    seen = import_graph(graph)
    dtypes = {key: seen.get_tensor_by_name(name).dtype.base_dtype.name for key, name in tensors.items()}
    return recordings.describe_tensors({key: (name, dtypes[key]) for key, name in names.items()})


def _refuse(plan: Plan, calls: DataCalls, cause: Any) -> Exception:
    text = str(cause)
    if match := _NO_KERNEL.search(text):
        cure = f"record on a machine with a GPU, or with {_WHERE_TRAINED}"
        here = ", ".join(sorted({device["type"] for device in devices()}))
        reason = f"op {match[1]}: expected a kernel for a device of this machine ({here}), found none; {cure}"
        return UnsupportedModelError(plan.model.path, [reason])
    first = first_line(cause)
    if isinstance(cause, tf.errors.InvalidArgumentError):
        return UsageError(f"{calls.where}: the model does not accept these inputs: {first}")
    reason = f"graph: it does not run on this machine: {first}; record where it does"
    return UnsupportedModelError(plan.model.path, [reason])
