"""Mutations of HDF5 files by their objects: attributes, datasets, links."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py
import numpy as np
import trees

_MOST = 3
_HUGE = 2**40


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A file with one to three changes. Raises what h5py raises for changes that it does not make."""
    held = io.BytesIO(data)
    with h5py.File(held, "r+") as file:
        for _ in range(rng.randint(1, _MOST)):
            rng.choice(_CHANGES)(rng, file)
    return held.getvalue()


def _objects(file: Any) -> list[Any]:
    found: list[Any] = [file]
    file.visititems(lambda _, one: found.append(one))
    return found


def _attribute(rng: random.Random, file: Any) -> None:
    """The value of one attribute; text that is JSON as a tree."""
    held = [(one, name) for one in _objects(file) for name in one.attrs]
    one, name = rng.choice(held)
    value = one.attrs[name]
    kind = rng.randrange(7)
    if kind <= 2 and name.endswith("_config"):
        text = value if isinstance(value, bytes) else str(value).encode()
        value = np.bytes_(trees.mutated(rng, text).replace(b"\0", b""))[:60_000]
    elif kind == 3 and np.size(value):
        value = np.ravel(value)[: rng.randint(0, np.size(value))]
    elif kind == 4 and np.size(value):
        value = rng.choice([*np.ravel(np.asarray(value, "S"))])
        value = np.array([value] * rng.choice((1, 2, 500)))
    elif kind == 5:
        other, chosen = rng.choice(held)
        value = other.attrs[chosen]
    else:
        value = _value(rng)
    if rng.random() < 0.1:
        del one.attrs[name]
    else:
        one.attrs[name] = value


def _value(rng: random.Random) -> Any:
    """What no writer of Keras leaves there."""
    deep = np.bytes_(json.dumps({"class_name": "Sequential", "config": [{"class_name": 1}]}))
    texts = ["", "a", "a\nb", "/", "..", "../..", "{}", "[]", "nul\u00e9", b"\xff\xfe", deep]
    values = [0, -1, 2**40, 1.5, float("nan"), True, np.zeros((0,), "S1"), np.zeros((2, 2)), h5py.Empty("S1")]
    lists = [np.array([b"a", b""]), np.array([1, 2]), np.array([b"../x"]), np.array([b"/"] * 50)]
    values.append(np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]))
    return rng.choice([*texts, *values, *lists])


def _dataset(rng: random.Random, file: Any) -> None:
    """Another shape, type or way of storing in the place of a dataset."""
    found = [one for one in _objects(file) if isinstance(one, h5py.Dataset)]
    if not found:
        return
    old = rng.choice(found)
    name, shape, parent = old.name, old.shape, old.parent
    create = partial(parent.create_dataset, track_times=False)  # else the time of day stands in the file
    del file[name]
    kind = rng.randrange(8)
    if kind == 0:
        made = tuple(rng.choice((0, 1, 3, size, size + 1, 2 * size)) for size in shape)
        create(name, data=np.ones(made, np.float32))
    elif kind == 1:
        dtype = rng.choice(("f2", "f8", ">f4", "i4", "u1", "S3", "c8", "?", "V4", [("a", "f4"), ("b", "i2")]))
        create(name, data=np.zeros(shape, dtype))
    elif kind == 2:
        create(name, shape=(_HUGE, *shape), chunks=(1024, *shape), dtype="f4")
    elif kind == 3:
        create(name, shape=(_HUGE,), chunks=(64,), dtype="f4", compression="gzip")
    elif kind == 4:
        create(name, shape=(4, 20), dtype="f4", external=[("other.bin", 0, 320)])
    elif kind == 5:
        create(name, data=h5py.Empty("f4"))
    elif kind == 6:
        create(name, data=np.array(["a", "b"], object), dtype=h5py.string_dtype())
    else:
        parent.create_group(name)


def _link(rng: random.Random, file: Any) -> None:
    """A name that leads to another object, out of the file, around in a circle, or nowhere."""
    held = [one for one in _objects(file) if one.name != "/"]
    if not held:
        return
    one, other = rng.choice(held), rng.choice([*_objects(file)])
    name, target = one.name, other.name
    kind = rng.randrange(6)
    if kind == 0:
        del file[name]
    elif kind == 1:
        file.move(name, name + rng.choice(("_1", "x", "/x")))
    elif kind == 2:
        del file[name]
        file[name] = h5py.ExternalLink("other.h5", "/x")
    elif kind == 3:
        del file[name]
        file[name] = h5py.SoftLink(target)
    elif kind == 4 and target in file:
        del file[name]
        if target in file:
            file[name] = file[target]
    else:
        file[f"{name.rpartition('/')[0]}/again"] = other


_CHANGES: tuple[Callable[[random.Random, Any], None], ...] = (_attribute, _attribute, _dataset, _link)
