#!/usr/bin/env python3
"""Ask TensorFlow on a GPU: what its cuDNN ops, and the committed models, compute there.

    python scripts/record_tensorflow.py [--only op/ source/ ...] [--out FOLDER] [--artifacts FOLDER]

Needs a CUDA device, TensorFlow 2.21 built for it, tf_keras and Keras 3. Where `scripts/record_cudnn.py` calls
cuDNN itself, this goes through TensorFlow: its CudnnRNN ops with their gradients, its Savers, Keras's layers.
TF32 is off but where a case names it.

Jobs, by the beginning of their names:

    op/        one CudnnRNN, CudnnRNNV2 or CudnnRNNV3: outputs, and gradients where it trains
    source/    a model of tests/data, as it is, on the feeds of its golden.npz. Those of TensorFlow 1 whose
               Saver restores by CudnnRNNCanonicalToParams end the process
    written/   a Keras 3 model exported on this machine: its graph's ops, its answers
    drop_in/   `cudnn_convert.compat`: a graph for a GPU and one for a CPU, trained from the same weights
    artifact/  a converted SavedModel in `--artifacts`, on the feeds of its source; the folder has the
               source's name: `cudnn-convert tests/data/tf1/1.15.5/gru_bi/model.ckpt FOLDER/tf1/1.15.5/gru_bi`
    real/      a published model in `--real`, on random inputs; what those are, `make_real_inputs` says

Every job runs in a worker that writes its result before it starts the next, so that a job which kills the
process is recorded as such and the rest goes on. Written to `--out` (default tests/data/cudnn):

    tensorflow.json     device, versions, date; each job's status, and how far it is from golden.npz
    tensorflow_op.npz, tensorflow_source.npz, ...   the arrays of each kind of job, `<job>/<name>`

What `--only` leaves out stays there as an earlier run recorded it.
Shapes are the ops': x `[T, B, I]` or, batch-major, `[B, T, I]`; states `[L*D, B, H]` or `[B, L*D, H]`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from record_cudnn import GATES, Array, write_json

Arrays = dict[str, Array]

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT / "tests" / "data"
KINDS: Final = ("op", "source", "written", "drop_in", "artifact", "real")
#: Those whose arrays judge something; of the others the differences from golden.npz tell all.
KEPT: Final = ("op", "source", "drop_in", "real")
DIRECTIONS: Final = ("unidirectional", "bidirectional")
STEPS, BATCH, INPUTS, UNITS, PROJECTION = 7, 4, 5, 6, 3
#: One row is as long as the tensor, one is empty; they are in no order.
LENGTHS: Final[Mapping[str, tuple[int, ...]]] = {"ragged": (3, 7, 1, 5), "empty": (3, 7, 0, 5)}
#: A worker that gives no result for so many seconds is stopped.
LONGEST: Final = 90.0


def seeded(name: str) -> np.random.Generator:
    """Random numbers that hang on a name alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


# ---------------------------------------------------------------------------------------------------------
# 1. Ops.


@dataclass(frozen=True)
class Op:
    """One call of a cuDNN op. `cell` is the shape of `input_c`: full, scalar or empty."""

    op: str
    mode: str
    layers: int = 1
    directions: int = 1
    dtype: str = "float32"
    time_major: bool = True
    lengths: str = ""
    zero_states: bool = False
    input_mode: str = "linear_input"
    projection: int = 0
    cell: str = "full"
    dropout: float = 0.0
    training: bool = False
    tf32: bool = False
    after_full: bool = False

    @property
    def name(self) -> str:
        words = [self.op, self.mode, DIRECTIONS[self.directions - 1][:3], f"{self.layers}l", self.dtype]
        words += [word for word, is_so in self._words() if is_so]
        return "op/" + "-".join(words)

    def _words(self) -> tuple[tuple[str, bool], ...]:
        return (
            ("batch_major", not self.time_major),
            (self.lengths, bool(self.lengths)),
            ("zero_states", self.zero_states),
            (self.input_mode, self.input_mode != "linear_input"),
            ("projected", bool(self.projection)),
            (f"{self.cell}_c", self.cell != "full"),
            ("dropout", self.dropout > 0),
            ("training", self.training),
            ("tf32", self.tf32),
            ("after_full", self.after_full),
        )

    @property
    def inputs(self) -> int:
        return INPUTS if self.input_mode == "linear_input" else UNITS

    @property
    def depth(self) -> int:
        return self.layers * self.directions


