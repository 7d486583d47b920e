"""PyTorch files as sources: which state dict is taken, and what is refused with the way to save it anew."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from support.samples import ROOT
from support.torch_files import call, mapping, name, plain, storage, tensor, write

from cudnn_convert.errors import AmbiguousSourceError, CudnnConvertError, ReadError
from cudnn_convert.model import Array
from cudnn_convert.read import is_model, read

SAMPLES = ROOT / "tests/data/arrays/torch"
CONTAINERS = SAMPLES / "containers"
FILES: dict[str, dict[str, str]] = json.loads((CONTAINERS / "golden.json").read_text())["files"]
REFUSED = {
    "module.pt": "file: expected a state dict, tensors by name, found an object of __main__.Tagger, which is "
    "not built; save its weights alone: torch.save(model.state_dict(), 'weights.pt')",
    "lstm_module.pt": "file: expected a state dict, tensors by name, found an object of "
    "torch.nn.modules.rnn.LSTM, which is not built; save its weights alone: torch.save(model.state_dict(), "
    "'weights.pt')",
    **dict.fromkeys(
        ("legacy.pt", "legacy_tied.pt", "legacy_module.pt"),
        "file: expected a file of PyTorch 1.6 or later, found its format before 1.6; load it, and save its "
        "state dict with torch.save of PyTorch 1.6 or later",
    ),
    "script.pt": "file: expected a state dict, tensors by name, found a program of TorchScript; save its "
    "weights: torch.save(torch.jit.load('script.pt', 'cpu').state_dict(), 'weights.pt')",
    "weight_norm.pt": "weight_hh_l0_g: expected weight_hh_l0 itself, found a part that it is computed from; "
    "before the state dict is saved, call torch.nn.utils.parametrize.remove_parametrizations, or what else "
    "removes weight_norm, spectral_norm, pruning or the dropout of weights",
}
LSTM = {"weight_ih_l0": (8, 3), "weight_hh_l0": (8, 2), "bias_ih_l0": (8,), "bias_hh_l0": (8,)}


def values(path: Path) -> dict[str, Array]:
    """The arrays of a source, by its keys."""
    return {key: each.read() for key, each in read(path).variables.items()}


@pytest.mark.parametrize("case", ["lstm_bi_2l", "gru_2l", "lstm_cell", "lstm_float16"])
def test_a_state_dict_has_the_values_that_numpy_saved_too(case: str) -> None:
    with np.load(SAMPLES / case / "weights.npz") as saved:
        expected = {key: saved[key] for key in saved.files}
    actual = values(SAMPLES / case / "weights.pt")
    assert [*actual] == [*expected]
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value, strict=True)


@pytest.mark.parametrize("case", ["model/weights.pt", "lstm_bfloat16/weights.pth"])
def test_a_state_dict_has_the_bytes_that_safetensors_saved_too(case: str) -> None:
    path = SAMPLES / case
    actual = values(path)
    with safe_open(path.with_suffix(".safetensors"), "numpy") as saved:
        assert {*actual} == {*saved.keys()}
        assert all(actual[key].shape == (*saved.get_slice(key).get_shape(),) for key in saved.keys())  # noqa: SIM118
    stored = values(path.with_suffix(".safetensors"))
    for key, value in stored.items():
        np.testing.assert_array_equal(actual[key], value, strict=True)
    if "bfloat16" in case:
        assert {each.dtype for each in actual.values()} == {np.dtype(ml_dtypes.bfloat16)}
        assert read(path).canonical[0].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("file", FILES)
def test_each_container_holds_the_same_weights(file: str) -> None:
    path, prefix = CONTAINERS / file, FILES[file]["prefix"]
    if file in REFUSED:
        with pytest.raises(ReadError) as caught:
            read(path)
        assert str(caught.value) == f"{path}: {REFUSED[file].replace(repr(file), repr(str(path)))}"
        return
    model = read(path)
    (module,) = model.canonical
    assert (model.kind, module.scope) == ("PyTorch file", f"{prefix}/")
    whole = values(CONTAINERS / "state_dict.pt")
    expected = {key: value for key, value in whole.items() if key.startswith("rnn.")}
    assert len(expected) == 4 * module.layers * module.directions
    for key, value in expected.items():
        own = module.tensors[key.removeprefix("rnn.")].read()
        np.testing.assert_array_equal(own, value, strict=True)
    entry = {"checkpoint.pt": "['model_state_dict']", "lightning.ckpt": "['state_dict']"}.get(file)
    assert model.notes == ((f"weights: those of the state dict {entry} in the file",) if entry else ())


def test_a_whole_module_of_the_old_format_is_refused() -> None:
    path = SAMPLES / "lstm_cell" / "legacy_module.pt"
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: {REFUSED[path.name]}"


def test_content_tells_the_kind_whatever_the_suffix(tmp_path: Path) -> None:
    for suffix in (".bin", ".h5", ".ckpt", ""):
        path = tmp_path / f"weights{suffix}"
        path.write_bytes((CONTAINERS / "state_dict.pt").read_bytes())
        assert read(path).kind == "PyTorch file"
        assert is_model(path)


def state(first: int, shapes: dict[str, tuple[int, ...]] | None = None) -> tuple[bytes, dict[str, bytes]]:
    """A state dict whose storages have numbers from `first` on, and the values of these."""
    rng = np.random.default_rng(first)
    shapes = LSTM if shapes is None else shapes
    numbered = [*enumerate(shapes.items(), first)]
    entries = {key: tensor(str(number), shape) for number, (key, shape) in numbered}
    return mapping(entries), {
        str(number): rng.normal(size=shape).astype(np.float32).tobytes() for number, (_, shape) in numbered
    }


def save(path: Path, entries: dict[str, Any]) -> Path:
    """A file of a mapping, whose values are operations, or pairs of `state`."""
    storages: dict[str, bytes] = {}
    for value in entries.values():
        storages |= value[1] if isinstance(value, tuple) else {}
    content = {key: value[0] if isinstance(value, tuple) else value for key, value in entries.items()}
    return write(path, mapping(content), storages)


def test_a_state_dict_among_others_is_found_by_its_recurrence(tmp_path: Path) -> None:
    head = state(10, {"weight": (5, 2), "bias": (5,)})
    optimizer = state(20)
    entries = {
        "optim_g": optimizer,
        "head": head,
        "net": state(0),
        "step": plain(7),
        "score": state(40, {"x": ()}),
    }
    model = read(save(tmp_path / "a.pt", entries))
    assert model.notes == ("weights: those of the state dict ['net'] in the file",)
    assert [*model.variables] == [*LSTM]
    np.testing.assert_array_equal(
        model.variables["bias_ih_l0"].read(), np.frombuffer(state(0)[1]["2"], np.float32)
    )


def test_a_state_dict_below_several_keys_is_found(tmp_path: Path) -> None:
    content, storages = state(0)
    path = write(
        tmp_path / "a.pt", mapping({"run": mapping({"best": content}), "n": tensor("0", (8, 3))}), storages
    )
    assert read(path).notes == ("weights: those of the state dict ['run']['best'] in the file",)


def test_several_state_dicts_are_not_chosen_from(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", {"model": state(0), "ema": state(10)})
    with pytest.raises(AmbiguousSourceError) as caught:
        read(path)
    load = f"torch.load({str(path)!r}, 'cpu')"
    advice = f"save the one that you want, such as torch.save({load}['ema'], 'weights.pt')"
    found = "weights: expected one state dict with recurrences, found ['model'], ['ema']"
    assert str(caught.value) == f"{path}: {found}; {advice}"
    assert is_model(path)
    foreign = {"args": call(name("argparse", "Namespace")), "model": state(0), "ema": state(10)}
    with pytest.raises(AmbiguousSourceError, match=r"a\.pt', 'cpu', weights_only=False\)\['ema'\]"):
        read(save(path, foreign))
    content, storages = state(0)
    both = b"}q\x64" + plain("model") + content + b"s" + plain("same") + b"h\x65s"
    twice = content.replace(b"}", b"}q\x65", 1)
    both = both.replace(content, twice, 1)
    assert len(read(write(path, both, storages)).canonical) == 1, "two names of one mapping"


def test_the_whole_and_an_entry_are_several_too(tmp_path: Path) -> None:
    whole, storages = state(0)
    inner, more = state(10)
    path = write(tmp_path / "a.pt", whole + plain("ema") + inner + b"s", storages | more)
    with pytest.raises(AmbiguousSourceError, match=r"found the whole, \['ema'\]; save the one"):
        read(path)


def test_weights_without_a_recurrence_are_read_for_what_flags_say(tmp_path: Path) -> None:
    blob = state(0, {"packed": (312,)})
    assert [*read(save(tmp_path / "a.pt", {"weights": blob})).blobs] == ["packed"]
    assert [*read(write(tmp_path / "b.pt", *blob)).blobs] == ["packed"]
    whole = {"w": tensor("0", (312,)), "more": state(1, {"x": (4,), "y": (5,)})}
    path = save(tmp_path / "c.pt", whole)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("net/data/0", bytes(4 * 312))
    assert [*read(path).variables] == ["w"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (mapping({}), "a mapping without tensors"),
        (mapping({"epoch": plain(3)}), "a mapping without tensors"),
        (
            mapping({"epoch": plain(3), "model": call(name("nets", "Tagger"))}),
            "a mapping without tensors: model is an object of nets.Tagger",
        ),
        (b"}q\x09" + plain("self") + b"h\x09s", "a mapping without tensors"),
        (tensor("0", (2,)), "a tensor without a name"),
        (plain([1, 2]), "an object of list, which is not built"),
        (plain(7), "a value of type int"),
        (
            mapping({key: mapping({"w": tensor("0", (2, 2))}) for key in "abcdefg"}),
            "several without a recurrence: ['a'], ['b'], ['c'], ['d'], ['e'] and 2 more",
        ),
    ],
)
def test_what_is_no_state_dict_is_described(tmp_path: Path, content: bytes, found: str) -> None:
    path = write(tmp_path / "a.pt", content, {"0": bytes(16)})
    with pytest.raises(ReadError) as caught:
        read(path)
    advice = "save its weights alone: torch.save(model.state_dict(), 'weights.pt')"
    expected = "file: expected a state dict, tensors by name"
    assert str(caught.value) == f"{path}: {expected}, found {found}; {advice}"


def test_tensors_that_cannot_be_read_are_left_out_but_not_of_a_recurrence(tmp_path: Path) -> None:
    content, storages = state(0)
    sparse = call(name("torch._utils", "_rebuild_sparse_tensor"), plain(0), plain(()))
    quantized = tensor("0", (2,), kind="QInt8Storage")
    more = plain("embedding.weight") + sparse + b"s" + plain("q") + quantized + b"s"
    model = read(write(tmp_path / "a.pt", content + more, storages))
    assert model.notes == ("embedding.weight: a sparse tensor, which is left out, and 1 more",)
    assert [*model.variables] == [*LSTM]
    for wrong, found in ((sparse, "a sparse tensor"), (quantized, "a tensor of qint8")):
        path = write(tmp_path / "b.pt", content + plain("weight_ih_l0") + wrong + b"s", storages)
        with pytest.raises(ReadError) as caught:
            read(path)
        told = (
            f"weight_ih_l0: expected a tensor of numbers, found {found}; save it as a dense tensor of floats"
        )
        assert str(caught.value) == f"{path}: {told}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "net/data.pkl: expected a pickle as torch.save writes it, found a damaged pickle"),
        (b"\x82\x01", "data.pkl: expected a pickle as torch.save writes it, found the operation EXT1"),
        (mapping({"w": plain(3) + b"Q"}), "found a persistent id that is not a storage's"),
        (mapping({"w": tensor("0", (-2,), count=2)}), "found a tensor of sizes that are none"),
        (
            mapping({"w": tensor("0", (3,), (2**61,))}),
            r"w: expected a storage of \d+ bytes or more, found 16",
        ),
        (mapping({"w": tensor("0", (5,))}), "w: expected a storage of 20 bytes or more, found 16"),
        (mapping({"w": tensor("../0", (2,))}), r"net/data/\.\./0: expected a member, found none"),
        (
            mapping({"w": tensor("0", (10**7, 10**7), (0, 0), count=4)}),
            "w: expected a tensor of its storage's 16",
        ),
        (mapping({str(k): mapping({"w": tensor("0", (2,))}) for k in range(1001)}), "at most 1000 mappings"),
    ],
)
def test_claims_of_the_file_are_checked(tmp_path: Path, content: bytes, told: str) -> None:
    path = write(tmp_path / "a.pt", content, {"0": bytes(16)})
    with pytest.raises(ReadError, match=told.removeprefix("net/")) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_the_object_of_an_attack_is_described_and_never_made(tmp_path: Path) -> None:
    made = tmp_path / "made"

    class Attack:
        def __reduce__(self) -> Any:
            return Path.mkdir, (str(made),)

    content, storages = state(0)
    attack = pickle.dumps(made.mkdir, protocol=2)[2:-1]
    run = call(name("os", "mkdir"), plain(str(made)))
    path = write(
        tmp_path / "a.pt", content + plain("extra") + run + b"s" + plain("more") + attack + b"s", storages
    )
    assert [*read(path).variables] == [*LSTM]
    assert not made.exists()
    with pytest.raises(ReadError, match=r"found an object of os\.mkdir, which is not built"):
        read(write(path, run, storages))
    assert not made.exists()
    assert Attack().__reduce__()


def test_deep_mappings_end(tmp_path: Path) -> None:
    content, storages = state(0)
    deep = content
    for _ in range(9):
        deep = mapping({"in": deep})
    with pytest.raises(ReadError, match="a mapping without tensors"):
        read(write(tmp_path / "a.pt", deep, storages))
    bomb = b"".join(b"}" + plain("in") for _ in range(50_000)) + b"}" + b"s" * 50_000
    with pytest.raises(CudnnConvertError, match="a mapping without tensors"):
        read(write(tmp_path / "b.pt", bomb, storages))


def test_a_storage_is_named_by_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt", mapping({"w": storage("0", 2)}), {"0": bytes(16)})
    with pytest.raises(ReadError, match="a mapping without tensors"):
        read(path)
