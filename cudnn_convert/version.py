"""The version of the package, and the versions of related packages."""

from importlib import metadata
from typing import Final

__version__ = "0.1.0"

#: The packages that bear on an artifact and on its proof.
_RUNTIMES: Final = tuple("tensorflow keras tf_keras tf2onnx onnx onnxruntime numpy h5py safetensors".split())


def list_versions() -> dict[str, str]:
    """List the installed versions of packages making and proving artifacts.

    They are not imported.
    """
    versions = {}
    for name in _RUNTIMES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # such as TensorFlow under another name
            continue
    return versions
