"""Small sources that are not converted without a question, each made in an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.model import Mode, Sizes
from cudnn_convert.weights import parameter_blob
from support.batch_norm import normalise, values_of
from support.graphs import (
    BLOB,
    INPUTS,
    UNITS,
    drawing,
    floor_dropout,
    lstm,
    placeholder,
    resource,
    saved,
    v1,
    variable,
)

Change = Callable[[Any], Any]


def blob() -> Any:
    return variable("blob", BLOB.shape)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-0.5, 0.5, shape).astype(np.float32)


def of(mode: Mode, layers: int, units: int, directions: int, inputs: int) -> np.ndarray:
    """A blob."""
    return drawn(parameter_blob.length(Sizes(mode, layers, directions, units, inputs)))


def plain(folder: Path) -> Path:
    """Nothing is unclear."""
    return behind(folder, lambda y: tf.identity(y, "scores"))


def masked_twice(folder: Path) -> Path:
    """One mask of infinities, one of the lowest floats."""
    low = np.finfo(np.float32).min
    masks = np.array([[0, -np.inf], [low, 0]], np.float32)
    return behind(folder, lambda y: tf.add(y + masks[0], masks[1], name="scores"))


def solved(folder: Path) -> Path:
    """An op that takes a double, of whatever type it is."""
    arguments = {"l2_regularizer": np.float64(0.1), "fast": True, "name": "scores"}
    return behind(folder, lambda y: tf.raw_ops.MatrixSolveLs(matrix=y, rhs=y, **arguments))


def raised(folder: Path) -> Path:
    """A power of integers that is not known."""

    def power(y: Any) -> Any:
        numbers = tf.cast(y, tf.int32)
        return tf.raw_ops.Pow(x=numbers, y=numbers, name="scores")

    return behind(folder, power)


def behind(folder: Path, add: Change, values: Mapping[str, Any] | None = None, **ops: str) -> Path:
    """A checkpoint of `x` -> recurrence `rnn` -> what `add` makes of it; `ops` are other ops by node."""
    with drawing() as graph:
        add(lstm(placeholder("x"), blob()).output)
    made = graph.as_graph_def()
    for node in made.node:
        node.op = ops.get(node.name, node.op)
    prefix = saved(folder, graph, {"blob": BLOB, **(values or {})})
    meta = v1.MetaGraphDef(graph_def=made)
    Path(f"{prefix}.meta").write_bytes(meta.SerializeToString())
    return prefix


def states_in_a_list(folder: Path) -> Path:
    """A SavedModel whose loop keeps states of a batch that is not known."""
    module = tf.Module()
    module.blob = tf.Variable(BLOB)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, INPUTS], name="x")])
    def serve(x: Any) -> Any:
        def step(states: Any, each: Any) -> Any:
            h, c = states
            params = module.blob.read_value()
            called = tf.raw_ops.CudnnRNN(input=each, input_h=h, input_c=c, params=params, is_training=False)
            return called.output_h, called.output_c

        zeros = tf.zeros([1, tf.shape(x)[2], UNITS])
        return tf.scan(step, x, (zeros, zeros))[0]

    tf.saved_model.save(module, str(folder / "model"), serve.get_concrete_function())
    return folder / "model"


def noise(folder: Path) -> Path:
    def add(y: Any) -> Any:
        drawn = tf.raw_ops.RandomStandardNormal(shape=[UNITS], dtype=tf.float32, name="noise")
        return tf.add(y, drawn, name="scores")

    return behind(folder, add)


def policy(folder: Path) -> Path:
    """One of two outputs is drawn from the other."""

    def add(y: Any) -> Any:
        scores = tf.identity(y, "out/scores")
        return tf.raw_ops.Multinomial(logits=scores[-1], num_samples=1, name="action")

    return behind(folder, add)


def two_dropouts(folder: Path) -> Path:
    """One behind the other, each with an input of its own for its rate."""

    def add(y: Any) -> Any:
        first = floor_dropout(y, placeholder("a", []))
        return tf.identity(floor_dropout(first, placeholder("b", [])), "scores")

    return behind(folder, add)


def batch_normalisation(folder: Path) -> Path:
    """In training mode, in no branch that can be left."""

    def add(y: Any) -> Any:
        early = tf.identity(y, "early")
        shaped = tf.expand_dims(early, 0)
        ones = {key: tf.ones([UNITS]) for key in ("scale", "offset")}
        empty = {key: tf.zeros([0]) for key in ("mean", "variance")}
        made = tf.raw_ops.FusedBatchNormV3(x=shaped, **ones, **empty, is_training=True, name="norm")
        return tf.identity(made.y, "scores")

    return behind(folder, add)


def centred(folder: Path) -> Path:
    """By the mean of its batch, of which there is no average."""

    def add(y: Any) -> Any:
        early = tf.identity(y, "early")
        return tf.subtract(early, tf.reduce_mean(early, [0, 1], name="mean"), name="scores")

    return behind(folder, add)


def unknown_op(folder: Path) -> Path:
    """An op of nobody's between the recurrence and the scores."""
    return behind(folder, lambda y: tf.nn.relu(tf.negative(y, "strange"), "scores"), strange="MyCustomOp")


