"""The target formats: the artifacts at OUT.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final

#: The provenance file in a SavedModel's `assets.extra`.
PROVENANCE: Final = "cudnn_convert.json"


class Content(Enum):
    """The content of an artifact."""

    GRAPH = "the ops between inputs and outputs"
    LAYERS = "the layers of a Keras model"
    RECURRENCES = "recurrences alone, of any source"


class Keeps(Enum):
    """The parts of a source possibly kept in an artifact.

    A plan changes or refuses what its format does not keep.
    """

    VARIABLES = "variables stay assignable; otherwise state becomes inputs and outputs"
    FUNCTIONS = "functions and objects of TensorFlow 2: only what cannot run on a CPU is replaced"
    CELLS = "the cells of the source's training code, which restores the artifact"
    TABLES = "lookup tables, filled as in the source"
    STRINGS = "inputs of strings, such as serialized tf.Examples"
    SIGNATURES = "several signatures of one graph"
    TENSOR_NAMES = "the names of the graph's tensors, by which users call it"
    STATES = "initial states as inputs, final ones as outputs"
    WEIGHTS = "weights without a graph, written without one"
    ONE_FILE = "all recurrences of weights without a graph in one file; otherwise each has a file"
    EQUAL_KEYS = "an input and an output of one name"
    KEYWORDS = "inputs named by words that Python reserves"
    KERAS3 = "layers as Keras 3 has them; otherwise as Keras 2"
    CHANNELS_FIRST = "images whose channels come before their rows"


class Computes(Enum):
    """The float type of an artifact's arithmetic."""

    AS_SOURCE = "each value in the type that it has in the source"
    RECURRENCES_IN_FLOAT32 = "recurrences in float32, all else as in the source"
    FLOAT32 = "everything in float32, which it takes and gives for every other float type"


@dataclass(frozen=True, slots=True)
class Format:
    """A value of `--format`.

    `about` is a line of `--help`. `module`: `targets/MODULE.py` writes it, `artifacts/MODULE.py` opens it.
    `content` and `keeps` say what it holds, `computes` its float type. `suffixes` make OUT the file itself;
    otherwise OUT is a folder with the file `name`. `files`: for a format without suffix, the suffixes of
    its files after OUT's path. `runtime`: what runs it, and the module of `verification/ops/` that compares
    its ops. `pieces`: the module of `verification/pieces/` that verifies each recurrence separately;
    without one recurrences are judged by the outputs alone. `flags`: its options that only some formats
    have, or `option=value` where that holds for one value. `calibrates`: its `--quantize` calibrates the
    range of every value on `--data`, for fixed sizes alone; otherwise ranges are found in each call. `sizes`:
    pairs of (time, batch) that it computes differently from those that a proof always tries.
    """

    about: str
    module: str
    name: str = ""
    suffixes: tuple[str, ...] = ()
    content: Content = Content.GRAPH
    keeps: frozenset[Keeps] = frozenset()
    computes: Computes = Computes.AS_SOURCE
    runtime: str = ""
    pieces: str = ""
    flags: tuple[str, ...] = ()
    calibrates: bool = False
    files: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()

    @property
    def has_layers(self) -> bool:
        """True if a Keras model's layers are written in place of a graph."""
        return self.content is Content.LAYERS

    @property
    def is_keras3(self) -> bool:
        """True if layers are those of Keras 3."""
        return Keeps.KERAS3 in self.keeps

    @property
    def has_foreign_runtime(self) -> bool:
        """True for a graph run by another runtime than TensorFlow.

        Fused LSTMs are then lowered too.
        """
        return self.content is Content.GRAPH and self.runtime != "tensorflow"

    @property
    def has_own_folder(self) -> bool:
        """True if the artifact is a folder with the provenance inside."""
        return not self.name

    @property
    def suffix(self) -> str:
        """The usual suffix, empty for a format of folders."""
        return self.suffixes[0] if self.suffixes else ""

    def of_recurrences(self) -> Format:
        """Return the format of layers for recurrences alone, from a source lacking layers."""
        keeps = self.keeps | {Keeps.WEIGHTS, Keeps.STATES}
        return replace(self, content=Content.RECURRENCES, keeps=keeps) if self.has_layers else self

    def has_suffix(self, path: Path) -> bool:
        """Return True if a path ends in a suffix, in upper or lower case."""
        return path.suffix.lower() in self.suffixes

    def target(self, out: Path, *, together: bool = False) -> tuple[bool, Path]:
        """Return True if OUT is a folder, together with the artifact's path.

        The path is OUT for several files.
        """
        if self.has_suffix(out):
            return False, out
        return True, out / self.name if self.name and (Keeps.ONE_FILE in self.keeps or not together) else out


def part_file(path: Path, part: str, suffix: str = ".onnx") -> Path:
    """Return the file of a part: `path`, or a file in the folder `path`."""
    return path if path.suffix.lower() == suffix or path.is_file() else path / f"{part}{suffix}"


