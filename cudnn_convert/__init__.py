"""cudnn-convert: TensorFlow and Keras models with cuDNN recurrences become CPU models.

    from cudnn_convert import convert
    report = convert("model.ckpt", "out/", format="onnx")

The functions take what the command line's flags take, under the same names. They raise
`CudnnConvertError`s, never print and never exit. TensorFlow is imported by the first call, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from cudnn_convert.errors import (
    AccessError,
    AmbiguousSourceError,
    CudnnConvertError,
    InvalidModelError,
    MissingDependencyError,
    ReadError,
    UnsupportedModelError,
    UsageError,
    VerificationError,
    WriteError,
)
from cudnn_convert.inspection.value import Inspection
from cudnn_convert.report import Report, Verification

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "AmbiguousSourceError",
    "CudnnConvertError",
    "Inspection",
    "InvalidModelError",
    "MissingDependencyError",
    "ReadError",
    "Report",
    "UnsupportedModelError",
    "UsageError",
    "Verification",
    "VerificationError",
    "WriteError",
    "convert",
    "inspect",
    "record",
    "verify",
]


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    format: str = "savedmodel",  # noqa: A002 - the flag's own name
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    allow_plain: bool = False,
    cell: str = "compatible",
    rename: str | Sequence[str] = (),
    slots: bool = False,
    opset: int = 17,
    lowering: str = "fast",
    data: str | PathLike[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    verify: bool = True,
    trust: bool = False,
    force: bool = False,
    force_convert: bool = False,
) -> Report:
    """Converts the model at `source` to `out` and verifies it.

    `inputs` and `outputs` are items `[KEY=]TENSOR[[shape]]`, `set` items `TENSOR=VALUE`. Raises ReadError,
    UnsupportedModelError or AmbiguousSourceError for the source, UsageError for the call, VerificationError
    where the numbers differ, WriteError for the disk; nothing is then left at `out`. Nor is anything written
    where the source is portable already, unless `force_convert`: `Report.out` is then None.
    """
    from cudnn_convert import pipeline
    from cudnn_convert.options import Options

    options = Options(
        format=format,
        inputs=_items(inputs),
        outputs=_items(outputs),
        set=_items(set),
        signature=signature,
        tag=tag,
        weights=weights,
        forget_bias=forget_bias,
        gate_order=gate_order,
        mode=mode,
        layers=layers,
        units=units,
        directions=directions,
        layout=layout,
        states=states,
        lengths=lengths,
        architecture=None if architecture is None else Path(architecture),
        custom_objects=_items(custom_objects),
        allow_plain=allow_plain,
        cell=cell,
        rename=_items(rename),
        slots=slots,
        opset=opset,
        lowering=lowering,
        data=None if data is None else Path(data),
        atol=atol,
        rtol=rtol,
        verify=verify,
        trust=trust,
        force=force,
        force_convert=force_convert,
    )
    return pipeline.convert(Path(source), Path(out), options)


def inspect(
    source: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the flag's own name
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    allow_plain: bool = False,
) -> Inspection:
    """What the file at `source` is, what recurrences are in it, and the command that converts it.

    Runs nothing of it, and imports TensorFlow only for a source with a graph. `format` is that of the
    command, by default the one that fits the source. What a conversion would refuse is told, not raised;
    raises ReadError and AccessError where the source cannot be read, UsageError for the call.
    """
    from cudnn_convert.inspection import walk
    from cudnn_convert.options import Options

    options = Options(
        format=format or "savedmodel",
        inputs=_items(inputs),
        outputs=_items(outputs),
        set=_items(set),
        signature=signature,
        tag=tag,
        weights=weights,
        forget_bias=forget_bias,
        gate_order=gate_order,
        mode=mode,
        layers=layers,
        units=units,
        directions=directions,
        layout=layout,
        states=states,
        lengths=lengths,
        architecture=None if architecture is None else Path(architecture),
        custom_objects=_items(custom_objects),
        allow_plain=allow_plain,
    )
    return walk.inspected(Path(source), options, form=format)


def record(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    data: str | PathLike[str],
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    allow_plain: bool = False,
    trust: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Runs the original at `source` on the arrays in `data` and writes its answers to `out`.

    `data` has an array for each input, by key, or those of several calls as `feed0/KEY`, `feed1/KEY`. Gives
    what the recording says of itself. Raises as `convert`, UnsupportedModelError where TensorFlow has no
    device for the source here.
    """
    from cudnn_convert import pipeline
    from cudnn_convert.options import Options

    options = Options(
        inputs=_items(inputs),
        outputs=_items(outputs),
        set=_items(set),
        signature=signature,
        tag=tag,
        weights=weights,
        forget_bias=forget_bias,
        gate_order=gate_order,
        architecture=None if architecture is None else Path(architecture),
        custom_objects=_items(custom_objects),
        allow_plain=allow_plain,
        data=Path(data),
        trust=trust,
        force=force,
    )
    return pipeline.record(Path(source), Path(out), options)


def verify(
    source: str | PathLike[str],
    artifact: str | PathLike[str],
    *,
    inputs: str | Sequence[str] = (),
    outputs: str | Sequence[str] = (),
    set: str | Sequence[str] = (),  # noqa: A002 - the flag's own name
    signature: str | None = None,
    tag: str | None = None,
    weights: str = "auto",
    forget_bias: float = 0.0,
    gate_order: str = "tf",
    mode: str | None = None,
    layers: int | None = None,
    units: int | None = None,
    directions: int | None = None,
    layout: str | None = None,
    states: bool = False,
    lengths: bool = False,
    architecture: str | PathLike[str] | None = None,
    custom_objects: str | Sequence[str] = (),
    allow_plain: bool = False,
    data: str | PathLike[str] | None = None,
    golden: str | PathLike[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    trust: bool = False,
) -> Verification:
    """Compares an artifact, a file or an OUT folder, with its source.

    Tensors are paired by the artifact's provenance, else by `inputs` and `outputs`. Where a recording of the
    original is given as `golden`, it brings the inputs and judges. Raises as `convert`.
    """
    from cudnn_convert import pipeline
    from cudnn_convert.options import Options

    return pipeline.verify(
        Path(source),
        Path(artifact),
        Options(
            inputs=_items(inputs),
            outputs=_items(outputs),
            set=_items(set),
            signature=signature,
            tag=tag,
            weights=weights,
            forget_bias=forget_bias,
            gate_order=gate_order,
            mode=mode,
            layers=layers,
            units=units,
            directions=directions,
            layout=layout,
            states=states,
            lengths=lengths,
            architecture=None if architecture is None else Path(architecture),
            custom_objects=_items(custom_objects),
            allow_plain=allow_plain,
            data=None if data is None else Path(data),
            golden=None if golden is None else Path(golden),
            atol=atol,
            rtol=rtol,
            trust=trust,
        ),
    )


def _items(given: str | Sequence[str]) -> Sequence[str]:
    """One item may come without its list: a string is no sequence of flags."""
    return [given] if isinstance(given, str) else given
