"""An artifact in the hands of a user: identified, checked, run.

What runs an artifact never imports what wrote it: neither `lower` nor `targets`.

* runners    : Identifies an artifact on disk, opens a runtime, and calls the artifact.
* safety     : Checks the ops run by loading an artifact's graph.

One module for each format, named in its row of `formats.FORMATS`, with the functions of `runners.Opener`:

* saved_model: Opens a SavedModel like a user: `tf.saved_model.load`, functions beside signatures too.
* checkpoint : Opens a TensorFlow 1 checkpoint and MetaGraph like `import_meta_graph` and the saver.
* frozen     : Opens a frozen graph in a Session, by the tensor names of a signature.
* onnx       : Opens an ONNX file in ONNX Runtime on the CPU, named by the signature's keys.
* tflite     : Opens a TensorFlow Lite file in TensorFlow's interpreter, after checking the bytes.
* micro      : Runs a TensorFlow Lite file in TensorFlow Lite Micro's interpreter, and measures the memory.
* micro_operators: The operators with a kernel in TensorFlow Lite Micro.
* keras      : Opens a `.keras` archive through Keras 3, up to the source's traceable end.
* h5         : Opens an HDF5 file through tf_keras, up to the first refused layer.
* weights    : Opens decoded weights, and computes recurrences in NumPy.

May import: text, errors, private, formats, context, storage, apart, model, casts, report.values,
graph, recurrences, keras, keras.config, read.
Entry: `runners.identify` says what an artifact is, `runners.open_artifact` loads it to be run,
`runners.call_artifact` runs it once.
"""
