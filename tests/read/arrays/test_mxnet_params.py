"""MXNet's parameter files: each version, what is refused, and what a symbol beside them says."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import refused
from support.samples import ROOT

from cudnn_convert import inspect
from cudnn_convert.errors import ReadError
from cudnn_convert.model import Mode
from cudnn_convert.read import digest_files, files, is_model, read

MXNET = ROOT / "tests/data/arrays/mxnet"
FORMATS = MXNET / "formats"
NAMES = json.loads((FORMATS / "golden.json").read_text())["names"]


def values(name: str) -> dict[str, np.ndarray]:
    return {key: tensor.read() for key, tensor in read(FORMATS / name).variables.items()}


@pytest.mark.parametrize("name", ["v1", "v2", "v3", "v2_of_gpu", "legacy", "float64", "float16", "bfloat16"])
def test_every_version_has_the_same_arrays(name: str) -> None:
    model = read(FORMATS / f"{name}.params")
    assert (model.kind, [*model.variables]) == ("MXNet parameter file", NAMES)
    expected = values("v2.params")
    for key, tensor in model.variables.items():
        assert tensor.dtype == (name if "float" in name else "float32")
        array = tensor.read()
        assert (array.shape, array.dtype) == (tensor.shape, tensor.dtype)
        close = {"float16": 1e-3, "bfloat16": 2e-2}.get(name, 1e-15)
        np.testing.assert_allclose(array.astype(np.float64), expected[key], rtol=close, atol=0)
    ((found,),) = (model.canonical,)
    assert (found.layers, found.directions, found.units, found.input_size) == (2, 2, 4, 5)


def test_a_list_without_names_has_numbers_and_is_refused_by_its_names(tmp_path: Path) -> None:
    model = read(FORMATS / "unnamed.params")
    assert [*model.variables] == [str(number) for number in range(16)]
    np.testing.assert_array_equal(model.variables["3"].read(), values("v2.params")[NAMES[3]])
    [line] = refused(tmp_path, FORMATS / "unnamed.params", tmp_path / "out", code=1)
    assert "expected arrays with names, which mx.nd.save writes of a dict, found none of them" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("row_sparse", "array 0: expected a dense array, found a row_sparse one; make it dense with tostype"),
        ("csr", "array 0: expected a dense array, found a csr one; make it dense with tostype"),
        ("int32", "rnn0/l0_i2h_weight: expected weights of a float type, found int32"),
    ],
)
def test_what_is_no_dense_float_is_refused(tmp_path: Path, name: str, message: str) -> None:
    [line] = refused(tmp_path, FORMATS / f"{name}.params", tmp_path / "out", code=1)
    assert message in line


def array(values: np.ndarray, magic: int = 0xF993FAC9, rank: int | None = None, kind: int = 0) -> bytes:
    """An array of version 2 or 3."""
    head = struct.pack("<Iii", magic, 0, values.ndim if rank is None else rank)
    return head + struct.pack(f"<{values.ndim}q3i", *values.shape, 1, 0, kind) + values.tobytes()


def listed(
    arrays: list[bytes], names: list[str], count: int | None = None, named: int | None = None
) -> bytes:
    body = struct.pack("<QQQ", 0x112, 0, len(arrays) if count is None else count) + b"".join(arrays)
    body += struct.pack("<Q", len(names) if named is None else named)
    return body + b"".join(struct.pack("<Q", len(name)) + name.encode("latin-1") for name in names)


ONE = np.arange(6, dtype=np.float32).reshape(2, 3)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    path.write_bytes(listed([array(each.astype(np.float32)) for each in arrays.values()], [*arrays]))
    return path


def test_other_types_and_a_scalar_are_read(tmp_path: Path) -> None:
    """mxnet 1.9.1 3rdparty/mshadow/mshadow/base.h TypeFlag."""
    kinds = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "int16"]
    kinds += ["uint16", "uint32", "uint64"]
    path = tmp_path / "types.params"
    arrays = [array(ONE.astype(kind), kind=number) for number, kind in enumerate(kinds)]
    path.write_bytes(listed([*arrays, array(np.float32(7), magic=0xF993FACA)], [*kinds, "scalar"]))
    tensors = read(path).variables
    for kind in kinds:
        np.testing.assert_array_equal(tensors[kind].read(), ONE.astype(kind), strict=True)
    np.testing.assert_array_equal(tensors["scalar"].read(), np.float32(7), strict=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (listed([array(ONE)], ["x"])[:-20], "array 0: expected 24 bytes, found"),
        (listed([array(ONE)], ["x"]) + b"\0", "file: expected nothing behind the names, found 1 bytes"),
        (listed([array(ONE)], ["x"], count=2), "array 1: expected"),
        (
            listed([array(ONE)], ["x"], count=2**60),
            "arrays: expected no more than the file has bytes, found 1",
        ),
        (listed([array(ONE)], ["x"], named=2), "names: expected 1 or none, found 2"),
        (listed([array(ONE), array(ONE)], ["x", "x"]), "x: expected one array of this name, found several"),
        (listed([array(ONE)], ["\xff"]), "name 0: expected a name in UTF-8, found other bytes"),
        (listed([array(ONE)], ["x"])[:-1], "name 0: expected 1 bytes, found 0, the end of the file"),
        (
            listed([array(ONE, kind=13)], ["x"]),
            "array 0: expected numbers of a known type, found type 13; save",
        ),
        (
            listed([array(ONE, kind=-1)], ["x"]),
            "array 0: expected numbers of a known type, found type -1; save",
        ),
        (listed([array(ONE, rank=33)], ["x"]), "array 0: expected at most 32 axes, found 33"),
        (listed([array(ONE, rank=0)], ["x"]), "array 0: expected values, found none; give the parameters"),
        (listed([array(ONE, 0xF993FACA, rank=-1)], ["x"]), "array 0: expected values, found none; give"),
        (
            listed([array(ONE).replace(b"\3" + b"\0" * 7, b"\xff" * 8)], ["x"]),
            "array 0: expected a shape, found",
        ),
        (listed([array(ONE).replace(b"\3" + b"\0" * 7, b"\xff" * 7 + b"\x7f")], ["x"]), "array 0: expected"),
        (listed([struct.pack("<IIII", 2, 2, 3, 1)], ["x"]), "array 0: expected"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, body: bytes, message: str) -> None:
    path = tmp_path / "damaged.params"
    path.write_bytes(body)
    with pytest.raises(ReadError) as raised:
        read(path)
    assert f"{path}: {message}" in str(raised.value)


def test_every_cut_is_refused(tmp_path: Path) -> None:
    whole, path = (FORMATS / "v2.params").read_bytes(), tmp_path / "cut.params"
    for end in range(16, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(ReadError):
            read(path)


def test_arg_and_aux_of_one_name_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.params", {"arg:x": ONE, "aux:y": ONE})
    assert [*read(path).variables] == ["x", "y"]
    save(path, {"arg:x": ONE, "aux:x": ONE})
    with pytest.raises(ReadError, match="x: expected one array of this name, found aux:x too; rename one"):
        read(path)


def copied(tmp_path: Path, case: str, name: str) -> tuple[Path, Path]:
    """A checkpoint and its symbol, to be changed."""
    for file in (MXNET / case).glob(f"{name}*"):
        shutil.copy(file, tmp_path)
    return next(tmp_path.glob("*.params")), tmp_path / f"{name}-symbol.json"


def change(symbol: Path, op: str, attributes: Mapping[str, str]) -> None:
    tree = json.loads(symbol.read_text())
    for node in tree["nodes"]:
        if node["op"] == op:
            node["attrs"] |= attributes
    symbol.write_text(json.dumps(tree))


def test_a_symbol_gives_the_mode_that_names_leave_open(tmp_path: Path) -> None:
    path, symbol = copied(tmp_path, "net", "exported")
    with np.load(MXNET / "net/golden.npz") as golden:
        assert golden["y"].size
    (found,) = read(path).canonical
    assert (found.scope, found.modes) == ("net_lstm0/", (Mode.LSTM,))
    assert read(path).notes == (f"{symbol.name} was read for what the names leave open",)
    rnn = {f"arg:net_lstm0_l0_{tail}": np.ones(shape) for tail, shape in SHAPES.items()}
    tree = json.loads(symbol.read_text())
    tree["nodes"] = [node for node in tree["nodes"] if "_l1_" not in node["name"]]
    path = write_gluon(tmp_path, "rnn", "rnn_relu", rnn)
    (found,) = read(path).canonical
    assert found.modes == (Mode.RNN_RELU,)
    (tmp_path / "rnn-symbol.json").unlink()
    (found,) = read(path).canonical
    assert found.modes == (Mode.RNN_TANH, Mode.RNN_RELU)


SHAPES = {"i2h_weight": (4, 5), "h2h_weight": (4, 4), "i2h_bias": (4,), "h2h_bias": (4,)}


def write_gluon(folder: Path, name: str, mode: str, arrays: Mapping[str, np.ndarray], **more: str) -> Path:
    """A checkpoint of one gluon layer, and its symbol."""
    variables = [{"op": "null", "name": key.removeprefix("arg:"), "inputs": []} for key in arrays]
    count = len(variables)
    reshaped = [{"op": "Reshape", "name": f"r{k}", "inputs": [[k, 0, 0]]} for k in range(count)]
    joined = {"op": "_rnn_param_concat", "name": "all", "inputs": [[count + k, 0, 0] for k in range(count)]}
    attributes = {"mode": mode, "num_layers": "1", "state_size": "4", "bidirectional": "False"} | more
    data = {"op": "null", "name": "data", "inputs": []}
    rnn = {"op": "RNN", "name": "rnn", "attrs": attributes}
    rnn["inputs"] = [[2 * count + 1, 0, 0], [2 * count, 0, 0]]
    nodes = [*variables, *reshaped, joined, data, rnn]
    (folder / f"{name}-symbol.json").write_text(json.dumps({"nodes": nodes}))
    return save(folder / f"{name}-0003.params", arrays)


RNN = {f"arg:rnn0_l0_{tail}": np.full(shape, 0.5) for tail, shape in SHAPES.items()}


@pytest.mark.parametrize(
    ("mode", "more", "message"),
    [
        (
            "gru",
            {},
            "rnn: expected rnn_tanh, layers 1, units 4, directions 1, as the arrays have it, found gru",
        ),
        ("rnn_relu", {"num_layers": "2"}, "rnn: expected rnn_tanh, layers 1, .*, found rnn_relu, layers 2"),
        (
            "rnn_relu",
            {"bidirectional": "True"},
            "rnn: expected .*directions 1, .*directions 2; give the .params",
        ),
        (
            "rnn_tanh",
            {"projection_size": "3"},
            "rnn: expected a projection of 0, as the arrays have it, found 3",
        ),
        ("lstm", {"lstm_state_clip_min": "-1.0"}, "rnn: expected cell states that are not clipped, found"),
        (
            "lstm",
            {"num_layers": "many"},
            "rnn: expected an RNN with mode, sizes and parameters, found another",
        ),
        (
            "other",
            {},
            "rnn: expected an RNN with mode, sizes and parameters, found another; copy it again, or",
        ),
    ],
)
def test_a_symbol_that_contradicts_the_arrays_is_refused(
    tmp_path: Path, mode: str, more: Mapping[str, str], message: str
) -> None:
    path = write_gluon(tmp_path, "a", mode, RNN, **more)
    with pytest.raises(ReadError, match=message):
        read(path)


def test_a_symbol_of_other_arrays_is_refused(tmp_path: Path) -> None:
    write_gluon(tmp_path, "a", "rnn_relu", {key.replace("rnn0", "rnn1"): own for key, own in RNN.items()})
    path = save(tmp_path / "a-0003.params", RNN)
    with pytest.raises(ReadError, match="rnn: expected parameters that the file has, found rnn1_l0_"):
        read(path)
    write_gluon(tmp_path, "a", "rnn_relu", RNN | {"arg:more": ONE})
    with pytest.raises(
        ReadError, match=r"rnn: expected the arrays of one recurrence in .*, found more, which"
    ):
        read(path)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_a_packed_vector_has_its_sizes_from_the_symbol(tmp_path: Path, mode: str) -> None:
    path, symbol = copied(tmp_path, f"fused_{mode}", "packed")
    (sizes,) = read(path).blobs.values()
    assert (sizes.mode, sizes.layers, sizes.units, sizes.directions) == (Mode(mode), 2, 4, 2)
    assert is_model(path)
    change(symbol, "RNN", {"state_size": "5"})
    with pytest.raises(
        ReadError, match=f"{mode}_rnn: expected sizes that fit {mode}_parameters of .* values"
    ):
        read(path)
    change(symbol, "RNN", {"state_size": "4", "projection_size": "3"})
    with pytest.raises(
        ReadError, match="expected a vector of parameters without a projection, found one of 3"
    ):
        read(path)
    symbol.unlink()
    [line] = refused(tmp_path, path, tmp_path / "out", code=1)
    assert f"name --mode, --layers, --units and --directions; its length fits --mode {mode}" in line
    assert not is_model(path)


def test_unpacked_arrays_have_the_symbol_of_their_vector(tmp_path: Path) -> None:
    """`save_rnn_checkpoint` unpacks the arrays, and leaves the symbol as it is."""
    path, _ = copied(tmp_path, "fused_gru", "unpacked")
    ((found,),) = (read(path).canonical,)
    assert "are taken to feed each other" in (found.note or "")
    symbol = tmp_path / "unpacked-symbol.json"
    shutil.copy(MXNET / "fused_gru/packed-symbol.json", symbol)
    ((found,),) = (read(path).canonical,)
    assert (found.modes, found.note) == ((Mode.GRU,), None)
    change(symbol, "RNN", {"num_layers": "3"})
    with pytest.raises(
        ReadError, match=r"gru_rnn: expected gru, layers 2, .* as the arrays have it, found gru,"
    ):
        read(path)


def test_gates_of_a_checkpoint_have_their_order_from_the_symbol(tmp_path: Path) -> None:
    """MXNet's example/rnn/lstm.py has gates i, g, f, o under the names of its cells."""
    path, symbol = copied(tmp_path, "symbol_cells", "packed")
    ((found,),) = (read(path).canonical,)
    assert (found.scope, found.layers) == ("lstm/", 2)
    text = symbol.read_text()
    tree = json.loads(text)
    for node in tree["nodes"]:
        if node["name"].endswith(("_t0_f", "_t0_c")):  # the outputs of the SliceChannel in each other's place
            node["inputs"][0][1] = 3 - node["inputs"][0][1]
    symbol.write_text(json.dumps(tree))
    usual = "expected a symbol whose cell has gates sigmoid, sigmoid, tanh, sigmoid, found"
    with pytest.raises(
        ReadError, match=f"lstm_l0_i2h_weight: {usual} one with sigmoid, tanh, sigmoid, sigmoi"
    ):
        read(path)
    symbol.unlink()
    with pytest.raises(
        ReadError, match=f"lstm_l0_i2h_weight: {usual} none; put the symbol beside it, as NAME"
    ):
        read(path)
    symbol.write_text(text.replace("_l1_t0_out", "_l1_t0_out_plus_residual"))
    with pytest.raises(
        ReadError, match="lstm: expected layers that feed each other, found a ResidualCell; save"
    ):
        read(path)
    plain = {key.removeprefix("arg:"): own.read() for key, own in read_arrays(path).items()}
    ((found,),) = (read(save(tmp_path / "plain.params", plain)).canonical,)
    assert found.note is None


