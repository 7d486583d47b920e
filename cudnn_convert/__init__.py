"""cudnn-convert: TensorFlow and Keras models with cuDNN recurrences become CPU models."""

__version__ = "0.1.0"
