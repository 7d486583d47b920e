"""Makes tests/data/arrays/cntk: models with cuDNN's recurrences as CNTK saves them, and its answers on a CPU.

    python scripts/array_fixtures/cntk_weights.py    # Python 3.6: cntk==2.7 numpy==1.19.5 scipy==1.5.4

CNTK's libraries name libmpi.so.12 and libmpi_cxx.so.1 of OpenMPI 1.10. On one machine they call nothing in
it: where it is not to be had, two shared libraries of these names do, with empty functions of the names that
`nm -D` prints as missing. Every run writes the same bytes.

The weights. `cntk.ops.optimized_rnnstack(operand, weights, hidden_size, num_layers, bidirectional,
recurrent_op)` has them all in one parameter:

* Its values in row-major NumPy order are cuDNN's blob: CNTK hands its memory to cuDNN as it is, as a filter
  of that many elements (`Source/Math/CuDnnRNN.cpp` `CuDnnRNNExecutor::ForwardCore`, `CuDnnRNN.h`
  `CuDnnFilter`). The length must be the formula's (`Source/Math/RNNCommon.h`
  `RnnAttributes::GetNumParameters`), with two biases.
* NumPy's shape is [length / hidden_size, hidden_size] if CNTK infers it, but any shape does. CNTK's own shape
  is NumPy's backwards, as its memory is column-major: the file has (hidden_size, length / hidden_size).
* `recurrent_op` is lstm, gru, rnnReLU or rnnTanh (`CuDnnRNN::GetMode`). The input mode is linear, the dropout
  0, the descriptor older than cuDNN 8 and so with two biases, without projection and clipping. CNTK 1 wrote
  LSTM, GRU, RNN_RELU, RNN_TANH (`RnnAttributes::Read`).
* Initial states are always 0 and final states are not to be had: ForwardCore passes null for all of them.
  Sequences of a batch may differ in length; the backward direction starts at each one's end (`RNNNodes.cpp`
  `OptimizedRNNStackNode::PackSequencesForCuDNN`).
* A CPU does not run it: "RNNForward -> Feature Not Implemented".

The converter, `cntk/misc/optimized_rnnstack_converter.py` `_from_optimized_rnnstack`, reads for each layer W
and R of each direction, then behind all layers the two biases, which it adds. It takes cuDNN's i, f, g, o to
CNTK's i, g, f, o (`_adjust_gate_order`). In lstm, rnnReLU and rnnTanh, in both directions, its answers are
those of cuDNN's equations. It refuses gru ("unsupported recurrent_op value"), fails on float64 unless that is
`default_options`' dtype, and on a frozen model (IndexError, as it looks among parameters only). So answers of
case gru are those of the equations in NumPy. So are all states and all answers from given states:
`from_equations` of golden.json names those arrays.

The file is one protobuf message `Dictionary`, from `Source/CNTKv2LibraryDll/proto/CNTK.proto`:

* Dictionary: 1 version (uint64, 2 here), 2 data, a map: each entry has 1 key (string), 2 value
  (DictionaryValue). The order of a map's entries is that of a hash.
* DictionaryValue: 1 version, 2 value_type (0 None, 1 Bool, 2 Int, 3 SizeT, 4 Float, 5 Double, 6 String, 7
  NDShape, 8 Axis, 9 Vector, 10 Dictionary, 11 NDArrayView), then one of 3 bool_value, 4 int_value (int32), 5
  size_t_value (uint64), 6 float_value, 7 double_value, 8 string_value, 9 nd_shape_value, 10 axis_value, 11
  vector_value, 12 dictionary_value, 13 nd_array_view_value.
* Vector: 1 value, repeated DictionaryValue. NDShape: 1 shape_dim, packed uint64, CNTK's order.
* NDArrayView: 1 data_type (1 float, 2 double, 4 float16, 5 int8, 6 int16), 2 storage_format (0 dense, 1 CSC,
  2 block column), 3 shape, then one of 4 float_values, 5 double_values (a message each, with 1 value,
  packed), 6 bytes_value, 7 sint32_values. Values of float16 stand in float_values, as float32 (file
  formats/float16.model).
* From 2 GiB on (`Serialization.cpp` `Serializer::Write`, `ParseMessage`): uint32 0x636e746b ("ktnc" in the
  file) and uint32 size of the message, both little-endian, the message without the fields 4 and 5, and behind
  it the values of each NDArrayView in their order, little-endian floats or doubles. formats/split.model is
  such a file, made by hand, and CNTK loads it.
* A model is a Dictionary with type "CompositeFunction", version 3, root (uid of a function), uid, name if
  any, inputs and primitive_functions (both Vectors of Dictionaries). Blocks do not nest functions: all of
  them stand in primitive_functions; a block names its root in block_function_composite (case net).
* An input: kind (0 input, 1 output, 2 parameter, 3 constant, 4 placeholder), uid, name, shape, data_type,
  value (the NDArrayView of a parameter or constant). A frozen model has its weights as constants.
* cuDNN's recurrence is a function with type "PrimitiveFunction" and op 49 (`API/Internals/PrimitiveOpType.h`
  OptimizedRNNStack). Its inputs are two uids, the operand and the parameter. Its attributes are bidirectional
  (Bool), numLayers and hiddenSize (SizeT), recurrentOp (String), from `PrimitiveFunctionAttribute.cpp`. The
  input size is in no attribute: it is the operand's shape, or follows from the length.
* A file of CNTK 1 begins with 42 00 43 00 4e 00 00 00 (`BackCompat.h` `IsLegacyModel`) and is no protobuf.
  formats/converted.model has no function of op 49.
"""

