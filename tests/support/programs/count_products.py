"""Counts the products that TensorFlow runs in a GRU's loop and in its SavedModel, as JSON on stdout.

A process of its own runs this, because `TF_ENABLE_ONEDNN_OPTS` is read once, when TensorFlow is loaded:
with oneDNN the same ops have other names.
"""

from __future__ import annotations

import collections
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.cases import Case
from support.lowered_recurrences import looped, stored

from cudnn_convert.lower.tensorflow.lower import lower
from cudnn_convert.model import SERVING, Mode, Part
from cudnn_convert.targets import saved_model as write_saved_model

v1 = tf.compat.v1
CASE = Case(Mode.GRU)


def count_in_loop() -> dict[str, int]:
    """Ops of the graph that a session runs for a loop of ten steps an iteration."""
    feeds, partitions, ran = CASE.feeds(), v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    with tf.Graph().as_default() as graph:
        x, h = CASE.placeholders()[:2]
        y, *_ = looped(CASE, (10, 1))(x, h, tf.constant(0), None, *stored(CASE, block=False))
        with v1.Session(graph=graph) as session:
            session.run(y, {x: feeds["x"], h: feeds["h"]}, options=partitions, run_metadata=ran)
    return collections.Counter(node.op for part in ran.partition_graphs for node in part.node)


def count_in_saved_model(steps: int) -> dict[str, int]:
    """Ops that ran in a loaded SavedModel, those in the function of a branch among them."""
    graph, signature = CASE.graph()
    outputs = [*signature.outputs.values()]
    lowered = lower(graph, [CASE.recurrence()], {}, outputs=outputs, lowering="fast")
    feeds = CASE.feeds(steps)
    fed = {"x:0": feeds["x"], "h:0": feeds["h"], "c:0": np.float32(0)}
    traced, ran = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with tempfile.TemporaryDirectory() as folder:
        parts = (Part(SERVING, signature),)
        write_saved_model.write(Path(folder), lowered.graph, parts, lowered.variables, provenance="{}")
        with v1.Session(graph=tf.Graph()) as session:
            v1.saved_model.load(session, ["serve"], folder)
            session.run(outputs, fed, options=traced, run_metadata=ran)
    labels = [node.timeline_label for device in ran.step_stats.dev_stats for node in device.node_stats]
    return collections.Counter(label.partition(" = ")[2].partition("(")[0] for label in labels)


print(json.dumps([count_in_loop(), count_in_saved_model(int(sys.argv[1]))]))
