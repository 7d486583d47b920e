"""golden.npz and case.json of a network: what the framework that trained it answers to the test rows.

golden.npz has `classes` [500], the class of each test row, and floats of the first rows: `outputs` of 40, and
what else a network gives. Its inputs are those of tests/support/micro_data.py.
"""

import json
import platform
import shutil
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "micro"
#: Rows whose floats are kept, and rows of which every step is.
ROWS, WHOLE_ROWS = 40, 4
#: A network that is worse at its test rows would say little.
LEAST_ACCURACY = 0.97


def make_folder(name):
    folder = FOLDER / name
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def classify(scores):
    """The class and its margin over the next, of probabilities [rows, classes] or of one sigmoid."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.5).astype(np.uint8), np.abs(2 * scores[:, 0] - 1)
    ordered = np.sort(scores, axis=1)
    return scores.argmax(axis=1).astype(np.uint8), ordered[:, -1] - ordered[:, -2]


def write(folder, about, scores, labels, kept, **versions):
    """Write both files.

    `scores` are the probabilities of all test rows, and `kept` the arrays of golden.npz beside `classes`.
    """
    classes, margins = classify(scores)
    accuracy = float((classes == labels).mean())
    near = float((margins < 0.5).mean())
    print(
        f"{folder.name}: accuracy {accuracy:.3f}, least margin {margins.min():.3f}, {near:.3f} below a half"
    )
    assert accuracy >= LEAST_ACCURACY, accuracy
    assert all(np.isfinite(value).all() for value in kept.values())
    np.savez_compressed(str(folder / "golden.npz"), classes=classes, **kept)
    case = {
        "name": folder.name,
        "about": " ".join(about.split()),
        "accuracy": round(accuracy, 3),
        "least_margin": round(float(margins.min()), 3),
        "margins_below_a_half": round(near, 3),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, **versions},
    }
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
