"""Opens what `--format h5` writes with TensorFlow 1.15 itself, and writes tests/data/tf1_keras.json.

    TF1_PYTHON scripts/check_tf1_keras.py PYTHON [CASE ...]

TF1_PYTHON is a Python 3.7 with tensorflow==1.15.5 and h5py==2.10.0 (as make_tf1_fixtures.py wants it), PYTHON
one that has cudnn_convert; it converts the Keras fixtures into a temporary folder. `load_model` of tf.keras must
open each file as a server of its time does, with nothing brought along, and answer as the Keras that wrote the
source. What it says of a file that it does not open is recorded: layers and arguments that it has not. A file
with code is left out, for opening it runs the code. With CASE the record keeps what it has of the others.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import tensorflow as tf

from tf1_fixtures.golden import BOUNDS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULT = os.path.join(ROOT, "tests", "data", "tf1_keras.json")
CONVERT = """
import json, sys, cudnn_convert
for job in json.load(open(sys.argv[1])):
    try:
        cudnn_convert.convert(job["source"], job["out"], format="h5", verify=False, **job["options"])
    except cudnn_convert.CudnnConvertError as refusal:
        print(job["name"], refusal, sep=": ")
"""


def jobs(folder, names):
    """One a fixture that is HDF5."""
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "data", "keras", "*", "*", "case.json"))):
        with open(path) as stream:
            case = json.load(stream)
        source = os.path.dirname(path)
        name = "%s-%s" % (case["writer"], case["name"])
        has_code = "lambda" in case["name"]
        if has_code or case["file"].endswith(".keras") or (names and case["name"] not in names):
            continue
        architecture = case["architecture"]
        options = {"force_convert": True}
        if architecture is not None:
            options["architecture"] = os.path.join(source, architecture)
        yield {
            "name": name,
            "case": case,
            "folder": source,
            "source": os.path.join(source, case["file"]),
            "out": os.path.join(folder, name + ".h5"),
            "options": options,
        }


def judged(job):
    """The worst difference over all outputs and feeds, or the first line of why the file does not open."""
    known = {"values": digest(job["out"])}
    tf.keras.backend.clear_session()
    try:
        model = tf.keras.models.load_model(job["out"], compile=False)
    except Exception as failure:  # whatever a Keras says to a layer of another one
        return dict(known, refused=str(failure).splitlines()[0])
    golden = dict(np.load(os.path.join(job["folder"], "golden.npz")))
    runs, worst = sorted({key.partition("/")[0] for key in golden}), 0.0
    for run in runs:
        fed = [golden["%s/%s" % (run, name)] for name in job["case"]["inputs"]]
        found = model.predict_on_batch(fed if len(fed) > 1 else fed[0])
        found = found if isinstance(found, list) else [found]
        assert len(found) == len(job["case"]["outputs"]), job["name"]
        for name, answer in zip(job["case"]["outputs"], found):
            expected = golden["%s/%s" % (run, name)]
            assert answer.shape == expected.shape, (job["name"], answer.shape, expected.shape)
            difference = float(np.max(np.abs(answer - expected))) if expected.size else 0.0
            assert difference <= BOUNDS[str(expected.dtype)], (job["name"], name, difference)
            worst = max(worst, difference)
    return dict(known, worst=worst)


def digest(path):
    """A checksum of the config and of every weight."""
    with h5py.File(path, "r") as file:
        config = file.attrs["model_config"]
        config = json.loads(config.decode() if isinstance(config, bytes) else config)
        found, weights = zlib.crc32(json.dumps(config, sort_keys=True).encode()), {}
        file["model_weights"].visititems(
            lambda name, item: weights.update({name: item[()]} if isinstance(item, h5py.Dataset) else {})
        )
    for name in sorted(weights):
        value = weights[name]
        found = zlib.crc32(("%s %s %s" % (name, value.dtype, value.shape)).encode() + value.tobytes(), found)
    return "%08x" % (found & 0xFFFFFFFF)


def main(python, *names):
    with tempfile.TemporaryDirectory() as folder:
        listed = list(jobs(folder, names))
        path = os.path.join(folder, "jobs.json")
        with open(path, "w") as stream:
            json.dump(listed, stream)
        subprocess.run([python, "-c", CONVERT, path], check=True, cwd=folder)
        record = {}
        if names and os.path.isfile(RESULT):
            with open(RESULT) as stream:
                record = json.load(stream)
        for job in listed:
            if os.path.exists(job["out"]):
                record[job["name"]] = judged(job)
                print(job["name"], record[job["name"]])
    with open(RESULT, "w") as stream:
        json.dump(record, stream, indent=0, sort_keys=True)
        stream.write("\n")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*sys.argv[1:])
