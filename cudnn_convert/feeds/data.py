"""Reads the data of `--data`: whole calls in arrays, or examples drawn and batched.

An `.npz` has the arrays of a call, or of several as `feed<k>/KEY`; files `.npy` have one each, and are named
by their keys. With `--batch` or `--limit-examples` the first axis of these arrays lists examples. Records and
tables always have examples. Nothing in any of them is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from glob import glob, has_magic
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import UsageError
from cudnn_convert.feeds import features as feature_specs
from cudnn_convert.feeds import records
from cudnn_convert.feeds.features import InputFeature
from cudnn_convert.feeds.records import FLAG, RecordPlace
from cudnn_convert.model import Array
from cudnn_convert.options import Options
from cudnn_convert.storage import remote, staging
from cudnn_convert.weights import npz_archive

if TYPE_CHECKING:  # its module needs TensorFlow
    from cudnn_convert.feeds.pipeline import Drawing

#: Examples of a call, and in all, unless the user chooses others.
BATCH: Final = 32
EXAMPLES: Final = 64
#: Examples in all for an artifact of fixed sizes, whose numbers of 8 bits are calibrated on them.
_CALIBRATED: Final = 500
#: Examples that are drawn from, at most: the first ones, as many as also fit the memory.
_KNOWN: Final = 10_000
#: Bytes of the records of a shard, at most, and shards that data without so many have.
_SHARD: Final = 64 << 20
_SHARDS: Final = 100
#: Records that are looked at to say what a file has.
_SEEN: Final = 32
_KINDS: Final = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".parquet": "parquet",
    ".tfrecord": "records",
    ".tfrecords": "records",
}
_HEADS: Final = {b"PK\x03\x04": "npz", b"\x93NUMPY": "npy", b"PAR1": "parquet"}


@dataclass(frozen=True, slots=True)
class Data:
    """The user's data, a path, a pattern or arrays, with the settings of calls.

    The arrays are by key. The settings say how examples become calls.
    """

    pattern: Path | Mapping[str, Any]
    features: Sequence[str] = ()
    batch: int | None = None
    limit: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, options: Options, *, seed: int) -> Data | None:
        """Return the data named by options, or None."""
        if options.data is None:
            return None
        batch, limit = options.batch, options.limit_examples
        if options.has_fixed_sizes:
            batch, limit = options.rows, limit or _CALIBRATED
        return cls(options.data, options.features, batch, limit, seed)

    def __str__(self) -> str:
        return FLAG if isinstance(self.pattern, Mapping) else f"{FLAG} {self.name}"

    @property
    def name(self) -> str:
        """The name of the data in a report."""
        return "the given arrays" if isinstance(self.pattern, Mapping) else remote.name_of(self.pattern)

    def match(self) -> list[Path]:
        """Return the matching files, in order of name.

        They may lie in a store. Raises UsageError for the address of another kind of store, AccessError.
        """
        if isinstance(self.pattern, Mapping):
            return []
        text = str(self.pattern)
        remote.check(self.pattern)
        if remote.address_of(self.pattern):
            return remote.match(self.pattern) if has_magic(text) else [self.pattern]
        # A name may have the characters of a pattern.
        names = [text] if self.pattern.is_file() else sorted(glob(text, recursive=True))  # noqa: PTH207
        return [Path(name) for name in names if Path(name).is_file()]

    def describe(self) -> DataCalls:
        """Return the calls of data with files read elsewhere."""
        return DataCalls(str(self), [], self.name)


@dataclass(frozen=True, slots=True)
class DataCalls:
    """The arrays of each call by key; `where` names the data in messages.

    `summary` is what a report says of it: its name, and what was drawn where examples are left.
    """

    where: str
    feeds: list[dict[str, Array]]
    summary: str


#: Some of the calls, read apart from the others: a file of them, or where the records of each are.
Shard = Path | tuple[tuple[RecordPlace, ...], ...]


def share_out(data: Data) -> tuple[list[Shard], DataCalls]:
    """Return the shards of the user's data, and the described calls.

    The shards' calls in order are those of `read_calls`; the described calls have no feeds. Raises UsageError
    for tables and examples in arrays, and where records are damaged.
    """
    files = data.match()
    if not files:
        raise UsageError(f"{data}: expected a pattern that matches .npz files or records, found nothing")
    kind = _find_one_kind(data, files)
    if kind == "records":
        places, count = _find_places(data, files, feature_specs.parse_features(data.features))
        drawing = _choose(data, known=len(places))
        return [*_cut(places, drawing)], _describe(data, count, drawing, [])
    if kind != "npz" or data.batch or data.limit:
        what = "expected records, or calls in .npz files, found"
        raise UsageError(
            f"{data}: --jobs: {what} {'examples' if kind == 'npz' else f'.{kind}'}; leave it out"
        )
    return [*files], data.describe()


def _cut(places: Sequence[RecordPlace], drawing: Drawing) -> Iterator[Shard]:
    """Cut the drawn calls into shards."""
    from cudnn_convert.feeds import pipeline

    most = -(-drawing.calls // _SHARDS)
    shard: list[tuple[RecordPlace, ...]] = []
    size = 0
    for numbers in pipeline.draw_numbers(drawing):
        call = tuple(places[number] for number in numbers)
        length = sum(record.length for record in call)
        if shard and (len(shard) == most or size + length > _SHARD):
            yield tuple(shard)
            shard, size = [], 0
        shard.append(call)
        size += length
    yield tuple(shard)


def read_shard(data: Data, shard: Shard) -> DataCalls:
    """Read the calls of a shard. Raises UsageError."""
    if isinstance(shard, Path):
        return read_calls(replace(data, pattern=shard))
    from cudnn_convert.feeds import pipeline

    features, places = feature_specs.parse_features(data.features), [*chain.from_iterable(shard)]
    drawing = pipeline.Drawing(len(places), len(places), len(shard[0]), None)
    examples = pipeline.hold(records.read(places))
    feeds = pipeline.batch_examples(examples, drawing, features, lambda k: str(places[k]))
    return DataCalls(str(data), feeds, data.name)


def read_calls(data: Data) -> DataCalls:
    """Read the calls of a user's data. Raises UsageError, MissingDependencyError."""
    if isinstance(data.pattern, Mapping):
        return _read_arrays(data, [], "npz")
    files = data.match()
    if not files:
        raise UsageError(f"{data}: expected a file, or a pattern that matches files, found nothing")
    with ExitStack() as stack:
        files = [stack.enter_context(staging.local_copy(file)) for file in files]
        kind = _find_one_kind(data, files)
        read = _read_arrays if kind in ("npz", "npy") else _read_examples
        try:
            return read(data, files, kind)
        except OSError as cause:
            raise UsageError(f"{data}: cannot read {cause.filename}: {cause.strerror or cause}") from cause


