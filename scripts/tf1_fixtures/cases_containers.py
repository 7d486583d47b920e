"""The files that hold a TensorFlow 1 model: frozen graphs, SavedModels, and checkpoints of every layout.

A GPU graph can be exported anywhere, but saving it runs ops that only a GPU has. So its proto is written here
by TensorFlow's own exporters (Saver.export_meta_graph, SavedModelBuilder.add_meta_graph,
convert_variables_to_constants, which runs nothing but variables), and the values beside it are saved by the
CPU twin, whose variables have the same keys. case.json names the file or folder to convert as "source".
"""
import contextlib
import json
import os
import shutil
import tempfile
import uuid

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework import tensor_util

from tf1_fixtures.describe import describe
from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import (
    Case,
    build_cpu_graph,
    build_gpu_graph,
    check_checkpoint,
    load,
    reproducible_bytes,
    run_feeds,
)
from tf1_fixtures.weights import canonical_only, checkpoint_values, recurrent_tensors

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "slept"]


def frozen_binary(rnn):
    """A frozen graph, binary, written by convert_variables_to_constants: a bidirectional LSTM of two layers."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, (h, _) = rnn.layer("lstm", 2, 5, directions=2)(x, training=False)
    tf.identity(tf.layers.dense(outputs, 3, name="head"), name="logits")
    tf.identity(h, name="state_h")
    return Case(["logits:0", "state_h:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def frozen_text(rnn):
    """A frozen graph as text, of resource variables: a GRU between two dense layers."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    with tf.variable_scope("model", use_resource=True):
        outputs, _ = rnn.layer("gru", 1, 6)(tf.layers.dense(x, 4, name="front"), training=False)
        tf.nn.softmax(tf.layers.dense(outputs, 5, name="head"), name="probs")
    return Case(["model/probs:0"], [{"x:0": (7, 3, 3)}, {"x:0": (12, 2, 3)}])


def frozen_layer_norm(rnn):
    """A frozen graph with layer normalisation: tf.contrib's over features and over a state, and one by hand."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    features = tf.contrib.layers.layer_norm(x, begin_norm_axis=2, scope="features")
    with tf.variable_scope("by_hand"):
        gain, bias = tf.get_variable("gain", [4]), tf.get_variable("bias", [4])
        centred = features - tf.reduce_mean(features, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        features = centred * (tf.rsqrt(variance + 1e-6) * gain) + bias
    outputs, (h,) = rnn.layer("gru", 1, 6)(features, training=False)
    tf.identity(tf.layers.dense(outputs, 3, name="head"), name="logits")
    state = 0.1 * tf.reshape(h, [-1, 6])
    tf.identity(tf.contrib.layers.layer_norm(state, scope="state"), name="summary")
    return Case(["logits:0", "summary:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def saved_model_words(rnn):
    """A SavedModel with two signatures, whose words go through a table that a vocabulary among its assets fills."""
    words = tf.placeholder(tf.string, [None, None], name="words")
    table = tf.contrib.lookup.index_table_from_file("vocabulary.txt", num_oov_buckets=2)
    embedding = tf.get_variable("embedding", [len(WORDS) + 2, 4])
    embedded = swap_batch(tf.nn.embedding_lookup(embedding, table.lookup(words)))
    outputs, (h, _) = rnn.layer("lstm", 1, 5, directions=2)(embedded, training=False)
    tf.identity(tf.layers.dense(swap_batch(outputs), 3, name="head"), name="logits")
    tf.identity(tf.concat([h[0], h[1]], axis=1), name="summary")
    return Case(
        ["logits:0"],
        [
            {"words:0": [["the", "cat", "sat", "on"], ["a", "mat", "and", "slept"]]},
            {"words:0": [["slept", "dog", "the"], ["mat", "on", "zebra"], ["cat", "cat", "a"]]},
        ],
    )


def saved_model_tags(rnn, scale=2.0):
    """A SavedModel of two MetaGraphs, tags serve and serve,gpu, whose answers differ by a factor of two."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    outputs, _ = rnn.layer("rnn_tanh", 1, 6, directions=2)(x, training=False)
    tf.multiply(tf.layers.dense(outputs, 4, name="head"), scale, name="scores")
    return Case(["scores:0"], [{"x:0": (7, 3, 3)}, {"x:0": (12, 2, 3)}], flags=["--tag", "serve,gpu"])


