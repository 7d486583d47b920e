"""Statement 4 of the proof: every op around recurrences, by itself.

* ask       : Asks whether every op around the recurrences of an artifact is the source's.
* graphs    : A TensorFlow graph as tensors: the maker of each, constants, and names of equal value.
* structure : Compares the nodes of two TensorFlow graphs, from the outputs backward.
* moved_ops : Ops with a different computation allowed in an artifact, listed for the judge.
* ranks     : Finds the number of axes of a tensor, behind loops too.
* layouts   : Tells whether an artifact's tensor is a source's tensor with reordered axes.
* tensorflow: Compares an artifact's TensorFlow graph with the source's graph, node by node.
* source    : The source's graph, with all tensors readable, where any tensor can be fed.
* duplicates: Finds graph nodes with the same computation as an earlier node.
* models    : Protocols for the tensors of an artifact by name, with values for any fed tensors.
* shared_tensors: Finds the tensors shared by an artifact and a source, by names and by values.
* keras     : A Keras model with readable layer outputs, where any layer output can be replaced.
* tflite    : A TensorFlow Lite file with readable and feedable tensors in the first subgraph.
* onnx      : An ONNX model with readable tensors by name, where any tensor can be fed.
* regions   : Regions: both graphs cut at shared tensors, with each part fed alone.
* values    : Values for fed tensors: the values of a run, and varied values of equal shapes.
* differences: Compares the values of a tensor on both sides, in units of the tensor's rounding.

May import: text, errors, apart, private, formats, model, weights, reference, report, graph, graph.passes,
recurrences, plan, artifacts, verification, verification.pieces.
Entry: `ask.report`.
"""
