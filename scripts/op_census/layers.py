"""Variants of the ops of neural networks."""

import numpy as np

from op_census import values
from op_census.values import COUNTS, FLOATS, ordinary
from op_census.variants import Fed, add, i32, row_of

PADDINGS = ("SAME", "VALID")


def images(dtype, *shape, channels=None, **more):
    """Images `[N, H, W, C]`, of open sizes but the channels, of two sizes."""
    shape = shape or (2, 5, 6, 3)
    other = (1,) + tuple(size + 1 for size in shape[1:-1]) + shape[-1:]
    kinds = dict({"ordinary": ordinary(dtype, *shape), "odd": ordinary(dtype, *other)}, **more)
    return Fed([None] * (len(shape) - 1) + [shape[-1]], **kinds)


def _pools():
    for dtype in ("float32", "float64", "int32"):
        for padding in PADDINGS:
            for window, step in ((2, 1), (3, 2), (2, 3)):
                sizes = {"ksize": [1, window, window, 1], "strides": [1, step, step, 1], "padding": padding}
                name = "%s,%s,%d/%d" % (dtype, padding, window, step)
                more = (
                    {"nonfinite": values.filled(values.nonfinite(dtype)[:5], 1, 4, 4, 3)}
                    if dtype in FLOATS
                    else {}
                )
                if dtype in FLOATS:
                    add("AvgPool", name, {"value": images(dtype, **more)}, **sizes)
                add("MaxPool", name, {"input": images(dtype, **more)}, **sizes)
                add(
                    "MaxPoolV2",
                    name,
                    {
                        "input": images(dtype),
                        "ksize": i32(1, window, window, 1),
                        "strides": i32(1, step, step, 1),
                    },
                    padding=padding,
                )
                add("MaxPoolWithArgmax", name, {"input": images(dtype)}, **dict(sizes, Targmax="int64"))
                if dtype in ("float32", "float64"):
                    out = 5 if step == 1 and padding == "SAME" else None
                    if out:
                        grown = ordinary(dtype, 2, 5, 6, 3, seed=7)
                        add(
                            "AvgPoolGrad",
                            name,
                            {"orig_input_shape": i32(2, 5, 6, 3), "grad": Fed(ordinary=grown)},
                            **sizes,
                        )
                        pair = {
                            "orig_input": Fed(ordinary=ordinary(dtype, 2, 5, 6, 3)),
                            "orig_output": Fed(ordinary=grown + 3),
                            "grad": Fed(ordinary=grown),
                        }
                        add("MaxPoolGrad", name, pair, **sizes)
            for rows in ("ordinary",):
                sizes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": padding}
                if dtype in ("float32", "float64", "float16"):
                    add(
                        "AvgPool3D",
                        "%s,%s" % (dtype, padding),
                        {"input": images(dtype, 2, 3, 4, 5, 2)},
                        **sizes,
                    )
                    add(
                        "MaxPool3D",
                        "%s,%s" % (dtype, padding),
                        {"input": images(dtype, 2, 3, 4, 5, 2)},
                        **sizes,
                    )
    for padding in PADDINGS:
        sizes = {"ksize": [1, 1, 2, 3], "strides": [1, 1, 1, 3], "padding": padding}
        add(
            "MaxPool",
            "float32,%s,depth" % padding,
            {"input": images("float32")},
            **dict(sizes, ksize=[1, 1, 1, 3]),
        )
    for dtype in ("float32", "float64", "int32"):
        for op in ("FractionalMaxPool", "FractionalAvgPool"):
            add(
                op,
                dtype,
                {"value": Fed(ordinary=ordinary(dtype, 2, 6, 6, 2))},
                pooling_ratio=[1.0, 1.5, 1.5, 1.0],
                deterministic=True,
                seed=3,
                seed2=5,
            )


