"""A user who opens a TensorFlow Lite file again and again, and calls each interpreter five times.

    python -I many_interpreters.py FILE SEED COUNT

Writes by how much an interpreter's answer differs at most from that of one which was called once. Random
blocks of memory live between the interpreters, so that theirs lies elsewhere each time.
"""

import sys

import numpy as np
import tensorflow as tf


def open_runner(path):
    return tf.lite.Interpreter(path).get_signature_runner("serving_default")


def main():
    path, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng, blocks, worst = np.random.default_rng(seed), [], 0.0
    kept = open_runner(path)
    shapes = {
        key: [size if size > 0 else 3 for size in each["shape_signature"]]
        for key, each in kept.get_input_details().items()
    }
    feeds = [
        {
            key: np.random.default_rng(k).uniform(-1, 1, shape).astype(np.float32)
            for key, shape in shapes.items()
        }
        for k in range(2)
    ]
    expected = [open_runner(path)(**feed) for feed in feeds]
    for _ in range(count):
        runner = open_runner(path)
        for _ in range(int(rng.integers(0, 6))):
            blocks.append(rng.standard_normal(int(2 ** rng.uniform(1, 14))).astype(np.float32))
        if len(blocks) > 100:
            for _ in range(50):
                del blocks[int(rng.integers(0, len(blocks)))]
        for k in (0, 1, 1, 0, 1):
            answers = runner(**feeds[k])
            worst = max([worst, *(np.abs(answers[key] - expected[k][key]).max() for key in answers)])
    sys.stdout.write(f"{worst}\n")


if __name__ == "__main__":
    main()
