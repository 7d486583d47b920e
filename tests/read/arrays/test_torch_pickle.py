"""A pickle of PyTorch is followed without a call, whatever it asks for, and within memory and time."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.torch_files import ORDERED, call, many, mapping, name, plain, storage, tensor, whole

from cudnn_convert.read.arrays import torch_pickle
from cudnn_convert.read.arrays.torch_pickle import Claim, Opaque, PickleError, Storage, Unreadable

CLAIM = Claim(Storage("float32", "k", 30), "float32", 5, (2, 3), (4, 2))
GIVEN: dict[str, Any] = {"offset": 5, "count": 30}


def load(content: bytes) -> Any:
    return torch_pickle.load(whole(content))[0]


def view(*more: bytes, of: bytes | None = None) -> tuple[bytes, ...]:
    """The arguments that make CLAIM."""
    return (of or storage("k", 30), plain(5), plain((2, 3)), plain((4, 2)), *more)


def test_a_view_of_a_storage_is_a_claim() -> None:
    hooks = (plain(True), ORDERED)
    assert load(tensor("k", (2, 3), (4, 2), **GIVEN)) == CLAIM
    assert load(call(name("torch._utils", "_rebuild_tensor"), *view())) == CLAIM
    untyped = storage("k", 120, "UntypedStorage")
    third = call(
        name("torch._utils", "_rebuild_tensor_v3"), *view(*hooks, name("torch", "uint16"), of=untyped)
    )
    assert load(third) == Claim(Storage("uint8", "k", 120), "uint16", 5, (2, 3), (4, 2))
    sizes = call(name("torch", "Size"), plain((2, 3)))
    second = name("torch._utils", "_rebuild_tensor_v2")
    assert load(call(second, storage("k", 30), plain(5), sizes, plain((4, 2)), *hooks)) == CLAIM


def test_a_parameter_and_a_tensor_with_attributes_are_their_tensor() -> None:
    inner = tensor("k", (2, 3), (4, 2), **GIVEN)
    assert load(call(name("torch._utils", "_rebuild_parameter"), inner, plain(True), ORDERED)) == CLAIM
    state = name("torch._utils", "_rebuild_parameter_with_state")
    assert load(call(state, inner, plain(True), ORDERED, mapping({"origin": plain("x")}))) == CLAIM
    by_type = name("torch._tensor", "_rebuild_from_type_v2")
    second, given = name("torch._utils", "_rebuild_tensor_v2"), many(*view(plain(True), ORDERED))
    assert load(call(by_type, second, name("torch", "Tensor"), given, plain(None))) == CLAIM
    other = load(call(by_type, second, name("mine", "MaskedTensor"), given, plain(None)))
    assert other == Unreadable("a tensor of a class of its own")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (call(name("torch._utils", "_rebuild_sparse_tensor"), plain(0), plain(())), "a sparse tensor"),
        (call(name("torch._utils", "_rebuild_qtensor"), *view()), "a quantized tensor"),
        (call(name("torch._utils", "_rebuild_meta_tensor_no_storage"), plain(0)), "a tensor without values"),
        (call(name("torch._utils", "_rebuild_of_tomorrow")), "a tensor of _rebuild_of_tomorrow"),
        (
            tensor("k", (2, 3), metadata=[mapping({"neg": plain(True)})]),
            "a tensor with a negation or conjugation to be done",
        ),
        (
            call(name("torch._utils", "_rebuild_tensor"), *view(of=call(name("torch.storage", "_load")))),
            "a tensor whose values are pickled",
        ),
    ],
)
def test_other_tensors_are_described(content: bytes, what: str) -> None:
    assert load(content) == Unreadable(what)


def test_mappings_of_each_kind_keep_what_may_matter() -> None:
    inner = tensor("k", (2, 3), (4, 2), **GIVEN)
    entries = {"w": inner, "epoch": plain(3), "again": inner, "more": b"}", "list": plain([1])}
    kept = {"w": CLAIM, "again": CLAIM, "more": {}, "list": Opaque("list")}
    assert load(mapping(entries)) == kept
    assert load(ORDERED + mapping(entries)[1:]) == kept
    items = b"".join(plain(key) + value for key, value in entries.items())
    assert load(b"(" + items + b"d") == kept
    assert load(b"}" + plain("w") + inner + b"s" + plain(7) + inner + b"s") == {"w": CLAIM}
    assert load(b"}" + plain("w") + inner + b"s" + plain("w") + plain(3) + b"s") == {}, "the last one counts"
    state = plain({"_metadata": 1})
    assert load(ORDERED + mapping(entries)[1:] + state + b"b") == kept


class Config:
    """A class of the file's: with a state, items, and a way to be built."""

    def __init__(self) -> None:
        self.rate = 0.5


