#!/usr/bin/env python3
"""Ask cuDNN itself: where it keeps RNN parameters, and what it computes with them.

    python scripts/record_cudnn.py                    # on a machine with a CUDA device: everything
    python scripts/record_cudnn.py --without-device   # anywhere: sizes and offsets only, see `BlankHandle`

Needs NumPy, and PyTorch 2.x for device memory and as a second witness (`torch._cudnn_rnn`); cuDNN 9 is
called directly through ctypes. One run takes a minute or so and writes into `--out` (default
tests/data/cudnn) at most 8 files of at most 16 MiB:

    offsets.npz           sizes and offsets of every parameter region, asked with a device's handle
    outputs_<mode>.npz    inputs, blobs and outputs of small networks, one file per mode
    gradients.npz         inputs, blobs, gradients of outputs and of inputs, of small networks of all modes
    recording.json        device, driver, versions, date, the status of every case, the answers
    host_offsets.npz      the same as offsets.npz, from --without-device

Every case runs in a worker process that writes its result before it starts the next, so a case that is
refused, that breaks the CUDA context or that kills the process is recorded as such and the rest goes on.

Shapes: x `[steps, batch, input]`, h0 `[layers*directions, batch, recurrent]`, c0 `[.., units]`,
y `[steps, batch, directions*recurrent]`; `recurrent` is the projection's width where there is one, else
`units`. A *pseudo-layer* is `layer * directions + direction`, direction 0 forward and 1 backward.

Sources: cuDNN 9.28.0 headers cudnn_adv_v9.h, cudnn_ops_v9.h, cudnn_graph_v9.h (wheel nvidia-cudnn-cu12
9.28.0.42); how TensorFlow calls cuDNN: openxla/xla 0007719d, xla/stream_executor/cuda/cuda_dnn.cc
(CudnnRnnDescriptor::Create, CudnnRnnSequenceTensorDescriptor::Create, DoRnnForwardImpl); how PyTorch does:
pytorch/pytorch 00fc08aa, aten/src/ATen/native/cudnn/RNN.cpp.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import datetime
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# ---------------------------------------------------------------------------------------------------------
# 1. The part of the cuDNN 9 interface used here. Checked word by word against the headers by
#    tests/recorder/test_record_headers.py.

HEADERS: Final = "cuDNN 9.28.0: cudnn_adv_v9.h, cudnn_ops_v9.h, cudnn_graph_v9.h"

ENUMS: Final[Mapping[str, Mapping[str, int]]] = {
    "cudnnRNNAlgo_t": {"CUDNN_RNN_ALGO_STANDARD": 0},
    "cudnnForwardMode_t": {"CUDNN_FWD_MODE_INFERENCE": 0, "CUDNN_FWD_MODE_TRAINING": 1},
    "cudnnWgradMode_t": {"CUDNN_WGRAD_MODE_ADD": 0},
    "cudnnRNNMode_t": {"CUDNN_RNN_RELU": 0, "CUDNN_RNN_TANH": 1, "CUDNN_LSTM": 2, "CUDNN_GRU": 3},
    "cudnnRNNBiasMode_t": {"CUDNN_RNN_DOUBLE_BIAS": 2},
    "cudnnDirectionMode_t": {"CUDNN_UNIDIRECTIONAL": 0, "CUDNN_BIDIRECTIONAL": 1},
    "cudnnRNNInputMode_t": {"CUDNN_LINEAR_INPUT": 0, "CUDNN_SKIP_INPUT": 1},
    "cudnnRNNDataLayout_t": {
        "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED": 0,
        "CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED": 2,
    },
    "cudnnDataType_t": {
        "CUDNN_DATA_FLOAT": 0,
        "CUDNN_DATA_DOUBLE": 1,
        "CUDNN_DATA_HALF": 2,
        "CUDNN_DATA_BFLOAT16": 9,
    },
    "cudnnMathType_t": {"CUDNN_DEFAULT_MATH": 0, "CUDNN_TENSOR_OP_MATH": 1, "CUDNN_FMA_MATH": 3},
    "cudnnStatus_t": {"CUDNN_STATUS_SUCCESS": 0},
}
DEFINES: Final[Mapping[str, int]] = {"CUDNN_RNN_PADDED_IO_DISABLED": 0, "CUDNN_RNN_PADDED_IO_ENABLED": 1}
ENUM: Final[Mapping[str, int]] = {name: n for names in ENUMS.values() for name, n in names.items()}

#: Every function called, as the headers declare it.
PROTOTYPES: Final = """
size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t max_size);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensorDesc);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensorDesc);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc, cudnnDataType_t dataType,
    int nbDims, const int dimA[], const int strideA[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensorDesc, int nbDimsRequested,
    cudnnDataType_t *dataType, int *nbDims, int dimA[], int strideA[]);
cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *dropoutDesc);
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc);
cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *rnnDesc);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnnDesc);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t algo,
    cudnnRNNMode_t cellMode, cudnnRNNBiasMode_t biasMode, cudnnDirectionMode_t dirMode,
    cudnnRNNInputMode_t inputMode, cudnnDataType_t dataType, cudnnDataType_t mathPrec,
    cudnnMathType_t mathType, int32_t inputSize, int32_t hiddenSize, int32_t projSize, int32_t numLayers,
    cudnnDropoutDescriptor_t dropoutDesc, uint32_t auxFlags);
cudnnStatus_t cudnnGetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t *algo,
    cudnnRNNMode_t *cellMode, cudnnRNNBiasMode_t *biasMode, cudnnDirectionMode_t *dirMode,
    cudnnRNNInputMode_t *inputMode, cudnnDataType_t *dataType, cudnnDataType_t *mathPrec,
    cudnnMathType_t *mathType, int32_t *inputSize, int32_t *hiddenSize, int32_t *projSize,
    int32_t *numLayers, cudnnDropoutDescriptor_t *dropoutDesc, uint32_t *auxFlags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *rnnDataDesc);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc, cudnnDataType_t dataType,
    cudnnRNNDataLayout_t layout, int maxSeqLength, int batchSize, int vectorSize,
    const int seqLengthArray[], void *paddingFill);
cudnnStatus_t cudnnGetRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc, cudnnDataType_t *dataType,
    cudnnRNNDataLayout_t *layout, int *maxSeqLength, int *batchSize, int *vectorSize,
    int arrayLengthRequested, int seqLengthArray[], void *paddingFill);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    size_t *weightSpaceSize);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    int32_t pseudoLayer, size_t weightSpaceSize, const void *weightSpace, int32_t linLayerID,
    cudnnTensorDescriptor_t mDesc, void **mAddr, cudnnTensorDescriptor_t bDesc, void **bAddr);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    cudnnForwardMode_t fwdMode, cudnnRNNDataDescriptor_t xDesc, size_t *workSpaceSize,
    size_t *reserveSpaceSize);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    cudnnForwardMode_t fwdMode, const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t xDesc,
    const void *x, cudnnRNNDataDescriptor_t yDesc, void *y, cudnnTensorDescriptor_t hDesc,
    const void *hx, void *hy, cudnnTensorDescriptor_t cDesc, const void *cx, void *cy,
    size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize, void *workSpace,
    size_t reserveSpaceSize, void *reserveSpace);
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t yDesc, const void *y, const void *dy,
    cudnnRNNDataDescriptor_t xDesc, void *dx, cudnnTensorDescriptor_t hDesc, const void *hx,
    const void *dhy, void *dhx, cudnnTensorDescriptor_t cDesc, const void *cx, const void *dcy, void *dcx,
    size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize, void *workSpace,
    size_t reserveSpaceSize, void *reserveSpace);
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
    cudnnWgradMode_t addGrad, const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t xDesc, const void *x,
    cudnnTensorDescriptor_t hDesc, const void *hx, cudnnRNNDataDescriptor_t yDesc, const void *y,
    size_t weightSpaceSize, void *dweightSpace, size_t workSpaceSize, void *workSpace,
    size_t reserveSpaceSize, void *reserveSpace);
"""
C_TYPES: Final[Mapping[str, Any]] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "size_t": ctypes.c_size_t,
}


class Prototype(NamedTuple):
    """A C function: what it returns, and each parameter as declared, `type name`."""

    returns: str
    parameters: tuple[str, ...]


def parse_prototypes(text: str) -> dict[str, Prototype]:
    """C declarations without comments, by function name."""
    found = {}
    for returns, name, parameters in re.findall(r"((?:const\s+)?\w+[\s*]+)(\w+)\(([^()]*)\)\s*;", text):
        words = [" ".join(word.split()) for word in parameters.split(",")]
        found[name] = Prototype(" ".join(returns.split()), () if words == ["void"] else tuple(words))
    return found


DECLARATIONS: Final[Mapping[str, Prototype]] = parse_prototypes(PROTOTYPES)


def ctype_of(declaration: str) -> Any:
    """The ctypes type of one C parameter: a number, an enum (int), or a pointer.

    Handles and descriptors are pointers to opaque structs, so they are `c_void_p` too.
    """
    if "*" in declaration or "[]" in declaration:
        return ctypes.c_void_p
    c_type = declaration.removeprefix("const ").rpartition(" ")[0]
    if c_type in C_TYPES:
        return C_TYPES[c_type]
    return ctypes.c_int if c_type in ENUMS else ctypes.c_void_p


def return_type(returns: str) -> Any:
    """The ctypes return type: a status is an int."""
    special = {"void": None, "const char *": ctypes.c_char_p, "size_t": ctypes.c_size_t}
    return special.get(returns, ctypes.c_int)


class CudnnError(RuntimeError):
    """A cuDNN function returned a status other than success; the text names both."""


class Cudnn:
    """libcudnn with every function of `DECLARATIONS` typed, and a handle once `open` was called."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.handle: Any = None
        for name, prototype in DECLARATIONS.items():
            function = getattr(self.library, name)
            function.argtypes = [ctype_of(declaration) for declaration in prototype.parameters]
            function.restype = return_type(prototype.returns)

    @property
    def version(self) -> int:
        return int(self.library.cudnnGetVersion())

    def call(self, name: str, *arguments: Any) -> None:
        """Call `name`; raises CudnnError on any status but success."""
        status = getattr(self.library, name)(*arguments)
        if status != ENUM["CUDNN_STATUS_SUCCESS"]:
            text = ctypes.create_string_buffer(2000)
            self.library.cudnnGetLastErrorString(text, len(text))
            label = self.library.cudnnGetErrorString(status).decode()
            raise CudnnError(f"{name}: {label}" + (f" ({text.value.decode()})" if text.value else ""))

    def open(self) -> None:
        """Make a handle on the current device."""
        handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(handle))
        self.handle = handle

    def open_blank(self) -> None:
        """Put zeroed memory where a handle belongs, which `cudnnCreate` refuses to make without a device.

        Size and offset queries are host arithmetic on the RNN descriptor: cuDNN 9.28.0 only checks that
        the handle is not null. Nothing documents that, so the answers count for less than a device's and
        are labelled; another version may crash, hence the worker process.
        """
        self._blank = ctypes.create_string_buffer(1 << 16)
        self.handle = ctypes.c_void_p(ctypes.addressof(self._blank))

    @contextmanager
    def created(self, kind: str) -> Iterator[ctypes.c_void_p]:
        """A descriptor of `kind` (RNN, RNNData, Tensor, Dropout), destroyed at the end."""
        descriptor = ctypes.c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        try:
            yield descriptor
        finally:
            self.call(f"cudnnDestroy{kind}Descriptor", descriptor)