def list_ops() -> Iterator[Op]:
    """Every mode, direction and depth by each op, and what CudnnRNNV3 alone has.

    Short rows come before full ones of the same sizes: TensorFlow keeps what it set up for a shape.
    """
    for mode, directions, layers in itertools.product(GATES, (1, 2), (1, 2)):
        base = Op("CudnnRNNV3", mode, layers, directions)
        yield replace(base, lengths="ragged")
        yield replace(base, lengths="ragged", training=True)
        yield replace(base, lengths="empty")
        yield replace(base, lengths="ragged", dtype="float64", training=True)
        yield replace(base, lengths="ragged", time_major=False)
        yield replace(base, lengths="empty", time_major=False, zero_states=True)
    for op, mode, layers, directions in itertools.product(
        ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), GATES, (1, 2, 3), (1, 2)
    ):
        yield Op(op, mode, layers, directions)
    for mode, directions in itertools.product(GATES, (1, 2)):
        base = Op("CudnnRNNV3", mode, 2, directions)
        yield replace(base, dtype="float64", training=True)
        yield replace(base, training=True)
        yield replace(base, dtype="float16")
        yield replace(base, tf32=True)
        yield replace(base, dropout=0.5)
        yield replace(base, zero_states=True, time_major=False)
        yield replace(base, time_major=False)
        yield replace(base, input_mode="skip_input")
        yield replace(base, input_mode="auto_select")
        yield replace(base, op="CudnnRNN", input_mode="auto_select")
        yield replace(base, op="CudnnRNNV2", training=True)
        yield replace(base, op="CudnnRNN", training=True)
    for mode in GATES:
        yield Op("CudnnRNNV3", mode, lengths="ragged", after_full=True)
    for mode, cell, op in itertools.product(
        GATES, ("scalar", "empty"), ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")
    ):
        yield Op(op, mode, cell=cell)
    for layers, directions in itertools.product((1, 2), (1, 2)):
        base = Op("CudnnRNNV3", "lstm", layers, directions, projection=PROJECTION)
        yield base
        yield replace(base, dtype="float64")
        yield replace(base, lengths="ragged", time_major=layers == 1)


