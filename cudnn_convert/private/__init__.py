"""Private parts of foreign libraries: the first places to check after an upgrade.

* tf_private   : Functions of TensorFlow with private names only.
* keras_private: Patches and private attributes of Keras 3 and tf_keras.
* older_layers : Layers of tf_keras computing as in older versions of Keras.
* older_keras3 : Layers of Keras 3 computing as in older releases of Keras 3.
* fused_layers : LSTM and GRU layers of tf_keras, traced to a cuDNN op as in Keras 3.
* lite_calibrator: Lets TensorFlow Lite's converter calibrate on whole sequences.
* layer_calls  : Notes how layers of tf_keras are called while a model is built.

Those of tf2onnx need the graph: `lower/onnx/tf2onnx_private.py`. The schema of TensorFlow Lite is imported by
`artifacts/tflite.py` alone. No other file may import such a module: see `banned-api` in pyproject.toml.

May import: nothing.
Entry: the functions themselves; `tests/private` calls each.
"""
