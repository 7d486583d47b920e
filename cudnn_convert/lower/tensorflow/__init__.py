"""The lowering to TensorFlow ops that have CPU kernels in every build.

* lower      : Lowers every cuDNN node of a graph, or of functions that stay, to CPU ops.
* layer_stack: Lowers a recurrence: its layers and directions, as BlockLSTM or as loops.
* while_loop : Lowers one direction of a layer to a `while` loop over its steps, several an iteration.
* tf1_cells  : Weights as variables of TensorFlow 1's CPU cells, with optimizer slots.

May import: errors, private, model, weights, graph, graph.passes, recurrences.
Entry: `lower.lower` for a graph, `lower.lower_functions` for a SavedModel of TensorFlow 2.
"""
