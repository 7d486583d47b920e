"""Writes docs/ops.md: each op that may run, and what the census of ops found of it in each format.

PYTHON scripts/write_ops.py; `make docs` does it too. A test fails where the page is not what this writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, LISTED = ROOT / "docs" / "ops.md", ROOT / "cudnn_convert" / "graph" / "pure_ops.txt"
DATA = ROOT / "tests" / "data"
NAMES = {"savedmodel": "SavedModel", "frozen": "frozen graph", "onnx": "ONNX", "tflite": "TensorFlow Lite"}
HEAD = """# Ops

A graph of each op stands beside an LSTM and is converted with the proof. Its artifact is fed what TensorFlow
1.15.5 was: ordinary values, signs, ties, the ends of integer types, integers and doubles that float32 lacks,
axes without values, NaN, infinities, denormal numbers. {variants} variants of {ops} ops tell types and
attributes apart.

- **equal**: the artifact answers as TensorFlow 1.15 did. Integers, text and booleans are the same.
- **refused**: the conversion ends with a line that names the op; nothing is written.
- **differs**: the answers differ on the values that are named; [below](#what-differs) is why.
- **fails**: the artifact stops with an error of its runtime on such values.
- **crash**: the conversion, or the runtime's process, ends; to be mended.

A number says of how many variants it holds. TensorFlow Lite is asked of variants of float32, int32 and
booleans. An op without figures may run, and is not in the census: TensorFlow 1.15 lacks it, or it needs
variables, files or functions. `tests/data/op_verdicts.tsv` has each variant; `make census-ops` finds them
anew, and `scripts/write_ops.py` writes this page.
"""


def page() -> str:
    """All of docs/ops.md."""
    verdicts = _read_verdicts()
    count = sum(len(variants) for variants in verdicts.values())
    parts = [HEAD.format(variants=f"{count:,}", ops=len(verdicts))]
    for heading, ops in _sections():
        parts.append(f"\n## {heading}\n\n| op | {' | '.join(NAMES.values())} |\n|---|---|---|---|---|\n")
        parts += [f"| `{op}` | {' | '.join(_cells(verdicts.get(op, {})))} |\n" for op in ops]
    parts.append("\n## What differs\n\n| variants | formats | values | why |\n|---|---|---|---|\n")
    parts += [f"| {' | '.join(row)} |\n" for row in _reasons()]
    return "".join(parts)


def _read_verdicts() -> dict[str, dict[str, dict[str, str]]]:
    """The verdicts by op, by variant, by format."""
    head, *rows = [line.split("\t") for line in _lines("op_verdicts.tsv")]
    verdicts: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for name, *columns in rows:
        verdicts[name.partition("/")[0]][name] = dict(zip(head[1:], columns, strict=True))
    return verdicts


def _lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def _sections() -> Iterator[tuple[str, list[str]]]:
    """The headings of the list of ops, and the ops below each."""
    for block in LISTED.read_text(encoding="utf-8").split("\n\n")[1:]:
        heading, _, names = block.partition("\n")
        yield heading.strip("# ").partition(":")[0].partition(",")[0], sorted(names.split())


def _cells(variants: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What each format makes of an op's variants."""
    for form in NAMES:
        counts: dict[str, int] = defaultdict(int)
        for verdicts in variants.values():
            if verdicts[form] != "-":
                counts[verdicts[form]] += 1
        alike = len(counts) == 1
        yield ", ".join(f"{what}" if alike else f"{what}: {count}" for what, count in sorted(counts.items()))


def _reasons() -> Iterator[list[str]]:
    for names, formats, kinds, why in (line.split("\t") for line in _lines("op_reasons.tsv")[1:]):
        listed = ", ".join(f"`{name}`" for name in names.split("|"))
        yield [listed, ", ".join(formats.split()), ", ".join(kinds.split()), why]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
