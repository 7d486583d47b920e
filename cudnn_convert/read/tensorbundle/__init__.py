"""Reads TensorFlow's checkpoint files of both formats without TensorFlow.

`tables` and `entries` raise OSError, and ValueError that says what is wrong; `bundle` adds the file and
tensor.

* tables : Tables of a checkpoint: protocol buffer fields, checksums, LevelDB blocks.
* entries: Entries of a checkpoint's tables: dtypes, shapes, slices, and tensors made of slices.
* bundle : Opens a checkpoint of version 1 or 2; each tensor is read on demand.

May import: errors, model, weights.
Entry: `bundle.tensors`.
"""
