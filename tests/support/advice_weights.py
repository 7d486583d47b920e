"""Tables of `Advice`: messages about copies of weights, weights without a graph, and files of Keras."""

from __future__ import annotations

from typing import Final

from support import asking_files as files
from support.advice import Advice
from support.asking_files import graphless

_LSTM: Final = "1.15.5-lstm_bi_2l_states"

#: Which copy, which recurrence.
WEIGHTS: Final = (
    Advice(
        ["recurrences/weight_copies.py: choose with", "recurrences/weight_copies.py: --weights raw"],
        files.of_sample(_LSTM, files.doubled),
        [],
        r"(--weights (?:canonical|raw))",
    ),
    Advice(
        ["recurrences/weight_copies.py: they agree with --forget-bias"],
        files.of_sample(_LSTM, files.without_forget_bias),
        [],
        r"agree with (--forget-bias 1)",
    ),
    Advice(
        ["recurrences/weight_copies.py: they agree with --gate-order"],
        files.of_sample(_LSTM, files.lingvo),
        [],
        r"agree with (--gate-order lingvo)",
    ),
    Advice(
        ["recurrences/weight_copies.py: use the blob with --weights raw"],
        files.of_sample(_LSTM, files.in_two_scopes),
        ["--weights", "canonical"],
        r"use the blob with (--weights raw)",
    ),
    Advice(
        ["recurrences/graphless.py: --mode {} --layers {} --units {} --directions {}"],
        graphless("1.15.5-raw_only"),
        [],
        r"(--mode gru --layers 1 --units 4 --directions 2)(?= \(input size 7\))",
    ),
    Advice(
        ["recurrences/graphless.py: --mode, --layers"],
        graphless("1.15.5-raw_only"),
        ["--units", "4"],
        r"name (--mode), (--layers), --units and (--directions)",
        {"--mode": "gru", "--layers": "1", "--directions": "2"},
    ),
    Advice(
        ["recurrences/graphless.py: choose with --mode"],
        files.basic_cell,
        [],
        r"choose with (--mode)",
        {"--mode": "rnn_relu"},
    ),
    Advice(
        ["recurrences/graphless.py: --mode chooses"],
        files.basic_cell_of_relu,
        [],
        r"by its name; (--mode) chooses",
        {"--mode": "rnn_tanh"},
    ),
    Advice(
        ["recurrences/graphless.py: --directions 1", "recurrences/graphless.py: --directions 2"],
        graphless("1.3.0-params_lstm_bi"),
        [],
        r"(--directions [12])",
        then="give --mode, --layers, --units and --directions",
    ),
    Advice(
        ["read/dialects/regions.py: convert its blob"],
        graphless("1.3.0-params_gru_bi_2l"),
        ["--directions", "1", "--mode", "gru"],
        r"convert its blob with (--directions 2)",
        then="give --mode, --layers, --units and --directions",
    ),
    Advice(
        ["recurrences/graphless.py: --layout chooses"],
        files.basic_cell,
        ["--mode", "rnn_tanh"],
        r"; (--layout) chooses",
        {"--layout": "batch"},
    ),
    Advice(
        ["recurrences/graphless.py: --mode chooses"],
        files.blob_of_a_gru,
        ["--layers", "1", "--units", "5", "--directions", "1"],
        r"by its name; (--mode) chooses",
        {"--mode": "gru"},
    ),
    Advice(
        ["recurrences/graphless.py: choose with --signature"],
        files.two_blobs,
        ["--mode", "gru", "--layers", "1", "--units", "5", "--directions", "1"],
        r"choose with (--signature)",
        {"--signature": "second"},
    ),
    Advice(
        ["recurrences/graphless.py: say --mode {} --units N"],
        "1.15.5-object_lstm_1l",
        [],
        r"say (--mode lstm --units N)",
        {"N": "6"},
    ),
    Advice(
        ["recurrences/graph_from_weights.py: --format onnx"],
        files.of_a_strange_name,
        ["--mode", "rnn_relu"],
        r"(--format (?:onnx|npz))",
    ),
    Advice(
        ["read/dialects/contrib.py: need --forget-bias"],
        "1.15.5-object_lstm_2l",
        [],
        r"need (--forget-bias 1)",
    ),
)
