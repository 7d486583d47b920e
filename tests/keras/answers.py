"""A user's process: Keras 3 or tf_keras, and no cudnn_convert.

Reads jobs, a JSON list of `{artifact, golden, inputs, outputs, answers}`, from the file named second; `keras`
or `tf_keras` stands first. Each run of a golden file is one call of `predict`, states kept between them.
"""

import importlib
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.modules["cudnn_convert"] = None  # whatever is installed beside us: importing it fails now


def predict(model, feeds):
    size = len(feeds[0] if isinstance(feeds, list) else feeds)
    return model.predict(feeds, batch_size=size, verbose=0)


def predicted(library, job):
    model = library.models.load_model(job["artifact"])
    found = {}
    with np.load(job["golden"]) as golden:
        for number in range(len({key.partition("/")[0] for key in golden.files})):
            feeds = [golden[f"feed{number}/{name}"] for name in job["inputs"]]
            # predict makes float32 of its inputs.
            call = model if feeds[0].dtype == np.float64 else partial(predict, model)
            answers = call(feeds if len(feeds) > 1 else feeds[0])
            answers = answers if isinstance(answers, list) else [answers]
            for name, answer in zip(job["outputs"], answers, strict=True):
                found[f"feed{number}/{name}"] = np.asarray(answer)
    return found


if __name__ == "__main__":
    library = importlib.import_module(sys.argv[1])
    for job in json.loads(Path(sys.argv[2]).read_text()):
        np.savez(job["answers"], **predicted(library, job))
