"""Traces a search over a model's steps, and adds the search to the model's graph.

The search calls the model's own nodes in the body of its loop. Variables and large constants stay where they
are, outside of it, so that the graph has them once.

    before:  a graph of one step or more: tokens, NAME_h -> logits, NAME_h_next
    after:   the same, and decode/tokens, decode/NAME_h -> decode/sequences, decode/lengths, decode/scores
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import decode
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import Graph, extract_nodes
from cudnn_convert.graph.index import NodeDef, callees, reachable_functions, reference, split
from cudnn_convert.graph.passes import inlining
from cudnn_convert.model import Signature
from cudnn_convert.values import Decoder

#: Takes the inputs of a step or of a part before it by key, and what is held outside of the loop; gives its
#: outputs by key.
CallStep = Callable[[Mapping[str, Any], Sequence[Any]], Mapping[str, Any]]
#: Elements of a constant that is held outside of the loop.
_LARGE: Final = 1024
#: The axes of a state with its rows first, and back.
_ROWS_FIRST: Final = (1, 0, 2)


def list_step_outputs(decoder: Decoder) -> list[str]:
    """List the keys of a step's outputs read by a search."""
    return [decoder.logits, *(state.next_key for state in decoder.states)]


def search_specs(decoder: Decoder, step: Mapping[str, tf.TensorSpec]) -> dict[str, tf.TensorSpec]:
    """Return the dtype and shape of each input of a search.

    `step` has those of each input of the step, and of the parts before it.
    """
    rows = step[decoder.token].shape[1 - decoder.token_axis]
    own = {
        "tokens": tf.TensorSpec([rows], tf.int32),
        Decoder.NOISE: tf.TensorSpec([rows, decoder.steps], tf.float32),
        Decoder.PAD_MASK: tf.TensorSpec([rows, decoder.vocabulary], tf.bool),
        Decoder.INITIAL_SCORES: tf.TensorSpec([rows, decoder.width], tf.float32),
    }
    return {key: own[key] if key in own else step[key] for key in decoder.signature.inputs}


def trace_search(
    decoder: Decoder,
    step: Mapping[str, tf.TensorSpec],
    call: CallStep,
    outer: Sequence[tf.TensorSpec] = (),
    *,
    before: Mapping[str, CallStep] = MappingProxyType({}),
) -> inlining.Body:
    """Trace a search with the step `call`.

    Its arguments are the search's inputs, then the `outer` tensors. `step` has the dtype and shape of each
    input of the step and of the parts `before` it, by their names.
    """
    specs = search_specs(decoder, step)

    def search(*arguments: Any) -> tuple[Any, ...]:
        inputs, kept = dict(zip(specs, arguments, strict=False)), arguments[len(specs) :]
        inputs |= _begin(decoder, step, before, inputs, kept)
        return _search(decoder, step, call, inputs, kept)

    return inlining.trace_function(search, *specs.values(), *outer)


def _begin(
    decoder: Decoder,
    step: Mapping[str, tf.TensorSpec],
    before: Mapping[str, CallStep],
    inputs: dict[str, Any],
    outer: Sequence[Any],
) -> dict[str, Any]:
    """Return the tensors before a search's first step, by key.

    They are the states, and the tensors that are the same at all steps.
    """
    tokens = inputs["tokens"]
    fed = inputs | _feed_tokens(decoder, step, tokens)
    for part in decoder.before:
        fed |= before[part.name]({key: fed[key] for key in part.signature.inputs}, outer)
    for key, value in decoder.values.items():
        rows = tf.size(tokens) if value.shape[1] == 1 else 1
        fed[key] = tf.tile(tf.constant(value), [1, rows, 1])
    return {key: tf.ensure_shape(fed[key], step[key].shape) for key in decoder.begun if key in step}