def find_library() -> str:
    """Path of libcudnn: CUDNN_LIBRARY, the one PyTorch has loaded, the nvidia.cudnn wheel, the system's."""
    if os.environ.get("CUDNN_LIBRARY"):
        return os.environ["CUDNN_LIBRARY"]
    loaded = Path("/proc/self/maps").read_text().split() if Path("/proc/self/maps").exists() else []
    wheel = importlib.util.find_spec("nvidia.cudnn") if importlib.util.find_spec("nvidia") else None
    folders = list(wheel.submodule_search_locations or ()) if wheel else []
    candidates = [
        *(path for path in loaded if "libcudnn.so" in path),
        *(str(path) for folder in folders for path in sorted(Path(folder).glob("lib/libcudnn.so*"))),
        ctypes.util.find_library("cudnn"),
    ]
    found = next((path for path in candidates if path), None)
    if found is None:
        raise SystemExit("libcudnn not found: install nvidia-cudnn-cu12 or set CUDNN_LIBRARY")
    return found


# ---------------------------------------------------------------------------------------------------------
# 2. Networks and cases.

MODES: Final = ("lstm", "gru", "rnn_tanh", "rnn_relu")
GATES: Final[Mapping[str, int]] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
CELL_MODE: Final[Mapping[str, str]] = {
    "lstm": "CUDNN_LSTM",
    "gru": "CUDNN_GRU",
    "rnn_tanh": "CUDNN_RNN_TANH",
    "rnn_relu": "CUDNN_RNN_RELU",
}
DATA_TYPE: Final[Mapping[str, str]] = {
    "float": "CUDNN_DATA_FLOAT",
    "double": "CUDNN_DATA_DOUBLE",
    "half": "CUDNN_DATA_HALF",
    "bfloat16": "CUDNN_DATA_BFLOAT16",
}
ITEM_SIZE: Final[Mapping[str, int]] = {"float": 4, "double": 8, "half": 2, "bfloat16": 2}
#: NumPy has no bfloat16; its values are kept as float32, exactly.
NUMPY_TYPE: Final[Mapping[str, type]] = {
    "float": np.float32,
    "double": np.float64,
    "half": np.float16,
    "bfloat16": np.float32,
}
#: TensorFlow allows tensor cores for half, never for double (cuda_dnn.cc, allow_tensor_ops).
OTHER_TYPES: Final = (("double", "fma"), ("half", "tensor"), ("half", "tensor-half"), ("bfloat16", "tensor"))
LENGTHS: Final = ("none", "full", "ragged", "short", "zero", "empty")


@dataclass(frozen=True)
class Network:
    """What fixes the parameter blob. `projection` 0 means none; skip input needs `input_size == units`."""

    mode: str
    directions: int = 1
    layers: int = 1
    units: int = 5
    input_size: int = 7
    projection: int = 0
    skip_input: bool = False
    dtype: str = "float"

    @property
    def recurrent(self) -> int:
        """Width of h: the projection's, where there is one."""
        return self.projection or self.units

    @property
    def pseudo_layers(self) -> int:
        return self.layers * self.directions

    def inputs(self, layer: int) -> int:
        """Width of what `layer` sees: the network's input, or both directions of the layer below."""
        return self.input_size if layer == 0 else self.directions * self.recurrent

    @property
    def name(self) -> str:
        way = "bi" if self.directions == 2 else "uni"
        first = "skip" if self.skip_input else "linear"
        sizes = f"i{self.input_size}u{self.units}p{self.projection}"
        return f"{self.mode}-{way}-{self.layers}-{sizes}-{first}-{self.dtype}"


@dataclass(frozen=True)
class Case:
    """One call of cudnnRNNForward; with `gradients`, of the two backward calls after it.

    `lengths` none: padded IO off and no device lengths, the plain path for full rows (TensorFlow's kernel
    turns padded IO off there, cudnn_rnn_ops.cc ShouldUsePaddedIO); full: all equal to `steps`, padded IO
    on; short: all equal, less than `steps`; ragged: unsorted; zero: one row of length 0; empty: all of 0.

    `dirty` puts NaN into x past each row's length. `timed` calls again and again. `gain` multiplies the
    parameters: training makes them larger than they begin.

    `math` fma forbids tensor cores; tensor allows them, and with them TF32; tensor-half also computes in
    half precision (mathPrec), which TensorFlow asks for where the dtype is half.
    """

    network: Network
    lengths: str = "none"
    batch_major: bool = False
    random_initial: bool = True
    training: bool = False
    math: str = "fma"
    steps: int = 9
    batch: int = 8
    gradients: bool = False
    dirty: bool = False
    timed: bool = False
    gain: float = 1.0
    kept: bool = True

    @property
    def name(self) -> str:
        words = (
            "batch-major" if self.batch_major else "time-major",
            self.lengths,
            "h0-random" if self.random_initial else "h0-zero",
            "training" if self.training else "inference",
            self.math,
            f"t{self.steps}b{self.batch}",
            *(word for word in ("gradients", "dirty") if getattr(self, word)),
            *([f"gain{self.gain:g}"] if self.gain != 1 else []),
        )
        return "-".join((self.network.name, *words))

    @property
    def row_lengths(self) -> list[int]:
        """Length of each row; the ragged ones are unsorted, and the fourth row is full."""
        if self.lengths in ("none", "full"):
            return [self.steps] * self.batch
        if self.lengths in ("short", "empty"):
            return [self.steps - 2 if self.lengths == "short" else 0] * self.batch
        ragged = [1 + (row * 5 + 2) % self.steps for row in range(self.batch)]
        return [0 if self.lengths == "zero" and row == 2 else n for row, n in enumerate(ragged)]

    @property
    def padded(self) -> bool:
        return self.lengths != "none"


def offset_networks() -> list[Network]:
    """Every mode x direction x 1-3 layers x linear/skip x projection x dtype, at odd sizes."""
    found = []
    axes = itertools.product(MODES, (1, 2), (1, 2, 3), (False, True), (False, True), DATA_TYPE)
    for mode, directions, layers, skip, projected, dtype in axes:
        for units, input_size, projection in ((5, 7, 3), (13, 3, 7)):
            found.append(
                Network(
                    mode,
                    directions,
                    layers,
                    units,
                    units if skip else input_size,
                    projection if projected else 0,
                    skip,
                    dtype,
                )
            )
    return found


def output_cases() -> list[Case]:
    """The cases whose outputs are kept, those that may fail last."""
    plain = [
        Network(mode, directions, layers)
        for mode, directions, layers in itertools.product(MODES, (1, 2), (1, 2, 3))
    ]
    cases = [Case(net, random_initial=initial) for net in plain for initial in (False, True)]
    cases += [
        Case(net, lengths, batch_major, initial)
        for net in plain
        for lengths in ("full", "ragged", "short")
        for batch_major in (False, True)
        for initial in (False, True)
    ]
    for net, lengths in itertools.product([n for n in plain if n.layers == 2], ("none", "ragged")):
        base = Case(net, lengths)
        cases += [replace(base, training=True), replace(base, math="tensor")]
        cases += [replace(base, training=True, batch_major=True)] if base.padded else []
        for dtype, math in OTHER_TYPES:
            cases.append(replace(base, network=replace(net, dtype=dtype), math=math))
    projected = [Network("lstm", way, layers, projection=3) for way in (1, 2) for layers in (1, 2)]
    skipping = [
        Network(mode, way, layers, input_size=5, skip_input=True)
        for mode, way, layers in itertools.product(MODES, (1, 2), (1, 2))
    ]
    cases += [Case(net, lengths) for net in projected + skipping for lengths in ("none", "ragged")]
    two = [net for net in plain if net.layers == 2]
    cases += [Case(net, "ragged", batch_major, dirty=True) for net in two for batch_major in (False, True)]
    cases += [Case(net, "zero", batch_major) for net in two for batch_major in (False, True)]
    cases += [Case(net, "empty") for net in two]
    return cases


def gradient_cases() -> list[Case]:
    """The cases whose gradients are kept: those of a training call without dropout."""
    plain = [
        Network(mode, directions, layers)
        for mode, directions, layers in itertools.product(MODES, (1, 2), (1, 2, 3))
    ]
    projected = [Network("lstm", way, 2, projection=3) for way in (1, 2)]
    skipping = [Network(mode, way, 2, input_size=5, skip_input=True) for mode in MODES for way in (1, 2)]
    found = [Case(net, lengths) for net in plain + projected + skipping for lengths in ("none", "ragged")]
    two = [net for net in plain if net.layers == 2]
    found += [Case(net, "ragged", True) for net in two] + [Case(net, "zero") for net in two]
    return [replace(case, training=True, gradients=True, kept=False) for case in found]


