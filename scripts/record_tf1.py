"""Records what a model answers where it was trained. Needs TensorFlow 1.x and NumPy, and nothing else.

    python record_tf1.py SOURCE --data feeds.npz --out golden.npz --inputs x=x:0 --outputs y=logits:0

Copy this one file to the machine with the GPU. SOURCE is the prefix of a checkpoint with its `.meta`, a frozen
graph (`.pb`) or the folder of a SavedModel; it runs as it is, in one session. `feeds.npz` holds an array for
each input, by its key; or those of several calls, as `feed0/KEY`, `feed1/KEY`, which run in this order, each
finding what the last one left in variables. Without --inputs the keys of `feeds.npz` are tensor names, unless
the source has a signature. `cudnn-convert SOURCE OUT --no-verify`, on any machine, prints the --inputs,
--outputs and --set that fit a model. Then, anywhere:

    cudnn-convert verify SOURCE OUT --golden golden.npz

golden.npz: `feed<k>/in/<key>`, `feed<k>/out/<key>`, and `meta`, JSON in UTF-8 as an array of uint8.
Written for Python 2.7 and 3.5 and later, TensorFlow 1.4 to 1.15.
"""
from __future__ import absolute_import, division, print_function

import argparse
import fnmatch
import json
import logging
import os
import platform
import re
import sys
import tempfile
import warnings
import zipfile

if __name__ == "__main__":  # before TensorFlow says anything
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.core.framework import graph_pb2, variable_pb2
from tensorflow.python.client import device_lib
from tensorflow.python.framework import importer, tensor_shape
from tensorflow.python.ops import gen_resource_variable_ops

FORMAT, VERSION = "cudnn_convert recording", 1
DEFAULT_SIGNATURE, INIT_OP = "serving_default", "__saved_model_init_op"
NO_KERNEL = re.compile(r"No OpKernel was registered to support Op '(\w+)'")
#: Where these say 1, float32 is computed with the rounding of half, which is that of TF32 (NVIDIA's TensorFlow guide).
TENSOR_OPS = ("TF_ENABLE_CUDNN_RNN_TENSOR_OP_MATH_FP32", "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32",
              "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32")


class Refusal(Exception):
    """One line: where, what was expected, what was found, what to do."""


class Source(object):
    """A graph, and what gives it its values: `restore` is (op, tensor of the file name, prefix) or None."""

    def __init__(self, graph_def, meta=None, prefix=None, assets=None):
        self.graph_def, self.meta, self.prefix, self.assets = graph_def, meta, prefix, assets or {}

    @property
    def stripped_ops(self):
        """The ops whose defaults an older TensorFlow may drop; None where the file does not say."""
        known = self.meta is not None and self.meta.meta_info_def.HasField("stripped_op_list")
        return self.meta.meta_info_def.stripped_op_list if known else None


# What SOURCE is.

def read(path, tag):
    path = path[:-5] if path.endswith((".meta", ".index")) else path
    if os.path.isfile(path + ".meta"):
        meta = parsed(meta_graph_pb2.MetaGraphDef(), path + ".meta")
        return Source(meta.graph_def, meta, path)
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        if os.path.isfile(os.path.join(path, name)):
            return saved_model(path, parsed(saved_model_pb2.SavedModel(), os.path.join(path, name)), tag)
    if os.path.isfile(path):
        return Source(parsed(graph_pb2.GraphDef(), path))
    raise Refusal("%s: expected a checkpoint with its .meta, a .pb or a SavedModel folder, found none" % path)


def parsed(message, path):
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        if path.endswith((".pbtxt", ".txt")):
            return text_format.Parse(data.decode("utf-8"), message)
        message.ParseFromString(data)
        return message
    except (IOError, DecodeError, UnicodeDecodeError, text_format.ParseError) as cause:
        raise Refusal("%s: expected a %s, found %s" % (path, message.DESCRIPTOR.name, first_line(cause)))


def saved_model(folder, saved, tag):
    wanted = set(tag.split(","))
    found = [meta for meta in saved.meta_graphs if set(meta.meta_info_def.tags) == wanted]
    if not found:
        listed = " | ".join(",".join(meta.meta_info_def.tags) for meta in saved.meta_graphs)
        raise Refusal("%s: --tag: expected one of %s, found %s" % (folder, listed, tag))
    meta, assets = found[0], {}
    listed = meta.collection_def["saved_model_assets"].any_list if "saved_model_assets" in meta.collection_def else None
    for item in listed.value if listed else ():
        asset = meta_graph_pb2.AssetFileDef()
        item.Unpack(asset)
        assets[tensor(asset.tensor_info.name)] = os.path.join(folder, "assets", asset.filename)
    return Source(meta.graph_def, meta, os.path.join(folder, "variables", "variables"), assets)


