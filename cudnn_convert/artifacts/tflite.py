"""Opens a TensorFlow Lite file in TensorFlow's interpreter, after checking the bytes.

The interpreter verifies no flatbuffer: a changed byte makes it read beside the file or crash. Here every
offset must lead into the file, to what fits there. What a table holds is learnt from TensorFlow's own
generated readers: each is called once on a stand-in that notes which slot it asks for and how it reads.
Source: flatbuffers v25 include/flatbuffers/verifier.h, docs/source/internals.md; python/flatbuffers/table.py.

The interpreter does check shapes, types and most numbers, but some only in builds for tests. So the numbers
of buffers, tensors, ops and subgraphs are checked here too.
Source: tensorflow v2.21.0 compiler/mlir/lite/schema/schema.fbs, lite/core/interpreter_builder.cc,
lite/tools/verifier.cc, lite/string_util.h.
"""

import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
from tensorflow.lite.python import schema_py_generated
from tensorflow.lite.tools import flatbuffer_utils

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.formats import TFLITE_KEY, part_file
from cudnn_convert.model import SERVING, Array, Part, Signature

#: The classes that are generated from TensorFlow Lite's schema, for reading and, ending in T, for changing.
schema: Final[Any] = schema_py_generated
#: Tables inside of tables, and tables in all, as flatbuffers' own verifier has them.
_DEEPEST: Final = 64
_MOST: Final = 1_000_000
#: What generated readers have beside one function for each field.
_OTHERS: Final = ("GetRootAs", "AsNumpy", "Length", "IsNone", "BufferHasIdentifier")
_OFFSET: Final = 4


def unpack_model(content: bytes) -> Any:
    """Convert a file's bytes to a mutable ModelT.

    Call `check_model` first where the bytes are untrusted.
    """
    return flatbuffer_utils.convert_bytearray_to_object(bytearray(content))


def pack_model(model: Any) -> bytes:
    """Return the bytes of a file for a ModelT."""
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def operator_kind(model: Any, op: Any) -> int:
    """Return the number of an operator's kind, as in `schema.BuiltinOperator`.

    Small numbers are in the older of two fields, and may be in it alone; large ones are in the newer alone.
    """
    code = model.operatorCodes[op.opcodeIndex]
    return int(max(code.builtinCode, code.deprecatedBuiltinCode))


def read_floats(model: Any, tensor: Any) -> Array:
    """Return a constant of float32, or of int8 times the scale, as float32."""
    data = bytes(bytearray(model.buffers[tensor.buffer].data))
    is_float = tensor.type == schema.TensorType.FLOAT32
    value: Array = np.frombuffer(data, "<f4" if is_float else "i1").reshape(tensor.shape)
    return value if is_float else value.astype(np.float32) * np.float32(tensor.quantization.scale[0])


class FlatbufferError(ValueError):
    """An error for bytes at odds with the claimed content."""


@dataclass(frozen=True, slots=True)
class _Field:
    """The layout of a flatbuffer field for reading.

    It has `width` bytes, or is an offset to a `table`, a string, a union or a vector. Of a vector, `width`
    and `table` describe an element. All but plain numbers are offsets in the table itself.
    """

    width: int = _OFFSET
    table: Any = None
    is_string: bool = False
    is_union: bool = False
    is_vector: bool = False

    @property
    def size(self) -> int:
        """The size in bytes of the field inside the table."""
        return _OFFSET if self.is_vector else self.width


class _StandIn:
    """A fake table for recording a generated reader's access to a field."""

    Pos, Bytes = 0, b""

    def __init__(self) -> None:
        self.slot, self.is_vector, self.field = 0, False, _Field()

    def Offset(self, slot: int) -> int:  # noqa: N802 - the names are flatbuffers' own
        self.slot = slot
        return 1

    def Vector(self, _: int) -> int:  # noqa: N802
        self.is_vector = True
        return 0

    def Get(self, flags: Any, _: int) -> Any:  # noqa: N802
        self.field = _Field(width=flags.bytewidth, is_vector=self.is_vector)
        return flags.py_type(0)

    def Indirect(self, _: int) -> int:  # noqa: N802
        self.field = _Field(table=True, is_vector=self.is_vector)
        return 0

    def String(self, _: int) -> bytes:  # noqa: N802
        self.field = _Field(is_string=True, is_vector=self.is_vector)
        return b""

    def Union(self, *_: Any) -> None:  # noqa: N802
        self.field = _Field(is_union=True)


