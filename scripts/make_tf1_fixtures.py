"""Makes tests/data/tf1/<TensorFlow version>/<case>: genuine TensorFlow 1 GPU checkpoints with CPU answers.

    python scripts/make_tf1_fixtures.py [CASE ...]

run under Python 3.7 with tensorflow==1.15.5, protobuf<3.21, numpy<1.19, h5py<3 (and Python 3.6 with
tensorflow 1.8.0 and 1.12.3, protobuf<3.18, numpy<1.17). No GPU is needed: TensorFlow 1 builds and exports a
graph of Cudnn layers anywhere, it only cannot run it. So every case is built twice. The Cudnn graph, with
gradients and savers, gives model.ckpt.meta. Its twin of CudnnCompatible cells, whose variables have the very
keys that the Cudnn graph's saver writes, gives the checkpoint and golden.npz. The graphs of cases_block run on
a CPU as they are and need no twin. Op-level classes of TensorFlow 1.2 and 1.3 are made by
tf1_fixtures/old_params.py. The case horovod is made where horovod==0.22.1 is installed, built with
HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1. Every run writes the same bytes.
"""
import os
import sys

import tensorflow as tf

from tf1_fixtures import (
    cases_batch_norm,
    cases_block,
    cases_choosing,
    cases_containers,
    cases_control_flow,
    cases_decoding,
    cases_distributed,
    cases_inputs,
    cases_lengths,
    cases_modes,
    cases_objects,
    cases_op_level,
    cases_projects,
    cases_scopes,
    cases_state,
    cases_training,
)
from tf1_fixtures.record import record
from tf1_fixtures.record_cpu import record_cpu
from tf1_fixtures.tagger import bilstm_tagger

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "tests", "data", "tf1", tf.__version__)

EVERY_VERSION = (
    cases_modes.CASES
    + cases_training.CASES
    + cases_control_flow.CASES
    + cases_containers.CASES
    + cases_choosing.CASES
)
ONLY_1_15 = (
    cases_modes.CASES_1_15
    + cases_training.CASES_1_15
    + cases_scopes.CASES_1_15
    + cases_control_flow.CASES_1_15
    + cases_decoding.CASES_1_15
    + cases_distributed.CASES_1_15
    + cases_lengths.CASES_1_15
    + cases_inputs.CASES_1_15
    + cases_state.CASES_1_15
    + cases_batch_norm.CASES_1_15
    + cases_block.CASES_1_15
    + cases_objects.CASES_1_15
    + cases_op_level.CASES_1_15
    + cases_projects.CASES_1_15
    + cases_containers.CASES_1_15
    + cases_choosing.CASES_1_15
)

OTHER_RECORDERS = {build: record_cpu for build in cases_block.CASES_1_15}
OTHER_RECORDERS[cases_decoding.gather_tree] = cases_decoding.record_tree
OTHER_RECORDERS.update((build, cases_objects.record_objects) for build in cases_objects.CASES_1_15)
OTHER_RECORDERS.update((build, cases_op_level.record_op_level) for build in cases_op_level.CASES_1_15)
OTHER_RECORDERS.update((build, cases_choosing.record_renamed) for build in cases_choosing.RENAMED)
OTHER_RECORDERS.update((build, cases_containers.record_container) for build in cases_containers.CONTAINERS)

if tf.__version__.startswith("1.15."):
    from tf1_fixtures import cases_estimators

    ONLY_1_15 += cases_estimators.CASES_1_15
    OTHER_RECORDERS.update((build, cases_estimators.record_saved_model) for build in cases_estimators.SAVED_MODELS)
    OTHER_RECORDERS.update((build, cases_estimators.record_weights) for build in cases_estimators.WEIGHTS)

try:
    import horovod  # noqa: F401
except ImportError:
    pass
else:
    ONLY_1_15 += cases_distributed.CASES_HOROVOD

if hasattr(tf.keras.layers, "CuDNNLSTM"):  # since TensorFlow 1.9, as what these cases import
    from tf1_fixtures import cases_keras, cases_keras_weights, keras_record

    EVERY_VERSION += cases_keras.CASES
    ONLY_1_15 += cases_keras.CASES_1_15 + cases_keras_weights.CASES_1_15
    OTHER_RECORDERS.update((build, keras_record.record) for build in cases_keras.CASES + cases_keras.CASES_1_15)
    OTHER_RECORDERS.update((build, cases_keras_weights.record_weights) for build in cases_keras_weights.CASES_1_15)


def main(names):
    newest = tf.__version__.startswith("1.15.")
    wanted = {build: os.path.join(FIXTURES, build.__name__) for build in EVERY_VERSION}
    if newest:
        wanted.update({build: os.path.join(FIXTURES, build.__name__) for build in ONLY_1_15})
        wanted[bilstm_tagger] = os.path.join(FIXTURES, "bilstm_tagger")
    for build, folder in wanted.items():
        if not names or build.__name__ in names:
            print(build.__name__)
            OTHER_RECORDERS.get(build, record)(build, folder)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(sys.argv[1:])
