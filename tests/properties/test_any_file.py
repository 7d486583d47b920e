"""Whatever a file has become, it is read, or refused in a line for each reason: a few inputs of the fuzzer.

`make fuzz` tries tens of thousands, in processes that a crash or a hang may end.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties.budget import examples
from support.samples import ROOT
from support.tiers import some

READERS = """
checkpoint V2 | checkpoint V2, .meta | checkpoint V1 | checkpoint V1, .meta | checkpoint partitioned |
checkpoint of any shapes | checkpoint folder | frozen graph | frozen graph, text | SavedModel 1 |
SavedModel 1, text | SavedModel 2 | HDF5 model | HDF5 weights | archive of tf_keras | archive of Keras 3 |
architecture | recording | data | arrays, npy | arrays, npz | arrays, safetensors | PyTorch file |
PyTorch file, refused | Flax file | MXNet parameters | MXNet parameters, symbol | CNTK
"""
NAMES = [name.strip() for name in READERS.split("|")]
#: What TensorFlow parses takes a quarter of a second each time.
EXAMPLES = [f"data of {kind}" for kind in ("records", "records, gzip", "CSV", "NumPy")]
EXAMPLES += ["data of Parquet"] if importlib.util.find_spec("pyarrow") else []


@pytest.fixture(scope="module")
def fuzz() -> Iterator[tuple[ModuleType, ModuleType, ModuleType, dict[str, list[Any]]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts" / "fuzz"))
        import inputs
        import looks
        import origins
        import trial

        yield inputs, looks, trial, inputs.by_reader(origins.recorded())


def test_no_reader_is_left_out(fuzz: Any) -> None:
    assert sorted(fuzz[3]) == sorted([*NAMES, *EXAMPLES])


@pytest.mark.parametrize("name", [*NAMES, *some([EXAMPLES[0]], *EXAMPLES[1:])])
def test_it_is_read_or_refused(name: str, fuzz: Any) -> None:
    inputs, looks, trial, readers = fuzz

    @examples(12)
    @given(st.integers(0, 2**32))
    def holds(seed: int) -> None:
        made = inputs.made(seed, 0, {name: readers[name]})
        with tempfile.TemporaryDirectory() as folder:
            trial.write(made, Path(folder))
            looks.looked(made.origin.look, Path(folder, made.origin.entry))

    holds()
