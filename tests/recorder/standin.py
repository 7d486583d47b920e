"""A stand-in for a device with cuDNN: same calls, same memory, but computed by `cudnn_convert.reference`.

It reads every argument by the name that the header gives it and through the pointers it is handed, so an
argument in the wrong place, a wrong layout or a wrong descriptor shows. What it writes is no recording.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import record_cudnn as rec

from cudnn_convert import reference

#: The stand-in keeps bfloat16 as float32, like the recorder's own arrays.
STORED = {name: np.dtype(kind) for name, kind in rec.NUMPY_TYPE.items()}
DTYPE_OF = {rec.ENUM[enum]: name for name, enum in rec.DATA_TYPE.items()}
MODE_OF = {rec.ENUM[enum]: name for name, enum in rec.CELL_MODE.items()}


#: Arguments of torch._cudnn_rnn in PyTorch 2.13; checked where PyTorch is installed.
WITNESS = (
    "input weight weight_stride0 weight_buf hx cx mode hidden_size proj_size num_layers batch_first dropout "
    "train bidirectional batch_sizes dropout_state"
).split()


class Memory:
    """An array that has an address; slices and reshapes are views, as a tensor's are."""

    def __init__(self, array: rec.Array) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def __getitem__(self, key: Any) -> Memory:
        return Memory(self.array[key])

    def reshape(self, shape: tuple[int, ...]) -> Memory:
        return Memory(self.array.reshape(shape))


class StandInDevice:
    """What `run_cudnn` and `run_witness` need of a device, in host memory."""

    def __init__(self, *, witness: bool = True, **behaviour: Any) -> None:
        self.cudnn = StandInCudnn(**behaviour)
        self.has_witness = witness

    def put(self, array: rec.Array, dtype: str) -> Memory:
        return Memory(np.array(array, STORED.get(dtype, np.dtype(np.int32)), order="C"))

    def poisoned(self, shape: Any, dtype: str) -> Memory:
        return Memory(np.full(tuple(shape), np.nan, STORED[dtype]))

    def space(self, size: int) -> Memory:
        return Memory(np.full(max(size, 1), 255, np.uint8))

    def get(self, memory: Memory, dtype: str) -> rec.Array:
        assert memory.array.dtype == STORED[dtype]
        return memory.array

    def synchronize(self) -> None:
        pass

    def healthy(self) -> bool:
        return True

    def witness(self, *arguments: Any, allow_tf32: bool) -> Any:
        if not self.has_witness:
            raise RuntimeError("the stand-in has no PyTorch")
        given = SimpleNamespace(**dict(zip(WITNESS, arguments, strict=True)))
        assert (given.batch_first, given.dropout, given.dropout_state) == (False, 0.0, None)
        return witness(given)


def witness(given: SimpleNamespace) -> tuple[Memory, Memory, Memory]:
    """torch._cudnn_rnn by the same equations: packed x and y where `batch_sizes` says so."""
    x, sizes = given.input.array, given.batch_sizes
    mode, ways = MODE_OF[given.mode], 1 + given.bidirectional
    net = rec.Network(mode, ways, given.num_layers, given.hidden_size, x.shape[-1], given.proj_size)
    assert len(given.weight) == given.weight_stride0 * net.pseudo_layers
    assert all(np.shares_memory(w.array, given.weight_buf.array) for w in given.weight)
    assert (given.cx is None) == (mode != "lstm")
    lengths = [len(x)] * x.shape[1] if not sizes else [sum(n > row for n in sizes) for row in range(sizes[0])]
    alive = np.arange(max(lengths))[:, None] < np.asarray(lengths)[None]
    padded = np.zeros((*alive.shape, x.shape[-1]))
    padded[alive] = x.reshape(-1, x.shape[-1])
    h0 = given.hx.array
    c0 = given.cx.array if given.cx else np.zeros((*h0.shape[:2], net.units))
    y, h, c = compute(net, given.weight_buf.array, (padded, h0, c0), lengths)
    y, c = y[alive] if sizes else y, c if mode == "lstm" else np.zeros(0)
    return Memory(y.astype(x.dtype)), Memory(h.astype(x.dtype)), Memory(c.astype(x.dtype))


