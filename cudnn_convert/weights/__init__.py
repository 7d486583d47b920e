"""Weights as numbers: gate orders, cuDNN's blob, lazy arrays. No files of models, no TensorFlow.

* layouts    : The gate table: every order and shape in which a source or target keeps weights.
* cudnn_blob : cuDNN's opaque parameter blob: its length, and its way into cells and back.
* lazy       : Weights larger than memory: read, transposed and written one part at a time.
* npz_archive: Reads `.npz` archives of plain arrays: headers are checked before data is read.
"""
