"""Parses CNTK's dictionaries, the protobuf messages of models.

A file is one message Dictionary. From 2 GiB on it is `ktnc` and the size of the message, in 32 bits each, the
message without the values of its arrays, and these values, little-endian and in the order of the arrays.

The classes are made at run time. Two fields are declared otherwise than in CNTK, for the same bytes: a map is
a list of its entries, so that none is lost, and packed numbers are bytes, so that none is copied.
Source: CNTK v2.7 Source/CNTKv2LibraryDll/proto/CNTK.proto; Source/CNTKv2LibraryDll/Serialization.cpp
Serializer::Write, ParseMessage, WriteNDArrayViewData.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: The fields of each message: name, number and type; a list's type ends in *.
_MESSAGES: Final = {
    "NDShape": (("shape_dim", 1, "uint64*"),),
    "Values": (("value", 1, "bytes*"),),
    "NDArrayView": (
        ("data_type", 1, "int32"),
        ("storage_format", 2, "int32"),
        ("shape", 3, "NDShape"),
        ("float_values", 4, "Values"),
        ("double_values", 5, "Values"),
    ),
    "Vector": (("value", 1, "DictionaryValue*"),),
    "Entry": (("key", 1, "string"), ("value", 2, "DictionaryValue")),
    "Dictionary": (("version", 1, "uint64"), ("data", 2, "Entry*")),
    "DictionaryValue": (
        ("version", 1, "uint64"),
        ("value_type", 2, "int32"),
        ("bool_value", 3, "bool"),
        ("int_value", 4, "int32"),
        ("size_t_value", 5, "uint64"),
        ("string_value", 8, "string"),
        ("nd_shape_value", 9, "NDShape"),
        ("vector_value", 11, "Vector"),
        ("dictionary_value", 12, "Dictionary"),
        ("nd_array_view_value", 13, "NDArrayView"),
    ),
}
#: The field that a type of a DictionaryValue has its value in.
_FIELDS: Final = {
    **{1: "bool_value", 2: "int_value", 3: "size_t_value", 6: "string_value", 7: "nd_shape_value"},
    **{9: "vector_value", 10: "dictionary_value", 11: "nd_array_view_value"},
}
_PACKAGE: Final = "cudnn_convert.cntk"


@cache
def message_class() -> Any:
    """Return the class of the message Dictionary."""
    field_proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="cntk.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        added = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = field_proto.LABEL_REPEATED if kind.endswith("*") else field_proto.LABEL_OPTIONAL
            single = kind.rstrip("*")
            field = added.field.add(name=name, number=number, label=label)
            if single in _MESSAGES:
                field.type, field.type_name = field_proto.TYPE_MESSAGE, f".{_PACKAGE}.{single}"
            else:
                field.type = getattr(field_proto, f"TYPE_{single.upper()}")
    pool = descriptor_pool.DescriptorPool()  # its own: the names are not to meet those of CNTK
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Dictionary"))


def values(dictionary: Any) -> dict[str, Any]:
    """Return the values of a dictionary by key. Raises ValueError for a repeated key."""
    entries = {entry.key: value(entry.value) for entry in dictionary.data}
    if len(entries) < len(dictionary.data):
        raise ValueError("a key twice")
    return entries


def value(holder: Any) -> Any:
    """Return the value of a DictionaryValue: a number, a text or a message.

    None for other types.
    """
    field = _FIELDS.get(holder.value_type)
    return None if field is None else getattr(holder, field)


def members(vector: Any) -> list[Any]:
    """Return the values of a Vector; empty for any other message."""
    return [value(holder) for holder in getattr(vector, "value", ())]


def count_arrays(dictionary: Any) -> int:
    """Return the number of arrays anywhere in a dictionary."""
    return sum(1 for each in _walk(dictionary) if hasattr(each, "storage_format"))


def _walk(dictionary: Any) -> Iterator[Any]:
    """Yield all values of a dictionary, nested ones too."""
    waiting = [dictionary]
    while waiting:
        each = waiting.pop()
        yield each
        if hasattr(each, "data"):
            waiting += [value(entry.value) for entry in each.data]
        elif hasattr(each, "value"):
            waiting += members(each)
