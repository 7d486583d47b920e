"""Statements 1 and 2 of the proof: each recurrence by itself, and the glue.

A piece is what the artifact computes for one recurrence, or for some of its layers.
The glue is everything around recurrences, which runs with their outputs given.

* piece_inputs: A recurrence asked alone: the inputs, and the movement by wrong weights.
* ask         : Asks each recurrence of an artifact by itself; the float64 reference judges.
* carve       : Carves the ops of a recurrence out of a TensorFlow graph or function.
* glue_runs   : Runs of the glue: feeds, given values of recurrences, and the results.
* glue        : The glue: source and artifact run with the outputs of recurrences given.
* graph_glue  : A TensorFlow graph with given recurrence outputs and noted recurrence inputs.
* keras       : Recurrent layers of a Keras model, alone and with given outputs.
* onnx        : Fused nodes of an ONNX model, alone and with given outputs.
* tflite      : Loops and fused ops of a TensorFlow Lite file, each as a model.
* tflite_glue : A TensorFlow Lite file with given recurrence outputs.

May import: text, errors, private, formats, model, weights, reference, report, graph, graph.passes,
recurrences, plan, artifacts, verification.
Entry: `ask.reports` for the recurrences, `ask.glue` for the rest.
"""
