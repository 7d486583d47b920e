"""What is measured: a way to compute a recurrence, and how a user would call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the tables need neither TensorFlow nor the package
    from problem import Problem

    from cudnn_convert.model import Array

#: Our artifacts. A call goes through a Session, through a function of TensorFlow 2, or through another
#: runtime: everyone is compared with ours called in the same way.
SESSION: Final = "savedmodel"
FUNCTION: Final = "savedmodel_function"
JIT: Final = "savedmodel_jit"
ONNX: Final = "onnx"
ONNX_INT8: Final = "onnx_int8"
OPENVINO_ONNX: Final = "openvino_onnx"
TFLITE: Final = "tflite"
TFLITE_FUSED: Final = "tflite_fused"
#: What an implementation in float32 may differ from the float64 reference, and one in int8.
TOLERANCE: Final = 2e-5
TOLERANCE_INT8: Final = 3e-2


@dataclass(frozen=True, slots=True)
class Built:
    """One implementation, ready: `call` is one complete run, `answer` makes of what it gave the array
    `[steps, batch, directions*units]`."""

    call: Callable[[], Any]
    answer: Callable[[Any], Array]


def _always(_: Problem) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Contender:
    """`build` takes a problem and the number of threads; `package` is what it needs beyond our own needs.

    `tolerance` is its largest error.
    """

    name: str
    build: Callable[[Problem, int], Built]
    package: str = ""
    fits: Callable[[Problem], bool] = _always
    tolerance: float = TOLERANCE
