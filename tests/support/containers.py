"""The recorded checkpoints as other containers, made by TensorFlow itself: a frozen graph, a SavedModel.

Nothing of cudnn_convert is used here: these are sources that the tests read.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from support.samples import Fixture

_VARIABLES = ("VariableV2", "Variable", "VarHandleOp")


@dataclass(frozen=True)
class Contained(Fixture):
    """A fixture whose model lies in another container; its answers stay the recorded ones."""

    source: Path
    verify: bool = True

    @property
    def prefix(self) -> Path:
        return self.source

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "verify": self.verify}


@dataclass(frozen=True)
class Signed(Contained):
    """One with a signature: which outputs it has needs no flag."""

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options.items() if name != "outputs"}


_ONE_VALUE = "a frozen graph holds one value of each variable, not its average too"
#: Why a case cannot be a frozen graph.
_NOT_FROZEN = {
    "averages_saver": _ONE_VALUE,
    "target_saver": _ONE_VALUE,
    "partitioned": "its variables have no keys of their own",
    "decode_beam": "TensorFlow 2, which freezes it, lacks one of its ops",
    "op_cond_gru": "TensorFlow 2 makes a constant of a variable that a branch reads by reference",
}


def unfit(sample: Fixture, container: str) -> str | None:
    """Why a fixture cannot be in a container, or None where it can."""
    if not (sample.folder / "model.ckpt.index").is_file():
        return "it is in a container of its own"
    if container != "frozen":
        return None
    if sample.options.get("weights") == "ema":
        return _ONE_VALUE
    if sample.case.get("stateful"):
        return "what assigns a variable has nothing to assign to"
    return _NOT_FROZEN.get(sample.folder.name)


def frozen(sample: Fixture, path: Path, *, verify: bool) -> Fixture:
    """The fixture as a frozen graph, by convert_variables_to_constants in a Session that runs no other op."""
    definition = _meta(sample).graph_def
    for node in definition.node:
        node.device = ""
    reader = tf.train.load_checkpoint(str(sample.folder / "model.ckpt"))
    outputs = [name.partition(":")[0] for name in sample.case["outputs"]]
    needed = tf.compat.v1.graph_util.extract_sub_graph(definition, outputs)
    # Not all of the graph: of ops that train it TensorFlow 2 need not know each. The rewriting fetches reads.
    reads = {f"{node.name}/Read/ReadVariableOp" for node in needed.node if node.op == "VarHandleOp"}
    reads &= {node.name for node in definition.node}
    read = tf.compat.v1.graph_util.extract_sub_graph(definition, [*outputs, *sorted(reads)])
    options = tf.compat.v1.GraphOptions(place_pruned_graph=True)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(read, name="")
        with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(graph_options=options)) as session:
            for node in needed.node:
                if node.op in _VARIABLES:
                    _assign(session, graph.get_tensor_by_name(f"{node.name}:0"), reader.get_tensor(node.name))
            made = tf.compat.v1.graph_util.convert_variables_to_constants(session, needed, outputs)
    path.write_bytes(made.SerializeToString())
    return Contained(sample.folder, path, verify)


def _assign(session: Any, target: Any, value: np.ndarray) -> None:
    fed = tf.compat.v1.placeholder(value.dtype)
    if target.dtype == tf.resource:
        session.run(tf.raw_ops.AssignVariableOp(resource=target, value=fed), {fed: value})
    else:
        session.run(tf.raw_ops.Assign(ref=target, value=fed, validate_shape=False), {fed: value})


def saved_model(sample: Fixture, folder: Path, *, verify: bool) -> Fixture:
    """The fixture as a SavedModel: its MetaGraph with a tag and a signature, its own bundle of variables."""
    meta = _meta(sample)
    meta.meta_info_def.tags.append("serve")
    signature = meta.signature_def["serving_default"]
    for infos, names in (
        (signature.inputs, sample.case["inputs"]),
        (signature.outputs, sample.case["outputs"]),
    ):
        for name in names:
            infos[name.replace(":0", "").replace(":", "_").replace("/", "_")].name = name
    (folder / "variables").mkdir(parents=True)
    for path in sample.folder.glob("model.ckpt.[id]*"):
        shutil.copy(path, folder / "variables" / path.name.replace("model.ckpt", "variables"))
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return Signed(sample.folder, folder, verify)


def _meta(sample: Fixture) -> Any:
    content = (sample.folder / "model.ckpt.meta").read_bytes()
    return meta_graph_pb2.MetaGraphDef.FromString(content)
