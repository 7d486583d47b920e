"""Decoders as TensorFlow functions: search over the outputs of a recurrent model, in the graph.

    from cudnn_convert import decode
    best = decode.beam_search(step, tokens, states, width=8, steps=128, end=2)

Each decoder runs all examples and beams together, in one `tf.while_loop`, so that the graph does not grow
with the number of steps. Sequences come out in order: nothing is left to do in Python. A decoder that is
called eagerly runs its loop in Python; inside a `tf.function` it becomes part of the graph.

* arguments: Checks of decoders' arguments, and of steps' answers.
* beams    : Beam search over a model's steps, and the paths of a search from each step's parents.
* choices  : Greedy search and sampling over a model's steps.
* ctc      : Label sequences of CTC outputs: the best path, and prefix beam search.
* crf      : The best tag sequences of a linear-chain CRF.

May import: nothing.
Entry: `beam_search`, `greedy`, `sample`, `ctc_greedy`, `ctc_beam`, `viterbi`.
"""

from __future__ import annotations

from cudnn_convert.decode.beams import BeamSearch, History, beam_search
from cudnn_convert.decode.choices import Decoded, greedy, sample
from cudnn_convert.decode.crf import viterbi
from cudnn_convert.decode.ctc import ctc_beam, ctc_greedy

__all__ = [
    "BeamSearch",
    "Decoded",
    "History",
    "beam_search",
    "ctc_beam",
    "ctc_greedy",
    "greedy",
    "sample",
    "viterbi",
]
