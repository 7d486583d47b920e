# model.export() on a machine with a GPU wrote CudnnRNNV3; the folder is repaired in place of rebuilt.
cudnn-convert inspect exported
cudnn-convert exported exported_cpu
cudnn-convert run exported_cpu

python - <<'END'
import tensorflow as tf

loaded = tf.saved_model.load("exported_cpu")
print(loaded.serve(tf.ones([2, 5, 3])).shape)  # (2, 5, 4)
END
