"""Measures models on the local machine: the duration of a call, by parts.

* answers: Feeds and answers of calls: in files between processes, paired by name, and compared.
* models : Opens any model of a runnable format, and draws inputs in the requested sizes.
* worker : Measures a model with a fixed number of threads, in a separate process.
* rounds : The parent: rounds of all models in turns, and the results as medians with bounds.
* profile: `profile(callable, feeds)`: where the time of a pipeline goes, Python included, in a sentence.
* page   : The page of a benchmark: table, plots and profiles.

May import: text, errors, private, formats, context, storage, process, workers, model, casts, options,
weights, report, feeds, plan, artifacts, pipeline.
Entry: `rounds.run_benchmark`; `profile.profile`.
"""
