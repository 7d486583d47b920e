"""Are artifacts that one TensorFlow wrote proven under another, and the other way round?

    python scripts/check_versions.py OTHER_PYTHON [--only SUBSTRING]

OTHER_PYTHON is one with another TensorFlow of the range, such as `.venv-2.16/bin/python`, which `make demo
TENSORFLOW=2.16` makes. Each sample of `tests/data` and `models` is converted in one format, by turns. The
other Python verifies each artifact. Then the roles change. A sample that the writer refuses has no artifact.
Ends with 1 where an artifact is not proven, or the writer fails without a refusal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from artifact_digests import GRAPHS, LAYERS, ROOT, Sample, samples

#: The formats of a sample, which take turns.
_KERAS = (*LAYERS, *GRAPHS, "savedmodel")
_OTHERS = (*GRAPHS, "savedmodel")


def jobs(only: str) -> Iterator[tuple[Sample, str]]:
    """Yield each sample with its format."""
    turns = {True: cycle(_KERAS), False: cycle(_OTHERS)}
    for sample in samples():
        form = next(turns["file" in sample.case])
        if only in f"{sample.name} {form}":
            yield sample, form


def convert(folder: Path, only: str) -> bool:
    """Write artifacts of the samples into `folder`, and list them in `artifacts.json`.

    Returns False if the writer failed without a refusal.
    """
    import cudnn_convert  # takes seconds

    artifacts, is_sound = [], True
    for number, (sample, form) in enumerate(jobs(only)):
        out = folder / f"{number}-{sample.name.replace('/', '-')}"
        try:
            report = cudnn_convert.convert(sample.source, out, format=form, **sample.options)
        except cudnn_convert.CudnnConvertError:
            continue
        except Exception as error:  # noqa: BLE001 - a defect of the writer, which is told
            print(f"{sample.name} as {form}: {type(error).__name__}: {error}", flush=True)
            is_sound = False
            continue
        if report.out is not None:
            artifacts.append([str(sample.source), str(report.out), form, sample.options])
    (folder / "artifacts.json").write_text(json.dumps(artifacts))
    return is_sound


def verify(folder: Path) -> bool:
    """Verify each artifact of `folder`, and print those that are not proven, and how many are.

    Returns True if all are proven.
    """
    import tensorflow as tf

    import cudnn_convert

    listed: list[tuple[str, str, str, dict[str, Any]]] = json.loads((folder / "artifacts.json").read_text())
    proven = 0
    for source, out, form, options in listed:
        try:
            cudnn_convert.verify(source, out, **options)
            proven += 1
        except cudnn_convert.CudnnConvertError as error:
            print(f"{source} as {form}: {error}".partition("\n")[0], flush=True)
    print(f"{proven} of {len(listed)} artifacts are proven under TensorFlow {tf.__version__}", flush=True)
    return proven == len(listed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", help="a Python with another TensorFlow")
    parser.add_argument("--only", default="", help="part of a sample's name, or a format")
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--verify", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.chdir(ROOT)  # sources are named by their paths from there
    if flags.convert:
        return int(not convert(flags.convert, flags.only))
    if flags.verify:
        return int(not verify(flags.verify))
    codes = []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    for writer, judge in ((sys.executable, flags.other), (flags.other, sys.executable)):
        with tempfile.TemporaryDirectory() as folder:
            for python, step in ((writer, "--convert"), (judge, "--verify")):
                command = [python, __file__, flags.other, "--only", flags.only, step, folder]
                done = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
                codes.append(done.returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