def _convolutions():
    for dtype in ("float32", "float64"):
        for padding in PADDINGS:
            for step, rate in ((1, 1), (2, 1), (1, 2)):
                name = "%s,%s,%d,rate=%d" % (dtype, padding, step, rate)
                sizes = {"strides": [1, step, step, 1], "padding": padding, "dilations": [1, rate, rate, 1]}
                add(
                    "Conv2D",
                    name,
                    {"input": images(dtype, 2, 7, 6, 3), "filter": ordinary(dtype, 3, 2, 3, 4)},
                    **sizes,
                )
                add(
                    "DepthwiseConv2dNative",
                    name,
                    {"input": images(dtype, 2, 7, 6, 3), "filter": ordinary(dtype, 3, 2, 3, 2)},
                    **sizes,
                ) if rate == 1 else None
                wide = [1, step, step, step, 1]
                if rate == 1:
                    add(
                        "Conv3D",
                        name,
                        {"input": images(dtype, 2, 4, 5, 6, 2), "filter": ordinary(dtype, 2, 3, 2, 2, 3)},
                        strides=wide,
                        padding=padding,
                    )
                out = [2, 7, 6, 3] if padding == "SAME" and step == 1 else None
                if out and rate == 1:
                    back = {
                        "filter": ordinary(dtype, 3, 2, 3, 4),
                        "out_backprop": Fed(ordinary=ordinary(dtype, 2, 7, 6, 4)),
                    }
                    add("Conv2DBackpropInput", name, dict(back, input_sizes=i32(*out)), **sizes)
                    deep = {
                        "filter": ordinary(dtype, 3, 2, 3, 2),
                        "out_backprop": Fed(ordinary=ordinary(dtype, 2, 7, 6, 6)),
                    }
                    add(
                        "DepthwiseConv2dNativeBackpropInput", name, dict(deep, input_sizes=i32(*out)), **sizes
                    )
                    add(
                        "Conv2DBackpropFilter",
                        name,
                        {
                            "input": Fed(ordinary=ordinary(dtype, 2, 7, 6, 3)),
                            "filter_sizes": i32(3, 2, 3, 4),
                            "out_backprop": Fed(ordinary=ordinary(dtype, 2, 7, 6, 4)),
                        },
                        **sizes,
                    )
                    cubes = {
                        "filter": ordinary(dtype, 2, 3, 2, 2, 3),
                        "out_backprop": Fed(ordinary=ordinary(dtype, 2, 4, 5, 6, 3)),
                    }
                    add(
                        "Conv3DBackpropInputV2",
                        name,
                        dict(cubes, input_sizes=i32(2, 4, 5, 6, 2)),
                        strides=wide,
                        padding=padding,
                    )
            if dtype != "float16":
                back = {
                    "input_sizes": i32(2, 8, 6, 3),
                    "filter": ordinary(dtype, 3, 2, 3, 4),
                    "out_backprop": Fed(
                        ordinary=ordinary(dtype, 2, 4, 3, 4)
                        if padding == "SAME"
                        else ordinary(dtype, 2, 3, 3, 4)
                    ),
                }
                add(
                    "Conv2DBackpropInput",
                    "%s,%s,2" % (dtype, padding),
                    back,
                    strides=[1, 2, 2, 1],
                    padding=padding,
                )
            add(
                "Dilation2D",
                "%s,%s" % (dtype, padding),
                {"input": images(dtype, 2, 7, 6, 3), "filter": ordinary(dtype, 3, 2, 3)},
                strides=[1, 2, 1, 1],
                rates=[1, 1, 2, 1],
                padding=padding,
            )
        add(
            "Conv2D",
            "%s,explicit" % dtype,
            {"input": images(dtype, 2, 7, 6, 3), "filter": ordinary(dtype, 3, 2, 3, 4)},
            strides=[1, 2, 1, 1],
            padding="EXPLICIT",
            explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0],
        )
        add(
            "Conv2D",
            "%s,fed filter" % dtype,
            {
                "input": images(dtype, 2, 7, 6, 3),
                "filter": Fed([3, 2, 3, 4], ordinary=ordinary(dtype, 3, 2, 3, 4)),
            },
            strides=[1, 1, 1, 1],
            padding="SAME",
        )
        if dtype != "float16":
            add(
                "FusedPadConv2D",
                dtype,
                {
                    "input": images(dtype, 2, 7, 6, 3),
                    "paddings": i32(0, 0, 1, 1, 2, 1, 0, 0).reshape(4, 2),
                    "filter": ordinary(dtype, 3, 2, 3, 4),
                },
                mode="REFLECT",
                strides=[1, 1, 1, 1],
                padding="VALID",
            )
            add(
                "FusedResizeAndPadConv2D",
                dtype,
                {
                    "input": images(dtype, 2, 7, 6, 3),
                    "size": i32(9, 8),
                    "paddings": i32(0, 0, 1, 1, 2, 1, 0, 0).reshape(4, 2),
                    "filter": ordinary(dtype, 3, 2, 3, 4),
                },
                mode="SYMMETRIC",
                strides=[1, 1, 1, 1],
                padding="VALID",
            )


