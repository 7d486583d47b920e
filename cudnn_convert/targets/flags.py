"""Checks flags against the requested format."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS, Content
from cudnn_convert.keras import cut_layers
from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.targets import accuracy_gate
from cudnn_convert.text import flag_of


def check_options(options: Options) -> None:
    """Check the flags against the format. Raises UsageError for another format's flag."""
    given: dict[tuple[str, ...], list[str]] = {}
    for field in fields(Options):
        value, flag = getattr(options, field.name), flag_of(field.name)
        for item, words in ((field.name, flag), (f"{field.name}={value}", f"{flag} {value}")):
            formats = _formats_with(item)
            if formats and options.format not in formats and value and value != field.default:
                given.setdefault(formats, []).append(words)
    for formats, flags in given.items():
        raise _other_format(flags, formats, options)
    accuracy_gate.check_options(options)
    if options.jit and options.lowering != "fast":
        raise UsageError(f"--jit cannot be combined with --lowering {options.lowering}; leave one out")
    form = options.form
    if form.content is not Content.GRAPH:
        # A format of layers may be cut at some, as only the source tells.
        outputs = () if form.has_layers else options.outputs
        _refuse_cuts(options, {"--inputs": options.inputs, "--outputs": outputs, "--set": options.set})


def _refuse_cuts(options: Options, cuts: Mapping[str, Sequence[str]]) -> None:
    flags = [flag for flag, value in cuts.items() if value]
    if flags:
        raise UsageError(f"{', '.join(flags)}: expected a format that keeps a graph, found {options.format}")


def settle_layers(model: Model, options: Options) -> Options:
    """Return the options for a source, of recurrences alone if layers are missing.

    A format of layers takes the recurrences of a source without layers. Raises UsageError where the user must
    say so, where such a flag is given for a source with layers, or where the format needs layers.
    """
    form, actual = FORMATS[options.format], f"found {model.kind} {model.path}"
    if form.has_layers and not cut_layers.names_layers(model, options.outputs):
        _refuse_cuts(options, {"--outputs": options.outputs})
    if model.has_layers:
        if options.recurrences_only:
            raise UsageError(
                f"--recurrences-only: expected a source without Keras layers, {actual}; leave out "
                "--recurrences-only"
            )
        return options
    if not form.has_layers or options.recurrences_only:
        return options
    lead = f"--format {options.format}: expected"
    if not form.is_keras3:
        others = ", ".join(name for name, form in FORMATS.items() if not form.has_layers)
        cure = "give --architecture, or " if model.keras else ""
        raise UsageError(f"{lead} the layers of a Keras model, {actual}; {cure}choose {others}")
    if model.keras:
        advice = "give --architecture, or --recurrences-only to take its recurrences alone"
        raise UsageError(f"{lead} the layers of a Keras model, {actual}; {advice}")
    if model.is_graphless:
        return replace(options, recurrences_only=True)
    from cudnn_convert.plan import recurrences_only

    if beside := recurrences_only.list_other_ops(model):
        advice = "give --recurrences-only to leave the rest of the graph out"
        others = ", ".join(beside)
        raise UsageError(
            f"{lead} recurrences alone, which become layers, found {others} beside them; {advice}"
        )
    return replace(options, recurrences_only=True)


def _formats_with(item: str) -> tuple[str, ...]:
    """Return the formats for an option, or `option=value`; empty where all formats have it."""
    return tuple(name for name, form in FORMATS.items() if item in form.flags)


def _other_format(flags: Sequence[str], formats: Sequence[str], options: Options) -> UsageError:
    *others, last = formats
    expected = f"expected --format {', '.join(others)} or {last}" if others else f"expected --format {last}"
    return UsageError(f"{', '.join(flags)}: {expected}, found {options.format}")
