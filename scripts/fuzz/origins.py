"""The sound files that inputs are made from: the smallest of each kind of tests/data, and artifacts."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import examples
import h5py
import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert import convert
from cudnn_convert.storage import RECORD

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
TF1 = DATA / "tf1" / "1.15.5"
TORCH = DATA / "arrays" / "torch"
KERAS = DATA / "keras"
EXPORTS = DATA / "keras3_exports"
FLAX = DATA / "arrays" / "flax"
MXNET, CNTK = DATA / "arrays" / "mxnet", DATA / "arrays" / "cntk"
#: Weights without a graph: the source of every artifact, for it is planned in a millisecond.
SOURCE = TF1 / "keras_weights_lstm" / "model.ckpt"
RECORDING = DATA / "recordings" / "params_lstm_bi-1.4.1.npz"
#: The source of the recording, and what was asked of it.
RECORDED = DATA / "tf1" / "1.3.0" / "params_lstm_bi" / "model.ckpt"
RECORDED_ENDS = {"inputs": ("c:0", "h:0", "x:0"), "outputs": ("rnn_out:0", "state_h:0", "state_c:0")}

#: Checkpoints that are made anew each time, and converted by the command that `inspect` prints.
SHAPES = "checkpoint of any shapes"
#: The readers of what has to be made first.
_OF_ARTIFACTS = ("artifact", "artifact arrays", "artifact record", "verify frozen", "verify SavedModel")
_OF_ARTIFACTS += ("arrays, npz", "arrays, safetensors")
_OF_ARTIFACTS += ("verify checkpoint", "verify tflite", "verify archive", "verify HDF5")


@dataclass(frozen=True)
class Origin:
    """A sound input: `files` by their paths in its folder, of which `entry` is given to what `look` names.

    A checkpoint's `entry` is no file, but its prefix.
    """

    reader: str
    entry: str
    files: Mapping[str, bytes]
    look: str = "source"


def origins(only: str = "") -> list[Origin]:
    """All of them, or those of the readers with `only` in their names; always in the same order."""
    found = recorded()
    if any(only in kind for kind in _OF_ARTIFACTS):
        found += _artifacts()
    return [one for one in found if only in one.reader]


def recorded() -> list[Origin]:
    """Those that lie in tests/data as they are."""
    return [*_checkpoints(), *_graphs(), *_keras(), *_arrays(), *_mxnet(), *_cntk(), *_given()]


def _folder(path: Path, unwanted: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The files of a fixture, without its answers."""
    ours = {"golden.npz", "case.json", *unwanted}
    return {
        one.relative_to(path).as_posix(): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file() and one.name not in ours
    }


def _checkpoints() -> Iterator[Origin]:
    for name in ("object_lstm_1l", "keras_weights_lstm", "keras_weights_gru_bi"):
        yield Origin("checkpoint V2", "model.ckpt", _folder(TF1 / name))
    for name in ("raw_only", "v3_batch_major", "two_layers"):
        yield Origin("checkpoint V2", "model.ckpt", _folder(TF1 / name, ("model.ckpt.meta",)))
    for name in ("op_skip_relu", "op_auto_gru", "op_proj_lstm", "block_fused_lengths", "v3_batch_major"):
        yield Origin("checkpoint V2, .meta", "model.ckpt", _folder(TF1 / name))
    for name in ("state_lstm", "while_rows", "resource_vars", "moving_average"):
        yield Origin("checkpoint V2, .meta", "model.ckpt", _folder(TF1 / name))
    for name in ("checkpoint_v1", "checkpoint_v1_sharded"):
        whole = _folder(TF1 / name)
        yield Origin("checkpoint V1", "model.ckpt", {k: v for k, v in whole.items() if k[-5:] != ".meta"})
        yield Origin("checkpoint V1, .meta", "model.ckpt", whole)
    yield Origin("checkpoint partitioned", "model.ckpt", _folder(TF1 / "partitioned"))
    yield Origin("checkpoint partitioned", "model.ckpt", _folder(TF1 / "checkpoint_sharded"))
    yield Origin(SHAPES, "model.ckpt", _folder(TF1 / "keras_weights_lstm"), "command")
    named = {"checkpoint": b'model_checkpoint_path: "model.ckpt"\nall_model_checkpoint_paths: "model.ckpt"\n'}
    yield Origin("checkpoint folder", ".", _folder(TF1 / "object_lstm_1l") | named)


