cudnn-convert inspect model.h5

# For Keras 3, on any of its backends; model.h5 stays for tf_keras as text_cpu.h5.
cudnn-convert model.h5 text.keras
cudnn-convert model.h5 text_cpu.h5
cudnn-convert run text.keras

python - <<'END'
import keras
import numpy as np
import tf_keras

words = np.arange(18).reshape(2, 9) % 20
now = keras.models.load_model("text.keras").predict(words, verbose=0)
before = tf_keras.models.load_model("text_cpu.h5").predict(words, verbose=0)
np.testing.assert_allclose(now, before, atol=1e-5)
END
