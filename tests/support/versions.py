"""Marks of tests that need more than the oldest versions of the libraries."""

from importlib.metadata import version

import pytest
import tensorflow as tf


def is_older(installed: str, *least: int) -> bool:
    """Whether a version such as `2.18.1` is older than its first numbers say."""
    return tuple(int(part) for part in installed.split(".")[: len(least)]) < least


def needs(distribution: str, *least: int, why: str) -> pytest.MarkDecorator:
    """Skip a test beside an older version of a distribution, with the reason."""
    installed = tf.__version__ if distribution == "tensorflow" else version(distribution)
    wanted = ".".join(map(str, least))
    reason = f"{distribution} {installed}: needs {wanted}, before which {why}"
    return pytest.mark.skipif(is_older(installed, *least), reason=reason)
