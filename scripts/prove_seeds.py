"""Every sample of tests/data in every format that takes it, proven again and again with other seeds.

    python scripts/prove_seeds.py [--seeds 20] [--seconds 3600] [--formats onnx] [--only gru] [--folder DIR]
                                   [--from N]

Converts each sample once a format, in one process, and verifies those artifacts with one seed after another,
in an order that is drawn, until all seeds or the time is used. No correct conversion may be refused: prints
each that is, and ends with 1 then. What a format does not take is counted. Artifacts in DIR are kept, and
used again by the next run; where time ran out, it says the N that goes on from there.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cudnn_convert import pipeline
from cudnn_convert.artifacts import runners, tflite
from cudnn_convert.context import silence
from cudnn_convert.errors import CudnnConvertError, UnsupportedModelError
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, obstacles
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.text import first_line

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # whose lists of samples these are

from support import keras3_samples, keras_samples, samples  # noqa: E402


@dataclass(frozen=True)
class Converted:
    """An artifact, and the source and the options that it was made by."""

    name: str
    source: Path
    out: Path
    options: Options

    @cached_property
    def plan(self) -> Plan:
        return make_plan(read_source(self.source, self.options, tag=self.options.tag), self.options)


def sources() -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """`(name, source, options)` of every sample."""
    for one in (*samples.FIXTURES, *samples.GRAPHLESS, *samples.STATEFUL):
        yield f"tf1-{one.name}", one.prefix, one.options if "flags" in one.case else {}
    for sample in keras_samples.KERAS_FIXTURES:
        if sample.folder.name == "custom_layer":
            continue  # whose class the user brings
        given = {} if sample.architecture is None else {"architecture": sample.architecture}
        yield f"keras-{sample.name}", sample.path, given
    for export in keras3_samples.EXPORTED:
        yield f"export-{export.name}", export.path, {}


def converted(name: str, source: Path, given: dict[str, Any], form: str, folder: Path) -> Converted | None:
    """The artifact of a sample; None where it is portable already."""
    options = Options.of({**given, "format": form, "verify": False})
    one = Converted(f"{name} {form}", source, folder / f"{name}-{form}", options)
    if reasons := obstacles.undrawable(one.plan):  # which no proof draws either
        raise UnsupportedModelError(one.plan.model.path, reasons)
    if not one.out.exists() and pipeline.convert(source, one.out, options).out is None:
        return None
    # A conversion that is not verified lets kernels of TensorFlow in, which no proof can run.
    if kernels := {name for file in one.out.rglob("*.tflite") for name in tflite.flex_ops(file)}:
        raise UnsupportedModelError(
            "tflite", [f"ops of TensorFlow's own kernels: {', '.join(sorted(kernels))}"]
        )
    return one


def refusal(one: Converted, seed: int) -> str | None:
    """Why an artifact is refused with a seed; None where it is proven."""
    try:
        with silence():
            _, artifact, _ = runners.identify(one.out)
            pipeline.verify_plan(one.plan, artifact, replace(one.options, seed=seed), is_copy=True)
    except CudnnConvertError as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove every sample of tests/data with many seeds.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--only", default="", help="samples with this in their names")
    parser.add_argument("--from", dest="first", type=int, default=0, help="how many pairs earlier runs saw")
    parser.add_argument("--folder", type=Path, help="where artifacts are kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return proven(given, time.monotonic() + given.seconds, given.folder or Path(folder))


def proven(given: argparse.Namespace, end: float, folder: Path) -> int:
    """1 where an artifact was refused, else 0."""
    artifacts = [*_artifacts(given, end, folder)]
    pairs = [(one, seed) for one in artifacts for seed in range(given.seeds)]
    random.Random(0).shuffle(pairs)
    refused, seen, asked = 0, set[str](), 0
    for one, seed in pairs[given.first :]:
        if time.monotonic() > end:
            break
        reason = refusal(one, seed)
        asked, seen = asked + 1, seen | {one.name}
        if reason:
            refused += 1
            print(f"REFUSED {one.name} seed {seed}: {reason}", flush=True)
        if asked % 50 == 0:
            print(f"{given.first + asked} of {len(pairs)} verified, {refused} refused", flush=True)
    counts = f"{len(seen)} of {len(artifacts)} artifacts"
    print(f"{asked} of {len(pairs)} pairs of artifact and seed verified, {counts}: {refused} refused")
    if given.first + asked < len(pairs):
        print(f"of the same artifacts, --from {given.first + asked} goes on")
    return int(refused > 0)


def _artifacts(given: argparse.Namespace, end: float, folder: Path) -> Iterator[Converted]:
    reasons = Counter[str]()
    for name, source, keywords in sources():
        for form in given.formats.split(","):
            is_taken = not FORMATS[form].has_layers or name.startswith("keras-")
            if given.only not in name or time.monotonic() > end or not is_taken:
                continue
            try:
                made = converted(name, source, keywords, form, folder)
            except CudnnConvertError as error:
                reasons[form] += 1
                print(f"not converted: {name} {form}: {first_line(error)[:150]}", flush=True)
            else:
                yield from [made] if made else []
    print(f"not taken by their format: {dict(reasons)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