def _graphs() -> Iterator[Origin]:
    yield Origin("frozen graph", "frozen.pb", _folder(TF1 / "frozen_binary"))
    yield Origin("frozen graph, text", "frozen.pbtxt", _folder(TF1 / "frozen_text"))
    words = _folder(TF1 / "saved_model_words" / "model")
    yield Origin("SavedModel 1", ".", words)
    yield Origin("SavedModel 1", ".", _folder(TF1 / "saved_model_tags" / "model"))
    saved = saved_model_pb2.SavedModel.FromString(words.pop("saved_model.pb"))
    saved.meta_graphs[0].meta_info_def.ClearField("stripped_op_list")  # half of it, and read by nobody
    text = text_format.MessageToString(saved).encode()
    yield Origin("SavedModel 1, text", ".", words | {"saved_model.pbtxt": text})
    for name in ("gru", "lstm", "raw_ops", "stateful"):
        yield Origin("SavedModel 2", ".", _folder(EXPORTS / "keras-3.15.1" / name / "saved_model"))


def _keras() -> Iterator[Origin]:
    wholes = ["keras-2.2.4/sequential_lstm", "tf.keras-1.15.5/siamese", "tf_keras-2.21.0/stateful_lstm"]
    wholes += ["keras-2.2.4/compiled", "tf.keras-1.15.5/bidirectional", "keras-2.2.4/nested"]
    wholes += ["keras-2.2.4/lambda_pwned", "tf_keras-2.21.0/encoder_decoder", "keras-2.2.4/chunked_names"]
    for name in wholes:
        yield Origin("HDF5 model", "model.h5", _only(KERAS / name / "model.h5"))
    for path in ("weights_sequential/weights.h5", "weights_without_zero/weights.h5"):
        yield Origin("HDF5 weights", "weights.h5", _only(KERAS / "keras-2.2.4" / path))
    yield Origin(
        "HDF5 weights", "model.weights.h5", _only(KERAS / "tf_keras-2.21.0/weights_format_3/model.weights.h5")
    )
    for name in ("archive_pwned", "archive_siamese", "archive_bidirectional"):
        yield Origin(
            "archive of tf_keras", "model.keras", _only(KERAS / "tf_keras-2.21.0" / name / "model.keras")
        )
    for version in ("3.3.3", "3.15.1"):
        path = EXPORTS / f"keras-{version}" / "archive" / "gpu_archive.keras"
        yield Origin("archive of Keras 3", path.name, _only(path))
    folder = KERAS / "keras-2.2.4" / "weights_functional"
    told = {"weights.h5": (folder / "weights.h5").read_bytes()}
    for name in ("weights_functional", "weights_sequential"):
        config = (KERAS / "keras-2.2.4" / name / "model.json").read_bytes()
        yield Origin("architecture", "weights.h5", told | {"model.json": config}, "architecture")


def _only(path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes()}


