"""Feeds from a user's data: recordings of arrays, records, tables.

* data    : Reads the data of `--data`: whole calls in arrays, or examples drawn and batched.
* features: Reads `--features`: the feature of an example for each input, with type and shape.
* records : Reads examples from files: TFRecords, and rows of CSV and Parquet files.
* pipeline: Makes batches of examples by `tf.data`: shuffled, batched, parsed at once, prefetched.

May import: text, errors, private, context, storage, model, casts, options, weights, read.tensorbundle,
storage.staging.
Entry: `data.read_calls` gives the arrays of each call by input key.
"""
