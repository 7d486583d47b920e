"""Keras files: code in configs, links in HDF5, members in zips, and claims of sizes."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

UNITS, INPUTS = 2, 3
WEIGHTS = {
    "kernel:0": np.linspace(-0.5, 0.5, INPUTS * 4 * UNITS, dtype=np.float32).reshape(INPUTS, -1),
    "recurrent_kernel:0": np.linspace(-0.4, 0.6, UNITS * 4 * UNITS, dtype=np.float32).reshape(UNITS, -1),
    "bias:0": np.linspace(-0.3, 0.2, 8 * UNITS, dtype=np.float32),
}
#: `def f(x): open("canary.txt", "w").write("seen"); return x`, as Python 3.11's marshal writes it.
CODE = (
    "4wEAAAAAAAAAAAAAAAQAAAADAAAA80wAAACXAHQBAAAAAAAAAAAAAGQBZAKmAgAAqwIAAAAAAAAAAKABAAAAAAAAAAAAAAAA"
    "AAAAAAAAAABkA6YBAACrAQAAAAAAAAAAAQB8AFMAKQROegpjYW5hcnkudHh02gF32gRzZWVuKQLaBG9wZW7aBXdyaXRlKQHa"
    "AXhzAQAAACD6AzxsPtoBZnIIAAAAAQAAAHMlAAAAgADdBAiIHJBj0QQa1AQa1wQg0gQgoBbRBCjUBCjQBCjYCwyASPMAAAAA"
)
#: `open("canary.txt", "w")`, once it is unpickled.
PICKLE = base64.b64decode("gAJjaW8Kb3BlbgpxAFgKAAAAY2FuYXJ5LnR4dHEBWAEAAAB3cQKGcQNScQQu")
_DATE = (1980, 1, 1, 0, 0, 0)
_CONFIG, _METADATA, _MEMBER = "config.json", "metadata.json", "model.weights.h5"


def entry(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **config}}


def lstm(**more: Any) -> dict[str, Any]:
    shape = [None, None, INPUTS]
    return entry(
        "CuDNNLSTM", "lstm", **{"units": UNITS, "batch_input_shape": shape, "return_sequences": True} | more
    )


def model(*layers: Any) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "model", "layers": list(layers)}}


def lambda_layer() -> dict[str, Any]:
    return entry("Lambda", "code", function=[CODE, None, None], function_type="lambda", arguments={})


@contextmanager
def file(where: Any, config: Any = None) -> Iterator[Any]:
    """A Keras HDF5 file, open, with the weights of `lstm` in it."""
    with h5py.File(where, "w") as made:
        made.attrs["model_config"] = json.dumps(config or model(lstm()))
        made.attrs["keras_version"], made.attrs["backend"] = "2.2.4", "tensorflow"
        held = made.create_group("model_weights")
        held.attrs["layer_names"] = np.array([b"lstm"])
        group = held.create_group("lstm")
        group.attrs["weight_names"] = np.array([name.encode() for name in WEIGHTS])
        for name, value in WEIGHTS.items():
            group.create_dataset(name, data=value, track_times=False)
        yield made


def with_config(config: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with file(path, config):
            pass

    return make


def lambda_h5(path: Path) -> None:
    """A Lambda whose marshalled code writes a file."""
    with_config(model(lstm(), lambda_layer()))(path)


def pickle_config(path: Path) -> None:
    """A config that is a pickle, as opaque bytes."""
    with file(path) as made:
        made.attrs["model_config"] = np.void(PICKLE)


def pickle_weights(path: Path) -> None:
    """Weights that are a pickle, as opaque bytes."""
    with file(path) as made:
        replace(made, lambda group: group.create_dataset("kernel:0", data=np.void(PICKLE), track_times=False))


def objects(path: Path) -> None:
    """Weights that are strings of any length, which NumPy holds as objects."""
    with file(path) as made:
        kind = h5py.string_dtype()
        shape = WEIGHTS["kernel:0"].shape
        values = np.full(shape, "1.5", dtype=object)
        replace(
            made, lambda group: group.create_dataset("kernel:0", data=values, dtype=kind, track_times=False)
        )


def replace(made: Any, put: Callable[[Any], Any]) -> None:
    """The kernel becomes what `put` puts into its group."""
    group = made["model_weights/lstm"]
    del group["kernel:0"]
    put(group)


def external_link(path: Path) -> None:
    """Weights by a link into another file."""
    with file(path) as made:
        replace(
            made, lambda group: group.__setitem__("kernel:0", h5py.ExternalLink("/etc/passwd", "/kernel"))
        )


def external_storage(path: Path) -> None:
    """Weights whose bytes are those of /etc/passwd."""
    with file(path) as made:
        where = [("/etc/passwd", 0, 96)]
        told = {
            "shape": WEIGHTS["kernel:0"].shape,
            "dtype": np.float32,
            "external": where,
            "track_times": False,
        }
        replace(made, lambda group: group.create_dataset("kernel:0", **told))


def virtual(path: Path) -> None:
    """Weights that are a view of another file."""
    space = h5py.h5s.create_simple(WEIGHTS["kernel:0"].shape)
    told = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    told.set_virtual(space, b"/etc/passwd", b"kernel", space)
    told.set_obj_track_times(False)
    kind = h5py.h5t.py_create(np.dtype(np.float32), logical=True)
    with file(path) as made:
        replace(made, lambda group: h5py.h5d.create(group.id, b"kernel:0", kind, space, told))


def soft_circle(path: Path) -> None:
    """Weights by a link that leads to itself."""
    with file(path) as made:
        replace(
            made, lambda group: group.__setitem__("kernel:0", h5py.SoftLink("/model_weights/lstm/kernel:0"))
        )


def hard_circle(path: Path) -> None:
    """A group that holds itself."""
    with file(path) as made:
        made["model_weights/lstm/inside"] = made["model_weights"]
        made["again"] = made["/"]


def enormous(path: Path) -> None:
    """A kernel of 2^60 numbers, of which none is stored."""
    with file(path) as made:
        told = {"shape": (1 << 30, 1 << 30), "dtype": np.float32, "chunks": (64, 64), "track_times": False}
        replace(made, lambda group: group.create_dataset("kernel:0", **told))


def gzip_bomb(path: Path) -> None:
    """A kernel of 512 MiB of zeros in a few KiB."""
    with file(path) as made:
        shape, chunk = (1 << 13, 1 << 14), (1 << 12, 1 << 14)
        told = {"dtype": np.float32, "chunks": chunk, "compression": "gzip", "compression_opts": 9}
        group = made["model_weights/lstm"]
        del group["kernel:0"]
        held = group.create_dataset("kernel:0", shape=shape, track_times=False, **told)
        for start in range(0, shape[0], chunk[0]):
            held[start : start + chunk[0]] = np.zeros(chunk, np.float32)


def deep_h5(path: Path) -> None:
    """A config of 30,000 lists in each other."""
    with file(path) as made:
        made.attrs["model_config"] = deep(30_000)


def deep(levels: int) -> str:
    return '{"class_name": "Sequential", "config": ' + "[" * levels + "]" * levels + "}"


def units(path: Path) -> None:
    """A layer of 10^12 units, with the weights of 2."""
    with_config(model(lstm(units=10**12)))(path)


def dense_units(path: Path) -> None:
    """A layer of 10^12 units behind the recurrence, without weights."""
    with_config(model(lstm(), entry("Dense", "dense", units=10**12)))(path)


def many_layers(path: Path) -> None:
    """A config that nests 300 layers."""
    inner: Any = lstm()
    for number in range(300):
        inner = entry("TimeDistributed", f"t{number}", layer=inner)
    with_config(model(inner))(path)


def import_h5(path: Path) -> None:
    """A layer of the class Popen of the module subprocess."""
    bad = {"module": "subprocess", "class_name": "Popen", "config": {"args": ["touch", "canary.txt"]}}
    with_config(model(lstm(), {**bad, "registered_name": "Popen"}))(path)


def activation_h5(path: Path) -> None:
    """A layer whose activation is os.system."""
    bad = {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}
    with_config(model(lstm(), entry("Dense", "dense", units=2, activation=bad)))(path)


def op_layer(path: Path) -> None:
    """A layer that calls a function of TensorFlow by name: one that writes files."""
    call = entry("TFOpLambda", "call", function="io.write_file")
    with_config(model(lstm(), call))(path)


Members = Mapping[str, bytes]


def archive(path: Path, members: Members, *, link: str | None = None, again: Members | None = None) -> None:
    with zipfile.ZipFile(path, "w") as made:
        for name, held in [*members.items(), *(again or {}).items()]:
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            if name == link:
                info.create_system, info.external_attr = 3, 0o120777 << 16
            made.writestr(info, held)


def members(config: Any = None) -> dict[str, bytes]:
    """A `.keras` archive's, of tf_keras 2.15."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as made:
        held = made.create_group("layers/cu_dnnlstm/vars")
        for place, value in enumerate(WEIGHTS.values()):
            held.create_dataset(str(place), data=value, track_times=False)
    metadata = {"keras_version": "2.15.0", "date_saved": "1980-01-01@00:00:00"}
    text = json.dumps(config or model(lstm())).encode()
    return {_METADATA: json.dumps(metadata).encode(), _CONFIG: text, _MEMBER: stream.getvalue()}


