"""Private parts of other libraries: what to look at first when one of them moves.

* tf_private   : Functions of TensorFlow that have no public name.
* keras_private: Patches and private attributes of Keras 3 and tf_keras.
* older_layers : Layers of tf_keras that compute as those of older versions of Keras did.
* fused_layers : LSTM and GRU layers of tf_keras that are traced to one cuDNN op, as Keras 3 does.
* layer_calls  : Notes how layers of tf_keras are called while a model is built.

Those of tf2onnx need the graph: `lower/onnx/tf2onnx_private.py`. The schema of TensorFlow Lite is imported by
`artifacts/tflite.py` alone. No other file may import such a module: see `banned-api` in pyproject.toml.

May import: nothing.
Entry: the functions themselves; `tests/private` calls each.
"""
