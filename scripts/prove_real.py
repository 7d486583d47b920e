"""Real models that stay outside the repository: proven with many seeds, and refused with other weights.

    python scripts/prove_real.py DIR [--seeds 20] [--formats savedmodel,onnx,keras,h5]

Takes every HDF5 model below DIR that has a configuration. Each is converted once a format and verified with
each seed; then copies of the artifact get two gates exchanged, a recurrent kernel zeroed, transposed, and one
weight moved by 0.001 of its norm, and each must be refused. Prints a line for each; ends with 1 where one is
not as it should be, and with 0, said loudly, where DIR has no model.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

import cudnn_convert

Array = np.ndarray
Change = Callable[[Array, int], Array]
_SUFFIX: Final = {"onnx": ".onnx", "keras": ".keras", "h5": ".h5", "savedmodel": ""}


def exchanged(value: Array, units: int) -> Array:
    """The first two gates of a recurrent kernel, whose columns they are."""
    return np.concatenate([value[:, units : 2 * units], value[:, :units], value[:, 2 * units :]], axis=1)


def zeroed(value: Array, _: int) -> Array:
    """No recurrence at all."""
    return np.zeros_like(value)


def transposed(value: Array, units: int) -> Array:
    """The matrix of each gate the other way."""
    return np.concatenate([part.T for part in np.split(value, value.shape[1] // units, axis=1)], axis=1)


def nudged(value: Array, units: int) -> Array:
    """One weight is off by a thousandth of its gate's Frobenius norm."""
    made = value.copy()
    made[1, 2] += 1e-3 * np.linalg.norm(value[:, :units])
    return made


CHANGES: Final[tuple[Change, ...]] = (exchanged, zeroed, transposed, nudged)


def change_onnx(path: Path, change: Change) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path))
    node = [node for node in model.graph.node if node.op_type in ("LSTM", "GRU", "RNN")][-1]
    tensor = next(one for one in model.graph.initializer if one.name == node.input[2])
    value = numpy_helper.to_array(tensor)  # [directions, gates*units, units]
    made = np.stack([change(one.T, one.shape[1]).T for one in value])
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(made), tensor.name))
    onnx.save(model, str(path))


def change_hdf5(file: Any, change: Change) -> None:
    """The first recurrent kernel `[units, gates*units]` of a file, whatever it is called."""
    found: list[Any] = []

    def look(_: str, one: Any) -> None:
        is_matrix = isinstance(one, h5py.Dataset) and one.ndim == 2
        if is_matrix and one.shape[1] in (3 * one.shape[0], 4 * one.shape[0]):
            found.append(one)

    file.visititems(look)
    found[0][...] = change(found[0][...], found[0].shape[0])


def change_h5(path: Path, change: Change) -> None:
    with h5py.File(path, "r+") as file:
        change_hdf5(file["model_weights"], change)


def change_keras(path: Path, change: Change) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    held = io.BytesIO(members["model.weights.h5"])
    with h5py.File(held, "r+") as file:
        change_hdf5(file, change)
    members["model.weights.h5"] = held.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def change_saved_model(path: Path, change: Change) -> None:
    """The last variable that holds recurrent columns, square gates side by side, possibly below others."""
    import tensorflow as tf

    prefix = str(path / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    values = {name: reader.get_tensor(name) for name in sorted(shapes)}
    square = [name for name in values if "layer_" in name and _units(shapes[name])]
    name = sorted(square)[-1]
    units = _units(shapes[name])
    rows = values[name][-units:]
    values[name] = np.concatenate([values[name][:-units], change(rows, units)])
    for file in Path(prefix).parent.glob("variables.data*"):
        file.unlink()
    tensors = [tf.constant(values[name], dtypes[name]) for name in values]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=tensors
    )


def _units(shape: list[int]) -> int:
    """The units of a kernel of two to four gates with at least as many rows, 0 for any other variable."""
    if len(shape) != 2:
        return 0
    return next((shape[1] // n for n in (4, 3, 2) if shape[1] % n == 0 and shape[0] >= shape[1] // n), 0)


CHANGERS: Final = {
    "onnx": change_onnx,
    "keras": change_keras,
    "h5": change_h5,
    "savedmodel": change_saved_model,
}


def models(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".h5", ".hdf5"):
            with h5py.File(path) as file:
                if "model_config" in file.attrs:
                    yield path


def proven(source: Path, form: str, seeds: int, folder: Path) -> Iterator[tuple[str, bool, str]]:
    """`(what was tried, whether it went as it should, what was seen)`."""
    out = folder / f"out{_SUFFIX[form]}"
    begun = time.perf_counter()
    proof = cudnn_convert.convert(source, out, format=form).verification
    assert proof is not None
    passed = sum(_verified(source, out, seed) is None for seed in range(seeds))
    worst = max(one.needed for one in proof.recurrences)
    told = f"{proof.end_to_end} end to end, recurrences at {worst:.2f}, {passed} of {seeds} seeds"
    yield "converted", passed == seeds, f"{told}, {time.perf_counter() - begun:.1f} s"
    for change in CHANGES:
        other = folder / f"other{_SUFFIX[form]}"
        (shutil.copytree if out.is_dir() else shutil.copy)(out, other)
        CHANGERS[form](other, change)
        refused = _verified(source, other, None)
        yield change.__name__, refused is not None, (refused or "equal").splitlines()[-1][-110:]
        shutil.rmtree(other) if other.is_dir() else other.unlink()


def _verified(source: Path, artifact: Path, seed: int | None) -> str | None:
    """None where an artifact is equal, else why it is not."""
    try:
        cudnn_convert.verify(source, artifact, seed=seed)
    except cudnn_convert.VerificationError as error:
        return str(error)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove real models, and that other weights are refused.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--formats", default="savedmodel,onnx,keras,h5")
    given = parser.parse_args()
    found = [*models(given.folder)] if given.folder.is_dir() else []
    if not found:
        print(f"SKIPPED: no real model below {given.folder}", file=sys.stderr)
        return 0
    wrong = 0
    for source in found:
        for form in given.formats.split(","):
            with tempfile.TemporaryDirectory() as folder:
                for what, is_right, told in proven(source, form, given.seeds, Path(folder)):
                    wrong += not is_right
                    print(
                        f"{'ok   ' if is_right else 'WRONG'} {source.name} {form} {what}: {told}", flush=True
                    )
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