def _find_one_kind(data: Data, files: Sequence[Path]) -> str:
    kinds = sorted({*map(_find_kind, files)})
    if len(kinds) > 1:
        raise UsageError(f"{data}: expected files of one kind, found {', '.join(kinds)}")
    return kinds[0]


def _find_kind(path: Path) -> str:
    """Return the kind of a file, by suffix or else by first bytes.

    Any other file is `npz`, whose reader refuses it.
    """
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in _KINDS:
        return _KINDS[suffixes[-1]]
    with staging.local_copy(path) as local:
        try:
            with local.open("rb") as stream:
                head = stream.read(8)
        except OSError:
            return "npz"
        known = (kind for begin, kind in _HEADS.items() if head.startswith(begin))
        return next(known, "records" if records.is_records(local) else "npz")


def _read_arrays(data: Data, files: Sequence[Path], kind: str) -> DataCalls:
    if data.features:
        actual = f"{files[0]}, which has types" if files else data.name
        raise UsageError(f"--features: expected records or tables, found {actual}; leave it out")
    if isinstance(data.pattern, Mapping):
        arrays = npz_archive.load_user_arrays(data.pattern, flag=FLAG, strings=True)
        feeds = npz_archive.calls(arrays, where=FLAG)
    elif kind == "npy":
        arrays = {file.stem: npz_archive.load_array(file, flag=FLAG) for file in files}
        feeds = [arrays]
    else:
        feeds = [
            call
            for file in files
            for call in npz_archive.calls(
                npz_archive.load_user_arrays(file, flag=FLAG, strings=True), where=f"{FLAG} {file}"
            )
        ]
    if data.batch is None and data.limit is None:
        return DataCalls(str(data), feeds, data.name)
    rows = _join_rows(feeds, data)
    count = len(next(iter(rows.values()), ()))
    drawing = _choose(data, known=count)
    from cudnn_convert.feeds import pipeline

    drawn = pipeline.draw_numbers(drawing)
    feeds = [{key: value[numbers] for key, value in rows.items()} for numbers in drawn]
    return _describe(data, count, drawing, feeds)


def _join_rows(feeds: Sequence[Mapping[str, Array]], data: Data) -> dict[str, Array]:
    """Join all calls along the first axis.

    Raises UsageError where that axis does not list examples.
    """
    keys = feeds[0].keys()
    for call in feeds:
        sizes = {key: value.shape[0] if value.ndim else None for key, value in call.items()}
        if call.keys() != keys or len({*sizes.values()}) > 1 or None in sizes.values():
            actual = ", ".join(f"{key} {[*value.shape]}" for key, value in call.items())
            raise UsageError(
                f"{data}: expected arrays whose first axis lists the same examples, found {actual}"
            )
    try:
        return {key: np.concatenate([call[key] for call in feeds]) for key in keys}
    except ValueError as cause:
        raise UsageError(
            f"{data}: expected arrays that differ in their number of rows alone, found other shapes"
        ) from cause


