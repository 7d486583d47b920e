r"""Tensor specs of flags, and notes to the user on the choices of a plan.

The items of `--inputs` and `--outputs` are `[KEY=]TENSOR[[shape]]`, comma-separated. A KEY with one of these
special characters is double-quoted, with `\"` and `\\` for a quote and a backslash: `"a=b"=x:0`.

Notes say which choices were made, the flags that repeat them, and what is uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudnn_convert.errors import UsageError
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import LENGTHS, Index, NodeDef, split, tensor, unique
from cudnn_convert.model import Part, Recurrence, Signature
from cudnn_convert.weights.lazy import LazyLayers, is_finite

if TYPE_CHECKING:
    from cudnn_convert.graph.passes.subgraphs import ParsedFeature

_QUOTED: Final = r'"(?:[^"\\]|\\["\\])+"(?==)'
_ITEM: Final = re.compile(rf"(?:{_QUOTED}|[^,\[]|\[[^\]]*\])+")
_SPEC: Final = re.compile(
    rf"(?:(?P<key>{_QUOTED}|[^=\[\]]+)=)?(?P<tensor>[^=\[\]]+)(?:\[(?P<shape>[?\d, ]*)\])?"
)
#: A key that needs no quotes.
_PLAIN: Final = re.compile(r'[^\s"=,\[\]](?:[^"=,\[\]]*[^\s"=,\[\]])?')
_SIZE: Final = re.compile(r"0*[1-9][0-9]{0,9}")
#: The largest size of a dimension, as for those of a graph (read/checks.py).
_WIDEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor `op:k`, the requested key, and a shape to refine the graph's shape."""

    key: str | None
    tensor: str
    shape: tuple[int | None, ...] | None = None


def parse(items: Iterable[str], *, flag: str) -> list[Spec]:
    """Parse the values of a repeatable flag. Raises UsageError."""
    specs = []
    for item in (part.strip() for text in items for part in _parts(text, flag)):
        match = _SPEC.fullmatch(item)
        if match is None:
            raise UsageError(f"{flag}: expected [KEY=]TENSOR[[shape]], found {item!r}")
        specs.append(
            Spec(_unquote(match["key"]), tensor(match["tensor"]), _shape(match["shape"], flag, item))
        )
    return specs


def item(key: str, name: str, shape: tuple[int | None, ...] | None = None) -> str:
    """Format a key, tensor and shape in the syntax of `parse`."""
    quoted = key if _PLAIN.fullmatch(key) else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    widths = () if shape is None else ("?" if width is None else str(width) for width in shape)
    return f"{quoted}={name}" + ("" if shape is None else f"[{','.join(widths)}]")


def _unquote(key: str | None) -> str | None:
    if key is None or not re.fullmatch(_QUOTED.removesuffix("(?==)"), key):
        return key
    return re.sub(r"\\(.)", r"\1", key[1:-1])


def _parts(text: str, flag: str) -> list[str]:
    """Split at commas outside brackets. Raises UsageError where the text is malformed."""
    parts = _ITEM.findall(text)
    if not parts or _ITEM.sub("", text).strip(", "):
        raise UsageError(f"{flag}: expected [KEY=]TENSOR[[shape]],..., found {text!r}")
    return parts


def _shape(text: str | None, flag: str, item: str) -> tuple[int | None, ...] | None:
    if text is None:
        return None
    sizes = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(size == "?" or (_SIZE.fullmatch(size) and int(size) <= _WIDEST) for size in sizes):
        raise UsageError(f"{flag}: expected a shape like [?,?,39], found {item!r}")
    return tuple(None if size == "?" else int(size) for size in sizes)


