"""What the cases are fed: ordinary values, large ones, small ones, and rows that are padding alone."""

import numpy as np

from keras_fixtures.weights import seeded

#: `(batch, steps, scale)` of each feed; where a model fixes one of them, it stays.
FEEDS = ((3, 7, 1.0), (2, 5, 30.0), (1, 3, 1e-3), (2, 6, 1.0))
#: Kinds of inputs whose second axis is time.
TIMED = ("steps", "words", "frames")


def values(name, kinds):
    """A list of feeds, each one array per input of `(kind, shape, batch)`."""
    return [
        [
            value("%s/%d/%d" % (name, number, place), kind, shape, fixed or batch, steps, scale, number == 3)
            for place, (kind, shape, fixed) in enumerate(kinds)
        ]
        for number, (batch, steps, scale) in enumerate(FEEDS)
    ]


def value(text, kind, shape, batch, steps, scale, has_empty_row):
    sizes = (batch,) + tuple(steps if size is None else size for size in shape)
    random = seeded(text)
    if kind == "words":
        found = random.randint(1, 9, sizes).astype("int32")
    else:
        found = (scale * random.standard_normal(sizes)).astype("float32")
    if kind not in TIMED:
        return found
    length = sizes[1]
    for row in range(batch):  # padding behind, before and between
        found[row, max(1, length - 2 * row - 1) :] = 0
        if row == 1:
            found[row, 0] = 0
        if row == 2 and length > 3:
            found[row, 1] = 0
    if has_empty_row:
        found[-1] = 0
    return found
