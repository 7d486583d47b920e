# In CI: one command and its exit code; a page with its JSON, and a card, to keep.
cudnn-convert tagger/model.ckpt tagger.onnx --report report.html --card card.md
python -c 'import json; assert json.load(open("report.json"))["verification"]["passed"]'

# The same from Python, as in a notebook, with inputs of mine.
python - <<'END'
import numpy as np

import cudnn_convert

ids = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.int32)
report = cudnn_convert.convert("tagger/model.ckpt", "tagger_cpu", data={"ids": ids}, progress=print)
assert report.verification.passed
try:
    cudnn_convert.convert("tagger/model.ckpt", "tagger.keras")
except cudnn_convert.UsageError as error:
    print(error)  # names arguments of this call
END

# A test that fails on the day on which both artifacts no longer answer the same.
cat > test_tagger.py <<'END'
import numpy as np
from cudnn_convert.testing import assert_equivalent


def test_both_artifacts_answer_the_same():
    ids = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.int32)
    assert_equivalent("tagger.onnx", "tagger_cpu", feeds=[{"ids": ids}])
END
python -m pytest -q test_tagger.py