def run_op(case: Op) -> Arrays:
    """Inputs and outputs of one call, with the gradients of the outputs' weighted sum where it trains."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(case.tf32)
    random = seeded(case.name)
    width = case.projection or UNITS

    def values(*shape: int) -> Array:
        return random.uniform(-0.8, 0.8, shape).astype(case.dtype)

    def state(size: int) -> Array:
        shape = (case.depth, BATCH, size) if case.time_major else (BATCH, case.depth, size)
        return values(*shape) * np.dtype(case.dtype).type(not case.zero_states)

    fed = {
        "x": values(*((STEPS, BATCH) if case.time_major else (BATCH, STEPS)), case.inputs),
        "h": state(width),
        "c": {"full": state(UNITS), "scalar": values(), "empty": values(0)}[case.cell],
        "blob": values(params_size(case)),
    }
    named: dict[str, Any] = {
        "rnn_mode": case.mode,
        "input_mode": case.input_mode,
        "direction": DIRECTIONS[case.directions - 1],
        "dropout": case.dropout,
        "is_training": case.training,
    }
    if case.op == "CudnnRNNV3":
        fed["lengths"] = np.array(LENGTHS.get(case.lengths, (STEPS,) * BATCH), np.int32)
        named |= {
            "sequence_lengths": fed["lengths"],
            "time_major": case.time_major,
            "num_proj": case.projection,
        }
    given = {key: tf.constant(fed[key]) for key in ("x", "h", "c", "blob")}
    if case.after_full:
        named["seed"] = 7  # a kernel that no other case has set up
        full = named | {"sequence_lengths": np.full(BATCH, STEPS, np.int32)}
        tf.raw_ops.CudnnRNNV3(
            input=given["x"], input_h=given["h"], input_c=given["c"], params=given["blob"], **full
        )
    with tf.GradientTape() as tape:
        tape.watch(list(given.values()))
        y, h, c, *_ = getattr(tf.raw_ops, case.op)(
            input=given["x"], input_h=given["h"], input_c=given["c"], params=given["blob"], **named
        )
        outputs = {"y": y, "h_n": h, "c_n": c}
        factors = {key: values(*value.shape) for key, value in outputs.items()}
        loss = tf.add_n([tf.reduce_sum(value * factors[key]) for key, value in outputs.items()])
    arrays = fed | {key: value.numpy() for key, value in outputs.items()}
    if case.training:
        slopes = tape.gradient(loss, given)
        arrays |= {f"{key}_gradient": value for key, value in factors.items()}
        arrays |= {f"d{key}": value.numpy() for key, value in slopes.items() if value is not None}
    return arrays


def params_size(case: Op) -> int:
    """What CudnnRNNParamsSize answers, in elements."""
    import tensorflow as tf

    size = tf.raw_ops.CudnnRNNParamsSize(
        num_layers=case.layers,
        num_units=UNITS,
        input_size=case.inputs,
        T=tf.as_dtype(case.dtype),
        S=tf.int32,
        rnn_mode=case.mode,
        input_mode=case.input_mode,
        direction=DIRECTIONS[case.directions - 1],
        num_proj=case.projection,
    )
    return int(size.numpy().item())


# ---------------------------------------------------------------------------------------------------------
# 2. Models of tests/data, on the feeds of their golden.npz.


def list_sources() -> Iterator[str]:
    """`source/<folder of tests/data>` of each model with answers that holds code of no stranger."""
    for path in sorted(DATA.glob("*/*/*/golden.npz")):
        folder = path.parent.relative_to(DATA)
        if (path.parent / "case.json").exists() and not folder.name.endswith("pwned"):
            yield f"source/{folder}"


def read_golden(folder: Path, *, prefix: str = "") -> list[Arrays]:
    """The arrays of each feed or call, in order."""
    rows: dict[str, Arrays] = {}
    with np.load(folder / "golden.npz") as data:
        for key in data.files:
            if key.startswith(prefix):
                number, _, name = key[len(prefix) :].partition("/")
                rows.setdefault(number, {})[name] = data[key]
    return list(rows.values())


def run_source(folder: Path) -> Arrays:
    """What the model answers here: `<feed>/<output>`, for a SavedModel `<signature>/<feed>/<output>`."""
    case = json.loads((folder / "case.json").read_text())
    if folder.parts[-3] == "keras3_exports":
        return run_signatures(folder, folder / "saved_model", case)
    return run_keras(folder, case) if folder.parts[-3] == "keras" else run_session(folder, case)


def run_session(folder: Path, case: Mapping[str, Any]) -> Arrays:
    """A MetaGraph with its checkpoint, a frozen graph or a SavedModel of TensorFlow 1, in a Session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    if case.get("graphless") or case.get("stateful") or "--weights" in case["flags"]:
        raise NotImplementedError("weights without a graph or a choice of them, state in variables")
    fixed = {}
    for flag, value in zip(case["flags"][::2], case["flags"][1::2], strict=True):
        if flag == "--set":
            name, _, text = value.partition("=")
            fixed[name if ":" in name else f"{name}:0"] = json.loads(text)
    path = folder / str(case.get("source", "model.ckpt"))
    graph_options = v1.GraphOptions(place_pruned_graph=True)
    options = v1.ConfigProto(allow_soft_placement=True, graph_options=graph_options)
    options.gpu_options.allow_growth = True
    arrays = {}
    with tf.Graph().as_default() as graph, v1.Session(config=options) as session:
        if path.is_dir():
            tags = dict(zip(case["flags"][::2], case["flags"][1::2], strict=True)).get("--tag", "serve")
            with without_saveables(path) as loadable:
                v1.saved_model.load(session, tags.split(","), str(loadable))
        elif path.suffix in (".pb", ".pbtxt"):
            read_frozen(path)
        else:
            meta_graph = v1.MetaGraphDef.FromString(Path(f"{path}.meta").read_bytes())
            drop_saveables(meta_graph)
            saver = v1.train.import_meta_graph(meta_graph, clear_devices=True)
            saver.restore(session, str(path))
            session.run(v1.get_collection("table_initializer"))
        for number, row in enumerate(read_golden(folder)):
            names = [key for key in row if key not in case["inputs"]]
            feeds = {key: row[key] for key in case["inputs"]} | fixed
            values = session.run([graph.get_tensor_by_name(name) for name in names], feeds)
            for name, value in zip(names, values, strict=True):
                arrays[f"feed{number}/{name}"] = np.asarray(value)
    return arrays


