"""A toolkit for GraphDefs: look up, build, fold, run.

It knows neither plans nor cuDNN's weights.

* ops            : The names of TensorFlow's ops, in the sets that share a meaning.
* index          : Lookups in a GraphDef: tensor names, producers, consumers, ancestors.
* node_defs      : Constructors and static facts of GraphDefs, and constant folding.
* safe_ops       : Which ops of a file's graph may run: those on the list `pure_ops.txt` alone.
* control_flow   : Control flow of TensorFlow 1 (`cond`, `while_loop` frames), and known function arguments.
* session        : Runs a graph whose variables come from files, and freezes variables into constants.
* recurrent_state: Recurrent state in variables: what writes them, and in which order.
* lookup_tables  : Lookup tables: which ops fill those that a graph reads.
* training       : Finds what belongs to training: losses, metrics, gradients, summaries, savers, labels.
* passes         : Passes over a GraphDef: each takes a graph and gives a changed copy.

May import: errors, private, model.
Entry: `index.Index`, the lookups that all others begin with; `session.session` runs a graph.
"""
