"""Makes tests/data/keras/<writer>/<case>: files with CuDNN layers as old Keras wrote them, with CPU answers.

    python scripts/make_keras_fixtures.py PACKAGE [CASE ...]

PACKAGE is keras, tf.keras or tf_keras: who writes. Run it once per environment; no GPU is needed. Each is a
fresh `python -m venv`, in it `pip install "pip==21.3.1"`, then `pip install "h5py<3" "setuptools<59"` and:

| writer          | Python | PACKAGE  | and                                                           |
|-----------------|--------|----------|---------------------------------------------------------------|
| keras-2.1.6     | 3.6    | keras    | keras==2.1.6 tensorflow==1.8.0 "protobuf<3.18" "numpy<1.17"   |
| keras-2.2.4     | 3.6    | keras    | keras==2.2.4 tensorflow==1.12.3 "protobuf<3.18" "numpy<1.17"  |
| keras-2.3.1     | 3.7    | keras    | keras==2.3.1 tensorflow==1.15.5 "protobuf<3.21" "numpy<1.19"  |
| tf.keras-1.12.3 | 3.6    | tf.keras | tensorflow==1.12.3 "protobuf<3.18" "numpy<1.17"               |
| tf.keras-1.15.5 | 3.7    | tf.keras | tensorflow==1.15.5 "protobuf<3.21" "numpy<1.19"               |
| tf_keras-2.21.0 | 3.11   | tf_keras | nothing of this: the project's own environment                |

Keras builds and saves CuDNN layers anywhere; a CPU only cannot run them. So a model with CuDNN layers gets
random numbers for weights and is saved. Then the same case is built with LSTM and GRU
(recurrent_activation="sigmoid", reset_after=True), whose `load_weights` converts the file by Keras' own rule;
that model's answers are golden.npz. They are checked, before they are written, against the CuDNN layers with
the missing op stood in for by its equations (stand_in.py). The same stand-in trains the cases that hold an
optimizer's state. Every run writes the same bytes. Where a file was edited after Keras wrote it, the case's
`about` says so.
"""
import os
import sys

from keras_fixtures import (
    cases_archive,
    cases_custom,
    cases_layers,
    cases_main,
    cases_weights,
    cases_wrappers,
)
from keras_fixtures.record import record
from keras_fixtures.writer import Writer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "tests", "data", "keras")

#: What a writer gets besides the main cases.
MORE = {
    "keras-2.1.6": (),
    "keras-2.2.4": cases_layers.CASES + cases_wrappers.CASES + cases_weights.CASES + cases_custom.CASES,
    "keras-2.3.1": (
        cases_layers.beside_plain,
        cases_layers.text_classifier,
        cases_layers.adam,
        cases_wrappers.nested,
    ),
    "tf.keras-1.12.3": (
        cases_layers.stateful_gru,
        cases_layers.beside_plain,
        cases_layers.text_classifier,
        cases_wrappers.merge_modes_lstm,
        cases_weights.weights_sequential,
    ),
    "tf.keras-1.15.5": cases_layers.SINCE_TF_1_13 + (
        cases_layers.stateful_lstm,
        cases_layers.stateful_gru,
        cases_layers.go_backwards,
        cases_layers.beside_plain,
        cases_layers.text_classifier,
        cases_layers.adam,
        cases_layers.op_layers,
        cases_wrappers.merge_modes_gru,
        cases_wrappers.time_distributed_nested,
        cases_wrappers.nested,
        cases_wrappers.frozen_layers,
        cases_wrappers.bidirectional_states,
        cases_weights.weights_functional,
        cases_custom.custom_layer,
    ),
    "tf_keras-2.21.0": cases_archive.CASES + cases_layers.SINCE_TF_1_13 + (
        cases_layers.stateful_lstm,
        cases_layers.adam,
        cases_layers.op_layers,
        cases_layers.text_classifier,
        cases_wrappers.nested,
        cases_custom.lambda_harmless,
        cases_custom.lambda_pwned,
        cases_custom.custom_layer,
    ),
}


def main(package, names):
    for build in cases_main.CASES + MORE[Writer(package).name]:
        if not names or build.__name__ in names:
            print(build.__name__)
            record(package, build, FIXTURES)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
