"""Reads examples from files: TFRecords, and rows of CSV and Parquet files.

A record is its length as uint64, the masked CRC-32C of the length, the bytes, the masked CRC-32C of these
(tensorflow v2.21.0 tsl/lib/io/record_writer.h). TensorFlow allocates what a length says before it reads; so
the lengths of the records that will be read are checked first, and compressed files are expanded once to see
how large they become.

A column of a table is a feature. In CSV a cell has one value, or several apart by spaces; in Parquet it is a
number, a string, bytes or a list. Floats are float32, as in every Example (tensorflow v2.21.0 core/example/
feature.proto).
"""

import csv
import gzip
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import MissingDependencyError, UsageError
from cudnn_convert.feeds.features import InputFeature
from cudnn_convert.read.tensorbundle.tables import extend_crc, mask_crc
from cudnn_convert.storage import staging
from cudnn_convert.text import first_line

FLAG: Final = "--data"
_GZIP: Final = b"\x1f\x8b"
_HEAD: Final = struct.Struct("<QI")
_TAIL: Final = 4
#: Bytes that are expanded at a time.
_CHUNK: Final = 1 << 20
_AGAIN: Final = "write it again"


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a record: file, offset and length in bytes.

    The offset is that of its head in the expanded bytes.
    """

    path: Path
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.path}: record at byte {self.offset}"


def is_compressed(path: Path) -> bool:
    """Return True if a file is compressed by gzip."""
    with path.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP


def is_records(path: Path) -> bool:
    """Return True if a file begins with a record's head."""
    try:
        with _open(path) as stream:
            head = stream.read(_HEAD.size)
    except (OSError, EOFError, zlib.error):
        return False
    return len(head) == _HEAD.size and _is_sound(head)


def scan(path: Path, *, values: bool = False) -> Iterator[RecordPlace]:
    """Yield the place of each record of a file.

    With `values` the bytes of each record are checked too. Raises UsageError for a head that is wrong, a file
    that ends early, or more bytes than the limits allow.
    """
    stored = path.stat().st_size
    compressed = is_compressed(path)
    try:
        with _open(path) as stream:
            offset = 0
            while head := stream.read(_HEAD.size):
                where = f"{FLAG} {path}: record at byte {offset}"
                if len(head) < _HEAD.size or not _is_sound(head):
                    what = "the end of the file" if len(head) < _HEAD.size else "a length that is damaged"
                    raise UsageError(f"{where}: expected the head of a record, found {what}; {_AGAIN}")
                length, end = _HEAD.unpack(head)[0], offset + _HEAD.size + _TAIL
                if not compressed and end + length > stored:
                    raise _too_short(where, length, stored - end + _TAIL)
                _check_bytes(stream, length, where, values=values or compressed)
                if compressed and context.is_bomb(end + length, stored):
                    raise _explain_bomb(path, stream.seek(0, os.SEEK_END))
                yield RecordPlace(path, offset, length)
                offset = end + length
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise UsageError(
            f"{FLAG} {path}: expected a complete gzip file, found a damaged one; {_AGAIN}"
        ) from cause


def read(places: Sequence[RecordPlace]) -> list[bytes]:
    """Read the bytes of records found by `scan`, in the given order.

    Raises UsageError for damaged records.
    """
    contents: dict[RecordPlace, bytes] = {}
    in_order = sorted(places, key=lambda record: (str(record.path), record.offset))
    for path, of_file in groupby(in_order, key=lambda record: record.path):
        with staging.local_copy(path) as local, _open(local) as stream:
            for record in of_file:
                where = f"{FLAG} {local}: record at byte {record.offset}"
                stream.seek(record.offset)
                head = stream.read(_HEAD.size)
                if head[:8] != record.length.to_bytes(8, "little"):
                    raise UsageError(
                        f"{where}: expected {record.length} bytes as before, found that the file changed"
                    )
                data, tail = stream.read(record.length), stream.read(_TAIL)
                if len(data) < record.length or len(tail) < _TAIL:
                    raise _too_short(where, record.length, len(data) + len(tail))
                _require_checksum(where, _extend(0, data), tail)
                contents[record] = data
    return [contents[record] for record in places]


def _open(path: Path) -> Any:
    """Open a stream of the expanded bytes of a file."""
    return gzip.open(path) if is_compressed(path) else path.open("rb")


def _is_sound(head: bytes) -> bool:
    return mask_crc(_extend(0, head[:8])) == int.from_bytes(head[8:], "little")


def _extend(crc: int, data: bytes) -> int:
    return extend_crc(crc, np.frombuffer(data, np.uint8))


