"""Mistakes in what reads a user's data and compares models: each must change what is read, said or compared.

A mutant is a module whose text has one change.
"""

from __future__ import annotations

import gzip
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.record_files import example, record

from cudnn_convert import feeds
from cudnn_convert.benchmark import answers, rounds
from cudnn_convert.errors import UsageError
from cudnn_convert.feeds import data, pipeline, records

RNG = np.random.default_rng(6)
#: Examples, each told by its first id.
STEPS = [3, 1, 4, 2, 2, 5, 1, 3, 2, 4, 1]
FRAMES = [RNG.normal(size=(steps, 3)).astype(np.float32) for steps in STEPS]
BITS = RNG.integers(0, 2, (len(STEPS), 11)).astype(np.uint8)
IDS = np.stack([np.arange(len(STEPS)) + 20, RNG.integers(60, 90, len(STEPS))], 1)
FEATURES = '{"x": {"type": "float32", "shape": ["?", 3], "pad": -2}, "n": "lengths:x", "ids": "int64[2]", '
FEATURES += '"more": {"type": "int64", "shape": [2], "feature": "other"}, "bits": "bits[11]/2"}'

#: By module: what a mistake is called, the text that is there, and the text that would be wrong.
PIPELINE = {
    "a seed that is ignored": ("drawing.seed, reshuffle", "1, reshuffle"),
    "examples in the files' order": ("if drawing.seed is not None:", "if False:"),
    "the last batch dropped": (".batch(drawing.batch)", ".batch(drawing.batch, drop_remainder=True)"),
    "more examples than asked for": ("numbered.take(drawing.taken)", "numbered"),
    "another feature": (
        "value = parsed[feature.name]",
        'value = parsed[feature.name.replace("other", "ids")]',
    ),
    "the lowest bit first": ("[128, 64, 32, 16, 8, 4, 2, 1]", "[1, 2, 4, 8, 16, 32, 64, 128]"),
    "a divisor that multiplies": ("value / np.asarray", "value * np.asarray"),
    "padding with zeros": ("value.to_tensor(pad)", "value.to_tensor()"),
    "lengths of the padded": (
        "values[feature.key] = values[feature.length_of + _STEPS]",
        "values[feature.key] = tf.ones_like(values[feature.length_of + _STEPS]) * 5",
    ),
    "compressed records as they are": ('"GZIP" if compressed else ""', '""'),
    "the record before": ("locate(int(number))", "locate(int(number) - 1)"),
}
RECORDS = {
    "records one byte later": (
        "yield RecordPlace(path, offset, length)",
        "yield RecordPlace(path, offset + 1, length)",
    ),
    "shards in the files' order": ("[contents[record] for record in places]", "[*contents.values()]"),
    "damaged bytes": ('if int.from_bytes(tail, "little") != mask_crc(crc)', "if False"),
}
DATA = {
    "the last shard lost": ("        size += length\n    yield tuple(shard)", "        size += length"),
    "shards of other calls": (
        "len(places), len(places), len(shard[0])",
        "len(places), len(places), len(places)",
    ),
}
ANSWERS = {
    "integers that differ": ("if not np.array_equal(value, other):", "if False:"),
    "later calls": ("zip(first, calls, strict=True)", "zip(first[:1], calls[:1], strict=True)"),
    "outputs of other names": (
        "named[bare(key)]) for key, value in expected",
        "value) for key, value in expected",
    ),
}
RATIOS = {
    "ratios of other rounds": ("zip(upper, lower, strict=True)", "zip(upper, lower[::-1], strict=True)"),
    "slower as faster": ("a / b for", "b / a for"),
}


