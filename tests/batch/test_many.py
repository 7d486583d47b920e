"""Two hundred models of every kind in one command: some broken, some that crash or exhaust memory."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.batch_work import CONVERT_OR_FAIL, CRASH, EXHAUST
from support.command_line import command
from support.keras3_samples import EXPORTED
from support.keras_samples import KERAS_FIXTURES
from support.samples import FIXTURES, GRAPHLESS, ROOT

from cudnn_convert.batch import pool
from cudnn_convert.batch.pool import LocalPool

SOUND = 183
BROKEN = (
    *("circle.pb", "gzip_bomb.h5", "missing_input.pb", "names_twice.pb", "pickle_config.h5", "units.h5"),
    *("unknown_op.pb", "zip_bomb.keras", "lambda.h5", "external_link.h5"),
)
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


@pytest.mark.every
@pytest.mark.slow("cudnn_convert/batch/")
def test_two_hundred_models_of_which_seventeen_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LocalPool", partial(LocalPool, work=CONVERT_OR_FAIL))
    rows = [row for row in sound() if not any(word in row["out"] for word in ASKING)][:SOUND]
    for name in BROKEN:
        shutil.copy(ROOT / "tests" / "data" / "broken" / name, tmp_path)
    failing = [*BROKEN, *(f"{CRASH}{k}.h5" for k in range(5)), *(f"{EXHAUST}{k}.h5" for k in range(2))]
    for name in failing[len(BROKEN) :]:
        shutil.copy(ROOT / "tests/data/keras/keras-2.2.4/sequential_lstm/model.h5", tmp_path / name)
    path = tmp_path / "models.jsonl"
    rows += [{"source": name, "out": f"failing/{name}"} for name in failing]
    assert len(rows) == 200
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--manifest", path, "--out", tmp_path / "out", "--jobs", 2, "--limit", "memory=6G")
    ended = command("batch", *words, "--quiet")
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    failed = {line["out"]: line for line in lines if line["status"] not in ("converted", "portable")}
    assert {*failed} == {f"failing/{name}" for name in failing}, failed
    assert ended.code == 1 and len(lines) == 200
    assert all(line["verification"]["passed"] for line in lines if line["status"] == "converted")
    for out, line in failed.items():
        name = out.removeprefix("failing/")
        assert line["reasons"] and line["exit_code"] == 1
        assert line["status"] == ("refused" if name in BROKEN else "crashed")
    assert "SIGABRT" in failed[f"failing/{CRASH}0.h5"]["reasons"][0]
    assert "memory ran out; raise it with" in failed[f"failing/{EXHAUST}0.h5"]["reasons"][0]
    assert not (tmp_path / "out" / "failing").exists()
    assert not [*(tmp_path / "out").rglob("*.tmp")]
