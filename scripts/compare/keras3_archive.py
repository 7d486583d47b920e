"""Where an export of Keras 3 needs a GPU, the `.keras` file of the same model runs on a CPU."""

import sys
from pathlib import Path

import keras
import numpy as np

FOLDER = Path(__file__).parents[2] / "tests/data/keras3_exports/keras-3.12.4/archive"


def holds() -> bool:
    model = keras.models.load_model(FOLDER / "gpu_archive.keras")
    with np.load(FOLDER / "golden.npz") as golden:
        error = np.abs(
            model.predict(golden["serving_default/feed0/x"], verbose=0)
            - golden["serving_default/feed0/out/output_0"]
        ).max()
    print(f"keras.models.load_model, predict: {error:.1e} from the recorded answers")
    return bool(error < 1e-6)


if __name__ == "__main__":
    sys.exit(not holds())