def _choose(data: Data, *, known: int) -> Drawing:
    """Choose the examples of the calls.

    Those of one call stay in their order, more are shuffled.
    """
    from cudnn_convert.feeds import pipeline

    size, taken = data.batch or BATCH, min(known, data.limit or EXAMPLES)
    if not taken:
        raise UsageError(f"{data}: expected at least one example, found none")
    is_single = taken == known and taken <= size
    return pipeline.Drawing(known, taken, size, None if is_single else data.seed)


def _describe(data: Data, count: int, drawing: Drawing, feeds: list[dict[str, Array]]) -> DataCalls:
    """Describe the calls drawn from `count` examples.

    A `count` of -1 is an unknown number.
    """
    if drawing.taken == count:
        return DataCalls(str(data), feeds, data.name)
    of = f"{count:,}" if count >= 0 else f"more than {drawing.known:,}"
    what = f"{drawing.taken:,} of {of} examples, in {drawing.calls} calls of at most {drawing.batch}"
    return DataCalls(str(data), feeds, f"{data.name}: {what} (--limit-examples, --batch)")


def _read_examples(data: Data, files: Sequence[Path], kind: str) -> DataCalls:
    features = feature_specs.parse_features(data.features)
    if kind == "records":
        return _read_records(data, files, features)
    if not features:
        raise UsageError(
            f"{data}: expected a column for each input, found none chosen; give --features KEY=TYPE[SHAPE]"
        )
    reader = records.READERS[kind]
    columns = {key: feature for key, feature in features.items() if feature.length_of is None}
    rows = chain.from_iterable(reader(file, columns) for file in files)
    most = max(_KNOWN, data.limit or 0)
    known = [*islice(rows, most)]
    count = len(known) if next(rows, None) is None else -1
    drawing = _choose(data, known=len(known))
    from cudnn_convert.feeds import pipeline

    examples = pipeline.hold([example for _, example in known])
    feeds = pipeline.batch_examples(examples, drawing, features, lambda k: known[k][0])
    return _describe(data, count, drawing, feeds)


def _read_records(data: Data, files: Sequence[Path], features: Mapping[str, InputFeature]) -> DataCalls:
    places, count = _find_places(data, files, features)
    drawing = _choose(data, known=len(places))
    from cudnn_convert.feeds import pipeline

    examples = pipeline.read_records(places)
    try:
        feeds = pipeline.batch_examples(examples, drawing, features, lambda k: str(places[k]))
    except UsageError:
        # Bytes that do not fit their checksum are named before what they are read as.
        for file in dict.fromkeys(record.path for record in places):
            for _ in records.scan(file, values=True):
                pass
        raise
    return _describe(data, count, drawing, feeds)


def _find_places(
    data: Data, files: Sequence[Path], features: Mapping[str, InputFeature]
) -> tuple[list[RecordPlace], int]:
    """Find the places of the records to draw from, and the number of records.

    The number is -1 where there are more. Where there are more, files are taken in an order of their own, so
    that the first do not stand for all. Raises UsageError where `features` are none.
    """
    most = max(_KNOWN, data.limit or 0)
    places, count = _take_first(files, most)
    if count < 0 and len(files) > 1:
        shuffled = np.random.default_rng(data.seed).permutation(np.array(files, object)).tolist()
        places, count = _take_first(shuffled, most)
    if places and not features:
        raise _ask_for_features(data, places)
    return places, count


def _take_first(files: Sequence[Path], most: int) -> tuple[list[RecordPlace], int]:
    """Find the first records, and count all; the number is -1 where there are more."""
    places: list[RecordPlace] = []
    size = 0
    for record in chain.from_iterable(map(_scan, files)):
        if len(places) == most or (places and size + record.length > context.current().expanded):
            return places, -1
        places.append(record)
        size += record.length
    return places, len(places)


def _scan(file: Path) -> Iterator[RecordPlace]:
    """Yield the places of the records in a file, local or in a store."""
    with staging.local_copy(file) as local:
        for record in records.scan(local):
            yield record if local is file else replace(record, path=file)


def _ask_for_features(data: Data, places: Sequence[RecordPlace]) -> UsageError:
    examples = records.read(places[:_SEEN])
    for record, example in zip(places, examples, strict=False):
        if fault := records.find_fault(example, {}):
            return UsageError(f"{FLAG} {record}: {fault}")
    import tensorflow as tf

    has = records.describe(tf.train.Example.FromString(examples[0]))
    suggested = records.suggest(examples)
    cure = f"; give --features '{suggested}', with the model's keys" if suggested else ""
    return UsageError(
        f"{data}: expected --features for records, found none, and the first record has {has}{cure}"
    )