import os
import struct
import sys

import cntk as C
import numpy as np
from cntk.misc.optimized_rnnstack_converter import convert_optimized_rnnstack
from old_python_golden import BATCH, BOUND, TIME, Stack, make_folder, measure, write

VERSIONS = {
    "python": ".".join(str(part) for part in sys.version_info[:3]),
    "cntk": C.__version__,
    "numpy": np.__version__,
}
OPERATIONS = {"lstm": "lstm", "gru": "gru", "rnn_relu": "rnnReLU", "rnn_tanh": "rnnTanh"}
LENGTHS = np.array([4, 7, 2], np.int32)


def make_weights(stack, shape=None):
    """A parameter of the stack's blob, by default in the shape that CNTK infers."""
    blob, shape = stack.pack(), shape or (-1, stack.units)
    return C.parameter(init=blob.reshape(shape), dtype=blob.dtype.type, name="weights")


def make_stack(stack, x, weights, name="rnn"):
    operation = OPERATIONS[stack.mode]
    return C.optimized_rnnstack(
        x, weights, stack.units, stack.layers, stack.directions == 2, operation, name=name
    )


def make_input(stack):
    return C.sequence.input_variable(stack.inputs, dtype=np.dtype(stack.dtype).type, name="x")


def run(function, x, lengths):
    """The outputs of a converted function for a time-major x, 0 past the lengths."""
    (argument,) = function.arguments
    rows = [np.ascontiguousarray(x[:length, row]) for row, length in enumerate(lengths)]
    answers = function.eval({argument: rows})
    y = np.zeros(x.shape[:2] + (answers[0].shape[-1],), x.dtype)
    for row, answer in enumerate(answers):
        y[: len(answer), row] = answer
    return y


def ask(stack, rng, function):
    """The arrays of a golden.npz; function answers `y` and `yl`, the equations all else."""
    rows = (stack.layers * stack.directions, BATCH, stack.units)
    x = rng.uniform(-1, 1, (TIME, BATCH, stack.inputs)).astype(stack.dtype)
    h0 = rng.uniform(-0.9, 0.9, rows).astype(stack.dtype)
    c0 = rng.uniform(-0.9, 0.9, rows).astype(stack.dtype) if stack.mode == "lstm" else None
    zeros = [None if state is None else np.zeros_like(state) for state in (h0, c0)]
    whole = np.full(BATCH, TIME, np.int32)
    kept, worst = {"x": x, "h0": h0, "c0": c0, "lengths": LENGTHS}, 0.0
    for suffix, states, lengths in (("", zeros, whole), ("s", (h0, c0), whole), ("l", zeros, LENGTHS)):
        answers = stack.run_rows(x, states[0], states[1], lengths)
        for name, answer in zip("yhc", answers):
            kept[name + suffix] = None if answer is None else answer.astype(stack.dtype)
        if function is not None and suffix != "s":
            theirs = run(function, x, lengths)
            worst = max(worst, measure(answers[0], theirs))
            kept["y" + suffix] = theirs
    assert worst < BOUND[stack.dtype], worst
    return {name: array for name, array in kept.items() if array is not None}, worst


def finish(folder, stack, arrays, worst, converted):
    equations = sorted(set(arrays) - {"x", "h0", "c0", "lengths"} - ({"y", "yl"} if converted else set()))
    by = (
        "CNTK 2.7 convert_optimized_rnnstack on the CPU; the equations in NumPy"
        if converted
        else "equations in NumPy"
    )
    write(folder, stack, arrays, computed_by=by, from_equations=equations, versions=VERSIONS)
    print(os.path.basename(folder), "from the equations", worst if converted else "not converted")


def make_stacks(rng):
    """Cases of a single stack."""
    for case, stack in (
        ("lstm", Stack("lstm", 5, 4)),
        ("lstm_bidirectional", Stack("lstm", 5, 4, directions=2)),
        ("gru", Stack("gru", 5, 4, directions=2)),
        ("rnn_relu", Stack("rnn_relu", 5, 4, directions=2)),
        ("rnn_tanh", Stack("rnn_tanh", 5, 4)),
        ("lstm_float64", Stack("lstm", 5, 4, dtype="float64")),
    ):
        folder = make_folder("cntk", case)
        function = make_stack(stack.draw(rng), make_input(stack), make_weights(stack))
        function.save(os.path.join(folder, "saved.model"))
        converted = None
        if stack.mode != "gru":  # which the converter refuses
            with C.default_options(dtype=np.dtype(stack.dtype).type):
                converted = convert_optimized_rnnstack(function)
        arrays, worst = ask(stack, rng, converted)
        finish(folder, stack, arrays, worst, converted)