class StandInCudnn(rec.Cudnn):
    """`padding`: what stands past the lengths, "zero" or "poison"; `states`: "layer-major" or
    "batch-major", how h and c are read with a batch-major layout; `zero_length`: final states of such a row
    are "zeros" or "kept", or the call is "refused"; `slope`: what gradients are multiplied by."""

    def __init__(
        self,
        padding: str = "zero",
        states: str = "layer-major",
        zero_length: str = "zeros",
        slope: float = 1.0,
    ) -> None:
        self.behaviour = SimpleNamespace(padding=padding, states=states, zero_length=zero_length, slope=slope)
        self.handle = ctypes.c_void_p(1)
        self.descriptors: dict[int, dict[str, Any]] = {}

    def call(self, name: str, *arguments: Any) -> None:
        declared = rec.DECLARATIONS[name].parameters
        for declaration, argument in zip(declared, arguments, strict=True):
            rec.ctype_of(declaration).from_param(argument)
        names = [declaration.split()[-1].strip("*[]") for declaration in declared]
        given = SimpleNamespace(**dict(zip(names, arguments, strict=True)))
        if name.startswith("cudnnCreate"):
            (target,) = arguments
            target._obj.value = 100 + len(self.descriptors)
            self.descriptors[target._obj.value] = {}
        elif name.startswith("cudnnDestroy"):
            del self.descriptors[arguments[0].value]
        elif name.startswith("cudnnSet"):
            self.descriptors[arguments[0].value].update(vars(given))
        elif name == "cudnnGetRNNTempSpaceSizes":
            given.workSpaceSize._obj.value, given.reserveSpaceSize._obj.value = 64, 32
        elif name == "cudnnRNNForward":
            self.forward(given)
        elif name == "cudnnRNNBackwardData_v8":
            self.backward_data(given)
        else:
            assert name == "cudnnRNNBackwardWeights_v8"
            self.backward_weights(given)

    def forward(self, given: SimpleNamespace) -> None:
        rnn, x_desc, y_desc, h_desc, c_desc = (
            SimpleNamespace(**self.descriptors[d.value])
            for d in (given.rnnDesc, given.xDesc, given.yDesc, given.hDesc, given.cDesc)
        )
        net, lengths = network_of(rnn), list(x_desc.seqLengthArray)
        if self.behaviour.zero_length == "refused" and 0 in lengths:
            raise rec.CudnnError("cudnnRNNForward: CUDNN_STATUS_BAD_PARAM")
        check_spaces(given, net)
        self.x = given.x
        check_lengths(given, rnn, x_desc, y_desc)
        batch_major = x_desc.layout == rec.ENUM["CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED"]
        order = (1, 0, 2) if batch_major else (0, 1, 2)
        x = sequence(given.x, x_desc, order)
        h0, c0 = state(given.hx, h_desc), state(given.cx, c_desc)
        swap = batch_major and self.behaviour.states == "batch-major"
        if swap:
            h0, c0 = rec.reread(h0), rec.reread(c0)
        blob = array_at(given.weightSpace, net.dtype, (rec.blob_size(net),))
        y, h, c = compute(net, blob, (x, h0, c0), lengths)
        if self.behaviour.zero_length == "zeros":
            h[:, np.asarray(lengths) == 0] = c[:, np.asarray(lengths) == 0] = 0
        if self.behaviour.padding == "poison":
            y[np.arange(len(y))[:, None] >= np.asarray(lengths)[None]] = np.nan
        sequence(given.y, y_desc, order)[...] = y
        state(given.hy, h_desc)[...] = rec.reread_back(h) if swap else h
        if net.mode == "lstm":
            state(given.cy, c_desc)[...] = rec.reread_back(c) if swap else c

    def backward_data(self, given: SimpleNamespace) -> None:
        """dx, dhx and dcx as differences of the loss; what the call for the parameters needs is kept."""
        rnn, x_desc, y_desc, h_desc, c_desc = (
            SimpleNamespace(**self.descriptors[d.value])
            for d in (given.rnnDesc, given.xDesc, given.yDesc, given.hDesc, given.cDesc)
        )
        net = network_of(rnn)
        check_reserve(given)
        check_lengths(given, rnn, x_desc, y_desc)
        batch_major = x_desc.layout == rec.ENUM["CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED"]
        self.order = (1, 0, 2) if batch_major else (0, 1, 2)
        # cuDNN has x from the forward call's reserve space; the stand-in remembers where it was.
        inputs = {
            "blob": array_at(given.weightSpace, net.dtype, (rec.blob_size(net),)),
            "x": sequence(self.x, x_desc, self.order),
            "h0": state(given.hx, h_desc),
            "c0": state(given.cx, c_desc),
        }
        wanted = (
            sequence(given.dy, y_desc, self.order),
            state(given.dhy, h_desc),
            state(given.dcy, c_desc) if given.dcy else 0,
        )
        lengths = list(x_desc.seqLengthArray)

        def measure_loss(changed: dict[str, rec.Array]) -> float:
            outputs = compute(net, changed["blob"], [changed[key] for key in ("x", "h0", "c0")], lengths)
            outputs[1][:, np.asarray(lengths) == 0] = outputs[2][:, np.asarray(lengths) == 0] = 0
            return float(sum(np.sum(a * b) for a, b in zip(outputs, wanted, strict=True)))

        self.measure_slopes = lambda key: self.behaviour.slope * measure_slopes(measure_loss, inputs, key)
        sequence(given.dx, x_desc, self.order)[...] = self.measure_slopes("x")
        state(given.dhx, h_desc)[...] = self.measure_slopes("h0")
        if net.mode == "lstm":
            state(given.dcx, c_desc)[...] = self.measure_slopes("c0")

    def backward_weights(self, given: SimpleNamespace) -> None:
        """Adds to what stands at dweightSpace, as cuDNN does."""
        net = network_of(SimpleNamespace(**self.descriptors[given.rnnDesc.value]))
        check_reserve(given)
        assert given.addGrad == rec.ENUM["CUDNN_WGRAD_MODE_ADD"]
        assert given.x == self.x
        array_at(given.dweightSpace, net.dtype, (rec.blob_size(net),))[...] += self.measure_slopes("blob")


