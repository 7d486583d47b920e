"""The recorder's C declarations against cuDNN's own headers and library, where this machine has them.

Headers: CUDNN_INCLUDE (a folder), or an installed nvidia-cudnn-cu12 or -cu13 wheel. Library: CUDNN_LIBRARY
or that wheel. No device is needed: descriptors, sizes and offsets are host code.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import record_cudnn as rec

#: Those marked `every` need nvidia-cudnn-cu12, which `make test` does not install.
pytestmark = pytest.mark.slow("scripts/record_cudnn.py", "tests/recorder/")


def wheel_folder() -> Path | None:
    if importlib.util.find_spec("nvidia") is None:
        return None
    spec = importlib.util.find_spec("nvidia.cudnn")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


@pytest.fixture(scope="module")
def headers() -> str:
    wheel = wheel_folder()
    folder = (
        Path(os.environ["CUDNN_INCLUDE"]) if "CUDNN_INCLUDE" in os.environ else wheel and wheel / "include"
    )
    if not folder or not (folder / "cudnn_adv.h").exists():
        pytest.skip("no cuDNN headers: set CUDNN_INCLUDE or install nvidia-cudnn-cu12")
    names = ("cudnn_version.h", "cudnn_graph.h", "cudnn_ops.h", "cudnn_adv.h")
    text = "\n".join((folder / name).read_text() for name in names)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"\b(CUDNNWINAPI|CUDNN_DEPRECATED(_ENUM)?)\b", " ", text)


def test_parse_prototypes_sees_every_kind_of_word() -> None:
    text = "int32_t f(const void *a,\n  unsigned b[]);\nconst char *g(void);"
    assert rec.parse_prototypes(text) == {
        "f": rec.Prototype("int32_t", ("const void *a", "unsigned b[]")),
        "g": rec.Prototype("const char *", ()),
    }


def test_every_declaration_has_a_ctype() -> None:
    assert len(rec.DECLARATIONS) == rec.PROTOTYPES.count(";")
    kinds = {rec.ctype_of(p) for prototype in rec.DECLARATIONS.values() for p in prototype.parameters}
    assert kinds == {ctypes.c_void_p, ctypes.c_int, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t}
    assert rec.ctype_of("cudnnRNNMode_t cellMode") is ctypes.c_int
    assert rec.ctype_of("cudnnRNNMode_t *cellMode") is ctypes.c_void_p
    assert rec.ctype_of("cudnnHandle_t handle") is ctypes.c_void_p
    assert rec.ctype_of("const int32_t devSeqLengths[]") is ctypes.c_void_p
    assert rec.return_type(rec.DECLARATIONS["cudnnGetVersion"].returns) is ctypes.c_size_t


@pytest.mark.every
def test_declarations_are_the_header_s(headers: str) -> None:
    declared = rec.parse_prototypes(headers)
    for name, prototype in rec.DECLARATIONS.items():
        assert prototype == declared[name]


@pytest.mark.every
def test_types_without_a_number_are_pointers(headers: str) -> None:
    """A parameter passed as c_void_p by value must be a pointer to an opaque struct."""
    for prototype in rec.DECLARATIONS.values():
        for parameter in prototype.parameters:
            if rec.ctype_of(parameter) is ctypes.c_void_p and not re.search(r"[*\[]", parameter):
                name = parameter.removeprefix("const ").split()[0]
                assert re.search(rf"typedef\s+struct\s+\w+\s*\*\s*{name}\s*;", headers), name


@pytest.mark.every
def test_enums_are_the_header_s(headers: str) -> None:
    for enum, constants in rec.ENUMS.items():
        body = re.search(rf"typedef enum \{{([^}}]*)\}}\s*{enum};", headers)
        assert body, enum
        values = dict(re.findall(r"(\w+)\s*=\s*(\d+)\s*(?:,|$)", body[1].strip()))
        assert {name: int(values[name]) for name in constants} == constants


@pytest.mark.every
def test_defines_are_the_header_s(headers: str) -> None:
    shifts = dict(re.findall(r"#define (CUDNN_RNN_PADDED_IO_\w+) (.+)", headers))
    assert {name: text.strip() for name, text in shifts.items()} == {
        "CUDNN_RNN_PADDED_IO_DISABLED": "0",
        "CUDNN_RNN_PADDED_IO_ENABLED": "(1U << 0)",
    }
    assert rec.DEFINES == {"CUDNN_RNN_PADDED_IO_DISABLED": 0, "CUDNN_RNN_PADDED_IO_ENABLED": 1}


@pytest.mark.every
def test_headers_are_of_cudnn_9(headers: str) -> None:
    assert re.search(r"#define CUDNN_MAJOR 9\b", headers)


def library_path() -> str:
    wheel = wheel_folder()
    found = sorted((wheel / "lib").glob("libcudnn.so*")) if wheel else []
    path = os.environ.get("CUDNN_LIBRARY") or (str(found[0]) if found else "")
    if not path:
        pytest.skip("no libcudnn: set CUDNN_LIBRARY or install nvidia-cudnn-cu12")
    return path


@pytest.fixture(scope="module")
def cudnn() -> Iterator[rec.Cudnn]:
    yield rec.Cudnn(library_path())


def some_cases() -> list[rec.Case]:
    one_per_kind = {
        (c.network.mode, c.network.dtype, c.network.skip_input, c.network.projection, c.lengths, c.math): c
        for c in rec.output_cases()
    }
    return list(one_per_kind.values())


@pytest.mark.every
def test_cudnn_reads_the_rnn_descriptor_as_meant(cudnn: rec.Cudnn) -> None:
    for case in some_cases():
        wanted = rec.rnn_descriptor_arguments(case)
        found = {name: ctypes.c_int32(-1) for name in wanted}
        dropout = ctypes.c_void_p()
        with rec.rnn_descriptor(cudnn, case) as descriptor:
            *most, flags = (ctypes.byref(value) for value in found.values())
            cudnn.call("cudnnGetRNNDescriptor_v8", descriptor, *most, ctypes.byref(dropout), flags)
        assert {name: value.value for name, value in found.items()} == wanted, case.name


@pytest.mark.every
def test_cudnn_reads_the_data_descriptor_as_meant(cudnn: rec.Cudnn) -> None:
    names = ("dataType", "layout", "maxSeqLength", "batchSize", "vectorSize")
    for case in some_cases():
        wanted = rec.data_descriptor_arguments(case, 7)
        found = {name: ctypes.c_int(-1) for name in names}
        lengths, fill = rec.ints([-1] * case.batch), ctypes.c_double(5)
        with rec.data_descriptor(cudnn, case, 7) as descriptor:
            pointers = [ctypes.byref(value) for value in found.values()]
            cudnn.call(
                "cudnnGetRNNDataDescriptor", descriptor, *pointers, case.batch, lengths, ctypes.byref(fill)
            )
        assert {name: found[name].value for name in names} == {name: wanted[name] for name in names}
        assert list(lengths) == wanted["seqLengthArray"]
        item = rec.ITEM_SIZE[case.network.dtype]
        assert bytes(fill)[:item] == bytes(item), case.name


@pytest.mark.every
def test_cudnn_refuses_a_length_beyond_the_steps(cudnn: rec.Cudnn) -> None:
    """The wrapper raises, with cuDNN's own words."""
    with (
        cudnn.created("RNNData") as descriptor,
        pytest.raises(rec.CudnnError, match=r"^cudnnSetRNNDataDescriptor: CUDNN_STATUS_BAD_PARAM"),
    ):
        cudnn.call("cudnnSetRNNDataDescriptor", descriptor, 0, 0, 5, 2, 7, rec.ints([6, 1]), None)