def _explain_bomb(path: Path, size: int) -> UsageError:
    """Return the error for a file of too many expanded bytes, with the limit needed."""
    most, stored = context.current().expansion, path.stat().st_size
    expected = f"a file that unpacks to at most {most} times its {stored} bytes"
    return UsageError(f"{FLAG} {path}: expected {expected}, found {size} bytes; {context.raising(size)}")


def _too_short(where: str, length: int, there: int) -> UsageError:
    return UsageError(
        f"{where}: expected {length + _TAIL} bytes, found {there} to the end of the file; {_AGAIN}"
    )


def _check_bytes(stream: Any, length: int, where: str, *, values: bool) -> None:
    """Pass over the bytes and the checksum of a record.

    With `values` the two are compared.
    """
    if not values:
        stream.seek(length + _TAIL, 1)
        return
    left, crc = length, 0
    while left and (chunk := stream.read(min(left, _CHUNK))):
        crc, left = _extend(crc, chunk), left - len(chunk)
    tail = stream.read(_TAIL)
    if left or len(tail) < _TAIL:
        raise _too_short(where, length, length - left + len(tail))
    _require_checksum(where, crc, tail)


def _require_checksum(where: str, crc: int, tail: bytes) -> None:
    if int.from_bytes(tail, "little") != mask_crc(crc):
        raise UsageError(f"{where}: expected bytes that match their checksum, found damaged ones; {_AGAIN}")


def describe(example: Any) -> str:
    """Return the features of an Example as text, with kinds and numbers of values."""
    features = example.features.feature
    names = (f"{name} {_describe_values(features[name])}" for name in sorted(features))
    return ", ".join(names) or "no features"


def _describe_values(feature: Any) -> str:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return "without values"
    values = getattr(feature, kind).value
    sizes = f" of {len(values[0])} bytes" if kind == "bytes_list" and len(values) == 1 else ""
    return f"{kind.removesuffix('_list')}[{len(values)}]{sizes}"


def suggest(examples: list[bytes]) -> str:
    """Return a value of `--features` for all features of some examples.

    It is empty where they have none.
    """
    import tensorflow as tf

    parsed = [tf.train.Example.FromString(each).features.feature for each in examples]
    items = []
    for name in sorted({name for features in parsed for name in features}):
        kinds = {features[name].WhichOneof("kind") for features in parsed if name in features}
        kind = next(iter(kinds)) if len(kinds) == 1 else None
        if kind is None or "," in name or "=" in name:
            continue
        counts = {_count(features[name], kind) for features in parsed if name in features}
        size = str(*counts) if len(counts) == 1 and 0 not in counts else "?"
        of = {"float_list": "float32", "int64_list": "int64", "bytes_list": "bytes:uint8"}[kind]
        items.append(f"{name}={of}[{size}]")
    return ",".join(items)


def _count(feature: Any, kind: str) -> int:
    values = getattr(feature, kind).value
    return len(values[0]) if kind == "bytes_list" and len(values) == 1 else len(values)


def find_fault(serialized: bytes, features: Mapping[str, InputFeature]) -> str | None:
    """Return the fault of an Example for the features, or None."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        example = tf.train.Example.FromString(serialized)
    except DecodeError:
        return "expected a tf.train.Example, found bytes that are not one"
    for feature in features.values():
        if feature.name not in example.features.feature:
            return f"expected the feature {feature.name}, found {describe(example)}"
        if fault := _find_fault(example.features.feature[feature.name], feature):
            return f"feature {feature.name}: {fault}; the record has {describe(example)}"
    return None


def _find_fault(values: Any, feature: InputFeature) -> str | None:
    kind = values.WhichOneof("kind")
    if feature.length_of is not None or (kind is None and feature.is_variable):
        return None
    if kind != f"{feature.kind}_list":
        return f"expected {feature.kind} for {feature}, found {_describe_values(values)}"
    given = getattr(values, kind).value
    if feature.coding and len(given) != 1:
        return f"expected one string for {feature}, found {len(given)}"
    count = len(given[0]) if feature.coding else len(given)
    step, unit = (feature.bytes_per_step, "bytes") if feature.coding else (feature.inner, "values")
    if feature.is_variable and count % step:
        return f"expected a multiple of {step} {unit} for {feature}, found {count}"
    if not feature.is_variable and count != step:
        return f"expected {step} {unit} for {feature}, found {count}"
    return None


#: A row: where it is, and the bytes of its Example.
Row = tuple[str, bytes]
_EXTRA: Final = "install it: pip install 'cudnn-convert[parquet]'"
#: Rows that are read at a time.
_ROWS: Final = 1024


def read_csv(path: Path, features: Mapping[str, InputFeature]) -> Iterator[Row]:
    """Yield the rows of a CSV file with column names. Raises UsageError.

    The first line names the columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:  # Excel marks its UTF-8
            lines = csv.DictReader(stream)
            _require(f"{FLAG} {path}", lines.fieldnames or (), features)
            for row in lines:
                where = f"{path}: line {lines.line_num}"
                values = {
                    feature.name: _parse_cell(row[feature.name], feature, f"{FLAG} {where}")
                    for feature in features.values()
                }
                yield where, _make_example(values, features, f"{FLAG} {where}")
    except (UnicodeDecodeError, csv.Error) as cause:
        raise UsageError(
            f"{FLAG} {path}: expected CSV in UTF-8, found an error: {first_line(cause)}"
        ) from cause