def change(module: ModuleType, mistakes: Mapping[str, tuple[str, str]], mistake: str) -> Any:
    """The module with a mistake."""
    file = Path(str(module.__file__))
    right, wrong = mistakes[mistake]
    text = file.read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{text.count(right)} places"
    spec = importlib.util.spec_from_loader(module.__name__, loader=None)
    assert spec is not None
    mutant = importlib.util.module_from_spec(spec)
    mutant.__file__ = str(file)
    with pytest.MonkeyPatch.context() as patch:  # dataclasses look their module up
        patch.setitem(sys.modules, module.__name__, mutant)
        exec(compile(text.replace(right, wrong), str(file), "exec"), mutant.__dict__)
    return mutant


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of records, one of which is compressed; and two whose fourth record is damaged."""
    folder = tmp_path_factory.mktemp("records")
    whole = [
        record(
            example(
                {
                    "x": frames.ravel(),
                    "ids": ids,
                    "other": ids[::-1] + 100,
                    "bits": [np.packbits(bits).tobytes()],
                }
            )
        )
        for frames, ids, bits in zip(FRAMES, IDS, BITS, strict=True)
    ]
    (folder / "a.tfrecord.gz").write_bytes(gzip.compress(b"".join(whole[:5])))
    (folder / "b.tfrecord").write_bytes(b"".join(whole[5:]))
    (folder / "lacks").write_bytes(b"".join([*whole[:3], record(example({"ids": [1, 2]}))]))
    (folder / "damaged").write_bytes(b"".join([*whole[:3], whole[3][:-9] + b"\0" + whole[3][-8:]]))
    return folder


def check_feeds(read: Any, folder: Path) -> None:
    """Whether what is read is what was written."""
    for name, said in (("lacks", "expected the feature"), ("damaged", "found damaged ones")):
        with pytest.raises(UsageError) as caught:
            read.read_shard(given(folder / name), read.share_out(given(folder / name))[0][0])
        place = [*records.scan(folder / name)][3].offset
        assert f"{name}: record at byte {place}: " in str(caught.value) and said in str(caught.value)
    orders = []
    for seed in (3, 4):
        calls = read.read_calls(given(folder / "*.tfrecord*", seed))
        assert [len(feed["n"]) for feed in calls.feeds] == [4, 4, 2]
        orders.append([int(row) - 20 for feed in calls.feeds for row in feed["ids"][:, 0]])
        assert len({*orders[-1]}) == 10 and orders[-1] != sorted(orders[-1])
        for feed in calls.feeds:
            for row, ids in enumerate(feed["ids"]):
                number = int(ids[0]) - 20
                steps, x = STEPS[number], feed["x"][row]
                assert feed["n"][row] == steps and x.shape[0] == feed["n"].max()
                np.testing.assert_array_equal(x[:steps], FRAMES[number])
                assert (x[steps:] == -2).all()
                np.testing.assert_array_equal(feed["bits"][row], BITS[number] / 2)
                np.testing.assert_array_equal(feed["more"][row], IDS[number][::-1] + 100)
    assert orders[0] != orders[1]
    every = given(folder / "*.tfrecord*", 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_SHARDS", 2)
        shards = read.share_out(every)[0]
        apart = [feed for shard in shards for feed in read.read_shard(every, shard).feeds]
    assert len(shards) == 2
    for feed, other in zip(apart, calls.feeds, strict=True):
        for key, value in feed.items():
            np.testing.assert_array_equal(value, other[key])


def given(pattern: Path, seed: int = 3) -> data.Data:
    return data.Data(pattern, [FEATURES], batch=4, limit=10, seed=seed)


def test_feeds_without_a_mistake(folder: Path) -> None:
    check_feeds(data, folder)


@pytest.mark.parametrize(
    ("module", "mistake"),
    [
        pytest.param(module, mistake, marks=pytest.mark.mutant(f"feeds: {mistake}"), id=mistake)
        for module, mistakes in ((pipeline, PIPELINE), (records, RECORDS), (data, DATA))
        for mistake in mistakes
    ],
)
def test_a_mistake_in_feeds(
    module: ModuleType, mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = change(module, PIPELINE | RECORDS | DATA, mistake)
    if module is records:
        monkeypatch.setattr(data, "records", mutant)
    if module is pipeline:
        monkeypatch.setattr(feeds, "pipeline", mutant)
    with pytest.raises(Exception) as caught:
        check_feeds(mutant if module is data else data, folder)
    assert not isinstance(caught.value, NameError | SyntaxError | AttributeError)


def check_benchmark(compared: Any, times: Any, folder: Path) -> None:
    """Whether answers that differ are seen, and ratios are of the same round."""
    value, ids = np.array([1.5, -2], np.float32), np.array([1, 2])
    calls = [{"y": value, "ids": ids}, {"y": value, "ids": ids}]
    for k, (call, said) in enumerate(
        (
            ({"y": value + 1, "ids": ids}, "output y: 1.0e+00 apart"),
            ({"y": value, "ids": ids + 1}, "output ids: other values"),
            ({"ids": ids, "y": value}, None),
        )
    ):
        paths = [folder / f"{k}_{name}.npz" for name in "ab"]
        compared.write_calls(paths[0], calls)
        compared.write_calls(paths[1], [calls[0], call])
        assert compared.compare_files(paths, atol=1e-3, rtol=1e-3) == [None, said]
    found = times.ratio([2.0, 8.0, 40.0], [1.0, 4.0, 10.0])
    assert (found.median, found.low, found.high) == (2, 2, 4)


def test_a_benchmark_without_a_mistake(tmp_path: Path) -> None:
    check_benchmark(answers, rounds, tmp_path)


@pytest.mark.parametrize(
    ("module", "mistake"),
    [
        pytest.param(module, mistake, marks=pytest.mark.mutant(f"benchmark: {mistake}"), id=mistake)
        for module, mistakes in ((answers, ANSWERS), (rounds, RATIOS))
        for mistake in mistakes
    ],
)
def test_a_mistake_in_a_benchmark(module: ModuleType, mistake: str, tmp_path: Path) -> None:
    mutant = change(module, ANSWERS | RATIOS, mistake)
    compared, times = (mutant, rounds) if module is answers else (answers, mutant)
    with pytest.raises(AssertionError):
        check_benchmark(compared, times, tmp_path)
