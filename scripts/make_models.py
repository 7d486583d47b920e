"""Makes the files in models/: trains each network there with CPU cells, writes what its GPU twin would leave.

    python scripts/make_models.py [MODEL ...]

run under Python 3.7 with tensorflow==1.15.5, protobuf<3.21, numpy<1.19, h5py<3; no GPU is needed. golden.npz
has what the CPU cells answer, restored from the files that are written, and the right answers as `truth`.
Every run on one machine writes the same bytes; another processor may round the training differently.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import tensorflow as tf
from trained_models import char_lm, contrib, seq2seq

MODELS = Path(__file__).resolve().parents[1] / "models"
MAKERS = {
    "crf_tagger": contrib.crf_tagger,
    "ocr_crnn": contrib.ocr_crnn,
    "gru_speech": contrib.gru_speech,
    "char_lm": char_lm.make,
    "seq2seq": seq2seq.make,
}


def main(names):
    for name in names or MAKERS:
        folder = MODELS / name
        spec = importlib.util.spec_from_file_location(name, str(folder / "train.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with tempfile.TemporaryDirectory() as work:
            accuracy = module.train(work, use_gpu=False)
            case = MAKERS[name](module, Path(work), folder)
        print(f"{name}: accuracy {accuracy:.4f}")
        case.update(name=name, tensorflow=tf.__version__, accuracy=round(accuracy, 4))
        (folder / "case.json").write_text(json.dumps(case, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(sys.argv[1:])
