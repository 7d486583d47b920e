"""`python -m cudnn_convert` is the command `cudnn-convert`."""

from cudnn_convert.cli import run

run()
