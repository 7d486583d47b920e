"""Writers: one module per format, and the table of them.

* registry   : From a plan to an artifact: what a format takes, leaves out, and writes.
* bundle     : Writes variable bundles, and the nodes that save and restore a graph's variables.

One module for each format, named in its row of `formats.FORMATS`, with the functions of `registry.Target`:

* saved_model: Writes SavedModels: new ones, repaired ones, their assets.
* frozen     : Writes a frozen graph: one binary GraphDef, tensor names as in the source.
* checkpoint : Writes a TensorFlow 1 checkpoint with its MetaGraph; `--rename` changes keys.
* onnx       : Writes an ONNX file; weights past 2 GiB go to a file beside it.
* tflite     : Writes a TensorFlow Lite file with its provenance in the metadata.
* keras      : Writes a `.keras` archive for Keras 3, the same bytes every time.
* h5         : Writes a Keras model in one HDF5 file, as Keras 2 and tf_keras do.
* weights    : Writes decoded weights as `.npz` or safetensors.

May import: errors, private, formats, context, model, options, weights, report, graph, graph.passes,
recurrences, keras, keras.config, lower, lower.tensorflow, lower.onnx, plan, artifacts.tflite_file.
Entry: `registry.write_artifact`.
"""
