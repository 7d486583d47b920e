"""Puts modules at `tf.contrib`, and messages for all former parts."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.private import keras_private

_NAME: Final = "tensorflow.contrib"


class _Missing(ModuleType):
    """A missing part of contrib: importable, with an error on use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        return sys.modules.get(whole) or _Missing(whole)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(self._message())

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        raise NotImplementedError(self._message())

    def _message(self) -> str:
        name = self.__name__.replace("tensorflow.", "tf.", 1)
        return (
            f"{name}: expected a part of tf.contrib that cudnn_convert.compat has (cudnn_rnn, rnn), found "
            "another, which left TensorFlow with version 2: replace the call"
        )


class _Package(_Missing):
    """A part of contrib for import statements to look into."""

    __path__: list[str] = []  # noqa: RUF012 - as a module has it


class _Importer:
    """A finder and maker of modules imported below `tensorflow.contrib`."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name.startswith(f"{_NAME}."):
            return importlib.util.spec_from_loader(name, cls)  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Leave the finished module alone."""


def install(modules: Mapping[str, ModuleType]) -> None:
    """Put modules below `tf.contrib` by name: see `cudnn_rnn.install`."""
    if _NAME in sys.modules:
        return
    for name, module in modules.items():
        inner = f"{_NAME}.{name}"
        sys.modules[inner] = module
        while inner != _NAME:
            inner = inner.rpartition(".")[0]
            sys.modules.setdefault(inner, _Package(inner))
    sys.meta_path.append(_Importer)
    cells, layers = keras_private.legacy_namespaces()
    owners: tuple[Any, Any] = tf, tf.compat.v1
    for owner in owners:
        owner.contrib = sys.modules[_NAME]
    # Keras 3 has neither; what TensorFlow has in their place then raises for every name.
    if not hasattr(tf.compat.v1.nn.rnn_cell, "BasicRNNCell"):
        tf.compat.v1.nn.rnn_cell = cells
    if not hasattr(tf.compat.v1.layers, "dense"):
        tf.compat.v1.layers = layers
