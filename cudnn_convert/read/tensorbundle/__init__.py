"""Reads TensorFlow's checkpoint files of both formats without TensorFlow.

`v1` and `v2` know one format each, `table` the tables of both, `pieces` how a tensor is put together. All
raise OSError, and ValueError whose text says what was found; `read.tensorbundle.bundle` adds where that was.

* tables : Tables of a checkpoint: protocol buffer fields, checksums, LevelDB blocks.
* entries: Entries of a checkpoint's tables: dtypes, shapes, slices, and tensors made of slices.
* formats: The two formats of checkpoints: V1 tables of slices, V2 index and data files.
* bundle : Opens a checkpoint of either format: each tensor is read when it is used.
"""
