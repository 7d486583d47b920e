"""Two hundred models of every kind in one command: some broken, some that crash or exhaust memory."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.batch_work import CONVERT_OR_FAIL, CRASH, EXHAUST
from support.command_line import command, contents
from support.keras3_samples import EXPORTED
from support.keras_samples import KERAS_FIXTURES
from support.ray_nodes import Nodes, begin_cluster
from support.samples import FIXTURES, GRAPHLESS, ROOT

from cudnn_convert.batch import pool, ray_cluster
from cudnn_convert.batch.pool import LocalPool

pytestmark = [pytest.mark.every, pytest.mark.slow("cudnn_convert/batch/")]

SOUND = 183
BROKEN = (
    *("circle.pb", "gzip_bomb.h5", "missing_input.pb", "names_twice.pb", "pickle_config.h5", "units.h5"),
    *("unknown_op.pb", "zip_bomb.keras", "lambda.h5", "external_link.h5"),
)
FAILING = [*BROKEN, *(f"{CRASH}{k}.h5" for k in range(5)), *(f"{EXHAUST}{k}.h5" for k in range(2))]
#: They ask something of the user: sizes, a cut, a class, trust.
ASKING = ("object_lstm_1l", "two_lookups", "custom_layer", "lambda", "pwned")


def sound() -> Iterator[dict[str, str]]:
    """A row a sound sample, with the flags that it needs: each kind of source that there is."""
    for sample in (*FIXTURES, *GRAPHLESS):
        flags = shlex.join([*sample.case.get("flags", []), "--format", sample.form])
        yield {"source": str(sample.prefix), "out": f"tf1/{sample.name}", "flags": flags}
    for export in EXPORTED[::4]:
        name = f"{export.folder.parent.name}-{export.folder.name}"
        yield {"source": str(export.path), "out": f"keras3/{name}"}
    for keras in KERAS_FIXTURES:
        yield {"source": str(keras.path), "out": f"keras/{keras.name}", "flags": "--format onnx"}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred models in a manifest, seventeen of which fail."""
    folder = tmp_path_factory.mktemp("many")
    rows = [row for row in sound() if not any(word in row["out"] for word in ASKING)][:SOUND]
    for name in BROKEN:
        shutil.copy(ROOT / "tests" / "data" / "broken" / name, folder)
    for name in FAILING[len(BROKEN) :]:
        shutil.copy(ROOT / "tests/data/keras/keras-2.2.4/sequential_lstm/model.h5", folder / name)
    rows += [{"source": name, "out": f"failing/{name}"} for name in FAILING]
    assert len(rows) == 200
    path = folder / "models.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def convert(manifest: Path, out: Path, *words: object) -> list[dict[str, Any]]:
    """The lines of a batch of a manifest, by OUT."""
    limit = ("--limit", "memory=6G", "--quiet")
    ended = command("batch", "--manifest", manifest, "--out", out, "--jobs", 2, *limit, *words)
    assert ended.code == 1
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return sorted(lines, key=lambda line: str(line["out"]))


@pytest.fixture(scope="module")
def here(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder and the lines of the batch on this machine, without a cluster."""
    out = tmp_path_factory.mktemp("here") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "LocalPool", partial(LocalPool, work=CONVERT_OR_FAIL))
        return out, convert(manifest, out)


def test_two_hundred_models_of_which_seventeen_fail(here: tuple[Path, list[dict[str, Any]]]) -> None:
    out, lines = here
    failed = {line["out"]: line for line in lines if line["status"] not in ("converted", "portable")}
    assert {*failed} == {f"failing/{name}" for name in FAILING}, failed
    assert len(lines) == 200
    assert all(line["verification"]["passed"] for line in lines if line["status"] == "converted")
    for path, line in failed.items():
        name = path.removeprefix("failing/")
        assert line["reasons"] and line["exit_code"] == 1
        assert line["status"] == ("refused" if name in BROKEN else "crashed")
    assert "SIGABRT" in failed[f"failing/{CRASH}0.h5"]["reasons"][0]
    assert "memory ran out; raise it with" in failed[f"failing/{EXHAUST}0.h5"]["reasons"][0]
    assert not (out / "failing").exists()
    assert not [*out.rglob("*.tmp")]


def test_a_cluster_that_loses_a_node_gives_the_same_lines_and_bytes(
    here: tuple[Path, list[dict[str, Any]]], manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes, one of which is killed in the middle, with what it was at."""
    folder, lines = here
    monkeypatch.setattr(ray_cluster, "connect", partial(ray_cluster.connect, work=CONVERT_OR_FAIL))
    out = tmp_path / "out"
    with begin_cluster() as cluster:
        killer = Thread(target=lose_in_the_middle, args=(cluster, out / "results.jsonl"))
        killer.start()
        there = convert(manifest, out, "--engine", "ray", "--ray-address", cluster.address)
        killer.join()
        assert cluster.is_lost
    for line, other in zip(there, lines, strict=True):
        assert comparable(line) == comparable(other)
    assert contents_without_lines(out) == contents_without_lines(folder)


def lose_in_the_middle(cluster: Nodes, path: Path) -> None:
    """Kill a node once half of the lines are there."""
    while not path.exists() or path.read_bytes().count(b"\n") < 100:
        time.sleep(0.1)
    cluster.lose_node()


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    """A line without what was measured."""
    return {name: value for name, value in line.items() if name not in ("seconds", "peak_mb")}


def contents_without_lines(folder: Path) -> dict[str, bytes | None]:
    return {path: content for path, content in contents(folder).items() if path != "results.jsonl"}
