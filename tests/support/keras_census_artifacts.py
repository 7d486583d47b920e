"""Artifacts of the census of Keras' layers, judged by what each writer answered."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

import cudnn_convert
from cudnn_convert.errors import CudnnConvertError
from support import artifacts, keras_census, user_processes

FORMATS: Final = ("savedmodel", "onnx", "tflite", "keras", "h5")


#: What keeps the states of stateful layers from call to call; elsewhere they are inputs and outputs.
_KEEPS_STATES: Final = ("savedmodel", "keras", "h5")


def check(form: str, step: int, begin: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yield writer, case and what became of each `step`th case of all writers, from the `begin`th on."""
    listed = [(writer, name) for writer in keras_census.WRITERS for name in keras_census.cases()[writer]]
    for writer, name in listed[begin::step]:
        if form in _KEEPS_STATES or "stateful" not in name:
            with tempfile.TemporaryDirectory() as folder:
                yield writer, name, check_case(writer, name, form, Path(folder))


def check_case(writer: str, name: str, form: str, folder: Path) -> str:
    """What became of one case: "right", or what is refused, lost, or wrong.

    A case is lost where its writer's file does not tell what it computed (keras_census.KNOWN).
    """
    user = user_processes.user(tensorflow=form not in artifacts.WITHOUT_TENSORFLOW)
    return check_answers(writer, name, form, folder, [user])[0]


def check_answers(
    writer: str, name: str, form: str, folder: Path, users: Sequence[user_processes.User]
) -> list[str]:
    """What became of one case where each of `users` runs its artifact, as `check_case` says it."""
    members = keras_census.cases()[writer][name]
    source = folder / "model.h5"
    source.write_bytes(members["model.h5"])
    try:
        report = cudnn_convert.convert(
            source, folder / f"out.{form}", format=form, force_convert=form == "h5"
        )
    except CudnnConvertError as refusal:
        text = f"refused, exit {refusal.exit_code}: {refusal}".replace(str(folder), "")
        return [f"wrong: {text}" if refusal.exit_code > 4 else text] * len(users)
    differences = (_differs(report, form, members, folder, user) for user in users)
    return [_outcome(writer, name, difference) for difference in differences]


def _outcome(writer: str, name: str, difference: str | None) -> str:
    if difference is None:
        return "right"
    return f"{'lost' if keras_census.is_known(writer, name, difference) else 'wrong'}: {difference}"


def _differs(
    report: Any, form: str, members: keras_census.Members, folder: Path, user: user_processes.User
) -> str | None:
    """Where the artifact answers otherwise than the writer, run where cudnn_convert cannot be imported."""
    feeds = [*keras_census.feeds(members)]
    job = artifacts.job(folder / f"out.{form}", form, folder / "feeds.npz", folder / "answers.npz")
    sources = {key: names["source"] for key, names in job["inputs"].items()}
    dtypes = _list_inputs(members) or dict.fromkeys(sources, "")
    keys = [*dtypes]
    assert set(sources) <= set(keys), (keys, sources)
    values = {
        f"feed{number}/{sources[key]}": value.astype(dtypes[key] or value.dtype)
        for number, (inputs, _) in enumerate(feeds)
        for key, value in zip(keys, inputs, strict=True)
        if key in sources
    }
    np.savez(folder / "feeds.npz", **values)
    (error,) = user.ask([job])
    if error:
        return f"does not run: {error.splitlines()[-1]}"
    with np.load(folder / "answers.npz") as answers:
        for number, (_, expected) in enumerate(feeds):
            for key, value in zip(report.outputs, expected, strict=True):
                if difference := keras_census.difference(answers[f"feed{number}/{key}"], value):
                    return f"feed {number}, {key}: {difference}"
    return None


def _list_inputs(members: keras_census.Members) -> dict[str, str]:
    """The dtypes of a model's inputs, in the order of what its writer was fed; none for a Sequential."""
    with h5py.File(io.BytesIO(members["model.h5"])) as file:
        config = json.loads(file.attrs["model_config"])["config"]
    inputs = config["input_layers"] if isinstance(config, dict) and "input_layers" in config else []
    inputs = [inputs] if inputs and isinstance(inputs[0], str) else inputs
    layers = {layer["config"]["name"]: layer["config"] for layer in config["layers"]} if inputs else {}
    return {name: layers[name].get("dtype", "float32") for name, *_ in inputs}
