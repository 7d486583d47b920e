"""Passes over a graph: each takes a graph and gives one.

* run          : Runs a list of passes over a graph.
* inlining     : Inlines functions: all calls of a graph, or one body in place of one node.
* cases        : Replaces Switch and Merge nodes of several branches by chains of two-branch nodes.
* subgraphs    : Extracts the subgraph between inputs and outputs, and finds where it may be cut.
* inference    : Simplifies a graph for inference: dropout, dead branches, reserve space, loop invariants.
* batch_statistics: Finds statistics of the batch, and takes their moving averages in their place.
* channels_last: Computes convolutions, pools and normalisations channels last, as every CPU has kernels for
  them.
* image_layouts: Tensors that lie in another layout too: their axes in another order, and the nodes that make
  them.
* carried_layouts: Carries a layout through ops that work alike in any, so that transpositions meet and
  cancel.
* plain_convolutions: Replaces convolutions that a CPU computes with oneDNN alone by others that every CPU has
  kernels for.
* half_precision: Computes in float32 what a CPU has no kernel for in half, and rounds the result.
* replicas     : Computes in the graph itself what replicas of a model send each other.
* tf1_ops      : Replaces ops of TensorFlow 1: reference variables, GatherTree, Round of integers and
  Reverse by flags.
* state_io     : Keeps state in variables, or makes it inputs and outputs of the graph.
* open_steps   : Opens the number of steps that a graph fixes, in shapes of inputs and of ops.
* initial_sizes: Reads the sizes of initial states from a graph's inputs in place of a recurrence's output.
* stream_states: Makes the initial states of cuDNN nodes inputs, and their final states outputs.

May import: text, errors, private, model, values, graph.
Entry: the functions named after what they do, such as `inline_functions` and `extract_subgraph`.
"""
