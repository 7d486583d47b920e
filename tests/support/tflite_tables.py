"""Tables of TensorFlow Lite's schema with the values of their fields."""

from typing import Any


def table(kind: type, **fields: Any) -> Any:
    """Make a table: before TensorFlow 2.21 its class takes no arguments."""
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made
