"""The config of a Keras model as plain JSON data.

No layer is built.

* layer_tree: The layers of a model's config, the calls between layers, and parts of models.
* validate  : Validates a config: the claims, and the layers allowed to be built.
* versions  : The Keras behind a file: the version, and the names introduced later.
* differences: Differences between layers of older Keras and tf_keras 2.21 or Keras 3.15, a row each.
* classes   : Layer classes: of Keras, of cuDNN, unknown, the user's, and lambdas.
* public_layers: Layers of public code named in files of Keras, with a remedy for each.
* channels_first: Layers with channels-first images, runnable on some CPUs only.
* channels_last: Rewrites layers of channels-first images to channels last, a layout for every CPU.
* values    : Values beside layers in a layer's config, in the form built by Keras 2.

May import: errors, model, graph.ops.
Entry: `validate.require`, which looks at every class before a layer is built.
"""
