"""The dialects for weights in a file, parameter blobs excepted.

A dialect is a way in which a program names weights that are no parameter blob.

* contrib: Names of canonical weights of tf.contrib cuDNN layers, TensorFlow 1.3 to 1.15.
* regions: Names of the regions of a blob saved by TensorFlow 1.0 to 1.3.
* keras  : Recognises Keras layers, plain layers too, by names and shapes of weights.
* named  : Names of the weights that `--format npz` and `--format safetensors` write.
* torch  : Names of PyTorch's recurrent modules and cells in a state dict.

May import: errors, model, weights, read.tensorbundle.
Entry: `find`, which asks every dialect.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.model import CanonicalParameters, Tensor, is_float
from cudnn_convert.read.dialects import contrib, keras, named, regions, torch

#: One file each, with `find(path, tensors)`.
DIALECTS: Final[tuple[ModuleType, ...]] = (contrib, regions, keras, named, torch)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Return the weights recognised by each dialect among `tensors`.

    Raises ReadError for an incomplete set, and for weights that are no floats.
    """
    weights = [parameters for dialect in DIALECTS for parameters in dialect.find(path, tensors)]
    for parameters in weights:
        if not is_float(parameters.dtype) and not parameters.may_be_dense:
            where = parameters.scope.rstrip("/") or "the root scope"
            raise ReadError(path, where, expected="weights of a float type", found=f"{parameters.dtype}")
    return tuple(parameters for parameters in weights if is_float(parameters.dtype))
