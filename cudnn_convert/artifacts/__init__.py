"""An artifact as its user meets it: identified, checked, run.

What runs an artifact never imports what wrote it: neither `lower` nor `targets`.

* runners    : Identifies an artifact on disk, opens it in its runtime, and calls it.
* safety     : Checks what an artifact's graph would run when it is loaded.

One module for each format, named in its row of `formats.FORMATS`, with the functions of `runners.Opener`:

* saved_model: Opens a SavedModel as its users do: `tf.saved_model.load`, functions beside its signatures too.
* checkpoint : Opens a checkpoint of TensorFlow 1 with its MetaGraph, as `import_meta_graph` and its saver do.
* frozen     : Opens a frozen graph in a Session, by the tensor names of a signature.
* onnx       : Opens an ONNX file in ONNX Runtime on the CPU, named by the signature's keys.
* tflite     : Opens a TensorFlow Lite file in TensorFlow's interpreter, once its bytes are checked.
* keras      : Opens a `.keras` archive through Keras 3, up to where the source could be traced.
* h5         : Opens an HDF5 file through tf_keras, up to the first layer that is not allowed.
* weights    : Opens decoded weights, and computes them in NumPy.

May import: text, errors, private, formats, context, storage, model, casts, graph, recurrences, keras,
keras.config, read.
Entry: `runners.identify` says what an artifact is, `runners.open_artifact` loads it to be run,
`runners.call_artifact` runs it once.
"""
