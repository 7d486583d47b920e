"""Features: what each kind makes of an example's values, and what says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.examples import (
    BITS,
    FRAMES,
    IDS,
    IMAGES,
    RNG,
    SOUNDS,
    STEPS,
    WORDS,
    padded,
    read,
    refused,
    written,
)
from support.record_files import example

CASES = {
    "frames=float32[?,3]": padded(FRAMES),
    "ids=int64[4]": IDS,
    "ids=int32[2,2]": IDS.reshape(-1, 2, 2).astype(np.int32),
    "ids=int16[?]/10": (IDS / 10).astype(np.float32),
    "bits=bits[13]": BITS,
    "bits=bits[13]/2": (BITS / 2).astype(np.float32),
    "image=bytes:uint8[2,3]/255": (IMAGES / 255).astype(np.float32),
    "sound=bytes:int16[?,2]": padded(SOUNDS),
    "words=string[2]": np.array(WORDS, object),
    "frames=float32[?,batch,3]": padded(FRAMES).transpose(1, 0, 2),
}


@pytest.mark.first(
    "ids=int64[4]", "ids=int32[2,2]", "bits=bits[13]/2", "frames=float32[?,batch,3]", "words=string[2]"
)
@pytest.mark.parametrize("spec", CASES)
def test_every_kind_of_feature(tmp_path: Path, spec: str) -> None:
    (feed,) = read(written(tmp_path), spec).feeds
    ((key, value),) = feed.items()
    assert key == spec.partition("=")[0] and value.dtype == CASES[spec].dtype
    np.testing.assert_array_equal(value, CASES[spec])


def test_json_names_padding_and_lengths(tmp_path: Path) -> None:
    specs = {
        "x": {"type": "float32", "shape": [None, 3], "feature": "frames", "pad": -1.5},
        "n": "lengths:x",
        "s": {"type": "bytes:int16", "shape": ["?", "batch", 2], "feature": "sound", "pad": 7},
    }
    file = tmp_path / "features.json"
    file.write_text(json.dumps(specs))
    for given in (json.dumps(specs), str(file)):
        (feed,) = read(written(tmp_path), given).feeds
        np.testing.assert_array_equal(feed["x"], padded(FRAMES, -1.5))
        np.testing.assert_array_equal(feed["n"], STEPS)
        np.testing.assert_array_equal(feed["s"], padded(SOUNDS, 7).transpose(1, 0, 2))
        assert feed["n"].dtype == np.int32


def test_packed_bits_of_varying_length(tmp_path: Path) -> None:
    steps = [RNG.integers(0, 2, (k + 1, 8)) for k in range(4)]
    path = written(tmp_path, [example({"b": [np.packbits(each).tobytes()]}) for each in steps])
    (feed,) = read(path, "b=bits[?,8],n=lengths:b").feeds
    np.testing.assert_array_equal(feed["b"], padded(steps))
    np.testing.assert_array_equal(feed["n"], [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("ids", "expected KEY=TYPE[SHAPE], found 'ids'"),
        ("ids=int64", "ids: expected TYPE[SHAPE] or lengths:KEY, found 'int64'"),
        ("ids=complex64[]", "ids: type: expected one of float16, "),
        ("ids=int64[4,?]", "ids: shape: expected sizes, ? for the first where lengths vary"),
        ("ids=int64[99999,99999]", "ids: shape: expected fewer elements than 2^31"),
        ("ids=int64[]/0", "ids: divisor: expected a number other than 0, found 0"),
        ("ids=int64[],ids=int8[]", "ids: expected each input once, found this one twice"),
        ("n=lengths:i,i=int64[4]", "n: expected the lengths of another input of a shape [?,...], found 'i'"),
        ("b=bits[?,3]", "b: shape: expected steps of whole bytes where lengths vary, found 3 bits"),
        (
            '{"a": {"type": "int8", "shape": ["?"], "feature": "ids"}, "ids": "int64[4]"}',
            "ids: expected the feature ids with as many values as in a=int8[?], found ids=int64[4]",
        ),
        ("{", "expected a JSON object, found another text"),
        ('{"a": {"type": "int8"}}', "a: expected type, shape and perhaps divisor, feature, pad, found"),
        ("no.json", "expected a JSON file, found nothing that can be read"),
    ],
)  # fmt: skip
def test_features_that_say_nothing(tmp_path: Path, spec: str, told: str) -> None:
    assert told in refused(written(tmp_path), spec)