def unknown_op_at_an_input(folder: Path) -> Path:
    """Nothing that can be cut stands before it."""

    def add(y: Any) -> Any:
        offset = tf.negative(tf.raw_ops.Placeholder(dtype=tf.float32, shape=[], name="offset"), "strange")
        return tf.add(y, offset, "scores")

    return behind(folder, add, strange="MyCustomOp")


def kept_for_gradients(folder: Path) -> Path:
    with drawing() as graph:
        found = lstm(placeholder("x"), blob())
        tf.identity(found.reserve_space, "kept")
        tf.identity(found.output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def projected(folder: Path, mode: str = "gru") -> Path:
    """Two recurrences, of which `wrong` has a projection that cuDNN does not know."""
    with drawing() as graph:
        x = placeholder("x")
        tf.identity(lstm(x, blob()).output, "scores")
        state = tf.zeros([1, tf.shape(x)[1], UNITS + (mode == "lstm") * 1])
        cell = tf.zeros([1, tf.shape(x)[1], UNITS])
        made = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=state, input_c=cell, params=variable("other", BLOB.shape), rnn_mode=mode,
            sequence_lengths=tf.fill([tf.shape(x)[1]], tf.shape(x)[0]), num_proj=UNITS + 1, name="wrong",
            is_training=False,
        )  # fmt: skip
        tf.identity(made.output, "others")
    return saved(folder, graph, {"blob": BLOB, "other": BLOB * 2})


def projected_too_wide(folder: Path) -> Path:
    return projected(folder, "lstm")


