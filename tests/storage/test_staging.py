"""Copies of what lies in a store: for a while, for a process, for a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.options import Options
from cudnn_convert.storage import staging

ARRAY = Path("memory://bucket/d.npy")


def test_a_file_at_an_address_has_a_local_copy_for_a_while(store: Any, tmp_path: Path) -> None:
    store.pipe_file("/bucket/d.npy", b"bytes")
    with staging.local_copy(ARRAY) as local:
        assert local.read_bytes() == b"bytes" and local.name == "d.npy"
    assert not local.exists()
    with staging.local_copy(tmp_path) as local:
        assert local == tmp_path
    line = "memory://bucket/d.npy: record 1: expected a number, found none"
    with pytest.raises(ReadError, match=f"^{line}$"), staging.local_copy(ARRAY) as local:
        raise ReadError(local, "record 1", expected="a number", found="none")


def test_a_process_keeps_the_copies_that_it_makes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_kept", kept := {})
    store.pipe_file("/bucket/d.npy", b"bytes")
    options = staging.keep_copy(Options(data=ARRAY, seed=3))
    assert options.data.read_bytes() == b"bytes" and options.seed == 3
    store.pipe_file("/bucket/d.npy", b"others")
    assert staging.keep_copy(ARRAY) == options.data == kept[ARRAY]
    assert staging.keep_copy(Path("here")) == Path("here")


def test_a_call_names_the_addresses_of_its_copies(store: Any) -> None:
    store.pipe_file("/bucket/d.npy", b"bytes")
    store.pipe_file("/bucket/m.h5", b"model")

    @staging.with_copies
    def look(source: Path, options: Options) -> tuple[Any, ...]:
        assert source.read_bytes() == b"model" and options.data is not None
        assert options.data.read_bytes() == b"bytes"
        named = staging.name_again(((source, "text"), options))
        assert named == ((Path("memory://bucket/m.h5"), "text"), Options(data=ARRAY))
        return (f"{source}: seen", [str(options.data)])

    assert staging.name_again(ARRAY) == ARRAY, "outside of a call nothing is named anew"
    seen = look(Path("memory://bucket/m.h5"), Options(data=ARRAY))
    assert seen == ("memory://bucket/m.h5: seen", ["memory://bucket/d.npy"])


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index", "keras_metadata.pb"])
def test_a_file_of_a_saved_model_is_staged_with_all_of_it(store: Any, name: str) -> None:
    names = ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001")
    for inner in (*names, "keras_metadata.pb"):
        store.pipe_file(f"/bucket/m/{inner}", inner.encode())
    assert staging.list_model(Path("memory://bucket/m")) and not staging.list_model(Path("memory://bucket/n"))
    with staging.open_copies() as copies:
        local = copies.copy(Path(f"memory://bucket/m/{name}"))
        assert local.read_bytes() == name.encode()
        is_whole = name != "keras_metadata.pb"  # which is a file like any other
        assert all((local.parents[name.count("/")] / inner).is_file() == is_whole for inner in names)
