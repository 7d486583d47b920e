"""What feeding a model costs: the orders of an input pipeline over records of packed bits.

| name | a pipeline is |
|---|---|
| `parse_then_batch` | one `parse_single_example` a record, then batches |
| `parallel_parse_then_batch` | the same with `num_parallel_calls` |
| `parse_batch_decode` | batches are parsed at once, then bits are unpacked record by record, then batched |
| `batch_then_parse` | batches first, then one `parse_example` and one unpacking for each |
| `parallel_batch_then_parse` | the same with `num_parallel_calls` |

A record has 1,552 bits in a string of bytes, and a label; `large` records have a string of 64 KiB that is not
unpacked. All pipelines are in one process and run in turns over the same file, each to its end. With
`prefetch` a consumer waits as long for each batch as making it takes, as one does that hands it to an
accelerator.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

BITS, LARGE = 1552, 1 << 16
BATCHES: Final = (512, 32, 1)
#: Records of a run by batch: a run of single records takes as long as one of many batches.
RECORDS: Final = {512: 8192, 32: 4096, 1: 1024}
PIPELINES: Final = (
    "parse_then_batch",
    "parallel_parse_then_batch",
    "parse_batch_decode",
    "batch_then_parse",
    "parallel_batch_then_parse",
)


def measured(*, threads: int, rounds: int, quick: bool) -> dict[str, Any]:
    """Seconds of each pipeline, round by round: by batch, of large records, with and without prefetch."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    share = 16 if quick else 1
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        small = write(Path(folder, "small.tfrecord"), max(RECORDS.values()) // share, BITS // 8)
        large = write(Path(folder, "large.tfrecord"), 1024 // share, LARGE)
        batches = {
            str(batch): _compared(
                {name: _run(name, small, RECORDS[batch] // share, batch) for name in PIPELINES}, rounds
            )
            for batch in BATCHES
        }
        names = ("parse_then_batch", "batch_then_parse")
        whole = 1024 // share
        of_large = _compared({name: _run(name, large, whole, 32, bits=False) for name in names}, rounds)
        prefetch = _prefetch(small, RECORDS[512] // share, rounds)
    records = {str(batch): RECORDS[batch] // share for batch in BATCHES}
    return {
        "bits": BITS, "records": records, "batches": batches, "large": of_large, "prefetch": prefetch,
    }  # fmt: skip


def write(path: Path, count: int, size: int) -> Path:
    """Write records of random bytes and a label."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(7)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(count):
            features = {
                "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[rng.bytes(size)])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 7])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def pipeline(name: str, path: Path, batch: int, *, bits: bool = True) -> Any:
    """A dataset of batches `(x, label)`."""
    import tensorflow as tf

    spec = {"x": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    powers = tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)

    def unpack(strings: Any) -> Any:
        values = tf.io.decode_raw(strings, tf.uint8)
        if not bits:
            return values
        apart = values[..., None] // powers % 2
        return tf.reshape(apart, tf.concat([tf.shape(strings), [BITS]], 0))

    def parse_one(record: Any) -> Any:
        example = tf.io.parse_single_example(record, spec)
        return unpack(example["x"]), example["label"]

    def parse_many(records: Any) -> Any:
        examples = tf.io.parse_example(records, spec)
        return unpack(examples["x"]), examples["label"]

    def parse_strings(records: Any) -> Any:
        examples = tf.io.parse_example(records, spec)
        return examples["x"], examples["label"]

    calls = tf.data.AUTOTUNE if name.startswith("parallel") else None
    # What TensorFlow 2 does by itself is left out: it is what is measured, and TensorFlow 1 does nothing.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    files = tf.data.TFRecordDataset(str(path)).with_options(options)
    if name.endswith("parse_then_batch"):
        return files.map(parse_one, num_parallel_calls=calls).batch(batch)
    if name == "parse_batch_decode":
        strings = files.batch(batch).map(parse_strings).unbatch()
        return strings.map(lambda text, label: (unpack(text), label)).batch(batch)
    return files.batch(batch).map(parse_many, num_parallel_calls=calls)


def _run(name: str, path: Path, count: int, batch: int, *, bits: bool = True) -> Callable[[], None]:
    dataset = pipeline(name, path, batch, bits=bits).take(count // batch)

    def run() -> None:
        for _ in dataset:
            pass

    return run


def _compared(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, round by round; the first run of each sets up."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(round(time.perf_counter() - start, 5))
    return seconds


def _prefetch(path: Path, count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds with a consumer that waits as long as a batch takes, without and with `prefetch`."""
    import tensorflow as tf

    dataset = pipeline("batch_then_parse", path, 512).take(count // 512)
    batches = sum(1 for _ in dataset)
    begin = time.perf_counter()
    for _ in dataset:
        pass
    wait = (time.perf_counter() - begin) / max(batches, 1)

    def consume(batched: Any) -> Callable[[], None]:
        def run() -> None:
            for _ in batched:
                time.sleep(wait)

        return run

    return _compared(
        {"without": consume(dataset), "last": consume(dataset.prefetch(tf.data.AUTOTUNE))}, rounds
    )