@cache
def _fields(reader: type) -> Mapping[int, tuple[str, _Field]]:
    """Return the fields of a table by slot, with names."""
    fields_by_slot = {}
    for name, read in vars(reader).items():
        if isinstance(read, FunctionType) and name != "Init" and not name.endswith(_OTHERS):
            table, stand_in = reader(), _StandIn()
            table._tab = stand_in
            value = read(table, *[0] * (read.__code__.co_argcount - 1))
            field = stand_in.field
            if field.table:
                field = _Field(table=type(value), is_vector=field.is_vector)
            fields_by_slot[stand_in.slot] = (name, field)
    return fields_by_slot


def check_flatbuffer(data: bytes, root: type, unions: Mapping[str, Mapping[int, type]]) -> None:
    """Raise FlatbufferError unless `data` is a sound table `root`.

    `unions` has, by the name of a field that is a union, the tables it may be by the number of their type.
    """
    reader_ = _Bytes(data, unions)
    reader_.table(reader_.offset(0), root, 0)


class _Bytes:
    """The file, and the tables already checked."""

    def __init__(self, data: bytes, unions: Mapping[str, Mapping[int, type]]) -> None:
        self._data, self._unions = data, unions
        self._seen: set[tuple[int, type]] = set()

    def _number(self, form: str, at: int) -> int:
        """Read a number, checked to lie inside the file and be aligned.

        It must be aligned to its size.
        """
        size = struct.calcsize(form)
        if at < 0 or at % size or at + size > len(self._data):
            raise FlatbufferError(f"a number of {size} bytes at {at} of {len(self._data)}")
        value: int = struct.unpack_from(form, self._data, at)[0]
        return value

    def offset(self, at: int) -> int:
        """Return the target of the offset at a place."""
        length = self._number("<I", at)
        if not length:
            raise FlatbufferError(f"an offset at {at} that leads to itself")
        return at + length

    def table(self, at: int, reader: type, depth: int) -> None:
        if (at, reader) in self._seen:
            return
        self._seen.add((at, reader))
        if depth > _DEEPEST or len(self._seen) > _MOST:
            raise FlatbufferError("tables without an end")
        slots = at - self._number("<i", at)
        size, length = self._number("<H", slots), self._number("<H", slots + 2)
        if size < _OFFSET or size % 2 or slots + size > len(self._data) or at + length > len(self._data):
            raise FlatbufferError(f"a table at {at} that does not fit into the file")
        offsets = {slot: self._number("<H", slots + slot) for slot in range(_OFFSET, size, 2)}
        for slot, (name, field) in _fields(reader).items():
            if offset := offsets.get(slot, 0):
                if offset < _OFFSET or offset + field.size > length:
                    raise FlatbufferError(f"{reader.__name__}.{name} outside of its table")
                kind = offsets.get(slot - 2, 0)
                self._field(at + offset, name, field, at + kind if kind else None, depth)
            elif field.is_union and (kind := offsets.get(slot - 2, 0)) and self._number("<B", at + kind):
                raise FlatbufferError(f"{reader.__name__}.{name} of a type, without a value")

    def _field(self, at: int, name: str, field: _Field, kind: int | None, depth: int) -> None:
        if field.is_union:
            number = 0 if kind is None else self._number("<B", kind)
            if (reader := self._unions[name].get(number)) is None:
                raise FlatbufferError(f"{name} of a type that TensorFlow does not know, {number}")
            self.table(self.offset(at), reader, depth + 1)
        elif field.is_vector:
            self._vector(self.offset(at), field, depth)
        elif field.table:
            self.table(self.offset(at), field.table, depth + 1)
        elif field.is_string:
            self._string(self.offset(at))
        elif at % field.width:
            raise FlatbufferError(f"{name} at {at}, no multiple of its {field.width} bytes")

    def _vector(self, at: int, field: _Field, depth: int) -> None:
        count, first = self._number("<I", at), at + _OFFSET
        if first % field.width or first + count * field.width > len(self._data):
            raise FlatbufferError(f"{count} elements of {field.width} bytes at {at} of {len(self._data)}")
        if field.table or field.is_string:
            for offset in range(first, first + count * _OFFSET, _OFFSET):
                target = self.offset(offset)
                self.table(target, field.table, depth + 1) if field.table else self._string(target)

    def _string(self, at: int) -> None:
        end = at + _OFFSET + self._number("<I", at)
        if end >= len(self._data) or self._data[end]:
            raise FlatbufferError(f"a text at {at} without an end")


