"""Tables of `Advice`: messages about sources with a graph of TensorFlow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from support import asking_files, asking_graphs
from support.advice import Advice
from support.asking_graphs import X
from support.command_line import command


def with_feeds(**values: Any) -> Any:
    """Makes feeds.npz."""
    return lambda here, _: np.savez(here / "feeds.npz", **values)


def converted(*flags: str, name: str = "artifact") -> Any:
    """Makes an artifact of the source."""

    def made(here: Path, source: Path) -> None:
        assert command(source, here / name, *flags).code == 0

    return made


ASKED: Final = (
    Advice(
        ["plan/streaming.py: convert without --states"],
        asking_graphs.without_recurrence,
        ["--outputs", "scores", "--states"],
        r"(?P<gone>--states): expected a cuDNN recurrence",
    ),
    Advice(
        ["plan/streaming.py: convert without --states"],
        asking_graphs.bidirectional,
        ["--states"],
        r"convert without (?P<gone>--states)",
    ),
    Advice(
        ["plan/streaming.py: {} --inputs {}"],
        asking_graphs.convolved,
        ["--states"],
        r"found a convolution over 3 steps, before rnn; cut the graph behind it with (--inputs \S+)$",
    ),
    Advice(
        ["plan/streaming.py: convert without --states"],
        asking_graphs.fixed_steps,
        ["--states"],
        r"ops that take any number of steps, found AddV2 for 7 alone; convert without (?P<gone>--states)",
    ),
    Advice(
        ["plan/streaming.py: convert without --states"],
        asking_graphs.fixed_input,
        ["--states"],
        r"found one over other axes; convert without (?P<gone>--states)",
    ),
    Advice(
        ["plan/streaming.py: convert without --states"],
        asking_graphs.unknown_sizes,
        ["--states"],
        r"may be time, found none; convert without (?P<gone>--states)",
    ),
    Advice(
        ["plan/streaming.py: convert without --decode"],
        asking_graphs.bidirectional,
        ["--decode", "greedy", "--steps", "3"],
        r"convert without (?P<gone>--decode)",
        then="leave out --steps",
    ),
    Advice(
        ["options.py: --decode {} needs --steps"],
        asking_graphs.language_model,
        ["--decode", "greedy"],
        r"needs (--steps)",
        answers={"--steps": "3"},
    ),
    Advice(
        ["plan/decoding.py: name it with --token {}"],
        asking_graphs.signal,
        ["--decode", "greedy", "--steps", "3"],
        r"name it with (--token \S+)$",
    ),
    Advice(
        ["plan/decoding.py: name it with --logits {}"],
        asking_graphs.two_heads,
        ["--outputs", "one,other", "--decode", "greedy", "--steps", "3"],
        r"or name it with (--logits \S+)$",
    ),
    Advice(
        ["verification/scales.py: say it with --logits {}"],
        asking_graphs.shares,
        ["--outputs", "shares", "--decode", "greedy", "--steps", "3", "--logits", "shares"],
        r"say it with (--logits \S+), or say",
    ),
    Advice(
        ["plan/applicable.py: --states: expected --format {}"],
        asking_graphs.plain,
        ["--states", "--format", "checkpoint"],
        r"expected (--format \w+), (?P<other>frozen)",
    ),
    Advice(["plan/knobs.py: --set {}"], "1.15.5-dropout_needs_set", [], r"turn it off with (--set \S+)$"),
    Advice(["plan/knobs.py: --set {}"], asking_graphs.served_dropout, [], r"turn it off with (--set \S+)$"),
    Advice(
        ["plan/knobs.py: --set {}"],
        asking_graphs.served_training_mode,
        [],
        r"leave training mode with (--set \S+)$",
    ),
    Advice(
        ["plan/knobs.py: --set {}"],
        asking_graphs.two_dropouts,
        [],
        r"turn it off with (--set \S+ --set \S+)$",
    ),
    Advice(
        ["plan/obstacles.py: bind it with --set {}:0=VALUE"],
        asking_graphs.noise,
        [],
        r"bind it with (--set \S+)|cut the graph behind it with (--inputs)",
        {"VALUE": "0.5", "--inputs": "x,noise"},
    ),
    Advice(
        ["graph/passes/subgraphs.py: leave out {}, which it decides, with"],
        asking_graphs.policy,
        ["--outputs", "values=out/scores,action"],
        r"or leave out \w+, which it decides, with (--outputs \S+)$",
    ),
    Advice(
        ["plan/statistics.py: make it an input"],
        asking_graphs.centred,
        [],
        r"make it an input with (--inputs)|or choose other (--outputs)",
        {"--inputs": "x,mean", "--outputs": "early"},
    ),
    Advice(
        ["plan/statistics.py: choose an output of the inference graph"],
        asking_graphs.batch_normalisation,
        [],
        r"choose an output of the inference graph with (--outputs)",
        {"--outputs": "early"},
    ),
    Advice(
        ["plan/obstacles.py: ; others with"],
        asking_graphs.batch_normalisation,
        [],
        r"outputs chosen from the graph: scores:0; others with (--outputs)",
        {"--outputs": "early"},
    ),
    Advice(
        ["graph/control_flow.py: --set"],
        "1.15.5-cond_training",
        [],
        r"meant for training; choose with (--set \S+)$",
    ),
    Advice(["plan/knobs.py: --set {}"], "1.15.5-phase", [], r"leave training mode with (--set \S+)$"),
    Advice(
        ["graph/passes/subgraphs.py: cut the graph before it{} with"],
        asking_graphs.unknown_op,
        [],
        r"cut the graph before it, which drops \w+, with (--outputs \S+)$",
    ),
    Advice(
        ["plan/choose_outputs.py: --outputs {}"], "1.15.5-horovod_gathered", [], r"(--outputs \S+)(?= \| |$)"
    ),
    Advice(
        ["plan/obstacles.py: choose other --outputs"],
        asking_graphs.unknown_op_at_an_input,
        [],
        r"choose other (--outputs)$",
        {"--outputs": "rnn:0"},
    ),
    Advice(
        ["plan/obstacles.py: found {}:{}, which only gradients need"],
        asking_graphs.kept_for_gradients,
        ["--outputs", "scores,kept"],
        r"choose other (--outputs)$",
        {"--outputs": "scores"},
    ),
    Advice(
        ["plan/obstacles.py: --outputs {}: expected outputs 0 to 2"],
        asking_graphs.kept_for_gradients,
        ["--outputs", "rnn:3"],
        r"(--outputs)(?= rnn:3: )",
        {"--outputs": "scores"},
    ),
    Advice(
        ["lower/onnx/convert.py: which only gradients need"],
        asking_graphs.kept_for_gradients,
        ["--format", "onnx", "--outputs", "scores,kept"],
        r"choose other (--outputs)$",
        {"--outputs": "scores"},
    ),
    Advice(
        ["recurrences/resolve.py: {} in a {}; choose"],
        asking_graphs.projected,
        [],
        r"choose (--outputs) without it",
        {"--outputs": "scores"},
    ),
    Advice(
        ["recurrences/resolve.py: {}; choose --outputs without it"],
        asking_graphs.projected_too_wide,
        [],
        r"choose (--outputs) without it",
        {"--outputs": "scores"},
    ),
    Advice(
        ["graph/passes/state_io.py: or --format savedmodel"],
        asking_graphs.counted,
        ["--format", "frozen"],
        r"choose other (--outputs)|or (--format savedmodel)",
        {"--outputs": "rnn:0"},
    ),
    Advice(
        ["graph/passes/state_io.py: make it an input and an output with"],
        asking_graphs.plain_states,
        ["--format", "frozen", "--outputs", "scores"],
        r"make it an input and an output with (--states), choose",
    ),
    Advice(
        [
            "graph/passes/state_io.py: choose other --outputs, or convert with --format savedmodel, "
            "without --states"
        ],
        asking_graphs.plain_states,
        ["--format", "frozen", "--outputs", "others", "--states"],
        r"choose other (--outputs)|convert with (--format savedmodel), without (?P<gone>--states)$",
        {"--outputs": "scores"},
    ),
    Advice(
        ["graph/passes/state_io.py: choose other --outputs, or convert with --format savedmodel"],
        asking_graphs.plain_states,
        ["--format", "frozen", "--outputs", "parts"],
        r"choose other (--outputs)|convert with (--format savedmodel)$",
        {"--outputs": "x"},
    ),
    Advice(
        ["graph/passes/state_io.py: give a file that holds it"],
        asking_graphs.state_that_nothing_holds,
        [],
        r"choose other (--outputs)$",
        {"--outputs": "others"},
    ),
    Advice(
        ["graph/recurrent_state.py: assignments in a fixed order"],
        asking_graphs.state_in_no_order,
        ["--format", "frozen"],
        r"choose other (--outputs)$",
        {"--outputs": "others"},
    ),
    Advice(
        ["recurrences/weight_copies.py: give the shape of its input"],
        asking_graphs.states_of_unknown_shape,
        [],
        r"give the shape of its input with (--inputs)",
        {"--inputs": "x,h[1,?,2]"},
    ),
    Advice(
        ["graph/session.py: choose other"],
        asking_graphs.size_of_a_table,
        ["--format", "frozen"],
        r"choose other (--outputs)$",
        {"--outputs": "rnn:0"},
    ),
    Advice(
        ["graph/session.py: cut the graph behind"],
        "1.15.5-two_lookups",
        ["--format", "onnx"],
        r"cut the graph behind every lookup with (--inputs \S+)$",
    ),
    Advice(
        ["graph/session.py: cut the graph behind"],
        "1.15.5-two_lookups",
        ["--format", "frozen"],
        r"cut the graph behind every lookup with (--inputs \S+)$",
    ),
    Advice(
        ["recurrences/parameter_source.py: the placeholder"],
        asking_graphs.scaled_parameters,
        [],
        r"bind it with (--set \S+)$",
        {"VALUE": "0.5"},
    ),
    Advice(
        ["plan/choose_outputs.py: ; name --outputs"],
        asking_graphs.in_branches_alone,
        [],
        r"name (--outputs)",
        {"--outputs": "total/Merge"},
    ),
    Advice(
        ["plan/choose_outputs.py: name --outputs"],
        asking_graphs.no_recurrence,
        [],
        r"name (--outputs)",
        {"--outputs": "one"},
    ),
    Advice(["plan/choose_outputs.py: --outputs {}"], "1.15.5-two_heads", [], r"(--outputs \S+)(?= \| |$)"),
    Advice(
        ["graph/passes/subgraphs.py: where only ? may change"],
        asking_graphs.plain,
        ["--inputs", "x:0[?,?,4]"],
        r"in (--inputs); give (\S+)$",
    ),
    Advice(
        ["graph/passes/subgraphs.py: where only ? may change"],
        "1.15.5-string_outputs",
        ["--inputs", "x:0[?,?,?]"],
        r"in (--inputs); give (\S+)$",
    ),
    Advice(
        ["graph/passes/subgraphs.py: where only ? may change"],
        "1.15.5-state_lstm",
        ["--inputs", "x,stream/h_state[1,9,8]"],
        r"in (--inputs); give (\S+)$",
        {"stream": "x,stream"},
    ),
    Advice(
        [
            "graph/passes/subgraphs.py: in the place of --set",
            "graph/passes/subgraphs.py: expected a tensor of known shape",
        ],
        asking_graphs.plain,
        ["--set", "x=0"],
        r"make it an input with (--inputs \S+) in the place of (?P<gone>--set)",
    ),
    Advice(
        ["plan/requests.py: expected a tensor that is no state", "plan/requests.py: in the place of"],
        "1.15.5-state_lstm",
        ["--set", "stream/h_state=0"],
        r"leave it out, or name it with (--inputs) in the place of (?P<gone>--set)",
        {"--inputs": "x,h=stream/h_state"},
    ),
    Advice(
        ["plan/requests.py: in --inputs; leave it out of one"],
        asking_graphs.scaled_input,
        ["--inputs", "x,scale", "--set", "scale=2"],
        r"(?P<gone>--set): .* leave it out of one",
    ),
    Advice(
        ["plan/requests.py: leave one out"],
        asking_graphs.plain,
        ["--inputs", "x,x"],
        r"(--inputs): expected each tensor once",
        {"--inputs": "x"},
    ),
    Advice(
        ["plan/from_graph.py: leave them out"],
        asking_graphs.scaled_input,
        ["--inputs", "x,scale,mul"],
        r"(--inputs): the outputs do not need x:0, scale:0; leave them out",
        {"--inputs": "mul"},
    ),
    Advice(
        ["plan/from_graph.py: add them, or bind them", "plan/from_graph.py: also need"],
        asking_graphs.scaled_input,
        ["--inputs", "x"],
        r"(--inputs): the outputs also need|bind them with (--set)",
        {"--inputs": "x,scale", "--set": "scale=2"},
    ),
    Advice(
        ["plan/obstacles.py: give its shape with"],
        "1.15.5-unknown_rank",
        [],
        r"give its shape with (--inputs .+)$",
    ),
    Advice(
        ["plan/obstacles.py: found strings; give"],
        asking_graphs.strings,
        [],
        r"give (--data)",
        {"--data": "{here}/feeds.npz"},
        prepare=with_feeds(x=X, words=np.array([b"four", b"no"])),
    ),
    Advice(
        ["plan/obstacles.py: or bind it with"],
        asking_graphs.an_integer,
        [],
        r"give (--data)|bind it with (--set \S+)",
        {"--data": "{here}/feeds.npz", "VALUE": "3"},
        prepare=with_feeds(x=X, n=np.int32(3)),
    ),
    Advice(
        ["plan/obstacles.py: or bind it with"],
        asking_graphs.served_integer,
        [],
        r"bind it with (--set \S+)",
        {"VALUE": "3"},
    ),
    Advice(
        ["verification/feeds.py: give --data feeds.npz of yours"],
        asking_graphs.guarded,
        [],
        r"give (--data)",
        {"--data": "{here}/feeds.npz"},
        prepare=with_feeds(x=X + 200),
    ),
    Advice(
        ["verification/graph_judge.py: or convert with"],
        asking_graphs.acting,
        ["--outputs", "scores"],
        r"(?:file|convert) with (--trust|--no-verify)",
    ),
    Advice(["read/paths.py: --trust"], asking_graphs.beside_a_link, [], r"with (--trust)"),
    Advice(
        ["storage/__init__.py: --force"],
        asking_graphs.plain,
        [],
        r"replace it with (--force)",
        prepare=converted(name="out"),
    ),
    Advice(
        ["read/saved_model.py: choose with --tag"],
        asking_graphs.two_tags,
        [],
        r"choose with (--tag)",
        {"--tag": "a"},
    ),
    Advice(
        ["recurrences/weight_copies.py: without --weights"],
        asking_graphs.plain,
        ["--weights", "canonical"],
        r"without (?P<gone>--weights)",
    ),
    Advice(
        ["plan/moving_averages.py: take the weights"],
        asking_graphs.plain,
        ["--weights", "ema"],
        r"without (?P<gone>--weights)",
    ),
    Advice(
        ["plan/from_graph.py: --outputs"],
        asking_graphs.trained_in_a_branch,
        [],
        r"meant for training; choose with (--outputs \S+)",
    ),
    Advice(
        ["recurrences/saved_functions.py: convert it alone"],
        asking_files.called_with_any_blob,
        [],
        r"convert it alone with (--signature)",
        {"--signature": "serving_default"},
    ),
    Advice(
        ["recurrences/saved_functions.py: convert one call"],
        asking_files.called_with_two_sizes,
        [],
        r"convert one call of it with (--signature)",
        {"--signature": "wide"},
    ),
)

#: Notes of conversions that are done, on what else there is.
NOTES: Final = (
    Advice(
        ["plan/notes.py: --outputs {}"], "1.15.5-string_outputs", [], r"include them with (--outputs \S+)"
    ),
    Advice(
        ["plan/moving_averages.py: takes them"], "1.15.5-moving_average", [], r"; (--weights ema) takes them"
    ),
    Advice(
        ["plan/requests.py: --outputs {}"],
        asking_graphs.updated_aside,
        [],
        r"left out; add with (--outputs \S+)",
    ),
    Advice(
        ["targets/checkpoint.py: keep them with"],
        "1.15.5-twins_training",
        ["--format", "checkpoint"],
        r"dropped; keep them with (--slots)",
    ),
    Advice(
        ["plan/notes.py: feeds.npz of serialized tf.Examples"],
        "1.15.5-estimator_examples",
        [],
        r"keep it with (--data feeds.npz)",
        {"feeds.npz": "{here}/feeds.npz"},
        prepare=lambda here, _: asking_files.examples(here / "feeds.npz"),
    ),
    Advice(
        ["verification/recordings.py: cut behind their parser"],
        "1.15.5-estimator_examples",
        ["--data", "{here}/feeds.npz"],
        r"parser with (--inputs \S+)",
        prepare=with_feeds(tokens=np.array([[1, 2], [3, 0]]), age=np.array([[0.5, -1], [2, 0.25]], "f4")),
    ),
    Advice(
        ["verification/compare.py: give other inputs"],
        asking_graphs.ill_conditioned,
        [],
        r"give other inputs with (--data)",
        {"--data": "{here}/feeds.npz"},
        prepare=with_feeds(x=X * 1e-4),
    ),
)
