"""tf_keras opens an HDF5 file with cuDNN layers and, told to take its LSTM instead, converts them rightly.

What it gives is a model of tf_keras, in memory; as it stands in the file the model runs on a GPU alone.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

FOLDER = Path(__file__).parents[2] / "tests/data/keras/keras-2.2.4/sequential_lstm"
INSTEAD = {"CuDNNLSTM": tf_keras.layers.LSTM}


def holds() -> bool:
    with np.load(FOLDER / "golden.npz") as golden:
        x, expected = golden["feed0/cu_dnnlstm_1_input"], golden["feed0/dense_1"]
    model = tf_keras.models.load_model(FOLDER / "model.h5", INSTEAD, compile=False)
    error = np.abs(model.predict(x, verbose=0) - expected).max()
    print(f"load_model, custom_objects={{'CuDNNLSTM': LSTM}}: {error:.1e} from the recorded answers")
    try:
        tf_keras.models.load_model(FOLDER / "model.h5", compile=False).predict(x, verbose=0)
    except tf.errors.InvalidArgumentError as cause:
        print("load_model alone, predict:", cause.message.splitlines()[0][:70])
        return bool(error < 1e-6 and "No OpKernel was registered" in cause.message)
    return False


if __name__ == "__main__":
    sys.exit(not holds())
