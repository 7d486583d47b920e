# What is it? No GPU and no TensorFlow 1 are needed to ask.
cudnn-convert inspect tagger/model.ckpt

# The command that inspect prints, with a name of mine; ONNX needs nothing but ONNX Runtime where it runs.
cudnn-convert tagger/model.ckpt tagger.onnx

# What does it answer? And is it what the original answered, which was recorded in 2018?
cudnn-convert run tagger.onnx
cudnn-convert verify tagger/model.ckpt tagger.onnx --golden tagger/recording.npz

python - <<'END'
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("tagger.onnx")
print([(each.name, each.shape) for each in session.get_inputs()])  # [('ids', ['batch', 'time'])]
tags = session.run(["tags"], {"ids": np.array([[4, 8, 15, 16]], np.int32)})[0]
assert tags.shape == (1, 4)
END
