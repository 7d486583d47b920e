"""Every sample of tests/data in every format that takes it, proven again and again with other seeds.

    python scripts/prove_seeds.py [--seeds 20] [--seconds 3600] [--formats onnx,keras] [--only gru]

Converts each sample once a format, in one process, and verifies those artifacts with one seed after another,
until all seeds or the time is used. No correct conversion may be refused: prints each that is, and for each
seed how many were verified; ends with 1 where one was refused. What a format does not take is counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert import pipeline, planning
from cudnn_convert.errors import CudnnConvertError, first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.quiet import quiet

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # whose lists of samples these are

import keras3_samples  # noqa: E402
import keras_samples  # noqa: E402
import samples  # noqa: E402


@dataclass(frozen=True)
class Converted:
    """An artifact, its plan, and the options that both were made by."""

    name: str
    plan: Plan
    artifact: Path
    options: Options


def sources() -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """`(name, source, options)` of every sample."""
    for one in (*samples.FIXTURES, *samples.GRAPHLESS, *samples.STATEFUL):
        yield f"tf1-{one.name}", one.prefix, one.options if "flags" in one.case else {}
    for sample in keras_samples.KERAS_FIXTURES:
        given = {} if sample.architecture is None else {"architecture": sample.architecture}
        yield f"keras-{sample.name}", sample.path, given
    for export in keras3_samples.EXPORTED:
        yield f"export-{export.name}", export.path, {}


def converted(name: str, source: Path, given: dict[str, Any], form: str, folder: Path) -> Converted | None:
    """The artifact of a sample; None where it is portable already."""
    options = Options.of({**given, "format": form, "verify": False})
    report = pipeline.convert(source, folder / f"{name}-{form}", options)
    if report.out is None:
        return None
    plan = planning.planned(planning.opened(source, options, tag=options.tag), options)
    return Converted(f"{name} {form}", plan, Path(report.out), options)


def refusal(one: Converted, seed: int) -> str | None:
    """Why an artifact is refused with a seed; None where it is proven."""
    try:
        with quiet():
            pipeline.checked(one.plan, one.artifact, replace(one.options, seed=seed))
    except CudnnConvertError as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove every sample of tests/data with many seeds.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--only", default="", help="samples with this in their names")
    given = parser.parse_args()
    end, refused, reasons = time.monotonic() + given.seconds, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        artifacts = []
        for name, source, keywords in sources():
            for form in given.formats.split(","):
                is_taken = not FORMATS[form].layers or name.startswith("keras-")
                if given.only not in name or time.monotonic() > end or not is_taken:
                    continue
                try:
                    made = converted(name, source, keywords, form, Path(folder))
                except CudnnConvertError as error:
                    reasons[form] += 1
                    print(f"not converted: {name} {form}: {first_line(error)[:150]}", flush=True)
                else:
                    artifacts += [made] if made else []
        print(f"{len(artifacts)} artifacts; not taken by their format: {dict(reasons)}", flush=True)
        for seed in range(given.seeds):
            verified = 0
            for one in artifacts:
                if time.monotonic() > end:
                    break
                reason = refusal(one, seed)
                verified += 1
                refused += reason is not None
                if reason:
                    print(f"REFUSED {one.name} seed {seed}: {reason}", flush=True)
            print(f"seed {seed}: {verified} of {len(artifacts)} asked, {refused} refused so far", flush=True)
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
