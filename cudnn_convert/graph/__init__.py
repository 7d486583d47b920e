"""A toolkit for GraphDefs: look up, build, fold, run.

It knows neither plans nor cuDNN's weights.

* ops            : The names of TensorFlow's ops, in sets of common meaning.
* index          : Lookups in a graph: tensor names, producers, consumers, ancestors.
* node_defs      : Makes, copies and reads nodes.
* graph          : The graph taken and returned by passes: immutable nodes, lookups, and the imported form.
* constant_folding: Computes tensors independent of all inputs.
* function_graphs: A function of the library as a graph, and back.
* gpu_ops        : The ops computed by TensorFlow on GPUs alone: a table from TensorFlow's registry of
  kernels.
* safe_ops       : Allows a file's graph to run only the ops on the list `pure_ops.txt`.
* control_flow   : Control flow of TensorFlow 1 (`cond`, `while_loop`), and known function arguments.
* session        : Runs graphs with values, freezes variables, and finds the ops filling lookup tables.
* recurrent_state: Recurrent state in variables: the variables, the writes, and the order of the writes.
* separable      : Checks if a variable's values before and after a call can be told apart.
* moving_averages: Finds moving averages among variables, by the assignments of a graph.
* crf            : Finds the scores, transitions and lengths read by the likelihood of a linear-chain CRF.
* stepwise       : Finds the ops taking each step of a sequence separately, by the axes of operands.
* time_axis      : Finds the axis of steps in a graph's tensors, and the ops mixing steps.
* first_steps    : Finds the ops responsible for a tensor's dependence on steps after the first.
* zeros          : Finds tensors of zeros for all sizes of a graph's inputs.
* training       : Finds the parts of training: losses, metrics, gradients, summaries, savers, labels.
* passes         : Passes over a graph: each takes a graph and returns a graph.

May import: text, errors, private, model.
Entry: `graph.Graph`, a graph with its lookups; `session.session` runs one.
"""
