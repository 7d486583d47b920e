"""The version of the package, and the versions of related packages."""

from importlib import metadata
from typing import Final

__version__ = "0.1.0"

#: The packages that bear on an artifact and on its proof.
_RUNTIMES: Final = tuple("tensorflow keras tf_keras tf2onnx onnx onnxruntime numpy h5py safetensors".split())


def list_versions() -> dict[str, str]:
    """List the installed versions of packages making and proving artifacts.

    They are not imported. TensorFlow is `tensorflow`, whichever distribution holds it.
    """
    versions = {name: find_version(name) for name in _RUNTIMES}
    versions["tensorflow"] = find_tensorflow()[1]
    return {name: version for name, version in versions.items() if version is not None}


def find_tensorflow() -> tuple[str, str | None]:
    """Return the installed distribution of TensorFlow and its version, or `tensorflow` and None."""
    for name in _TENSORFLOW:
        if (installed := find_version(name)) is not None:
            return name, installed
    return _TENSORFLOW[0], None


def find_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


#: Distributions of the package `tensorflow`.
_TENSORFLOW: Final = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-macos",
    "tensorflow-intel",
    "tensorflow-rocm",
    "tensorflow-cpu-aws",
)
