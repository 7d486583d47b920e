"""The processes of users: cudnn_convert cannot be imported in them, and a test may ask for a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import user_processes


@pytest.mark.parametrize("tensorflow", [True, False])
def test_cudnn_convert_cannot_be_imported(tmp_path: Path, tensorflow: bool) -> None:
    process = user_processes.user(tensorflow=tensorflow)
    named = [
        {"module": name, "call": "convert", "folder": str(tmp_path)} for name in ("cudnn_convert", "numpy")
    ]
    ours, other = process.ask(named)
    assert ours == "ModuleNotFoundError: import of cudnn_convert halted; None in sys.modules"
    assert other == "AttributeError: module 'numpy' has no attribute 'convert'"


def test_a_test_may_ask_for_a_new_process() -> None:
    before = user_processes.user(tensorflow=False)
    assert user_processes.user(tensorflow=False) is before
    after = user_processes.user(tensorflow=False, anew=True)
    assert after.pid != before.pid
    assert after.ask([]) == []


def test_a_process_that_ends_is_not_an_answer(tmp_path: Path) -> None:
    process = user_processes.user(tensorflow=False, anew=True)
    with pytest.raises(AssertionError, match="the user's process ended"):
        process.ask([{"module": "os", "call": "abort", "folder": str(tmp_path)}])
    assert user_processes.user(tensorflow=False, anew=True).ask([]) == []
