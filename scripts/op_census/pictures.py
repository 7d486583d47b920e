"""Variants of ops of images, quantised and random numbers."""

import numpy as np

from op_census import values
from op_census.values import COUNTS, FLOATS, ordinary
from op_census.variants import Fed, add, i32, row_of, scalar, together

RESIZES = ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea")


def _resizes():
    for op in RESIZES:
        for dtype in ("float32", "float64", "uint8", "int32"):
            image = Fed(
                [None, None, None, 3], ordinary=ordinary(dtype, 2, 4, 5, 3), odd=ordinary(dtype, 1, 3, 2, 3)
            )
            modes = (
                ("plain", {}),
                ("corners", {"align_corners": True}),
                ("centers", {"half_pixel_centers": True}),
            )
            for name, mode in modes if op != "ResizeArea" else modes[:2]:
                for size in ((8, 10), (7, 3), (2, 2)):
                    if dtype == "float32" or size == (7, 3):
                        add(
                            op,
                            "%s,%s,%dx%d" % ((dtype, name) + size),
                            {"images": image, "size": i32(*size)},
                            **mode,
                        )
            add(op, "%s,fed size" % dtype, {"images": image, "size": Fed([2], ordinary=i32(6, 7))})
    for kernel in ("triangle", "lanczos3"):
        add(
            "ScaleAndTranslate",
            kernel,
            {
                "images": Fed(ordinary=ordinary("float32", 2, 4, 5, 3)),
                "size": i32(6, 7),
                "scale": np.float32([1.5, 1.25]),
                "translation": np.float32([0.5, 0]),
            },
            kernel_type=kernel,
        )
    for method in ("bilinear", "nearest"):
        boxes = Fed(ordinary=np.float32([[0, 0, 1, 1], [0.2, -0.1, 0.7, 1.3], [0.9, 0.8, 0.1, 0.2]]))
        add(
            "CropAndResize",
            method,
            {
                "image": Fed(ordinary=ordinary("float32", 2, 6, 5, 3)),
                "boxes": boxes,
                "box_ind": Fed(ordinary=i32(1, 0, 1)),
                "crop_size": i32(3, 4),
            },
            method=method,
            extrapolation_value=0.5,
        )
    add(
        "ExtractGlimpse",
        "plain",
        {
            "input": Fed(ordinary=ordinary("float32", 2, 6, 5, 3)),
            "size": i32(3, 2),
            "offsets": Fed(ordinary=np.float32([[0, 0.25], [0.5, -0.5]])),
        },
    )


def _colours():
    for dtype in FLOATS:
        image = Fed(
            [None, None, None, 3],
            ordinary=np.abs(ordinary(dtype, 2, 3, 4, 3)) / 4,
            odd=np.array([0, 0.5, 0.5, 1, 1, 1, 0, 0, 0, 1, 0, 1], dtype).reshape(1, 2, 2, 3),
        )
        add("RGBToHSV", dtype, {"images": image})
        add("HSVToRGB", dtype, {"images": image})
        if dtype == "float32":
            add("AdjustContrastv2", dtype, {"images": image, "contrast_factor": scalar(1.5, "float32")})
            add("AdjustHue", dtype, {"images": image, "delta": scalar(0.2, "float32")})
            add("AdjustSaturation", dtype, {"images": image, "scale": scalar(1.5, "float32")})
    boxes = np.float32([[0.1, 0.1, 0.6, 0.7], [0.5, 0, 1, 0.4]])
    add(
        "DrawBoundingBoxes",
        "float32",
        {"images": Fed(ordinary=np.zeros((1, 8, 9, 3), np.float32)), "boxes": Fed(ordinary=boxes[None])},
    )
    add(
        "DrawBoundingBoxesV2",
        "float32",
        {
            "images": Fed(ordinary=np.zeros((1, 8, 9, 3), np.float32)),
            "boxes": Fed(ordinary=boxes[None]),
            "colors": np.float32([[0.5, 1, 0]]),
        },
    )


