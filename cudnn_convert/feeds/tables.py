"""Rows of CSV and Parquet files, as examples of the same form as records.

A column is a feature. In CSV a cell has one value, or several apart by spaces; in Parquet it is a number, a
string, bytes or a list. Floats are float32, as in every Example (tensorflow v2.21.0 core/example/
feature.proto).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.errors import MissingDependencyError, UsageError, first_line
from cudnn_convert.feeds.features import Feature

#: A row: where it is, and the bytes of its Example.
Row = tuple[str, bytes]
_EXTRA: Final = "install it: pip install 'cudnn-convert[parquet]'"
#: Rows that are read at a time.
_ROWS: Final = 1024


def read_csv(path: Path, features: Mapping[str, Feature], *, flag: str) -> Iterator[Row]:
    """Yield the rows of a CSV file whose first line names its columns. Raises UsageError."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = csv.DictReader(stream)
            _require(f"{flag} {path}", lines.fieldnames or (), features)
            for row in lines:
                where = f"{path}: line {lines.line_num}"
                yield (
                    where,
                    _make_example(
                        {
                            feature.name: _parse_cell(row[feature.name], feature, f"{flag} {where}")
                            for feature in features.values()
                        },
                        features,
                        f"{flag} {where}",
                    ),
                )
    except (UnicodeDecodeError, csv.Error) as cause:
        raise UsageError(f"{flag} {path}: expected CSV in UTF-8, found {first_line(cause)}") from cause


def _parse_cell(text: str | None, feature: Feature, where: str) -> list[Any]:
    if text is None:
        raise UsageError(f"{where}: expected a value of {feature.name}, found the end of the line")
    if feature.kind == "bytes" and feature.coding:
        raise UsageError(f"{where}: {feature.name}: expected numbers or text in CSV, found {feature}")
    if feature.kind == "bytes":
        return [word.encode() for word in (text.split() if feature.shape else [text])]
    try:
        return [*map(float if feature.kind == "float" else int, text.split())]
    except ValueError as cause:
        raise UsageError(
            f"{where}: {feature.name}: expected numbers for {feature}, found {text!r}"
        ) from cause


def read_parquet(path: Path, features: Mapping[str, Feature], *, flag: str) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raises UsageError, MissingDependencyError without its library."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as cause:
        raise MissingDependencyError(f"{flag} {path}: expected PyArrow, found none; {_EXTRA}") from cause
    try:
        with parquet.ParquetFile(path) as file:
            size = sum(
                file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)
            )
            if context.is_bomb(size, stored := path.stat().st_size):
                expected = f"at most {context.current().expansion} times its {stored} bytes"
                raise UsageError(f"{flag} {path}: expected {expected}, found {size}; {context.raising(size)}")
            _require(f"{flag} {path}", file.schema_arrow.names, features)
            names = sorted({feature.name for feature in features.values()})
            number = 0
            for batch in file.iter_batches(_ROWS, columns=names):
                for row in batch.to_pylist():
                    where = f"{path}: row {number}"
                    values = {name: _flatten(row[name]) for name in names}
                    yield where, _make_example(values, features, f"{flag} {where}")
                    number += 1
    except (ArrowException, OSError) as cause:
        raise UsageError(f"{flag} {path}: expected Parquet, found {first_line(cause)}") from cause


def _flatten(value: Any) -> list[Any]:
    """The values of a cell in order; lists may lie in each other."""
    if not isinstance(value, list):
        return [] if value is None else [value]
    return [leaf for item in value for leaf in _flatten(item)]


def _require(where: str, columns: Sequence[str], features: Mapping[str, Feature]) -> None:
    missing = sorted({feature.name for feature in features.values()} - {*columns})
    if missing:
        raise UsageError(f"{where}: expected the columns {', '.join(missing)}, found {', '.join(columns)}")


def _make_example(values: Mapping[str, list[Any]], features: Mapping[str, Feature], where: str) -> bytes:
    """The bytes of an Example. Raises UsageError for values of another kind than their feature's."""
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
