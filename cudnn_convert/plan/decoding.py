"""Plans a search over a streamed model's steps, for `--decode`.

Of a streamed model it finds the input that takes tokens, and the output that has a number for each token of
the vocabulary. What the graph leaves open is refused with the flag that names it. A batch that the graph has
fixed is opened where only its inputs and states fixed it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import replace_nodes
from cudnn_convert.graph.index import Index, split, tensor, unique, walk
from cudnn_convert.model import Part, Signature
from cudnn_convert.options import MASK_OF_CALL, Options
from cudnn_convert.plan import STREAM, Plan
from cudnn_convert.plan.scales import CARRIERS, SCALES, find_scale
from cudnn_convert.text import flag_of
from cudnn_convert.values import Decoder

#: Beams of a search whose width is not given.
WIDTH: Final = 8
#: Ranks of an input of tokens, `[batch, steps]`, and of what is said of the vocabulary at each of them.
_IDS, _EACH_STEP, _LAST_STEP = 2, 3, 2
#: Take rows of a table, by the position of the ids among their inputs.
_LOOKUPS: Final = {**dict.fromkeys(ops.GATHERS, 1), "OneHot": 0, "DynamicPartition": 0}


def plan_decoder(plan: Plan, options: Options) -> Plan:
    """Add a search to a streamed `plan`, if requested by `options`.

    Raises UnsupportedModelError where the graph leaves open what is searched, UsageError for flags that do
    not fit it.
    """
    if options.decode is None:
        return plan
    assert options.steps is not None
    token = _find_token(plan, options.token)
    table = _count_rows_of_table(plan, token)
    wanted, given = _split_scale(options.logits)
    logits, scale = _find_logits(plan, wanted, table)
    scale = given or scale
    plan, rows = _open_rows(plan, token, logits)
    stream = plan.stream
    vocabulary = int(_shape(plan, plan.signature.outputs[logits])[-1])
    _refuse_flags(plan, options, vocabulary, table)
    states = [state.key for state in stream.states]
    others = [key for key in plan.signature.inputs if key not in {token, *states}]
    beside = {key: stream.rows.get(key) for key in others if key not in stream.lengths}
    given_at_calls = [key for key, is_given in _inputs_of_search(options).items() if is_given]
    before = stream.parts
    values = {} if stream.begin else stream.values
    begun = {key for part in before for key in part.signature.outputs} | {*values}
    first = [key for part in before for key in part.signature.inputs]
    own = [key for key in dict.fromkeys([*states, *beside, *first]) if key not in begun]
    own = [key for key in own if key not in {token, *stream.lengths}]
    if taken := {"tokens", *given_at_calls} & {*own}:
        what = f"expected no input {min(taken)} beside the token {token}, found one, and a search has its own"
        raise UnsupportedModelError(plan.model.path, [f"{what}; give it another key with --inputs"])
    input_keys = ["tokens", *own, *given_at_calls]
    output_keys = ["sequences", "lengths", "scores"]
    output_keys += ["history_tokens", "history_parents", "history_scores"] if options.history else []
    scope = unique("decode", {name.partition("/")[0] for name in plan.graph.index.nodes})
    decoder = Decoder(
        kind=options.decode,
        steps=options.steps,
        width=(options.width or WIDTH) if options.decode == "beam" else 1,
        end=options.end,
        pad=options.pad,
        length_penalty=options.length_penalty,
        top_k=options.top_k,
        temperature=options.temperature,
        history=options.history,
        token=token,
        token_axis=stream.inputs[token],
        logits=logits,
        logits_axis=stream.outputs.get(logits),
        scale=scale,
        vocabulary=vocabulary,
        masked=options.masked_tokens,
        lengths=tuple(sorted(stream.lengths)),
        beside=beside,
        states=stream.states,
        signature=Signature(
            {key: f"{scope}/{key}:0" for key in input_keys}, {key: f"{scope}/{key}:0" for key in output_keys}
        ),
        before=before,
        values=values,
        is_scale_given=given is not None,
    )
    # The step is a part of its own: where a file has one signature, it gets a file of its own too.
    parts = (Part(STREAM, plan.parts[0].signature),)
    return replace(
        plan,
        parts=parts,
        decoder=decoder,
        notes=(*plan.notes, *_notes(plan, decoder, rows, options)),
        flags=(*plan.flags, *_flags(options, plan, decoder)),
    )


def _inputs_of_search(options: Options) -> dict[str, bool]:
    """Return the search's own inputs by key, each True if given at every call."""
    return {
        Decoder.PAD_MASK: options.pad_mask == MASK_OF_CALL,
        Decoder.INITIAL_SCORES: options.initial_scores,
        Decoder.NOISE: options.decode == "sample",
    }


