"""Statements 1 and 2 of the proof: each recurrence by itself, and the glue.

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

* piece_inputs: A recurrence asked by itself: its inputs, and what wrong weights would move.
* ask         : Asks an artifact of each format for its recurrences, and judges the answers.
* judge       : Judges a recurrence of an artifact by the float64 reference.
* carve       : Carves the ops of one recurrence out of a TensorFlow graph or function.
* glue        : The glue: source and artifact run with the outputs of recurrences given.
* graph_glue  : A TensorFlow graph whose recurrences give what is given, and note their inputs.
* keras       : Recurrent layers of a Keras model, alone and with given outputs.
* onnx        : Fused nodes of an ONNX model, alone and with given outputs.
* tflite      : Loops of a TensorFlow Lite file, each cut out as a model.
* tflite_glue : A TensorFlow Lite file whose recurrences give what is given.
* tflite_graph: A TensorFlow Lite file as an object, and parts of it as files.
"""
