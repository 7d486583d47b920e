"""Graphs that are computed channels last, node by node: what is right passes, what is wrong is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import channels_first, gated_models

import cudnn_convert
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report.values import OpsReport
from cudnn_convert.verification.ops import ask
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import make_settings

LAST = "channels_last"
GROUPED = f"depthwise_dilations/DepthwiseConv2dNative/{LAST}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The frozen graph of each group, right."""
    folder = tmp_path_factory.mktemp("written")
    for group in channels_first.GROUPS:
        out, flags = folder / f"{group}.pb", channels_first.flags(group)
        cudnn_convert.convert(channels_first.path(group), out, format="frozen", verify=False, **flags)
    return {group: folder / f"{group}.pb" for group in channels_first.GROUPS}


def asked(group: str, artifact: Path) -> OpsReport:
    """What the comparison says of an artifact, with its outputs never run."""
    flags = Options.of({"format": "frozen", **channels_first.flags(group)})
    source = channels_first.path(group)
    plan = make_plan(read_source(source, flags, tag=flags.tag), flags)
    settings = make_settings(plan, flags)
    report = ask.report(
        Artifact("frozen", artifact, settings.plan, lambda *_: None),
        settings,
        [],
        is_copy=True,
        is_fresh=False,
    )
    assert report is not None
    return report


@pytest.mark.first("control", "depthwise", "film_pools", "films", "only_onednn", "pools")
@pytest.mark.parametrize("group", channels_first.GROUPS)
def test_right_graphs_are_equal_op_by_op(group: str, written: dict[str, Path]) -> None:
    report = asked(group, written[group])
    assert report.verdict == "equal op by op"
    assert report.ops > 2


def of_list(name: str, key: str, values: list[int]) -> Callable[[dict[str, Any]], None]:
    """Give an attribute of a node other numbers."""

    def apply(nodes: dict[str, Any]) -> None:
        held = nodes[name].attr[key].list
        assert [*held.i] != values
        held.i[:] = values

    return apply


def of_text(name: str, key: str, text: bytes) -> Callable[[dict[str, Any]], None]:
    def apply(nodes: dict[str, Any]) -> None:
        nodes[name].attr[key].s = text

    return apply


def of_input(name: str, position: int, other: str) -> Callable[[dict[str, Any]], None]:
    def apply(nodes: dict[str, Any]) -> None:
        assert nodes[name].input[position] != other
        nodes[name].input[position] = other

    return apply


def constant(name: str, *values: Any) -> Callable[[dict[str, Any]], None]:
    """Give a constant other values."""

    def change(value: np.ndarray) -> np.ndarray:
        other = np.array(values).reshape(value.shape)
        assert not np.array_equal(other, value)
        return other

    return gated_models.of_constant(name, change)


def first(name: str) -> Callable[[dict[str, Any]], None]:
    """Change the first value of a constant."""

    def change(value: np.ndarray) -> np.ndarray:
        value.flat[0] += 0.25
        return value

    return gated_models.of_constant(name, change)


CHANGES = {
    "transposition in": ("convolutions", constant(f"same/Conv2D/{LAST}/input/perm", 0, 3, 2, 1)),
    "transposition back": ("convolutions", constant("same/y/channels_first/perm", 0, 3, 2, 1)),
    "strides": ("convolutions", of_list(f"same/Conv2D/{LAST}", "strides", [1, 2, 1, 1])),
    "dilations": ("convolutions", of_list(f"dilations/Conv2D/{LAST}", "dilations", [1, 3, 2, 1])),
    "padding": ("convolutions", of_text(f"same/Conv2D/{LAST}", "padding", b"VALID")),
    "explicit paddings": (
        "convolutions",
        of_list(f"explicit/Conv2D/{LAST}", "explicit_paddings", [0, 0, 2, 1, 0, 3, 0, 0]),
    ),
    "kernel": ("convolutions", of_input(f"same/Conv2D/{LAST}", 1, "explicit/w1")),
    "a weight": ("convolutions", first("same/w1")),
    "sizes": (
        "convolutions",
        of_input(f"transposed_same/conv2d_transpose/{LAST}", 0, "transposed_same/stack"),
    ),
    "epsilon": (
        "convolutions",
        lambda nodes: setattr(nodes[f"normalised/FusedBatchNorm/{LAST}"].attr["epsilon"], "f", 0.02),
    ),
    "scale for offset": ("convolutions", of_input(f"normalised/FusedBatchNorm/{LAST}", 1, "normalised/w2")),
    "blocks": ("convolutions", constant(f"batched/SpaceToBatchND/{LAST}/block", 3, 2)),
    "block size": (
        "convolutions",
        lambda nodes: setattr(nodes[f"to_depth/SpaceToDepth/{LAST}"].attr["block_size"], "i", 4),
    ),
    "window": ("pools", of_list(f"most/MaxPool/{LAST}", "ksize", [1, 2, 3, 1])),
    "another pool": ("pools", gated_models.of_op(f"mean/AvgPool/{LAST}", "MaxPool")),
    "window of inputs": ("pools", constant(f"most_v2/MaxPoolV2/{LAST}/sizes", 1, 3, 2, 1)),
    "axis of a concat": ("carried", constant(f"joined/concat/{LAST}/axis", 2)),
    "axis of a split": ("carried", constant(f"joined/split/{LAST}/axis", 2)),
    "paddings": ("carried", constant(f"joined/PadV2/{LAST}/paddings", 0, 0, 0, 3, 1, 2, 0, 0)),
    "value of a pad": ("carried", constant("joined/PadV2/constant_values", 0.25)),
    "axes of a mean": ("carried", constant(f"reduced/Mean/{LAST}/axes", 1, 3)),
    "axis of a maximum": ("carried", constant(f"reduced/Max/{LAST}/axes", 2)),
    "squeezed axis": ("carried", of_list(f"columns/Squeeze/{LAST}", "squeeze_dims", [2])),
    "a source's transposition": ("carried", constant(f"columns/transpose/{LAST}/perm", 0, 1, 2)),
    "flattened": ("carried", constant(f"flattened/transpose/{LAST}/perm", 0, 1, 2, 3)),
    "sizes of a shape": ("carried", constant(f"flattened/Shape_1/{LAST}/order", 0, 3, 2, 1)),
    "reshaped operand": ("carried", constant(f"residual/add_1/{LAST}/shape", 1, 3, 1, 1)),
    "an activation": ("carried", gated_models.of_op(f"residual/Relu/{LAST}", "Relu6")),
    "sides of a maximum": ("carried", of_input(f"residual/Maximum/{LAST}", 0, f"residual/Relu/{LAST}")),
    "film strides": ("films", of_list(f"valid/Conv3D/{LAST}", "strides", [1, 1, 2, 3, 1])),
    "grouped filter": ("only_onednn", constant(f"{GROUPED}/filter/shape", 3, 2, 2, -1)),
    "zeros of a filter": (
        "only_onednn",
        constant(f"film_dilations/Conv3D/{LAST}/dilated/size", 2, 3, 3, -1, -1),
    ),
    "dilations of groups": ("only_onednn", of_list(GROUPED, "dilations", [1, 1, 1, 1])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_wrong_is_seen(name: str, written: dict[str, Path], tmp_path: Path) -> None:
    group, change = CHANGES[name]
    other = tmp_path / "other.pb"
    other.write_bytes(written[group].read_bytes())
    gated_models.edit(other, change)
    assert other.read_bytes() != written[group].read_bytes()
    report = asked(group, other)
    assert report.asked, report.message
    assert not report.passed, report
