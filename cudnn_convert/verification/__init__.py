"""The proof: an artifact compared with its source, piece by piece and as a whole.

* check      : Verifies an artifact against its source: from feeds to a `Verification`.
* effort     : Numbers of the proof: what is drawn and run, and how far apart is still equal.
* settings   : Settings of a proof: the judge, the user's options, their feeds or a recording, types and seed.
* judges     : Judges of a source: the protocol, and a judge that computes each recurrence alone.
* graph_judge: Runs the source's own graph as its judge, each cuDNN node computed by `reference`.
* traced_layers: Judges the layers that a Keras file was traced to, by equations in float64.
* channels_first: Runs a source's convolutions, pools and normalisations for which TensorFlow has no kernel on
  every CPU.
* ids        : Which tables the integers of an input pick rows of: what random ones may be.
* feeds      : Inputs to compare on: random, seeded, and such that the model accepts them.
* compare    : Compares two sets of outputs, and joins the results of all statements.
* trials     : Trials: feeds, and the source's exact answers to each.
* source_runs: Runs of a source: its feeds, its exact answers, and the outputs that depend on its recurrences.
* rounding   : Measures how far rounding alone moves a source's answers.
* end_to_end : Compares whole models: the artifact's answers with the source's, and the bound of each output.
* neighbours : Asks the source whether the answer to a row depends on the other rows of its batch.
* newer_kernels: Remarks on ops whose finite values changed after TensorFlow 1.15.
* shards     : Compares shards of a user's feeds in several processes, and joins what they found.
* streaming  : Runs an artifact in chunks of steps, with its states carried, and judges that as one call.
* calls_in_a_row: Calls an artifact in a row, its states carried, and judges that by the source's calls.
* scales     : Tells by its numbers whether an output has probabilities, their logarithms or logits.
* decoding   : Judges a search in an artifact by one in NumPy, on the numbers of its own step.
* recordings : Feeds of the user, and recordings of the original that judge for the reference.
* record     : Records the original model on this machine: its own graph, cuDNN nodes and all.
* pieces     : Statements 1 and 2 of the proof: each recurrence by itself, and the glue.
* ops        : Statement 4 of the proof: every op around recurrences, by itself.

`check` is a room of its own above `pieces` and `ops`, which import the other modules.

May import: text, errors, private, formats, context, model, values, casts, options, weights, reference,
report, graph, graph.passes, recurrences, plan, artifacts, storage.staging, feeds.
Entry: `check.verify_artifact`; `record.record_source` runs an original and keeps its answers.
"""
