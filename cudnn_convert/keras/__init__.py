"""Keras models as data: cuDNN layers replaced, configs translated, models traced.

* cpu_layers  : Replaces the cuDNN layers of a Keras model by CPU layers, in config and weights.
* trace       : Traces a Keras model into the graph that it computes, with cuDNN ops.
* called_layers: Describes the calls of layers that a graph was traced from, by the names of their tensors.
* translate   : Translates the config of a Keras 2 model to Keras 3.
* build_keras3: Builds a Keras 3 model from a translated config, Keras 2 weights and optimizer state.
* config      : The config of a Keras model as JSON data; no layer is built.

May import: errors, private, model, weights, graph, recurrences, keras.config.
Entry: `cpu_layers.rewritten` for formats of layers, `trace.trace_model` for those of graphs.
"""
