"""Weights as numbers: gate orders, cuDNN's blob, lazy arrays.

This room reads no model files and imports no TensorFlow.

* layouts    : The gate table: every order and shape in which a source or target keeps weights.
* lazy       : The parameter blob, and weights larger than memory, read one part at a time.
* npz_archive: Reads `.npz` archives of plain arrays: headers are checked before data is read.

May import: errors, model, context.
Entry: `lazy.split` and the functions of `layouts`, which give the cells of a recurrence.
"""
