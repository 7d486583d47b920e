"""The TensorFlow beside the package: which versions are tried, and what a call says of others.

No requirement of a wheel can name "tensorflow or tensorflow-cpu" (packaging.python.org, dependency
specifiers), so the wheel names neither, and calls look at what is installed. The package tf-keras requires
`tensorflow` by that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cudnn_convert import version
from cudnn_convert.errors import MissingDependencyError

#: The oldest and the newest minor version that the tests ran with.
OLDEST: Final = (2, 16)
NEWEST: Final = (2, 21)
_RANGE: Final = f"a version from {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
_REQUIREMENT: Final = f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
_INSTALL: Final = "pip install 'cudnn-convert[tensorflow]'"


def check_versions() -> None:
    """Check the versions of the installed TensorFlow and tf_keras, without an import.

    Raises MissingDependencyError outside the range, and for a tf_keras of another minor version. A missing
    package is no error here: calls on weights without a graph need none.
    """
    distribution, tensorflow = version.find_tensorflow()
    if tensorflow is None:
        return
    if not OLDEST <= _minor(tensorflow) <= NEWEST:
        advice = f"pip install '{distribution}{_REQUIREMENT}'"
        raise MissingDependencyError(f"{distribution}: expected {_RANGE}, found {tensorflow}; {advice}")
    tf_keras = version.find_version("tf-keras")
    if tf_keras is not None and _minor(tf_keras) != _minor(tensorflow):
        raise MissingDependencyError(f"tf-keras: {_matching(tensorflow, tf_keras)}")


@contextmanager
def name_missing() -> Iterator[None]:
    """Turn the failed import of TensorFlow or tf_keras into a MissingDependencyError, within the context."""
    try:
        yield
    except ModuleNotFoundError as cause:
        package = (cause.name or "").partition(".")[0]
        if package == "tensorflow":
            reason = f"tensorflow: expected {_RANGE}, found none; {_INSTALL}"
            raise MissingDependencyError(reason) from cause
        _, tensorflow = version.find_tensorflow()
        if package == "tf_keras" and tensorflow is not None:
            raise MissingDependencyError(f"tf-keras: {_matching(tensorflow, 'none')}") from cause
        raise


def _minor(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version such as `2.21.0rc1`."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def _matching(tensorflow: str, tf_keras: str) -> str:
    """Return what to say of a version of tf_keras, or none, that does not match TensorFlow.

    The install leaves out its requirements, of which `tensorflow` would replace another distribution.
    """
    major, minor = _minor(tensorflow)
    advice = f"pip install --no-deps 'tf-keras=={major}.{minor}.*'"
    return f"expected version {major}.{minor}, which is TensorFlow's, found {tf_keras}; {advice}"