def checkpoint_v1(rnn):
    """A checkpoint of the V1 format: the prefix is itself the file."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, _ = rnn.layer("gru", 1, 5, directions=2)(x, training=False)
    tf.identity(tf.layers.dense(outputs, 3, name="head"), name="logits")
    saved_by(rnn, write_version=tf.train.SaverDef.V1)
    return Case(["logits:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def checkpoint_v1_sharded(rnn):
    """A sharded checkpoint of the V1 format: two files, no index."""
    case = sharded(rnn)
    saved_by(rnn, write_version=tf.train.SaverDef.V1, sharded=True)
    return case


def checkpoint_sharded(rnn):
    """A sharded checkpoint of the V2 format: one index and two files of data, one for each device."""
    case = sharded(rnn)
    saved_by(rnn, sharded=True)
    return case


def sharded(rnn):
    """Ids, an embedding on the second device, an LSTM and a dense layer."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    with tf.device("/cpu:1"):
        table = tf.get_variable("embedding", [7, 3])
    outputs, _ = rnn.layer("lstm", 1, 5)(swap_batch(tf.nn.embedding_lookup(table, ids)), training=False)
    tf.identity(tf.layers.dense(outputs, 4, name="head"), name="logits")
    feeds = [[[0, 1, 2, 3], [4, 5, 6, 0]], [[6, 1, 3], [2, 2, 5], [4, 0, 6]]]
    return Case(["logits:0"], [{"ids:0": fed} for fed in feeds])


def partitioned(rnn):
    """An embedding in three parts, one key of the checkpoint, and a dense kernel cut across in two."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    table = tf.get_variable("embedding", [11, 4], partitioner=tf.fixed_size_partitioner(3))
    outputs, _ = rnn.layer("gru", 1, 6)(swap_batch(tf.nn.embedding_lookup(table, ids, "div")), training=False)
    kernel = tf.get_variable("head", [6, 5], partitioner=tf.fixed_size_partitioner(2, axis=1))
    tf.identity(tf.tensordot(outputs, tf.convert_to_tensor(kernel), 1), name="logits")
    feeds = [[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 0]], [[7, 1, 3], [2, 2, 9], [10, 4, 5]]]
    return Case(["logits:0"], [{"ids:0": fed} for fed in feeds])


def saved_by(rnn, **options):
    """Makes a saver of these options the GPU graph's own."""
    if rnn.trains:
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(**options))


def record_container(build, folder):
    """Build both graphs of a case, and write its file or folder, its answers and case.json."""
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    os.makedirs(folder)
    with reproducible():
        gpu_graph, gpu_variables, saver = build_gpu_graph(build)
        cpu_graph, case, layers = build_cpu_graph(build)
        twin = Twin(cpu_graph, case, layers, gpu_variables, saved_keys(gpu_graph), saver.saver_def)
        source = CONTAINERS[build](build, folder, gpu_graph, gpu_variables, saver, twin, case)
        np.savez_compressed(os.path.join(folder, "golden.npz"), **twin.answers())
    describe(build, case, gpu_graph, layers, folder)
    path = os.path.join(folder, "case.json")
    with open(path) as stream:
        described = dict(json.load(stream), source=source)
    with open(path, "w") as stream:
        json.dump(described, stream, indent=2, sort_keys=True)
        stream.write("\n")


@contextlib.contextmanager
def reproducible():
    """A working folder with the words in it, so that no graph holds the path of a machine.

    Nor does one hold the random name that a sharded saver gives the folder of its parts.
    """
    home, folder, random = os.getcwd(), tempfile.mkdtemp(), uuid.uuid4
    try:
        uuid.uuid4 = lambda: uuid.UUID(int=0)
        os.chdir(folder)
        with open("vocabulary.txt", "w") as stream:
            stream.write("\n".join(WORDS) + "\n")
        yield
    finally:
        uuid.uuid4 = random
        os.chdir(home)
        shutil.rmtree(folder)


def saved_keys(graph):
    """The keys that the savers of a graph would write, in either format."""
    found = set()
    for op in graph.get_operations():
        if op.type in ("SaveV2", "SaveSlices"):
            names = tensor_util.MakeNdarray(op.inputs[1].op.get_attr("value"))
            found |= {name.decode() for name in names}
    return found


class Twin:
    """The CPU graph with the values of every key; it saves them, whole or in parts, and answers feeds."""

    def __init__(self, graph, case, layers, gpu_variables, keys, saver_def):
        self.graph, self.case, self.keys = graph, case, keys
        config = tf.ConfigProto(device_count={"CPU": 2})
        self.session = tf.Session(graph=graph, config=config)
        with graph.as_default():
            self.parts = grouped(tf.global_variables())
            static = dict(gpu_variables, **{key: parts[0] for key, parts in self.parts.items()})
            shapes = {key: Whole(parts) for key, parts in self.parts.items()}
            self.values = checkpoint_values(keys, dict(static, **shapes), layers)
            self.values.update(canonical_only(recurrent_tensors(layers)))
            for key in sorted(keys - set(self.parts)):
                self.parts[key] = [tf.Variable(self.values[key], name=key, trainable=False)]
            entries = {key: parts if sliced(parts[0]) else parts[0] for key, parts in self.parts.items()}
            self.saver = tf.train.Saver(
                {key: entries[key] for key in keys}, sharded=saver_def.sharded, write_version=saver_def.version
            )
            self.session.run(tf.tables_initializer())
        for key, parts in sorted(self.parts.items()):
            load(self.session, *part_values(parts, self.values[key]))

    def save(self, prefix):
        self.saver.save(self.session, prefix, write_meta_graph=False, write_state=False)
        tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))

    def answers(self):
        return run_feeds(self.session, self.case)


