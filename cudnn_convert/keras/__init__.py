"""Keras models as data: layers walked, cuDNN layers rewritten, configs brought up to date."""