def _feed_tokens(decoder: Decoder, step: Mapping[str, tf.TensorSpec], tokens: Any) -> dict[str, Any]:
    """Return the inputs of a step made from the tokens, by key.

    They are the tokens, and lengths of one step.
    """
    token = tf.cast(tf.expand_dims(tokens, decoder.token_axis), step[decoder.token].dtype)
    return {decoder.token: token} | {key: tf.ones_like(tokens, step[key].dtype) for key in decoder.lengths}


def _search(
    decoder: Decoder,
    step: Mapping[str, tf.TensorSpec],
    call: CallStep,
    inputs: Mapping[str, Any],
    outer: Sequence[Any],
) -> tuple[Any, ...]:
    """Run a decoder, and return results in the order of the signature's outputs."""
    tokens = inputs["tokens"]
    rows = tf.size(tokens) * decoder.width
    beside = {
        key: inputs[key]
        if axis is None
        else tf.gather(inputs[key], tf.range(rows) // decoder.width, axis=axis)
        for key, axis in decoder.beside.items()
    }

    def take_step(tokens: Any, states: Any) -> tuple[Any, Any]:
        fed = _feed_tokens(decoder, step, tokens)
        fed |= {key: tf.transpose(state, _ROWS_FIRST) for key, state in states.items()}
        answers = call(fed | beside, outer)
        after = {}
        for state in decoder.states:
            last = tf.transpose(answers[state.next_key], _ROWS_FIRST)
            after[state.key] = tf.ensure_shape(last, states[state.key].shape)
        return _log_probs(decoder, answers[decoder.logits]), after

    states = {state.key: tf.transpose(inputs[state.key], _ROWS_FIRST) for state in decoder.states}
    mask = inputs.get(Decoder.PAD_MASK)
    if decoder.masked:
        mask = np.isin(np.arange(decoder.vocabulary), decoder.masked)
    usual: dict[str, Any] = {"end": decoder.end, "pad": decoder.pad, "pad_mask": mask}
    if decoder.kind == "greedy":
        return tuple(decode.greedy(take_step, tokens, states, steps=decoder.steps, **usual))
    if decoder.kind == "sample":
        return tuple(
            decode.sample(
                *(take_step, tokens, states, inputs[Decoder.NOISE]),
                top_k=decoder.top_k,
                temperature=decoder.temperature,
                **usual,
            )
        )
    best = decode.beam_search(
        *(take_step, tokens, states),
        width=decoder.width,
        steps=decoder.steps,
        length_penalty=decoder.length_penalty,
        keep_history=decoder.history,
        initial_scores=inputs.get(Decoder.INITIAL_SCORES),
        **usual,
    )
    return (best.sequences, best.lengths, best.scores, *(best.history or ()))


def _log_probs(decoder: Decoder, values: Any) -> Any:
    """Return log probabilities `[m, vocabulary]` of the next token, from a step's `values`."""
    if decoder.logits_axis is not None:
        values = tf.squeeze(values, [decoder.logits_axis])
    values = tf.ensure_shape(values, [None, decoder.vocabulary])
    values = values if values.dtype == tf.float64 else tf.cast(values, tf.float32)
    if decoder.scale == "log_probabilities":
        return values
    return tf.math.log(values) if decoder.scale == "probabilities" else tf.nn.log_softmax(values)


def add_search(graph: Graph, decoder: Decoder, signature: Signature) -> Graph:
    """Add a search over the steps of a lowered graph.

    `signature` is that of the step.
    """
    index, shapes = graph.index, graph.shapes
    steps = Signature(signature.inputs, {key: signature.outputs[key] for key in list_step_outputs(decoder)})
    parts = {Decoder.NAME: steps} | {part.name: part.signature for part in decoder.before}
    outer: list[str] = []
    for part in parts.values():
        inputs = {split(name)[0] for name in part.inputs.values()}
        ends = [split(name)[0] for name in part.outputs.values()]
        outer += _find_held(graph, index.ancestors(ends, stop=inputs) - inputs)
    outer = [*dict.fromkeys(outer)]
    calls = {name: _make_call(graph, part, outer, name=name) for name, part in parts.items()}
    step = {key: _spec(shapes, name) for part in parts.values() for key, name in part.inputs.items()}
    traced = trace_search(
        decoder, step, calls.pop(Decoder.NAME), [_spec(shapes, name) for name in outer], before=calls
    )
    added = place_search(decoder, step, traced, outer)
    library = graph.functions | {function.signature.name: function for function in traced.library}
    return Graph(graph, [*graph.node, *added], (library[name] for name in sorted(library)))


def _make_call(graph: Graph, part: Signature, outer: Sequence[str], *, name: str) -> CallStep:
    """Return a function copying the nodes of a part, except inputs and `outer` tensors."""
    index = graph.index
    inputs = {split(tensor)[0] for tensor in part.inputs.values()}
    ends = [split(tensor)[0] for tensor in part.outputs.values()]
    outside = inputs | {split(tensor)[0] for tensor in outer}
    nodes = extract_nodes(graph, index.ancestors(ends, stop=outside) - outside)
    used = reachable_functions(graph.functions, (each for node in nodes.node for each in callees(node)))
    functions = (function for key, function in graph.functions.items() if key in used)
    copied = Graph(nodes, nodes.node, functions).definition
    read = {tensor for node in copied.node for tensor in index.data_inputs(node)}

    def call(fed: Mapping[str, Any], kept: Sequence[Any]) -> dict[str, Any]:
        # Identities: a step is in the body of a loop, and what is held outside of it.
        replaced = {part.inputs[key]: tf.identity(value) for key, value in fed.items()}
        replaced |= {tensor: tf.identity(value) for tensor, value in zip(outer, kept, strict=True)}
        values = tf.graph_util.import_graph_def(
            copied,
            input_map={tensor: value for tensor, value in replaced.items() if tensor in read},
            return_elements=[tensor for tensor in part.outputs.values() if tensor not in replaced],
            name="step" if name == Decoder.NAME else name,
        )
        rest = iter(values)
        return {
            key: replaced[tensor] if tensor in replaced else next(rest)
            for key, tensor in part.outputs.items()
        }

    return call


def place_search(
    decoder: Decoder, step: Mapping[str, tf.TensorSpec], traced: inlining.Body, outer: Sequence[str] = ()
) -> list[NodeDef]:
    """Return the nodes of a traced search, with inputs and outputs named by the signature."""
    taken, specs = decoder.signature.inputs, search_specs(decoder, step)
    nodes = [
        node_defs.placeholder(split(taken[key])[0], spec.dtype, spec.shape) for key, spec in specs.items()
    ]
    name = f"{split(taken['tokens'])[0].rpartition('/')[0]}/search"
    nodes += inlining.call(traced, name, [reference(each) for each in (*taken.values(), *outer)])
    for k, (end, dtype) in enumerate(zip(decoder.signature.outputs.values(), traced.dtypes, strict=True)):
        source = reference(f"{name}:{k}")
        nodes.append(node_defs.identity(split(end)[0], source, dtype.as_datatype_enum))
    return nodes


def _find_held(graph: Graph, needed: set[str]) -> list[str]:
    """List the tensors of a step to keep outside of the loop.

    They are values and handles of variables, and large constants.
    """
    return [f"{node.name}:0" for node in graph.node if node.name in needed and _is_held(graph, node, needed)]


def _is_held(graph: Graph, node: NodeDef, needed: set[str]) -> bool:
    if node.op == "ReadVariableOp":
        return graph.index.nodes[split(node.input[0])[0]].op in ops.VARIABLES
    if node.op in ops.VARIABLES:
        readers = (reader for reader in graph.index.consumers(node.name) if reader.name in needed)
        return any(reader.op != "ReadVariableOp" for reader in readers)
    if node.op == "Const":
        return bool(tf.TensorShape(node.attr["value"].tensor.tensor_shape).num_elements() > _LARGE)
    return False


def _spec(shapes: tf.Graph, name: str) -> tf.TensorSpec:
    seen = shapes.get_tensor_by_name(name)
    return tf.TensorSpec(seen.shape, seen.dtype.base_dtype)