def make_net(rng):
    """Case net: a block of a stack between an Embedding and a Dense, and another stack behind it."""
    stack, second = Stack("lstm", 5, 4).draw(rng), Stack("rnn_tanh", 4, 2, directions=2, layers=1).draw(rng)
    tokens, weights = C.sequence.input_variable(6, name="tokens"), make_weights(stack)

    @C.layers.BlockFunction("Encoder", "encoder")
    def encode(x):
        return make_stack(stack, x, weights, "inner")

    table = rng.uniform(-1, 1, (6, 5)).astype(np.float32)
    embedded = C.layers.Embedding(5, init=table)(tokens)
    behind = make_stack(second, encode(embedded), make_weights(second), "outer")
    matrix = rng.uniform(-1, 1, (4, 3)).astype(np.float32)
    net = C.layers.Dense(3, init_bias=0.25)(behind)
    (kernel,) = [parameter for parameter in net.parameters if parameter.shape == matrix.shape]
    kernel.value = matrix
    folder = make_folder("cntk", "net")
    net.save(os.path.join(folder, "saved.model"))
    fed = np.eye(6, dtype=np.float32)[rng.randint(0, 6, (TIME, BATCH))]
    scores = run(convert_optimized_rnnstack(net), fed, [TIME] * BATCH)
    x = fed.dot(table)
    alone = convert_optimized_rnnstack(make_stack(stack, make_input(stack), weights))
    arrays, worst = ask(stack, rng, alone)
    zeros = np.zeros((2, BATCH, 4))
    ours = second.run(stack.run(x, zeros, zeros)[0], zeros[:, :, :2], None)[0].dot(matrix) + 0.25
    worst = max(worst, measure(ours, scores))
    assert worst < BOUND["float32"], worst
    arrays.update(tokens=fed, scores=scores)
    finish(folder, stack, arrays, worst, alone)


def make_formats():
    """Case formats: one recurrence in each form of the file."""
    rng = np.random.RandomState(78)
    stack = Stack("rnn_tanh", 5, 4, directions=2).draw(rng)
    folder, x = make_folder("cntk", "formats"), make_input(stack)

    def save(name, function):
        function.save(os.path.join(folder, name + ".model"))

    plain = make_stack(stack, x, make_weights(stack))
    save("matrix", plain)
    save("vector", make_stack(stack, x, make_weights(stack, shape=(-1,))))
    save("frozen", plain.clone("freeze"))
    half = C.parameter(
        (stack.pack().size,), init=stack.pack().astype(np.float16), dtype=np.float16, name="weights"
    )
    fed = C.sequence.input_variable(5, dtype=np.float16, name="x")
    save("float16", C.optimized_rnnstack(fed, half, 4, 2, True, "rnnTanh", name="rnn"))
    short = Stack("rnn_tanh", 5, 4, layers=1).draw(rng)
    save("converted", convert_optimized_rnnstack(make_stack(short, x, make_weights(short))))
    split_values(os.path.join(folder, "matrix.model"), os.path.join(folder, "split.model"), stack.pack())
    for name in ("matrix", "vector", "frozen", "split"):
        (loaded,) = C.load_model(os.path.join(folder, name + ".model")).find_all_with_name("rnn")
        (weights,) = loaded.parameters + loaded.constants
        assert np.array_equal(weights.value.reshape(-1), stack.pack()), name
    converted = convert_optimized_rnnstack(plain)
    arrays, worst = ask(stack, rng, converted)
    finish(folder, stack, arrays, worst, converted)


def split_values(source, target, blob):
    """Write the form of files of 2 GiB and more: the message without values, and the values behind it."""
    with open(source, "rb") as file:
        message = file.read()
    values = write_field(1, blob.tobytes())
    message = drop_bytes(message, write_field(4, values))
    with open(target, "wb") as file:
        file.write(struct.pack("<II", 0x636E746B, len(message)) + message + blob.tobytes())


def write_field(number, content):
    """A length-delimited field of a protobuf message."""
    return bytes([number << 3 | 2]) + write_varint(len(content)) + content


def write_varint(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes(parts + [value])


def drop_bytes(message, dropped):
    """A message without the one field whose bytes are `dropped`; the lengths around it shrink."""
    at = 0
    while at < len(message):
        start = at
        tag, at = read_varint(message, at)
        if tag & 7 != 2:
            at = read_varint(message, at)[1] if tag & 7 == 0 else at + (8 if tag & 7 == 1 else 4)
            continue
        size, at = read_varint(message, at)
        end = at + size
        if message[start:end] == dropped:
            return message[:start] + message[end:]
        if dropped in message[at:end]:
            return (
                message[:start] + write_field(tag >> 3, drop_bytes(message[at:end], dropped)) + message[end:]
            )
        at = end
    raise ValueError("the field is not there")


def read_varint(message, at):
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def main():
    rng = np.random.RandomState(62)
    make_stacks(rng)
    make_net(rng)
    make_formats()


if __name__ == "__main__":
    main()