# What to feed and what to fetch.

def tensor(name):
    return name if re.search(r":\d+$", name) else name + ":0"


def specs(items, flag):
    """[(key or None, tensor)] of `[KEY=]TENSOR[[shape]],...`; a shape is what a conversion wants to know.

    A KEY may stand in double quotes, in which a backslash makes a quote or a backslash plain.
    """
    found = []
    quoted = r'"(?:[^"\\]|\\["\\])+"(?==)'
    for text in items:
        for item in re.findall(r"(?:%s|[^,\[]|\[[^\]]*\])+" % quoted, text):
            match = re.match(r"^\s*(?:(%s|[^=\[\]]+)=)?([^=\[\]]+?)(?:\[[?\d, ]*\])?\s*$" % quoted, item)
            if match is None:
                raise Refusal("%s: expected [KEY=]TENSOR, found %r" % (flag, item))
            key = match.group(1)
            if key and re.match(quoted, key + "="):
                key = re.sub(r"\\(.)", r"\1", key[1:-1])
            found.append((key, tensor(match.group(2))))
    return found


def keyed(found, flag):
    """[(key, tensor)]: the key as given, else the op's name with `/` as `_`."""
    named = []
    for key, name in found:
        op, _, k = name.rpartition(":")
        key = key or op.replace("/", "_") + ("_" + k if k != "0" else "")
        if key in [other for other, _ in named]:
            raise Refusal("%s: expected keys that differ, found %s twice" % (flag, key))
        named.append((key, name))
    return named


def signature(source, path, wanted):
    """([(key, tensor)], [(key, tensor)]) of the source's own signature; of empty lists where it has none."""
    known = {} if source.meta is None else source.meta.signature_def
    usual = [key for key in known if known[key].outputs and not key.startswith("__saved_model_")]
    if wanted is None and usual:
        wanted = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in usual else usual[0] if len(usual) == 1 else None
        if wanted is None:
            raise Refusal("%s: --signature: expected one of %s, found none" % (path, ", ".join(sorted(usual))))
    elif wanted is not None and wanted not in usual:
        listed = ", ".join(sorted(usual)) or "none"
        raise Refusal("%s: --signature: expected one of %s, found %s" % (path, listed, wanted))
    if wanted is None:
        return [], []
    found = known[wanted]
    return tuple([(key, tensor(infos[key].name)) for key in sorted(infos)] for infos in (found.inputs, found.outputs))


def read_feeds(path):
    """A list of {key: array}, one a call."""
    try:
        with np.load(path) as data:
            arrays = dict((key, data[key]) for key in data.files)
    except (IOError, ValueError, AttributeError, zipfile.BadZipfile) as cause:
        raise Refusal("--data %s: expected an .npz of plain arrays, found %s" % (path, first_line(cause)))
    numbered = [re.match(r"^feed(\d+)/(.+)$", key) for key in arrays]
    if not arrays or not all(numbered):
        return [arrays]
    feeds = {}
    for match in numbered:
        feeds.setdefault(int(match.group(1)), {})[match.group(2)] = arrays[match.group(0)]
    if sorted(feeds) != list(range(len(feeds))):
        raise Refusal("--data %s: expected feed0 to feed%d, found %s" % (path, len(feeds) - 1, sorted(feeds)))
    return [feeds[k] for k in sorted(feeds)]


def as_fed(graph, key, name, value, where):
    """The array as the tensor takes it: integers may widen, a float is no integer."""
    wanted = existing(graph, name, where)
    dtype, found = wanted.dtype.base_dtype, "%s%s" % (value.dtype, list(value.shape))
    cut_off = value.dtype.kind in "fc" and (dtype.is_integer or dtype.is_bool)
    if cut_off or not wanted.get_shape().is_compatible_with(tensor_shape.TensorShape(value.shape)):
        raise Refusal("%s: %s: expected %s%s, found %s" % (where, key, dtype.name, wanted.get_shape(), found))
    if dtype == tf.string:
        return np.char.encode(value, "utf-8") if value.dtype.kind == "U" else value
    return value.astype(dtype.as_numpy_dtype)