def _shape(plan: Plan, name: str) -> Any:
    return plan.graph.shapes.get_tensor_by_name(name).shape


def _describe(plan: Plan, name: str) -> str:
    """Return a tensor's dtype and shape, as `float32 [?, 3]`."""
    seen = plan.graph.shapes.get_tensor_by_name(name)
    if seen.shape.rank is None:
        return f"{seen.dtype.name} of unknown rank"
    return f"{seen.dtype.name} [{', '.join('?' if size is None else str(size) for size in seen.shape)}]"


def _find_key(wanted: str, keys: Mapping[str, str], flag: str) -> str:
    """Return the key named by a flag. Raises UsageError.

    The flag has a key or a tensor of the source.
    """
    for key, name in keys.items():
        if wanted == key or tensor(wanted) == tensor(name):
            return key
    listed = ", ".join(f"{key} ({name})" for key, name in keys.items()) or "none"
    raise UsageError(f"{flag}: expected one of {listed}, found {wanted}")


def _find_token(plan: Plan, wanted: str | None) -> str:
    """Return the key of the input for tokens."""
    with_steps = {key: plan.source.inputs[key] for key in plan.stream.inputs}
    if wanted is not None:
        token = _find_key(wanted, with_steps, "--token")
        fitting = [token]
    else:
        fitting = [key for key in with_steps if _reads_rows(plan, plan.signature.inputs[key])]
    listed = ", ".join(
        f"{key} {_describe(plan, plan.signature.inputs[key])} ({name})" for key, name in with_steps.items()
    )
    expected = "token: expected one input of token ids [batch, steps], which take rows of a table, found"
    if len(fitting) != 1:
        cures = [Remedy({"token": name}, "name it with") for name in with_steps.values()]
        line = f"{expected} {listed}; {', or '.join(map(str, cures))}"
        raise UnsupportedModelError(plan.model.path, [Reason(line, *cures)])
    (token,) = fitting
    shape = _shape(plan, plan.signature.inputs[token])
    if shape.rank != _IDS:
        raise UnsupportedModelError(
            plan.model.path, [f"{expected} {listed}; make the ids the input with --inputs"]
        )
    if others := [key for key in with_steps if key != token]:
        raise UnsupportedModelError(
            plan.model.path,
            [
                f"{', '.join(others)}: expected the token {token} as the only input with steps, found more, "
                "for which a search has no values; convert without --decode"
            ],
        )
    return token


def _reads_rows(plan: Plan, name: str) -> bool:
    """Return True if an input `[batch, steps]` selects rows of a table."""
    return _shape(plan, name).rank == _IDS and any(True for _ in _lookups(plan.graph.index, name))


def _lookups(index: Index, name: str) -> Iterator[Any]:
    """Yield the nodes taking rows of a table by the ids of a tensor."""

    def onward(current: str) -> Iterator[str]:
        for reader in index.consumers(*split(current)):
            places = [k for k, given in enumerate(reader.input) if tensor(given) == tensor(current)]
            # Keras 3 counts ids below zero from the end: where(ids < 0, ids + rows, ids).
            if reader.op in CARRIERS or (reader.op in ops.SELECTS and 0 not in places):
                yield from (f"{reader.name}:{k if reader.op == 'IdentityN' else 0}" for k in places)

    for current in walk([name], onward):
        for reader in index.consumers(*split(current)):
            position = _LOOKUPS.get(reader.op)
            if position is not None and tensor(reader.input[position]) == tensor(current):
                yield reader


def _count_rows_of_table(plan: Plan, token: str) -> int | None:
    """Return the number of tokens with a row in the smallest table of an input.

    None where no table tells.
    """
    index, counts = plan.graph.index, []
    for node in _lookups(index, plan.signature.inputs[token]):
        if node.op not in ops.GATHERS:
            continue
        holder = index.maker(node.input[0], ["Identity", "ReadVariableOp", "Enter", "Switch"])
        if holder.op in ops.VARIABLES:
            shape = tf.TensorShape(holder.attr["shape"].shape)
        else:
            shape = _shape(plan, tensor(node.input[0]))
        counts += [shape[0]] if shape.rank and shape[0] else []
    return min(counts, default=None)


