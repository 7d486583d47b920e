"""What an artifact says of itself is a claim: it is of the form that is written, or refused by name."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
from support.tflite_tables import table

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import AccessError, ReadError, UsageError
from cudnn_convert.verification import recordings
from cudnn_convert.weights import npz_archive

ENDS = {"inputs": {"x": "x:0"}, "outputs": {"y": "y:0"}}
TOLD = {**ENDS, "tensors": ENDS, "options": {"tag": None}, "more": 1}


def record(folder: Path, text: str) -> Path:
    (folder / "frozen_graph.pb").write_bytes(b"")
    (folder / "conversion.json").write_text(text)
    return folder


def onnx_file(folder: Path, text: str) -> Path:
    model = onnx.ModelProto()
    model.metadata_props.add(key="other", value="{")
    model.metadata_props.add(key="cudnn_convert", value=text)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def archive(folder: Path, text: str) -> Path:
    with zipfile.ZipFile(folder / "m.keras", "w") as held:
        held.writestr("metadata.json", f'{{"cudnn_convert": {text}}}')
    return folder / "m.keras"


def hdf5(folder: Path, text: str) -> Path:
    with h5py.File(folder / "m.h5", "w") as file:
        file.attrs["cudnn_convert"] = text
    return folder / "m.h5"


def npz(folder: Path, text: str) -> Path:
    np.savez(folder / "m.npz", cudnn_convert=np.frombuffer(text.encode(), np.uint8))
    return folder / "m.npz"


CARRIERS = [record, onnx_file, archive, hdf5, npz]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_was_written_is_read(tmp_path: Path, carrier: Callable[[Path, str], Path]) -> None:
    _, _, found = runners.identify(carrier(tmp_path, json.dumps(TOLD)))
    assert found == TOLD


WRONG: list[Any] = [{**TOLD, "options": 3}, {**TOLD, "inputs": {"x": 1}}, {**TOLD, "outputs": ["y"]}, 7]
WRONG += [
    {**TOLD, "tensors": {**ENDS, "inputs": {"x": None}}},
    {**TOLD, "tensors": {"inputs": {}}},
    {"options": {}},
    {**TOLD, "tensors": None},
]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("told", WRONG)
def test_another_form_is_refused(tmp_path: Path, carrier: Callable[[Path, str], Path], told: Any) -> None:
    path = carrier(tmp_path, json.dumps(told))
    with pytest.raises(ReadError) as caught:
        runners.identify(path)
    where = path / "conversion.json" if carrier is record else path
    found = "found content that is damaged or of another program"
    assert str(caught.value) == f"{where}: provenance: expected JSON as this tool writes it, {found}"


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]
)
def test_text_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    for carrier in (record, onnx_file, hdf5):
        with pytest.raises(ReadError, match="provenance: expected JSON as this tool writes it"):
            runners.identify(carrier(tmp_path, text))


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    for name, told in (
        ("m.onnx", "file: expected an ONNX model, found a file that is not one"),
        ("m.h5", "HDF5: expected a readable HDF5 file"),
        ("m.keras", "metadata.json: expected a readable file in the archive"),
        ("m.npz", "file: expected weights as --format npz or safetensors writes them, found a file"),
    ):
        (tmp_path / name).write_bytes(b"\xff\xff\xff")
        with pytest.raises(ReadError) as caught:
            runners.identify(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {told}")


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = record(tmp_path, json.dumps(TOLD))
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(AccessError) as caught:
        runners.identify(path)
    assert str(caught.value) == f"{tmp_path / 'conversion.json'}: cannot read: Permission denied"


def test_a_buffer_without_bytes_is_no_provenance(tmp_path: Path) -> None:
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    model = schema.ModelT()
    model.buffers = [schema.BufferT()]
    model.metadata = [table(schema.MetadataT, name="cudnn_convert", buffer=0)]
    (tmp_path / "m.tflite").write_bytes(flatbuffer_utils.convert_object_to_bytearray(model))
    with pytest.raises(
        ReadError, match=r"m.tflite: file: expected a TensorFlow Lite model, found a file that is not one"
    ):
        runners.identify(tmp_path / "m.tflite")


def test_files_without_provenance_have_none(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    with h5py.File(tmp_path / "m.h5", "w"), zipfile.ZipFile(tmp_path / "m.keras", "w") as held:
        held.writestr("metadata.json", "{}")
    np.savez(tmp_path / "m.npz", a=np.zeros(2))
    assert [runners.identify(tmp_path / f"m.{kind}")[2] for kind in ("onnx", "h5", "keras", "npz")] == [
        None
    ] * 4


META = {
    **{"format": recordings.FORMAT, "version": recordings.VERSION, "recorder": "r", "source": "s"},
    **{"tensorflow": "2", "python": "3", "cuda": None, "cudnn": None},
    "devices": [{"type": "CPU", "description": "", "name": "c"}],
    "tf32": {"on": False, "reason": "none"},
    "inputs": {"x": {"tensor": "x:0", "dtype": "float32"}},
    "outputs": {},
}


def recorded(folder: Path, meta: Any, value: Any = 1.0) -> Path:
    text = np.frombuffer((meta if isinstance(meta, str) else json.dumps(meta)).encode(), np.uint8)
    np.savez(folder / "r.npz", **{"meta": text, "feed0/in/x": value})
    return folder / "r.npz"


def test_a_recording_is_read(tmp_path: Path) -> None:
    found = recordings.read_recording(recorded(tmp_path, META))
    assert (found.inputs, found.outputs, found.is_tf32) == ({"x": "x:0"}, {}, False)
    short = {**META, "inputs": {"x": {"tensor": "x:0", "dtype": "bfloat16"}}}
    raw = np.array([0x3F80], np.uint16).view("V2")
    assert recordings.read_recording(recorded(tmp_path, short, raw)).feeds[0]["x"].astype(float) == [1.0]
    kept_raw = recordings.read_recording(recorded(tmp_path, META, raw)).feeds[0]["x"]
    assert kept_raw.dtype == np.dtype("V2")
    wide = np.zeros(1, "V4")
    assert recordings.read_recording(recorded(tmp_path, short, wide)).feeds[0]["x"].dtype == np.dtype("V4")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("inputs", 1), ("inputs", {"x": "x:0"}), ("inputs", {"x": {"tensor": "x:0"}}), ("outputs", None)),
        *(("outputs", {"y": {"tensor": 1, "dtype": "float32"}}), ("devices", {}), ("devices", ["CPU"])),
        *(("devices", [{"type": "CPU"}]), ("devices", [{"type": 1, "description": ""}])),
        *(("tf32", True), ("tf32", {"on": 1, "reason": ""}), ("tf32", {"on": True})),
    ],
)
def test_meta_of_another_form_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        recordings.read_recording(recorded(tmp_path, {**META, name: value}))
    expected = f"meta: expected {name} as record writes it, found another form"
    assert str(caught.value) == f"--golden {tmp_path / 'r.npz'}: {expected}"


def test_meta_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a recording, found meta of another program"):
        recordings.read_recording(recorded(tmp_path, "[" * 100_000))


def test_a_number_of_a_feed_is_bounded() -> None:
    found = {f"feed{'1' * 5000}/x": np.zeros(1)}
    assert npz_archive.calls(found, where="here") == [found]