def drop_saveables(meta_graph: Any) -> None:
    """Names of objects that only TensorFlow 1's contrib can make again; the Saver's ops do without."""
    meta_graph.collection_def.pop("saveable_objects", None)


@contextlib.contextmanager
def without_saveables(path: Path) -> Iterator[Path]:
    """A copy of a SavedModel that TensorFlow 2 loads."""
    from tensorflow.core.protobuf import saved_model_pb2

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "model"
        shutil.copytree(path, copy)
        model = saved_model_pb2.SavedModel.FromString((copy / "saved_model.pb").read_bytes())
        for meta_graph in model.meta_graphs:
            drop_saveables(meta_graph)
        (copy / "saved_model.pb").write_bytes(model.SerializeToString())
        yield copy


def read_frozen(path: Path) -> None:
    """Import a frozen graph into the default graph."""
    import tensorflow as tf
    from google.protobuf import text_format

    graph = tf.compat.v1.GraphDef()
    if path.suffix == ".pb":
        graph.ParseFromString(path.read_bytes())
    else:
        text_format.Parse(path.read_text(), graph)
    tf.import_graph_def(graph, name="")


def run_keras(folder: Path, case: Mapping[str, Any]) -> Arrays:
    """A file of Keras 2, read by tf_keras with its layers for cuDNN."""
    import tensorflow as tf
    import tf_keras
    from tf_keras.src.layers.rnn import cudnn_gru, cudnn_lstm

    layers = {"CuDNNLSTM": cudnn_lstm.CuDNNLSTM, "CuDNNGRU": cudnn_gru.CuDNNGRU}
    path = folder / case["file"]
    tf_keras.saving.get_custom_objects().update(layers)
    if case["architecture"] is None:
        model = tf_keras.models.load_model(path, compile=False)
    else:
        model = tf_keras.models.model_from_json((folder / case["architecture"]).read_text())
        model.load_weights(path)
    arrays = {}
    for number, row in enumerate(read_golden(folder)):
        fed = [tf.constant(row[name]) for name in model.input_names]
        answers = model(fed[0] if len(fed) == 1 else fed, training=False)
        answers = answers if isinstance(answers, list | tuple) else [answers]
        wanted = [name for name in row if name not in model.input_names]
        for name, value in zip(wanted, answers, strict=True):
            arrays[f"feed{number}/{name}"] = value.numpy()
    return arrays


def run_signatures(folder: Path, saved: Path, case: Mapping[str, Any]) -> Arrays:
    """Every signature with answers, of a SavedModel loaded anew for each."""
    import tensorflow as tf

    arrays = {}
    for signature, about in case["signatures"].items():
        if "same_as" in about:
            continue
        model = tf.saved_model.load(str(saved))
        call = model.signatures[signature]
        for number, row in enumerate(read_golden(folder, prefix=f"{signature}/")):
            kinds = call.structured_input_signature[1]
            feeds = {
                name: tf.cast(row[name], spec.dtype) if spec.dtype != tf.string else tf.constant(row[name])
                for name, spec in kinds.items()
            }
            for name, value in call(**feeds).items():
                plain_value = tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
                arrays[f"{signature}/feed{number}/out/{name}"] = plain_value.numpy()
    return arrays


