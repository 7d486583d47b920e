"""Makes one fixture: the export as a machine with a GPU writes it, and the answers of one without."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from . import gpu, reproducible, stand_in
from .case import Case
from .fixture import Answers, Fixture
from .weights import set_weights


def record(keras: Any, writer: str, build: Callable[[Any], Case], fixtures: Path) -> None:
    """The fixture of one case by Keras 3. Run it in a fresh process: names count on."""
    folder = fresh(fixtures / writer / build.__name__)
    with in_empty_folder():
        keras.utils.set_random_seed(0)
        with gpu.pretended():
            case = prepared(keras, build)
            export(case, folder / "saved_model")
        if case.archive:
            case.model.save(folder / "gpu_archive.keras")
            reproducible.archive(folder / "gpu_archive.keras")
        fed = feeds(build.__name__, case)
        answers = answered(prepared(keras, build), fed)
        if case.called:
            with gpu.pretended():
                stand_in.check(
                    prepared(keras, build), fed, answers, keras.config.dtype_policy().compute_dtype
                )
    Fixture(folder, writer, case, fed, answers).write(build)


def prepared(keras: Any, build: Callable[[Any], Case]) -> Case:
    keras.backend.clear_session()
    case = build(keras)
    if case.called:
        set_weights(build.__name__, case.model)
    return case


def answered(plain: Case, fed: Answers) -> Answers:
    """What the same model says that was built and exported without a GPU."""
    if plain.answer is not None:
        return {name: [plain.answer(name, feed) for feed in rows] for name, rows in fed.items()}
    folder = Path("plain").resolve()
    export(plain, folder)
    return {name: run(folder, name, rows) for name, rows in fed.items()}


def export(case: Case, folder: Path) -> None:
    """Without the summary that most versions print, some whatever they are told."""
    with reproducible.variables_in_order(), contextlib.redirect_stdout(io.StringIO()):
        if case.save is None:
            case.model.export(str(folder))
        else:
            case.save(folder)


def feeds(name: str, case: Case) -> Answers:
    return {
        key: [
            {end: kind.value(f"{name}/{key}/{number}/{end}") for end, kind in feed.items()}
            for number, feed in enumerate(signature.feeds)
        ]
        for key, signature in case.signatures.items()
    }


def run(saved: Path, signature: str, fed: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """The answers to all feeds in order, from a SavedModel loaded anew."""
    model = tf.saved_model.load(str(saved))
    answers = []
    for feed in fed:
        found = model.signatures[signature](**{name: tf.constant(value) for name, value in feed.items()})
        answers.append({name: stored(value) for name, value in sorted(found.items())})
    return answers


def stored(value: Any) -> np.ndarray:
    return np.asarray(tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def in_empty_folder() -> Iterator[None]:
    """Relative paths inside, such as a vocabulary's, are the same in every run."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            yield
        finally:
            os.chdir(before)
