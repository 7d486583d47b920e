"""Statement 4 of the proof: every op around recurrences, by itself.

* ask       : Asks whether every op around the recurrences of an artifact is the source's.
* graphs    : A TensorFlow graph as tensors: what makes each, which are constants, which names mean one value.
* structure : Compares the nodes of two TensorFlow graphs, from their outputs backward.
* tensorflow: Graphs of TensorFlow: an artifact's beside its source's, node by node.

May import: errors, private, formats, model, weights, reference, report, graph, graph.passes, recurrences,
plan, artifacts, verification, verification.pieces.
Entry: `ask.report`.
"""
