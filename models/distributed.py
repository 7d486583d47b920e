"""Training under tf.distribute for the scripts beside this one: TensorFlow 2, tf_keras, two kinds of layers.

    python models/gru_speech/train.py FOLDER --strategy mirrored [--use_gpu] [--steps 200] [--profile 100:110]

`mirrored` trains on all GPUs of a machine, or on two logical CPU devices where it has none. `multi_worker`
trains on the workers that TF_CONFIG lists: start the script on each, with its own `task`. The devices share
each batch, so that the losses are those of one device. Layers are those of tf_keras; with `--use_gpu` those
of `cudnn_convert.compat`, whose weights are cuDNN's blob: cuDNN's op on a GPU, CPU ops elsewhere.

FOLDER gets `ckpt-1` of tf.train.Checkpoint, with the optimizer, and the SavedModel `export`; with `--use_gpu`
it has cuDNN's op, on whatever machine it was made. Workers other than the first write to
FOLDER/worker-<number>.

`parse`, `run` and `example` are for TensorFlow 1 and Python 3.7 too, the rest for TensorFlow 2.
"""

import argparse
import collections
import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

LOGICAL_CPUS = 2


def parse(description, steps):
    """The arguments of a script that trains for so many steps."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--use_gpu", action="store_true", help="cuDNN's layers")
    parser.add_argument("--strategy", choices=["mirrored", "multi_worker"], help="under TensorFlow 2")
    parser.add_argument("--steps", type=int, help=f"with --strategy; {steps} if not given")
    parser.add_argument("--profile", type=span, metavar="FROM:TO", help="with --strategy: steps to profile")
    arguments = parser.parse_args()
    given, version = ("--strategy", "2") if arguments.strategy else ("no --strategy", "1")
    if tf.__version__.split(".")[0] != version:
        parser.error(f"{given}: expected TensorFlow {version}, found {tf.__version__}")
    if not arguments.strategy and (arguments.steps or arguments.profile):
        parser.error("--steps, --profile: expected --strategy beside them, found none")
    arguments.steps = arguments.steps or steps
    if arguments.profile and arguments.profile[-1] >= arguments.steps:
        parser.error(f"--profile: expected steps below {arguments.steps}, found {arguments.profile[-1]}")
    return arguments


def span(text):
    """`FROM:TO` as a range of steps, TO left out."""
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise argparse.ArgumentTypeError("expected FROM:TO, such as 100:110, found " + text)
    return range(int(first), int(last))


class Task(collections.namedtuple("Task", "build loss feed write read rows rate")):
    """What a script trains.

    build(use_gpu)            : a tf_keras model whose outputs are a dictionary.
    loss(outputs, batch)      : the loss of each example of a batch, [batch].
    feed(*tensors)            : the dictionary `batch` of what the dataset gives: inputs and labels.
    write(path, random, steps): writes the records of so many steps, `rows` a step, drawn from `random`.
    read(path)                : their dataset: batched first, then parsed at once, prefetched last.
    rate                      : of Adam.
    """


def run(arguments, task, train_alone):
    """Trains the task under a strategy; without one calls `train_alone(folder, use_gpu)`, of TensorFlow 1."""
    if arguments.strategy:
        train(arguments, task)
    else:
        tf.logging.set_verbosity(tf.logging.INFO)
        train_alone(arguments.folder, arguments.use_gpu)


def example(**features):
    """A record of lists of numbers."""
    fields = {}
    for name, values in features.items():
        if np.asarray(values).dtype.kind == "f":
            fields[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            fields[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=fields)).SerializeToString()


def train(arguments, task):
    """Trains the task's model, saves and exports it; prints the loss of each step."""
    import tf_keras

    strategy, worker = make_strategy(arguments.strategy)
    folder = Path(arguments.folder, f"worker-{worker}" if worker else "")
    folder.mkdir(parents=True, exist_ok=True)
    records = str(folder / "train.tfrecord")
    task.write(records, np.random.RandomState(1), arguments.steps)
    tf_keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer = task.build(arguments.use_gpu), tf_keras.optimizers.Adam(task.rate)
    batches = strategy.experimental_distribute_dataset(shared(task.read(records)))

    def train_share(*tensors):
        batch = task.feed(*tensors)
        with tf.GradientTape() as tape:
            outputs = model({name: batch[name] for name in model.input_names}, training=True)
            # Of the whole batch, for shares are summed.
            value = tf.reduce_sum(task.loss(outputs, batch)) / task.rows
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    @tf.function(input_signature=[batches.element_spec])
    def step(batch):
        values = strategy.run(train_share, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

    profiled, source = arguments.profile or range(0), iter(batches)
    for number in range(arguments.steps):
        if number == profiled.start < profiled.stop:
            tf.profiler.experimental.start(str(folder / "profile"))
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            value = step(next(source))
        if number == profiled.stop - 1:
            tf.profiler.experimental.stop()
        print(f"step {number}: loss {float(value):.6f}", flush=True)  # noqa: T201
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(folder / "ckpt"))
    export(model, folder / "export", arguments.use_gpu)