def existing(graph, name, where):
    try:
        found = graph.get_tensor_by_name(name)
    except (KeyError, ValueError):
        raise Refusal("%s: expected a tensor of the graph, found no %s" % (where, name))
    if found.dtype == tf.resource:
        cure = "name the op that reads it"
        raise Refusal("%s: expected a tensor with a value, found the handle %s; %s" % (where, name, cure))
    return found


def constants(graph, settings):
    """{tensor: value} of `TENSOR=VALUE`, globs allowed."""
    found = {}
    for text in settings:
        pattern, equals, value = text.rpartition("=")
        names = [op.name + ":0" for op in graph.get_operations() if op.outputs
                 and fnmatch.fnmatchcase(op.name, pattern[:-2] if pattern.endswith(":0") else pattern)]
        if not equals or not names:
            raise Refusal("--set: expected TENSOR=VALUE with a tensor of the graph, found %r" % text)
        for name in names:
            dtype = graph.get_tensor_by_name(name).dtype.base_dtype
            try:
                value_of = {"true": True, "false": False}[value.lower()] if dtype.is_bool else json.loads(value)
                found[name] = np.asarray(value_of).astype(dtype.as_numpy_dtype)
            except (ValueError, KeyError, TypeError):
                raise Refusal("--set: expected a value for %s of %s, found %r" % (name, dtype.name, value))
    return found


# Running it.

def imported(source):
    """The graph, on the devices that this machine has. Contrib registers ops of its own when it is imported."""
    try:
        import tensorflow.contrib  # noqa: F401
    except ImportError:
        pass
    for node in source.graph_def.node:
        node.device = ""
    graph = tf.Graph()
    with graph.as_default():
        importer.import_graph_def(source.graph_def, name="", producer_op_list=source.stripped_ops)
    return graph


def give_values(session, source, outputs):
    """Restores variables and fills tables; returns the variables that only their initializer knows."""
    if source.meta is None:
        return []
    collections, saver = source.meta.collection_def, source.meta.saver_def
    if saver.restore_op_name:
        restore = operation(session.graph, saver.restore_op_name)
        session.run(restore, {tensor(saver.filename_tensor_name): source.prefix})
    fresh = initialized(session, collections, needed(session.graph, outputs))
    for name in filling(source.meta):
        session.run(operation(session.graph, name), source.assets)
    return fresh


def filling(meta):
    """The ops that fill tables: the one that a SavedModel's loader runs, else those that a program would.

    Source: tensorflow v1.15.0 python/saved_model/loader_impl.py get_init_op, get_main_op_tensor.
    """
    if INIT_OP in meta.signature_def:
        return [meta.signature_def[INIT_OP].outputs[INIT_OP].name]
    for key in ("saved_model_main_op", "legacy_init_op", "table_initializer"):
        names = meta.collection_def[key].node_list.value if key in meta.collection_def else ()
        if names:
            return list(names)
    return []


def operation(graph, name):
    return graph.get_operation_by_name(name.split(":")[0])


def needed(graph, outputs):
    """The names of the ops that the tensors `outputs` wait for."""
    todo, found = [graph.get_tensor_by_name(name).op for name in outputs], set()
    while todo:
        op = todo.pop()
        if op.name not in found:
            found.add(op.name)
            todo += [value.op for value in op.inputs] + list(op.control_inputs)
    return found


def initialized(session, collections, ops):
    """Runs the initializers of variables that the checkpoint left out and the outputs need; their names."""
    fresh = []
    for key in ("variables", "local_variables"):
        for data in collections[key].bytes_list.value if key in collections else ():
            variable = variable_pb2.VariableDef.FromString(data)
            op = operation(session.graph, variable.variable_name)
            if op.name in ops and not session.run(has_value(op.outputs[0])):
                session.run(operation(session.graph, variable.initializer_name))
                fresh.append(op.name)
    return fresh


def has_value(variable):
    with variable.graph.as_default():
        if variable.dtype == tf.resource:
            return gen_resource_variable_ops.var_is_initialized_op(variable)
        return tf.is_variable_initialized(variable)


def answers(graph, source, inputs, outputs, feeds, bound):
    """The outputs of each feed by key, the feeds in order in one session, and what was initialized for it."""
    fetches = [name for _, name in outputs]
    config = tf.ConfigProto(allow_soft_placement=True)
    # What no run reaches, such as a gradient, may have no kernel here.
    config.graph_options.place_pruned_graph = True
    with tf.Session(graph=graph, config=config) as session:
        fresh, found = give_values(session, source, fetches), []
        for feed in feeds:
            values = session.run(fetches, dict(bound, **dict((name, feed[key]) for key, name in inputs)))
            found.append(dict((key, plain(key, value)) for (key, _), value in zip(outputs, values)))
    return found, fresh


