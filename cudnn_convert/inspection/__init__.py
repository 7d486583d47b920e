"""Describes a source, and the command that converts it, without running it.

Sources are read, planned and refused by the functions of a conversion, so both give the same answers.

* result           : The result of an inspection, the same for the library and for `--json`.
* alternatives     : The commands that convert a source, planned as a conversion plans them.
* inspect          : Inspects a source: reads and plans it, without running or writing.
* graph_recurrences: Recurrences of a source with a graph: live, dead, and in uncalled functions.
* weights_only     : Recurrences of weights without a graph, and which tensors hold them.
* keras_model      : A Keras model and its recurrent layers, from config and shapes of weights.

May import: errors, formats, context, model, options, weights, graph, graph.passes, recurrences, keras,
keras.config, read, read.dialects, read.tensorbundle, plan, targets, storage.staging.
Entry: `inspect.inspect_source`.
"""