def measure_gap(folder: Path, arrays: Arrays) -> dict[str, Any]:
    """The largest difference from golden.npz, the largest number there, and how many integers differ."""
    with np.load(folder / "golden.npz") as data:
        golden = {key.replace("/call", "/feed"): data[key] for key in data.files}
    gap, largest, unequal = 0.0, 0.0, 0
    for key, value in arrays.items():
        expected = golden[key]
        if value.shape != expected.shape:
            return {"shapes": [key, list(value.shape), list(expected.shape)]}
        if expected.dtype.kind in "fc":
            differences = np.abs(value.astype(np.float64) - expected.astype(np.float64))
            gap = max(gap, float(differences.max(initial=0.0)))
            largest = max(largest, float(np.abs(expected).max(initial=0.0)))
        else:
            unequal += int((value.astype(expected.dtype) != expected).sum())
    return {"gap": gap, "largest": largest, "unequal": unequal, "compared": len(arrays)}


# ---------------------------------------------------------------------------------------------------------
# 3. What is written here.


def list_written() -> Iterator[str]:
    """Cases of scripts/keras3_exports that an export on this machine is made of."""
    for folder in sorted((DATA / "keras3_exports" / "keras-3.15.1").iterdir()):
        if folder.name not in ("raw_ops", "archive"):
            yield f"written/{folder.name}"


def run_written(name: str) -> tuple[Arrays, dict[str, Any]]:
    """Export a case's model here: its answers, its nodes, and how both differ from the fixture's."""
    import keras

    sys.path.insert(0, str(ROOT / "scripts"))
    import make_keras3_exports as making
    from keras3_exports import record

    (build,) = [each for each in making.CASES["keras-3.15.1"] if each.__name__ == name]
    folder = DATA / "keras3_exports" / "keras-3.15.1" / name
    with record.in_empty_folder():
        keras.utils.set_random_seed(0)
        case = record.prepared(keras, build)
        saved = Path("saved").resolve()
        record.export(case, saved)
        arrays = run_signatures(folder, saved, json.loads((folder / "case.json").read_text()))
        nodes = count_nodes(saved), count_nodes(folder / "saved_model")
    return arrays, {"gap": measure_gap(folder, arrays), "nodes": nodes[0], "same_nodes": nodes[0] == nodes[1]}


def count_nodes(saved: Path) -> dict[str, int]:
    """How often each op stands in a SavedModel's graph and functions."""
    from tensorflow.core.protobuf import saved_model_pb2

    graph = (
        saved_model_pb2.SavedModel.FromString((saved / "saved_model.pb").read_bytes())
        .meta_graphs[0]
        .graph_def
    )
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    return dict(sorted(Counter(node.op for nodes in bodies for node in nodes).items()))


# ---------------------------------------------------------------------------------------------------------
# 4. The drop-in.


def list_drop_ins() -> Iterator[str]:
    for mode, directions, layers in itertools.product(GATES, (1, 2), (1, 2)):
        name = f"drop_in/{mode}-{DIRECTIONS[directions - 1][:3]}-{layers}l"
        yield name
        if directions == layers:
            yield f"{name}-lengths"
            yield f"{name}-batch_major"
            yield f"{name}-batch_major-lengths"


def run_drop_in(name: str) -> tuple[Arrays, dict[str, Any]]:
    """Train a GPU's graph and a CPU's from the same weights; how far they are from each other."""
    gpu, cpu = (train_drop_in(name, device) for device in ("GPU", "CPU"))
    gap = max(float(np.abs(gpu[key] - cpu[key]).max()) for key in gpu)
    arrays = {
        f"{device}/{key}": value
        for device, each in (("GPU", gpu), ("CPU", cpu))
        for key, value in each.items()
    }
    return arrays, {"gap": gap, "losses": [float(gpu["losses"][step]) for step in (0, -1)]}


