"""`python -m cudnn_convert.cli` is the command `cudnn-convert`."""

from __future__ import annotations

from cudnn_convert.cli import run

run()