def _parse_cell(text: str | None, feature: InputFeature, where: str) -> list[Any]:
    if text is None:
        raise UsageError(f"{where}: expected a value of {feature.name}, found the end of the line")
    if feature.coding:
        raise UsageError(f"{where}: {feature.name}: expected numbers or text in CSV, found {feature}")
    if feature.kind == "bytes":
        return [word.encode() for word in (text.split() if feature.shape else [text])]
    return [_parse_number(word, feature, where) for word in text.split()]


def _parse_number(word: str, feature: InputFeature, where: str) -> float:
    try:
        return float(word) if feature.kind == "float" else int(word)
    except ValueError as cause:
        raise UsageError(
            f"{where}: {feature.name}: expected numbers for {feature}, found {word!r}"
        ) from cause


def read_parquet(path: Path, features: Mapping[str, InputFeature]) -> Iterator[Row]:
    """Yield the rows of a Parquet file.

    Raises UsageError, and MissingDependencyError without the library PyArrow.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as cause:
        raise MissingDependencyError(
            f"{FLAG} {path}: expected PyArrow, found that it is not installed; {_EXTRA}"
        ) from cause
    try:
        with parquet.ParquetFile(path) as file:
            size = sum(
                file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)
            )
            if context.is_bomb(size, path.stat().st_size):
                raise _explain_bomb(path, size)
            _require(f"{FLAG} {path}", file.schema_arrow.names, features)
            names = sorted({feature.name for feature in features.values()})
            batches = file.iter_batches(_ROWS, columns=names)
            rows = chain.from_iterable(batch.to_pylist() for batch in batches)
            for number, row in enumerate(rows):
                where = f"{path}: row {number}"
                values = {name: _flatten(row[name]) for name in names}
                yield where, _make_example(values, features, f"{FLAG} {where}")
    except (ArrowException, OSError) as cause:
        raise UsageError(
            f"{FLAG} {path}: expected a Parquet file, found an error: {first_line(cause)}"
        ) from cause


def _flatten(value: Any) -> list[Any]:
    """Return the values of a cell, with nested lists flattened in order."""
    if not isinstance(value, list):
        return [] if value is None else [value]
    return [leaf for item in value for leaf in _flatten(item)]


def _require(where: str, columns: Sequence[str], features: Mapping[str, InputFeature]) -> None:
    """Raise UsageError if a feature has a missing or repeated column."""
    for name in (feature.name for feature in features.values()):
        if columns.count(name) > 1:
            raise UsageError(f"{where}: expected one column {name}, found {columns.count(name)}")
    missing = sorted({feature.name for feature in features.values()} - {*columns})
    if missing:
        raise UsageError(f"{where}: expected the columns {', '.join(missing)}, found {', '.join(columns)}")


def _make_example(values: Mapping[str, list[Any]], features: Mapping[str, InputFeature], where: str) -> bytes:
    """Return the bytes of an Example.

    Raises UsageError for values of another kind than their feature's.
    """
    import tensorflow as tf

    example = tf.train.Example()
    for feature in features.values():
        given = values[feature.name]
        listed = getattr(example.features.feature[feature.name], f"{feature.kind}_list").value
        try:
            listed[:] = [each.encode() if isinstance(each, str) else each for each in given]
        except (TypeError, ValueError) as cause:
            actual = f"{first_line(cause)}: {', '.join(map(repr, islice(given, 3)))}"
            raise UsageError(f"{where}: {feature.name}: expected {feature}, found {actual}") from cause
    return bytes(example.SerializeToString())


READERS: Final = {"csv": read_csv, "parquet": read_parquet}