def _norms():
    for dtype in FLOATS:
        for axis in (2, 3, 4):
            add(
                "BiasAdd",
                "%s,rank %d" % (dtype, axis),
                {
                    "value": row_of(dtype, *(2, 3, 4, 5)[:axis]),
                    "bias": ordinary(dtype, (2, 3, 4, 5)[axis - 1]),
                },
            )
        add(
            "BiasAdd",
            "%s,NCHW" % dtype,
            {"value": Fed(ordinary=ordinary(dtype, 2, 3, 4, 5)), "bias": ordinary(dtype, 3)},
            data_format="NCHW",
        )
        add("BiasAddV1", dtype, {"value": row_of(dtype, 3, 4), "bias": ordinary(dtype, 4)})
        add("BiasAddGrad", dtype, {"out_backprop": row_of(dtype, 3, 4)})
        for op in ("Softmax", "LogSoftmax"):
            add(
                op,
                dtype,
                {
                    "logits": row_of(
                        dtype,
                        3,
                        5,
                        large=np.array([[1e4, -1e4, 0, 3, 2.5]] * 2, dtype),
                        empty=ordinary(dtype, 0, 5),
                    )
                },
            )
            add(op, "%s,rank 3" % dtype, {"logits": Fed(ordinary=ordinary(dtype, 2, 3, 5))})
        labels = np.abs(ordinary(dtype, 3, 5)) / 5
        add(
            "SoftmaxCrossEntropyWithLogits",
            dtype,
            {"features": row_of(dtype, 3, 5), "labels": Fed(ordinary=labels)},
        )
        for kind in COUNTS:
            add(
                "SparseSoftmaxCrossEntropyWithLogits",
                "%s,%s" % (dtype, kind),
                {
                    "features": Fed(ordinary=ordinary(dtype, 3, 5)),
                    "labels": Fed(ordinary=np.array([4, 0, 2], kind)),
                },
            )
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        for kind in ("float32",) if op == "FusedBatchNorm" else ("float32", "float16"):
            for training in (False, True):
                rows = [Fed([None, None, None, 3], ordinary=ordinary(kind, 2, 4, 5, 3))] + [
                    ordinary("float32", 3, seed=k) for k in range(4)
                ]
                rows[4] = np.abs(rows[4])
                rows[3:] = [np.zeros(0, np.float32)] * 2 if training else rows[3:]
                add(
                    op,
                    "%s,%s" % (kind, "training" if training else "inference"),
                    zip(("x", "scale", "offset", "mean", "variance"), rows),
                    1,
                    is_training=training,
                    epsilon=1e-3,
                )
    for dtype in ("float32", "float16"):
        for radius in (1, 3):
            add(
                "LRN",
                "%s,%d" % (dtype, radius),
                {"input": images(dtype, 2, 3, 4, 7)},
                depth_radius=radius,
                bias=1.5,
                alpha=0.5,
                beta=0.75,
            )


def _decoders():
    logits = Fed([None, 2, 4], ordinary=ordinary("float32", 5, 2, 4), odd=np.zeros((3, 2, 4), np.float32))
    lengths = Fed(ordinary=i32(5, 3), odd=i32(3, 1))
    for merge in (False, True):
        add(
            "CTCGreedyDecoder",
            "merge=%s" % merge,
            {"inputs": logits, "sequence_length": lengths},
            merge_repeated=merge,
        )
        add(
            "CTCBeamSearchDecoder",
            "merge=%s" % merge,
            {"inputs": logits, "sequence_length": lengths},
            beam_width=4,
            top_paths=2,
            merge_repeated=merge,
        )
        add(
            "CTCLoss",
            "merge=%s" % merge,
            {
                "inputs": logits,
                "labels_indices": np.array([[0, 0], [0, 1], [1, 0]]),
                "labels_values": i32(1, 2, 0),
                "sequence_length": lengths,
            },
            ctc_merge_repeated=merge,
        )


def _cells():
    x, state = (
        Fed([None, 3], ordinary=ordinary("float32", 2, 3)),
        Fed([None, 4], ordinary=ordinary("float32", 2, 4)),
    )
    weights = {
        "w_ru": ordinary("float32", 7, 8),
        "w_c": ordinary("float32", 7, 4),
        "b_ru": ordinary("float32", 8),
        "b_c": ordinary("float32", 4),
    }
    add("GRUBlockCell", "float32", dict({"x": x, "h_prev": state}, **weights))
    gates = {"w": ordinary("float32", 7, 16), "b": ordinary("float32", 16)}
    peepholes = {name: ordinary("float32", 4, seed=k) for k, name in enumerate(("wci", "wcf", "wco"))}
    for peeps in (False, True):
        for clip in (-1.0, 0.5):
            cell = dict(
                {"cs_prev": state, "h_prev": Fed([None, 4], ordinary=ordinary("float32", 2, 4, seed=1))},
                **dict(gates, **peepholes),
            )
            add(
                "LSTMBlockCell",
                "peepholes=%s,clip=%s" % (peeps, clip),
                dict(cell, x=x),
                forget_bias=0.5,
                cell_clip=clip,
                use_peephole=peeps,
            )
            steps = Fed([5, None, 3], ordinary=ordinary("float32", 5, 2, 3))
            add(
                "BlockLSTM",
                "peepholes=%s,clip=%s" % (peeps, clip),
                dict(cell, x=steps, seq_len_max=np.array(5)),
                forget_bias=0.5,
                cell_clip=clip,
                use_peephole=peeps,
            )
            add(
                "BlockLSTMV2",
                "peepholes=%s,clip=%s" % (peeps, clip),
                dict(cell, x=steps, seq_len_max=np.array(5)),
                cell_clip=max(clip, 0.0),
                use_peephole=peeps,
            )


_pools()
_convolutions()
_norms()
_decoders()
_cells()