def plain(key, value):
    """The array without objects, which an .npz could only pickle."""
    value = np.asarray(value)
    if value.dtype != object:
        return value
    if any(item.endswith(b"\0") for item in value.ravel()):
        raise Refusal("output %s: expected strings that no zero byte ends, found one that it does" % key)
    return value.astype("S")


# What the machine is.

def machine():
    devices = [{"name": device.name, "type": device.device_type, "description": device.physical_device_desc}
               for device in device_lib.list_local_devices()]
    cuda = built_for("cuda_version", "cuda_version_number")
    return {"tensorflow": tf.__version__, "numpy": np.__version__, "python": platform.python_version(),
            "cuda": cuda, "cudnn": built_for("cudnn_version", "cudnn_version_number"),
            "devices": devices, "tf32": tf32(devices, cuda)}


def built_for(*names):
    """A fact of the build by any of its names, for TensorFlow 2.3 calls them otherwise than 1.15; None without."""
    try:
        from tensorflow.python.platform import build_info
    except ImportError:
        return None
    facts = dict(getattr(build_info, "build_info", {}))
    for name in names:
        value = facts.get(name, getattr(build_info, name, None))
        if value:
            return str(value)
    return None


def tf32(devices, cuda):
    """Whether float32 was computed with 10 bits of mantissa, why we think so, and every setting that bears on it.

    TF32 needs compute capability 8.0 and CUDA 11, where the libraries use it unless told not to.
    """
    settings = dict((name, os.environ[name]) for name in os.environ
                    if name.startswith("TF_ENABLE_") or name == "NVIDIA_TF32_OVERRIDE")
    experimental = getattr(getattr(tf, "config", None), "experimental", None)
    asked = getattr(experimental, "tensor_float_32_execution_enabled", None)
    enabled = None if asked is None else bool(asked())
    described = [re.search(r"compute capability: (\d+)\.", device["description"])
                 for device in devices if device["type"] == "GPU"]
    newest = max([int(match.group(1)) for match in described if match] or [0])
    on, reason = True, "compute capability %d with CUDA %s" % (newest, cuda or "of an unknown version")
    if not described:
        on, reason = False, "no GPU"
    elif newest >= 7 and any(settings.get(name) == "1" for name in TENSOR_OPS):
        reason = "tensor cores were asked for by TF_ENABLE_..._TENSOR_OP_MATH_FP32"
    elif newest and newest < 8:
        on, reason = False, "compute capability %d, TF32 needs 8" % newest
    elif settings.get("NVIDIA_TF32_OVERRIDE") == "0":
        on, reason = False, "NVIDIA_TF32_OVERRIDE=0"
    elif enabled is False:
        on, reason = False, "switched off in TensorFlow"
    elif cuda and cuda.split(".")[0].isdigit() and int(cuda.split(".")[0]) < 11:
        on, reason = False, "CUDA %s, TF32 needs 11" % cuda
    return {"on": on, "reason": reason, "execution_enabled": enabled, "environment": settings}