#: Steps, batch, units and inputs, layers, directions: the shapes of docs/performance.md, by its names.
TIMED: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    "u1": (100, 1, 128, 1, 1),
    "u2": (200, 1, 512, 1, 1),
    "u3": (50, 32, 256, 1, 1),
    "u4": (200, 32, 512, 1, 1),
    "u5": (1, 1, 512, 1, 1),
    "u6": (1000, 1, 64, 1, 1),
    "o1": (200, 16, 100, 2, 2),
}


def timed_cases() -> dict[tuple[str, str, str], Case]:
    """Calls that are timed, by mode, shape and math: plain inference."""
    found = {}
    for mode, (shape, sizes), math in itertools.product(MODES, TIMED.items(), ("fma", "tensor")):
        steps, batch, units, layers, directions = sizes
        net = Network(mode, directions, layers, units, units)
        found[mode, shape, math] = Case(net, math=math, steps=steps, batch=batch, timed=True, kept=False)
    return found


def error_cases() -> list[Case]:
    """Larger networks, only their distance from float64 is kept: the table of errors."""
    found = []
    types = (("float", "fma"), ("float", "tensor"), *OTHER_TYPES)
    for mode, units, (dtype, math) in itertools.product(MODES, (64, 256), types):
        net = Network(mode, 1, 1, units, units + 1, dtype=dtype)
        found.append(Case(net, "full", math=math, steps=100, kept=False))
    for mode, gain, math in itertools.product(MODES, (1.0, 2.0, 4.0), ("fma", "tensor")):
        if gain <= GAINS[mode]:
            deep = Network(mode, 2, 4, 64, 65)
            found.append(Case(deep, "full", math=math, steps=100, gain=gain, kept=False))
    return found


#: The largest gain at which a mode does not drive rounding errors to the size of its outputs.
GAINS: Final[Mapping[str, float]] = {"lstm": 4.0, "gru": 4.0, "rnn_tanh": 2.0, "rnn_relu": 1.0}


# ---------------------------------------------------------------------------------------------------------
# 3. Sizes and offsets by formula.


class Region(NamedTuple):
    """Where one matrix and one bias of a pseudo-layer lie, in elements; an offset of -1 means none."""

    pseudo_layer: int
    linear_id: int
    matrix_offset: int
    rows: int
    columns: int
    bias_offset: int
    bias_size: int


def regions(net: Network) -> list[Region]:
    """The expected layout: all matrices by pseudo-layer, W then R then the projection; then all biases.

    Linear ids: W of each gate, R of each gate, then (with a projection) one id for it that has no bias.
    LSTM gates are input, forget, cell, output; GRU's reset, update, candidate. With skip input, layer 0
    has no W but keeps both biases.
    """
    gates, found, offset = GATES[net.mode], [], 0
    for pseudo in range(net.pseudo_layers):
        layer = pseudo // net.directions
        absent = net.skip_input and layer == 0
        shapes = [(0, 0) if absent else (net.units, net.inputs(layer))] * gates
        shapes += [(net.units, net.recurrent)] * gates
        shapes += [(net.projection, net.units)] if net.projection else []
        for linear_id, (rows, columns) in enumerate(shapes):
            found.append(Region(pseudo, linear_id, offset if rows else -1, rows, columns, -1, 0))
            offset += rows * columns
    for index, region in enumerate(found):
        if region.linear_id < 2 * gates:
            found[index] = region._replace(bias_offset=offset, bias_size=net.units)
            offset += net.units
    return found


def blob_size(net: Network) -> int:
    """Number of elements of the parameter blob, without padding."""
    gates = GATES[net.mode]
    total = net.pseudo_layers * net.projection * net.units
    for layer in range(net.layers):
        width = 0 if net.skip_input and layer == 0 else net.inputs(layer)
        total += net.directions * gates * net.units * (width + net.recurrent + 2)
    return total


# ---------------------------------------------------------------------------------------------------------
# 4. The equations in float64.


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def lstm_step(wx: Array, rh: Array, c: Array) -> tuple[Array, Array]:
    """`wx`, `rh` `[gates, batch, units]` with their biases. Gates i, f, g (cell), o. Gives h, c."""
    i, f, g, o = wx + rh
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(wx: Array, rh: Array, h: Array) -> Array:
    """Gates r, z, n. The reset acts on the product R h + bR, and z keeps the old state."""
    r, z = sigmoid(wx[0] + rh[0]), sigmoid(wx[1] + rh[1])
    n = np.tanh(wx[2] + r * rh[2])
    return np.asarray((1 - z) * n + z * h)


@dataclass(frozen=True)
class Weights:
    """One pseudo-layer. kernel `[gates, units, inputs]`, recurrent `[gates, units, recurrent]`,
    biases `[gates, units]`, projection `[projection, units]` or None."""

    kernel: Array
    recurrent: Array
    bias: Array
    recurrent_bias: Array
    projection: Array | None


def unpack(net: Network, blob: Array) -> list[Weights]:
    """Cut `blob` `[blob_size]` by `regions`. A skipped layer 0 gets identity kernels."""
    gates, found = GATES[net.mode], []
    table = regions(net)
    for pseudo in range(net.pseudo_layers):
        mine = [r for r in table if r.pseudo_layer == pseudo]
        matrices = [
            blob[r.matrix_offset :][: r.rows * r.columns].reshape(r.rows, r.columns)
            if r.rows
            else np.eye(net.units, dtype=blob.dtype)
            for r in mine
        ]
        biases = [blob[r.bias_offset :][: r.bias_size] for r in mine if r.bias_size]
        found.append(
            Weights(
                np.stack(matrices[:gates]),
                np.stack(matrices[gates : 2 * gates]),
                np.stack(biases[:gates]),
                np.stack(biases[gates:]),
                matrices[2 * gates] if net.projection else None,
            )
        )
    return found


def run_direction(
    mode: str, w: Weights, x: Array, state: tuple[Array, Array], lengths: Array, *, backward: bool
) -> tuple[Array, Array, Array]:
    """One pseudo-layer over x `[steps, batch, inputs]` from `state` h, c.

    y is zero past each length, h and c are those at each row's own end.
    """
    h, c = state
    y = np.zeros((*x.shape[:2], h.shape[1]), x.dtype)
    for t in reversed(range(len(x))) if backward else range(len(x)):
        alive = (t < lengths)[:, None]
        wx = x[t] @ w.kernel.transpose(0, 2, 1) + w.bias[:, None]
        rh = h @ w.recurrent.transpose(0, 2, 1) + w.recurrent_bias[:, None]
        new_c = c
        if mode == "lstm":
            new_h, new_c = lstm_step(wx, rh, c)
        elif mode == "gru":
            new_h = gru_step(wx, rh, h)
        else:
            total = wx[0] + rh[0]
            new_h = np.tanh(total) if mode == "rnn_tanh" else np.maximum(total, 0)
        if w.projection is not None:
            new_h = new_h @ w.projection.T
        h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
        y[t] = np.where(alive, new_h, 0)
    return y, h, c


def forward(
    net: Network, weights: Sequence[Weights], x: Array, state: tuple[Array, Array], lengths: Sequence[int]
) -> tuple[Array, Array, Array]:
    """The whole network from `state` h0, c0; dtype of `x`. Returns y, h, c, shapes as at the top."""
    h, c, rows = state[0].copy(), state[1].copy(), np.asarray(lengths)
    for layer in range(net.layers):
        halves = []
        for way in range(net.directions):
            p = layer * net.directions + way
            y, h[p], c[p] = run_direction(net.mode, weights[p], x, (h[p], c[p]), rows, backward=way == 1)
            halves.append(y)
        x = np.concatenate(halves, axis=2)
    return x, h, c


# ---------------------------------------------------------------------------------------------------------
# 5. Values, and comparing them.


class Values(NamedTuple):
    """Inputs of a network, rounded to its dtype. Same for all cases of one network and size."""

    blob: Array
    x: Array
    h0: Array
    c0: Array


class Outputs(NamedTuple):
    y: Array
    h: Array
    c: Array


class Gradients(NamedTuple):
    """Of a loss, by the network's parameters and inputs; of their shapes, x time-major."""

    blob: Array
    x: Array
    h0: Array
    c0: Array


