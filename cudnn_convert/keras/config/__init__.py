"""The config of a Keras model as JSON data; no layer is built.

* layer_tree: The layers of a model's config, how they call each other, and parts of models.
* validate  : Validates a config: its claims, and which layers may be built.
* versions  : The Keras that wrote a file: its version, and the names that it had not yet.
* differences: What layers of older Keras compute otherwise than those of tf_keras 2.21: one row each.
* classes   : Layer classes: of Keras, of cuDNN, unknown ones, the user's, and lambdas.
* public_layers: Layers that public code defines and that files of Keras name: what helps with each.
* channels_first: Layers whose images are channels first, and that not every CPU runs so.
* channels_last: Rewrites layers of channels-first images to channels last, which every CPU runs.
* values    : Values in a layer's config beside layers, in the form that Keras 2 builds.

May import: errors, model, graph.ops.
Entry: `validate.require`, which looks at every class before a layer is built.
"""
