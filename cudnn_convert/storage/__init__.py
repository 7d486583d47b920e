"""Where files are put: OUT appears whole or not at all.

* atomic_output: Writes OUT under a temporary name beside it, then renames it.

May import: errors.
Entry: `atomic_output.atomic_output`.
"""
