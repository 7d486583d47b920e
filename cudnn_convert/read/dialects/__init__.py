"""The dialects for weights in a file, parameter blobs excepted.

A dialect is a way in which a program names weights that are no parameter blob.

* contrib: Names of canonical weights of tf.contrib cuDNN layers, TensorFlow 1.3 to 1.15.
* regions: Names of the regions of a blob saved by TensorFlow 1.0 to 1.3.
* keras  : Recognises Keras layers, plain layers too, by names and shapes of weights.
* named  : Names of the weights that `--format npz` and `--format safetensors` write.
* mxnet  : Names of MXNet's recurrent layers and cells, of gluon and of symbols.
* torch  : Names of PyTorch's recurrent modules and cells in a state dict.
* flax   : Names of recurrent cells of Flax, linen and nnx, in a single direction or two.
* haiku  : Names of Haiku's recurrent cores, `<module>/<parameter>`; matrices are `[in, out]`.
* jax_trees: Keys of JAX's trees as paths, without an optimizer's state.
* shapes : Sizes of cells by shapes of tensors, and the errors for misfits.

May import: errors, model, weights, read.tensorbundle.
Entry: `find`, which asks every dialect.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import TENSORFLOW_DIALECTS, CanonicalParameters, Tensor, is_float
from cudnn_convert.read.dialects import contrib, flax, haiku, keras, mxnet, named, regions, torch

#: One file each, with `find(path, tensors)`.
DIALECTS: Final[tuple[ModuleType, ...]] = (contrib, regions, keras, named, torch, mxnet, flax, haiku)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Return the weights recognised by each dialect among `tensors`.

    Raises ReadError for an incomplete set, and for weights that are no floats.
    """
    weights = [parameters for dialect in DIALECTS for parameters in dialect.find(path, tensors)]
    by_scope: dict[str, CanonicalParameters] = {}
    for parameters in weights:
        other = by_scope.setdefault(parameters.scope, parameters)
        known = other.dialect
        if other is not parameters and not {known, parameters.dialect} <= TENSORFLOW_DIALECTS:
            where = parameters.scope.rstrip("/") or "the root scope"
            expected, advice = "the names of one recurrence", "save each recurrence to a file of its own"
            actual = f"those of {known} and {parameters.dialect}"
            raise ReadError(path, where, expected=expected, found=actual, advice=advice)
    for parameters in weights:
        if not parameters.may_be_dense and (others := _list_others(parameters)):
            key, dtype = others[0]
            raise ReadError(path, key, expected="weights of a float type", found=f"{dtype}")
    return tuple(parameters for parameters in weights if not _list_others(parameters))


def _list_others(parameters: CanonicalParameters) -> list[tuple[str, np.dtype[Any]]]:
    """List the weights of a set by key, except floats."""
    types = ((parameters.scope + key, tensor.dtype) for key, tensor in parameters.tensors.items())
    return [(key, dtype) for key, dtype in types if not is_float(dtype)]
