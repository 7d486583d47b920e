"""Parses the YAML of older Keras for a model's config to JSON values.

PyYAML's safe loader makes plain values alone; a tuple, and a text of Python 2, are plain too. An alias may
stand for much more than the file holds, so the values are counted.
Source: keras 2.3.1 engine/network.py Network.to_yaml, which is `yaml.dump` of what `to_json` dumps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import MissingDependencyError, ReadError
from cudnn_convert.text import first_line

_MOST: Final = 1_000_000
#: What makes the value of a tag of PyYAML for Python.
_TAGS: Final = {"tuple": "construct_yaml_seq", "unicode": "construct_yaml_str", "str": "construct_yaml_str"}


def is_yaml(content: bytes) -> bool:
    """Return True if a file is YAML of a model rather than JSON."""
    return content.lstrip()[:1] != b"{" and b"class_name:" in content


def parse_yaml(path: Path, content: bytes) -> Mapping[str, Any]:
    """Parse a model's config. Raises ReadError, or MissingDependencyError if PyYAML is missing."""
    try:
        import yaml
    except ImportError as cause:
        expected = "expected PyYAML, which reads YAML, found that it is not installed"
        raise MissingDependencyError(
            f"{path}: {expected}; install it: pip install 'cudnn-convert[yaml]'"
        ) from cause

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        """The safe loader with Python's plain types."""

    for name, construct in _TAGS.items():
        PlainLoader.add_constructor(f"tag:yaml.org,2002:python/{name}", getattr(PlainLoader, construct))
    try:
        config = yaml.load(content, PlainLoader)
        record = _plain(config)
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise ReadError(path, "model.yaml", expected="YAML of a model", found=first_line(cause)) from cause
    if not isinstance(record, dict):
        raise ReadError(path, "model.yaml", expected="a YAML mapping", found=type(record).__name__)
    return record


def _plain(value: Any) -> Any:
    """Return a value in JSON's types.

    Raises ValueError for one of too many parts, or that holds itself.
    """
    left = [_MOST]

    def change(value: Any, around: tuple[int, ...]) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError(f"more than {_MOST} values")
        if id(value) in around:
            raise ValueError("a value that holds itself")
        inside = (*around, id(value))
        if isinstance(value, Mapping):
            return {str(key): change(item, inside) for key, item in value.items()}
        return [change(item, inside) for item in value] if isinstance(value, list) else value

    return change(value, ())