def train_drop_in(name: str, device: str) -> Arrays:
    """Losses of 20 steps of Adam, then outputs and states, of the graph for a device.

    Where there are lengths, steps with full rows and with shorter ones follow each other.
    """
    import tensorflow as tf

    from cudnn_convert.compat import branches, cudnn_rnn

    v1 = tf.compat.v1
    mode, direction, depth, *words = name.partition("/")[2].split("-")
    time_major = "batch_major" not in words
    layer_of = {
        "lstm": cudnn_rnn.CudnnLSTM,
        "gru": cudnn_rnn.CudnnGRU,
        "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
        "rnn_relu": cudnn_rnn.CudnnRNNRelu,
    }
    random = seeded(name)
    rows = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    x = random.normal(size=(*rows, INPUTS)).astype(np.float32)
    directions = 1 + ("uni", "bid").index(direction)
    pseudo_layers = int(depth[0]) * directions
    state = (pseudo_layers, BATCH, UNITS) if time_major else (BATCH, pseudo_layers, UNITS)
    options = v1.ConfigProto(allow_soft_placement=True)
    options.gpu_options.allow_growth = True
    with tf.Graph().as_default(), v1.Session(config=options) as session:
        lengths = v1.placeholder_with_default(np.full(BATCH, STEPS, np.int32), [BATCH])
        with branches.build_for(device):
            layer = layer_of[mode](int(depth[0]), UNITS, direction=DIRECTIONS[directions - 1])
            y, states = layer(
                tf.constant(x),
                sequence_lengths=lengths if "lengths" in words else None,
                time_major=time_major,
                training=True,
            )
            shapes = [(*rows, directions * UNITS), *(state for _ in states)]
            loss = tf.add_n(
                tf.reduce_mean(
                    tf.square(value - seeded(f"{name}/{number}").normal(size=shape).astype(np.float32))
                )
                for number, (value, shape) in enumerate(zip([y, *states], shapes, strict=True))
            )
            update = v1.train.AdamOptimizer(0.02).minimize(loss)
        session.run(v1.global_variables_initializer())
        for variable in v1.trainable_variables():
            shape = [int(size) for size in session.run(tf.shape(variable))]
            session.run(variable.assign(random.uniform(-0.5, 0.5, shape).astype(np.float32)))
        feeds = [{}, {lengths: LENGTHS["ragged"]}] * 10
        losses = [session.run([loss, update], fed)[0] for fed in feeds]
        outputs = session.run([y, *states], feeds[1])
        return {"losses": np.array(losses)} | {f"output{k}": value for k, value in enumerate(outputs)}


# ---------------------------------------------------------------------------------------------------------
# 5. Converted models on a machine with a GPU.


def run_artifact(folder: Path, saved: Path) -> Arrays:
    """A converted SavedModel of a TensorFlow 1 source, on the source's feeds."""
    import tensorflow as tf

    names = json.loads((saved / "assets.extra" / "cudnn_convert.json").read_text())
    call = tf.saved_model.load(str(saved)).signatures["serving_default"]
    specs = call.structured_input_signature[1]
    arrays = {}
    for number, row in enumerate(read_golden(folder)):
        feeds = {key: tf.constant(row[names["inputs"][key]]) for key in specs}
        for key, value in call(**feeds).items():
            name = names["outputs"][key]
            if name in row:
                arrays[f"feed{number}/{name}"] = value.numpy()
    return arrays


# ---------------------------------------------------------------------------------------------------------
# 6. Published models.


def list_real(real: Path) -> Iterator[str]:
    for path in sorted(real.glob("*/*.hdf5")):
        yield f"real/{path.relative_to(real)}"


def make_real_inputs(job: str, shape: Sequence[int]) -> Array:
    """float32 of [0, 1), seeded by the job's name: what the published models were made for."""
    return seeded(job).random(tuple(shape), dtype=np.float32)


