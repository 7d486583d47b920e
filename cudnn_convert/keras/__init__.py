"""Keras models as data: cuDNN layers replaced, configs translated, models traced.

* keras1      : Turns a model of Keras 1 into one of Keras 2; kernels of Theano are flipped.
* cpu_layers  : Replaces the cuDNN layers of a Keras model by CPU layers, in config and weights.
* trace       : Traces a Keras model into the graph that it computes, with cuDNN ops.
* cut_layers  : Cuts a Keras model at layers: their results become its outputs, and what no output needs goes.
* called_layers: Describes the calls of layers that a graph was traced from, by the names of their tensors.
* translate   : Translates the config of a Keras 2 model to Keras 3.
* restore_keras3: Restores a model of Keras 3 from its own config and weights.
* build_keras3: Builds a Keras 3 model from a translated config, Keras 2 weights and optimizer state.
* config      : The config of a Keras model as JSON data; no layer is built.

May import: text, errors, private, model, weights, graph, recurrences, keras.config.
Entry: `cpu_layers.rewritten` for formats of layers, `trace.trace_model` for those of graphs.
"""