def lambda_keras(path: Path) -> None:
    """A Lambda whose marshalled code writes a file, in an archive."""
    archive(path, members(model(lstm(), lambda_layer())))


def climbing(path: Path) -> None:
    """Members beside the model's own that would lie outside of the folder they are unpacked to."""
    names = ("../canary.txt", "/tmp/canary.txt", "..\\canary.txt", "assets/../../canary.txt")
    archive(path, {**members(), **dict.fromkeys(names, b"seen")})


def only_climbing(path: Path) -> None:
    """The weights under a name that leads out of the folder they are unpacked to."""
    found = members()
    archive(path, {f"../{name}" if name == _MEMBER else name: held for name, held in found.items()})


def member_link(path: Path) -> None:
    """The weights as a symbolic link to /etc/passwd."""
    archive(path, {**members(), _MEMBER: b"/etc/passwd"}, link=_MEMBER)


def zip_bomb(path: Path) -> None:
    """A config of 300 MiB of spaces."""
    archive(path, {**members(), _CONFIG: b" " * (300 << 20)})


def member_twice(path: Path) -> None:
    """Two configs: whoever reads the first, and whoever reads the last, read different models."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = json.dumps(model(lstm(units=7))).encode()
        archive(path, members(), again={_CONFIG: other})


def import_keras(path: Path) -> None:
    """An archive of Keras 3 with a layer of the class Popen of the module subprocess."""
    bad = {"module": "subprocess", "class_name": "Popen", "config": {"args": ["touch", "canary.txt"]}}
    config = {
        **model(lstm(), {**bad, "registered_name": "Popen"}),
        "module": "keras",
        "registered_name": None,
    }
    found = members(config)
    archive(path, {**found, _METADATA: found[_METADATA].replace(b"2.15.0", b"3.5.0")})


def deep_keras(path: Path) -> None:
    """An archive with a config of 100,000 lists in each other."""
    archive(path, {**members(), _CONFIG: deep(100_000).encode()})


MAKERS: dict[str, Callable[[Path], None]] = {
    **{"lambda.h5": lambda_h5, "pickle_config.h5": pickle_config, "pickle_weights.h5": pickle_weights},
    **{"objects.h5": objects, "external_link.h5": external_link, "external_storage.h5": external_storage},
    **{"virtual.h5": virtual, "soft_circle.h5": soft_circle, "hard_circle.h5": hard_circle},
    **{"enormous.h5": enormous, "gzip_bomb.h5": gzip_bomb, "deep.h5": deep_h5, "units.h5": units},
    **{"dense_units.h5": dense_units, "many_layers.h5": many_layers, "import.h5": import_h5},
    **{"activation.h5": activation_h5, "op_layer.h5": op_layer, "lambda.keras": lambda_keras},
    **{"climbing.keras": climbing, "only_climbing.keras": only_climbing, "member_link.keras": member_link},
    **{"zip_bomb.keras": zip_bomb, "member_twice.keras": member_twice, "import.keras": import_keras},
    **{"deep.keras": deep_keras},
}
