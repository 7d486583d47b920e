"""Makes `Recurrence` values from cuDNN nodes and stored weights.

* parameter_source  : Finds the source of a cuDNN node's parameters, and computes parameters packed by a
  graph.
* resolve           : Makes a checked `Recurrence` of a cuDNN node or a block LSTM.
* weight_copies     : Chooses a copy of a recurrence's weights, and checks the agreement of all copies.
* restored_blobs    : Computes blobs stored in another form in a checkpoint, by the saver's restore ops.
* graphless         : Recurrences of a graphless source, found by names, shapes and flags.
* graph_from_weights: Builds a graph for graphless weights: each recurrence between placeholders.
* drop_in           : Turns recurrences built of CPU ops by `cudnn_convert.compat` back into cuDNN nodes.
* saved_functions   : GPU nodes in functions of a TensorFlow 2 SavedModel, and the location of cuDNN weights.
* named_weights     : Decoded weights by name: arrays, PyTorch's state dict, layers of Keras 3.

May import: text, errors, private, keras_cells, model, weights, graph, graph.passes.
Entry: `resolve.recurrences` for a graph, `graphless.find_blob_recurrences` and `graphless.canonical`
without one.
"""
