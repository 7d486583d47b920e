"""The command line where TensorFlow, tf_keras and Keras are not installed.

python without_tensorflow.py ARGUMENTS
"""

import sys
from typing import Any

MISSING = {"tensorflow", "tf_keras", "keras"}


class Missing:
    """Finds no module of MISSING, as if it were not installed."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())  # type: ignore[arg-type]

from cudnn_convert_command import run  # noqa: E402

run()
