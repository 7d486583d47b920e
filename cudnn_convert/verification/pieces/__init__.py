"""Every recurrence by itself: asked where an artifact computes it, judged by the float64 reference.

| module | what it has |
|---|---|
| `asking` | which module asks the artifacts of each format; the reports of all recurrences |
| `piece` | `Piece`, layers of a recurrence that can be asked; `Artifact`, where they are looked for |
| `onnx` | pieces of ONNX models: their fused nodes |
| `tflite` | pieces of TensorFlow Lite files: their loops |
| `tflite_graph` | TensorFlow Lite files as objects, and parts of them that run |
| `carve` | pieces of graphs: what stands in a cuDNN node's place |
| `repaired` | pieces of repaired SavedModels: the functions that cuDNN nodes became |
| `keras` | pieces of Keras models: their layers |
| `arrays` | pieces of files of weights, computed by hand |
| `inputs` | inputs scaled to a recurrence's matrices |
| `power` | the choice of inputs on which every wrong weight would show |
| `judging` | a piece's answers compared with the reference's |
| `glue` | what stands around recurrences, with their values given |
| `glue_source` | what is compared with in the source's graph |
| `onnx_glue`, `tflite_glue`, `graph_glue`, `keras_glue` | runs of that in artifacts of each kind |
"""
