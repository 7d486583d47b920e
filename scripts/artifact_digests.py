"""A manifest of what the tool makes of the samples, by sha256: does a change of the code change any of it?

    python scripts/artifact_digests.py --write FILE [--fast] [--only SUBSTRING] [--jobs N]
    python scripts/artifact_digests.py --check FILE [--fast] [--only SUBSTRING] [--jobs N]

Converts every sample of `tests/data` and `models` to every format, without the proof, and inspects each.
`--check` repeats what FILE names and ends with 1 where something differs or a sample is gone. `--fast` takes
each sample in one format, and of the others a part in which every mode, op and kind of sample occurs. The
whole takes some ten minutes of CPU time, `--fast` some four.

An artifact's digest is of all bytes of all its files, by their paths under OUT; the notes of a conversion
have a digest beside it; a refusal stands in FILE as it is. Of a TensorFlow Lite file with ops of TensorFlow's
own kernels only that it is one has a digest. So that two checkouts give the same, samples are copied to a
temporary folder, which is the working directory: sources and OUT are relative paths. Artifacts contain the
versions of this tool and of the libraries that wrote them, so FILE has those too, and a check with others
ends with 2.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

# Before NumPy and TensorFlow are imported, here and in the processes of --jobs.
for name, value in {
    "OPENBLAS_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}.items():
    os.environ.setdefault(name, value)

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package of this checkout, whichever is installed

import numpy as np  # noqa: E402

#: What each sample is converted to first; of the others `--fast` takes a part.
FIRST: Final = "savedmodel"
GRAPHS: Final = ("onnx", "frozen", "tflite", "checkpoint", "npz", "safetensors")
LAYERS: Final = ("keras", "h5")
INSPECT: Final = "inspect"
#: What artifacts tell the version of, or are written by.
WRITERS: Final = ("tensorflow", "keras", "tf_keras", "tf2onnx", "onnx", "h5py", "numpy", "safetensors")
#: Options that change an artifact; `--fast` takes all of them.
WITH_OPTIONS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("models/crf_tagger", "onnx", {"opset": 13}),
    ("models/crf_tagger", "onnx", {"opset": 18}),
    ("models/crf_tagger", "onnx", {"weights_dtype": "float16"}),
    ("models/crf_tagger", "onnx", {"quantize": "int8", "max_error": 10.0, "data": "ids.npz", "verify": True}),
    ("models/char_lm", "onnx", {"weights_dtype": "float16"}),
    ("models/char_lm", "onnx", {"lowering": "portable"}),
    ("models/gru_speech", "savedmodel", {"lowering": "portable"}),
    ("models/gru_speech", "savedmodel", {"jit": True}),
    ("models/gru_speech", "frozen", {"lowering": "portable"}),
    ("models/gru_speech", "tflite", {"lowering": "portable"}),
    ("models/gru_speech", "checkpoint", {"slots": True}),
    ("models/crf_tagger", "checkpoint", {"cell": "lstm_block"}),
    ("models/crf_tagger", "checkpoint", {"cell": "basic_lstm", "rename": ["cudnn_lstm=rnn"]}),
    ("models/crf_tagger", "savedmodel", {"weights": "raw"}),
    ("models/crf_tagger", "savedmodel", {"weights": "canonical"}),
    ("models/ocr_crnn", "savedmodel", {"jit": True}),
    ("models/ocr_crnn", "checkpoint", {"cell": "lstm_block", "slots": True}),
    ("models/ocr_crnn", "npz", {"gate_order": "lingvo"}),
    ("models/ocr_crnn", "npz", {"forget_bias": 1.0}),
)


@dataclass(frozen=True)
class Sample:
    """A source, by its path under the copied samples, and the flags that its case needs."""

    name: str
    source: Path
    options: dict[str, Any]
    case: dict[str, Any]

    @property
    def kinds(self) -> frozenset[str]:
        """Each recurrence's op, mode and number of directions, in short."""
        keys = ("op", "mode", "directions")
        described = [
            *self.case.get("recurrences", ()),
            *(
                recurrence
                for signature in self.case.get("signatures", {}).values()
                for recurrence in signature.get("recurrences", ())
            ),
        ]
        return frozenset(" ".join(str(one.get(key)) for key in keys) for one in described)

    @property
    def words(self) -> frozenset[str]:
        """What its name tells it is a sample of."""
        return frozenset(self.name.replace("/", "_").split("_"))


