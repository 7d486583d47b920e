"""Variants of ops of strings."""

import numpy as np

from op_census import values
from op_census.values import WORDS
from op_census.variants import Fed, add, i32, one_of, row_of, scalar


def text(*items):
    """A row of strings."""
    return np.array(items, object)


def _plain():
    words = Fed(ordinary=text(*WORDS), empty=text(), one=text(b"A b"))
    for op in ("StringLower", "StringUpper"):
        for encoding in ("", "utf-8"):
            add(op, encoding or "bytes", {"input": words}, encoding=encoding)
    for unit in ("BYTE", "UTF8_CHAR"):
        add("StringLength", unit, {"input": words}, unit=unit)
        for begin, size in ((0, 2), (-3, 2), (1, 99)):
            long = Fed(ordinary=text(b"abcdef", "Gr\u00fc\u00dfe".encode(), b"xyzw"))
            add(
                "Substr",
                "%s,%d,%d" % (unit, begin, size),
                {"input": long, "pos": scalar(begin), "len": scalar(size)},
                unit=unit,
            )
    add("StringStrip", "plain", {"input": words})
    add("StringJoin", "plain", {"inputs": [words, words]})
    add(
        "StringJoin",
        "separator",
        {"inputs": [words, Fed(ordinary=text(*WORDS[::-1])), words]},
        separator=", ",
    )
    matrix = Fed(ordinary=text(*WORDS).reshape(2, 4))
    for axis in (0, 1):
        for keep in (False, True):
            add(
                "ReduceJoin",
                "%d,kept=%s" % (axis, keep),
                {"inputs": matrix, "reduction_indices": i32(axis)},
                keep_dims=keep,
                separator="-",
            )
    sentences = Fed(ordinary=text(b"a b  c", b"", b" d"), one=text(b"one"))
    for skip in (False, True):
        add(
            "StringSplit",
            "skip=%s" % skip,
            {"input": sentences, "delimiter": np.array(b" ", object)},
            skip_empty=skip,
        )
    for sep in (b"", b" "):
        for most in (-1, 1):
            add(
                "StringSplitV2",
                "%r,%d" % (sep.decode(), most),
                {"input": sentences, "sep": np.array(sep, object)},
                maxsplit=most,
            )
    add(
        "StringNGrams",
        "plain",
        {"data": Fed(ordinary=text(b"a", b"b", b"c", b"d")), "data_splits": np.array([0, 3, 4])},
        separator="|",
        ngram_widths=[1, 2],
        left_pad="<",
        right_pad=">",
        pad_width=1,
        preserve_short_sequences=False,
    )
    for op, more in (
        ("StringToHashBucket", {}),
        ("StringToHashBucketFast", {}),
        ("StringToHashBucketStrong", {"key": [7, 9]}),
    ):
        name = "string_tensor" if op == "StringToHashBucket" else "input"
        for count in (10, 2**40):
            add(op, "%d" % count, {name: words}, num_buckets=count, **more)
    add("EncodeBase64", "plain", {"input": words})
    add("EncodeBase64", "padded", {"input": words}, pad=True)
    add("DecodeBase64", "plain", {"input": Fed(ordinary=text(b"YWJj", b"", b"YQ"))})
    add(
        "Fingerprint",
        "farmhash64",
        {"data": Fed(ordinary=text(*WORDS)), "method": np.array(b"farmhash64", object)},
    )
    add(
        "UnsortedSegmentJoin",
        "plain",
        {
            "inputs": Fed(ordinary=text(b"a", b"b", b"c")),
            "segment_ids": i32(1, 0, 1),
            "num_segments": scalar(3),
        },
        separator="+",
    )
    add(
        "ShardedFilename",
        "plain",
        {"basename": Fed([], ordinary=np.array(b"f", object)), "shard": scalar(2), "num_shards": scalar(5)},
    )
    add(
        "ShardedFilespec",
        "plain",
        {"basename": Fed([], ordinary=np.array(b"f", object)), "num_shards": scalar(5)},
    )


def _expressions():
    words = Fed(ordinary=text(*WORDS), one=text(b"A b"))
    for name, pattern, rewrite in (
        ("digits", "[0-9]+", "#"),
        ("spaces", "\\s+", ""),
        ("groups", "(a)(.)?", "<\\1>"),
        ("letters", "\\pL", "L"),
    ):
        add("StaticRegexFullMatch", name, {"input": words}, pattern=pattern)
        add("RegexFullMatch", name, {"input": words, "pattern": np.array(pattern.encode(), object)})
        for whole in (True, False):
            add(
                "StaticRegexReplace",
                "%s,all=%s" % (name, whole),
                {"input": words},
                pattern=pattern,
                rewrite=rewrite,
                replace_global=whole,
            )
            add(
                "RegexReplace",
                "%s,all=%s" % (name, whole),
                {
                    "input": words,
                    "pattern": np.array(pattern.encode(), object),
                    "rewrite": np.array(rewrite.encode(), object),
                },
                replace_global=whole,
            )


def _numbers():
    for dtype in ("float32", "float64", "int8", "int16", "int32", "int64", "bool", "complex64"):
        add("AsString", dtype, {"input": one_of(dtype)})
    for dtype in ("float32", "float64"):
        add("AsString", "%s,precision" % dtype, {"input": one_of(dtype)}, precision=2)
        add("AsString", "%s,scientific" % dtype, {"input": one_of(dtype)}, scientific=True)
        add("AsString", "%s,shortest" % dtype, {"input": one_of(dtype)}, shortest=True)
    add("AsString", "int32,filled", {"input": one_of("int32")}, width=6, fill="0")
    for dtype, given in (
        ("float32", (b"1.5", b"-7e3", b"0", b"inf")),
        ("float64", (b"1.5", b"-7e300", b"0.1")),
        ("int32", (b"12", b"-2147483648")),
        ("int64", (b"9007199254740993", b"-3")),
    ):
        add("StringToNumber", dtype, {"string_tensor": Fed(ordinary=text(*given))}, out_type=dtype)
    for dtype in ("uint8", "int32", "float32", "int64"):
        raw = values.ordinary(dtype, 2, 3).tobytes()
        half = len(raw) // 2
        add(
            "DecodeRaw",
            dtype,
            {"bytes": Fed(ordinary=text(raw[:half].replace(b"\0", b"\1"), raw[half:].replace(b"\0", b"\1")))},
            out_type=dtype,
        )
    add("StringFormat", "plain", {"inputs": [row_of("float32", 2, 2)]}, template="x = %s")


def _unicode():
    words = Fed(ordinary=text(*WORDS), one=text(b"\xff\xfea"))
    for errors in ("replace", "ignore"):
        add("UnicodeDecode", errors, {"input": words}, input_encoding="UTF-8", errors=errors)
        add("UnicodeDecodeWithOffsets", errors, {"input": words}, input_encoding="UTF-8", errors=errors)
        add(
            "UnicodeTranscode",
            errors,
            {"input": words},
            input_encoding="UTF-8",
            output_encoding="UTF-8",
            errors=errors,
        )
    add(
        "UnicodeEncode",
        "plain",
        {"input_values": Fed(ordinary=i32(72, 105, 0x6C34, 0x1F600)), "input_splits": np.array([0, 2, 2, 4])},
        output_encoding="UTF-8",
    )
    add("UnicodeScript", "plain", {"input": Fed(ordinary=i32(65, 1041, 0x6C34, 50, -1))})


_plain()
_expressions()
_numbers()
_unicode()
