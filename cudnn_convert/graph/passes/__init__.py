"""Passes over a graph: each takes a graph and returns a graph.

* run          : Runs a list of passes over a graph.
* inlining     : Inlines functions: all calls of a graph, or a body in place of a node.
* cases        : Replaces Switch and Merge nodes of several branches by chains of two-branch nodes.
* subgraphs    : Extracts the subgraph between inputs and outputs, and finds places for a cut.
* inference    : Simplifies a graph for inference: dropout, dead branches, reserve space, loop invariants.
* batch_statistics: Finds statistics of the batch, and replaces each by the moving average.
* channels_last: Computes convolutions, pools and normalisations channels last, with kernels of every CPU.
* image_layouts: Tensors with a second layout: the order of axes, and the nodes for the layout.
* carried_layouts: Carries a layout through ops indifferent to layout, to make transpositions meet and cancel.
* plain_convolutions: Replaces convolutions computed on CPUs by oneDNN alone with convolutions for every CPU.
* half_precision: Computes in float32 the ops of half lacking CPU kernels, and rounds the result.
* replicas     : Computes in the graph itself the values sent between replicas of a model.
* tf1_ops      : Replaces ops of TensorFlow 1: reference variables, GatherTree, Round of integers and
  Reverse by flags.
* state_io     : Keeps state in variables, or turns state into inputs and outputs of the graph.
* open_steps   : Opens the fixed number of steps of a graph, in shapes of inputs and ops.
* initial_sizes: Reads the sizes of initial states from a graph's inputs, instead of a recurrence's output.
* stream_states: Makes the initial states of cuDNN nodes inputs, and the final states outputs.

May import: text, errors, private, model, values, graph.
Entry: the functions named after what they do, such as `inline_functions` and `extract_subgraph`.
"""
