"""Writes FOLDER/<writer>.zip: each case's file as its Keras saved it, and its answers.

    python -m keras_public FOLDER PACKAGE [CASE ...]        (in scripts/)

PACKAGE is keras or tf.keras. Run it once per environment: those of make_keras_fixtures.py and of keras_census,
and those below. Then keras_census.pack makes tests/data/keras_public.tar.xz of the folder.

| writer      | Python | PACKAGE | and                                                                        |
|-------------|--------|---------|----------------------------------------------------------------------------|
| keras-1.2.2 | 3.6    | keras   | keras==1.2.2 tensorflow==1.4.1 "protobuf<3.18" "numpy<1.17" "pyyaml<6"     |
| keras-3.0.5 | 3.11   | keras   | keras==3.0.5 tensorflow==2.16.2                                            |
| keras-3.3.3 | 3.11   | keras   | keras==3.3.3 tensorflow==2.16.2                                            |
| keras-3.8.0 | 3.11   | keras   | keras==3.8.0 tensorflow==2.16.2                                            |

Of char_rnn and ner_tagger alone:

| writer          | Python | PACKAGE  | and                                                                 |
|-----------------|--------|----------|---------------------------------------------------------------------|
| keras-3.10.0    | 3.11   | keras    | keras==3.10.0 tensorflow-cpu==2.16.2                                |
| keras-3.15.1    | 3.11   | keras    | keras==3.15.1 tensorflow==2.21.0                                    |
| tf.keras-2.16.2 | 3.11   | tf.keras | tf_keras==2.16.0 tensorflow-cpu==2.16.2, with TF_USE_LEGACY_KERAS=1 |

The cases behind theano_images are of keras-1.2.2 alone, with KERAS_BACKEND=tensorflow.

A case that its Keras cannot build, save or run is not one of that writer. Prints each and why. Keras 3 writes
each whole model as HDF5 and as an archive.
"""

import os
import sys
import tempfile
import zipfile

import numpy as np

from keras_fixtures import reproducible
from keras_fixtures.weights import seeded
from keras_public import cases
from keras_public.library import Library


def main(folder, package, *names):
    library, made = Library(package), {}
    for name in names or cases.CASES:
        suffixes = (".h5", ".keras") if library.major == 3 and not name.startswith("weights") else (".h5",)
        for suffix in suffixes:
            try:
                whole = name if suffix == ".h5" else name + "_archive"
                made[whole] = record(library, name, suffix)
            except Exception as failure:  # whatever a Keras says to a layer of another one
                print("%s: %s" % (name, (str(failure).splitlines() or [type(failure).__name__])[0][:150]))
    print("%s: %d cases" % (library.name, len(made)))
    if not os.path.isdir(folder):
        os.makedirs(folder)
    with zipfile.ZipFile(os.path.join(folder, library.name + ".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(made):
            for member, content in made[name]:
                info = zipfile.ZipInfo("%s/%s" % (name, member))
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)


def record(library, name, suffix):
    """The members of a case."""
    if not library.is_eager and hasattr(library.keras.backend, "clear_session"):
        library.keras.backend.clear_session()
    cases.K = library.backend
    case = cases.CASES[name](library)
    file = case.file or "model" + suffix
    set_weights(name, case.model)
    feeds = [
        [
            value("%s/%d/%d" % (name, number, place), kind, shape)
            for place, (kind, shape) in enumerate(case.feeds)
        ]
        for number in range(2)
    ]
    asked = answering(library, case)
    case.model.compile("rmsprop", "mse")
    golden = {}
    for number, feed in enumerate(feeds):
        fed = feed[: len(asked.inputs)] if hasattr(asked, "inputs") else feed
        found = asked.predict_on_batch(fed if len(fed) > 1 else fed[0])
        found = found if isinstance(found, (list, tuple)) else [found]
        for kind, tensors in (("in", fed), ("out", found)):
            for place, tensor in enumerate(tensors):
                golden["feed%d/%s/%d" % (number, kind, place)] = np.asarray(tensor)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, file)
        with reproducible.datasets():
            if case.file:
                case.model.save_weights(path)
            else:
                case.model.save(path)
        if path.endswith(".keras"):
            reproducible.archive(path)
        if case.architecture:
            written = case.model.to_yaml if case.architecture.endswith("yaml") else case.model.to_json
            with open(os.path.join(folder, case.architecture), "w") as stream:
                stream.write(written())
        np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
        return [
            (member, open(os.path.join(folder, member), "rb").read()) for member in sorted(os.listdir(folder))
        ]


def answering(library, case):
    """The model that answers: up to the layer that the case names, if it names one."""
    if case.answers is None:
        return case.model
    layer = case.model.get_layer(case.answers)
    inputs = case.model.inputs
    if case.answers == "shared":
        calls = (
            [node.output_tensors[0] for node in layer._inbound_nodes]
            if library.major == 3
            else [layer.get_output_at(0), layer.get_output_at(1)]
        )
        return library.model(inputs, calls)
    return library.model(inputs[0], layer.output)


def set_weights(name, model):
    """Set every weight by its place alone; where a Keras begins with ones, values stay near them."""
    arrays = []
    for place, array in enumerate(model.get_weights()):
        values = seeded("%s/%d" % (name, place)).uniform(-0.6, 0.6, array.shape).astype(array.dtype)
        arrays.append(1 + values / 2 if array.ndim == 1 and np.all(array == 1) else values)
    model.set_weights(arrays)


def value(text, kind, shape):
    if kind == "numbers":
        return seeded(text).standard_normal(shape).astype("float32")
    found = seeded(text).randint(1, 9, shape).astype("float32")
    for row in range(1, shape[0]):
        if shape[1] > 1:
            found[row, shape[1] - row :] = 0
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
