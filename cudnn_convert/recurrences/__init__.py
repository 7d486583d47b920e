"""From cuDNN nodes and stored weights to `Recurrence` values.

* parameter_source  : Finds where a cuDNN node's parameters come from, and computes those a graph packs.
* resolve           : Makes a checked `Recurrence` of a cuDNN node or a block LSTM.
* weight_copies     : Chooses a copy of a recurrence's weights, and checks that all copies agree.
* restored_blobs    : Computes blobs that a checkpoint stores in another form, by its saver's restore ops.
* graphless         : Recurrences of a source without a graph: from names, shapes and flags.
* graph_from_weights: Builds a graph for weights that have none: each recurrence between placeholders.
* drop_in           : Recurrences that `cudnn_convert.compat` built of CPU ops become cuDNN nodes again.
* saved_functions   : Nodes for a GPU in functions of a TensorFlow 2 SavedModel, and where the weights of
  cuDNN's are.
* named_weights     : Decoded weights by name: arrays, PyTorch's state dict, layers of Keras 3.

May import: text, errors, private, keras_cells, model, weights, graph, graph.passes.
Entry: `resolve.recurrences` for a graph, `graphless.find_blob_recurrences` and `graphless.canonical`
without one.
"""
