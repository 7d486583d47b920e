"""Compares answers with those that a fixture's CPU cells gave."""
import numpy as np

#: Of both an absolute and a relative difference, by the dtype of the recurrence.
BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0 ** -10}


def worst(answers, golden, bound):
    """The largest difference of all answers, by the names of `golden`. Raises AssertionError beyond the bound."""
    assert answers
    differences = [0.0]
    for name, answer in answers.items():
        expected = golden[name]
        assert answer.shape == expected.shape, (name, answer.shape, expected.shape)
        if expected.dtype.kind in "iubSO":
            np.testing.assert_array_equal(answer.astype(expected.dtype), expected, err_msg=name)
        else:
            gap = np.abs(answer.astype(np.float64) - expected.astype(np.float64))
            assert np.all(gap <= bound + bound * np.abs(expected)), (name, gap.max())
            differences.append(gap.max())
    return float("%.1e" % max(differences))


def keywords(flags):
    """The flags of a case as the library's keywords."""
    pairs = [(flag[2:], value) for flag, value in zip(flags[::2], flags[1::2])]
    return {name: [value] if name in ("set", "inputs", "outputs") else value for name, value in pairs}