class Whole:
    """Shape and type of a variable that may be in parts."""

    def __init__(self, parts):
        info = sliced(parts[0])
        self.shape = tf.TensorShape(info.full_shape) if info else parts[0].shape
        self.dtype = parts[0].dtype


def sliced(variable):
    return variable._get_save_slice_info()


def grouped(variables):
    """Key -> the variables that are its parts, or the one that is the whole."""
    found = {}
    for variable in variables:
        info = sliced(variable)
        found.setdefault(info.full_name if info else variable.op.name, []).append(variable)
    return found


def part_values(parts, value):
    """What `load` takes: name -> variable, and name -> its part of the value."""
    named, values = {}, {}
    for part in parts:
        info = sliced(part)
        place = tuple(
            slice(offset, offset + width) for offset, width in zip(info.var_offset, info.var_shape)
        ) if info else ()
        named[part.op.name], values[part.op.name] = part, value[place]
    return named, values


def checkpoint(build, folder, graph, variables, saver, twin, case):
    prefix = os.path.join(folder, "model.ckpt")
    with graph.as_default(), open(prefix + ".meta", "wb") as stream:
        stream.write(reproducible_bytes(saver.export_meta_graph()))
    twin.save(prefix)
    if saver.saver_def.sharded and saver.saver_def.version == tf.train.SaverDef.V1:
        tf.train.update_checkpoint_state(folder, "model.ckpt-?????-of-00002")
        return "model.ckpt"
    check_checkpoint(prefix, {key: twin.values[key] for key in twin.keys})
    return "model.ckpt"


def frozen(build, folder, graph, variables, saver, twin, case):
    """Only the variables of the GPU graph are run: convert_variables_to_constants fetches nothing else."""
    options = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True))
    with graph.as_default(), tf.Session(graph=graph, config=options) as session:
        values = {name: twin.values[name] for name in variables}
        assign(session, variables, values)
        names = [name.split(":")[0] for name in case.outputs]
        made = tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), names)
    if build is frozen_text:
        with open(os.path.join(folder, "frozen.pbtxt"), "w") as stream:
            stream.write(text_format.MessageToString(made))
        return "frozen.pbtxt"
    with open(os.path.join(folder, "frozen.pb"), "wb") as stream:
        stream.write(made.SerializeToString(deterministic=True))
    return "frozen.pb"


def assign(session, variables, values):
    """An opaque_kernel declares no shape, and its initial value needs a GPU: only its assignment is run."""
    for name, variable in sorted(variables.items()):
        session.run(variable.initializer, {variable.initializer.inputs[1]: values[name]})


def saved_model(build, folder, graph, variables, saver, twin, case):
    """Protos by SavedModelBuilder.add_meta_graph, variables by the twin where the builder would put them."""
    builder = tf.saved_model.builder.SavedModelBuilder(os.path.join(folder, "model"))
    builder._has_saved_variables = True
    if build is saved_model_tags:
        other, _, _ = build_gpu_graph(lambda rnn: saved_model_tags(rnn, scale=1.0))
        with other.as_default():
            builder.add_meta_graph(["serve"], signatures(other, serving_default=("x", "scores")))
        with graph.as_default():
            builder.add_meta_graph(["serve", "gpu"], signatures(graph, serving_default=("x", "scores")))
    else:
        with graph.as_default():
            builder.add_meta_graph(
                ["serve"],
                signatures(graph, serving_default=("words", "logits"), summarize=("words", "summary")),
                assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
                legacy_init_op=tf.tables_initializer(),
                strip_default_attrs=True,
            )
    with open(os.path.join(folder, "model", "saved_model.pb"), "wb") as stream:
        stream.write(builder._saved_model.SerializeToString(deterministic=True))
    os.makedirs(os.path.join(folder, "model", "variables"))
    twin.save(os.path.join(folder, "model", "variables", "variables"))
    os.remove(os.path.join(folder, "model", "variables", "checkpoint"))
    return "model"


def signatures(graph, **named):
    """Signature key -> SignatureDef, from key=(input op, output op)."""
    found = {}
    for key, names in named.items():
        infos = [{name: tf.saved_model.utils.build_tensor_info(graph.get_tensor_by_name(name + ":0"))}
                 for name in names]
        found[key] = tf.saved_model.signature_def_utils.build_signature_def(
            *(infos + ["tensorflow/serving/predict"])
        )
    return found


CONTAINERS = {
    frozen_binary: frozen,
    frozen_text: frozen,
    frozen_layer_norm: frozen,
    saved_model_words: saved_model,
    saved_model_tags: saved_model,
    checkpoint_v1: checkpoint,
    checkpoint_v1_sharded: checkpoint,
    checkpoint_sharded: checkpoint,
    partitioned: checkpoint,
}
CASES = (frozen_binary, saved_model_words)
CASES_1_15 = tuple(build for build in CONTAINERS if build not in CASES)