def _split_scale(wanted: str | None) -> tuple[str | None, str | None]:
    """Split the value of `--logits`, `NAME` or `NAME=SCALE`, into an output and a scale."""
    name, equals, scale = (wanted or "").rpartition("=")
    return (name, scale) if equals and scale in SCALES else (wanted, None)


def _find_logits(plan: Plan, wanted: str | None, table: int | None) -> tuple[str, str]:
    """Return the key and scale of the output with a number for each token.

    The scale is "" where the output's ops leave it open.
    """
    index, ends = plan.graph.index, {state.next_key for state in plan.stream.states}
    keys = {key: name for key, name in plan.source.outputs.items() if key not in ends}
    tensors = {key: plan.signature.outputs[key] for key in keys}
    if wanted is not None:
        chosen = _find_key(wanted, keys, "--logits")
        if reason := _misfit(plan, chosen):
            raise UnsupportedModelError(plan.model.path, [f"{reason}; name another output"])
        return chosen, find_scale(index, tensors[chosen]) or ""
    fitting = [key for key in tensors if not _misfit(plan, key)]
    if not fitting:
        reasons = [f"{_misfit(plan, key)}; choose other --outputs" for key in tensors]
        raise UnsupportedModelError(plan.model.path, reasons)
    known = {key: scale for key in fitting if (scale := find_scale(index, tensors[key]))}
    if len(known) > 1:
        known = {
            key: scale for key, scale in known.items() if _shape(plan, tensors[key])[-1] == table
        } or known
    if len(known) != 1:
        listed = ", ".join(f"{key} {_describe(plan, tensors[key])} ({keys[key]})" for key in fitting)
        cures = [Remedy({"logits": keys[key]}, "name it with") for key in fitting]
        line = f"logits: expected one output of logits or probabilities of the next token, found {listed}"
        raise UnsupportedModelError(
            plan.model.path, [Reason(f"{line}; {', or '.join(map(str, cures))}", *cures)]
        )
    ((chosen, scale),) = known.items()
    return chosen, scale


def _misfit(plan: Plan, key: str) -> str:
    """Return the reason if an output lacks a number for each token; else empty."""
    name, axis = plan.signature.outputs[key], plan.stream.outputs.get(key)
    shape = _shape(plan, name)
    expected = "logits [batch, vocabulary] after the last step"
    if axis is not None:
        expected = "logits [batch, steps, vocabulary], or with the steps first"
    rank = _LAST_STEP if axis is None else _EACH_STEP
    is_float = plan.graph.shapes.get_tensor_by_name(name).dtype.is_floating
    if is_float and shape.rank == rank and axis != rank - 1 and (shape[-1] or 0) > 1:
        return ""
    return f"output {key}: expected {expected}, found {_describe(plan, name)}"


def _open_rows(plan: Plan, token: str, logits: str) -> tuple[Plan, int | None]:
    """Return the plan with open rows, and the number fixed by inputs and states.

    The number is None where they fixed none.
    """
    stream, name = plan.stream, plan.signature.inputs[token]
    rows = _shape(plan, name)[1 - stream.inputs[token]]
    if rows is None:
        return plan, None
    starts = {state.start for state in stream.states}
    changed: dict[str, tf.TensorShape] = {}
    for key, tensor_name in plan.signature.inputs.items():
        shape = _shape(plan, tensor_name).as_list()
        time = stream.inputs.get(key)
        places = (
            [1]
            if tensor_name in starts
            else [k for k, size in enumerate(shape) if size == rows and k != time]
        )
        if places:
            shape[places[0]] = None
        changed[split(tensor_name)[0]] = tf.TensorShape(shape)
    graph, whole = (_with_shapes(each, changed) for each in (plan.graph, plan.whole))
    opened = replace(
        plan,
        graph=graph,
        whole=whole,
        streaming=replace(stream, rows={**stream.rows, token: 1 - stream.inputs[token]}),
    )
    rows_axis = {0, 1} - {stream.outputs.get(logits, 1)}
    ends = [(plan.signature.outputs[logits], rows_axis.pop()), *((state.end, 1) for state in stream.states)]
    if kept := [end for end, axis in ends if _shape(opened, end)[axis] is not None]:
        reason = f"{name}: expected an open number of rows, found {rows}, which the graph keeps in {kept[0]}"
        raise UnsupportedModelError(plan.model.path, [f"{reason}; convert without --decode"])
    return opened, rows


