"""Statement 4 of the proof: every op around recurrences, by itself.

* ask       : Asks whether every op around the recurrences of an artifact is the source's.
* graphs    : A TensorFlow graph as tensors: what makes each, which are constants, which names mean one value.
* structure : Compares the nodes of two TensorFlow graphs, from their outputs backward.
* moved_ops : The ops that an artifact may compute in another way than its source, as the judge knows them.
* ranks     : Finds how many axes a tensor has, behind loops too.
* layouts   : Tells whether a tensor of an artifact is one of the source with its axes in another order.
* tensorflow: Graphs of TensorFlow: an artifact's beside its source's, node by node.
* source    : The source's graph, which gives any of its tensors when any others are fed.
* duplicates: Finds nodes of a graph that compute what an earlier node does.
* models    : What is asked of an artifact: its tensors by name, and their values when others are fed.
* shared_tensors: Finds which tensors of an artifact are the source's, by names and by values.
* apart     : A function in a process of its own, whose end is an exception here.
* keras     : A Keras model that gives what its layers give, when others are given in their place.
* tflite    : A TensorFlow Lite file that gives any tensors of its first subgraph when others are fed.
* onnx      : A model of ONNX that gives any of its named tensors when others are fed.
* regions   : Regions: both graphs are cut at the tensors that they share, and each part is fed by itself.
* values    : Values for tensors that are fed: those of a run, and others of the same shapes.
* differences: Compares the values of one tensor on both sides, in units of its own rounding.

May import: text, errors, process, private, formats, model, weights, reference, report, graph, graph.passes,
recurrences, plan, artifacts, verification, verification.pieces.
Entry: `ask.report`.
"""