def _arrays() -> Iterator[Origin]:
    """Weights of other frameworks, the smallest of each kind of file, and one that this tool wrote."""
    for name in (
        "state_dict.pt",
        "checkpoint.pt",
        "lightning.ckpt",
        "parameters_with_state.pt",
        "strided.pt",
    ):
        yield Origin("PyTorch file", "a.pt", {"a.pt": (TORCH / "containers" / name).read_bytes()})
    for name in ("module.pt", "script.pt", "legacy.pt"):
        yield Origin("PyTorch file, refused", "a.pt", {"a.pt": (TORCH / "containers" / name).read_bytes()})
    for kind in ("npz", "safetensors"):
        for name in ("lstm_bi_2l", "gru_2l"):
            path = TORCH / name / f"weights.{kind}"
            yield Origin(f"arrays, {kind}", path.name, _only(path))
    with np.load(TORCH / "lstm_cell" / "weights.npz") as cell:
        folder = {f"{key}.npy": _array(cell[key]) for key in cell.files}
    yield Origin("arrays, npy", ".", folder)
    yield Origin("arrays, npy", "blob.npy", {"blob.npy": _array(np.arange(312, dtype=np.float32))})
    for name in ("lstm_bi/kinds.msgpack", "lstm_bi/chunked.msgpack", "lstm_2l/train_state.msgpack"):
        yield Origin("Flax file", "a.msgpack", {"a.msgpack": (FLAX / name).read_bytes()})