_IDENTIFIER: Final = b"TFL3"
#: A tensor that an op does without.
_NONE: Final = -1
_UNIONS: Final = {
    "BuiltinOptions": schema.BuiltinOptions,
    "BuiltinOptions2": schema.BuiltinOptions2,
    "Details": schema.QuantizationDetails,
    "ArraySegments": schema.SparseIndexVector,
    "ArrayIndices": schema.SparseIndexVector,
}


def _list_tables(owner: Any, name: str) -> list[Any]:
    """Return the tables of the vector `name`."""
    return [getattr(owner, name)(k) for k in range(getattr(owner, f"{name}Length")())]


def check_model(path: Path) -> None:
    """Raise ReadError unless a file is a sound model."""
    data = path.read_bytes()
    try:
        if data[4:8] != _IDENTIFIER:
            raise FlatbufferError(f"the identifier {data[4:8]!r}")
        check_flatbuffer(data, schema.Model, _unions())
        _require_numbers(schema.Model.GetRootAs(data, 0), data)
    except FlatbufferError as cause:
        expected = "a sound TensorFlow Lite model"
        raise ReadError(path, "artifact", expected=expected, found=str(cause), advice=AGAIN) from cause


@cache
def _unions() -> Mapping[str, Mapping[int, type]]:
    return {
        name: {
            number: getattr(schema, kind)
            for kind, number in vars(numbers).items()
            if isinstance(number, int) and hasattr(schema, kind)
        }
        for name, numbers in _UNIONS.items()
    }


def _require_numbers(model: Any, data: bytes) -> None:
    """Check the range of every index of a buffer, tensor, op or subgraph."""
    buffers = _list_tables(model, "Buffers")
    for buffer in buffers:
        _require_within("a buffer", buffer.Offset(), buffer.Size(), data)
    # a schema without them is of a runtime that cannot read them
    if hasattr(model, "ExternalBuffersLength") and model.ExternalBuffersLength():
        raise FlatbufferError("values in other files")
    graphs = _list_tables(model, "Subgraphs")
    if not graphs:
        raise FlatbufferError("no subgraph")
    for entry in _list_tables(model, "Metadata"):
        _require_one("a buffer of metadata", [entry.Buffer()], len(buffers))
    for signature in _list_tables(model, "SignatureDefs"):
        _require_signature(signature, graphs)
    called: list[set[int]] = []
    for graph in graphs:
        count = graph.TensorsLength()
        _require_one("an input", _numbers(graph.InputsAsNumpy()), count)
        _require_one("an output", _numbers(graph.OutputsAsNumpy()), count)
        for tensor in _list_tables(graph, "Tensors"):
            _require_one("a buffer of a tensor", [tensor.Buffer()], len(buffers))
            if tensor.Type() == schema.TensorType.STRING:
                _require_texts(_content(buffers[tensor.Buffer()]))
        called.append(set())
        for operator in _list_tables(graph, "Operators"):
            _require_one("an op", [operator.OpcodeIndex()], model.OperatorCodesLength())
            _require_within(
                "options", operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize(), data
            )
            optional = _numbers(operator.InputsAsNumpy()) + _numbers(operator.IntermediatesAsNumpy())
            taken = [number for number in optional if number != _NONE]
            _require_one("a tensor of an op", taken + _numbers(operator.OutputsAsNumpy()), count)
            subgraphs = [*_subgraphs(operator)]
            _require_one("a subgraph of an op", subgraphs, len(graphs))
            called[-1].update(subgraphs)
    _require_end(called)


def _numbers(numbers: Any) -> list[int]:
    """Return a vector of numbers as a list, empty for a missing vector.

    The reader gives 0 where there is none.
    """
    return [] if isinstance(numbers, int) else [int(number) for number in numbers]


