"""The golden.npz and golden.json beside each array fixture: what a framework answered to random inputs.

A file holds `x`, answers from zero states (`y`, `h`, `c`) and from the states `h0`, `c0` (`ys`, `hs`, `cs`),
and with `lengths` from zero states (`yl`, `hl`, `cl`). All of it is time-major.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy_recurrence import Recurrence

ROOT = Path(__file__).resolve().parents[2]
TIME, BATCH = 7, 3
LENGTHS = np.array([4, 7, 2], np.int32)
# of a float32 framework from the float64 equations
BOUND = {"float32": 2e-6, "float64": 1e-14}

# what a wrong weight has to change: far more than an answer may differ
MOVE, NOTICED = 0.1, 1e-4


def make_folder(framework: str, case: str) -> Path:
    folder = ROOT / "tests" / "data" / "arrays" / framework / case
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def ask(run, recurrence: Recurrence, rng, dtype="float32", *, lengths=True, differs=False):
    """The answers of run(x, h0, c0, lengths), and how far they are from cuDNN's equations.

    One whose equations are others than cuDNN's `differs`; then the answers must be far apart.
    """

    def draw(width, scale, *sizes):
        return rng.uniform(-scale, scale, [*sizes, width]).astype(dtype)

    rows = len(recurrence.pseudo_layers), BATCH
    x = draw(recurrence.inputs, 1, TIME, BATCH)
    h0, c0 = draw(recurrence.width, 0.9, *rows), None
    if recurrence.mode == "lstm":
        c0 = draw(recurrence.units, 0.9, *rows)
    zeros = [None if state is None else np.zeros_like(state) for state in (h0, c0)]
    whole = np.full(BATCH, TIME, np.int32)
    questions = {"": (*zeros, whole), "s": (h0, c0, whole)}
    kept = {"x": x, "h0": h0, "c0": c0}
    if lengths:
        questions["l"] = (*zeros, LENGTHS)
        kept["lengths"] = LENGTHS
    worst = 0.0
    for suffix, question in questions.items():
        answers = run(x, *question)
        for name, ours, theirs in zip("yhc", recurrence.run(x, *question), answers, strict=True):
            if ours is not None:
                assert ours.shape == np.shape(theirs), (ours.shape, np.shape(theirs))
                worst = max(worst, float(np.abs(ours - theirs).max()))
                kept[name + suffix] = np.asarray(theirs, dtype)
    assert (worst > 0.01) if differs else (worst < BOUND[dtype]), worst
    effect = find_least_effect(recurrence, questions["s"], x)
    assert effect > NOTICED, f"a weight has an effect of {effect:.1e}: take another seed"
    return {name: value for name, value in kept.items() if value is not None}, worst


def find_least_effect(recurrence: Recurrence, question, x) -> float:
    """What moving a weight changes in the answers, for the weight that changes them least.

    Without this a relu that never opens would hide its weights.
    """
    right = recurrence.run(x, *question)
    effects = []
    for layer in recurrence.pseudo_layers:
        for name, array in vars(layer).items():
            for place in np.ndindex(np.shape(array) if array is not None else 0):
                moved = np.array(array, np.float64)
                moved[place] += MOVE
                setattr(layer, name, moved)
                wrong = recurrence.run(x, *question)
                setattr(layer, name, array)
                pairs = zip(right, wrong, strict=True)
                effects.append(max(np.abs(one - other).max() for one, other in pairs if one is not None))
    return min(effects)


def describe(recurrence: Recurrence, **more) -> dict:
    return {
        "mode": recurrence.mode,
        "layers": recurrence.layers,
        "directions": recurrence.directions,
        "units": recurrence.units,
        "input_size": recurrence.inputs,
        "projection": recurrence.projection,
        **more,
    }


def write(folder: Path, arrays: dict, description: dict) -> None:
    np.savez_compressed(folder / "golden.npz", **arrays)
    text = json.dumps(description, indent=1) + "\n"
    (folder / "golden.json").write_text(text, encoding="utf-8")
