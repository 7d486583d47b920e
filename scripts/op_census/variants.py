"""The table of variants: an op, its inputs, its attributes."""

from collections import OrderedDict

import numpy as np

from op_census import values

#: Every variant by its name, `Op/what tells it apart`.
VARIANTS = OrderedDict()


class Fed:
    """An input that is fed: its array for each kind of values; `shape` where sizes are known."""

    def __init__(self, shape=None, **arrays):
        self.arrays = arrays
        first = next(iter(arrays.values()))
        self.dtype = "string" if first.dtype == object else first.dtype.name
        self.shape = [None] * first.ndim if shape is None else shape


class Variant:
    """A graph to be: `build(tf, op, tensors)` gives the outputs, `op(NAME, **arguments)` adds an op."""

    def __init__(self, op, inputs, build):
        self.op = op
        self.inputs = inputs
        self.build = build

    def feeds(self):
        """The arrays of each kind; an input without such a kind gets its ordinary ones."""
        kinds = list(OrderedDict.fromkeys(kind for fed in self.inputs for kind in fed.arrays))
        return [
            (kind, [fed.arrays.get(kind, fed.arrays["ordinary"]) for fed in self.inputs]) for kind in kinds
        ]


def add(op, name, inputs=(), outputs=None, **attributes):
    """Register one op; of `inputs`, pairs of a name and a value, those of `Fed` are fed, arrays are constants.

    A list of such values is the one input of a list. Of the op's outputs the first `outputs` are read, or all.
    """
    inputs = list(inputs.items()) if isinstance(inputs, dict) else list(inputs)
    fed = [each for _, value in inputs for each in (value if isinstance(value, list) else [value])]
    fed = [each for each in fed if isinstance(each, Fed)]

    def build(tf, make, tensors):
        left = iter(tensors)

        def one(value):
            return next(left) if isinstance(value, Fed) else tf.constant(value)

        arguments = {
            key: [one(each) for each in value] if isinstance(value, list) else one(value)
            for key, value in inputs
        }
        return make(op, **dict(arguments, **attributes))[:outputs]

    _register(op, name, fed, build)


def together(op, name, inputs, build):
    """Register ops as a program writes them: `build(tf, *tensors)` gives an output, or a list."""

    def whole(tf, _, tensors):
        outputs = build(tf, *tensors)
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    _register(op, name, list(inputs), whole)


def _register(op, name, fed, build):
    name = "%s/%s" % (op, name)
    assert name not in VARIANTS, name
    VARIANTS[name] = Variant(op, fed, build)


def one_of(dtype, **more):
    """A matrix of a dtype, with its odd values, and without rows."""
    kinds = {
        "ordinary": values.ordinary(dtype, 3, 4),
        "odd": values.odd(dtype)[None],
        "empty": values.ordinary(dtype, 0, 4),
    }
    if dtype in values.FLOATS:
        kinds["nonfinite"] = values.nonfinite(dtype)[None]
        kinds["denormal"] = values.denormal(dtype)[None]
    return Fed(**dict(kinds, **more))


def pair_of(dtype, second=None, third=None):
    """Two inputs that meet in a grid: each odd value of one with each of the other."""
    first, second = values.odd(dtype), values.odd(dtype) if second is None else second
    x = {
        "ordinary": values.ordinary(dtype, 3, 4),
        "odd": first[:, None],
        "empty": values.ordinary(dtype, 0, 4),
    }
    low, high = (1, 9) if third == "positive" else (-9, 10)
    y = {
        "ordinary": values.ordinary(dtype, 3, 4, seed=1, low=low, high=high),
        "odd": second[None],
        "empty": values.ordinary(dtype, 1, 4, seed=1, low=low, high=high),
    }
    if dtype in values.FLOATS:
        x["nonfinite"] = values.nonfinite(dtype)[:, None]
        y["nonfinite"] = values.nonfinite(dtype)[None]
        x["denormal"] = values.denormal(dtype)[:, None]
        y["denormal"] = values.denormal(dtype)[None]
    return Fed(**x), Fed(**y)


def row_of(dtype, *shape, **more):
    """An input of a shape, ordinary and filled with odd values."""
    kinds = {"ordinary": values.ordinary(dtype, *shape), "odd": values.filled(values.odd(dtype), *shape)}
    if dtype in values.FLOATS:
        kinds["nonfinite"] = values.filled(values.nonfinite(dtype), *shape)
    return Fed(**dict(kinds, **more))


def i32(*items):
    """A constant of int32."""
    return np.array(items, np.int32)


def scalar(value, dtype="int32"):
    """A constant of rank 0."""
    return np.array(value, dtype)
