"""Weights as numbers: gate orders, cuDNN's blob, lazy arrays.

This room reads no model files and imports no TensorFlow.

* layouts    : The gate table: every order and shape of weights in sources and targets.
* parameter_blob: cuDNN's parameter blob: length, and division into cells.
* lazy       : Weights larger than memory, read part by part.
* buffers    : Buffers for large arrays: aligned, used again, filled and read ahead.
* training_state: Tells the tensors of an optimizer's state by key.
* npz_archive: Reads `.npz` archives of plain arrays: headers are checked before data is read.

May import: errors, model, context.
Entry: `parameter_blob.split` and the functions of `layouts`, which give the cells of a recurrence.
"""