@pytest.mark.every
@pytest.mark.parametrize("layout", rec.ENUMS["cudnnRNNDataLayout_t"])
def test_cudnn_takes_a_length_of_zero_in_a_padded_descriptor(cudnn: rec.Cudnn, layout: str) -> None:
    """So if a row of length 0 is refused at all, it is refused by the forward call."""
    with cudnn.created("RNNData") as descriptor:
        lengths = rec.ints([0, 5])
        cudnn.call("cudnnSetRNNDataDescriptor", descriptor, 0, rec.ENUM[layout], 5, 2, 7, lengths, None)


@pytest.mark.every
def test_host_code_answers_sizes_and_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--without-device, as a person runs it: cuDNN's own arithmetic agrees with the formula everywhere."""
    monkeypatch.setenv("CUDNN_LIBRARY", library_path())
    assert rec.main(["--without-device", "--out", str(tmp_path)]) == 0
    with np.load(tmp_path / "host_offsets.npz") as arrays:
        meta = json.loads(str(arrays["meta"]))
        assert meta["about"]["source"] == "host code with a blank handle, no device"
        for name, entry in meta["networks"].items():
            net = rec.Network(**entry["network"])
            if net.projection and net.mode != "lstm":
                assert entry["status"] == "cudnnSetRNNDescriptor_v8: CUDNN_STATUS_NOT_SUPPORTED"
            else:
                assert rec.offset_verdict({**entry, "regions": arrays[name].tolist()}) == "equal"