def is_recording(path):
    """Whether a file says that it is one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return FORMAT.encode() in archive.read("meta.npy")
    except (IOError, OSError, KeyError, zipfile.BadZipfile):
        return False


# The walk.

def record(flags):
    if os.path.exists(flags.out):
        if not is_recording(flags.out):
            found = "found a file or folder that is no recording; choose another path"
            raise Refusal("--out %s: expected a new path, %s" % (flags.out, found))
        if not flags.force:
            found = "found a recording; choose another path, or replace it with --force"
            raise Refusal("--out %s: expected a new path, %s" % (flags.out, found))
    feeds, source = read_feeds(flags.data), read(flags.source, flags.tag)
    own_inputs, own_outputs = signature(source, flags.source, flags.signature) if not flags.outputs else ([], [])
    inputs = keyed(specs(flags.inputs, "--inputs"), "--inputs") or own_inputs
    outputs = keyed(specs(flags.outputs, "--outputs"), "--outputs") or own_outputs
    if not inputs:  # the keys of the feeds are the tensors
        named = [(key, keyed([(None, tensor(key))], "--data")[0]) for key in sorted(feeds[0])]
        inputs, renamed = [pair for _, pair in named], dict((key, pair[0]) for key, pair in named)
        feeds = [dict((renamed.get(key, key), value) for key, value in feed.items()) for feed in feeds]
    if not outputs:
        raise Refusal("--outputs: expected [KEY=]TENSOR for a source without a signature, found none; "
                      "cudnn-convert SOURCE OUT --no-verify prints those that fit")
    graph = imported(source)
    for _, name in outputs:
        existing(graph, name, "--outputs")
    feeds = [checked(graph, inputs, feed, "--data %s: feed %d" % (flags.data, k)) for k, feed in enumerate(feeds)]
    meta = machine()
    found, fresh = answers(graph, source, inputs, outputs, feeds, constants(graph, flags.set))
    if fresh:
        print("record_tf1: not in the checkpoint, initialized: %s" % ", ".join(fresh), file=sys.stderr)
    meta.update(format=FORMAT, version=VERSION, recorder="record_tf1.py", initialized=fresh,
                source=os.path.basename(os.path.normpath(flags.source)), set=list(flags.set),
                inputs=described(graph, inputs), outputs=described(graph, outputs),
                state="the feeds ran in order in one session; variables keep what a feed left in them")
    arrays = {"meta": np.frombuffer(json.dumps(meta, sort_keys=True).encode("utf-8"), np.uint8)}
    for k, (feed, answer) in enumerate(zip(feeds, found)):
        arrays.update(("feed%d/in/%s" % (k, key), value) for key, value in feed.items())
        arrays.update(("feed%d/out/%s" % (k, key), value) for key, value in answer.items())
    write(flags.out, arrays)


def checked(graph, inputs, feed, where):
    if set(feed) != set(key for key, _ in inputs):
        wanted = sorted(key for key, _ in inputs)
        raise Refusal("%s: expected the keys %s, found %s" % (where, ", ".join(wanted), ", ".join(sorted(feed))))
    return dict((key, as_fed(graph, key, name, feed[key], where)) for key, name in inputs)


def described(graph, pairs):
    return dict((key, {"tensor": name, "dtype": graph.get_tensor_by_name(name).dtype.base_dtype.name})
                for key, name in pairs)


def write(path, arrays):
    """The file appears whole or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, fresh = tempfile.mkstemp(suffix=".tmp", dir=folder)
    except (IOError, OSError) as cause:
        raise Refusal("--out %s: cannot write here: %s" % (path, first_line(cause)))
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, **arrays)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(fresh, 0o666 & ~mask)
        if os.name == "nt" and os.path.exists(path):
            os.remove(path)
        os.rename(fresh, path)
        fresh = None
    except (IOError, OSError) as cause:
        raise Refusal("--out %s: cannot write: %s" % (path, first_line(cause)))
    finally:
        if fresh is not None:
            os.remove(fresh)


def first_line(cause):
    lines = str(getattr(cause, "message", "") or cause).splitlines()
    return lines[0] if lines else type(cause).__name__


def arguments(words):
    parser = argparse.ArgumentParser(prog="record_tf1.py", description="Record what a TensorFlow 1 model answers.")
    parser.add_argument("source", metavar="SOURCE", help="checkpoint prefix, frozen .pb, SavedModel folder")
    parser.add_argument("--data", required=True, metavar="NPZ", help="an array for each input, by key")
    parser.add_argument("--out", required=True, metavar="NPZ", help="the recording to write")
    for flag in ("--inputs", "--outputs"):
        parser.add_argument(flag, action="append", default=[], metavar="[KEY=]TENSOR,...", help="repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="TENSOR=VALUE", help="feed it; repeatable")
    parser.add_argument("--signature", metavar="KEY", help="default %s" % DEFAULT_SIGNATURE)
    parser.add_argument("--tag", default="serve", help="which graph of a SavedModel; default %(default)s")
    parser.add_argument("--force", action="store_true", help="replace an existing recording")
    return parser.parse_args(words)


def main(words=None):
    flags = arguments(words)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        record(flags)
    except Refusal as refusal:
        print("record_tf1: %s" % refusal, file=sys.stderr)
        return 1
    except (tf.errors.OpError, ValueError) as cause:
        missing = NO_KERNEL.search(str(cause))
        if missing:
            cure = "run this on a machine with a GPU that this TensorFlow can use"
            print("record_tf1: %s: expected a kernel for %s, found none for the devices here; %s"
                  % (flags.source, missing.group(1), cure), file=sys.stderr)
        else:
            print("record_tf1: %s: TensorFlow says: %s" % (flags.source, first_line(cause)), file=sys.stderr)
        return 1
    print(flags.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
