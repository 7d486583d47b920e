"""The target formats: what lies at OUT. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

#: The file in a SavedModel's `assets.extra` that says where it came from.
PROVENANCE: Final = "cudnn_convert.json"


@dataclass(frozen=True, slots=True)
class Format:
    """One value of `--format`. `suffix` makes OUT the file itself; else OUT is a folder holding `name`.

    `module`: `targets/MODULE.py` writes it, `artifacts/MODULE.py` opens it.
    `pieces`: the module of `verification/pieces/` that asks each recurrence in it by itself; without one
    recurrences are judged through the outputs alone.
    `flags`: the options that only some formats have, and it is one of them.
    `aliases`: other suffixes that a file of it may have. `files`: of a format without a suffix, how the names
    of its files go on behind its path. `has_own_record`: the folder has its provenance inside.
    `each`: a model without a graph, which has a signature for every recurrence, becomes a file for each.
    `keeps_variables`: a variable of the source can still be assigned; else state becomes inputs and outputs.
    `layers`: what is written are the layers of a Keras model, not its graph; `is_keras3`: of Keras 3.
    `keeps_functions`: the functions and objects of a SavedModel of TensorFlow 2 stay; only what cannot run on
    a CPU is exchanged in them. `keeps_cells`: the source's training code restores it into cells of its own.
    `sizes`: pairs of (time, batch) that it computes in another way than those that a proof always tries.
    `states_recurrences`: weights without a graph become files of it without one. `alone`: of any source the
    recurrences are kept, and nothing of what is around them. `keeps_tables`: lookup tables are filled in it
    as in the source. `keeps_strings`: its inputs may be strings, such as serialized tf.Examples.
    `names_tensors`: its users name tensors of the graph, for it has no signature.
    `single`: the artifact computes, takes and gives float32 wherever the source has another float type;
    `computes_single`: its recurrences compute in float32. `replaces_blocks`: fused LSTMs that are no cuDNN
    nodes are lowered too.
    """

    about: str
    module: str
    name: str = ""
    suffix: str | None = None
    pieces: str = ""
    flags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    has_own_record: bool = False
    each: bool = False
    keeps_variables: bool = False
    layers: bool = False
    is_keras3: bool = False
    keeps_functions: bool = False
    keeps_cells: bool = False
    keeps_tables: bool = False
    keeps_strings: bool = False
    names_tensors: bool = False
    single: bool = False
    computes_single: bool = False
    replaces_blocks: bool = False
    states_recurrences: bool = False
    alone: bool = False
    sizes: tuple[tuple[int, int], ...] = ()

    def target(self, out: Path, *, together: bool = False) -> tuple[bool, Path]:
        """Whether OUT is a folder, and where the artifact itself goes: OUT too where it is several files."""
        if self.suffix is not None and out.suffix == self.suffix:
            return False, out
        return True, out / self.name if self.name and not (together and self.each) else out


def part_file(path: Path, part: str, suffix: str = ".onnx") -> Path:
    """The file of one part: `path` itself, or in `path` where that is a folder."""
    return path if path.suffix == suffix or path.is_file() else path / f"{part}{suffix}"


#: A single step, for which TensorFlow's loop is left out.
_SINGLE: Final = ((1, 2),)
_ROWS: Final = {
    "savedmodel": Format(
        "a SavedModel folder, for TensorFlow 1.15 and 2",
        "saved_model",
        pieces="graph_glue",
        flags=("jit",),
        files=("/saved_model.pb",),
        has_own_record=True,
        keeps_variables=True,
        keeps_functions=True,
        keeps_tables=True,
        keeps_strings=True,
        sizes=_SINGLE,
    ),
    "frozen": Format(
        "a frozen GraphDef: OUT.pb, or OUT/frozen_graph.pb",
        "frozen",
        "frozen_graph.pb",
        ".pb",
        pieces="graph_glue",
        flags=("jit",),
        keeps_strings=True,
        names_tensors=True,
        sizes=_SINGLE,
    ),
    "checkpoint": Format(
        "a TensorFlow 1 checkpoint for CudnnCompatible cells: OUT/model.ckpt",
        "checkpoint",
        "model.ckpt",
        pieces="graph_glue",
        flags=("cell", "rename", "slots"),
        files=(".index", ".meta"),
        keeps_variables=True,
        keeps_cells=True,
        keeps_strings=True,
        names_tensors=True,
        sizes=_SINGLE,
    ),
    "onnx": Format(
        "an ONNX model: OUT.onnx, or OUT/model.onnx",
        "onnx",
        "model.onnx",
        ".onnx",
        pieces="onnx",
        flags=("weights_dtype", "quantize"),
        each=True,
        computes_single=True,
        replaces_blocks=True,
        states_recurrences=True,
    ),
    "tflite": Format(
        "a TensorFlow Lite model: OUT.tflite, or OUT/model.tflite",
        "tflite",
        "model.tflite",
        ".tflite",
        pieces="tflite_glue",
        each=True,
        single=True,
        computes_single=True,
        replaces_blocks=True,
        sizes=((67, 2),),  # three blocks of its loop, the last of them not full
    ),
    "keras": Format(
        "a Keras 3 archive: OUT.keras, or OUT/model.keras",
        "keras",
        "model.keras",
        ".keras",
        pieces="keras",
        keeps_variables=True,
        layers=True,
        is_keras3=True,
    ),
    "h5": Format(
        "an HDF5 file for tf_keras: OUT.h5, or OUT/model.h5",
        "h5",
        "model.h5",
        ".h5",
        pieces="keras",
        flags=("slots",),
        aliases=(".hdf5",),
        keeps_variables=True,
        layers=True,
    ),
    "npz": Format(
        "the decoded weights as NumPy arrays: OUT.npz, or OUT/weights.npz",
        "weights",
        "weights.npz",
        ".npz",
        pieces="ask",
        states_recurrences=True,
        alone=True,
    ),
    "safetensors": Format(
        "the decoded weights as safetensors: OUT.safetensors, or OUT/weights.safetensors",
        "weights",
        "weights.safetensors",
        ".safetensors",
        pieces="ask",
        states_recurrences=True,
        alone=True,
    ),
}
#: The value of `--format` -> what it is.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(_ROWS)

FROZEN_KEY: Final = "_cudnn_convert"

#: The key of metadata.json that holds the provenance.
KERAS_PROVENANCE: Final = "cudnn_convert"

TFLITE_KEY: Final = "cudnn_convert"
