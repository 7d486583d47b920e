"""Wrong weights at the first step, recombined from the right one's products: as if they were run whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from cudnn_convert.reference import Gates, mutants
from cudnn_convert.reference.mutants import First

BATCH, UNITS = 40, 5
COUNT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def gates(mode: str, *, inputs: int = 4, width: int = UNITS, seed: int = 1, kernel: bool = True) -> Gates:
    rng, count = np.random.default_rng(seed), COUNT[mode]

    def several(*shape: int) -> tuple[np.ndarray, ...]:
        return tuple(rng.uniform(-0.7, 0.7, shape) for _ in range(count))

    return Gates(
        mode,
        several(UNITS, inputs) if kernel else None,
        several(UNITS, width),
        several(UNITS),
        several(UNITS),
        rng.uniform(-0.7, 0.7, (width, UNITS)) if width != UNITS else None,
    )


def first(of: Gates, seed: int = 2, batch: int = BATCH) -> First:
    rng = np.random.default_rng(seed)
    return First(of, *(rng.standard_normal((batch, width)) for width in (of.inputs, of.width, of.units)))


def whole(mode: str, of: Gates) -> dict[str, Gates]:
    """Wrong weights written out, by the names that mutants have."""
    found: dict[str, Gates] = {}
    fields = {"kernel": "kernel", "recurrent kernel": "recurrent_kernel", "bias": "bias",
              "recurrent bias": "recurrent_bias"}  # fmt: skip
    for a, b in combinations(range(len(of.names)), 2):
        order = [*range(len(of.names))]
        order[a], order[b] = b, a
        pair = f"gates {of.names[a]} and {of.names[b]} exchanged"
        moved: dict[str, Any] = {
            field: tuple(getattr(of, field)[k] for k in order)
            for field in fields.values()
            if getattr(of, field) is not None
        }
        found[pair] = replace(of, **moved)
        for title, field in fields.items():
            if "kernel" in title and field in moved:
                found[f"{pair} in the {title}"] = replace(of, **{field: moved[field]})
    for title, field in fields.items():
        values = getattr(of, field)
        if values is None:
            continue
        if "bias" in title:
            for k, name in enumerate(of.names):
                found[f"{title} of gate {name} dropped"] = replace(
                    of, **{field: but(values, k, 0 * values[k])}
                )
            continue
        found[f"{title} zero"] = replace(of, **{field: tuple(0 * one for one in values)})
        square = values[0].shape[0] == values[0].shape[1]
        if square:
            found[f"{title} transposed"] = replace(of, **{field: tuple(one.T for one in values)})
        for k, name in enumerate(of.names if len(of.names) > 1 else ()):
            found[f"{title} of gate {name} zero"] = replace(of, **{field: but(values, k, 0 * values[k])})
            if square:
                found[f"{title} of gate {name} transposed"] = replace(
                    of, **{field: but(values, k, values[k].T)}
                )
    if mode == "gru":
        found["recurrent bias of gate candidate outside its reset"] = replace(
            of,
            bias=but(of.bias, 2, of.bias[2] + of.recurrent_bias[2]),
            recurrent_bias=but(of.recurrent_bias, 2, 0 * of.recurrent_bias[2]),
        )
    return found


def but(values: tuple[np.ndarray, ...], k: int, value: np.ndarray) -> tuple[np.ndarray, ...]:
    return (*values[:k], value, *values[k + 1 :])


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{mode: (mode, {}) for mode in COUNT},
    "square-kernel": ("lstm", {"inputs": UNITS}),
    "skipped-input": ("gru", {"kernel": False}),
    "projected": ("lstm", {"width": 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_mutant_answers_as_its_weights_written_out_do(case: str) -> None:
    mode, given = CASES[case]
    right = first(gates(mode, **given))
    wanted = whole(mode, right.gates)
    found = {name: answer for way, name, answer in mutants.structural([right]) if way == 0}
    assert found.keys() == wanted.keys()
    for name, (h, c) in found.items():
        expected = First(wanted[name], right.x, right.h, right.c).answer()
        np.testing.assert_allclose(h, expected[0], rtol=1e-12, atol=1e-13, err_msg=name)
        np.testing.assert_allclose(c, expected[1], rtol=1e-12, atol=1e-13, err_msg=name)
        assert np.abs(h - right.answer()[0]).max() > 1e-3 or np.abs(c - right.answer()[1]).max() > 1e-3, name


def test_directions_are_exchanged_where_they_differ() -> None:
    one, other = first(gates("gru"), 2), first(gates("gru", seed=9), 3)
    found = {way: answer for way, name, answer in mutants.structural([one, other]) if name.startswith("the")}
    np.testing.assert_array_equal(found[0][0], First(other.gates, one.x, one.h, one.c).answer()[0])
    np.testing.assert_array_equal(found[1][0], First(one.gates, other.x, other.h, other.c).answer()[0])
    same = [first(gates("gru"), 2), first(gates("gru"), 3)]
    assert not [name for _, name, _ in mutants.structural(same) if name.startswith("the")]


def test_what_is_no_other_function_is_no_mutant() -> None:
    of = gates("lstm")
    same = replace(
        of,
        kernel=(of.kernel[0],) * 4,
        recurrent_kernel=(np.eye(UNITS),) * 4,
        bias=(of.bias[0],) * 4,
        recurrent_bias=(0 * of.bias[0],) * 4,
    )
    found = {name for _, name, _ in mutants.structural([first(same)])}
    assert not [
        name for name in found if "exchanged" in name or "transposed" in name or "recurrent bias" in name
    ]
    assert "bias of gate forget dropped" in found
    zero = np.zeros((UNITS, UNITS))
    without = replace(of, kernel=(0 * of.kernel[0],) * 4, recurrent_kernel=(zero, *of.recurrent_kernel[1:]))
    names = {name for _, name, _ in mutants.structural([first(without)])}
    assert "kernel zero" not in names
    assert not [name for name in names if name.startswith("kernel of gate")]
    assert {name for name in names if name.startswith("recurrent kernel of gate") and "zero" in name} == {
        f"recurrent kernel of gate {name} zero" for name in of.names[1:]
    }


@pytest.mark.parametrize("field", ["kernel", "recurrent_kernel", "bias", "recurrent_bias"])
def test_directions_may_differ_in_one_gate_of_one_part(field: str) -> None:
    of = gates("gru")
    other = replace(of, **{field: but(getattr(of, field), 1, 2 * getattr(of, field)[1])})
    ways = [
        way for way, name, _ in mutants.structural([first(of), first(other, 3)]) if name.startswith("the")
    ]
    assert ways == [0, 1]


@pytest.mark.parametrize("case", CASES)
def test_every_single_weight_shows_as_much_as_moving_it_does(case: str) -> None:
    """The least effect, to first order, against moving each weight and running the cell."""
    mode, given = CASES[case]
    right = first(gates(mode, **given), batch=7)
    of, atol, rtol = right.gates, 1e-5, 1e-5
    weights = mutants.WeightEffects(of)
    for part in (slice(0, 3), slice(3, 7)):  # rows may come in parts
        weights.add(First(of, right.x[part], right.h[part], right.c[part]), atol, rtol)
    before, effects = right.answer(), []
    for field in ("kernel", "recurrent_kernel"):
        for k, matrix in enumerate(getattr(of, field) or ()):
            for place in np.ndindex(matrix.shape):
                moved = matrix.copy()
                moved[place] += 1e-3 * np.linalg.norm(matrix) * 1e-3  # where the effect is linear
                wrong = replace(of, **{field: but(getattr(of, field), k, moved)})
                after = First(wrong, right.x, right.h, right.c).answer()
                shares = [
                    np.abs(a - b) / (atol + rtol * np.abs(b)) for a, b in zip(after, before, strict=True)
                ]
                effects.append(max(float(one.max()) for one in shares[: 1 + (mode == "lstm")]) * 1e3)
    assert weights.sampled is None
    assert weights.weakest() == pytest.approx(min(effects), rel=0.02, abs=1e-6)
    middle = float(np.median(effects))
    below = weights.below(middle)
    assert sum(count for _, count, _, _ in below) == pytest.approx(
        sum(one < middle for one in effects), abs=2
    )
    assert sum(every for _, _, every, _ in weights.below(np.inf)) == len(effects)


def test_of_a_large_cell_some_rows_are_looked_at() -> None:
    rng = np.random.default_rng(0)
    of = Gates(
        "rnn_tanh", (rng.standard_normal((3000, 64)),), (rng.standard_normal((3000, 3000)),),
        (np.zeros(3000),), (np.zeros(3000),),
    )  # fmt: skip
    weights = mutants.WeightEffects(of)
    assert weights.sampled is not None
    assert 16 <= weights.sampled < 200
    weights.add(first_of_large(of, rng), 1e-5, 1e-5)
    assert sum(every for _, _, every, _ in weights.below(np.inf)) == weights.sampled * 3064


def empty_cell(mode: str, units: int, inputs: int | None) -> Gates:
    """A cell of any size that takes no memory."""
    count = COUNT[mode]
    kernel = None if inputs is None else (np.broadcast_to(0.0, (units, inputs)),) * count
    vectors = (np.broadcast_to(0.0, (units,)),) * count
    return Gates(mode, kernel, (np.broadcast_to(0.0, (units, units)),) * count, vectors, vectors)


@pytest.mark.parametrize(
    ("mode", "units", "inputs", "sampled"),
    [
        ("rnn_tanh", 3000, 64, 63),
        ("lstm", 2000, None, 24),
        ("gru", 900, 300, 54),
        ("rnn_relu", 63, 3000, None),
        ("rnn_relu", 64, 3000, 63),
        ("rnn_tanh", 1 << 20, 4, 16),
    ],
)
def test_as_many_units_are_sampled_as_a_budget_allows(
    mode: str, units: int, inputs: int | None, sampled: int | None
) -> None:
    """1e8 products of 512 rows, columns and gates, but at least 16 units."""
    assert mutants.WeightEffects(empty_cell(mode, units, inputs)).sampled == sampled


def test_a_weight_at_the_limit_is_not_below_it() -> None:
    weights = mutants.WeightEffects(gates("gru"))
    weights.add(first(gates("gru")), 1e-5, 1e-5)
    assert weights.below(weights.weakest()) == []
    for title, shares in weights._shares():
        ordered = np.sort(shares, axis=None)
        counts = {title: count for title, count, _, _ in weights.below(float(ordered[3]))}
        assert counts[title] == 3 == (shares < ordered[3]).sum()


def first_of_large(of: Gates, rng: np.random.Generator) -> First:
    return First(
        of, rng.standard_normal((2, 64)) * 0.01, rng.standard_normal((2, 3000)) * 0.01, np.zeros((2, 3000))
    )


def test_a_matrix_of_zeros_has_no_weakest_weight() -> None:
    of = gates("rnn_tanh")
    weights = mutants.WeightEffects(replace(of, recurrent_kernel=(np.zeros((UNITS, UNITS)),), kernel=None))
    assert weights.weakest() == np.inf
    with_kernel = replace(of, recurrent_kernel=(np.zeros((UNITS, UNITS)),))
    weights = mutants.WeightEffects(with_kernel)
    weights.add(first(with_kernel), 1e-5, 1e-5)
    assert weights.weakest() > 0
    assert [title for title, *_ in weights.below(np.inf)] == ["kernel of gate hidden"]