def make_strategy(name):
    """`(strategy, number of this worker)`; called before TensorFlow uses any device."""
    alone = name == "mirrored"
    if not tf.config.list_physical_devices("GPU"):
        devices = [tf.config.LogicalDeviceConfiguration() for _ in range(LOGICAL_CPUS if alone else 1)]
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    if alone:
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices(kind)]), 0
    if "TF_CONFIG" not in os.environ:
        raise SystemExit(
            "--strategy multi_worker: expected the workers in TF_CONFIG, found none; set it to "
            '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": 0}}'
        )
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    return tf.distribute.MultiWorkerMirroredStrategy(), worker


def shared(dataset):
    """A dataset of which each worker takes its share of each batch: all workers read the same file."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def export(model, folder, use_gpu):
    """Writes the SavedModel: a signature with a tensor for each of the model's inputs, and the weights."""
    served = tf.Module()
    served.weights = model.weights
    specs = {tensor.name: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for tensor in model.inputs}

    def save():
        serve = tf.function(lambda **inputs: model(inputs, training=False)).get_concrete_function(**specs)
        tf.saved_model.save(served, str(folder), signatures=serve)

    if not use_gpu:
        save()
        return
    from cudnn_convert.compat import cudnn_rnn

    with cudnn_rnn.build_for("GPU"):
        save()


def recurrent(mode, units, *, use_gpu, layers=1, bidirectional=False, dropout=0.0):
    """`(x, lengths=None, states=None) -> (outputs, states)` of a recurrence of the mode `lstm` or `gru`.

    x is [batch, steps, features], lengths int32 [batch]; outputs are
    [batch, steps, directions * units]. States are those of one layer of one direction, [batch, units] each.
    """
    make = cudnn_layer if use_gpu else keras_layers
    return make(mode, units, layers, bidirectional, dropout)


def keras_layers(mode, units, layers, bidirectional, dropout):
    import tf_keras

    stack = []
    for _ in range(layers):
        cls = {"lstm": tf_keras.layers.LSTM, "gru": tf_keras.layers.GRU}[mode]
        layer = cls(units, return_sequences=True, return_state=True)
        stack.append(tf_keras.layers.Bidirectional(layer) if bidirectional else layer)

    def call(x, lengths=None, states=None):
        mask = None if lengths is None else tf.sequence_mask(lengths, tf.shape(x)[1])
        for number, layer in enumerate(stack):
            x = tf_keras.layers.Dropout(dropout)(x) if number and dropout else x
            x, *last = layer(x, mask=mask, initial_state=states)
        return x, last

    return call


def cudnn_layer(mode, units, layers, bidirectional, dropout):
    import tf_keras

    from cudnn_convert.compat import cudnn_rnn_ops

    is_lstm = mode == "lstm"
    make_op = cudnn_rnn_ops.CudnnLSTM if is_lstm else cudnn_rnn_ops.CudnnGRU

    class CudnnRNN(tf_keras.layers.Layer):
        """cuDNN's layers, whose one weight is the blob, under the name that TensorFlow 1's layers gave it."""

        def build(self, shape):
            direction = "bidirectional" if bidirectional else "unidirectional"
            self.op = make_op(layers, units, shape[-1], direction=direction, dropout=dropout)
            size, most = int(tf.get_static_value(self.op.params_size())), units**-0.5
            start = tf_keras.initializers.RandomUniform(-most, most)
            self.opaque_kernel = self.add_weight("opaque_kernel", [size], initializer=start)

        def call(self, x, lengths=None, states=None, training=False):
            zeros = tf.zeros([layers * (1 + bidirectional), tf.shape(x)[0], units])
            given = [zeros] * (1 + is_lstm) if states is None else [state[None] for state in states]
            y, *last = self.op(
                tf.transpose(x, [1, 0, 2]), *given, self.opaque_kernel,
                sequence_lengths=lengths, is_training=training,
            )  # fmt: skip
            return tf.transpose(y, [1, 0, 2]), [state[-1] for state in last]

    return CudnnRNN()