class Names(dict[str, int]):
    """A mapping of a class of its own."""


class Built:
    """An object of __reduce_ex__ with everything it may have."""

    def __reduce__(self) -> Any:
        return Built, (), {"state": 1}, iter([1, 2]), iter([("a", 1)])


@pytest.mark.parametrize("protocol", range(6))
def test_objects_beside_weights_are_kept_as_names(protocol: int) -> None:
    items = (1, [2.5, None, True], {3, 4}, frozenset({5}), b"6", bytearray(b"7"))
    deep = OrderedDict(a=defaultdict(list, b=items))
    beside = {"config": Config(), "names": Names(x=1), "built": Built(), "deep": deep, "z": 1j, 3: "int"}
    value, is_foreign = torch_pickle.load(pickle.dumps(beside, protocol=protocol))
    assert is_foreign
    assert value["deep"] == {"a": {}}
    module = Config.__module__
    kept = {key: each.name for key, each in value.items() if isinstance(each, Opaque)}
    assert kept["built"] == f"{module}.Built"
    if protocol >= 2:
        assert (kept["config"], kept["names"]) == (f"{module}.Config", f"{module}.Names")
    assert {*value} <= {*map(str, beside)}


def test_names_of_pytorch_are_no_strangers() -> None:
    known = mapping({"w": tensor("k", (2,)), "d": call(name("torch", "device"), plain("cpu"))})
    assert torch_pickle.load(whole(known))[1] is False
    assert torch_pickle.load(whole(call(name("argparse", "Namespace"))))[1] is True


class Attack:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_of_the_file_is_never_made(tmp_path: Path, protocol: int) -> None:
    attack = pickle.dumps({"w": Attack(tmp_path / "made")}, protocol=protocol)
    value, is_foreign = torch_pickle.load(attack)
    assert not (tmp_path / "made").exists()
    assert (value, is_foreign) == ({"w": Opaque(f"{os.name}.mkdir")}, True)
    pickle.loads(attack)
    assert (tmp_path / "made").exists(), "it is an attack"