@dataclass(frozen=True)
class Job:
    """One conversion or inspection."""

    sample: Sample
    what: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        options = (f"{key}={value}" for key, value in self.more.items())
        return " ".join([self.sample.name, self.what, *options])


def samples() -> Iterator[Sample]:
    """Every sample that a case.json describes."""
    for folder in ("models", "tests/data/tf1", "tests/data/keras", "tests/data/keras3_exports"):
        for path in sorted((ROOT / folder).rglob("case.json")):
            case = json.loads(path.read_text())
            where = path.parent.relative_to(ROOT)
            file = case.get("source") or case.get("file")
            standard = "saved_model" if folder.endswith("exports") else "model.ckpt"
            options = flags(case.get("flags", []))
            if case.get("architecture"):
                options["architecture"] = str(where / case["architecture"])
            name = str(where.relative_to("tests/data") if folder.startswith("tests") else where)
            yield Sample(name, where / (file or standard), options, case)


def flags(words: list[str]) -> dict[str, Any]:
    """A case's flags as keywords."""
    options: dict[str, Any] = {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(flag.removeprefix("--").replace("-", "_"), []).append(value)
    repeated = ("set", "inputs", "outputs")
    return {key: values if key in repeated else values[0] for key, values in options.items()}


def all_jobs() -> Iterator[Job]:
    """Every sample in every format, and those with options."""
    by_name = {sample.name: sample for sample in samples()}
    for sample in by_name.values():
        yield Job(sample, INSPECT)
        formats = (*GRAPHS, *LAYERS) if "file" in sample.case else GRAPHS
        yield from (Job(sample, form) for form in (FIRST, *formats))
    yield from (Job(by_name[name], form, options) for name, form, options in WITH_OPTIONS)


def fast_jobs() -> Iterator[Job]:
    """Each sample inspected and in one format; in the others each kind of recurrence, and each word once."""
    covered: set[tuple[str, str]] = set()
    turns = cycle(GRAPHS)
    for job in all_jobs():
        if job.what in (INSPECT, FIRST) or job.more:
            yield job
    for sample in samples():
        is_keras = "file" in sample.case
        turn = next(turns)
        for form in (*GRAPHS, *LAYERS) if is_keras else GRAPHS:
            features = {(form, kind) for kind in sample.kinds}
            if form == turn or (is_keras and form in LAYERS):
                of = form if form in LAYERS else "any"
                features |= {(of, word) for word in sample.words}
            if not features <= covered:
                covered |= features
                yield Job(sample, form)


def digest(job: Job) -> dict[str, str]:
    """What a job gives: digests, or its refusal. The working directory has the samples."""
    import cudnn_convert  # takes seconds, and NumPy with it

    options = {**job.sample.options, **job.more}
    if job.what == INSPECT:
        try:
            answer = cudnn_convert.inspect(job.sample.source, **options)
        except cudnn_convert.CudnnConvertError as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        return {"answer": hashlib.sha256(answer.to_json().encode()).hexdigest()}
    out = Path("out") / job.name.replace("/", "-").replace(" ", "-")
    try:
        report = cudnn_convert.convert(
            job.sample.source, out, format=job.what, **{"verify": False, **options}
        )
    except cudnn_convert.CudnnConvertError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - a defect, to be told from others by its first line
        print(f"a defect: {job.name}: {type(error).__name__}", file=sys.stderr, flush=True)
        return {"defect": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    notes = hashlib.sha256("\n".join(report.notes).encode()).hexdigest()
    if report.out is None:
        return {"notes": notes}  # portable already
    try:
        return {"files": of_files(out), "notes": notes}
    finally:
        shutil.rmtree(out, ignore_errors=True)


def of_files(out: Path) -> str:
    """One digest of all files under a folder: their paths and bytes."""
    whole = hashlib.sha256()
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(out).as_posix()}\n".encode())
        content = path.read_bytes()
        if path.suffix == ".tflite" and b"Flex" in content:
            # Such ops pass without the proof alone; the converter writes them in another way each time.
            content = b"Flex"
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()


def digests(jobs: list[Job], processes: int) -> dict[str, dict[str, str]]:
    """Each job's digests, by its name."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for part in ("models", "tests/data"):
            shutil.copytree(ROOT / part, Path(folder, part), symlinks=True)
        Path(folder, "out").mkdir()
        ids = np.load(Path(folder, "models/crf_tagger/golden.npz"))["feed0/ids:0"]
        np.savez(Path(folder, "ids.npz"), ids=ids)  # what --quantize, which needs a proof, is measured on
        os.chdir(folder)
        try:
            if processes == 1:
                return collected(jobs, map(digest, jobs))
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                return collected(jobs, pool.map(digest, jobs, chunksize=8))
        finally:
            os.chdir(before)


def collected(jobs: list[Job], results: Iterable[dict[str, str]]) -> dict[str, dict[str, str]]:
    """The results by their jobs' names; says how far the work is."""
    by_name = {}
    for job, result in zip(jobs, results, strict=True):
        by_name[job.name] = result
        if len(by_name) % 100 == 0:
            print(f"{len(by_name)} of {len(jobs)}", file=sys.stderr, flush=True)
    return by_name


def differences(expected: dict[str, dict[str, str]], actual: dict[str, dict[str, str]]) -> Iterator[str]:
    """A line for each job that gives something else, or nothing."""
    for name, before in expected.items():
        if name not in actual:
            yield f"missing: {name}"
            continue
        after = actual[name]
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield f"differs: {name}: {key}: {before.get(key)} before, {after.get(key)} now"


def versions() -> dict[str, str]:
    """Of this tool, and of what artifacts are written with."""
    import cudnn_convert

    found = {name: version(name) for name in WRITERS}
    return {"python": sys.version.split()[0], "cudnn_convert": cudnn_convert.__version__, **found}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Digests of what the tool makes of every sample.")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--write", type=Path, metavar="FILE", help="make the manifest")
    task.add_argument("--check", type=Path, metavar="FILE", help="compare with a manifest")
    parser.add_argument("--fast", action="store_true", help="a representative part")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="jobs with this in their names")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    given = parser.parse_args(words)
    jobs = [job for job in (fast_jobs() if given.fast else all_jobs()) if given.only in job.name]
    if given.write:
        manifest = {"versions": versions(), "digests": digests(jobs, given.jobs)}
        given.write.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        print(f"{len(jobs)} digests in {given.write}")
        return 0
    return checked(given, jobs)


def checked(given: argparse.Namespace, jobs: list[Job]) -> int:
    """The exit code of a check."""
    manifest = json.loads(given.check.read_text())
    if manifest["versions"] != (now := versions()):
        print(f"{given.check}: expected versions {manifest['versions']}, found {now}; write it anew")
        return 2
    names = {job.name for job in jobs} if given.fast else manifest["digests"].keys()
    expected = {
        name: result for name, result in manifest["digests"].items() if name in names and given.only in name
    }
    if not expected:
        print(f"{given.check}: expected jobs with {given.only!r} in their names, found none")
        return 2
    actual = digests([job for job in jobs if job.name in expected], given.jobs)
    lines = [*differences(expected, actual)]
    print(*lines, f"{len(expected)} compared, {len(lines)} differences", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
