"""How fast a network of channels-first images is once converted, against the same network channels last.

Both read lines of text: four convolutions with pools, and two bidirectional LSTM layers of cuDNN. They have
the same weights, are converted by the same command, and run in one process, call by call in turn. The median
ratio is to stay at or below 1.1.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

#: Formats, and how their files end.
FORMATS: Final = MappingProxyType({"savedmodel": "", "onnx": ".onnx"})
BATCHES: Final = (1, 16)
#: The width of a line of text, in pixels; its height is 32.
_WIDTH: Final = 160
_WARM: Final = 5


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Channels of the convolutions, and units of the recurrence."""

    channels: tuple[int, int, int, int]
    units: int


_WHOLE: Final = _Sizes((32, 64, 128, 256), 128)
_TINY: Final = _Sizes((2, 3, 4, 5), 3)


def measured(*, threads: int, pairs: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each format and batch, with the milliseconds of both layouts in each pair."""
    import tensorflow as tf

    import cudnn_convert

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    rows, sizes = [], _TINY if quick else _WHOLE
    with tempfile.TemporaryDirectory(prefix="bench.") as folder:
        for form, suffix in FORMATS.items():
            opened = []
            for layout in ("NCHW", "NHWC"):
                source, out = Path(folder, f"{layout}.pb"), Path(folder, f"{form}_{layout}{suffix}")
                source.write_bytes(_draw(layout, sizes))
                cudnn_convert.convert(source, out, format=form, inputs="x:0", outputs="letters:0")
                opened.append(_open(form, out, threads))
            for batch in BATCHES:
                first, last = _time_both(*opened, batch, pairs)
                rows.append({"format": form, "batch": batch, "first": first, "last": last})
                print(f"layouts: {form}, batch {batch}", flush=True)
    return rows


def _draw(layout: str, sizes: _Sizes) -> bytes:
    """The frozen graph of the network in a layout; the weights depend on the sizes alone."""
    import numpy as np
    import tensorflow as tf

    v1, chance, is_first = tf.compat.v1, np.random.default_rng(5), layout == "NCHW"

    def weight(*shape: int) -> Any:
        scale = (2 / np.prod(shape[:-1])) ** 0.5
        return tf.constant(chance.normal(0, scale, shape).astype(np.float32))

    def spatial(height: int, width: int) -> list[int]:
        return [1, 1, height, width] if is_first else [1, height, width, 1]

    def convolve(y: Any, *filters: int, padding: str = "SAME") -> Any:
        y = tf.nn.conv2d(y, weight(*filters), 1, padding, data_format=layout)
        return tf.nn.relu(tf.nn.bias_add(y, chance.normal(0, 0.1, filters[-1]), data_format=layout))

    def pool(y: Any, height: int, width: int) -> Any:
        window = spatial(height, width)
        return tf.nn.max_pool2d(y, window, window, "VALID", data_format=layout)

    with tf.Graph().as_default() as graph:
        a, b, c, d = sizes.channels
        shape = [None, 1, 32, _WIDTH] if is_first else [None, 32, _WIDTH, 1]
        y = v1.placeholder(tf.float32, shape, "x")
        y = pool(convolve(y, 3, 3, 1, a), 2, 2)
        y = pool(convolve(y, 3, 3, a, b), 2, 2)
        numbers = [chance.uniform(0.5, 1.5, b).astype(np.float32) for _ in range(4)]
        y, *_ = v1.nn.fused_batch_norm(y, *numbers, data_format=layout, is_training=False)
        y = pool(convolve(y, 3, 3, b, c), 2, 1)
        y = convolve(y, 4, 2, c, d, padding="VALID")
        y = tf.transpose(tf.squeeze(y, [2 if is_first else 1]), [2, 0, 1] if is_first else [1, 0, 2])
        y = _recur(y, chance, d, sizes.units)
        y = tf.tensordot(y, weight(2 * sizes.units, 37), 1)
        tf.nn.softmax(y, name="letters")
    return graph.as_graph_def().SerializeToString()


def _recur(y: Any, chance: Any, inputs: int, units: int) -> Any:
    """Two bidirectional LSTM layers of cuDNN over `[time, batch, inputs]`."""
    import numpy as np
    import tensorflow as tf

    count = sum(2 * 4 * units * (given + units + 2) for given in (inputs, 2 * units))
    parameters = chance.normal(0, units**-0.5, count).astype(np.float32)
    state = tf.zeros([4, tf.shape(y)[1], units])
    return tf.raw_ops.CudnnRNNV2(
        input=y,
        input_h=state,
        input_c=state,
        params=parameters,
        rnn_mode="lstm",
        direction="bidirectional",
        is_training=False,
    ).output


def _open(form: str, out: Path, threads: int) -> Callable[[Any], Any]:
    """A function from images to letters."""
    if form == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(out), options)
        (name,) = (each.name for each in session.get_inputs())
        return lambda images: session.run(None, {name: images})[0]
    import tensorflow as tf

    loaded = tf.saved_model.load(str(out))
    function = loaded.signatures["serving_default"]
    function.keeps_its_model = loaded
    (key,) = function.structured_input_signature[1]
    (answer,) = function.structured_outputs
    return lambda images: function(**{key: tf.constant(images)})[answer].numpy()


def _time_both(
    first: Callable[[Any], Any], last: Callable[[Any], Any], batch: int, pairs: int
) -> tuple[list[float], list[float]]:
    """The milliseconds of both layouts, whose answers are found to agree."""
    import numpy as np

    rows = np.random.default_rng(2).uniform(-1, 1, (batch, 32, _WIDTH, 1)).astype(np.float32)
    both = (first, np.ascontiguousarray(rows.transpose(0, 3, 1, 2))), (last, rows)
    one, other = (call(images) for call, images in both)
    if not (apart := float(abs(one - other).max())) <= 1e-4:
        raise SystemExit(f"bench: layouts: expected one answer of both layouts, found {apart:.1e} between")
    found: tuple[list[float], list[float]] = ([], [])
    for pair in range(-_WARM, pairs):
        for place in (0, 1) if pair % 2 else (1, 0):
            call, images = both[place]
            start = time.perf_counter()
            call(images)
            if pair >= 0:
                found[place].append(round((time.perf_counter() - start) * 1e3, 4))
    return found