def test_no_module_is_imported() -> None:
    """Of a GLOBAL, a STACK_GLOBAL, an INST and an OBJ, in a process that has not imported it."""
    contents = [
        name("antigravity", "fly"),
        plain("antigravity") + plain("fly") + b"\x93",
        b"(" + plain(1) + b"iantigravity\nfly\n",
        b"(" + name("antigravity", "fly") + plain(1) + b"o",
    ]
    code = (
        "import sys\nfrom cudnn_convert.read.arrays import torch_pickle\n"
        f"for content in {[whole(content) for content in contents]!r}:\n"
        "    assert torch_pickle.load(content)[0].name == 'antigravity.fly'\n"
        "assert 'antigravity' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x82\x01", "the operation EXT1"),
        (b"\x83\x01\x00", "the operation EXT2"),
        (b"\x84\x01\x00\x00\x00", "the operation EXT4"),
        (b"P0\n", "the operation PERSID"),
        (b"\x97", "the operation NEXT_BUFFER"),
        (plain(3) + b"Q", "a persistent id that is not a storage's"),
        (plain(("storage", "x", "0", "cpu", 1)) + b"Q", "a persistent id that is not a storage's"),
        (
            many(plain("module"), name("a", "b"), plain("f.py"), plain("code")) + b"Q",
            "a persistent id that is not ",
        ),
        (storage("k", -1), "a persistent id that is not a storage's"),
        (
            many(plain("storage"), name("torch", "FloatStorage"), plain("0"), plain("cpu"), b"\x88") + b"Q",
            "a pers",
        ),
        (tensor("k", (-2, 3), (3, 1), count=6), "a tensor of sizes that are none"),
        (tensor("k", (2, 3), (-3, 1), count=6), "a tensor of sizes that are none"),
        (tensor("k", (2, 3), offset=-1), "a tensor of sizes that are none"),
        (tensor("k", (2, 2**63), (1, 1), count=6), "a tensor of sizes that are none"),
        (tensor("k", (2, 3), (1,), count=6), "a tensor of 2 sizes and 1 strides"),
        (tensor("k", (1,) * 33), "a tensor of 33 sizes and 33 strides"),
        (call(name("torch._utils", "_rebuild_tensor"), *view(of=plain(3))), "a tensor without a storage"),
        (call(name("torch._utils", "_rebuild_tensor"), plain(3)), "a damaged pickle"),
        (call(name("torch._utils", "_rebuild_parameter"), plain(3)), "a parameter that is no tensor"),
        (call(name("torch._utils", "_rebuild_tensor_v3"), *view(*[plain(0)] * 3)), "a tensor of no type"),
        (name("os", "system") + plain(3) + b"R", "a call without arguments"),
        (plain(3) + plain(()) + b"R", "a call of what is no name"),
        (call(name("collections", "OrderedDict"), plain(3)), "a mapping of arguments"),
        (call(name("torch", "Size"), *[plain(3)] * 33), "a call with more than 32 arguments"),
        (plain(3) + plain("x") + b"\x93", "a name that is no text"),
        (plain("x" * 999) + plain("xy") + b"\x93", "a name of more than 1000 letters"),
        (b"}(" + plain("x") + b"u", "a key without a value"),
        (b"h\x07", "a damaged pickle"),
        (b"t", "a damaged pickle"),
        (b"", "a damaged pickle"),
        (b"\xff", "a damaged pickle"),
        (b"X\xff\xff\xff\x7fx", "a damaged pickle"),
        (b"\x8d" + b"\xff" * 7 + b"\x7fx", "a damaged pickle"),
        (b"\x96" + b"\xff" * 7 + b"\x7fx", "a damaged pickle"),
        (b"\x8b\xff\xff\xff\x7fx", "a damaged pickle"),
        (b"I" + b"9" * 5000 + b"\n", "a damaged pickle"),
    ],
)
def test_what_no_writer_makes_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(PickleError) as caught:
        load(content)
    assert str(caught.value).startswith(told)


def test_a_pickle_that_is_cut_is_refused() -> None:
    content = whole(mapping({"w": tensor("k", (2, 3))}))
    for size in range(len(content)):
        with pytest.raises(PickleError):
            torch_pickle.load(content[:size])


def test_a_mapping_may_contain_itself() -> None:
    value = load(b"}q\x09" + plain("self") + b"h\x09s" + plain("w") + tensor("k", (2, 3)) + b"s")
    assert value["self"] is value
    assert isinstance(value["w"], Claim)


BOMBS = {
    "doubled tuples": b")" + b"2\x86" * 200_000,
    "nested tuples": b")" + b"\x85" * 400_000,
    "nested mappings": b"}" * 100
    + b"}"
    + b"".join(b"}q\x01" + plain("x") + b"h\x01s" for _ in range(40_000)),
    "marks": b"(" * 400_000,
    "a far place of the memo": b"Nr\xff\xff\xff\xff",
    "long arguments": plain(tuple(range(50_000))) + b"q\x01" + (name("os", "x") + b"h\x01R0") * 20_000,
    "long sizes": (
        plain((1,) * 50_000)
        + b"q\x010"
        + b"".join([call(name("torch", "Size"), b"h\x01") + b"0"] * 20_000)
        + b"N"
    ),
    "long names": plain("x" * 400) + b"q\x01" + b"h\x01\x93h\x01".join([b"h\x01"] * 20_000),
}


@pytest.mark.first("doubled tuples", "a far place of the memo", "long names")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_takes_little_time_and_memory(bomb: str) -> None:
    content, begun = BOMBS[bomb], time.process_time()
    tracemalloc.start()
    with contextlib.suppress(PickleError):
        load(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - begun < 30
    assert peak < 300 << 20


def test_operations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_pickle, "MOST", 50)
    assert load(plain(1) + b"0" + b"N0" * 22 + b"N") is None
    with pytest.raises(PickleError, match="more than 50 operations"):
        load(b"N0" * 30 + b"N")
