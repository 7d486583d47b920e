"""Models as public repositories have them answer as the Keras that wrote them, or a line says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import keras_public
from support.tiers import tier

#: One of each kind of file, and of each translation, in the first tier.
FIRST = {
    ("keras-1.2.2", "highway_functional", "onnx"),
    ("keras-1.2.2", "video", "onnx"),
    ("keras-1.2.2", "merged_highway", "onnx"),
    ("keras-1.2.2-theano", "theano_images", "onnx"),
    ("keras-2.0.9-theano", "cnn_lstm", "onnx"),
    ("keras-2.1.6", "unnamed_models", "onnx"),
    ("keras-2.2.4", "weights_and_yaml", "onnx"),
    ("tf.keras-1.8.0", "imdb_bidirectional", "keras"),
    ("keras-3.10.0", "ner_tagger_archive", "onnx"),
}
#: In the first tier the writer's answers are the judge; these are proven too, of Keras 1 and of format keras.
PROVEN = {("keras-1.2.2", "video", "onnx"), ("tf.keras-1.8.0", "imdb_bidirectional", "keras")}
CASES = [
    (writer, name, form)
    for writer, names in keras_public.cases().items()
    for name in names
    for form in keras_public.FORMATS
    if not (form == "onnx" and name.startswith("stateful"))  # its states are inputs and outputs there
]


@pytest.mark.parametrize(
    ("writer", "name", "form"),
    [pytest.param(*case, marks=tier(first=case in FIRST), id="-".join(case)) for case in CASES],
)
def test_a_model_answers_as_its_writer(
    writer: str, name: str, form: str, is_first_tier: bool, tmp_path: Path
) -> None:
    verify = (writer, name, form) in PROVEN or not is_first_tier
    outcome = keras_public.check_case(writer, name, form, tmp_path, verify=verify)
    refused = keras_public.REFUSED.get((name, writer)) if form == "keras" else None
    if refused:
        assert refused in outcome and "savedmodel" in outcome
    elif (
        form == "keras"
        and name.endswith("_archive")
        and name.removesuffix("_archive") not in keras_public.FOREIGN
    ):
        assert outcome == "portable"
    else:
        assert outcome == "right"


def test_the_cases_are_of_all_writers() -> None:
    assert {*CASES} >= FIRST
    assert len(keras_public.cases()) == 19
    assert sum(map(len, keras_public.cases().values())) > 300
