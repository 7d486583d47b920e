"""Measures models on this machine: how long a call takes, and where its time goes.

* answers: Feeds and answers of calls: in files between processes, paired by name, and compared.
* models : Opens any model that runs, and draws its inputs in the sizes that are asked for.
* worker : The process that measures one model with one number of threads, a request at a time.
* rounds : The parent: rounds of all models in turns, and the results as medians with bounds.
* profile: `profile(callable, feeds)`: where the time of a pipeline goes, Python included, in a sentence.
* page   : The page of a benchmark: its table, plots and profiles.

May import: text, errors, private, formats, context, storage, process, workers, model, casts, options,
weights, report, feeds, plan, artifacts, pipeline.
Entry: `rounds.run_benchmark`; `profile.profile`.
"""
