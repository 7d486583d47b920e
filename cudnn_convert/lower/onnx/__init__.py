"""The lowering to ONNX: tf2onnx converts the graph, fused nodes the recurrences.

* convert          : Converts a graph with tf2onnx; a handler replaces cuDNN nodes.
* exact_ops        : ONNX forms of ops converted wrongly by tf2onnx for unexpected values.
* exact_numbers    : Exact ONNX forms of reductions, searches and ranges, for every integer and double.
* images           : ONNX forms of ops for resizing images.
* exact_types      : ONNX forms of ops with types, values or sizes unsupported by tf2onnx' own forms.
* wrong_ops        : Ops converted by tf2onnx, but computed differently or refused by ONNX Runtime.
* large_constants  : Hides large constants from tf2onnx, to save copies in many steps.
* lossy_casts      : Lossy casts added by tf2onnx: integers and doubles made floats.
* fused_nodes      : Builds fused ONNX nodes: one LSTM, GRU or RNN for each layer.
* walk             : Walks ONNX graphs and orders nodes and subgraph outputs.
* search           : A search over a model's steps: a Loop around the model's own ONNX graph.
* finish           : Last passes of an ONNX model, and the model of a single recurrence.
* checker          : Checks a finished ONNX model for standard ops, and by ONNX's own checker.
* reduced_precision: Stores ONNX weights in float16, or multiplies LSTMs in int8.
* tf2onnx_ops      : Adds nodes to a tf2onnx graph.
* tf2onnx_private  : Private parts of tf2onnx: the log is read, the order patched for equal bytes.

May import: version, text, errors, model, values, weights, graph, graph.passes, recurrences, lower.block_lstm,
lower.search, lower.missing_ops, lower.tensor_lists.
Entry: `convert.lower` for a graph, `finish.lower` for one recurrence.
"""