def run_real(job: str, path: Path) -> Arrays:
    """The model's outputs; for weights without a model, those of its two recurrent layers in a row."""
    import tensorflow as tf
    import tf_keras
    from tf_keras.src.layers.rnn import cudnn_gru, cudnn_lstm

    tf_keras.saving.get_custom_objects().update(CuDNNLSTM=cudnn_lstm.CuDNNLSTM, CuDNNGRU=cudnn_gru.CuDNNGRU)
    if path.parent.name == "textgenrnn":
        import h5py

        y = tf.constant(make_real_inputs(job, (2, 40, 100)))
        with h5py.File(path) as file:
            for name in ("rnn_1", "rnn_2"):
                group = file[name] if name in file else file["model_weights"][name]
                names = [n.decode() for n in group.attrs["weight_names"]]
                layer = cudnn_lstm.CuDNNLSTM(128, return_sequences=True)
                layer.build(y.shape)
                layer.set_weights([group[n][()] for n in names])
                y = layer(y)
        return {"y": y.numpy()}
    model = tf_keras.models.load_model(path, compile=False)
    if path.parent.name == "dot-res-lstm":
        with np.load(path.parent / "validation_210.npz") as data:
            by_width = {data[key].shape[-1]: data[key].astype(np.float32) for key in ("xs", "xf")}
        fed = [tf.constant(by_width[int(each.shape[-1])]) for each in model.inputs]
    else:
        fed = [tf.constant(make_real_inputs(job, (1, *map(int, model.inputs[0].shape[1:]))))]
    return {"y": model(fed if len(fed) > 1 else fed[0], training=False).numpy()}


# ---------------------------------------------------------------------------------------------------------
# 7. Jobs, workers, files.


def list_jobs(artifacts: Path | None, real: Path | None) -> list[str]:
    """The names of all jobs, in the order in which they run."""
    jobs = [case.name for case in list_ops()]
    jobs += [*list_sources(), *list_written(), *list_drop_ins()]
    if artifacts:
        jobs += [f"artifact/{path.relative_to(artifacts)}" for path in sorted(artifacts.glob("*/*/*"))]
    if real:
        jobs += list_real(real)
    return jobs


