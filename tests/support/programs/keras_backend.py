"""A user's Keras 3 on one backend: opens `.keras` files, answers, and trains each on. No cudnn_convert here.

    KERAS_BACKEND=jax keras_backend.py FOLDER

For each FOLDER/<name>.keras the inputs of FOLDER/<name>.npz are predicted, keyed `feed<n>/<input>`. Then a
dense layer is put on its outputs, and `fit` is called on distinct random targets. FOLDER/<name>.<backend>.npz
gets the answers, keyed `feed<n>/<output>`, the losses of all epochs as `loss`, and as `moved` the share of
recurrent weights that training changed.
"""

import sys
from pathlib import Path

import numpy as np

sys.modules["cudnn_convert"] = None


def predict(keras, model, feeds):
    """The answers to each feed by the names of the outputs."""
    answers = {}
    for feed in sorted({key.partition("/")[0] for key in feeds.files}):
        inputs = {tensor.name: feeds[f"{feed}/{tensor.name}"] for tensor in model.inputs}
        values = model(inputs)  # predict would round doubles to floats
        for name, value in zip(model.output_names, values, strict=True):
            answers[f"{feed}/{name}"] = keras.ops.convert_to_numpy(value)
    return answers


def train(keras, model, feeds):
    """The loss of each epoch, and whether every matrix of the recurrence moved."""
    inputs = {tensor.name: feeds[f"feed0/{tensor.name}"] for tensor in model.inputs}
    whole = keras.Model(model.inputs, keras.layers.Dense(2, dtype=model.outputs[0].dtype)(model.outputs[0]))
    before = [np.array(value) for value in model.get_weights()]
    shape = (*inputs["inputs"].shape[:2], 2)
    targets = np.random.default_rng(3).normal(size=shape).astype(inputs["inputs"].dtype)
    whole.compile(keras.optimizers.SGD(0.05), "mse")
    losses = whole.fit(inputs, targets, epochs=8, batch_size=shape[0], verbose=0).history["loss"]
    moved = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    return np.asarray(losses), np.mean(moved)


def main(folder):
    import keras

    keras.utils.set_random_seed(1)
    for file in sorted(folder.glob("*.keras")):
        model = keras.models.load_model(file)
        feeds = np.load(file.with_suffix(".npz"))
        answers = predict(keras, model, feeds)
        losses, moved = train(keras, model, feeds)
        backend = keras.backend.backend()
        np.savez(file.with_suffix(f".{backend}.npz"), loss=losses, moved=moved, **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
