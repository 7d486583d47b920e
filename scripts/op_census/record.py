"""Records a graph and the answers of TensorFlow, in a process that TensorFlow may end."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.framework.op_def_library import OpDefLibrary

from op_census import arithmetic, arrays, layers, linear, pictures, reductions, sparse, texts, together  # noqa: F401
from op_census.variants import VARIANTS

#: TensorFlow would compile an op without a kernel of its own.
CONFIG = tf.ConfigProto(device_count={"XLA_CPU": 0})
#: TensorFlow 1.15 fuses a FusedBatchNorm whose other outputs are read, and fails.
CONFIG.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
#: What no artifact gives.
HANDLES = (tf.resource, tf.variant)


def record_each(names, pipe):
    library, defaults = _library()
    for name in names:
        try:
            pipe.send((name,) + record(library, defaults, VARIANTS[name]))
        except Exception as failure:  # whatever TensorFlow says of a graph that it has no kernel for
            pipe.send((name, None, (str(failure).splitlines() or [type(failure).__name__])[0]))


def _library():
    """The library that makes ops, and the defaults of each op's attributes, of types too."""
    listed = op_def_pb2.OpList()
    listed.ParseFromString(pywrap_tensorflow.TF_GetBuffer(pywrap_tensorflow.TF_GetAllOpList()))
    library = OpDefLibrary()
    library.add_op_list(listed)
    defaults = {}
    for op in listed.op:
        inferred = {
            name for each in op.input_arg for name in (each.type_attr, each.number_attr, each.type_list_attr)
        }
        given = [each for each in op.attr if each.HasField("default_value") and each.name not in inferred]
        defaults[op.name] = {each.name: _value(each.default_value) for each in given}
    return library, defaults


def _value(default):
    """What an AttrValue holds, as `apply_op` takes it."""
    field = default.WhichOneof("value")
    if field != "list":
        return getattr(default, field)
    return [each for _, values in default.list.ListFields() for each in values]


def record(library, defaults, variant):
    """The graph, and inputs and answers by `KIND/in/0`, `KIND/out/0`, with `outputs`: the tensors' names."""
    with tf.Graph().as_default() as graph:
        tensors = [
            tf.placeholder(fed.dtype, fed.shape, "in%d" % place) for place, fed in enumerate(variant.inputs)
        ]

        def make(op, **arguments):
            library.apply_op(op, name=op, **dict(defaults[op], **arguments))
            return graph.get_operations()[-1].outputs

        outputs = [each for each in variant.build(tf, make, tensors) if each.dtype not in HANDLES]
        answers = {"outputs": np.array([output.name for output in outputs])}
        with tf.Session(config=CONFIG) as session:
            for kind, arrays_ in variant.feeds():
                try:
                    found = session.run(outputs, dict(zip(tensors, arrays_)))
                except tf.errors.OpError as failure:
                    refused = failure
                    continue
                for side, values in (("in", arrays_), ("out", found)):
                    for place, value in enumerate(values):
                        answers["%s/%s/%d" % (kind, side, place)] = _plain(value)
        if len(answers) == 1:
            raise refused
        return graph.as_graph_def().SerializeToString(deterministic=True), answers


def _plain(value):
    """An array without objects: strings are bytes."""
    value = np.asarray(value)
    if value.dtype != object:
        return value
    plain = value.astype("S") if value.size else np.zeros(value.shape, "S1")
    assert (plain.astype(object) == value).all(), "a string that ends in a zero byte"
    return plain
