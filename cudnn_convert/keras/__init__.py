"""Keras models as data: cuDNN layers replaced, configs translated, models traced.

* keras1      : Turns a model of Keras 1 into Keras 2, and flips kernels of Theano.
* windows     : Refuses padded windows of Theano and CNTK placed elsewhere than in TensorFlow.
* cpu_layers  : Replaces the cuDNN layers of a Keras model by CPU layers, in config and weights.
* trace       : Traces a Keras model into the computed graph, with cuDNN ops.
* cut_layers  : Cuts a Keras model at layers: the layers' results become the model's outputs.
* called_layers: Describes the layer calls behind a traced graph, by the names of tensors.
* translate   : Translates the config of a Keras 2 model to Keras 3.
* restore_keras3: Restores a model of Keras 3 from the config and weights of a file.
* build_keras3: Builds a Keras 3 model from a translated config, Keras 2 weights and optimizer state.
* config      : The config of a Keras model as plain JSON data.

May import: text, errors, private, model, weights, graph, recurrences, keras.config.
Entry: `cpu_layers.rewritten` for formats of layers, `trace.trace_model` for those of graphs.
"""
