"""Follows the pickle of a PyTorch file, by placeholders for all names.

No unpickler of Python is at work: no name is imported, and nothing is called or run. A few names of
PyTorch stand for what they would make, a claim about a tensor. Every other class, and what a call of it would
make, is an `Opaque`, which takes any state and items and keeps none. Lists, sets and bytes are opaque too.

An operation takes memory for its own bytes and one small object, whatever its lengths and numbers claim, and
there is a limit of operations. No value is hashed, compared or walked but text and numbers of the pickle.

Sources: CPython 3.13 Lib/pickletools.py (the operations), Lib/pickle.py `_Unpickler`; pytorch v2.8.0
torch/_utils.py `_rebuild_tensor` and those that follow, torch/_tensor.py `_rebuild_from_type_v2`,
torch/serialization.py `_save` persistent_id, torch/storage.py `_dtype_to_storage_type_map`.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

#: Operations of one pickle. A tensor takes some 40, so this is enough for 200,000 of them.
MOST: Final = 1 << 23
#: Letters of a name, arguments of a call and axes of a tensor. Two bytes use one of them again, and must not
#: take longer the longer it is. NumPy has at most 64 axes, before version 2 at most 32.
_LONGEST, _ARGUMENTS, _AXES = 1000, 32, 32


@dataclass(frozen=True, slots=True)
class Opaque:
    """A class, an instance or another value, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """A claim about the member `key`: `count` elements of a PyTorch type."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about a tensor: a view of a storage, counted in elements of `dtype`."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A tensor other than a view of a storage, with a description."""

    what: str


#: A state dict, or another mapping. Entries that are neither tensors, mappings nor opaque are not in it.
Entries = dict[str, Any]

_STORAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16"},
        **{"BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32"},
        **{"ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool"},
        **{"ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64"},
        **{"QInt8Storage": "qint8", "QUInt8Storage": "quint8", "QInt32Storage": "qint32"},
        **{"QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4", "UntypedStorage": "uint8"},
    }
)
#: Of `torch._utils`, tensors that are no view of a plain storage.
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_rebuild_sparse_tensor": "a sparse tensor",
        "_rebuild_sparse_csr_tensor": "a sparse tensor",
        "_rebuild_qtensor": "a quantized tensor",
        "_rebuild_nested_tensor": "a nested tensor",
        "_rebuild_meta_tensor_no_storage": "a tensor without values",
        "_rebuild_wrapper_subclass": "a tensor of a class of its own",
        "_rebuild_device_tensor_from_numpy": "a tensor that another device keeps",
        "_rebuild_device_tensor_from_cpu_tensor": "a tensor that another device keeps",
        "_rebuild_xla_tensor": "a tensor that another device keeps",
    }
)
#: The classes of a tensor that is nothing but its values.
_PLAIN: Final = frozenset({"torch.Tensor", "torch.nn.parameter.Parameter"})
#: What `torch.load` takes with `weights_only`, beside what has a meaning here.
#: Source: pytorch v2.8.0 torch/_weights_only_unpickler.py `_get_allowed_globals`.
_KNOWN: Final = _PLAIN | frozenset(
    {"torch.device", "collections.Counter", "builtins.set", "__builtin__.set", "_codecs.encode"}
)
_LIST, _SET, _BYTES, _OBJECT = Opaque("list"), Opaque("set"), Opaque("bytes"), Opaque("object")


