"""Writes one sample: the file that a Keras wrote, what the same Keras answers on a CPU, and case.json."""
import contextlib
import json
import os
import platform
from collections import namedtuple

import numpy as np
import tensorflow as tf

from keras_fixtures import reproducible
from keras_fixtures.describe import input_names, output_names, recurrences
from keras_fixtures.stand_in import on_cpu
from keras_fixtures.weights import fed_values, set_weights, training_data
from keras_fixtures.writer import CpuLayers, CudnnLayers

# model: a Keras model.
# feeds: one list a run, per input of the model: the shape of standard normal values, or Ids(shape, below).
# file: what the folder gets. model.h5 and model.keras are whole models; any other name is save_weights', and
# the architecture lies beside it as model.json.
# before_save: called with the model; edit: called with the path of the file that was written.
# extra: more entries of case.json.
# What must be known before a case is built are attributes of its function. fits: the model is trained for a
# few steps before it is saved; while_saving: a context to save it in.
Case = namedtuple("Case", "model feeds file before_save edit flags extra")
Case.__new__.__defaults__ = ("model.h5", None, None, (), {})

WHOLE_MODELS = ("model.h5", "model.keras")
#: The two forms of Keras's saving format 3, whose loader knows no weights of CuDNN layers.
NOT_CONVERTED = (".keras", ".weights.h5")


def record(package, build, root):
    """Build a case with CuDNN layers and save it; build it again with CPU layers, load that file and run."""
    writer = CudnnLayers(package)
    folder = os.path.join(root, writer.name, build.__name__)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    fits = getattr(build, "fits", False)
    writer.start()
    with on_cpu(writer) if fits else unchanged(writer):
        case = build(writer)
        set_weights(writer, build.__name__, case.model)
        fed = fed_values(writer, build.__name__, case)
        if fits:
            train(writer, build.__name__, case.model, fed[0])
    if case.before_save:
        case.before_save(case.model)
    path = os.path.join(folder, case.file)
    with getattr(build, "while_saving", unchanged)(writer):
        write(case, path, folder)
    describe(writer, build, case, folder)
    ends = input_names(case.model), output_names(case.model)

    weights = weights_file(case, path)
    answers = run(CpuLayers(package), build, fed, weights)
    with on_cpu(writer):
        check(answers, run(writer, build, fed, weights if fits else None))
    if weights != path:
        os.remove(weights)
    np.savez_compressed(os.path.join(folder, "golden.npz"), **named(ends, fed, answers))
    if case.edit:
        case.edit(path)


def named(ends, fed, answers):
    """What golden.npz holds: inputs and outputs of every run, as feed<run>/<name>."""
    inputs, outputs = ends
    golden = {}
    for number, (values, found) in enumerate(zip(fed, answers)):
        assert len(found) == len(outputs), outputs
        for name, value in list(zip(inputs, values)) + list(zip(outputs, found)):
            assert np.all(np.isfinite(value)), name
            golden["feed%d/%s" % (number, name)] = value
    return golden


@contextlib.contextmanager
def unchanged(writer):
    yield


def train(writer, name, model, fed):
    """A few steps of what the model was compiled with."""
    if writer.package == "keras":
        reproducible.order_updates(model.optimizer)
    x, y = training_data(name, model, fed)
    model.fit(x, y, batch_size=len(x[0]), epochs=3, shuffle=False, verbose=0)


def write(case, path, folder):
    with reproducible.datasets():
        if case.file in WHOLE_MODELS:
            case.model.save(path)
        else:
            case.model.save_weights(path)
            with open(os.path.join(folder, "model.json"), "w") as stream:
                stream.write(case.model.to_json())
    if path.endswith(".keras"):
        reproducible.archive(path)


def weights_file(case, path):
    """What the CPU model loads: the file, or beside a form that Keras does not convert one that it does."""
    if not path.endswith(NOT_CONVERTED):
        return path
    beside = path.split(".")[0] + ".legacy.h5"
    case.model.save_weights(beside, save_format="h5")
    return beside


def run(writer, build, fed, weights=None):
    """The answers to all feeds in order, so that a stateful model carries its states.

    `load_weights` of the CPU layers converts what the CuDNN layers saved; without a file the model gets its
    numbers directly.
    """
    writer.start()
    model = build(writer).model
    if weights:
        model.load_weights(weights)
    else:
        set_weights(writer, build.__name__, model)
    if any(layer.stateful for layer in model.layers if hasattr(layer, "stateful")):
        model.reset_states()
    return [listed(model.predict_on_batch(values)) for values in fed]


def check(answers, others):
    """The CPU layers with what they loaded against the CuDNN layers' equations with what was saved."""
    for found, expected in zip(answers, others):
        assert len(found) == len(expected)
        for value, other in zip(found, expected):
            np.testing.assert_allclose(value, other, atol=1e-6, rtol=1e-5)


def listed(found):
    return list(found) if isinstance(found, (list, tuple)) else [found]


def describe(writer, build, case, folder):
    found = recurrences(case.model)
    description = {
        "name": build.__name__,
        "writer": writer.name,
        "tensorflow": tf.__version__,
        "python": platform.python_version(),
        "about": " ".join(build.__doc__.split()),
        "file": case.file,
        "architecture": None if case.file in WHOLE_MODELS else "model.json",
        "inputs": input_names(case.model),
        "outputs": output_names(case.model),
        "stateful": any(recurrence.pop("stateful") for recurrence in found),
        "recurrences": found,
        "flags": list(case.flags),
    }
    description.update(case.extra)
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")