def measure_slopes(measure_loss: Any, inputs: dict[str, rec.Array], key: str) -> rec.Array:
    """The loss's slope along each element of `inputs[key]`, by central differences in float64."""
    wide = {name: value.astype(np.float64) for name, value in inputs.items()}
    found = np.zeros(wide[key].shape)
    for index in np.ndindex(*found.shape):
        middle, losses = wide[key][index], []
        for sign in (1, -1):
            wide[key][index] = middle + sign * 1e-6
            losses.append(measure_loss(wide))
        wide[key][index] = middle
        found[index] = (losses[0] - losses[1]) / 2e-6
    return found


def network_of(rnn: SimpleNamespace) -> rec.Network:
    """The network that an RNN descriptor describes."""
    assert rnn.algo == rec.ENUM["CUDNN_RNN_ALGO_STANDARD"]
    assert rnn.biasMode == rec.ENUM["CUDNN_RNN_DOUBLE_BIAS"]
    return rec.Network(
        MODE_OF[rnn.cellMode],
        rnn.dirMode + 1,
        rnn.numLayers,
        rnn.hiddenSize,
        rnn.inputSize,
        rnn.projSize if rnn.projSize != rnn.hiddenSize else 0,
        rnn.inputMode == rec.ENUM["CUDNN_SKIP_INPUT"],
        DTYPE_OF[rnn.dataType],
    )


def check_spaces(given: SimpleNamespace, net: rec.Network) -> None:
    """Sizes as cuDNN was asked for them; reserve space only for training."""
    training = given.fwdMode == rec.ENUM["CUDNN_FWD_MODE_TRAINING"]
    assert (given.workSpaceSize, given.reserveSpaceSize) == (64, 32 if training else 0)
    assert (given.reserveSpace is not None) == training
    assert given.weightSpaceSize == rec.blob_size(net) * rec.ITEM_SIZE[net.dtype]
    assert (given.cx is not None) == (given.cy is not None) == (net.mode == "lstm")


def check_reserve(given: SimpleNamespace) -> None:
    """Both backward calls work in the spaces that the forward call for training had."""
    assert (given.workSpaceSize, given.reserveSpaceSize) == (64, 32)
    assert given.reserveSpace is not None


def check_lengths(given: SimpleNamespace, rnn: SimpleNamespace, *data: SimpleNamespace) -> None:
    """Device lengths only with padded IO, and then equal to both descriptors' host lengths."""
    host = [list(descriptor.seqLengthArray) for descriptor in data]
    assert host[0] == host[1]
    assert all(ctypes.c_double.from_address(ctypes.addressof(d.paddingFill._obj)).value == 0 for d in data)
    if rnn.auxFlags & rec.DEFINES["CUDNN_RNN_PADDED_IO_ENABLED"]:
        lengths = (ctypes.c_int32 * len(host[0])).from_address(given.devSeqLengths)
        assert list(lengths) == host[0]
    else:
        assert given.devSeqLengths is None
        assert set(host[0]) == {data[0].maxSeqLength}


def array_at(address: int | None, dtype: str, shape: Any) -> rec.Array:
    """The memory at `address` as an array that can be written; zeros where there is no address."""
    if address is None:
        return np.zeros(shape)
    kind = STORED[dtype]
    block = (ctypes.c_char * (int(np.prod(shape)) * kind.itemsize)).from_address(address)
    return np.frombuffer(block, kind).reshape(shape)


def sequence(address: int, descriptor: SimpleNamespace, order: tuple[int, ...]) -> rec.Array:
    """x or y as time-major, a view of its memory."""
    sizes = (descriptor.maxSeqLength, descriptor.batchSize, descriptor.vectorSize)
    return array_at(address, DTYPE_OF[descriptor.dataType], [sizes[i] for i in order]).transpose(order)


def state(address: int | None, descriptor: SimpleNamespace) -> rec.Array:
    dims, strides = list(descriptor.dimA), list(descriptor.strideA)
    assert strides == [dims[1] * dims[2], dims[2], 1]
    return array_at(address, DTYPE_OF[descriptor.dataType], dims)


def compute(net: rec.Network, blob: rec.Array, inputs: Any, lengths: Any) -> Any:
    """By the package's reference; what that lacks (projection, skip input) by the recorder's equations."""
    blob, x, h0, c0 = (np.asarray(a, np.float64) for a in (blob, *inputs))
    if net.projection or net.skip_input:
        return rec.forward(net, rec.unpack(net, blob), x, (h0, c0), lengths)
    steps = reference.steps_from_blob(
        blob,
        net.mode,
        layers=net.layers,
        directions=net.directions,
        units=net.units,
        input_size=net.input_size,
    )
    return reference.run(steps, x, h0, c0, directions=net.directions, lengths=np.asarray(lengths))