def rounded(values: Array, dtype: str) -> Array:
    """`values` as `dtype` holds them; bfloat16 as float32 whose low 16 bits are zero (nearest, ties even)."""
    if dtype != "bfloat16":
        return values.astype(NUMPY_TYPE[dtype])
    bits = values.astype(np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.asarray(((bits + half) & np.uint32(0xFFFF0000)).view(np.float32))


def values_of(case: Case) -> Values:
    """Random values, the same on every machine, all different. Weights shrink with the width: no gate
    saturates, and a relu network does not grow."""
    net = case.network
    # The seed names sizes but not the dtype, so that all dtypes round the same numbers.
    rng = np.random.default_rng(
        zlib.crc32(f"{replace(net, dtype='').name} {case.steps} {case.batch}".encode())
    )
    limit = case.gain * 1.2 / np.sqrt(net.units)
    states = (net.pseudo_layers, case.batch)
    found = (
        rng.uniform(-limit, limit, blob_size(net)),
        rng.uniform(-1, 1, (case.steps, case.batch, net.input_size)),
        rng.uniform(-1, 1, (*states, net.recurrent)),
        rng.uniform(-1, 1, (*states, net.units)),
    )
    blob, x, h0, c0 = (rounded(array, net.dtype) for array in found)
    return Values(blob, x, h0, c0)


def output_gradients(case: Case) -> Outputs:
    """Random gradients of a loss by y, h and c, of the case's dtype; c's are empty unless LSTM.

    The loss is the sum of outputs times these. They are random past a row's length too.
    """
    net = case.network
    rng = np.random.default_rng(zlib.crc32(f"gradients of {case.name}".encode()))
    states = (net.pseudo_layers, case.batch)
    shapes = (
        (case.steps, case.batch, net.directions * net.recurrent),
        (*states, net.recurrent),
        (*states, net.units),
    )
    y, h, c = (rounded(rng.uniform(-1, 1, shape), net.dtype) for shape in shapes)
    return Outputs(y, h, c if net.mode == "lstm" else c[:0])


def initial_states(case: Case, values: Values) -> tuple[Array, Array]:
    """h0 and c0 as the case wants them; c0 is zero where the mode has no cell state."""
    keep = case.random_initial
    h0 = values.h0 if keep else np.zeros_like(values.h0)
    c0 = values.c0 if keep and case.network.mode == "lstm" else np.zeros_like(values.c0)
    return h0, c0


def expected(case: Case, values: Values, weights: Sequence[Weights] | None = None) -> Outputs:
    """What the equations give in float64 for the (rounded) `values`; c is empty unless LSTM.

    A row of length 0 ends with states of 0, as cuDNN 9.19.0 was recorded to leave it.
    """
    net = case.network
    h0, c0 = (a.astype(np.float64) for a in initial_states(case, values))
    cells = unpack(net, values.blob.astype(np.float64)) if weights is None else weights
    y, h, c = forward(net, cells, values.x.astype(np.float64), (h0, c0), case.row_lengths)
    h[:, np.asarray(case.row_lengths) == 0] = c[:, np.asarray(case.row_lengths) == 0] = 0
    return Outputs(y, h, c if net.mode == "lstm" else c[:0])


def distance(found: Array, wanted: Array) -> float:
    """Largest absolute difference; infinite where shapes differ or any value of either is not finite.

    NaN is the poison that outputs are filled with, so a NaN left over must never count as equal.
    """
    if found.shape != wanted.shape or not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return float("inf")
    if found.size == 0:
        return 0.0
    return float(np.abs(found.astype(np.float64) - wanted).max())


def error_of(found: Outputs, wanted: Outputs) -> float:
    """Largest distance of y, h and c; raises ValueError where there is nothing to compare."""
    if wanted.y.size == 0:
        raise ValueError("nothing to compare: y is empty")
    return max(distance(a, b) for a, b in zip(found, wanted, strict=True))


def loss(case: Case, values: Values, run: Callable[[Case, Values], Outputs]) -> float:
    """The sum of all outputs of `run` times their `output_gradients`, in float64."""
    pairs = zip(run(case, values), output_gradients(case), strict=True)
    return float(sum(np.sum(output * gradient) for output, gradient in pairs))


def slope_errors(
    case: Case, values: Values, gradients: Gradients, run: Callable[[Case, Values], Outputs] = expected
) -> dict[str, float]:
    """How far each gradient is from the slope of the `loss` of `run` along a random line, by input.

    Slopes are central differences in float64; an error is relative to the gradient's length, and infinite
    where a gradient is not finite. A gradient of zeros must have a slope of 0.
    """
    rng, found = np.random.default_rng(5), {}
    wide = Values(*(array.astype(np.float64) for array in values))
    for key, gradient in gradients._asdict().items():
        if gradient.size == 0:
            continue
        line = rng.uniform(-1, 1, gradient.shape)
        # No step passes a unit of a relu from one side of 0 to the other; weights are smaller than inputs.
        step = 1e-8 if key == "blob" else 1e-7
        above, below = (
            loss(case, wide._replace(**{key: getattr(wide, key) + sign * step * line}), run)
            for sign in (1, -1)
        )
        slope, length = (above - below) / (2 * step), float(np.linalg.norm(gradient))
        off = abs(float(np.sum(gradient.astype(np.float64) * line)) - slope)
        found[key] = off / max(length, 1e-6) if np.isfinite(gradient).all() else float("inf")
    return found


#: Unit roundoff of what is multiplied: TF32 has 10 bits of mantissa, as half has; bfloat16 has 7.
ROUNDOFF: Final[Mapping[tuple[str, str], float]] = {
    ("double", "fma"): 2.0**-53,
    ("float", "fma"): 2.0**-24,
    ("float", "tensor"): 2.0**-11,
    ("half", "tensor"): 2.0**-11,
    ("half", "tensor-half"): 2.0**-10,  # the sums are rounded too
    ("bfloat16", "tensor"): 2.0**-8,
}


def noise_floor(case: Case) -> float:
    """How far rounding alone may take an output of a small network from float64.

    The rounding errors of a dot product of n terms add up like a random walk, sqrt(n) roundoffs; they do
    not grow with the steps, since gates contract (|tanh'| <= 1, sigmoid' <= 1/4) and weights are small.
    The factor 8 covers the worst of some hundred outputs and approximations of tanh. For float32 this is
    2e-6 to 4e-6, the tolerance of TensorFlow's own test (rtol=atol=3e-6, tensorflow v1.15.0
    python/kernel_tests/cudnn_rnn_ops_test.py).
    """
    net = case.network
    terms = max(net.inputs(layer) for layer in range(net.layers)) + net.recurrent + 2
    return 8 * ROUNDOFF[net.dtype, case.math] * float(np.sqrt(terms * net.layers))


# ---------------------------------------------------------------------------------------------------------
# 6. Descriptors: what is passed, as values, so that a machine without a device can check it.


def rnn_descriptor_arguments(case: Case) -> dict[str, int]:
    """cudnnSetRNNDescriptor_v8's arguments by the header's names, as TensorFlow passes them.

    Dropout is absent: TensorFlow passes a descriptor that was created and, for rate 0, never set.
    mathPrec is float for half only where TF_FP16_RNN_USE_FP32_COMPUTE is set (cuda_dnn.cc,
    GetRnnComputeType, RnnDoFP32ComputationFP16Input); PyTorch always makes it float.
    bfloat16 never reaches cuDNN from TensorFlow, whose kernel casts it to float (cudnn_rnn_ops.cc,
    DoForward<Eigen::bfloat16>); it is asked for all the same.
    """
    net = case.network
    same = net.dtype == "double" or case.math == "tensor-half"
    precision = net.dtype if same else "float"
    return {
        "algo": ENUM["CUDNN_RNN_ALGO_STANDARD"],
        "cellMode": ENUM[CELL_MODE[net.mode]],
        "biasMode": ENUM["CUDNN_RNN_DOUBLE_BIAS"],
        "dirMode": ENUM["CUDNN_BIDIRECTIONAL" if net.directions == 2 else "CUDNN_UNIDIRECTIONAL"],
        "inputMode": ENUM["CUDNN_SKIP_INPUT" if net.skip_input else "CUDNN_LINEAR_INPUT"],
        "dataType": ENUM[DATA_TYPE[net.dtype]],
        "mathPrec": ENUM[DATA_TYPE[precision]],
        "mathType": ENUM["CUDNN_FMA_MATH" if case.math == "fma" else "CUDNN_TENSOR_OP_MATH"],
        "inputSize": net.input_size,
        "hiddenSize": net.units,
        "projSize": net.recurrent,  # equal to hiddenSize means no projection; 0 is refused
        "numLayers": net.layers,
        "auxFlags": DEFINES["CUDNN_RNN_PADDED_IO_ENABLED" if case.padded else "CUDNN_RNN_PADDED_IO_DISABLED"],
    }


def data_descriptor_arguments(case: Case, width: int) -> dict[str, Any]:
    """cudnnSetRNNDataDescriptor's arguments for x or y of `width`; lengths are a host array here."""
    layout = "BATCH" if case.batch_major else "SEQ"
    return {
        "dataType": ENUM[DATA_TYPE[case.network.dtype]],
        "layout": ENUM[f"CUDNN_RNN_DATA_LAYOUT_{layout}_MAJOR_UNPACKED"],
        "maxSeqLength": case.steps,
        "batchSize": case.batch,
        "vectorSize": width,
        "seqLengthArray": case.row_lengths,
        "paddingFill": 0.0,
    }


def state_descriptor_arguments(case: Case, width: int) -> dict[str, Any]:
    """cudnnSetTensorNdDescriptor's arguments for h or c: [layers*directions, batch, width], dense."""
    dims = [case.network.pseudo_layers, case.batch, width]
    return {
        "dataType": ENUM[DATA_TYPE[case.network.dtype]],
        "nbDims": 3,
        "dimA": dims,
        "strideA": [dims[1] * dims[2], dims[2], 1],
    }


def ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


@contextmanager
def rnn_descriptor(cudnn: Cudnn, case: Case) -> Iterator[ctypes.c_void_p]:
    with cudnn.created("Dropout") as dropout, cudnn.created("RNN") as descriptor:
        arguments = rnn_descriptor_arguments(case)
        flags = arguments.pop("auxFlags")
        cudnn.call("cudnnSetRNNDescriptor_v8", descriptor, *arguments.values(), dropout, flags)
        yield descriptor


@contextmanager
def data_descriptor(cudnn: Cudnn, case: Case, width: int) -> Iterator[ctypes.c_void_p]:
    with cudnn.created("RNNData") as descriptor:
        arguments = data_descriptor_arguments(case, width)
        arguments["seqLengthArray"] = ints(arguments["seqLengthArray"])
        # Eight zero bytes are 0.0 in every dtype.
        fill = ctypes.c_double(arguments.pop("paddingFill"))
        cudnn.call("cudnnSetRNNDataDescriptor", descriptor, *arguments.values(), ctypes.byref(fill))
        yield descriptor


@contextmanager
def state_descriptor(cudnn: Cudnn, case: Case, width: int) -> Iterator[ctypes.c_void_p]:
    with cudnn.created("Tensor") as descriptor:
        arguments = state_descriptor_arguments(case, width)
        dims, strides = ints(arguments["dimA"]), ints(arguments["strideA"])
        cudnn.call(
            "cudnnSetTensorNdDescriptor",
            descriptor,
            arguments["dataType"],
            arguments["nbDims"],
            dims,
            strides,
        )
        yield descriptor


# ---------------------------------------------------------------------------------------------------------
# 7. Asking for sizes and offsets.


def ask_regions(cudnn: Cudnn, net: Network) -> tuple[int, list[Region]]:
    """Bytes of the weight space, and every region as cuDNN reports it, in elements.

    Offsets are differences of addresses; nothing is read or written, so the base needs no memory behind it.
    """
    base, item = 1 << 40, ITEM_SIZE[net.dtype]
    size, found = ctypes.c_size_t(), []
    ids = 2 * GATES[net.mode] + bool(net.projection)
    with (
        rnn_descriptor(cudnn, Case(net)) as rnn,
        cudnn.created("Tensor") as matrix,
        cudnn.created("Tensor") as bias,
    ):
        cudnn.call("cudnnGetRNNWeightSpaceSize", cudnn.handle, rnn, ctypes.byref(size))
        for pseudo, linear_id in itertools.product(range(net.pseudo_layers), range(ids)):
            at, bias_at = ctypes.c_void_p(), ctypes.c_void_p()
            cudnn.call(
                "cudnnGetRNNWeightParams",
                cudnn.handle,
                rnn,
                pseudo,
                size.value,
                base,
                linear_id,
                matrix,
                ctypes.byref(at),
                bias,
                ctypes.byref(bias_at),
            )
            rows, columns = dimensions(cudnn, matrix) if at.value else (0, 0)
            length = dimensions(cudnn, bias)[0] if bias_at.value else 0
            offsets = [elements(address.value, base, item) for address in (at, bias_at)]
            found.append(Region(pseudo, linear_id, offsets[0], rows, columns, offsets[1], length))
    return size.value, found


def elements(address: int | None, base: int, item: int) -> int:
    """Offset of `address` in elements, -1 for a null address; raises where it is between elements."""
    if not address:
        return -1
    offset, rest = divmod(address - base, item)
    if rest:
        raise CudnnError(f"cudnnGetRNNWeightParams: offset {address - base} is not a multiple of {item}")
    return offset


def dimensions(cudnn: Cudnn, descriptor: ctypes.c_void_p) -> tuple[int, int]:
    """Rows and columns of a region's tensor descriptor, whose three dimensions are (1, rows, columns)."""
    dtype, rank, dims, strides = ctypes.c_int(), ctypes.c_int(), ints([0] * 3), ints([0] * 3)
    cudnn.call(
        "cudnnGetTensorNdDescriptor", descriptor, 3, ctypes.byref(dtype), ctypes.byref(rank), dims, strides
    )
    if rank.value != 3 or dims[0] != 1:
        raise CudnnError(f"cudnnGetRNNWeightParams: region of shape {list(dims)[: rank.value]}")
    return int(dims[1]), int(dims[2])


def record_offsets(cudnn: Cudnn) -> dict[str, Any]:
    """Every network's answer: `{name: {network, status, bytes, regions}}`; a refusal is its status."""
    found: dict[str, Any] = {}
    for net in offset_networks():
        entry: dict[str, Any] = {"network": asdict(net), "status": "ok"}
        try:
            entry["bytes"], entry["regions"] = ask_regions(cudnn, net)
        except CudnnError as error:
            entry["status"] = str(error)
        found[net.name] = entry
    return found


def offset_verdict(entry: Mapping[str, Any]) -> str:
    """`equal`, the refusal, or what differs from the formula."""
    net = Network(**entry["network"])
    if entry["status"] != "ok":
        return str(entry["status"])
    if entry["bytes"] != blob_size(net) * ITEM_SIZE[net.dtype]:
        return f"{entry['bytes']} bytes, formula {blob_size(net) * ITEM_SIZE[net.dtype]}"
    pairs = zip((tuple(row) for row in entry["regions"]), regions(net), strict=True)
    wrong = [(found, wanted) for found, wanted in pairs if found != wanted]
    if not wrong:
        return "equal"
    return f"{len(wrong)} regions differ, first {wrong[0][0]}, formula {wrong[0][1]}"


# ---------------------------------------------------------------------------------------------------------
# 8. Running a case on the device. Only this section uses PyTorch.


class Device:
    """Torch tensors as device memory, and one cuDNN handle. `place` and `cudnn` are for tests."""

    def __init__(self, place: str = "cuda", cudnn: Cudnn | None = None) -> None:
        import torch

        self.torch, self.place = torch, place
        torch.zeros(1, device=place)  # makes the context current
        torch.backends.cudnn.version()  # loads PyTorch's own libcudnn, which find_library then sees
        self.cudnn = cudnn or Cudnn(find_library())
        if cudnn is None:
            self.cudnn.open()
        self.types = {
            "float": torch.float32,
            "double": torch.float64,
            "half": torch.float16,
            "bfloat16": torch.bfloat16,
            "int32": torch.int32,
        }

    def put(self, array: Array, dtype: str) -> Any:
        """A contiguous copy on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.place, self.types[dtype])

    def poisoned(self, shape: Sequence[int], dtype: str) -> Any:
        """Device memory full of NaN: whatever cuDNN does not write shows."""
        return self.torch.full(tuple(shape), float("nan"), device=self.place, dtype=self.types[dtype])

    def space(self, size: int) -> Any:
        """`size` bytes of 0xFF, which is NaN in every float dtype; at least one byte."""
        return self.torch.full((max(size, 1),), 255, device=self.place, dtype=self.torch.uint8)

    def get(self, tensor: Any, dtype: str) -> Array:
        array = tensor.float() if dtype == "bfloat16" else tensor
        return np.asarray(array.cpu().numpy())

    def synchronize(self) -> None:
        if self.place == "cuda":
            self.torch.cuda.synchronize()

    def witness(self, *arguments: Any, allow_tf32: bool) -> tuple[Any, Any, Any]:
        """`torch._cudnn_rnn`: y, h, c (its reserve space and weight buffer dropped)."""
        self.torch.backends.cudnn.allow_tf32 = allow_tf32
        y, h, c = self.torch._cudnn_rnn(*arguments)[:3]
        return y, h, c

    def healthy(self) -> bool:
        """False where an earlier call has broken the CUDA context, which then stays broken."""
        try:
            self.synchronize()
            return float(self.torch.ones(3, device=self.place).sum().item()) == 3.0
        except RuntimeError:
            return False


class Call:
    """The memory of one call of cuDNN and its descriptors; outputs are NaN until cuDNN writes them."""

    def __init__(self, device: Device, case: Case, values: Values, stack: ExitStack) -> None:
        net, dtype, cudnn = case.network, case.network.dtype, device.cudnn
        self.device, self.case, self.has_cell = device, case, net.mode == "lstm"
        self.order = (1, 0, 2) if case.batch_major else (0, 1, 2)
        x, (h0, c0) = values.x, initial_states(case, values)
        if case.dirty:
            past = np.arange(case.steps)[:, None] >= np.asarray(case.row_lengths)[None]
            x = np.where(past[..., None], np.asarray(np.nan, x.dtype), x)
        self.x, self.hx, self.cx = self.put(x), device.put(h0, dtype), device.put(c0, dtype)
        y_shape = (case.steps, case.batch, net.directions * net.recurrent)
        self.y = device.poisoned([y_shape[i] for i in self.order], dtype)
        self.x_shape, self.state_shapes = [x.shape[i] for i in self.order], (h0.shape, c0.shape)
        self.hy, self.cy = (device.poisoned(shape, dtype) for shape in self.state_shapes)
        self.blob, self.blob_bytes = device.put(values.blob, dtype), values.blob.size * ITEM_SIZE[dtype]
        lengths = device.put(np.asarray(case.row_lengths, np.int32), "int32")
        self.lengths = lengths if case.padded else None
        self.rnn = stack.enter_context(rnn_descriptor(cudnn, case))
        self.x_desc = stack.enter_context(data_descriptor(cudnn, case, net.input_size))
        self.y_desc = stack.enter_context(data_descriptor(cudnn, case, y_shape[2]))
        self.h_desc = stack.enter_context(state_descriptor(cudnn, case, net.recurrent))
        self.c_desc = stack.enter_context(state_descriptor(cudnn, case, net.units))
        work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        self.mode = ENUM["CUDNN_FWD_MODE_TRAINING" if case.training else "CUDNN_FWD_MODE_INFERENCE"]
        sizes = (ctypes.byref(work), ctypes.byref(reserve))
        cudnn.call("cudnnGetRNNTempSpaceSizes", cudnn.handle, self.rnn, self.mode, self.x_desc, *sizes)
        self.work, self.reserve = device.space(work.value), device.space(reserve.value)
        self.work_bytes, self.reserve_bytes = work.value, reserve.value if case.training else 0
        device.synchronize()

    def put(self, sequence: Array) -> Any:
        """A time-major sequence on the device, in the case's layout."""
        return self.device.put(sequence.transpose(self.order), self.case.network.dtype)

    def get(self, sequence: Any) -> Array:
        """A sequence of the case's layout, time-major."""
        return self.device.get(sequence, self.case.network.dtype).transpose(self.order)

    @property
    def spaces(self) -> tuple[Any, ...]:
        """The arguments that end every call: work space and reserve space."""
        reserve = self.reserve.data_ptr() if self.case.training else None
        return self.work_bytes, self.work.data_ptr(), self.reserve_bytes, reserve

    def cell(self, *tensors: Any) -> list[Any]:
        """Addresses of cell states, null where the mode has none."""
        return [tensor.data_ptr() if self.has_cell else None for tensor in tensors]

    def forward(self) -> None:
        """cudnnRNNForward, to its end."""
        cudnn = self.device.cudnn
        cudnn.call(
            "cudnnRNNForward",
            cudnn.handle,
            self.rnn,
            self.mode,
            self.lengths.data_ptr() if self.lengths is not None else None,
            self.x_desc,
            self.x.data_ptr(),
            self.y_desc,
            self.y.data_ptr(),
            self.h_desc,
            self.hx.data_ptr(),
            self.hy.data_ptr(),
            self.c_desc,
            *self.cell(self.cx, self.cy),
            self.blob_bytes,
            self.blob.data_ptr(),
            *self.spaces,
        )
        self.device.synchronize()

    def outputs(self) -> Outputs:
        """y time-major, h and c (empty unless LSTM) as they stand."""
        dtype = self.case.network.dtype
        c = self.device.get(self.cy, dtype)
        return Outputs(self.get(self.y), self.device.get(self.hy, dtype), c if self.has_cell else c[:0])

    def backward(self, given: Outputs) -> Gradients:
        """The gradients of the sum of outputs times `given`, after a forward call for training."""
        device, cudnn, dtype = self.device, self.device.cudnn, self.case.network.dtype
        dy, dhy = self.put(given.y), device.put(given.h, dtype)
        dcy = device.put(given.c if self.has_cell else np.zeros((1,)), dtype)
        dx = device.poisoned(self.x_shape, dtype)
        dhx, dcx = (device.poisoned(shape, dtype) for shape in self.state_shapes)
        lengths = self.lengths.data_ptr() if self.lengths is not None else None
        cudnn.call(
            "cudnnRNNBackwardData_v8",
            cudnn.handle,
            self.rnn,
            lengths,
            self.y_desc,
            self.y.data_ptr(),
            dy.data_ptr(),
            self.x_desc,
            dx.data_ptr(),
            self.h_desc,
            self.hx.data_ptr(),
            dhy.data_ptr(),
            dhx.data_ptr(),
            self.c_desc,
            *self.cell(self.cx, dcy, dcx),
            self.blob_bytes,
            self.blob.data_ptr(),
            *self.spaces,
        )
        # cuDNN adds the gradients of parameters to what stands there.
        dblob = device.put(np.zeros(self.blob_bytes // ITEM_SIZE[dtype]), dtype)
        cudnn.call(
            "cudnnRNNBackwardWeights_v8",
            cudnn.handle,
            self.rnn,
            ENUM["CUDNN_WGRAD_MODE_ADD"],
            lengths,
            self.x_desc,
            self.x.data_ptr(),
            self.h_desc,
            self.hx.data_ptr(),
            self.y_desc,
            self.y.data_ptr(),
            self.blob_bytes,
            dblob.data_ptr(),
            *self.spaces,
        )
        device.synchronize()
        dc0 = device.get(dcx, dtype)
        return Gradients(
            device.get(dblob, dtype), self.get(dx), device.get(dhx, dtype), dc0 if self.has_cell else dc0[:0]
        )


def run_cudnn(device: Device, case: Case, values: Values) -> Outputs:
    """One cudnnRNNForward. Returns time-major y, with NaN wherever cuDNN wrote nothing."""
    with ExitStack() as stack:
        call = Call(device, case, values, stack)
        call.forward()
        return call.outputs()


def run_gradients(device: Device, case: Case, values: Values) -> Gradients:
    """A forward call for training, then the gradients of the sum of outputs times `output_gradients`."""
    with ExitStack() as stack:
        call = Call(device, case, values, stack)
        call.forward()
        return call.backward(output_gradients(case))


#: Calls of a timed case, after a tenth as many that are not timed.
CALLS: Final = 100


def time_calls(device: Device, case: Case, values: Values) -> list[float]:
    """Microseconds of each of `CALLS` calls, each to its end, without copies to or from the device."""
    found = []
    with ExitStack() as stack:
        call = Call(device, case, values, stack)
        for number in range(CALLS // 10 + CALLS):
            start = time.perf_counter()
            call.forward()
            if number >= CALLS // 10:
                found.append(1e6 * (time.perf_counter() - start))
    return found


def witness_order(case: Case) -> tuple[list[int], list[int]] | None:
    """Row order and `batch_sizes` for PyTorch's packed input; None where `torch._cudnn_rnn` cannot run it.

    PyTorch knows neither skip input nor rows of length 0, and packs rows sorted by length, longest first.
    """
    lengths = case.row_lengths
    if case.network.skip_input or min(lengths) == 0:
        return None
    order = sorted(range(case.batch), key=lambda row: -lengths[row])
    if case.lengths == "none":
        return order, []
    return order, [sum(n > t for n in lengths) for t in range(max(lengths))]


def run_witness(device: Device, case: Case, values: Values) -> Outputs | None:
    """The same blob through `torch._cudnn_rnn`, or None where it cannot run the case."""
    arranged = witness_order(case)
    if arranged is None:
        return None
    net, (order, batch_sizes) = case.network, arranged
    blob = device.put(values.blob, net.dtype)
    per_layer: list[Any] = []
    for w in witness_weights(net, blob):
        per_layer += w
    x = values.x[:, order]
    packed = np.concatenate([x[t, :n] for t, n in enumerate(batch_sizes)]) if batch_sizes else x
    h0, c0 = (device.put(a[:, order], net.dtype) for a in initial_states(case, values))
    y, h, c = device.witness(
        device.put(packed, net.dtype),
        per_layer,
        len(per_layer) // net.pseudo_layers,
        blob,
        h0,
        c0 if net.mode == "lstm" else None,
        ENUM[CELL_MODE[net.mode]],
        net.units,
        net.projection,
        net.layers,
        False,
        0.0,
        case.training,
        net.directions == 2,
        batch_sizes,
        None,
        allow_tf32=case.math != "fma",
    )
    return unsorted(case, order, batch_sizes, Outputs(*(device.get(a, net.dtype) for a in (y, h, c))))


def witness_weights(net: Network, blob: Any) -> list[list[Any]]:
    """PyTorch's view of the blob: per pseudo-layer w_ih, w_hh, b_ih, b_hh (and w_hr), all views."""
    gates, table, found = GATES[net.mode], regions(net), []
    for pseudo in range(net.pseudo_layers):
        mine = [r for r in table if r.pseudo_layer == pseudo]
        spans = [
            (mine[0].matrix_offset, gates * net.units, mine[0].columns),
            (mine[gates].matrix_offset, gates * net.units, mine[gates].columns),
            (mine[0].bias_offset, gates * net.units, 0),
            (mine[gates].bias_offset, gates * net.units, 0),
        ]
        if net.projection:
            spans.append((mine[-1].matrix_offset, mine[-1].rows, mine[-1].columns))
        found.append(
            [
                blob[at : at + rows * max(columns, 1)].reshape((rows, columns) if columns else (rows,))
                for at, rows, columns in spans
            ]
        )
    return found


def unsorted(case: Case, order: Sequence[int], batch_sizes: Sequence[int], packed: Outputs) -> Outputs:
    """Undo the packing: padded time-major y, and rows back in their own order."""
    y, h, c = packed
    padded, inverse = y, np.argsort(order)
    if batch_sizes:
        padded = np.zeros((case.steps, case.batch, y.shape[1]), y.dtype)
        start = 0
        for t, rows in enumerate(batch_sizes):
            padded[t, :rows] = y[start : start + rows]
            start += rows
    return Outputs(padded[:, inverse], h[:, inverse], c[:, inverse] if c.size else c.reshape(0, *h.shape[1:]))


# ---------------------------------------------------------------------------------------------------------
# 9. Workers: one process runs jobs until it ends, fails or dies.

CONTEXT_LOST: Final = 17  # exit code: the case is recorded, the CUDA context is not usable any more
OFFSETS_JOB: Final = "offsets"
LONGEST_CASE: Final = 90.0  # seconds; the first case includes loading PyTorch and cuDNN's kernels
NO_CONTEXT: Final = "lost the CUDA context"
OUT_OF_TIME: Final = "ran out of time"


def all_cases() -> dict[str, Case]:
    cases = [*error_cases(), *timed_cases().values(), *gradient_cases(), *output_cases()]
    return {case.name: case for case in cases}


def work(jobs: Sequence[str], folder: Path, *, blank_handle: bool) -> int:
    """Run `jobs` in this process. Each leaves `<number>.json` (and .npz) in `folder`, in their order."""
    if blank_handle:
        cudnn = Cudnn(find_library())
        cudnn.open_blank()
        device = None
    else:
        device = Device()
        cudnn = device.cudnn
    cases = all_cases()
    write_json(folder / "about.json", about(cudnn, device))
    for number, job in enumerate(jobs):
        if job == OFFSETS_JOB:
            result: dict[str, Any] = {"job": job, "status": "ok", "offsets": record_offsets(cudnn)}
        else:
            assert device is not None
            result = run_case(device, cases[job], folder / f"{number}.npz")
        write_json(folder / f"{number}.json", result)
        if device is not None and not device.healthy():
            return CONTEXT_LOST
    return 0


def run_case(device: Device, case: Case, path: Path) -> dict[str, Any]:
    """Run one case and its witness; outputs go to `path`, a failure of either is its text."""
    values = values_of(case)
    result: dict[str, Any] = {"job": case.name, "status": "ok", "witness": "not applicable"}
    try:
        found = run_cudnn(device, case, values)
        arrays = found._asdict()
        if case.gradients:
            gradients = run_gradients(device, case, values)._asdict()
            arrays |= {f"gradient_{key}": value for key, value in gradients.items()}
        if case.timed:
            low, middle, high = np.quantile(time_calls(device, case, values), (0.05, 0.5, 0.95))
            result["microseconds"] = {"p5": low, "median": middle, "p95": high, "calls": CALLS}
    except (CudnnError, RuntimeError) as error:
        return {**result, "status": f"{type(error).__name__}: {error}".splitlines()[0]}
    np.savez(path, **arrays)
    try:
        second = run_witness(device, case, values)
        if second is not None:
            far = error_of(second, found)
            result["witness"] = far if np.isfinite(far) else "outputs of other shapes, or not finite"
    except (RuntimeError, ValueError, TypeError) as error:
        result["witness"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return result


def write_json(path: Path, value: Any) -> None:
    """Written beside and renamed, so that a file that exists is complete."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value))
    beside.replace(path)


def about(cudnn: Cudnn, device: Device | None) -> dict[str, Any]:
    """What ran: device, driver, versions, date."""
    found: dict[str, Any] = {
        "source": "device" if device else "host code with a blank handle, no device",
        "cudnn_version": cudnn.version,
        "headers": HEADERS,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "numpy": np.__version__,
    }
    if device:
        properties = device.torch.cuda.get_device_properties(0)
        found |= {
            "device": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": driver_version(),
            "cuda": device.torch.version.cuda,
            "torch": device.torch.__version__,
            "math_modes": {
                "fma": "CUDNN_FMA_MATH",
                "tensor": "CUDNN_TENSOR_OP_MATH",
                "tensor-half": "CUDNN_TENSOR_OP_MATH with mathPrec CUDNN_DATA_HALF",
            },
        }
    return found


def driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


@dataclass
class Results:
    """What came back: results by job, outputs and gradients by case, and `about`."""

    about: dict[str, Any] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, Outputs] = field(default_factory=dict)
    gradients: dict[str, Gradients] = field(default_factory=dict)


def run_jobs(jobs: Sequence[str], *, blank_handle: bool, seconds: float) -> Results:
    """Run every job in workers; a job during which a worker dies is recorded and the rest go to the next.

    Workers that die before their first job twice in a row (no device, no library) end the run. Jobs left
    when `seconds` are over are recorded as such.
    """
    results, left, stillborn = Results(), list(jobs), 0
    deadline = time.monotonic() + seconds
    while left and stillborn < 2 and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            left_seconds = deadline - time.monotonic()
            end = start_worker(left, folder, blank_handle=blank_handle, seconds=left_seconds)
            collect(left, folder, results)
            done = sum((folder / f"{number}.json").exists() for number in range(len(left)))
            started = (folder / "about.json").exists()
        left = left[done:]
        stillborn = 0 if started else stillborn + 1
        if left and started and end not in (NO_CONTEXT, OUT_OF_TIME):
            results.jobs[left[0]] = {"job": left[0], "status": f"the process {end}"}
            left = left[1:]
        elif left and not started:
            print(f"worker {end} before its first case", file=sys.stderr)
    for job in left:
        results.jobs[job] = {"job": job, "status": "not run"}
    return results


def start_worker(jobs: Sequence[str], folder: Path, *, blank_handle: bool, seconds: float) -> str:
    """Run one worker to its end, which is told in words; it is stopped where it no longer gets ahead."""
    (folder / "jobs.json").write_text(json.dumps(list(jobs)))
    command = [sys.executable, __file__, "--worker", str(folder)]
    command += ["--without-device"] if blank_handle else []
    start = moved = time.monotonic()
    done = 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            time.sleep(0.1)
            now, results = time.monotonic(), sum(1 for _ in folder.glob("*.json"))
            if results != done:
                done, moved = results, now
            if now - start > seconds or now - moved > LONGEST_CASE:
                process.kill()
                return OUT_OF_TIME if now - start > seconds else f"hung for {LONGEST_CASE} s"
    return NO_CONTEXT if process.returncode == CONTEXT_LOST else f"ended with code {process.returncode}"


def collect(jobs: Sequence[str], folder: Path, results: Results) -> None:
    """Read what a worker left in `folder`."""
    if (folder / "about.json").exists():
        results.about = json.loads((folder / "about.json").read_text())
    for number, job in enumerate(jobs):
        path = folder / f"{number}.json"
        if not path.exists():
            return
        results.jobs[job] = json.loads(path.read_text())
        if path.with_suffix(".npz").exists():
            with np.load(path.with_suffix(".npz")) as arrays:
                results.outputs[job] = Outputs(arrays["y"], arrays["h"], arrays["c"])
                if "gradient_x" in arrays:
                    found = (arrays[f"gradient_{key}"] for key in Gradients._fields)
                    results.gradients[job] = Gradients(*found)


# ---------------------------------------------------------------------------------------------------------
# 10. Answers. The questions are numbered as in docs/cudnn-questions.md.


def judged(results: Results) -> dict[str, float]:
    """Distance from float64 of every case that gave outputs."""
    cases = all_cases()
    return {
        name: error_of(found, expected(cases[name], values_of(cases[name])))
        for name, found in results.outputs.items()
    }


def select(results: Results, **wanted: Any) -> dict[str, Case]:
    """The cases with outputs whose fields (of the case or its network) have the wanted values."""
    found = {}
    for name, case in all_cases().items():
        fields = {**asdict(case.network), **{key: getattr(case, key) for key in asdict(case)}}
        if name in results.outputs and all(fields[key] == value for key, value in wanted.items()):
            found[name] = case
    return found


def spread(cases: Mapping[str, Case], errors: Mapping[str, float]) -> str:
    """`n of m within the noise floor, worst e (case)`."""
    if not cases:
        return "no outputs"
    good = [name for name, case in cases.items() if errors[name] <= noise_floor(case)]
    worst = max(cases, key=lambda name: errors[name])
    return f"{len(good)} of {len(cases)} within the noise floor, worst {errors[worst]:.2g} ({worst})"


def answer_offsets(results: Results, *, projected: bool) -> str:
    """Q1 and Q2."""
    entries = results.jobs.get(OFFSETS_JOB, {}).get("offsets", {})
    counts: dict[str, int] = {}
    for entry in entries.values():
        if bool(entry["network"]["projection"]) == projected:
            verdict = offset_verdict(entry)
            counts[verdict] = counts.get(verdict, 0) + 1
    return "; ".join(f"{n} networks: {verdict}" for verdict, n in counts.items()) or "not asked"


def answer_skip(results: Results) -> str:
    """Q3: which of two readings fits the outputs with skip input."""
    found = select(results, skip_input=True)
    fits = {"identity with both biases": 0, "identity without the input bias": 0, "neither": 0}
    for name, case in found.items():
        values = values_of(case)
        weights = unpack(case.network, values.blob.astype(np.float64))
        without = [
            replace(w, bias=np.zeros_like(w.bias)) if p < case.network.directions else w
            for p, w in enumerate(weights)
        ]
        errors = [error_of(results.outputs[name], expected(case, values, w)) for w in (weights, without)]
        best = int(np.argmin(errors))
        fits[list(fits)[best if errors[best] <= noise_floor(case) else 2]] += 1
    refused = [r["status"] for n, r in results.jobs.items() if "-skip-" in n and r["status"] != "ok"]
    return f"{fits}; refused: {sorted(set(refused)) or 'none'}"


def answer_padding(results: Results) -> str:
    """Q5: what stands past each row's length."""
    counts = {"zero": 0, "poison left": 0, "other": 0}
    for lengths in ("ragged", "short"):
        for name, case in select(results, lengths=lengths).items():
            past = np.arange(case.steps)[:, None] >= np.asarray(case.row_lengths)[None]
            tail = results.outputs[name].y[past]
            kind = "zero" if (tail == 0).all() else "poison left" if np.isnan(tail).any() else "other"
            counts[kind] += 1
    return f"cases whose outputs past the lengths are {counts}"


def answer_training(results: Results) -> str:
    """Q7: training with dropout 0 against inference, bit by bit."""
    same, different = 0, []
    for name, case in select(results, training=True).items():
        other = results.outputs.get(replace(case, training=False, gradients=False).name)
        if other is None:
            continue
        pairs = zip(results.outputs[name], other, strict=True)
        if all(a.tobytes() == b.tobytes() for a, b in pairs):
            same += 1
        else:
            different.append(name)
    return f"{same} pairs equal bit for bit, {len(different)} not: {different[:3]}"


def answer_zero_length(results: Results) -> str:
    """Q8: a row of length 0 among others, and nothing but such rows."""
    counts: dict[str, int] = {}
    for name, case in all_cases().items():
        if case.lengths not in ("zero", "empty"):
            continue
        verdict = results.jobs.get(name, {}).get("status", "not run")
        if name in results.outputs:
            found, (h0, _) = results.outputs[name], initial_states(case, values_of(case))
            rows = np.asarray(case.row_lengths) == 0
            zeros = "zeros" if (found.y[:, rows] == 0).all() else "not zeros"
            h = found.h[:, rows]
            state = "initial" if np.array_equal(h, h0[:, rows]) else "zero" if (h == 0).all() else "other"
            verdict = f"runs; outputs {zeros}, final state {state}"
        key = f"{case.lengths}: {verdict}"
        counts[key] = counts.get(key, 0) + 1
    return "; ".join(f"{n} cases, {verdict}" for verdict, n in counts.items())


def answer_state_order(results: Results) -> str:
    """Q10: how cuDNN reads the memory of h0 with a batch-major layout."""
    fits = {"[layers*directions, batch, width]": 0, "[batch, layers*directions, width]": 0, "neither": 0}
    for name, case in select(results, batch_major=True, random_initial=True).items():
        if case.network.pseudo_layers == 1 or 0 in case.row_lengths:
            continue  # both readings are the same memory, or another question
        values = values_of(case)
        swapped = values._replace(h0=reread(values.h0), c0=reread(values.c0))
        other = expected(case, swapped)
        other = other._replace(h=reread_back(other.h), c=reread_back(other.c))
        errors = [error_of(results.outputs[name], e) for e in (expected(case, values), other)]
        best = int(np.argmin(errors))
        fits[list(fits)[best if errors[best] <= noise_floor(case) else 2]] += 1
    return f"{fits}"


def reread(states: Array) -> Array:
    """The memory of `[pseudo, batch, width]` read as `[batch, pseudo, width]`, given as the former."""
    pseudo, batch, width = states.shape
    return np.asarray(states.reshape(batch, pseudo, width).transpose(1, 0, 2))


def reread_back(states: Array) -> Array:
    """The inverse of `reread`."""
    return np.asarray(states.transpose(1, 0, 2)).reshape(states.shape)


def error_table(results: Results, errors: Mapping[str, float]) -> str:
    """Q6: the worst distance from float64 by mode, layers, units, gain, dtype and math mode."""
    heads = ("mode", "layers", "units", "gain", "dtype", "math", "worst error")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in error_cases():
        net, status = case.network, results.jobs.get(case.name, {}).get("status", "not run")
        shown = f"{errors[case.name]:.2g}" if case.name in errors else status
        row = (net.mode, net.layers, net.units, f"{case.gain:g}", net.dtype, case.math, shown)
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def answer_gradients(results: Results) -> str:
    """Q12: gradients against slopes of the equations, and what a row of length 0 and padding get."""
    cases, worst = all_cases(), dict.fromkeys(Gradients._fields, (0.0, ""))
    padding, empty = {"zero": 0, "other": 0}, {"zero": 0, "other": 0}
    for name, found in results.gradients.items():
        case = cases[name]
        for key, error in slope_errors(case, values_of(case), found).items():
            worst[key] = max(worst[key], (error, name))
        lengths = np.asarray(case.row_lengths)
        past = found.x[np.arange(case.steps)[:, None] >= lengths[None]]
        if past.size:
            padding["zero" if (past == 0).all() else "other"] += 1
        if 0 in lengths:
            empty["zero" if (found.h0[:, lengths == 0] == 0).all() else "other"] += 1
    errors = ", ".join(f"{key} {error:.2g} ({name})" for key, (error, name) in worst.items())
    return (
        f"{len(results.gradients)} of {len(gradient_cases())} cases ran; "
        f"largest distance from slopes: {errors}; gradients by x past the lengths: {padding}; "
        f"by h0 of a row of length 0: {empty}"
    )


def answer_dirty(results: Results) -> str:
    """Q13: NaN in x past each row's length against anything else there, bit by bit."""
    same, different = 0, []
    for name in select(results, dirty=True):
        pairs = zip(results.outputs[name], results.outputs[name.removesuffix("-dirty")], strict=True)
        if all(a.tobytes() == b.tobytes() for a, b in pairs):
            same += 1
        else:
            different.append(name)
    return f"{same} pairs equal bit for bit, {len(different)} not: {different[:3]}"


def call_times(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Microseconds of a call by mode, shape and math, None where it did not run: median and quantiles."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (mode, shape, math), case in timed_cases().items():
        found.setdefault(mode, {}).setdefault(shape, {})[math] = jobs.get(case.name, {}).get("microseconds")
    return found


def time_table(results: Results) -> str:
    """`call_times` as a table."""
    lines = ["| mode | shape | math | median us | 5 % | 95 % |", "|---|---|---|---|---|---|"]
    times = call_times(results.jobs)
    for mode, shape, math in timed_cases():
        took = times[mode][shape][math]
        shown = [f"{took[key]:.0f}" for key in ("median", "p5", "p95")] if took else ["not run", "", ""]
        lines.append("| " + " | ".join((mode, shape, math, *shown)) + " |")
    return "\n".join(lines)


def answer_witness(results: Results) -> str:
    """How far `torch._cudnn_rnn` is from the direct call."""
    found = [r["witness"] for r in results.jobs.values() if r.get("status") == "ok" and "witness" in r]
    numbers = [w for w in found if isinstance(w, float)]
    texts = sorted({w for w in found if isinstance(w, str) and w != "not applicable"})
    largest = max(numbers, default=0.0)
    return f"{len(numbers)} cases, largest difference {largest:.2g}; failures: {texts or 'none'}"


def answers(results: Results, errors: Mapping[str, float]) -> dict[str, str]:
    """One text per question; `errors` are those of `judged`."""
    if OFFSETS_JOB in results.jobs and len(results.jobs) == 1:
        return {"Q1": answer_offsets(results, projected=False), "Q2": answer_offsets(results, projected=True)}
    bidirectional = {
        name: case
        for lengths in ("ragged", "short")
        for name, case in select(results, lengths=lengths, directions=2, skip_input=False).items()
    }
    return {
        "Q1": answer_offsets(results, projected=False),
        "Q2": answer_offsets(results, projected=True),
        "Q3": answer_skip(results),
        "Q4": spread(bidirectional, errors),
        "Q5": answer_padding(results),
        "Q6": "\n" + error_table(results, errors),
        "Q7": answer_training(results),
        "Q8": answer_zero_length(results),
        "Q9": "not asked here: see scripts/record_tensorflow.py",
        "Q10": answer_state_order(results),
        "Q11": "not asked here: see scripts/record_tensorflow.py",
        "Q12": answer_gradients(results),
        "Q13": answer_dirty(results),
        "times": "\n" + time_table(results),
        "equations": spread(select(results, kept=True, skip_input=False), errors),
        "witness": answer_witness(results),
    }


# ---------------------------------------------------------------------------------------------------------
# 11. Files.

FORMAT: Final = 1
LARGEST_FILE: Final = 16 << 20


def save_offsets(path: Path, results: Results) -> None:
    """One int64 array `[regions, 7]` (the fields of Region) per network; refusals are in `meta`."""
    entries = results.jobs[OFFSETS_JOB].get("offsets", {})
    meta = {
        "format": FORMAT,
        "kind": "offsets",
        "about": results.about,
        "fields": Region._fields,
        "networks": {name: {k: v for k, v in e.items() if k != "regions"} for name, e in entries.items()},
    }
    arrays = {name: np.asarray(e["regions"], np.int64) for name, e in entries.items() if "regions" in e}
    save_npz(path, {"meta": np.array(json.dumps(meta)), **arrays})


def save_outputs(folder: Path, results: Results) -> None:
    """Per mode: `<network>/{blob,x,h0,c0}` once, `<case>/{y,h,c}`, and `meta` with every case's status.

    h0 and c0 are the random ones; a case with `random_initial` false starts from zeros.
    """
    for mode in MODES:
        arrays: dict[str, Array] = {}
        listed = []
        for case in output_cases():
            if case.network.mode != mode or case.name not in results.jobs:
                continue
            listed.append({"case": asdict(case), **results.jobs[case.name]})
            if case.name in results.outputs:
                stem = f"{case.network.name}/"
                arrays |= {stem + key: value for key, value in values_of(case)._asdict().items()}
                found = results.outputs[case.name]._asdict()
                arrays |= {f"{case.name}/{key}": value for key, value in found.items()}
        meta = {"format": FORMAT, "kind": "outputs", "about": results.about, "cases": listed}
        if arrays:
            save_npz(folder / f"outputs_{mode}.npz", {"meta": np.array(json.dumps(meta)), **arrays})


def save_gradients(path: Path, results: Results) -> None:
    """Per case what went in, `<case>/{blob,x,h0,c0}` and `{y,h,c}_gradient`, and what came out, `d<input>`.

    Nothing is written where no case gave gradients.
    """
    arrays: dict[str, Array] = {}
    listed = []
    for case in gradient_cases():
        if case.name not in results.jobs:
            continue
        listed.append({"case": asdict(case), **results.jobs[case.name]})
        if case.name in results.gradients:
            given = {f"{key}_gradient": value for key, value in output_gradients(case)._asdict().items()}
            found = {f"d{key}": value for key, value in results.gradients[case.name]._asdict().items()}
            inputs = values_of(case)._asdict()
            arrays |= {f"{case.name}/{key}": value for key, value in (inputs | given | found).items()}
    meta = {"format": FORMAT, "kind": "gradients", "about": results.about, "cases": listed}
    if arrays:
        save_npz(path, {"meta": np.array(json.dumps(meta)), **arrays})


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Compressed, written beside and renamed; raises ValueError where the file would be too large."""
    beside = path.with_suffix(".part.npz")
    np.savez_compressed(beside, **arrays)
    if beside.stat().st_size > LARGEST_FILE:
        beside.unlink()
        raise ValueError(f"{path}: more than {LARGEST_FILE} bytes")
    beside.replace(path)


def record(out: Path, seconds: float) -> int:
    """Everything, on a device. Exit code 0 where at least one case ran."""
    results = run_jobs([OFFSETS_JOB, *all_cases()], blank_handle=False, seconds=seconds)
    if not results.about:
        print("no recording: no worker could start; is there a CUDA device with PyTorch?", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    errors = judged(results)
    found = answers(results, errors)
    save_offsets(out / "offsets.npz", results)
    save_outputs(out, results)
    save_gradients(out / "gradients.npz", results)
    statuses = {
        name: {key: value for key, value in result.items() if key not in ("job", "offsets")}
        | ({"error": errors[name]} if name in errors else {})
        for name, result in results.jobs.items()
    }
    times = call_times(results.jobs)
    summary = {"format": FORMAT, **results.about, "answers": found, "times": times, "cases": statuses}
    (out / "recording.json").write_text(json.dumps(summary, indent=1) + "\n")
    show(results, found)
    return 0


def record_without_device(out: Path, seconds: float) -> int:
    """Sizes and offsets through a blank handle."""
    results = run_jobs([OFFSETS_JOB], blank_handle=True, seconds=seconds)
    errors = judged(results)
    found = answers(results, errors)
    if results.jobs[OFFSETS_JOB]["status"] == "ok":
        out.mkdir(parents=True, exist_ok=True)
        save_offsets(out / "host_offsets.npz", results)
    show(results, found)
    return 0 if results.jobs[OFFSETS_JOB]["status"] == "ok" else 1


def show(results: Results, found: Mapping[str, str]) -> None:
    """Print what ran, the failures and the answers."""
    print(json.dumps(results.about, indent=1))
    failed = {name: r["status"] for name, r in results.jobs.items() if r["status"] != "ok"}
    print(f"\n{len(results.jobs) - len(failed)} of {len(results.jobs)} jobs ran")
    for name, status in failed.items():
        print(f"  {name}: {status}")
    for question, text in found.items():
        print(f"\n{question}: {text}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    default = Path(__file__).resolve().parents[1] / "tests" / "data" / "cudnn"
    parser.add_argument("--out", type=Path, default=default, help="folder for the recordings")
    parser.add_argument("--seconds", type=float, default=420.0, help="time for all cases together")
    parser.add_argument(
        "--without-device", action="store_true", help="only sizes and offsets, on any machine"
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    if flags.worker:
        jobs = json.loads((flags.worker / "jobs.json").read_text())
        return work(jobs, flags.worker, blank_handle=flags.without_device)
    if flags.without_device:
        return record_without_device(flags.out, flags.seconds)
    return record(flags.out, flags.seconds)


if __name__ == "__main__":
    sys.exit(main())