def key_tensors(specs: Iterable[Spec]) -> dict[str, str]:
    """Map signature keys to tensors; the default key is the op's name with underscores.

    Raises UsageError for a key given twice.
    """
    specs = list(specs)
    named: dict[str, str] = {}
    chosen = [spec.key for spec in specs if spec.key]
    for spec in specs:
        op, k = split(spec.tensor)
        plain = op.replace("/", "_") + (f"_{k}" if k else "")
        if spec.key in named:
            found_twice = f"{spec.key} twice; name one of them KEY=TENSOR"
            raise UsageError(f"--inputs, --outputs: expected keys that differ, found {found_twice}")
        named[spec.key or unique(plain, {*named, *chosen})] = spec.tensor
    return named


Shape = tuple[int | None, ...]


def flags(source: Signature, shapes: Mapping[str, Shape], constants: Sequence[str]) -> tuple[str, ...]:
    """Return the flags to repeat a plan.

    `shapes` are those the user refined, by tensor.
    """
    listed = [
        f"--{name}={','.join(item(key, value, shapes.get(value)) for key, value in tensors.items())}"
        for name, tensors in (("inputs", source.inputs), ("outputs", source.outputs))
        if tensors
    ]
    return (*listed, *(f"--set={setting}" for setting in constants))


def note_outputs(source: Signature) -> str:
    """Return the note on outputs chosen from the graph."""
    return f"outputs chosen from the graph: {', '.join(source.outputs.values())}"


def note_signatures(signatures: Mapping[str, Signature], taken: Sequence[Part]) -> Iterator[str]:
    """Yield a note on signatures left out for the default of the file.

    A signature with equal tensors is not left out.
    """
    others = [name for name, each in signatures.items() if each not in [part.signature for part in taken]]
    if taken and others:
        names = ", ".join(part.name for part in taken)
        yield f"signature {names} taken, the default of the file; --signature chooses {' or '.join(others)}"


def note_other_outputs(tensors: Mapping[str, str], outputs: Sequence[str]) -> Iterator[str]:
    """Yield a note on tensors left out of `outputs`, with the flag for inclusion.

    `tensors` maps them to their types.
    """
    if tensors:
        listed = ", ".join(f"{name} ({kind})" for name, kind in tensors.items())
        flag = f"--outputs {','.join([*outputs, *tensors])}"
        yield f"left out because they are not numbers: {listed}; include them with {flag}"


def note_read_by_training(tensors: Sequence[str], outputs: Sequence[str]) -> Iterator[str]:
    """Yield a note on author-named tensors read by training alone, with the including flag."""
    if tensors:
        flag = f"--outputs {','.join([*outputs, *tensors])}"
        yield f"left out because only training reads them: {', '.join(tensors)}; include them with {flag}"


def note_unread(inputs: Sequence[Spec]) -> Iterator[str]:
    """Yield a note on left-out inputs of a signature."""
    if inputs:
        listed = ", ".join(f"{spec.key} ({spec.tensor})" for spec in inputs)
        yield f"left out of the inputs because no output needs them: {listed}"


def note_bound(inputs: Sequence[Spec]) -> Iterator[str]:
    """Yield a note on inputs of a signature with values of `--set`."""
    if inputs:
        listed = ", ".join(f"{spec.key} ({spec.tensor})" for spec in inputs)
        yield f"left out of the inputs because --set binds them: {listed}"


def note_flags(names: Sequence[str]) -> Iterator[str]:
    """Yield a note on variables separating training from inference."""
    if names:
        yield f"{', '.join(names)}: what the file holds decides what belongs to training; --set changes it"


def untaken(names: Sequence[str]) -> Iterator[str]:
    """Yield a note on left-out training recurrences."""
    if names:
        yield f"left out because their branches are for training and not taken: {', '.join(names)}"


def notes(
    source: Signature, recurrences: Sequence[Recurrence], streams: Sequence[str], *, chosen_here: bool
) -> tuple[str, ...]:
    """Return a note on each choice left open by the flags.

    `streams` are components that became inputs.
    """
    lines = [note_outputs(source)] if chosen_here else []
    if streams:
        lines.append(f"cut at the iterator or queue: {', '.join(streams)} became inputs")
    if not recurrences:
        lines.append("no cuDNN recurrence reaches the outputs; the graph was converted as it is")
    lines += [note for recurrence in recurrences for note in _of(recurrence)]
    return (*lines, *no_numbers(recurrences))