def _suppressions():
    corners = np.float32(
        [
            [0, 0, 1, 1],
            [0, 0.1, 1, 1.1],
            [0, -0.1, 1, 0.9],
            [0, 10, 1, 11],
            [0, 10.1, 1, 11.1],
            [0, 100, 1, 101],
        ]
    )
    boxes = Fed([None, 4], ordinary=corners)
    scores = Fed(
        [None],
        ordinary=np.float32([0.9, 0.75, 0.6, 0.95, 0.5, 0.3]),
        odd=np.float32([0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    )
    some = {"boxes": boxes, "scores": scores, "max_output_size": scalar(3)}
    bound, least = scalar(0.5, "float32"), scalar(0.4, "float32")
    add("NonMaxSuppression", "plain", some, iou_threshold=0.5)
    add("NonMaxSuppressionV2", "plain", dict(some, iou_threshold=bound))
    add("NonMaxSuppressionV3", "plain", dict(some, iou_threshold=bound, score_threshold=least))
    for padded in (False, True):
        add(
            "NonMaxSuppressionV4",
            "padded=%s" % padded,
            dict(some, iou_threshold=bound, score_threshold=least),
            pad_to_max_output_size=padded,
        )
        add(
            "NonMaxSuppressionV5",
            "padded=%s" % padded,
            dict(some, iou_threshold=bound, score_threshold=least, soft_nms_sigma=scalar(0.5, "float32")),
            pad_to_max_output_size=padded,
        )
    add(
        "NonMaxSuppressionWithOverlaps",
        "plain",
        {
            "overlaps": Fed(ordinary=np.abs(ordinary("float32", 6, 6))),
            "scores": scores,
            "max_output_size": scalar(3),
            "overlap_threshold": bound,
            "score_threshold": least,
        },
    )
    add(
        "CombinedNonMaxSuppression",
        "plain",
        {
            "boxes": Fed(ordinary=corners[None, :, None]),
            "scores": Fed(ordinary=np.abs(ordinary("float32", 1, 6, 2))),
            "max_output_size_per_class": scalar(2),
            "max_total_size": scalar(3),
            "iou_threshold": bound,
            "score_threshold": least,
        },
    )


def _quantised():
    ties = np.float32([[0.5, 1.5, 2.5, -0.5, 3.5, 14.5, 99, -99, 7.25, 0, 1, 2]])
    x = Fed(
        [None, None],
        ordinary=ordinary("float32", 3, 4),
        odd=ties,
        nonfinite=values.nonfinite("float32")[None],
    )
    for low, high in ((0.0, 15.0), (-6.0, 6.0), (0.1, 1.1)):
        for bits in (4, 8):
            for narrow in (False, True):
                name = "%s..%s,%d,narrow=%s" % (low, high, bits, narrow)
                add(
                    "FakeQuantWithMinMaxArgs",
                    name,
                    {"inputs": x},
                    min=low,
                    max=high,
                    num_bits=bits,
                    narrow_range=narrow,
                )
                if bits == 8:
                    add(
                        "FakeQuantWithMinMaxVars",
                        name,
                        {"inputs": x, "min": scalar(low, "float32"), "max": scalar(high, "float32")},
                        narrow_range=narrow,
                    )
    per = Fed([None, 3], ordinary=ordinary("float32", 4, 3), odd=ties.reshape(4, 3))
    add(
        "FakeQuantWithMinMaxVarsPerChannel",
        "plain",
        {"inputs": per, "min": np.float32([0, -1, -3]), "max": np.float32([15, 1, 0.5])},
    )
    for dtype in ("float32", "float64"):
        y = row_of(dtype, 3, 4)
        del y.arrays["nonfinite"]
        for given in (False, True):
            ends = {"input_min": scalar(-3, dtype), "input_max": scalar(3, dtype)}
            for mode in ("HALF_TO_EVEN", "HALF_UP"):
                add(
                    "QuantizeAndDequantizeV2",
                    "%s,given=%s,%s" % (dtype, given, mode),
                    dict(ends, input=y),
                    range_given=given,
                    round_mode=mode,
                )
            add(
                "QuantizeAndDequantizeV3",
                "%s,given=%s" % (dtype, given),
                dict(ends, input=y, num_bits=scalar(8)),
                range_given=given,
            )
    for kind in ("quint8", "qint8", "quint16", "qint16"):
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):

            def both(tf, x, kind=kind, mode=mode):
                packed, low, high = tf.quantize(x, -6.0, 6.0, getattr(tf, kind), mode=mode)
                return tf.dequantize(packed, low, high, mode=mode)

            together("QuantizeV2", "Dequantize,%s,%s" % (kind, mode), [x], both)


def _random():
    for dtype in FLOATS:
        for op in ("StatelessRandomNormal", "StatelessRandomUniform", "StatelessTruncatedNormal"):
            add(op, dtype, {"shape": i32(2, 3), "seed": Fed(ordinary=i32(3, 5))}, dtype=dtype)
    for dtype in COUNTS:
        add(
            "StatelessRandomUniformInt",
            dtype,
            {
                "shape": i32(2, 3),
                "seed": Fed(ordinary=i32(3, 5)),
                "minval": scalar(-5, dtype),
                "maxval": scalar(90, dtype),
            },
        )
    add(
        "StatelessMultinomial",
        "float32",
        {"logits": Fed(ordinary=ordinary("float32", 2, 3)), "num_samples": scalar(4), "seed": i32(3, 5)},
    )
    add(
        "RandomGammaGrad",
        "float32",
        {"alpha": Fed(ordinary=np.float32([0.5, 2, 3])), "sample": Fed(ordinary=np.float32([1, 0.25, 4]))},
    )


_resizes()
_colours()
_suppressions()
_quantised()
_random()
