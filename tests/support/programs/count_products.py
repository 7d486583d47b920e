"""Counts the products of a GRU's SavedModel after TensorFlow's optimizer, as JSON on stdout.

A process of its own runs this, because `TF_ENABLE_ONEDNN_OPTS` is read once, when TensorFlow is loaded. The
executor of a loop's body records nothing while it runs.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.cases import Case

from cudnn_convert.graph.graph import copy_graph
from cudnn_convert.graph.index import all_nodes
from cudnn_convert.lower.tensorflow.lower import lower
from cudnn_convert.model import Mode
from cudnn_convert.private import tf_private

CASE = Case(Mode.GRU)
graph, signature = CASE.graph()
outputs = [*signature.outputs.values()]
lowered = lower(graph, [CASE.recurrence()], {}, outputs=outputs, lowering="fast")
meta = meta_graph_pb2.MetaGraphDef(graph_def=copy_graph(lowered.graph))
meta.collection_def["train_op"].node_list.value.extend(name.partition(":")[0] for name in outputs)
with tf.Graph().as_default():
    optimized = tf_private.optimize_graph(config_pb2.ConfigProto(), meta)
counts = collections.Counter(node.op for node in all_nodes(optimized))
print(json.dumps({name: counts[name] for name in ("_FusedMatMul", "MatMul", "BiasAdd")}))
