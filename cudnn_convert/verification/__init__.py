"""The proof: an artifact compared with the source, piece by piece and as a whole.

* check      : Verifies an artifact against the source: from feeds to a `Verification`.
* effort     : Numbers of the proof: sizes of feeds and runs, and limits of equality.
* settings   : Settings of a proof: judge, user's options, feeds or recording, types and seed.
* judges     : Judges of a source: the protocol, and a judge for each recurrence alone.
* graph_judge: Runs the source's graph as a judge, each cuDNN node computed by `reference`.
* traced_layers: Judges the traced layers of a Keras file, by equations in float64.
* channels_first: Runs a source's convolutions, pools and normalisations with missing CPU kernels.
* ids        : The tables indexed by an input's integers, as limits for random integers.
* feeds      : Inputs to compare on: random, seeded, and accepted by the model.
* compare    : Compares two sets of outputs, and joins the results of all statements.
* trials     : Trials: feeds, and the source's exact answers to each.
* source_runs: Runs of a source: feeds, exact answers, and the outputs dependent on recurrences.
* rounding   : Measures the movement of a source's answers by rounding alone.
* end_to_end : Compares whole models: the artifact's answers with the source's, and the bound of each output.
* neighbours : Asks the source for the influence of neighbour rows on the answer to a row.
* newer_kernels: Remarks on ops with finite values changed after TensorFlow 1.15.
* shards     : Compares shards of a user's feeds in several processes, and joins the findings.
* streaming  : Runs an artifact in chunks of steps with carried states, judged as a single call.
* calls_in_a_row: Calls an artifact in a row with carried states, and judges by the source's calls.
* scales     : Tells apart probabilities, log probabilities and logits, by an output's numbers.
* decoding   : Judges a search in an artifact by a search in NumPy, on the artifact's step.
* recordings : Feeds of the user, and recordings of the original with the judge's role.
* record     : Records the original model on the local machine: the original graph, cuDNN nodes and all.
* pieces     : Statements 1 and 2 of the proof: each recurrence by itself, and the glue.
* ops        : Statement 4 of the proof: every op around recurrences, by itself.

`check` is a room of its own above `pieces` and `ops`, which import the other modules.

May import: text, errors, private, formats, context, model, values, casts, options, weights, reference,
report, graph, graph.passes, recurrences, plan, artifacts, storage.staging, feeds.
Entry: `check.verify_artifact`; `record.record_source` runs an original and keeps its answers.
"""
