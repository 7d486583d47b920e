"""`python -m cudnn_convert.cli` is the command `cudnn-convert`."""

from cudnn_convert.cli import run

run()