def note_examples(features: Sequence[ParsedFeature]) -> Iterator[str]:
    """Yield a note on inputs after the tf.Example parser, and on keeping the parser."""
    if features:
        parsers = ", ".join(dict.fromkeys(feature.parser for feature in features))
        listed = ", ".join(feature.tensor for feature in features)
        yield (
            f"cut behind the parser of tf.Examples {parsers}: {listed} became inputs; "
            "savedmodel, frozen and checkpoint keep it with --data feeds.npz of serialized tf.Examples"
        )


def note_padding(index: Index, recurrences: Sequence[Recurrence]) -> Iterator[str]:
    """Yield a note on recurrences with a source allowing only padding behind on GPUs.

    On a GPU the source stops where a row is padded elsewhere than behind. Keras 3 asserts it, and gives cuDNN
    the number of steps that the mask keeps; on a CPU it takes any mask. Source: keras v3.15.0
    src/backend/tensorflow/rnn.py `_assert_valid_mask`.
    """
    asserts = [node.name for node in index.nodes.values() if _is_of_padding(index, node)]
    if not asserts:
        return
    asserted = index.ancestors(asserts)
    nodes = [
        recurrence.node
        for recurrence in recurrences
        if recurrence.lengths and _find_mask(index, recurrence.node) in asserted
    ]
    if nodes:
        yield (
            f"{', '.join(nodes)}: takes rows that are padded behind alone (padding='post'), as on a GPU; "
            "others get other answers than on a CPU"
        )


def _is_of_padding(index: Index, node: NodeDef) -> bool:
    if node.op != "Assert":
        return False
    texts = (index.nodes[split(name)[0]] for name in index.data_inputs(node)[1:])
    constants = (text.attr["value"].tensor for text in texts if text.op == "Const")
    return any(b"right-padded" in text for constant in constants for text in constant.string_val)


def _find_mask(index: Index, node: str) -> str | None:
    """Return the op making the mask of a recurrence's lengths.

    The lengths are the steps that the mask keeps.
    """
    if node not in index.nodes or index.nodes[node].op != "CudnnRNNV3":
        return None
    return index.maker(index.data_inputs(index.nodes[node])[LENGTHS], ops.IDENTITIES | {"Sum", "Cast"}).name


def no_numbers(recurrences: Sequence[Recurrence]) -> Iterator[str]:
    """Yield a note on recurrences with NaN or infinite weights.

    Large weights count only as far as they have been read: a plan reads few; `late` asks again after
    conversion.
    """
    nodes = [recurrence.node for recurrence in recurrences if not _is_finite(recurrence)]
    if nodes:
        yield f"{', '.join(nodes)}: weights hold NaN or infinite values, and are converted as they are"


def late(recurrences: Sequence[Recurrence], known: Sequence[str]) -> tuple[str, ...]:
    """Return the notes after a reading of large weights, except for `known` notes."""
    large = [recurrence for recurrence in recurrences if isinstance(recurrence.cells, LazyLayers)]
    return tuple(note for note in no_numbers(large) if note not in known)


def _is_finite(recurrence: Recurrence) -> bool:
    if isinstance(recurrence.cells, LazyLayers):
        return recurrence.cells.finite
    return all(is_finite(cell) for layer in recurrence.cells for cell in layer)


def _of(recurrence: Recurrence) -> Iterator[str]:
    node, sizes = recurrence.node, recurrence.sizes
    if recurrence.dropout:
        yield f"{node}: trained with dropout {recurrence.dropout:g} between layers; inference has none"
    if not recurrence.time_major and sizes.layers * sizes.directions > 1:
        yield (
            f"{node}: states read as [batch, layers*directions, units], as the op declares them; on a GPU "
            "TensorFlow mixes layers and rows there, in batches of several (docs/cudnn-questions.md, Q10)"
        )
