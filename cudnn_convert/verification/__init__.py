"""The proof: an artifact compared with its source, piece by piece and as a whole.

* check           : Verifies an artifact against its source: from feeds to a `Verification`.
* judges          : Judges of a source: its graph is run, or each recurrence is computed alone.
* graph_judge     : Runs the source's own graph, each cuDNN node computed by `reference`.
* reference_op    : Computes a recurrence as `reference` does, in a graph's node or for a whole source.
* state_variables : Values of the judge's variables: restored ones, and state between calls.
* feeds           : Inputs to compare on: random, seeded, and such that the model accepts them.
* compare         : Compares two sets of outputs, and joins the results of all statements.
* error_statistics: Statistics of an output's errors for reports, and which axis is time.
* end_to_end      : Compares whole models: rounding noise, dependence, the bound of each output.
* recordings      : Recordings of the original and feeds of the user, as judges.
* record          : Records the original model on this machine.
* pieces          : Statements 1 and 2 of the proof: each recurrence by itself, and the glue.

May import: errors, formats, context, model, weights, reference, report, graph, graph.passes, recurrences,
keras.config, plan, artifacts, verification.pieces.
Entry: `check.verify_artifact`; `record.record_source` runs an original and keeps its answers.
"""
