"""The bytes of TensorFlow's checkpoints of both formats, read without TensorFlow.

`v1` and `v2` know one format each, `table` the tables of both, `pieces` how a tensor is put together. All
raise OSError, and ValueError whose text says what was found; `read.bundle` adds where that was.
"""
