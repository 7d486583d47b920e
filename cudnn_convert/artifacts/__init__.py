"""An artifact as its user meets it: identified, checked, run.

What runs an artifact never imports what wrote it: neither `lower` nor `targets`.

* origin         : Identifies an artifact on disk, and reads the provenance that it carries.
* pair_names     : Matches signature keys to an artifact's tensor names where no provenance says them.
* safety         : Checks what an artifact's graph would run when it is loaded.
* tflite_file    : Checks the bytes and tensors of a TensorFlow Lite file before the interpreter maps it.
* runners        : Runs an artifact as its user does: TensorFlow, ONNX Runtime, TFLite, Keras.
* saved_functions: Runs functions of a TensorFlow 2 SavedModel that no signature calls.
* weights        : Weights of an artifact: as arrays by name, and computed in NumPy.

May import: errors, formats, context, storage, model, graph, recurrences, keras, keras.config, read.
Entry: `origin.identify` says what an artifact is, `runners.open_artifact` loads it to be run.
"""
