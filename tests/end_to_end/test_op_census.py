"""Artifacts answer as TensorFlow 1.15 did, or differ where the table says so and why."""

from __future__ import annotations

import pytest
from support import op_census
from support.versions import needs

#: A variant of each kind that was mended; each list becomes one model.
WITNESSES = {
    "onnx of numbers": [
        "TopKV2/sort,int64,ASCENDING",
        "UniqueWithCounts/float32",
        "Sum/int32,two,kept",
        "Sum/int64,last",
        "Mean/float32,last",
    ],
    "savedmodel of rewritten arithmetic": [
        "AddV2/rewrite,add and subtract",
        "AddV2/rewrite,subtract and add",
    ],
    "onnx of types": [
        "MaxPool/int32,SAME,2/3",
        "UnsortedSegmentMax/int32,int32",
        "SegmentMean/int64,int64",
        "Cumprod/int32,exclusive",
        "SplitV/float32,rest",
        "Softplus/float64",
        "GatherV2/string,rows",
        "Conv2DBackpropInput/float32,SAME,2",
    ],
    "onnx of others": [
        "FakeQuantWithMinMaxArgs/0.0..15.0,4,narrow=False",
        "Cast/float64 to float32 and back",
        "Round/int32",
        "Squeeze/float32,all",
        "AddV2/int32",
    ],
    "tflite of nothing": [
        "Sum/float32,steps",
        "Mean/float32,steps",
        "Max/int32,steps",
        "IsInf/float32",
        "Select/masked with -inf",
        "OnesLike/float32",
        "Unpack/float32",
        "Slice/float32",
        "While/map",
        "OneHot/float32,axis",
    ],
    "tflite of numbers": ["Sqrt/float32", "SqrtGrad/float32", "FloorDiv/float32", "L2Loss/float32"],
}
ROWS = [
    (name, form, verdict) for name, row in op_census.read_verdicts().items() for form, verdict in row.items()
]


NUMBERS = needs("tensorflow", 2, 20, why="its interpreter clamps infinities, as it runs without XNNPACK")


@pytest.mark.first("onnx of others", "onnx of types", "tflite of nothing")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[NUMBERS] if kind == "tflite of numbers" else []) for kind in WITNESSES]
)
def test_each_kind_that_was_mended_answers_as_tensorflow_1(kind: str) -> None:
    names = WITNESSES[kind]
    assert op_census.judge(names, kind.partition(" ")[0]) == dict.fromkeys(names, "equal")


def test_the_table_has_each_variant() -> None:
    assert [*op_census.read_verdicts()] == [*op_census.cases()]
    asked = {
        form: [name for name, other, verdict in ROWS if other == form and verdict != "-"]
        for form in op_census.FORMATS
    }
    assert asked == {form: op_census.names_of(form) for form in op_census.FORMATS}


def test_each_difference_has_its_reason() -> None:
    unexplained = [
        (name, form, kind)
        for name, form, verdict in ROWS
        for kind, why in op_census.explain(name, form, verdict).items()
        if not why
    ]
    assert not unexplained
    assert "unknown" not in {verdict for _, _, verdict in ROWS}


def test_each_reason_is_that_of_a_difference() -> None:
    kinds = [
        (name, form, kind) for name, form, verdict in ROWS for kind in op_census.explain(name, form, verdict)
    ]
    unused = [each.variants for each in op_census.reasons() if not any(each.covers(*row) for row in kinds)]
    assert not unused


@pytest.mark.every
@pytest.mark.parametrize("form", op_census.FORMATS)
def test_every_variant_is_as_the_table_has_it(form: str) -> None:
    verdicts = op_census.read_verdicts()
    outcomes = op_census.check(form, op_census.names_of(form))
    others = {name: text for name, text in outcomes if op_census.verdict(text) != verdicts[name][form]}
    assert not others
