"""The version of the package, and of those that it works with."""

from importlib import metadata
from typing import Final

__version__ = "0.1.0"

#: The packages that bear on an artifact and on its proof.
_RUNTIMES: Final = tuple("tensorflow keras tf_keras tf2onnx onnx onnxruntime numpy h5py safetensors".split())


def list_versions() -> dict[str, str]:
    """List the installed versions of the packages that make and prove artifacts, without importing them."""
    versions = {}
    for name in _RUNTIMES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # such as TensorFlow under another name
            continue
    return versions
