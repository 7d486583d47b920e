# Can it go on from chunk to chunk? inspect says so, and prints the command.
cudnn-convert inspect speech/model.ckpt
cudnn-convert speech/model.ckpt speech.onnx --states

python - <<'END'
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("speech.onnx")
features = np.random.default_rng(0).normal(size=[1, 20, 13]).astype(np.float32)


def answer(chunk, state):
    feed = {"features": chunk, "lengths": np.array([chunk.shape[1]], np.int32), "cudnn_gru_h": state}
    return session.run(["probabilities", "cudnn_gru_h_next"], feed)


state, heard = np.zeros([2, 1, 24], np.float32), []
for begin in range(0, 20, 4):
    probabilities, state = answer(features[:, begin : begin + 4], state)
    heard.append(probabilities)
whole, _ = answer(features, np.zeros([2, 1, 24], np.float32))
np.testing.assert_allclose(np.concatenate(heard, axis=1), whole, atol=1e-5)
END