def _array(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


def _mxnet() -> Iterator[Origin]:
    for path in ("lstm/saved", "lstm_projection/saved", "formats/v2", "cells_lstm_bidirectional/saved"):
        yield Origin("MXNet parameters", "a.params", {"a.params": (MXNET / f"{path}.params").read_bytes()})
    for path in ("formats/v1", "formats/legacy", "formats/v3", "fused_gru/unpacked-0001"):
        yield Origin("MXNet parameters", "a.params", {"a.params": (MXNET / f"{path}.params").read_bytes()})
    for case, name, epoch in (("net", "exported", "0000"), ("fused_lstm", "packed", "0001")):
        yield _with_symbol(MXNET / case, name, epoch)
    yield _with_symbol(MXNET / "symbol_cells", "packed", "0001")


def _with_symbol(folder: Path, name: str, epoch: str) -> Origin:
    names = {f"{name}-{epoch}.params", f"{name}-symbol.json"}
    files = {file: (folder / file).read_bytes() for file in sorted(names)}
    return Origin("MXNet parameters, symbol", f"{name}-{epoch}.params", files)


def _cntk() -> Iterator[Origin]:
    for path in ("net/saved", "formats/split", "formats/float16", "lstm_float64/saved", "formats/frozen"):
        yield Origin("CNTK", "a.model", {"a.model": (CNTK / f"{path}.model").read_bytes()})


def _given() -> Iterator[Origin]:
    yield Origin("recording", "recording.npz", {"recording.npz": RECORDING.read_bytes()}, "recording")
    feeds = io.BytesIO()
    np.savez(feeds, **{f"feed{k}/inputs": np.full((2, 3 + k, 4), k, np.float32) for k in range(2)})
    yield Origin("data", "data.npz", {"data.npz": feeds.getvalue()}, "data")
    yield from _examples()


#: What examples have, for each kind of file.
FEATURES = {
    "records": "x=float32[?,2],n=lengths:x,ids=int32[3],bits=bits[9]/2,image=bytes:uint8[2,2],word=string[]",
    "csv": "x=float32[?,2],n=lengths:x,ids=int32[3],word=string[]",
    "parquet": "x=float32[?,2],n=lengths:x,ids=int32[3],image=bytes:uint8[2,2],word=string[]",
    "npy": "",
}


def _examples() -> Iterator[Origin]:
    """The same seven examples as records, tables and arrays."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = [
        {
            "x": rng.normal(size=2 * (k % 4)).astype(np.float32).tolist(),
            "ids": rng.integers(-9, 9, 3).tolist(),
            "bits": [rng.bytes(2)],
            "image": [rng.bytes(4)],
            "word": [b"w%d" % k],
        }
        for k in range(7)
    ]
    whole = b"".join(examples.record(_example(row)) for row in rows)
    yield Origin("data of records", "a.tfrecord", {"a.tfrecord": whole}, "records")
    zipped = {"a.tfrecord.gz": gzip.compress(whole, mtime=0)}
    yield Origin("data of records, gzip", "a.tfrecord.gz", zipped, "shards")
    cells = (
        ",".join((" ".join(map(str, row["x"])), " ".join(map(str, row["ids"])), f"w{k}"))
        for k, row in enumerate(rows)
    )
    yield Origin("data of CSV", "a.csv", {"a.csv": "\n".join(["x,ids,word", *cells]).encode()}, "csv")
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        from pyarrow import parquet

        table = io.BytesIO()
        columns = {key: [row[key] for row in rows] for key in ("x", "ids")}
        columns |= {key: [row[key][0] for row in rows] for key in ("image", "word")}
        parquet.write_table(pyarrow.table(columns), table)
        yield Origin("data of Parquet", "a.parquet", {"a.parquet": table.getvalue()}, "parquet")
    else:
        print("Parquet is left out; install it: pip install 'cudnn-convert[parquet]'", file=sys.stderr)
    array = _array(rng.normal(size=(7, 3, 2)).astype(np.float32))
    yield Origin("data of NumPy", "x.npy", {"x.npy": array}, "npy")


def _example(row: Mapping[str, Any]) -> bytes:
    example = tf.train.Example()
    for key, values in row.items():
        feature = example.features.feature[key]
        kind = {float: feature.float_list, int: feature.int64_list, bytes: feature.bytes_list}
        kind[type(values[0]) if values else float].value.extend(values)
    return example.SerializeToString(deterministic=True)


def _artifacts() -> list[Origin]:
    """What a conversion writes; made in a child, for TensorFlow may not have run anything before a fork."""
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        _in_child(lambda: _make(folder))
        found = [
            Origin(f"arrays, {kind}", f"model.{kind}", _only(folder / f"model.{kind}"))
            for kind in ("npz", "safetensors")
        ]
        found += [
            Origin("artifact arrays", f"model.{kind}", _only(folder / f"model.{kind}"), "arrays")
            for kind in ("npz", "safetensors")
        ]
        for kind in ("onnx", "tflite", "h5", "keras"):
            found.append(Origin("artifact", f"model.{kind}", _only(folder / f"model.{kind}"), "artifact"))
        found.append(Origin("artifact record", ".", _folder(folder / "out"), "artifact"))
        found.append(Origin("verify frozen", ".", _folder(folder / "out"), "verified"))
        found.append(Origin("verify SavedModel", ".", _folder(folder / "saved"), "verified"))
        found.append(Origin("verify checkpoint", ".", _folder(folder / "checkpoint"), "verified"))
        found.append(Origin("verify tflite", "model.tflite", _only(folder / "model.tflite"), "verified"))
    archive = EXPORTS / "keras-3.15.1" / "archive" / "gpu_archive.keras"
    found.append(Origin("verify archive", archive.name, _only(archive), "verified"))
    for name in ("tf_keras-2.21.0/stateful_lstm", "keras-2.2.4/compiled"):
        found.append(Origin("verify HDF5", "model.h5", _only(KERAS / name / "model.h5"), "verified"))
    return found


def _make(folder: Path) -> None:
    """One of each kind; the files of Keras only have to carry a provenance."""
    for kind in ("npz", "safetensors", "onnx", "tflite"):
        convert(SOURCE, folder / f"model.{kind}", format=kind, verify=False)
    for name, kind in (("out", "frozen"), ("saved", "savedmodel"), ("checkpoint", "checkpoint")):
        convert(SOURCE, folder / name, format=kind, verify=False)
    record = json.loads((folder / "out" / RECORD).read_text())
    with h5py.File(folder / "model.h5", "w") as file:
        file.attrs["cudnn_convert"] = json.dumps(record)
    with zipfile.ZipFile(folder / "model.keras", "w") as archive:
        archive.writestr(zipfile.ZipInfo("metadata.json"), json.dumps({"cudnn_convert": record}))


def _in_child(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("no artifacts could be made")
