"""The lowering to ONNX: tf2onnx converts the graph, fused nodes the recurrences.

* convert          : Converts a graph with tf2onnx; a handler replaces its cuDNN nodes.
* exact_ops        : ONNX forms of ops that tf2onnx converts rightly only for the values that it expects.
* exact_numbers    : ONNX forms of reductions, searches and ranges that keep every integer and every double.
* images           : ONNX forms of ops that change the size of images.
* exact_types      : ONNX forms of ops in types, of values or with sizes that tf2onnx' own forms do not take.
* wrong_ops        : Ops that tf2onnx converts, and that ONNX Runtime then computes otherwise, or not at all.
* large_constants  : Hides large constants from tf2onnx, which copies them in many of its steps.
* lossy_casts      : Casts that tf2onnx adds and that lose numbers: integers and doubles made floats.
* fused_nodes      : Builds fused ONNX nodes: one LSTM, GRU or RNN for each layer.
* walk             : Walks ONNX graphs and orders nodes and subgraph outputs.
* search           : A search over a model's steps: a Loop whose body is the model's own ONNX graph.
* finish           : Last passes of an ONNX model, and the model of one recurrence alone.
* checker          : Checks a finished ONNX model: its ops are standard ones, and ONNX's own checker takes it.
* reduced_precision: Stores ONNX weights in float16, or multiplies LSTMs in int8.
* tf2onnx_ops      : Adds nodes to a tf2onnx graph.
* tf2onnx_private  : Private parts of tf2onnx: its log is read, its order is patched for equal bytes.

May import: version, text, errors, model, values, weights, graph, graph.passes, recurrences, lower.block_lstm,
lower.search, lower.missing_ops, lower.tensor_lists.
Entry: `convert.lower` for a graph, `finish.lower` for one recurrence.
"""
