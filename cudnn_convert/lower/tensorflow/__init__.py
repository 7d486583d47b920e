"""The lowering to TensorFlow ops that have CPU kernels in every build.

* lower      : Lowers every cuDNN node of a graph to CPU ops and plain variables.
* layer_stack: Lowers a recurrence: its layers and directions, as BlockLSTM or as loops.
* while_loop : Lowers one direction of a layer to a `while` loop over its steps.
* tf1_cells  : Weights as variables of TensorFlow 1's CPU cells, with optimizer slots.
* functions  : Lowers cuDNN nodes inside functions of a SavedModel, and blobs that may change.

May import: errors, model, weights, graph, graph.passes, recurrences, lower.projection.
Entry: `lower.lower` for a graph, `functions.lower_functions` for a SavedModel of TensorFlow 2.
"""
