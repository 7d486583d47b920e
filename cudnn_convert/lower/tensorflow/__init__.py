"""The lowering to TensorFlow ops with CPU kernels in every build.

* lower      : Lowers every cuDNN node of a graph, or of kept functions, to CPU ops.
* layer_stack: Lowers a recurrence's layers and directions to BlockLSTM or to loops.
* while_loop : Lowers a direction of a layer to a `while` loop, with several steps an iteration.
* tf1_cells  : Weights as variables of TensorFlow 1's CPU cells, with optimizer slots.

May import: errors, private, model, weights, graph, graph.passes, recurrences.
Entry: `lower.lower` for a graph, `lower.lower_functions` for a SavedModel of TensorFlow 2.
"""
