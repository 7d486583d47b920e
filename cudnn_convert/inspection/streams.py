"""Which recurrences go on from chunk to chunk of the steps, and the command for it.

A source with a graph is planned once more, with `--states`. A Keras model is described by its config alone: a
command is printed where every layer is known to take each step by itself; the conversion decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import InvalidModelError, RefusalError, UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.inspection import alternatives
from cudnn_convert.inspection.alternatives import Alternatives
from cudnn_convert.inspection.result import Inspection
from cudnn_convert.keras.config import classes, layer_tree, values
from cudnn_convert.keras.config.layer_tree import Entry
from cudnn_convert.model import Architecture, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import prepare

#: The tokens at most of a search whose command is printed.
_STEPS: Final = 128


def with_streams(
    inspection: Inspection, source: Path, model: Model, tried: Alternatives, options: Options
) -> Inspection:
    """The inspection of a source with a graph, with what streams; as it is where a choice is left."""
    if len(tried.plans) != 1 or not tried.plans[0][1].recurrences:
        return inspection
    from cudnn_convert.plan import decoding, streaming

    chosen, plan = tried.plans[0]
    chosen = replace(chosen, format=_format(options.format), states=True)
    obstacles = streaming.find_obstacles(plan)
    nodes = {recurrence.node: recurrence.node not in obstacles for recurrence in plan.recurrences}
    recurrences = tuple(
        replace(recurrence, streams=nodes.get(recurrence.name)) for recurrence in inspection.recurrences
    )
    inspection = replace(inspection, recurrences=recurrences)
    try:
        streamed = prepare.make_plan(model, chosen)
    except (RefusalError, UsageError, InvalidModelError) as error:
        reasons = getattr(error, "reasons", (str(error),))
        return replace(inspection, stream_reasons=tuple(map(str, reasons)))
    inspection = replace(inspection, stream_command=alternatives.command(source, chosen))
    searching = replace(chosen, states=False, decode="beam", steps=_STEPS, format=_searchable(chosen.format))
    try:
        decoding.plan_decoder(streamed, searching)
    except (RefusalError, UsageError):
        return inspection  # which is no language model
    return replace(inspection, decode_command=alternatives.command(source, searching))


def with_weights(inspection: Inspection, source: Path, options: Options) -> Inspection:
    """The inspection of weights without a graph, each recurrence of which is a signature."""
    recurrences = tuple(
        replace(recurrence, streams=None if recurrence.directions is None else recurrence.directions == 1)
        for recurrence in inspection.recurrences
    )
    inspection = replace(inspection, recurrences=recurrences)
    if inspection.command is None or not all(recurrence.streams for recurrence in recurrences):
        return inspection
    words = inspection.command
    return replace(inspection, stream_command=words if options.states else (*words, "--states"))


def with_layers(inspection: Inspection, source: Path, model: Architecture, options: Options) -> Inspection:
    """The inspection of a Keras model, with which of its layers stream."""
    entries = [entry for _, entry in layer_tree.walk(model.config)]
    around = {layer_tree.layer_name(entry): entry for entry in entries}
    recurrences = tuple(
        replace(
            recurrence,
            streams=recurrence.op in classes.CUDNN
            and recurrence.directions == 1
            and not recurrence.settings.get("go_backwards")
            and not any(_is_wrapped(part, around) for part in recurrence.name.split("/")[:-1]),
        )
        for recurrence in inspection.recurrences
    )
    inspection = replace(inspection, recurrences=recurrences)
    is_ready = inspection.command is not None and options.verify
    if not is_ready or not recurrences or not all(recurrence.streams for recurrence in recurrences):
        return inspection
    if not all(map(_takes_each_step, entries)) or not _has_open_steps(entries):
        return inspection
    chosen = replace(options, format=_format(options.format), states=True)
    return replace(inspection, stream_command=alternatives.command(source, chosen))


def _has_open_steps(entries: Sequence[Entry]) -> bool:
    """Whether an input leaves the number of steps open, or none says it."""
    configs = [entry["config"] for entry in entries if isinstance(entry["config"], Mapping)]
    shapes = [values.shape(config.get("batch_input_shape", config.get("batch_shape"))) for config in configs]
    stated = [shape for shape in shapes if shape is not None and len(shape) > 1]
    return not stated or any(shape[1] is None for shape in stated)


def _format(form: str) -> str:
    """The format itself if it can have states as inputs and outputs, else the default."""
    return form if FORMATS[form].takes_states else "savedmodel"


def _searchable(form: str) -> str:
    """The format itself if it can have a search, else the default."""
    return form if "decode" in FORMATS[form].flags else "savedmodel"


def _is_wrapped(name: str, entries: Mapping[str, Entry]) -> bool:
    """Whether a layer is inside one that calls it for each step."""
    return name in entries and entries[name]["class_name"] == "TimeDistributed"


#: Layers that take each step of `[batch, time, features]` by itself, whatever their settings.
_STEPWISE: Final = frozenset(classes.CUDNN) | frozenset(
    "Sequential Functional Model InputLayer Dense Activation ReLU LeakyReLU PReLU ELU ThresholdedReLU "
    "Dropout SpatialDropout1D GaussianNoise GaussianDropout AlphaDropout TimeDistributed Add Multiply "
    "Subtract Average Maximum Minimum".split()
)
#: Others do with these settings, which are their usual ones.
_SETTINGS: Final[Mapping[str, tuple[str, tuple[Any, ...]]]] = {
    "Embedding": ("mask_zero", (None, False)),
    "BatchNormalization": ("axis", (None, -1, 2, [-1], [2])),
    "LayerNormalization": ("axis", (None, -1, 2, [-1], [2])),
    "Concatenate": ("axis", (None, -1, 2)),
    "Softmax": ("axis", (None, -1, 2)),
}


def _takes_each_step(entry: Entry) -> bool:
    name, config = str(entry["class_name"]), entry["config"]
    if name in _SETTINGS and isinstance(config, Mapping):
        key, usual = _SETTINGS[name]
        return config.get(key) in usual
    return name in _STEPWISE
