"""Rebuilds TensorFlow 1 fixtures with the drop-in, by the code of scripts/tf1_fixtures, and runs them.

    rebuilt_fixtures.py ROOT OUT CASE ...

Only import lines of that code change. Each case's graph of cuDNN layers restores the fixture's checkpoint
with its own Saver, answers the recorded feeds, and saves. Writes answers to OUT/<case>.npz and the
checkpoint to OUT/<case>/.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from pathlib import Path

import numpy as np

from cudnn_convert.compat import cudnn_rnn

#: What a user changes: the first word of each line of imports, and nothing else.
IMPORTS = {
    "import tensorflow as tf\n": "import tensorflow.compat.v1 as tf\n",
    "from tensorflow.contrib import cudnn_rnn\n": "from cudnn_convert.compat import cudnn_rnn\n",
    "from tensorflow.contrib import rnn as ": "from cudnn_convert.compat import rnn as ",
    "from tensorflow.contrib.rnn import ": "from cudnn_convert.compat.rnn import ",
}
MODULES = "block control_flow distributed inputs lengths modes scopes state training".split()


class Changed(importlib.abc.SourceLoader):
    """Loads a module of the fixtures with other import lines."""

    def __init__(self, path):
        self.path = path

    def get_filename(self, fullname):
        return str(self.path)

    def get_data(self, path):
        text = Path(path).read_text()
        for old, new in IMPORTS.items():
            text = text.replace(old, new)
        return text.encode()


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, scripts):
        self.scripts = scripts

    def find_spec(self, name, path, target=None):
        package, _, module = name.partition(".")
        if package != "tf1_fixtures":
            return None
        file = self.scripts / package / f"{module or '__init__'}.py"
        folder = [] if not module else None
        return importlib.util.spec_from_file_location(
            name, file, loader=Changed(file), submodule_search_locations=folder
        )


def builders():
    """Every case's function by name."""
    modules = [importlib.import_module(f"tf1_fixtures.cases_{name}") for name in MODULES]
    lists = [*(getattr(m, "CASES", ()) for m in modules), *(m.CASES_1_15 for m in modules)]
    named = {build.__name__: build for cases in lists for build in cases}
    tagger = importlib.import_module("tf1_fixtures.tagger").bilstm_tagger
    return named | {"bilstm_tagger": tagger}


def build_graph(tf, build):
    """The graph of a case, and its Saver: its own first one, else one of everything."""
    layers = importlib.import_module("tf1_fixtures.layers")
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        case = build() if "cases_block" in build.__module__ else build(layers.CudnnLayers())
        savers = tf.get_collection(tf.GraphKeys.SAVERS) or [tf.train.Saver()]
    return graph, case, savers[0]


def main(root, out, names):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    cudnn_rnn.install()  # Keras 3 has no tf.layers and no tf.nn.rnn_cell
    sys.meta_path.insert(0, Finder(root / "scripts"))
    record = importlib.import_module("tf1_fixtures.record")
    known = builders()
    config = tf.ConfigProto(device_count={"CPU": 2})  # towers name two devices
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # a graph runs once or twice
    for name in names:
        graph, case, saver = build_graph(tf, known[name])
        prefix = out / name / "model.ckpt"
        prefix.parent.mkdir(parents=True)
        with tf.Session(graph=graph, config=config) as session:
            saver.restore(session, str(root / "tests/data/tf1/1.15.5" / name / "model.ckpt"))
            answers = record.run_feeds(session, case)
            saver.save(session, str(prefix), write_meta_graph=False, write_state=False)
        np.savez(out / f"{name}.npz", **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
