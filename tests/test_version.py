"""Versions of the packages that bear on an artifact."""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.version import list_versions


def test_versions_are_those_of_the_imported_packages() -> None:
    versions = list_versions()
    assert versions["numpy"] == np.__version__
    assert versions["tensorflow"] == tf.__version__


def test_tensorflow_has_its_name_whichever_distribution_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "tensorflow-cpu":
            raise metadata.PackageNotFoundError(name)
        return "2.18.1"

    monkeypatch.setattr(metadata, "version", version)
    assert list_versions() == {"tensorflow": "2.18.1"}


def test_a_package_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "onnx":
            raise metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(metadata, "version", version)
    assert list_versions() == {"onnx": "1.2.3"}
