"""Feeds from a user's data: recordings of arrays, records, tables.

* data    : What `--data` names: whole calls in arrays, or examples that are drawn and batched.
* features: What `--features` says: which feature of an example becomes which input, and how.
* records : Examples of files: TFRecords, and rows of CSV and Parquet files.
* pipeline: From examples to batches by `tf.data`: shuffled, batched, parsed at once, prefetched.

May import: text, errors, private, context, storage, model, casts, options, weights, read.tensorbundle,
storage.staging.
Entry: `data.read_calls` gives the arrays of each call by input key.
"""
