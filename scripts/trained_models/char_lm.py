"""The Keras model: model.h5, golden.npz and what case.json says of them."""

import numpy as np
import tensorflow as tf
from keras_fixtures.describe import input_names, output_names, recurrences
from keras_fixtures.reproducible import datasets


def make(module, work, folder):
    """A trained character model: Embedding, two stateful CuDNNLSTM, Dense with softmax. The state goes on
    from the first recorded call to the second."""
    with datasets():
        module.export(str(work), use_gpu=True)
    model_file = folder / "model.h5"
    model_file.write_bytes((work / "model.h5").read_bytes())
    tf.keras.backend.clear_session()
    cpu = module.build(1, use_gpu=False)
    cpu.load_weights(str(model_file))  # Keras makes LSTM weights of what CuDNNLSTM saved
    (asked,), (answered,) = input_names(cpu), output_names(cpu)
    _, text = module.read()
    golden = {}
    for number, (start, end) in enumerate(((0, 25), (25, 40))):
        ids = text[None, start:end].astype(np.float32)
        found = {asked: ids, answered: cpu.predict_on_batch(ids), "truth": text[None, start + 1 : end + 1]}
        golden.update({f"feed{number}/{name}": value for name, value in found.items()})
    np.savez_compressed(str(folder / "golden.npz"), **golden)
    tf.keras.backend.clear_session()
    found = recurrences(module.build(1, use_gpu=True))
    stateful = [recurrence.pop("stateful") for recurrence in found]
    return {
        "about": " ".join(make.__doc__.split()),
        "writer": f"tf.keras-{tf.__version__}",
        "file": "model.h5",
        "architecture": None,
        "inputs": [asked],
        "outputs": [answered],
        "stateful": any(stateful),
        "flags": [],
        "recurrences": found,
    }
