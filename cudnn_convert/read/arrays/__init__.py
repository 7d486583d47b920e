"""Readers of arrays: files of weights from any framework, without a graph.

* cntk_dictionary : Parses CNTK's dictionaries, the protobuf messages of models.
* cntk_model      : Reads CNTK's models: the weights and sizes of each OptimizedRNNStack.
* containers      : Makes a model of named arrays, and finds the files behind a path.
* mxnet_params    : Reads MXNet's `.params`, lists of named arrays, and the symbol beside a checkpoint.
* mxnet_symbol    : Reads the recurrences of an MXNet checkpoint's symbol.
* numpy_file      : Reads NumPy's `.npy` and `.npz`, and folders of `.npy`.
* safetensors_file: Reads safetensors, a file or a folder of shards.
* torch_file      : Reads the state dict of a PyTorch file, written by PyTorch 1.6 or later.
* torch_archive   : Reads tensors from the zip of a PyTorch file, as views of stored members.
* torch_pickle    : Follows the pickle of a PyTorch file, by placeholders for all names.
* flax_msgpack    : Reads files of Flax: msgpack of nested maps and arrays.

May import: text, errors, context, model, weights, read.dialects.
Entry: `READERS`, each with `recognise(path)` and `read`.
"""

from types import ModuleType
from typing import Final

from cudnn_convert.read.arrays import (
    cntk_model,
    flax_msgpack,
    mxnet_params,
    numpy_file,
    safetensors_file,
    torch_file,
)

READERS: Final[tuple[ModuleType, ...]] = (
    *(numpy_file, safetensors_file, torch_file),
    *(flax_msgpack, mxnet_params, cntk_model),
)
