"""The recorded Keras samples: genuine files with CuDNN layers, by the Keras that wrote them.

`tests/data/keras/<writer>/<case>/` holds the file, `golden.npz` (keys `feed<run>/<input or output name>`,
answers of that Keras' own CPU layers) and `case.json`. `scripts/make_keras_fixtures.py` makes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.samples import ROOT

KERAS = ROOT / "tests" / "data" / "keras"


@dataclass(frozen=True)
class KerasFixture:
    """A file that a Keras wrote, with that Keras' own CPU answers."""

    folder: Path

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def case(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "case.json").read_text()))

    @property
    def path(self) -> Path:
        """The whole model, or the weights alone."""
        return self.folder / str(self.case["file"])

    @property
    def architecture(self) -> Path | None:
        """model.json beside a file of weights alone."""
        name = self.case["architecture"]
        return None if name is None else self.folder / str(name)

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """Per run inputs and outputs by Keras's names. A stateful model's runs are calls in a row."""
        with np.load(self.folder / "golden.npz") as data:
            count = len({key.partition("/")[0] for key in data.files})
            return [
                {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"feed{n}/")}
                for n in range(count)
            ]


KERAS_FIXTURES = tuple(KerasFixture(path.parent) for path in sorted(KERAS.glob("*/*/case.json")))
assert KERAS_FIXTURES, f"no samples under {KERAS}"


def keras_fixture(name: str) -> KerasFixture:
    """The sample `<writer>-<case>`, e.g. `keras-2.2.4-sequential_lstm`."""
    (found,) = [sample for sample in KERAS_FIXTURES if sample.name == name]
    return found