def plain_states(folder: Path) -> Path:
    """States in variables without a recurrence: of one written once, of one twice, and of one in part."""
    shape = [2, INPUTS]
    with drawing() as graph:
        x = placeholder("x", [None, 2, INPUTS])
        for name, output in (("once", "scores"), ("twice", "others"), ("in_part", "parts")):
            handle = resource(name, shape)
            y = tf.tanh(x[-1] + tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
            if name == "in_part":
                write = tf.raw_ops.ResourceScatterNdUpdate(
                    ref=handle, indices=[[0]], updates=y[:1], name="in_part/first"
                )
            else:
                write = tf.raw_ops.AssignVariableOp(resource=handle, value=y, name=f"{name}/first")
            if name == "twice":
                with tf.control_dependencies([write]):
                    write = tf.raw_ops.AssignVariableOp(resource=handle, value=2 * y, name="twice/second")
            with tf.control_dependencies([write]):
                tf.identity(y, output)
    start = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    return saved(folder, graph, {"once": start, "twice": 2 * start, "in_part": 3 * start})


def counted(folder: Path) -> Path:
    """Its output reads how often it was called."""
    with drawing() as graph:
        count = variable("count", [])
        y = lstm(placeholder("x"), blob()).output
        with tf.control_dependencies([tf.raw_ops.AssignAdd(ref=count, value=1.0, name="tick")]):
            tf.multiply(y, count, name="scores")
    return saved(folder, graph, {"blob": BLOB, "count": np.float32(3)})


def stateful(folder: Path, *, initial: Any = None, held: bool = True, writes: int = 1) -> Path:
    """State in the variable `h`, written by so many assignments in no order."""
    start = np.array([[[0.25, -0.5], [0.125, 0.75]]], np.float32)
    with drawing() as graph:
        h = variable("h", [1, 2, UNITS])
        if initial is not None:
            tf.raw_ops.Assign(ref=h, value=initial(), name="h/Assign")
        found = tf.raw_ops.CudnnRNN(
            input=placeholder("x"), input_h=tf.identity(h), input_c=tf.zeros([1, 2, UNITS]), params=blob(),
            is_training=False, name="rnn",
        )  # fmt: skip
        stores = [tf.raw_ops.Assign(ref=h, value=found.output_h * (k + 1)).op for k in range(writes)]
        with tf.control_dependencies(stores):
            tf.identity(found.output, "scores")
        tf.identity(lstm(placeholder("z"), variable("other", BLOB.shape), name="second").output, "others")
    values = {"blob": BLOB, "other": BLOB * 2, **({"h": start} if held else {})}
    return saved(folder, graph, values)


def state_that_nothing_holds(folder: Path) -> Path:
    return stateful(folder, initial=lambda: tf.random.uniform([1, 2, UNITS]), held=False)


def state_in_no_order(folder: Path) -> Path:
    return stateful(folder, writes=2)


def states_of_unknown_shape(folder: Path) -> Path:
    with drawing() as graph:
        h = v1.placeholder(tf.float32, None, "h")
        made = tf.raw_ops.CudnnRNN(
            input=placeholder("x"), input_h=h, input_c=h, params=blob(), is_training=False, name="rnn"
        )
        tf.identity(made.output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def size_of_a_table(folder: Path) -> Path:
    """No cut stands before what reads the table."""
    with drawing() as graph:
        made = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, name="table")
        numbers = tf.constant([1, 2], tf.int64)
        tf.raw_ops.InitializeTableV2(table_handle=made, keys=tf.constant(["a", "b"]), values=numbers)
        size = tf.cast(tf.raw_ops.LookupTableSizeV2(table_handle=made), tf.float32)
        tf.multiply(lstm(placeholder("x"), blob()).output, size, name="scores")
    return saved(folder, graph, {"blob": BLOB})


def scaled_parameters(folder: Path) -> Path:
    with drawing() as graph:
        scale = placeholder("scale", [])
        tf.identity(lstm(placeholder("x"), blob() * scale).output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def scaled_input(folder: Path) -> Path:
    with drawing() as graph:
        x = placeholder("x") * placeholder("scale", [])
        tf.identity(lstm(x, blob()).output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def strings(folder: Path) -> Path:
    """Numbers out of the words of an input."""

    def add(y: Any) -> Any:
        words = v1.placeholder(tf.string, [None], "words")
        return tf.multiply(y, tf.cast(tf.reduce_max(tf.strings.length(words)), tf.float32), name="scores")

    return behind(folder, add)


def an_integer(folder: Path) -> Path:
    def add(y: Any) -> Any:
        return tf.multiply(y, tf.cast(placeholder("n", [], tf.int32), tf.float32), name="scores")

    return behind(folder, add)


def guarded(folder: Path) -> Path:
    """Takes large inputs alone."""
    with drawing() as graph:
        x = placeholder("x")
        check = tf.raw_ops.Assert(condition=tf.reduce_all(x > 100.0), data=["too small"])
        with tf.control_dependencies([check]):
            tf.identity(lstm(tf.identity(x) * 1e-2, blob()).output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def acting(folder: Path) -> Path:
    """Writes a file beside itself."""

    def add(y: Any) -> Any:
        path = str(folder / "written")
        with tf.control_dependencies([tf.raw_ops.WriteFile(filename=path, contents="text", name="write")]):
            return tf.identity(y, "scores")

    return behind(folder, add)


def rare(folder: Path) -> Path:
    """Zeros but for large inputs."""
    with drawing() as graph:
        x = placeholder("x")
        y = lstm(x, blob()).output
        tf.multiply(y, tf.cast(tf.reduce_max(x) > 9.0, tf.float32), name="scores")
    return saved(folder, graph, {"blob": BLOB})


def infinite(folder: Path) -> Path:
    """A weight is no number."""
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), blob()).output, "scores")
    values = BLOB.copy()
    values[5] = np.nan
    return saved(folder, graph, {"blob": values})


def of_large_weights(folder: Path) -> Path:
    """A layer behind the recurrence with weights that half does not hold."""
    with drawing() as graph:
        y = lstm(placeholder("x"), blob()).output
        kernel = tf.identity(variable("kernel", [UNITS, 200]))
        tf.tensordot(y, kernel, 1, name="scores")
    return saved(folder, graph, {"blob": BLOB, "kernel": drawn(UNITS, 200) * 1e6})


def of_relu(folder: Path) -> Path:
    """Its recurrence is no LSTM."""
    with drawing() as graph:
        x = placeholder("x")
        zeros = tf.zeros([1, tf.shape(x)[1], UNITS])
        values = of(Mode.RNN_RELU, 1, UNITS, 1, INPUTS)
        made = tf.raw_ops.CudnnRNN(
            input=x, input_h=zeros, input_c=0.0, params=variable("blob", values.shape), rnn_mode="rnn_relu",
            is_training=False, name="rnn",
        )  # fmt: skip
        tf.identity(made.output, "scores")
    return saved(folder, graph, {"blob": values})


def an_op_of_tensorflow(folder: Path) -> Path:
    """What reads the input is known to neither ONNX nor TensorFlow Lite."""
    with drawing() as graph:
        x = tf.raw_ops.Zeta(x=2.0 + tf.square(placeholder("x")), q=tf.constant(1.5), name="zeta")
        tf.identity(lstm(x, blob()).output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def expanding(folder: Path) -> Path:
    """A constant of one value and a large shape."""
    return behind(folder, lambda y: tf.add(y, tf.reduce_max(tf.constant(0.5, shape=[400])), "scores"))


def acting_without_recurrence(folder: Path) -> Path:
    with drawing() as graph:
        path = str(folder / "written")
        with tf.control_dependencies([tf.raw_ops.WriteFile(filename=path, contents="text", name="write")]):
            tf.tanh(placeholder("x") * variable("w", [INPUTS]), "scores")
    return saved(folder, graph, {"w": drawn(INPUTS)})


def trained_in_a_branch(folder: Path) -> Path:
    """Two inputs decide together whether a recurrence of training gives the scores."""
    with drawing() as graph:
        x, params = placeholder("x"), blob()
        taken = tf.logical_and(*(placeholder(name, [], tf.bool) for name in "pq"))
        y = v1.cond(
            taken,
            lambda: lstm(x, params, name="a", training=True).output,
            lambda: lstm(x, params, name="b").output,
        )
        tf.identity(y, "scores")
    return saved(folder, graph, {"blob": BLOB})


def ill_conditioned(folder: Path) -> Path:
    """Rounding makes noise of its output, but where inputs are small."""
    return behind(folder, lambda y: tf.sin(y * 1e6, "scores"))


def updated_aside(folder: Path) -> Path:
    """State whose update no output needs."""
    with drawing() as graph:
        h = variable("h", [1, 2, UNITS])
        found = tf.raw_ops.CudnnRNN(
            input=placeholder("x"), input_h=tf.identity(h), input_c=tf.zeros([1, 2, UNITS]), params=blob(),
            is_training=False, name="rnn",
        )  # fmt: skip
        tf.identity(found.output, "scores")
        tf.raw_ops.Assign(ref=h, value=found.output_h, name="store")
    return saved(folder, graph, {"blob": BLOB, "h": drawn(1, 2, UNITS)})


def in_branches_alone(folder: Path) -> Path:
    """A recurrence of which nothing but a number leaves its branch."""
    with drawing() as graph:
        x, params = placeholder("x"), blob()
        flag = placeholder("flag", [], tf.bool)
        v1.cond(flag, lambda: tf.reduce_sum(lstm(x, params).output), lambda: tf.constant(0.0), name="total")
    return saved(folder, graph, {"blob": BLOB})


def two_tags(folder: Path) -> Path:
    """A SavedModel of two graphs, none of them that of `serve`."""
    (folder / "made").mkdir()
    prefix = plain(folder / "made")
    meta = v1.MetaGraphDef.FromString(Path(f"{prefix}.meta").read_bytes())
    return saved_model(folder / "model", prefix, dict.fromkeys("ab", meta))


def saved_model(folder: Path, prefix: Path, metas: Mapping[str, Any]) -> Path:
    """A SavedModel of graphs by their tags, with the values of a checkpoint, which it takes."""
    found = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    for tag, meta in metas.items():
        added = found.meta_graphs.add()
        added.CopyFrom(meta)
        added.meta_info_def.tags.append(tag)
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(found.SerializeToString())
    for path in prefix.parent.glob(f"{prefix.name}.[di]*"):
        path.rename(folder / "variables" / path.name.replace(prefix.name, "variables"))
    return folder


def served(folder: Path, add: Change, *inputs: str, values: Mapping[str, Any] | None = None) -> Path:
    """A SavedModel of `behind`, whose signature has `x` and `inputs`, as `simple_save` writes it."""
    (folder / "made").mkdir()
    prefix = behind(folder / "made", add, values)
    meta = v1.MetaGraphDef.FromString(Path(f"{prefix}.meta").read_bytes())
    signature = meta.signature_def["serving_default"]
    for name in ("x", *inputs):
        signature.inputs[name].name = f"{name}:0"
    signature.outputs["scores"].name = "scores:0"
    return saved_model(folder / "model", prefix, {"serve": meta})


def served_dropout(folder: Path) -> Path:
    def add(y: Any) -> Any:
        return tf.identity(floor_dropout(y, placeholder("keep_prob", [])), "scores")

    return served(folder, add, "keep_prob")


def served_training_mode(folder: Path) -> Path:
    """Batch normalisation under a flag that is an input of the signature."""

    def add(y: Any) -> Any:
        return tf.identity(normalise(y, -1, placeholder("is_training", [], tf.bool)), "scores")

    return served(folder, add, "is_training", values=values_of("norm", UNITS))


def served_integer(folder: Path) -> Path:
    def add(y: Any) -> Any:
        return tf.multiply(y, tf.cast(placeholder("n", [], tf.int32), tf.float32), name="scores")

    return served(folder, add, "n")


def no_recurrence(folder: Path) -> Path:
    with drawing() as graph:
        tf.constant(1.0, name="one")
    return saved(folder, graph, {"blob": BLOB})


def frozen_plain(folder: Path) -> Path:
    """A frozen graph with neither a cuDNN recurrence nor a variable."""
    made = graph_pb2.GraphDef()
    with tf.Graph().as_default() as graph:
        tf.nn.relu(v1.placeholder(tf.float32, [None, 3], "x"), name="scores")
        made.CopyFrom(graph.as_graph_def())
    (folder / "graph.pb").write_bytes(made.SerializeToString())
    return folder / "graph.pb"


def beside_a_link(folder: Path) -> Path:
    """Its values lie in another folder."""
    prefix = plain(folder)
    (folder / "elsewhere").mkdir()
    data = next(folder.glob("model.ckpt.data*"))
    inner = folder / "inner"
    inner.mkdir()
    for path in folder.glob("model.ckpt.*"):
        path.rename(inner / path.name)
    (inner / data.name).rename(folder / "elsewhere" / data.name)
    (inner / data.name).symlink_to(folder / "elsewhere" / data.name)
    return inner / prefix.name


#: A batch that any of these takes.
X: Final = np.random.default_rng(4).normal(size=(4, 2, INPUTS)).astype(np.float32)


def without_recurrence(folder: Path) -> Path:
    """A frozen graph of ops that run anywhere."""
    with drawing() as graph:
        tf.identity(tf.tanh(placeholder("x")), "scores")
    path = folder / "plain.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def bidirectional(folder: Path) -> Path:
    """A recurrence that needs the end of a sequence first."""
    values = drawn(parameter_blob.length(Sizes(Mode.LSTM, 1, 2, UNITS, INPUTS)))
    with drawing() as graph:
        x = placeholder("x")
        zeros = tf.zeros([2, tf.shape(x)[1], UNITS])
        y = tf.raw_ops.CudnnRNN(
            input=x, input_h=zeros, input_c=zeros, params=variable("blob", values.shape),
            direction="bidirectional", is_training=False, name="rnn",
        ).output  # fmt: skip
        tf.identity(y, "scores")
    return saved(folder, graph, {"blob": values})


def before(folder: Path, change: Change, shape: Any = (None, None, INPUTS)) -> Path:
    """A checkpoint of `x` -> `change` -> recurrence -> `scores`."""
    with drawing() as graph:
        tf.identity(lstm(change(placeholder("x", shape)), blob()).output, "scores")
    return saved(folder, graph, {"blob": BLOB})


def convolved(folder: Path) -> Path:
    """Each step of the recurrence is of three of the input, batch first."""
    kernel = drawn(3, INPUTS, INPUTS)

    def change(x: Any) -> Any:
        return tf.transpose(tf.nn.conv1d(x, kernel, 1, "SAME", name="conv"), [1, 0, 2])

    return before(folder, change)


def fixed_steps(folder: Path) -> Path:
    """A row of a table is added to each of seven steps."""
    table = drawn(7, 1, INPUTS)
    return before(folder, lambda x: x + table, (7, None, INPUTS))


def fixed_input(folder: Path) -> Path:
    """The recurrence reads something that is the same in each call; the input scales what it gives."""
    steady = drawn(5, 2, INPUTS)
    with drawing() as graph:
        y = lstm(tf.constant(steady), blob()).output
        tf.add(tf.reduce_sum(placeholder("x"), 2, keepdims=True), y[0, 0, 0], name="scores")
    return saved(folder, graph, {"blob": BLOB})


def unknown_sizes(folder: Path) -> Path:
    """An input of unknown rank, of which nobody can say where its steps are."""
    return before(folder, lambda x: tf.reshape(x, [-1, 2, INPUTS]), None)


#: Words of the language models below.
WORDS: Final = 9


def language_model(folder: Path, end: Change | None = None, **others: Any) -> Path:
    """A checkpoint of word ids -> rows of a table -> recurrence -> logits, or what `end` makes of `y`.

    `others` are `batch`, the rows that its inputs fix, and `rows`, those of the table.
    """
    batch, rows = others.get("batch"), others.get("rows", WORDS)
    with drawing() as graph:
        ids = placeholder("ids", (None, batch), tf.int32)
        x = tf.gather(variable("table", (rows, INPUTS)), ids)
        zeros = tf.zeros([1, batch or tf.shape(x)[1], UNITS])
        y = tf.raw_ops.CudnnRNN(
            input=x, input_h=zeros, input_c=zeros, params=blob(), is_training=False, name="rnn"
        ).output
        (end or logits_of)(y)
    return saved(folder, graph, {"blob": BLOB, "table": drawn(rows, INPUTS), "out": drawn(UNITS, WORDS) * 9})


def conditioned(folder: Path, *, noise: str = "speaker") -> Path:
    """A language model with lengths, and two inputs more: a vector for each row and one number for all.

    `noise` is what the former is called.
    """
    with drawing() as graph:
        ids, lengths = placeholder("ids", (None, None), tf.int32), placeholder("lengths", (None,), tf.int32)
        x = tf.gather(variable("table", (WORDS, INPUTS)), ids) + placeholder(noise, (None, INPUTS))
        zeros = tf.zeros([1, tf.shape(x)[1], UNITS])
        y = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=zeros, input_c=zeros, params=blob(), sequence_lengths=lengths,
            is_training=False, time_major=True, name="rnn",
        ).output  # fmt: skip
        tf.multiply(logits_of(y, "raw"), placeholder("sharpness", ()), name="logits")
    return saved(folder, graph, {"blob": BLOB, "table": drawn(WORDS, INPUTS), "out": drawn(UNITS, WORDS) * 9})


def logits_of(y: Any, name: str = "logits") -> Any:
    """Logits of the next word, `[time, batch, words]`."""
    return tf.identity(tf.einsum("tbu,uw->tbw", y, variable("out", (UNITS, WORDS))), name)


def shares(folder: Path) -> Path:
    """Numbers of tokens that are at least 0 and do not add up to 1."""
    return language_model(folder, lambda y: tf.sigmoid(logits_of(y, "raw"), "shares"))


def two_heads(folder: Path) -> Path:
    """Two outputs that may be logits."""
    return language_model(folder, lambda y: tf.multiply(logits_of(y, "one"), 3.0, name="other"))


def signal(folder: Path) -> Path:
    """One number a step, which takes no row of a table."""
    with drawing() as graph:
        x = tf.expand_dims(placeholder("x", (None, None)), 2) * tf.constant([[[0.5, 1.0, 2.0]]])
        logits_of(lstm(x, blob()).output)
    return saved(folder, graph, {"blob": BLOB, "out": drawn(UNITS, WORDS)})
