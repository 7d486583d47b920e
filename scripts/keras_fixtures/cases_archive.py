"""What tf_keras alone writes: .keras archives (config.json, metadata.json, model.weights.h5 in a zip)."""
from keras_fixtures import cases_custom, cases_layers, cases_main, cases_wrappers


def archive_bidirectional(keras):
    """A .keras archive of Bidirectional(CuDNNLSTM), Bidirectional(CuDNNGRU) and Dense."""
    return cases_main.bidirectional(keras)._replace(file="model.keras")


def archive_siamese(keras):
    """A .keras archive of a functional model with two inputs and outputs and a CuDNNLSTM called twice."""
    return cases_main.siamese(keras)._replace(file="model.keras")


def archive_nested(keras):
    """A .keras archive of a functional model that holds a model and a Sequential with CuDNN layers."""
    return cases_wrappers.nested(keras)._replace(file="model.keras")


def archive_adam(keras):
    """A .keras archive with the state of Adam."""
    return cases_layers.adam(keras)._replace(file="model.keras")


archive_adam.fits = True


def archive_pwned(keras):
    """A .keras archive with a Lambda whose bytecode would write a file named pwned if anyone called it. The
    answers are those of the harmless function."""
    return cases_custom.lambda_pwned(keras)._replace(file="model.keras")


def weights_format_3(keras):
    """save_weights under a name that ends with .weights.h5: the layout of the archive's own weights file."""
    return cases_main.bidirectional(keras)._replace(file="model.weights.h5")


CASES = (
    archive_bidirectional, archive_siamese, archive_nested, archive_adam, archive_pwned, weights_format_3,
)
