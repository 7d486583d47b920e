"""Readers of arrays: files of weights from any framework, without a graph.

* containers      : Makes a model of named arrays, and finds the files behind a path.
* numpy_file      : Reads NumPy's `.npy` and `.npz`, and folders of `.npy`.
* safetensors_file: Reads safetensors, a file or a folder of shards.
* torch_file      : Reads the state dict of a PyTorch file, as `torch.save` writes it since PyTorch 1.6.
* torch_archive   : Finds the storages of a PyTorch file in its zip, and reads views of them.
* torch_pickle    : Reads the pickle of a PyTorch file without running anything of it.

May import: text, errors, context, model, weights, read.dialects.
Entry: `READERS`, each with `recognise(path)` and `read`.
"""

from types import ModuleType
from typing import Final

from cudnn_convert.read.arrays import numpy_file, safetensors_file, torch_file

READERS: Final[tuple[ModuleType, ...]] = (numpy_file, safetensors_file, torch_file)
