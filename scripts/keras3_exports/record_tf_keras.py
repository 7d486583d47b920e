"""Makes one fixture with tf_keras, and the answers of a CPU's layers."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from . import stand_in
from .case import Case
from .cases_tf_keras import Layers
from .fixture import Fixture
from .record import export, feeds, fresh, in_empty_folder, run
from .weights import set_weights

WEIGHTS = "weights.h5"


def record(keras: Any, writer: str, build: Callable[[Layers], Case], fixtures: Path) -> None:
    """The fixture of one case. Run it in a fresh process: names count on.

    LSTM and GRU name their functions by `uuid.uuid4`; here it counts, so that every run writes the same.
    """
    folder = fresh(fixtures / writer / build.__name__)
    count = itertools.count(1)
    with in_empty_folder(), mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=next(count))):
        keras.utils.set_random_seed(0)
        plain = Layers(keras, keras.layers.LSTM, keras.layers.GRU)
        cudnn = build.__name__.startswith("cudnn")
        case = build(cudnn_layers(keras) if cudnn else plain)
        set_weights(build.__name__, case.model)
        case.model.save_weights(WEIGHTS)
        export(case, folder / "saved_model")
        fed = feeds(build.__name__, case)
        answers = {name: run(twin(build, plain), name, rows) for name, rows in fed.items()}
        if cudnn:
            stand_in.check(case, fed, answers, "float32")
    Fixture(folder, writer, case, fed, answers).write(build)


def cudnn_layers(keras: Any) -> Layers:
    """The CuDNN layers; tf_keras has them in its version 1 interface only."""
    from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
    from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

    return Layers(keras, CuDNNLSTM, CuDNNGRU)


def twin(build: Callable[[Layers], Case], plain: Layers) -> Path:
    """The same model of LSTM and GRU, saved: `load_weights` makes their weights from a CuDNN layer's."""
    plain.keras.backend.clear_session()
    case = build(plain)
    case.model.load_weights(WEIGHTS)
    folder = Path("plain").resolve()
    export(case, folder)
    return folder
