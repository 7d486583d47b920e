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

    `each`: a model without a graph, which has a signature for every recurrence, becomes a file for each.
    `keeps_variables`: a variable of the source can still be assigned; else state becomes inputs and outputs.
    `layers`: what is written are the layers of a Keras model, not its graph. `keeps_functions`: the functions
    and objects of a SavedModel of TensorFlow 2 stay; only what cannot run on a CPU is exchanged in them.
    `sizes`: pairs of (time, batch) that it computes in another way than those that a proof always tries.
    `states_recurrences`: weights without a graph become files of it without one. `alone`: of any source the
    recurrences are kept, and nothing of what is around them. `keeps_tables`: lookup tables are filled in it
    as in the source. `keeps_strings`: its inputs may be strings, such as serialized tf.Examples.
    `single`: the artifact computes, takes and gives float32 wherever the source has another float type.
    """

    about: str
    name: str = ""
    suffix: str | None = None
    each: bool = False
    keeps_variables: bool = False
    layers: bool = False
    keeps_functions: bool = False
    keeps_tables: bool = False
    keeps_strings: bool = False
    single: bool = False
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
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "savedmodel": Format(
            "a SavedModel folder, for TensorFlow 1.15 and 2",
            keeps_variables=True,
            keeps_functions=True,
            keeps_tables=True,
            keeps_strings=True,
            sizes=_SINGLE,
        ),
        "frozen": Format(
            "a frozen GraphDef: OUT.pb, or OUT/frozen_graph.pb",
            "frozen_graph.pb",
            ".pb",
            keeps_strings=True,
            sizes=_SINGLE,
        ),
        "checkpoint": Format(
            "a TensorFlow 1 checkpoint for CudnnCompatible cells: OUT/model.ckpt",
            "model.ckpt",
            keeps_variables=True,
            keeps_strings=True,
            sizes=_SINGLE,
        ),
        "onnx": Format(
            "an ONNX model: OUT.onnx, or OUT/model.onnx",
            "model.onnx",
            ".onnx",
            each=True,
            states_recurrences=True,
        ),
        "tflite": Format(
            "a TensorFlow Lite model: OUT.tflite, or OUT/model.tflite",
            "model.tflite",
            ".tflite",
            each=True,
            single=True,
            sizes=((67, 2),),  # three blocks of its loop, the last of them not full
        ),
        "keras": Format(
            "a Keras 3 archive: OUT.keras, or OUT/model.keras",
            "model.keras",
            ".keras",
            keeps_variables=True,
            layers=True,
        ),
        "h5": Format(
            "an HDF5 file for tf_keras: OUT.h5, or OUT/model.h5",
            "model.h5",
            ".h5",
            keeps_variables=True,
            layers=True,
        ),
        "npz": Format(
            "the decoded weights as NumPy arrays: OUT.npz, or OUT/weights.npz",
            "weights.npz",
            ".npz",
            states_recurrences=True,
            alone=True,
        ),
        "safetensors": Format(
            "the decoded weights as safetensors: OUT.safetensors, or OUT/weights.safetensors",
            "weights.safetensors",
            ".safetensors",
            states_recurrences=True,
            alone=True,
        ),
    }
)

FROZEN_KEY: Final = "_cudnn_convert"

#: The key of metadata.json that holds the provenance.
KERAS_PROVENANCE: Final = "cudnn_convert"

TFLITE_KEY: Final = "cudnn_convert"
