"""The file that an ONNX model becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from cudnn_convert.targets import onnx as write_onnx

NOTE = json.dumps({"source": "a checkpoint", "options": {"opset": 17}})


@pytest.fixture
def model() -> Any:
    """`y = (x @ large) + small`, both constants of distinct values."""
    large = np.linspace(-1, 1, 40 * 50, dtype=np.float32).reshape(40, 50)
    small = np.linspace(2, 3, 50, dtype=np.float32)
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "main (float[n, 40] x) => (float[n, 50] y) { m = MatMul (x, large) y = Add (m, small) }"
    )
    values = {"large": large, "small": small, "other": large * 2}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, key) for key, v in values.items())
    return made


def run(path: Path) -> Any:
    x = np.linspace(0, 1, 80, dtype=np.float32).reshape(2, 40)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_one_file_with_its_provenance(tmp_path: Path, model: Any) -> None:
    before = model.SerializeToString()
    for name in ("a.onnx", "b.onnx"):
        write_onnx.write(model, {}, tmp_path / name, provenance=NOTE)
    assert model.SerializeToString() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    found = onnx.load(tmp_path / "a.onnx")
    assert {entry.key: entry.value for entry in found.metadata_props} == {"cudnn_convert": NOTE}
    del found.metadata_props[:]
    assert found == model


def test_past_the_limit_large_constants_go_beside_it(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_onnx.write(model, {}, tmp_path / "whole.onnx", provenance=NOTE)
    before = model.SerializeToString()
    monkeypatch.setattr(write_onnx, "_LIMIT", 1000)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_onnx.write(model, {}, tmp_path / folder / "m.onnx", provenance=NOTE)
    assert model.SerializeToString() == before
    for name in ("m.onnx", "m.onnx.data"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    bare = onnx.load(tmp_path / "one" / "m.onnx", load_external_data=False)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in bare.graph.initializer]
    assert places == [
        {"location": "m.onnx.data", "offset": "0", "length": "8000"},
        {},
        {"location": "m.onnx.data", "offset": "8192", "length": "8000"},
    ]
    onnx.checker.check_model(str(tmp_path / "one" / "m.onnx"))
    assert {entry.key for entry in bare.metadata_props} == {"cudnn_convert"}
    np.testing.assert_array_equal(run(tmp_path / "one" / "m.onnx"), run(tmp_path / "whole.onnx"))


def test_weights_that_are_given_apart_lie_where_they_would(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both forms of the file, part by part, and only while they are written."""
    write_onnx.write(model, {}, tmp_path / "whole.onnx", provenance=NOTE)
    large = next(tensor for tensor in model.graph.initializer if tensor.name == "large")
    values = onnx.numpy_helper.to_array(large)
    large.ClearField("raw_data")
    apart = {"large": lambda: iter([values[:7].copy(), values[7:].copy()])}
    write_onnx.write(model, apart, tmp_path / "apart.onnx", provenance=NOTE)
    assert onnx.load(tmp_path / "apart.onnx") == onnx.load(tmp_path / "whole.onnx")
    monkeypatch.setattr(write_onnx, "_LIMIT", 1000)
    write_onnx.write(model, apart, tmp_path / "beside.onnx", provenance=NOTE)
    bare = onnx.load(tmp_path / "beside.onnx", load_external_data=False)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in bare.graph.initializer]
    assert places[0] == {"location": "beside.onnx.data", "offset": "0", "length": "8000"}
    for name in ("apart.onnx", "beside.onnx"):
        np.testing.assert_array_equal(run(tmp_path / name), run(tmp_path / "whole.onnx"))
    assert not large.HasField("raw_data")
