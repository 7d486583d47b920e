"""Reads TensorFlow's checkpoint files of both formats without TensorFlow.

The inner modules raise OSError, and ValueError whose text says what was found; `bundle` adds where that was.

* tables : Tables of a checkpoint: protocol buffer fields, checksums, LevelDB blocks.
* entries: Entries of a checkpoint's tables: dtypes, shapes, slices, and tensors made of slices.
* bundle : Opens a checkpoint of version 1 or 2: each tensor is read when it is used.

May import: errors, model, weights.
Entry: `bundle.tensors`.
"""