#: A single step, which runs without TensorFlow's loop.
_SINGLE: Final = ((1, 2),)
#: Formats whose names of inputs and outputs are free.
_NAMES: Final = frozenset({Keeps.EQUAL_KEYS, Keeps.KEYWORDS})
_ROWS: Final = {
    "savedmodel": Format(
        "a SavedModel folder, for TensorFlow 1.15 and 2",
        "saved_model",
        keeps=frozenset(
            {
                *(Keeps.VARIABLES, Keeps.FUNCTIONS, Keeps.TABLES, Keeps.STRINGS, Keeps.SIGNATURES),
                *(Keeps.STATES, Keeps.ONE_FILE, Keeps.EQUAL_KEYS),
            }
        ),
        runtime="tensorflow",
        pieces="graph_glue",
        flags=("jit", "decode"),
        files=("/saved_model.pb",),
        sizes=_SINGLE,
    ),
    "frozen": Format(
        "a frozen GraphDef: OUT.pb, or OUT/frozen_graph.pb",
        "frozen",
        "frozen_graph.pb",
        (".pb",),
        keeps=_NAMES | {Keeps.STRINGS, Keeps.TENSOR_NAMES, Keeps.STATES, Keeps.ONE_FILE},
        runtime="tensorflow",
        pieces="graph_glue",
        flags=("jit",),
        sizes=_SINGLE,
    ),
    "checkpoint": Format(
        "a TensorFlow 1 checkpoint for CudnnCompatible cells: OUT/model.ckpt",
        "checkpoint",
        "model.ckpt",
        keeps=_NAMES | {Keeps.VARIABLES, Keeps.CELLS, Keeps.STRINGS, Keeps.TENSOR_NAMES, Keeps.ONE_FILE},
        runtime="tensorflow",
        pieces="graph_glue",
        flags=("cell", "rename", "slots"),
        files=(".index", ".meta"),
        sizes=_SINGLE,
    ),
    "onnx": Format(
        "an ONNX model: OUT.onnx, or OUT/model.onnx",
        "onnx",
        "model.onnx",
        (".onnx",),
        # Without EQUAL_KEYS: all values of an ONNX graph share their names.
        keeps=frozenset({Keeps.WEIGHTS, Keeps.STATES, Keeps.KEYWORDS, Keeps.CHANNELS_FIRST}),
        computes=Computes.RECURRENCES_IN_FLOAT32,
        runtime="onnx",
        pieces="onnx",
        flags=("weights_dtype", "quantize", "decode"),
    ),
    "tflite": Format(
        "a TensorFlow Lite model: OUT.tflite, or OUT/model.tflite",
        "tflite",
        "model.tflite",
        (".tflite",),
        keeps=frozenset({Keeps.STATES, Keeps.EQUAL_KEYS}),
        computes=Computes.FLOAT32,
        runtime="tflite",
        pieces="tflite_glue",
        flags=("quantize", "lowering=fused"),
        calibrates=True,
        sizes=((67, 2),),  # three blocks of its loop, the last one partial
    ),
    "keras": Format(
        "a Keras 3 archive: OUT.keras, or OUT/model.keras",
        "keras",
        "model.keras",
        (".keras",),
        Content.LAYERS,
        _NAMES | {Keeps.VARIABLES, Keeps.KERAS3},
        runtime="keras",
        pieces="keras",
        flags=("recurrences_only", "slots"),
    ),
    "h5": Format(
        "an HDF5 file for tf_keras: OUT.h5, or OUT/model.h5",
        "h5",
        "model.h5",
        (".h5", ".hdf5"),
        Content.LAYERS,
        _NAMES | {Keeps.VARIABLES, Keeps.ONE_FILE},
        runtime="keras",
        pieces="keras",
        flags=("slots",),
    ),
    "npz": Format(
        "the decoded weights as NumPy arrays: OUT.npz, or OUT/weights.npz",
        "weights",
        "weights.npz",
        (".npz",),
        Content.RECURRENCES,
        frozenset({Keeps.WEIGHTS, Keeps.ONE_FILE}),
        pieces="ask",
    ),
    "safetensors": Format(
        "the decoded weights as safetensors: OUT.safetensors, or OUT/weights.safetensors",
        "weights",
        "weights.safetensors",
        (".safetensors",),
        Content.RECURRENCES,
        frozenset({Keeps.WEIGHTS, Keeps.ONE_FILE}),
        pieces="ask",
    ),
}
#: The formats by the value of `--format`.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(_ROWS)
#: The format where neither `--format` nor the suffix of OUT names one.
DEFAULT: Final = "savedmodel"

FROZEN_KEY: Final = "_cudnn_convert"

#: The key of metadata.json that holds the provenance.
KERAS_PROVENANCE: Final = "cudnn_convert"

TFLITE_KEY: Final = "cudnn_convert"

#: The key of metadata of ONNX and TFLite: which of the file's tensors are the source's.
CUTS_KEY: Final = "cudnn_convert.cuts"
