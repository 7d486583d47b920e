"""An ONNX file before it is opened: where its weights may lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cudnn_convert.artifacts import onnx as opener
from cudnn_convert.errors import ReadError

FLOATS = TensorProto.FLOAT


def stored_at(location: str) -> Any:
    """A tensor of eight floats that lies in another file."""
    tensor = TensorProto(name="w", dims=[8], data_type=FLOATS, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def constant(tensor: Any, *, name: str = "w") -> Any:
    return helper.make_node("Constant", [], [name], value=tensor)


def graph(*nodes: Any, initializers: Any = (), sparse: Any = ()) -> Any:
    output = helper.make_tensor_value_info("y", FLOATS, [8])
    ends = [*nodes, helper.make_node("Identity", ["w"], ["y"])]
    return helper.make_graph(ends, "graph", [], [output], [*initializers], sparse_initializer=[*sparse])


def sparse(tensor: Any) -> Any:
    indices = numpy_helper.from_array(np.arange(8), "places")
    return onnx.SparseTensorProto(values=tensor, indices=indices, dims=[8])


def in_a_branch(tensor: Any) -> Any:
    holds = constant(numpy_helper.from_array(np.array(True)), name="holds")
    branch, other = graph(constant(tensor)), graph(constant(numpy_helper.from_array(np.zeros(8, "f"))))
    return graph(holds, helper.make_node("If", ["holds"], ["w"], then_branch=other, else_branch=branch))


def in_a_function(tensor: Any) -> Any:
    opset = [helper.make_opsetid("", 17)]
    return helper.make_function("own", "f", [], ["w"], [constant(tensor)], opset)


#: Where a tensor may stand in a model.
PLACES = {
    "initializer": lambda tensor: helper.make_model(graph(initializers=[tensor])),
    "sparse initializer": lambda tensor: helper.make_model(graph(sparse=[sparse(tensor)])),
    "attribute": lambda tensor: helper.make_model(graph(constant(tensor))),
    "sparse attribute": lambda tensor: helper.make_model(
        graph(helper.make_node("Constant", [], ["w"], sparse_value=sparse(tensor)))
    ),
    "branch": lambda tensor: helper.make_model(in_a_branch(tensor)),
    "function": lambda tensor: helper.make_model(graph(), functions=[in_a_function(tensor)]),
}


def saved(folder: Path, model: Any) -> Path:
    path = folder / "models" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("location", ["../w.data", "/w.data", "*/_ORT_MEM_ADDR_/*"])
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, place: str, location: str) -> None:
    path = saved(tmp_path, PLACES[place](stored_at(location)))
    with pytest.raises(ReadError) as caught:
        opener.check(path, (), False)
    assert f"artifact: expected weights in the folder of m.onnx, found external data at {location}" in str(
        caught.value
    )
    opener.check(path, (), True)


@pytest.mark.parametrize("place", PLACES)
def test_weights_beside_the_file_are_not_refused(tmp_path: Path, place: str) -> None:
    opener.check(saved(tmp_path, PLACES[place](stored_at("more/w.data"))), (), False)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    path = saved(tmp_path, PLACES["initializer"](stored_at("w.data")))
    (path.parent / "w.data").symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match=r"found external data at w\.data"):
        opener.check(path, (), False)


def test_every_file_of_a_folder_is_checked(tmp_path: Path) -> None:
    saved(tmp_path, PLACES["initializer"](stored_at("w.data")))
    path = saved(tmp_path, PLACES["initializer"](stored_at("../w.data")))
    path.rename(path.with_name("other.onnx"))
    with pytest.raises(ReadError, match=r"in the folder of other\.onnx"):
        opener.check(path.parent, (), False)


def test_another_file_is_left_to_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    opener.check(tmp_path / "m.onnx", (), False)