def run_job(job: str, artifacts: Path | None, real: Path | None) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a job, and what its summary has of it."""
    kind, _, name = job.partition("/")
    if kind == "op":
        case = next(case for case in list_ops() if case.name == job)
        return run_op(case), asdict(case)
    if kind == "source":
        arrays = run_source(DATA / name)
        return arrays, measure_gap(DATA / name, arrays)
    if kind == "artifact":
        assert artifacts
        arrays = run_artifact(DATA / name, artifacts / name)
        return arrays, measure_gap(DATA / name, arrays)
    if kind == "real":
        assert real
        return run_real(job, real / name), {}
    return run_written(name) if kind == "written" else run_drop_in(job)


def work(folder: Path, jobs: Sequence[str], artifacts: Path | None, real: Path | None) -> None:
    """Run jobs in this process; `<number>.json` and .npz are written before the next begins."""
    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    write_json(folder / "about.json", describe())
    for number, job in enumerate(jobs):
        start = time.monotonic()
        result: dict[str, Any] = {"status": "ok"}
        try:
            tf.config.experimental.enable_tensor_float_32_execution(False)
            arrays, about = run_job(job, artifacts, real)
            np.savez(folder / f"{number}.npz", **{key: plain(value) for key, value in arrays.items()})
            result["about"] = about
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its result
            result["status"] = f"{type(error).__name__}: {error}"[:400]
        write_json(folder / f"{number}.json", result | {"seconds": round(time.monotonic() - start, 2)})


def plain(value: Array) -> Array:
    """Strings as bytes: TensorFlow gives them as objects, which only a pickle could hold."""
    return value.astype(bytes) if value.dtype == object else value


def describe() -> dict[str, Any]:
    """Device, versions, date. Raises SystemExit without a device."""
    import keras
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        raise SystemExit("TensorFlow sees no GPU")
    details = tf.config.experimental.get_device_details(devices[0])
    return {
        "source": "TensorFlow on a device",
        "device": details.get("device_name"),
        "compute_capability": ".".join(map(str, details.get("compute_capability", ()))),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "build": {key: str(value) for key, value in tf.sysconfig.get_build_info().items()},
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def run_workers(
    jobs: list[str], folders: Sequence[str], seconds: float
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Arrays]]:
    """What ran on which machine, each job's result and each kind's arrays."""
    about: dict[str, Any] = {}
    results: dict[str, Any] = {}
    arrays: dict[str, Arrays] = {kind: {} for kind in KINDS}
    end = time.monotonic() + seconds
    while jobs and time.monotonic() < end:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "jobs").write_text(json.dumps(jobs))
            command = [sys.executable, __file__, "--worker", str(folder), *folders]
            how = watch(subprocess.Popen(command), folder, end)
            if not (folder / "about.json").exists():
                raise SystemExit(f"no worker could start: it {how}")
            about = json.loads((folder / "about.json").read_text())
            done = 0
            for number, job in enumerate(jobs):
                path = folder / f"{number}.json"
                if not path.exists():
                    break
                done += 1
                results[job] = json.loads(path.read_text())
                if path.with_suffix(".npz").exists():
                    with np.load(path.with_suffix(".npz")) as data:
                        arrays[job.partition("/")[0]] |= {f"{job}/{key}": data[key] for key in data.files}
        jobs = jobs[done:]
        if jobs and time.monotonic() < end:
            results[jobs[0]] = {"status": f"the process {how}"}
            jobs = jobs[1:]
    return about, results | {job: {"status": "not run"} for job in jobs}, arrays


def save_arrays(path: Path, arrays: Arrays, jobs: Sequence[str]) -> None:
    """Write the arrays of one kind; those of jobs that did not run stay."""
    kept: Arrays = {}
    if path.exists():
        ran = tuple(f"{job}/" for job in jobs)
        with np.load(path) as data:
            kept = {key: data[key] for key in data.files if not key.startswith(ran)}
    if kept | arrays:
        np.savez_compressed(path, **kept | arrays)


def watch(process: subprocess.Popen[bytes], folder: Path, end: float) -> str:
    """Wait for a worker, and stop it where it no longer gets ahead. How it ended, in words."""
    moved, done = time.monotonic(), 0
    while process.poll() is None:
        time.sleep(0.2)
        now, results = time.monotonic(), len(list(folder.glob("*.json")))
        if results != done:
            moved, done = now, results
        if now > end or now - moved > LONGEST:
            process.kill()
            process.wait()
            return "was stopped"
    return f"ended with code {process.returncode}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=DATA / "cudnn", help="folder for the recordings")
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of the names of jobs")
    parser.add_argument("--artifacts", type=Path, help="folder of converted SavedModels")
    parser.add_argument("--real", type=Path, help="folder of published models")
    parser.add_argument("--seconds", type=float, default=300.0, help="time for all jobs together")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    if flags.worker:
        work(flags.worker, json.loads((flags.worker / "jobs").read_text()), flags.artifacts, flags.real)
        return
    jobs = [job for job in list_jobs(flags.artifacts, flags.real) if job.startswith(tuple(flags.only))]
    pairs = (("--artifacts", flags.artifacts), ("--real", flags.real))
    folders = [word for flag, path in pairs if path for word in (flag, str(path))]
    about, results, arrays = run_workers(jobs, folders, flags.seconds)
    flags.out.mkdir(parents=True, exist_ok=True)
    summary = flags.out / "tensorflow.json"
    before = json.loads(summary.read_text())["jobs"] if summary.exists() else {}
    summary.write_text(json.dumps(about | {"jobs": before | results}, indent=1) + "\n")
    for kind, each in arrays.items():
        if kind in KEPT:
            save_arrays(flags.out / f"tensorflow_{kind}.npz", each, jobs)
    print(json.dumps(about, indent=1))
    for kind in KINDS:
        of_kind = {job: result for job, result in results.items() if job.startswith(f"{kind}/")}
        failed = {job: result["status"] for job, result in of_kind.items() if result["status"] != "ok"}
        print(f"{kind}: {len(of_kind) - len(failed)} of {len(of_kind)} ran")
        for job, status in failed.items():
            print(f"  {job}: {status}")


if __name__ == "__main__":
    main()
