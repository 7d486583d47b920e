"""The census of ops: small graphs of single ops, and what TensorFlow 1.15 answers to ordinary and odd values.

* values     : Ordinary and odd values of each dtype.
* variants   : The table of variants: an op, its inputs, its attributes.
* arithmetic : Variants of ops that compute element by element.
* arrays     : Variants of ops that make, cut, join and order arrays.
* reductions : Variants of reductions, searches, sorting and segments.
* layers     : Variants of the ops of neural networks.
* linear     : Variants of products, decompositions and spectra.
* pictures   : Variants of ops of images, quantised and random numbers.
* texts      : Variants of ops of strings.
* sparse     : Variants of ops of sparse and ragged tensors and sets.
* together   : Variants of several ops, as programs write them.
"""
