"""Weights as numbers: gate orders, cuDNN's blob, lazy arrays.

This room reads no model files and imports no TensorFlow.

* layouts    : The gate table: every order and shape in which a source or target keeps weights.
* parameter_blob: cuDNN's parameter blob: its length, its division into cells, and back.
* lazy       : Weights larger than memory, read one part at a time.
* buffers    : Buffers for large arrays: aligned, used again, filled and read ahead.
* npz_archive: Reads `.npz` archives of plain arrays: headers are checked before data is read.

May import: errors, model, context.
Entry: `parameter_blob.split` and the functions of `layouts`, which give the cells of a recurrence.
"""