def _require_one(what: str, numbers: Iterable[int], count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise FlatbufferError(f"{what} of number {number} of {count}")


def _require_within(what: str, offset: int, size: int, data: bytes) -> None:
    """Check the bounds of data behind the flatbuffer, in large files."""
    if offset + size > len(data):
        raise FlatbufferError(f"{what} of {size} bytes at {offset} of {len(data)}")


def _require_signature(signature: Any, graphs: Sequence[Any]) -> None:
    if signature.SignatureKey() is None:
        raise FlatbufferError("a signature without a name")
    _require_one("a signature's subgraph", [signature.SubgraphIndex()], len(graphs))
    count = graphs[signature.SubgraphIndex()].TensorsLength()
    ends = _list_tables(signature, "Inputs") + _list_tables(signature, "Outputs")
    if any(end.Name() is None for end in ends):
        raise FlatbufferError("an input or output of a signature without a name")
    _require_one("a tensor of a signature", [end.TensorIndex() for end in ends], count)


def _content(buffer: Any) -> bytes:
    content = buffer.DataAsNumpy()
    return b"" if isinstance(content, int) else bytes(content)


def _require_texts(content: bytes) -> None:
    """Check the bytes of a string tensor: count, offsets in order, end inside the buffer."""
    if not content:
        return
    try:
        (count,) = struct.unpack_from("<i", content)
        places = struct.unpack_from(f"<{max(count, 0) + 1}i", content, 4)
    except struct.error as cause:
        raise FlatbufferError("texts that end too soon") from cause
    if count < 0 or [*places] != sorted(places) or places[0] != 4 * (count + 2) or places[-1] > len(content):
        raise FlatbufferError("texts that do not lie in their buffer")


def _subgraphs(operator: Any) -> Iterator[int]:
    """Yield the subgraphs named in an op's options."""
    for name in ("BuiltinOptions", "BuiltinOptions2"):
        number, options = getattr(operator, f"{name}Type")(), getattr(operator, name)()
        if options is not None and (reader := _unions()[name].get(number)) is not None:
            operator_reader: Any = reader()
            operator_reader.Init(options.Bytes, options.Pos)
            for field in vars(reader):
                if field.endswith("SubgraphIndex"):
                    yield getattr(operator_reader, field)()


def _require_end(called: list[set[int]]) -> None:
    """Raise FlatbufferError for a cycle of subgraphs.

    The interpreter would follow it until its stack ends.
    """
    left = {number: set(names) for number, names in enumerate(called)}
    while ready := {number for number, names in left.items() if not names & left.keys()}:
        for number in ready:
            del left[number]
    if left:
        raise FlatbufferError(f"subgraphs that call themselves: {sorted(left)}")


_FLEX: Final = b"Flex"


def flex_ops(path: Path) -> tuple[str, ...]:
    """Return the ops of a file in need of TensorFlow's own kernels, by TensorFlow's names."""
    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    codes = (code.CustomCode() or b"" for code in _list_tables(model, "OperatorCodes"))
    return tuple(sorted(code[len(_FLEX) :].decode() for code in codes if code.startswith(_FLEX)))


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in the metadata.

    Returns None in a file of another tool. Raises ReadError.
    """
    content = path.read_bytes()
    try:
        if content[4:8] != _IDENTIFIER:
            raise FlatbufferError(f"the identifier {content[4:8]!r}")
        model = schema.Model.GetRootAs(content, 0)
        entries = (entry for entry in _list_tables(model, "Metadata") if entry.Name() == TFLITE_KEY.encode())
        if (metadata := next(entries, None)) is None:
            return None
        text = model.Buffers(metadata.Buffer()).DataAsNumpy().tobytes().decode()
    except (struct.error, IndexError, TypeError, ValueError, AssertionError, AttributeError) as cause:
        expected, actual = "a TensorFlow Lite model", "a file that is not one"
        raise ReadError(path, "file", expected=expected, found=actual) from cause
    return runners.parse_provenance(path, text)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Check the file of each part before mapping by the interpreter.

    Raises ReadError where the interpreter would follow an offset out of the file.
    """
    for part in parts:
        check_model(part_file(path, part.name, ".tflite"))


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open the file of each part.

    Raises MissingKernelsError where an op needs a kernel that the interpreter does not have: wheels since
    2.20 lack the Flex delegate (google-ai-edge/LiteRT issue 6458).
    """
    return [_open(part_file(path, part.name, ".tflite"), part) for part in parts]


def open_interpreter(**model: Any) -> Any:
    """Return TensorFlow's interpreter of a file, `model_path`, or of bytes, `model_content`."""
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LiteRT will be its name
        return tf.lite.Interpreter(num_threads=context.threads(), **model)


def _open(file: Path, part: Part) -> runners.Runner:
    if needed := flex_ops(file):
        message = f"ops that this interpreter has no kernels for: {', '.join(needed)}"
        raise runners.MissingKernelsError(message)
    interpreter = open_interpreter(model_path=str(file))
    signatures = interpreter.get_signature_list()
    if not signatures:
        return _by_tensors(file, interpreter, part)
    name = part.name if part.name in signatures else SERVING
    if is_stateful := _has_variables(file):
        interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner(runners.choose_signature(file, name, signatures))
    dtypes = {key: detail["dtype"] for key, detail in runner.get_input_details().items()}
    inputs = runners.pair_inputs(file, part.signature.inputs, dtypes)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if is_stateful:  # a call is a sequence of its own
            interpreter.reset_all_variables()
        answers: dict[str, Array] = runner(
            **{name: feeds[key].astype(dtypes[name]) for key, name in inputs.items()}
        )
        keys = runners.pair_outputs(part.signature.outputs, answers)
        return {keys[name]: value for name, value in answers.items()}

    return run


def _has_variables(file: Path) -> bool:
    """Return True if a file keeps states of fused ops in variable tensors."""
    model = schema.Model.GetRootAs(file.read_bytes(), 0)
    graphs = _list_tables(model, "Subgraphs")
    return any(tensor.IsVariable() for graph in graphs for tensor in _list_tables(graph, "Tensors"))


def _by_tensors(path: Path, interpreter: Any, part: Part) -> runners.Runner:
    """Return a runner of a signatureless file, by tensor names."""
    takes = {detail["name"]: detail for detail in interpreter.get_input_details()}
    gives = {detail["name"]: detail for detail in interpreter.get_output_details()}
    is_stateful = _has_variables(path)
    inputs = runners.pair_inputs(path, part.signature.inputs, takes)
    keys = runners.pair_outputs(part.signature.outputs, gives)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        for key, name in inputs.items():
            interpreter.resize_tensor_input(takes[name]["index"], feeds[key].shape)
        interpreter.allocate_tensors()
        if is_stateful:
            interpreter.reset_all_variables()
        for key, name in inputs.items():
            interpreter.set_tensor(takes[name]["index"], feeds[key].astype(takes[name]["dtype"]))
        interpreter.invoke()
        return {
            keys[name]: np.array(interpreter.get_tensor(detail["index"])) for name, detail in gives.items()
        }

    return run


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """List an interface for each file, by signature or by tensor names.

    Tensor names serve where it has no signature.
    """
    files = runners.files_of(path, ".tflite")
    return [_interface(file, file.stem if path.is_dir() else SERVING) for _, file in files]


def _interface(file: Path, name: str) -> runners.Interface:
    check_model(file)
    interpreter = open_interpreter(model_path=str(file))
    if interpreter.get_signature_list():
        signature = runners.choose_signature(file, SERVING, interpreter.get_signature_list())
        runner = interpreter.get_signature_runner(signature)
        takes, gives = runner.get_input_details(), [*runner.get_output_details()]
    else:
        takes = {detail["name"]: detail for detail in interpreter.get_input_details()}
        gives = [detail["name"] for detail in interpreter.get_output_details()]
    specs = {
        key: runners.TensorSpec(
            np.dtype(detail["dtype"]), tuple(None if k < 0 else int(k) for k in detail["shape_signature"])
        )
        for key, detail in takes.items()
    }
    return runners.Interface(Part(name, Signature.of_names(specs, gives)), specs)


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the float32 constants in the graphs."""
    for prefix, file in runners.files_of(path, ".tflite"):
        model = unpack_model(file.read_bytes())
        for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
            data = model.buffers[tensor.buffer].data
            if data is not None and len(data) and tensor.type == schema.TensorType.FLOAT32:
                yield f"{prefix}{tensor.name.decode()}", read_floats(model, tensor)
