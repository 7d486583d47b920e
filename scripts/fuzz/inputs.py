"""Input number k of a seed: the same bytes every time, whoever makes it and whatever was made before."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import blocks
import drawn_shapes
import examples
import lite
import members
import messages
import ndarrays
import octets
import onnx
import packs
import pickles
import stores
import trees
from google.protobuf import text_format
from google.protobuf.message import DecodeError, EncodeError
from origins import SHAPES, Origin
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.read.arrays import cntk_dictionary

#: How often a file is changed by what it means, not by its bytes alone.
_BY_MEANING = 0.7
#: How often a text of messages goes deeper than a parser of Python.
_DEEP = 0.02
#: What the makers of messages and files raise for a change that they cannot write down.
_UNWRITTEN = (ValueError, TypeError, KeyError, RuntimeError, OSError, AttributeError, OverflowError)
_UNWRITTEN += (DecodeError, EncodeError, RecursionError, text_format.ParseError, IndexError, MemoryError)


#: Sound inputs by the reader that they are for.
Readers = dict[str, list[Origin]]


@dataclass(frozen=True)
class Input:
    """`changed` are the files that differ from the origin's."""

    number: int
    origin: Origin
    changed: Mapping[str, bytes]


def by_reader(origins: Sequence[Origin]) -> Readers:
    """What `made` draws from."""
    found: Readers = {}
    for one in origins:
        found.setdefault(one.reader, []).append(one)
    return found


def reader_of(number: int, readers: Readers) -> str:
    """Whose turn it is."""
    return sorted(readers)[number % len(readers)]


def made(seed: int, number: int, readers: Readers) -> Input:
    """Input `number` of a seed: readers take turns, everything else is drawn."""
    rng = random.Random(f"{seed}/{number}")
    origin = rng.choice(readers[reader_of(number, readers)])
    changed = _changed(rng, origin, [file for one in readers[origin.reader] for file in one.files.values()])
    return Input(number, origin, changed)


def _changed(rng: random.Random, origin: Origin, others: Sequence[bytes]) -> dict[str, bytes]:
    """The files that a mutation makes of an origin's: mostly one of them."""
    if origin.reader == SHAPES:
        return drawn_shapes.files(rng)
    name = rng.choice(_worth(origin))
    data, state = origin.files[name], rng.random()
    if state < _BY_MEANING:
        again = random.Random(rng.random())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _by_meaning(again, origin, name, data)
        except _UNWRITTEN:
            pass
    return {name: octets.mutated(rng, data, others)}


def _worth(origin: Origin) -> list[str]:
    """The files to change: those that say how others are read, more often."""
    plain = [name for name in origin.files if ".data-" in name or "assets" in name]
    telling = [name for name in origin.files if name not in plain]
    return [*telling * 4, *plain]


def _by_meaning(rng: random.Random, origin: Origin, name: str, data: bytes) -> dict[str, bytes]:
    """A mutation of a file by its own structure. Raises ValueError where it has none that is known."""
    if name.endswith(".index"):
        shards = {key: value for key, value in origin.files.items() if f"{name[:-6]}.data-" in key}
        table, more = blocks.index(rng, data, shards)
        return {name: table, **more}
    if origin.reader.startswith("checkpoint V1") and not name.endswith((".meta", "checkpoint")):
        return {name: blocks.v1(rng, data)}
    change = next((one for suffixes, one in _CHANGES.items() if name.endswith(suffixes)), _tree)
    return {name: change(rng, name, data)}


def _tree(rng: random.Random, name: str, data: bytes) -> bytes:
    return trees.mutated(rng, data)


def _member(rng: random.Random, name: str, content: bytes) -> bytes:
    if name.endswith(".h5"):
        return stores.mutated(rng, content) if rng.random() < 0.8 else octets.mutated(rng, content)
    return trees.mutated(rng, content) if rng.random() < 0.8 else octets.mutated(rng, content)


def _message(rng: random.Random, name: str, data: bytes) -> bytes:
    """A message changed and written back, as text where it was text."""
    proto = _kind(name)()
    if name.endswith(".pbtxt"):
        if rng.random() < _DEEP:
            return data + b'node{attr{key:"f"value{func{' * 2000
        text_format.Parse(data, proto)
    else:
        proto.ParseFromString(data)
    messages.mutated(rng, proto)
    if isinstance(proto, onnx.ModelProto) and rng.random() < 0.7:
        told = proto.metadata_props.add()
        told.CopyFrom(proto.metadata_props[0])
        del proto.metadata_props[:-1]
        proto.metadata_props[0].value = trees.mutated(rng, told.value.encode()).decode()
    if name.endswith(".pbtxt"):
        return text_format.MessageToString(proto).encode()
    written: bytes = proto.SerializeToString(deterministic=True)
    return written


def _of_cntk(rng: random.Random, data: bytes) -> bytes:
    """A dictionary of CNTK changed, whose values may stand behind it."""
    size = int.from_bytes(data[4:8], "little") if data.startswith(b"ktnc") else len(data)
    begin = 8 if data.startswith(b"ktnc") else 0
    proto = cntk_dictionary.message_class().FromString(data[begin : begin + size])
    messages.mutated(rng, proto)
    message: bytes = proto.SerializeToString(deterministic=True)
    head = data[:4] + len(message).to_bytes(4, "little") if begin else b""
    return head + message + data[begin + size :]


def _kind(name: str) -> Any:
    if name.endswith(".onnx"):
        return onnx.ModelProto
    if name.endswith(".meta"):
        return meta_graph_pb2.MetaGraphDef
    return saved_model_pb2.SavedModel if "saved_model" in name else graph_pb2.GraphDef


#: Changes the content of a file by what the file is, by how its name ends.
_CHANGES: Mapping[tuple[str, ...], members.Change] = {
    (".meta", ".pb", ".pbtxt", ".onnx"): _message,
    (".h5",): lambda rng, _, data: stores.mutated(rng, data),
    (".tfrecord", ".tfrecord.gz"): examples.mutated,
    (".csv",): examples.rows,
    (".npy",): members.array,
    (".npz",): lambda rng, _, data: members.mutated(rng, data, members.array),
    (".keras",): lambda rng, _, data: members.mutated(rng, data, _member),
    (".tflite",): lambda rng, _, data: lite.mutated(rng, data),
    (".pt",): pickles.mutated,
    (".params",): lambda rng, _, data: ndarrays.mutated(rng, data),
    (".model",): lambda rng, _, data: _of_cntk(rng, data),
    (".safetensors",): lambda rng, _, data: members.safetensors(rng, data),
    (".msgpack",): lambda rng, _, data: packs.mutated(rng, data),
}
