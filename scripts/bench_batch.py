"""What a batch costs: its throughput beside one process a model, and the memory of its parent.

    python scripts/bench_batch.py [--rounds 3] [--models 24] [--counts 100 2000] [--engine ray]

Converts samples of `tests/data` by one command a model, one after the other, and by one batch of two jobs;
both in each round, in turns. Then runs batches whose work does nothing, and prints the most memory that the
parent had; with `--engine ray` as tasks of two CPUs of Ray on this machine. Prints seconds, CPU seconds and
ratios, and what else ran on the machine. Linux.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_DATA: Final = ROOT / "tests" / "data"
#: Sound samples of each kind that need no flag, by their paths in `tests/data`.
MODELS: Final = (
    *(f"tf1/1.15.5/{name}/model.ckpt" for name in ("bilstm_tagger", "gru_bi", "lstm_uni_3l", "rnn_tanh_uni")),
    *(f"tf1/1.15.5/{name}/model.ckpt" for name in ("two_layers", "v3_batch_major", "v3_gru_lengths", "cond")),
    *("tf1/1.15.5/frozen_binary/frozen.pb", "tf1/1.15.5/frozen_text/frozen.pbtxt"),
    *("tf1/1.15.5/saved_model_words/model", "tf1/1.15.5/checkpoint_sharded/model.ckpt"),
    *("tf1/1.15.5/resource_vars/model.ckpt", "tf1/1.15.5/keras_lstm/model.ckpt"),
    *(
        f"keras3_exports/keras-3.15.1/{name}/saved_model"
        for name in ("lstm", "gru", "bidirectional", "stacked")
    ),
    *(f"keras/keras-2.2.4/{name}/model.h5" for name in ("sequential_lstm", "bidirectional", "stacked")),
    *(f"keras/keras-2.2.4/{name}/model.h5" for name in ("siamese", "nested", "text_classifier")),
)
#: A batch of sources that say nothing, whose parent tells the most memory that it had, in KiB.
_TRIVIAL: Final = """
import resource, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from cudnn_convert import batch
from cudnn_convert.batch.pool import LocalPool
from cudnn_convert.options import Options
given = batch.Batch(["in"], Path("out"), Options())
plan = batch.plan_batch(given, lambda words: {{}})
began = time.monotonic()
if {engine!r} == "ray":
    from cudnn_convert.batch import ray_cluster
    with ray_cluster.connect(None, 2, work="support.batch_work:work") as engine:
        began = time.monotonic()
        summary = batch.run_plan(given, plan, engine, lambda result: None)
else:
    engine = LocalPool(2, work="support.batch_work:work")
    summary = batch.run_plan(given, plan, engine, lambda result: None)
assert summary.counts == {{"converted": {count}}}, summary
print({count} / (time.monotonic() - began))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def run(*words: object) -> tuple[float, float]:
    """Seconds and CPU seconds of a command, its processes included."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    call = [sys.executable, "-m", "cudnn_convert", *map(str, words), "--quiet"]
    subprocess.run(call, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_throughput(rounds: int, count: int) -> None:
    """Print the seconds of both ways, round by round, and the median of their ratios."""
    models = [_DATA / name for name in MODELS[:count]]
    ratios = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            singles = [run(model, Path(folder, str(k))) for k, model in enumerate(models)]
            batch = run("batch", *models, "--out", Path(folder, "batch"), "--jobs", 2)
        alone, cpu = (sum(values) for values in zip(*singles, strict=True))
        ratios.append(alone / batch[0])
        ways = f"one process a model {alone:.1f} s ({cpu:.1f} s of CPU), "
        ways += f"batch --jobs 2 {batch[0]:.1f} s ({batch[1]:.1f} s of CPU)"
        gain = f"{ratios[-1]:.2f} times the throughput, {cpu / batch[1]:.2f} times less CPU"
        load = f"load {os.getloadavg()[0]:.1f}"
        print(f"round {number + 1}, {len(models)} models: {ways}: {gain}; {load}", flush=True)
    print(f"throughput of --jobs 2: {statistics.median(ratios):.2f} times that of one process a model")


def measure_memory(count: int, engine: str = "local") -> int:
    """Print and return the most memory of the parent of a batch of so many models that do nothing, in KiB."""
    with tempfile.TemporaryDirectory() as folder:
        for k in range(count):
            # As many folders as an archive of experiments has; a text that a reader takes for a frozen graph.
            source = Path(folder, "in", f"run{k}", "net.pbtxt")
            source.parent.mkdir(parents=True)
            source.write_text(f'node {{ name: "x{k}" op: "Placeholder" }}')
        program = _TRIVIAL.format(tests=str(ROOT / "tests"), count=count, engine=engine)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        call = [sys.executable, "-c", program]
        ended = subprocess.run(
            call, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    rate, most = ended.stdout.split()
    pace = f"{float(rate):.0f} models that do nothing a second"
    print(f"parent of {count} models, {engine}: {int(most) / 1024:.1f} MiB at most, {pace}", flush=True)
    return int(most)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_batch", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=int, default=len(MODELS))
    parser.add_argument("--counts", type=int, nargs="*", default=[100, 2000])
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    flags = parser.parse_args()
    if flags.counts:
        first, *others = (measure_memory(count, flags.engine) for count in flags.counts)
        for other in others:
            print(f"the parent has {other / first - 1:+.1%} more memory")
    if flags.rounds:
        measure_throughput(flags.rounds, flags.models)


if __name__ == "__main__":
    main()
