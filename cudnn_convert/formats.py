"""The target formats: what lies at OUT. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

#: The provenance file in a SavedModel's `assets.extra`.
PROVENANCE: Final = "cudnn_convert.json"


@dataclass(frozen=True, slots=True)
class Format:
    """One value of `--format`.

    `suffix` makes OUT the file itself, as do `aliases`; otherwise OUT is a folder with the file `name`.
    `module`: `targets/MODULE.py` writes it, `artifacts/MODULE.py` opens it. `pieces`: the module of
    `verification/pieces/` that verifies each recurrence separately; without one recurrences are judged by the
    outputs alone. `ops`: the module of `verification/ops/` that asks every op around them. `flags`: its
    options that only some formats have. `files`: for a format without suffix, the suffixes of its files after
    OUT's path. `has_own_record`: the folder has its provenance inside. `each`: a model without a graph, which
    has a signature for every recurrence, becomes one file for each. `keeps_variables`: variables of the
    source stay assignable; otherwise state becomes inputs and outputs. `layers`: the layers of a Keras model
    are written, not its graph; `is_keras3`: for Keras 3. `keeps_functions`: a SavedModel of TensorFlow 2
    keeps its functions and objects; only what cannot run on a CPU is replaced. `keeps_cells`: the source's
    training code restores it into its own cells. `sizes`: pairs of (time, batch) that it computes differently
    from those that a proof always tries. `states_recurrences`: weights without a graph become files without
    one. `alone`: only recurrences are kept, of any source. `keeps_tables`: lookup tables are filled as in the
    source. `keeps_strings`: inputs may be strings, such as serialized tf.Examples. `names_tensors`: users
    name tensors of the graph, since it has no signature. `single`: the artifact computes, takes and gives
    float32 for every other float type of the source; `computes_single`: its recurrences compute in float32.
    `takes_states`: initial states can be inputs, and final ones outputs. `keeps_signatures`: an artifact may
    have several signatures of one graph. `replaces_blocks`: fused LSTMs that are no cuDNN nodes are lowered
    too. `shares_names`: an input and an output cannot have one name. `keys_are_parameters`: an input's key
    cannot be a word that Python reserves. `is_channels_first`: its runtime has kernels for images whose
    channels come before their rows.
    """

    about: str
    module: str
    name: str = ""
    suffix: str | None = None
    pieces: str = ""
    ops: str = ""
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
    takes_states: bool = False
    keeps_signatures: bool = False
    replaces_blocks: bool = False
    states_recurrences: bool = False
    shares_names: bool = False
    keys_are_parameters: bool = False
    is_channels_first: bool = False
    alone: bool = False
    sizes: tuple[tuple[int, int], ...] = ()

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes that make OUT the file itself."""
        return () if self.suffix is None else (self.suffix, *self.aliases)

    def has_suffix(self, path: Path) -> bool:
        """Whether a path ends in one of the suffixes, in upper or lower case."""
        return path.suffix.lower() in self.suffixes

    def target(self, out: Path, *, together: bool = False) -> tuple[bool, Path]:
        """Whether OUT is a folder, and the artifact's path, which is OUT for several files."""
        if self.has_suffix(out):
            return False, out
        return True, out / self.name if self.name and not (together and self.each) else out


def part_file(path: Path, part: str, suffix: str = ".onnx") -> Path:
    """The file of one part: `path` itself, or a file in the folder `path`."""
    return path if path.suffix.lower() == suffix or path.is_file() else path / f"{part}{suffix}"


#: A single step, which runs without TensorFlow's loop.
_SINGLE: Final = ((1, 2),)
_ROWS: Final = {
    "savedmodel": Format(
        "a SavedModel folder, for TensorFlow 1.15 and 2",
        "saved_model",
        pieces="graph_glue",
        ops="tensorflow",
        flags=("jit", "decode"),
        files=("/saved_model.pb",),
        has_own_record=True,
        keeps_variables=True,
        keeps_functions=True,
        keeps_tables=True,
        keeps_strings=True,
        takes_states=True,
        keeps_signatures=True,
        keys_are_parameters=True,
        sizes=_SINGLE,
    ),
    "frozen": Format(
        "a frozen GraphDef: OUT.pb, or OUT/frozen_graph.pb",
        "frozen",
        "frozen_graph.pb",
        ".pb",
        pieces="graph_glue",
        ops="tensorflow",
        flags=("jit",),
        keeps_strings=True,
        names_tensors=True,
        takes_states=True,
        sizes=_SINGLE,
    ),
    "checkpoint": Format(
        "a TensorFlow 1 checkpoint for CudnnCompatible cells: OUT/model.ckpt",
        "checkpoint",
        "model.ckpt",
        pieces="graph_glue",
        ops="tensorflow",
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
        ops="onnx",
        flags=("weights_dtype", "quantize", "decode"),
        each=True,
        computes_single=True,
        replaces_blocks=True,
        states_recurrences=True,
        takes_states=True,
        shares_names=True,
        is_channels_first=True,
    ),
    "tflite": Format(
        "a TensorFlow Lite model: OUT.tflite, or OUT/model.tflite",
        "tflite",
        "model.tflite",
        ".tflite",
        pieces="tflite_glue",
        ops="tflite",
        each=True,
        single=True,
        computes_single=True,
        replaces_blocks=True,
        takes_states=True,
        keys_are_parameters=True,
        sizes=((67, 2),),  # three blocks of its loop, the last one partial
    ),
    "keras": Format(
        "a Keras 3 archive: OUT.keras, or OUT/model.keras",
        "keras",
        "model.keras",
        ".keras",
        pieces="keras",
        ops="keras",
        flags=("recurrences_only", "slots"),
        each=True,
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
        ops="keras",
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
#: The formats by the value of `--format`.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(_ROWS)
#: Formats of layers, where recurrences alone become layers: of a source that has no layers of its own.
OF_RECURRENCES: Final[Mapping[str, Format]] = MappingProxyType(
    {"keras": replace(FORMATS["keras"], layers=False, alone=True, states_recurrences=True, takes_states=True)}
)
#: The format where neither `--format` nor the suffix of OUT names one.
DEFAULT: Final = "savedmodel"

FROZEN_KEY: Final = "_cudnn_convert"

#: The key of metadata.json that holds the provenance.
KERAS_PROVENANCE: Final = "cudnn_convert"

TFLITE_KEY: Final = "cudnn_convert"

#: The key of metadata of ONNX and TFLite: which of the file's tensors are the source's.
CUTS_KEY: Final = "cudnn_convert.cuts"