def read_arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file beside which no symbol lies, and which is no checkpoint."""
    data = path.read_bytes().replace(b"arg:", b"xyz:")
    other = path.with_name("other.params")
    other.write_bytes(data)
    return {key.removeprefix("xyz:"): tensor for key, tensor in read(other).variables.items()}


def test_a_symbol_is_a_file_of_the_source(tmp_path: Path) -> None:
    path, symbol = copied(tmp_path, "net", "exported")
    assert {*files(path)} == {path, symbol}
    assert {*digest_files(path)} == {path.name, symbol.name}
    other = tmp_path / "elsewhere" / "other.json"
    other.parent.mkdir()
    symbol.rename(other)
    symbol.symlink_to(other)
    assert read(path).canonical, "a link in the folder of the source is followed"
    outside = tmp_path / "inside"
    outside.mkdir()
    moved = path.rename(outside / path.name)
    (outside / symbol.name).symlink_to(other)
    with pytest.raises(ReadError, match=r"exported-symbol.json: expected a file in .*, found a link to"):
        read(moved)


def test_an_inspection_names_what_is_left_out() -> None:
    found = inspect(MXNET / "net/exported-0000.params")
    assert [each.name for each in found.recurrences] == ["net_lstm0"]
    assert any(
        "left out: net_embedding0_weight, net_dense0_weight, net_dense0_bias" in note for note in found.notes
    )
