"""The classes and functions that a user names for a model: `module:name`, imported as Python would."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import UsageError
from cudnn_convert.keras import architecture, layers
from cudnn_convert.keras.architecture import Entry


@dataclass(frozen=True, slots=True)
class Vouched:
    """What the user stands for: classes and functions by name, and with `trust` the code in the file.

    A class is written for one library: that for tf_keras builds the source, that for Keras 3 an archive.
    """

    tf_keras: Mapping[str, Any] = field(default_factory=dict)
    keras: Mapping[str, Any] = field(default_factory=dict)
    trust: bool = False

    def for_both(self) -> Vouched:
        """Without what is brought for tf_keras alone: what goes to Keras 3 needs its classes in both."""
        kept = {name: brought for name, brought in self.tf_keras.items() if name in self.keras}
        return replace(self, tf_keras=kept)

    def for_keras_3(self) -> Vouched:
        """For a source of Keras 3, which nothing of tf_keras's belongs into."""
        return replace(self, tf_keras=self.keras)


NOTHING: Final = Vouched()


def vouched(items: Sequence[str], *, trust: bool = False) -> Vouched:
    """Each of `items` by its name; modules are looked for in the current folder too. Raises UsageError."""
    found: dict[str, dict[str, Any]] = {"tf_keras": {}, "keras": {}}
    for item in items:
        module, _, name = item.partition(":")
        try:
            with _current_folder():
                brought = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as cause:
            raise UsageError(f"--custom-objects {item}: expected MODULE:NAME, found {cause}") from cause
        for library in _libraries(brought) or found:
            found[library][name] = brought
    return Vouched(**found, trust=trust)


def by_all_names(brought: Mapping[str, Any], model: Entry) -> dict[str, Any]:
    """What is brought, by its own names and by those that a model has its classes registered under."""
    named = {layers.registered(entry): layers.bare(entry) for _, entry in architecture.walk(model)}
    return {**brought, **{name: brought[own] for name, own in named.items() if own in brought}}


def by_name(brought: Mapping[str, Any], value: Any) -> Any:
    """A config of Keras 3 in which what is brought goes by its own name alone.

    keras v3.15 src/saving/serialization_lib.py `_retrieve_class_or_fn` imports the module that a config names
    where nothing is brought under the registered name.
    """
    if isinstance(value, list):
        return [by_name(brought, found) for found in value]
    if not isinstance(value, Mapping):
        return value
    made = {key: by_name(brought, found) for key, found in value.items()}
    kind = str(value.get("class_name")).rpartition(">")[2]
    name = value.get("config") if kind == "function" else kind
    known = "class_name" in value and isinstance(name, str) and name in brought
    return {**made, "module": None, "registered_name": name} if known else made


def _libraries(brought: Any) -> set[str]:
    """The one of both that a class is derived from."""
    bases = brought.__mro__ if isinstance(brought, type) else ()
    return {base.__module__.partition(".")[0] for base in bases} & {"tf_keras", "keras"}


@contextmanager
def _current_folder() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
