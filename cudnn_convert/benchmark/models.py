"""Opens any model of a runnable format, and draws inputs in the requested sizes.

An artifact says itself what it takes and gives. A frozen graph or a checkpoint of another tool does not: its
inputs and outputs are chosen as for a conversion, and `--inputs` and `--outputs` choose others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert import casts, context, pipeline
from cudnn_convert.artifacts import checkpoint, runners
from cudnn_convert.artifacts.runners import Interface, OpenArtifact, TensorSpec
from cudnn_convert.benchmark.answers import bare
from cudnn_convert.errors import ReadError, UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.model import SERVING, Array, is_float
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source, user_code

#: Ids that are drawn: of most tables they are rows. Where they are not, all are the last of these.
_IDS: Final = (4, 1)


@dataclass(frozen=True, slots=True)
class Opening:
    """A model ready to run: path, inputs, outputs and runner."""

    form: str
    path: Path
    interface: Interface
    run: OpenArtifact


def find_model(model: Path, options: Options) -> tuple[str, Path, Interface]:
    """Return the format, path and interface of a model. Raises as `pipeline.run`."""
    with context.on(model):
        form, path, recorded = pipeline.identify_artifact(model, trust=options.trust)
    vouched = user_code(replace(options, format=form))
    if recorded is None and Keeps.TENSOR_NAMES in FORMATS[form].keeps:
        return form, path, _plan_interface(form, path, options)
    interfaces = {each.part.name: each for each in runners.find_interfaces(form, path, vouched)}
    return form, path, interfaces[runners.choose_signature(path, options.signature or SERVING, interfaces)]


def _plan_interface(form: str, path: Path, options: Options) -> Interface:
    """Return the inputs and outputs of another tool's graph, chosen as by a conversion."""
    options = replace(options, format=form, verify=False)
    plan = make_plan(read_source(path, options, tag=options.tag), options)
    if plan.recurrences:
        nodes = ", ".join(recurrence.node for recurrence in plan.recurrences)
        reason = f"graph: expected a graph that runs on a CPU, found cuDNN's ops in {nodes}; convert it first"
        raise UnsupportedModelError(path, [reason])
    named = {"inputs": dict(plan.source.inputs), "outputs": dict(plan.source.outputs)}
    graph = runners.load_graph(form, path)[0].graph_def
    (interface,) = checkpoint.graph_interfaces(path, graph, {"tensors": named})
    return interface


def open_model(model: tuple[str, Path, Interface], options: Options) -> Opening:
    """Load a model. Raises as `runners.open_artifact`."""
    form, path, interface = model
    vouched = user_code(replace(options, format=form))
    run = runners.open_artifact(form, path, [interface.part], vouched)
    return Opening(form, path, interface, run)


def pair_feed(interface: Interface, feed: Mapping[str, Array], path: Path) -> dict[str, Array]:
    """Return another model's feed with the keys and dtypes of a model.

    Raises UsageError where a key finds no value, or a dtype does not have a number.
    """
    names = {bare(key): key for key in feed}
    if len(feed) == 1 == len(interface.inputs):
        pairs = {key: next(iter(feed)) for key in interface.inputs}
    else:
        pairs = {key: names[bare(key)] for key in interface.inputs if bare(key) in names}
    if len(pairs) < len(interface.inputs):
        wanted, given = ", ".join(interface.inputs), ", ".join(feed)
        raise UsageError(f"{path}: expected the inputs {wanted}, found {given} in the first model or --data")
    return {
        key: casts.cast(feed[name], interface.inputs[key].dtype, where=f"{path}: {key}")
        for key, name in pairs.items()
    }


@dataclass(frozen=True, slots=True)
class FeedSizes:
    """The sizes of a call; `time_first` where the steps are the first axis."""

    batch: int
    steps: int
    time_first: bool


def has_steps(interface: Interface) -> bool:
    """Return True if a model takes more than a single step."""
    return any(_count_free(spec) > 1 or _is_time_alone(spec) for spec in interface.inputs.values())


def describe_axes(interface: Interface, sizes: FeedSizes) -> str:
    """Return the inputs with the names of the batch and step axes."""
    items = []
    for key, spec in interface.inputs.items():
        named = iter(_name_free(spec, sizes))
        shape = (next(named) if size is None else str(size) for size in spec.shape or ())
        items.append(f"{key} [{', '.join(shape)}]")
    return ", ".join(items)


def draw_feed(opening: Opening, sizes: FeedSizes, *, seed: int) -> dict[str, Array]:
    """Return a feed of given sizes accepted by the model.

    Raises ReadError where the model takes none.
    """
    failure: ReadError | None = None
    for feed in _draw_feeds(opening, sizes, seed):
        try:
            opening.run(feed)
        except ReadError as error:
            failure = error
        else:
            return feed
    assert failure is not None
    raise failure


def _draw_feeds(opening: Opening, sizes: FeedSizes, seed: int) -> Iterator[dict[str, Array]]:
    specs = opening.interface.inputs
    undrawn = [key for key, spec in specs.items() if spec.shape is None or spec.dtype.kind in "OSU"]
    if undrawn:
        expected = "expected numbers of a known rank, found"
        kinds = {key: "no known shape" if specs[key].shape is None else "strings" for key in undrawn}
        reasons = [f"input {key}: {expected} {kinds[key]}; give --data" for key in undrawn]
        raise UnsupportedModelError(opening.path, reasons)
    for most in _IDS:
        rng = np.random.default_rng(seed)
        yield {key: _values(spec, sizes, rng, most) for key, spec in specs.items()}


def _values(spec: TensorSpec, sizes: FeedSizes, rng: np.random.Generator, ids: int) -> Array:
    """Return random values for an input.

    Floats are normal; integers of rank 1 are the steps, as lengths are, others ids; booleans are true.
    """
    assert spec.shape is not None
    named = iter(_name_free(spec, sizes))
    known = {"batch": sizes.batch, "steps": sizes.steps}
    shape = [known[next(named)] if size is None else size for size in spec.shape]
    if is_float(spec.dtype) or spec.dtype.kind == "c":
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return np.ones(shape, spec.dtype)
    if len(shape) == 1 and ids > 1:
        return np.full(shape, sizes.steps, spec.dtype)
    return np.asarray(rng.integers(1, ids + 1, shape)).astype(spec.dtype)


def _count_free(spec: TensorSpec) -> int:
    return sum(size is None for size in spec.shape or ())


def _is_time_alone(spec: TensorSpec) -> bool:
    """Return True if the only free axis is the time, behind a fixed batch."""
    return _count_free(spec) == 1 and len(spec.shape or ()) > 1 and (spec.shape or (0,))[0] is not None


def _name_free(spec: TensorSpec, sizes: FeedSizes) -> list[str]:
    """Return the names of the free axes.

    A single axis is the batch; of several, the first two are named by `sizes`.
    """
    words = ("steps", "batch") if sizes.time_first else ("batch", "steps")
    count = _count_free(spec)
    if count == 1:
        return ["steps" if _is_time_alone(spec) else "batch"]
    return [*words, *("steps",) * (count - 2)][:count]
