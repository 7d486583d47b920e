"""Batches that are killed with SIGKILL at random moments, and go on until all is done."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from jobs import MODELS, digest

#: Models of the bundled samples, and the flags of each: without their graphs they take a tenth of a second.
_FLAGS = ("--format npz", "--format safetensors", "--format onnx", "--format npz --no-verify")
_WHOLE = ("crf_tagger", "gru_speech")
RESULTS = "results.jsonl"


def make_manifest(folder: Path) -> Path:
    """Ten rows: weights without their graph to four formats each, and two whole models."""
    rows = []
    for name in _WHOLE:
        for whole in (False, True):
            (folder / f"{name} {whole}").mkdir(parents=True)
            for file in (MODELS / name).glob("model.ckpt.*"):
                if whole or file.suffix != ".meta":
                    shutil.copy(file, folder / f"{name} {whole}")
        rows += [
            {"source": f"{name} False/model.ckpt", "out": f"{name}/{k}", "flags": flags}
            for k, flags in enumerate(_FLAGS)
        ]
        rows.append({"source": f"{name} True/model.ckpt", "out": f"{name}/whole", "flags": "--no-verify"})
    path = folder / "models.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def start(manifest: Path, out: Path) -> subprocess.Popen[bytes]:
    """A batch, begun, in a process group of its own."""
    words = ["batch", "--manifest", str(manifest), "--out", str(out), "--jobs", "2", "--retry", "failed"]
    call = [sys.executable, "-m", "cudnn_convert", *words]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(call, stdout=nowhere, stderr=nowhere, start_new_session=True)


def stands(out: Path) -> str:
    """The digest of all artifacts, without the lines: these have seconds in them."""
    with suppress(FileNotFoundError):
        (out / RESULTS).rename(out.with_name(RESULTS))
    whole = digest(out)
    with suppress(FileNotFoundError):
        out.with_name(RESULTS).rename(out / RESULTS)
    return whole


def killed(folder: Path, times: int, chance: random.Random) -> Counter[str]:
    """What the artifacts of a batch were after it was killed once or twice and run again.

    The parent is killed at a random moment, now and then after one of its workers.
    """
    manifest, out = make_manifest(folder / "batch"), folder / "batch" / "out"
    before = digest(folder / "batch")
    began = time.monotonic()
    if start(manifest, out).wait():
        raise SystemExit("the undisturbed batch failed")
    usual, wanted = time.monotonic() - began, stands(out)
    found: Counter[str] = Counter()
    while found["killed"] < times:
        shutil.rmtree(out)
        for _ in range(chance.choice((1, 1, 2, 4))):
            moment = usual * (chance.uniform(0, 1) if chance.random() < 0.5 else chance.uniform(0.6, 1))
            code = _kill(start(manifest, out), moment, chance)
            found["killed" if code else "ended before"] += 1
        found["went on with some done"] += (out / RESULTS).exists() and (out / RESULTS).stat().st_size > 0
        found["failed afterwards"] += start(manifest, out).wait() != 0
        found["whole" if stands(out) == wanted else "torn"] += 1
        lines = (out / RESULTS).read_text().splitlines()
        outs = [json.loads(line)["out"] for line in lines]
        found["failed afterwards"] += sorted(outs) != sorted({*outs}) or len(outs) != 10
        found["left for good"] += sum(1 for _ in out.rglob("*.tmp"))
    shutil.rmtree(out)
    found["sources changed"] = int(digest(folder / "batch") != before)
    return found


def _kill(running: subprocess.Popen[bytes], moment: float, chance: random.Random) -> int:
    """Kill a batch or one of its workers at a moment; the exit code of the batch."""
    time.sleep(moment)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    workers: list[int] = []
    with suppress(OSError):
        workers = [int(word) for word in children.read_text().split()]
    victim = chance.choice([running.pid, running.pid, *workers])
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim != running.pid:
        time.sleep(chance.uniform(0, 1))
        running.kill()
    code = running.wait()
    time.sleep(0.1)  # the workers hear of its end a moment later
    return code
