"""Weights as numbers: gate orders, cuDNN's blob, lazy arrays.

No files of models and no TensorFlow here.

* layouts    : The gate table: every order and shape in which a source or target keeps weights.
* cudnn_blob : cuDNN's opaque parameter blob: its length, and its way into cells and back.
* lazy       : Weights larger than memory: read, transposed and written one part at a time.
* npz_archive: Reads `.npz` archives of plain arrays: headers are checked before data is read.

May import: errors, model, context.
Entry: `cudnn_blob.split` and the functions of `layouts`, which give the cells of a recurrence.
"""
