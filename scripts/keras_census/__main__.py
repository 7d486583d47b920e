"""Writes FOLDER/<writer>.zip: each case's model.h5 as its Keras saved it, and its answers.

    python -m keras_census FOLDER PACKAGE [CASE ...]        (in scripts/)

PACKAGE is keras or tf.keras. Run it once per environment: those of make_keras_fixtures.py, and those below. Then
keras_census.pack makes tests/data/keras_census.tar.xz of the folder.

| writer         | Python | PACKAGE  | and                                                         |
|----------------|--------|----------|-------------------------------------------------------------|
| keras-2.0.9    | 3.6    | keras    | keras==2.0.9 tensorflow==1.4.1 "protobuf<3.18" "numpy<1.17" |
| tf.keras-1.4.1 | 3.6    | tf.keras | the same                                                    |
| tf.keras-1.8.0 | 3.6    | tf.keras | tensorflow==1.8.0 "protobuf<3.18" "numpy<1.17"              |
| tf.keras-1.13.2| 3.7    | tf.keras | tensorflow==1.13.2 "protobuf<3.21" "numpy<1.17"             |
| tf.keras-1.14.0| 3.7    | tf.keras | tensorflow==1.14.0 "protobuf<3.21" "numpy<1.17"             |
| tf.keras-2.3.4 | 3.8    | tf.keras | tensorflow==2.3.4 "protobuf<3.21"                           |
| tf.keras-2.8.4 | 3.8    | tf.keras | tensorflow==2.8.4 "protobuf<3.21"                           |
| tf.keras-2.13.1| 3.11   | tf.keras | tensorflow==2.13.1                                          |
| tf.keras-2.15.1| 3.11   | tf.keras | tensorflow==2.15.1                                          |

A case that its Keras cannot build, save or run is not one of that writer. Prints each and why.
"""

import os
import sys
import tempfile
import zipfile

import numpy as np

from keras_census.cases import CASES, Inputs
from keras_census.feeds import values
from keras_fixtures import reproducible
from keras_fixtures.record import listed
from keras_fixtures.weights import set_weights
from keras_fixtures.writer import CudnnLayers


def main(folder, package, *names):
    writer = CudnnLayers(package)
    made, absent = {}, []
    for name in names or CASES:
        try:
            made[name] = record(writer, name)
        except Exception as failure:  # whatever an old Keras says to a layer of a later one
            absent.append("%s: %s" % (name, (str(failure).splitlines() or [type(failure).__name__])[0][:150]))
    print("\n".join(absent))
    print("%s: %d cases, %d that it has not" % (writer.name, len(made), len(absent)))
    if not os.path.isdir(folder):
        os.makedirs(folder)
    path = os.path.join(folder, writer.name + ".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(made):
            for member, content in made[name]:
                info = zipfile.ZipInfo("%s/%s" % (name, member))
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)


def record(writer, name):
    """The members of a case: its file, and inputs and answers of each feed by their places."""
    writer.start()
    given = Inputs(writer)
    outputs = listed(CASES[name](writer, given))
    model = writer.Model(
        given.tensors if len(given.tensors) > 1 else given.tensors[0],
        outputs if len(outputs) > 1 else outputs[0],
    )
    set_weights(writer, name, model)
    answers = {}
    fed = values(name, given.kinds)
    for number, feed in enumerate(fed):
        found = answer(writer, model, feed if len(feed) > 1 else feed[0])
        for kind, tensors in (("in", feed), ("out", found)):
            for place, tensor in enumerate(tensors):
                answers["feed%d/%s/%d" % (number, kind, place)] = np.asarray(tensor)
    with tempfile.TemporaryDirectory() as folder:
        model_file, golden = os.path.join(folder, "model.h5"), os.path.join(folder, "golden.npz")
        with reproducible.datasets():
            model.save(model_file, include_optimizer=False, **({"save_format": "h5"} if writer.is_v2 else {}))
        np.savez(golden, **answers)
        return [(os.path.basename(path), open(path, "rb").read()) for path in (model_file, golden)]


def answer(writer, model, feed):
    """The outputs of a call; a function of TensorFlow 2 would be traced anew for each shape."""
    if not writer.is_v2:
        return listed(model.predict_on_batch(feed))
    return [tensor.numpy() for tensor in listed(model(feed, training=False))]


if __name__ == "__main__":
    main(*sys.argv[1:])
