"""A search in ONNX around a step that is written by hand, and the step's nodes in the body of its loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import search_steps
from support.search_steps import BIAS, FEED, TABLE, VOCABULARY

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import finish, search
from cudnn_convert.values import Decoder

#: The step of `search_steps`. A branch scales, with a constant; `unread` has weights that no search needs.
STEP = """
<ir_version: 10, opset_import: ["" : 17, "ai.onnx.ml" : 3DOMAINS]>
step (int64[?, 1] token, float[1, ?, 2] still, float[1, ?, SIZE] state, float[SIZE, ?] context,
      float scale, int32[?] lengths)
    => (float[] next, float[1, ?, 2] still_next, float[?, 1, SIZE] logits, float[?, SIZE] unread)
{
    tokens = Squeeze(token, second)
    [gather] row = Gather(table, tokens)
    flat = Squeeze(state, first)
    memory = Mul(flat, three)
    is_scaled = Greater(scale, fourth)
    doubled = Identity(scale)
    [branch] scaled = If(is_scaled) <
        then_branch = then () => (float[] product) { [multiply] product = Mul(context, doubled) },
        else_branch = otherwise () => (float[] nothing) <float none = {0}> { nothing = Mul(context, none) }
    >
    beside = Transpose <perm: ints = [1, 0]> (scaled)
    sum = Sum(row, memory, beside, bias)
    ones = Cast <to: int = 1> (lengths)
    column = Unsqueeze(ones, second)
    given = Mul(sum, column)
    quarter = Mul(given, fourth)
    next = Unsqueeze(quarter, first)
    still_next = Identity(still)
    CHANCES
    logits = Unsqueeze(chances, second)
    unread = Gather(other, tokens)
    others = Mul(unread, eye)
}
"""


def make_step(chances: str, domains: str) -> finish.Finished:
    """The step with nodes that make its `chances`, and more domains; its tables are apart."""
    text = STEP.replace("CHANCES", chances).replace("DOMAINS", domains).replace("SIZE", str(VOCABULARY))
    model = onnx.parser.parse_model(text)
    constants = {"bias": BIAS, "eye": np.eye(VOCABULARY), "three": np.array(3), "fourth": np.array(0.25)}
    indices = {"first": np.array([0]), "second": np.array([1])}
    stored = {name: value.astype(np.float32) for name, value in constants.items()} | indices
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in stored.items())
    tables = {"table": TABLE.astype(np.float32), "other": TABLE[::-1].astype(np.float32)}
    for name, value in tables.items():
        model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
    return finish.Finished(model, {name: lambda value=value: iter([value]) for name, value in tables.items()})


def run(lowered: finish.Finished, decoder: Decoder) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(lowered.whole().SerializeToString())
    fed = {key: FEED[key] for key in decoder.signature.inputs}
    fed |= {key: value.astype(np.float32) for key, value in fed.items() if value.dtype == np.float64}
    return dict(zip(decoder.signature.outputs, session.run([*decoder.signature.outputs], fed), strict=True))


@pytest.mark.slow("cudnn_convert/lower")
@pytest.mark.first("greedy", "sample")
@pytest.mark.parametrize("kind", ["beam", "greedy", "sample"])
def test_a_search_is_that_of_its_step(kind: str) -> None:
    decoder = search_steps.decoder(kind, "logits", 1)
    lowered = search.lower_search(decoder, make_step("chances = Identity(given)", ""))
    search_steps.check_answers(run(lowered, decoder), kind, scores=np.float32, bound=1e-5)
    # What the step alone needs is gone, the stand-in's domain too; the IR version is the lowest.
    opsets = {opset.domain: opset.version for opset in lowered.model.opset_import}
    assert opsets == {"": 17, "ai.onnx.ml": 3}
    assert lowered.model.ir_version == helper.find_min_ir_version_for(lowered.model.opset_import)
    assert [*lowered.weights] == ["step/table"]
    own = {tensor.name for tensor in lowered.model.graph.initializer if tensor.name.startswith("step/")}
    assert own == {"step/" + name for name in ("table", "bias", "three", "fourth", "first", "second")}
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in lowered.model.graph.input
    }
    assert shapes["state"] == [1, 0, VOCABULARY]
    assert shapes["context"] == [VOCABULARY, 0]


def test_a_step_with_ops_of_a_runtime_keeps_its_version() -> None:
    """They have no schema to check by."""
    decoder = search_steps.decoder("greedy", "probabilities", 1)
    chances = "softmax = Softmax(given) chances = com.microsoft.FusedMatMul(softmax, eye)"
    lowered = search.lower_search(decoder, make_step(chances, ', "com.microsoft" : 1'))
    search_steps.check_answers(run(lowered, decoder), "greedy", scores=np.float32, bound=1e-5)
    assert lowered.model.ir_version == 10


def test_a_step_that_onnx_refuses_is_refused() -> None:
    decoder = search_steps.decoder("greedy", "logits", 1)
    with pytest.raises(UnsupportedModelError, match=r"expected an op of ONNX, found ai\.onnx Nonsense"):
        search.lower_search(decoder, make_step("chances = Nonsense(given)", ""))


def test_an_output_may_be_a_constant() -> None:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "k")
    graph = helper.make_graph(
        [], "step", [], [helper.make_tensor_value_info("k", TensorProto.FLOAT, [3])], [tensor]
    )
    (node,) = search._nodes(graph, {}, {"k": "next"}, "step/")
    assert (node.op_type, *node.input, *node.output, node.name) == ("Identity", "step/k", "next", "step/k")


def test_nodes_without_names_stay_so() -> None:
    """As Casts behind weights in float16: a runtime refuses two nodes of one name."""
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["v"], ["other"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "other"], ["y"], name="sum"),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph(nodes, "step", [], [y])
    copies = [*search._nodes(graph, {"v": "fed"}, {"y": "next"}, "step/")]
    assert [node.name for node in copies] == ["", "", "step/sum"]
    assert [(*node.input, *node.output) for node in copies] == [
        ("step/w", "step/wide"), ("fed", "step/other"), ("step/wide", "step/other", "next")
    ]  # fmt: skip
