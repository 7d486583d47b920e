"""TensorFlow Lite files of fixed sizes, made table by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from support.tflite_tables import table

_NONE: Final = -1
_OPS: Final = schema.BuiltinOperator
_TYPES: Final = {
    np.dtype(name.lower()): number
    for name, number in vars(schema.TensorType).items()
    if name in ("FLOAT32", "INT8", "INT16", "INT32", "BOOL")
}
#: Batch, steps, features and units of `lstm`.
SIZES: Final = (2, 5, 3, 4)


class _File:
    """A file with one subgraph, to which tensors and operators are added."""

    def __init__(self) -> None:
        self.buffers = [table(schema.BufferT)]
        self.graph = table(schema.SubGraphT, tensors=[], operators=[], name=b"main")
        self.codes: list[Any] = []

    def add(self, name: str, shape: Sequence[int], dtype: Any, value: Any = None, **fields: Any) -> int:
        """Adds a tensor, constant where it has a value; gives its number."""
        buffer = 0
        if value is not None:
            buffer = len(self.buffers)
            content = np.ascontiguousarray(value, dtype)
            self.buffers.append(table(schema.BufferT, data=[*content.tobytes()]))
        made = table(
            schema.TensorT, name=name.encode(), shape=[*shape], type=_TYPES[np.dtype(dtype)], buffer=buffer,
            **fields,
        )  # fmt: skip
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, value: Any) -> int:
        return self.add(f"constant_{len(self.buffers)}", value.shape, value.dtype, value)

    def call(self, op: str, inputs: Sequence[int], output: int, options: Any = None) -> None:
        code = getattr(_OPS, op)
        old = min(code, 127)  # the field that files of older versions have
        self.codes.append(table(schema.OperatorCodeT, builtinCode=code, deprecatedBuiltinCode=old, version=1))
        made = table(schema.OperatorT, opcodeIndex=len(self.codes) - 1, inputs=[*inputs], outputs=[output])
        if options is not None:
            made.builtinOptions = options
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.graph.operators.append(made)

    def pack(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> bytes:
        """Gives the bytes; the signature's order is that of the maps, the graph's is the reverse."""
        self.graph.inputs, self.graph.outputs = [*inputs.values()][::-1], [*outputs.values()][::-1]
        ends = (
            [table(schema.TensorMapT, name=name.encode(), tensorIndex=k) for name, k in side.items()]
            for side in (inputs, outputs)
        )
        takes, gives = ends
        signature = table(
            schema.SignatureDefT,
            signatureKey=b"serving_default",
            inputs=takes,
            outputs=gives,
            subgraphIndex=0,
        )
        model = table(
            schema.ModelT, version=3, operatorCodes=self.codes, subgraphs=[self.graph], buffers=self.buffers,
            signatureDefs=[signature],
        )  # fmt: skip
        return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def lstm() -> bytes:
    """A fused LSTM `y` of `x`, `shift` added to it; and `n`, an int32 input plus 7.

    Its state stays from call to call. Sizes, weights and biases all differ.
    """
    rng, file = np.random.default_rng(20), _File()
    batch, steps, features, units = SIZES
    x = file.add("in/x", (batch, steps, features), np.float32)
    shift = file.add("in/shift", (units,), np.float32)
    ids = file.add("in/ids", (3,), np.int32)

    def draw(*shape: int) -> list[int]:
        return [file.constant(rng.normal(size=shape).astype(np.float32)) for _ in range(4)]

    kernels, recurrent, biases = draw(units, features), draw(units, units), draw(units)
    states = [
        file.add(name, (batch, units), np.float32, isVariable=True) for name in ("states/h", "states/c")
    ]
    inputs = [x, *kernels, *recurrent, *[_NONE] * 3, *biases, _NONE, _NONE, *states, *[_NONE] * 4]
    hidden = file.add("hidden", (batch, steps, units), np.float32)
    tanh = schema.ActivationFunctionType.TANH
    options = table(schema.UnidirectionalSequenceLSTMOptionsT, fusedActivationFunction=tanh)
    file.call("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, hidden, options)
    y, n = file.add("out/y", (batch, steps, units), np.float32), file.add("out/n", (3,), np.int32)
    file.call("ADD", [hidden, shift], y, table(schema.AddOptionsT))
    file.call("ADD", [ids, file.constant(np.array([7], np.int32))], n, table(schema.AddOptionsT))
    return file.pack({"x": x, "shift": shift, "ids": ids}, {"y": y, "n": n})


def copies(*dtypes: Any) -> bytes:
    """An input of each type, and the same values in another shape as an output of its name."""
    file = _File()
    inputs, outputs = {}, {}
    for dtype in map(np.dtype, dtypes):
        taken = inputs[dtype.name] = file.add(f"in/{dtype}", (2, 3), dtype)
        given = outputs[dtype.name] = file.add(f"out/{dtype}", (6,), dtype)
        file.call("RESHAPE", [taken, file.constant(np.array([6], np.int32))], given)
    return file.pack(inputs, outputs)


def of_operators(*names: str) -> bytes:
    """Operators by their names in the schema, each of the same two inputs of float32."""
    file = _File()
    inputs = {name: file.add(name, (2, 3), np.float32) for name in ("a", "b")}
    outputs = {f"y{k}": file.add(f"y{k}", (2, 3), np.float32) for k in range(len(names))}
    for name, output in zip(names, outputs.values(), strict=True):
        # the only options that an interpreter wants to see before it looks up the operator
        options = table(schema.VarHandleOptionsT, sharedName=b"v") if name == "VAR_HANDLE" else None
        file.call(name, [*inputs.values()], output, options)
    return file.pack(inputs, outputs)