class PickleError(ValueError):
    """A damaged pickle, or a pickle unknown to PyTorch."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A name with a meaning; `make` takes the arguments of a call."""

    make: Callable[[tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class _StorageType:
    dtype: str


@dataclass(frozen=True, slots=True)
class _Type:
    """A dtype of PyTorch, such as `torch.float32`."""

    name: str


def load(content: bytes) -> tuple[Any, bool]:
    """Return the described value, and True if the pickle has names of others.

    Mappings are `Entries`. Raises PickleError.
    """
    machine = _Machine()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if number >= MOST:
                raise PickleError(f"more than {MOST} operations")
            if opcode.name == "STOP":
                return machine.pop(), machine.is_foreign
            step = _STEPS.get(opcode.name)
            if step is None:
                raise PickleError(f"the operation {opcode.name}")
            step(machine, argument)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as cause:
        raise PickleError("a damaged pickle") from cause
    raise PickleError("a pickle without an end")


class _Machine:
    """The stack of a pickle, the stacks below the marks, and the memo."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._names: dict[str, Any] = {}
        self.is_foreign = False

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        return self._stack.pop()

    def top(self) -> Any:
        return self._stack[-1]

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def pop_to_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def pop_one(self) -> None:
        """Pop the top, or a mark on top, as `_Unpickler.load_pop` does."""
        if self._stack:
            self._stack.pop()
        else:
            self.pop_to_mark()

    def memorize(self, key: int | None) -> None:
        self._memo[len(self._memo) if key is None else key] = self._stack[-1]

    def recall(self, key: int) -> None:
        self._stack.append(self._memo[key])

    def push_name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise PickleError("a name that is no text")
        if len(module) + len(name) > _LONGEST:
            raise PickleError(f"a name of more than {_LONGEST} letters")
        full = f"{module} {name}"
        if full not in self._names:
            self._names[full] = _resolve(module, name)
        value = self._names[full]
        self.is_foreign |= isinstance(value, Opaque) and value.name not in _KNOWN
        self._stack.append(value)

    def call(self, arguments: Any, function: Any) -> None:
        """Push the placeholder for the result of a call."""
        if not isinstance(arguments, tuple):
            raise PickleError("a call without arguments")
        if isinstance(function, _Mark) and len(arguments) > _ARGUMENTS:
            raise PickleError(f"a call with more than {_ARGUMENTS} arguments")
        if isinstance(function, _Mark):
            self._stack.append(function.make(arguments))
        elif isinstance(function, Opaque):
            self._stack.append(function)
        elif isinstance(function, _StorageType | _Type):
            self._stack.append(_OBJECT)
        else:
            raise PickleError("a call of what is no name")

    def set_items(self, items: list[Any]) -> None:
        """Put keys and values into the mapping below, or drop the items."""
        entries = self._stack[-1]
        if len(items) % 2:
            raise PickleError("a key without a value")
        if isinstance(entries, dict):
            for key, value in zip(items[::2], items[1::2], strict=True):
                _set_item(entries, key, value)

    def load_storage(self) -> None:
        """Push the storage of a persistent id."""
        match self._stack.pop():
            case ("storage", _StorageType(dtype), str(key), str(), count) if _is_count(count):
                self._stack.append(Storage(dtype, key, count))
            case _:
                raise PickleError("a persistent id that is not a storage's")


def _set_item(entries: Entries, key: Any, value: Any) -> None:
    if not isinstance(key, str):
        return
    if isinstance(value, dict | Claim | Unreadable | Opaque):
        entries[key] = value
    else:
        entries.pop(key, None)


def _resolve(module: str, name: str) -> Any:
    """Return the placeholder for a name, an opaque one for an unknown name."""
    if (module, name) in _NAMED:
        return _NAMED[module, name]
    if module in ("torch", "torch.storage") and name in _STORAGES:
        return _StorageType(_STORAGES[name])
    if module == "torch" and name in DTYPES:
        return _Type(name)
    if module == "torch._utils" and name.startswith("_rebuild_"):
        what = Unreadable(_KINDS.get(name, f"a tensor of {name}"))
        return _Mark(lambda _: what)
    return Opaque(f"{module}.{name}")


def _make_entries(arguments: tuple[Any, ...]) -> Entries:
    """Return an empty mapping; a defaultdict has a class as argument."""
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], Opaque)):
        raise PickleError("a mapping of arguments")
    return {}


def _make_size(arguments: tuple[Any, ...]) -> Any:
    (size,) = arguments
    return size if isinstance(size, tuple) else Opaque("torch.Size")


def _rebuild_tensor(arguments: tuple[Any, ...]) -> Claim | Unreadable:
    storage, *view = arguments
    return _claim(storage, getattr(storage, "dtype", ""), view)


def _rebuild_tensor_v2(arguments: tuple[Any, ...]) -> Claim | Unreadable:
    storage, offset, shape, strides, _, _, *metadata = arguments
    return _claim(storage, getattr(storage, "dtype", ""), [offset, shape, strides], metadata)


def _rebuild_tensor_v3(arguments: tuple[Any, ...]) -> Claim | Unreadable:
    storage, offset, shape, strides, _, _, dtype, *metadata = arguments
    if not isinstance(dtype, _Type):
        raise PickleError("a tensor of no type")
    return _claim(storage, dtype.name, [offset, shape, strides], metadata)


def _claim(storage: Any, dtype: str, view: Sequence[Any], metadata: Sequence[Any] = ()) -> Claim | Unreadable:
    offset, shape, strides = view
    if isinstance(storage, Opaque):
        return Unreadable("a tensor whose values are pickled")
    if not (isinstance(storage, Storage) and isinstance(shape, tuple) and isinstance(strides, tuple)):
        raise PickleError("a tensor without a storage and sizes")
    if len(shape) != len(strides) or len(shape) > _AXES:
        raise PickleError(f"a tensor of {len(shape)} sizes and {len(strides)} strides")
    if not all(map(_is_count, (offset, *shape, *strides))):
        raise PickleError("a tensor of sizes that are none")
    if any(entry is not None for entry in metadata):  # written only where there is one to be done
        return Unreadable("a tensor with a negation or conjugation to be done")
    return Claim(storage, dtype, offset, shape, strides)


def _rebuild_parameter(arguments: tuple[Any, ...]) -> Any:
    tensor, *_ = arguments
    if not isinstance(tensor, Claim | Unreadable | Opaque):
        raise PickleError("a parameter that is no tensor")
    return tensor


def _rebuild_from_type(arguments: tuple[Any, ...]) -> Any:
    """Make a plain tensor with attributes; other classes may mean other values."""
    function, kind, given, *_ = arguments
    is_plain = isinstance(kind, Opaque) and kind.name in _PLAIN
    if is_plain and isinstance(function, _Mark) and isinstance(given, tuple):
        return function.make(given)
    return Unreadable("a tensor of a class of its own")


def _is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63


DTYPES: Final = frozenset(
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn_x2 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex128 "
    "complex64 complex32 qint8 quint8 qint32 quint4x2 quint2x4".split()
)
_NAMED: Final[Mapping[tuple[str, str], Any]] = MappingProxyType(
    {
        ("collections", "OrderedDict"): _Mark(_make_entries),
        ("collections", "defaultdict"): _Mark(_make_entries),
        ("builtins", "dict"): _Mark(_make_entries),
        ("__builtin__", "dict"): _Mark(_make_entries),
        ("torch", "Size"): _Mark(_make_size),
        ("torch._utils", "_rebuild_tensor"): _Mark(_rebuild_tensor),
        ("torch._utils", "_rebuild_tensor_v2"): _Mark(_rebuild_tensor_v2),
        ("torch._utils", "_rebuild_tensor_v3"): _Mark(_rebuild_tensor_v3),
        ("torch._utils", "_rebuild_parameter"): _Mark(_rebuild_parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): _Mark(_rebuild_parameter),
        ("torch._tensor", "_rebuild_from_type_v2"): _Mark(_rebuild_from_type),
    }
)


def _push_tuple(machine: _Machine, size: int) -> None:
    machine.push(tuple([machine.pop() for _ in range(size)][::-1]))


def _push_mapping(machine: _Machine, _: Any) -> None:
    items = machine.pop_to_mark()
    machine.push({})
    machine.set_items(items)


def _push_instance(machine: _Machine, argument: str) -> None:
    """Follow INST, a name with the arguments above a mark."""
    items = machine.pop_to_mark()
    machine.push_name(*argument.split(" ", 1))
    machine.call(tuple(items), machine.pop())


def _push_object(machine: _Machine, _: Any) -> None:
    """Follow OBJ, a class and the arguments above a mark."""
    function, *items = machine.pop_to_mark()
    machine.call(tuple(items), function)


def _push_new(machine: _Machine, _: Any) -> None:
    """Follow NEWOBJ_EX, without the keyword arguments."""
    machine.pop()
    machine.call(machine.pop(), machine.pop())


def _replace(value: Opaque) -> Callable[[_Machine, Any], None]:
    """Return a step to replace all above a mark by an opaque value."""

    def step(machine: _Machine, _: Any) -> None:
        machine.pop_to_mark()
        machine.push(value)

    return step


def _push_global(machine: _Machine, _: Any) -> None:
    name = machine.pop()
    machine.push_name(machine.pop(), name)


def _keep(_: _Machine, argument: Any) -> None:
    """Leave the stack as for a frame or a version."""


def _pop_item(machine: _Machine, _: Any) -> None:
    """Drop an item of a list, or the state of an object."""
    machine.pop()
    machine.top()


def _drop_items(machine: _Machine, _: Any) -> None:
    machine.pop_to_mark()
    machine.top()


def _set_one(machine: _Machine, _: Any) -> None:
    value = machine.pop()
    machine.set_items([machine.pop(), value])


#: Operations by name. Those of extensions, of buffers and of persistent ids as text are in no PyTorch file.
_STEPS: Final[Mapping[str, Callable[[_Machine, Any], object]]] = MappingProxyType(
    {
        **dict.fromkeys(("PROTO", "FRAME"), _keep),
        **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _Machine.push),
        **dict.fromkeys(("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"), _Machine.push),
        **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
        **dict.fromkeys(
            ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda machine, _: machine.push(_BYTES)
        ),
        "NONE": lambda machine, _: machine.push(None),
        "NEWTRUE": lambda machine, _: machine.push(True),
        "NEWFALSE": lambda machine, _: machine.push(False),
        "EMPTY_LIST": lambda machine, _: machine.push(_LIST),
        "EMPTY_SET": lambda machine, _: machine.push(_SET),
        "EMPTY_TUPLE": lambda machine, _: machine.push(()),
        "EMPTY_DICT": lambda machine, _: machine.push({}),
        "LIST": _replace(_LIST),
        "FROZENSET": _replace(_SET),
        "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
        "TUPLE1": lambda machine, _: machine.push((machine.pop(),)),
        "TUPLE2": lambda machine, _: _push_tuple(machine, 2),
        "TUPLE3": lambda machine, _: _push_tuple(machine, 3),
        "DICT": _push_mapping,
        "APPEND": _pop_item,
        "BUILD": _pop_item,
        **dict.fromkeys(("APPENDS", "ADDITEMS"), _drop_items),
        "SETITEM": _set_one,
        "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
        "MARK": lambda machine, _: machine.mark(),
        "POP": lambda machine, _: machine.pop_one(),
        "POP_MARK": lambda machine, _: machine.pop_to_mark(),
        "DUP": lambda machine, _: machine.push(machine.top()),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.memorize),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.recall),
        "GLOBAL": lambda machine, argument: machine.push_name(*argument.split(" ", 1)),
        "STACK_GLOBAL": _push_global,
        "INST": _push_instance,
        "OBJ": _push_object,
        **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, _: machine.call(machine.pop(), machine.pop())),
        "NEWOBJ_EX": _push_new,
        "BINPERSID": lambda machine, _: machine.load_storage(),
    }
)