def _with_shapes(graph: Any, shapes: Mapping[str, tf.TensorShape]) -> Any:
    """Return a graph with `shapes` for the inputs of the given names."""
    changes = {}
    for name, shape in shapes.items():
        if name in graph.index.nodes and graph.index.nodes[name].op in ops.ALL_PLACEHOLDERS:
            changes[name] = node_defs.copy_node(graph.index.nodes[name])
            changes[name].attr["shape"].shape.CopyFrom(shape.as_proto())
            changes[name].attr.pop("_output_shapes", None)
    return replace_nodes(graph, changes)


def _refuse_flags(plan: Plan, options: Options, vocabulary: int, table: int | None) -> None:
    """Raise UsageError for flags unfit for the vocabulary.

    Raises UnsupportedModelError where the table of the input has fewer rows than there are tokens.
    """
    if options.end is not None and options.end >= vocabulary:
        raise UsageError(
            f"--end: expected a token below {vocabulary}, the size of the vocabulary, found {options.end}"
        )
    if options.top_k is not None and options.top_k > vocabulary:
        raise UsageError(
            f"--top-k: expected at most {vocabulary}, the size of the vocabulary, found {options.top_k}"
        )
    masked = options.masked_tokens
    if masked and masked[-1] >= vocabulary:
        actual = f"the size of the vocabulary, found {masked[-1]}"
        raise UsageError(f"--pad-mask: expected tokens below {vocabulary}, {actual}")
    if len(masked) == vocabulary:
        raise UsageError(f"--pad-mask: expected a token that may be chosen, found all {vocabulary} masked")
    assert options.steps is not None
    width = options.width or WIDTH
    if (
        options.decode == "beam"
        and not options.initial_scores
        and width > (most := _count_sequences(options, vocabulary, width))
    ):
        of = f"{options.steps} steps and {vocabulary} tokens"
        raise UsageError(f"--width: expected at most {most}, as many as sequences of {of}, found {width}")
    # An end that is never read needs no row.
    readable = vocabulary - (options.end == vocabulary - 1)
    if table is not None and readable > table:
        reason = f"expected at most {table} tokens, as the table of the input has, found {vocabulary}"
        raise UnsupportedModelError(plan.model.path, [f"logits: {reason}; convert without --decode"])


def _count_sequences(options: Options, vocabulary: int, enough: int) -> int:
    """Return the number of possible sequences, counted up to `enough`."""
    assert options.steps is not None
    can_end, running, ended = int(options.end is not None), 1, 0
    for _ in range(options.steps):
        running, ended = running * (vocabulary - can_end), ended + running * can_end
        if running + ended >= enough:
            break
    return running + ended


def _notes(plan: Plan, decoder: Decoder, rows: int | None, options: Options) -> Iterator[str]:
    search = {"beam": f"beam search of width {decoder.width}", "sample": "sampling"}
    end = "no end" if decoder.end is None else f"end {decoder.end}"
    what = search.get(decoder.kind, "greedy search")
    begin = "signature" if Keeps.SIGNATURES in FORMATS[options.format].keeps else "file"
    taken = ", ".join(decoder.signature.inputs)
    yield f"decode: {begin} decode takes {taken}: {what}, at most {decoder.steps} tokens, {end}"
    if not decoder.takes_states:
        yield "decode: a search begins by itself where the source begins"
    token, logits = plan.source.inputs[decoder.token], plan.source.outputs[decoder.logits]
    scale = decoder.scale.replace("_", " ") or "numbers"
    yield f"decode: tokens go into {token}; {logits} gives {scale} of {decoder.vocabulary} tokens"
    if rows is not None:
        yield f"decode: the number of rows is open; the source's inputs and states fixed {rows}"


def _flags(options: Options, plan: Plan, decoder: Decoder) -> Iterator[str]:
    """Yield the flags to repeat a search."""
    yield f"--decode={decoder.kind}"
    yield f"--steps={decoder.steps}"
    if decoder.kind == "beam":
        yield f"--width={decoder.width}"
    given = options.non_defaults()
    yield from (f"{flag_of(name)}={given[name]}" for name in _OTHERS if name in given)
    yield from ["--history"] if decoder.history else []
    yield from ["--initial-scores"] if options.initial_scores else []
    yield f"--token={plan.source.inputs[decoder.token]}"
    scale = f"={decoder.scale}" if decoder.is_scale_given else ""
    yield f"--logits={plan.source.outputs[decoder.logits]}{scale}"


_OTHERS: Final = ("end", "pad", "length_penalty", "top_k", "temperature", "pad_mask")
