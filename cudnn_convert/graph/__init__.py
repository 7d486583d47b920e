"""A toolkit for GraphDefs: look up, build, fold, run.

It knows neither plans nor cuDNN's weights.

* ops            : The names of TensorFlow's ops, in the sets that share a meaning.
* index          : Lookups in a graph: tensor names, producers, consumers, ancestors.
* node_defs      : Makes and copies nodes.
* graph          : The graph that passes take and return: immutable nodes, lookups, and its imported form.
* constant_folding: Computes tensors that depend on no input.
* function_graphs: A function of the library as a graph, and back.
* gpu_ops        : What TensorFlow computes on a GPU and not on a CPU: a table made from its own registry of
  kernels.
* safe_ops       : Which ops of a file's graph may run: those on the list `pure_ops.txt` alone.
* control_flow   : Control flow of TensorFlow 1 (`cond`, `while_loop`), and known function arguments.
* session        : Gives a graph its values: runs it, freezes variables, and finds what fills lookup tables.
* recurrent_state: Recurrent state in variables: which they are, what writes them, and in which order.
* separable      : Tells whether a variable's value before a call and that after it can be told apart.
* moving_averages: Finds the variables that are moving averages, by the assignments of a graph.
* crf            : Finds the scores, transitions and lengths that the likelihood of a linear-chain CRF reads.
* stepwise       : Which ops take each step of a sequence by itself, judged by the axes of their operands.
* time_axis      : Where the steps lie in each tensor of a graph, and what makes one step depend on others.
* first_steps    : What of a tensor depends on later steps than the first, by the ops on the way to it.
* zeros          : Tensors that are zeros whatever the sizes of a graph's inputs.
* training       : Finds what belongs to training: losses, metrics, gradients, summaries, savers, labels.
* passes         : Passes over a graph: each takes a graph and gives one.

May import: text, errors, private, model.
Entry: `graph.Graph`, a graph with its lookups; `session.session` runs one.
"""
