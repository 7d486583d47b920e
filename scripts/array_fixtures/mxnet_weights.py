"""Makes tests/data/arrays/mxnet: weights as MXNet saves them, and what its operators answer on the CPU.

    python scripts/array_fixtures/mxnet_weights.py --old    # Python 3.6: mxnet==0.9.5.post2 numpy==1.16.6
    python scripts/array_fixtures/mxnet_weights.py --old    # Python 3.6: mxnet==0.11.0 numpy==1.16.6
    python scripts/array_fixtures/mxnet_weights.py          # Python 3.8: mxnet==1.9.1 numpy==1.23.5

The first two write formats/legacy.params and formats/v1.params, the third all else, and checks these two. The
old MXNets also want graphviz==0.8.1 and requests==2.18.4. Every run writes the same bytes.

What gluon keeps, from mxnet 1.9.1 `python/mxnet/gluon/rnn/rnn_layer.py`, `_RNNLayer.__init__`:

* `{d}{l}_i2h_weight` [G*H, I], `{d}{l}_h2h_weight` [G*H, H or P], `{d}{l}_i2h_bias` and `{d}{l}_h2h_bias`
  [G*H], and `{d}{l}_h2r_weight` [P, H] of an LSTM with `projection_size`. d is l (forward) or r (backward), l
  the layer from 0. Layers above the first have I = D*H, or D*P. Both biases are always there.
* Gates: LSTM i, f, g, o; GRU r, z, n (in `src/operator/rnn_impl.h`, `LstmForwardInferenceSingleLayer` and
  `GruForwardInferenceSingleLayer`). These are cuDNN's orders and equations. Nothing is added, no forget bias
  either.
* tanh or relu, dropout, layout and `lstm_state_clip_*` are no part of a .params. The symbol's json has them:
  node `RNN`, attrs mode (rnn_relu, rnn_tanh, lstm, gru), state_size, num_layers, bidirectional,
  projection_size, lstm_state_clip_min, lstm_state_clip_max, use_sequence_length.
* `save_parameters` takes the names of `_collect_params_with_prefix`: `_unfused.{l}.{part}`, and of a
  bidirectional layer `_unfused.{l}.{d}_cell.{part}`, behind the path of the block in its net
  (`1._unfused.0.l_cell.i2h_weight`). Its pattern knows layers 0 to 9 only. `collect_params().save` takes full
  names (`lstm0_l0_i2h_weight`), and `export` the same behind `arg:` or `aux:`. The matrices come first there,
  and the biases of all layers behind them.
* `rnn_cell.py`: LSTMCell, GRUCell and RNNCell keep `i2h_weight`, `h2h_weight`, `i2h_bias`, `h2h_bias`, in the
  same order of gates. A SequentialRNNCell counts (`0.i2h_weight`), BidirectionalCell has `l_cell.` and
  `r_cell.`, wrappers (`ModifierCell`: Residual, Zoneout) have `base_cell.`. LSTMCell's `activation` and
  `recurrent_activation`, and RNNCell's `activation`, are not in the file.
* `python/mxnet/rnn/rnn_cell.py`, the symbol API: `FusedRNNCell` has one vector `{prefix}parameters`, by
  default `lstm_parameters`. `_slice_weights` says its order: cuDNN's. `unpack_weights` names each gate's rows
  `{prefix}{d}{l}_i2h{gate}_weight` with gates _i _f _c _o, or _r _z _o, and none of a plain RNN. Cells have
  the prefix of the caller, and their gates together until `save_rnn_checkpoint` unpacks them. `forget_bias`
  (1 by default) is a matter of the initializer (`initializer.py`, `LSTMBias`, `FusedRNN`): the saved bias has
  it inside.
* `use_sequence_length` has no effect on the CPU of 1.9.1: the outputs past a length are computed. So no case
  has lengths. Its CPU multiplies no float16 ("FP16 gemm on cpu not implemented!").

The file, from `src/ndarray/ndarray.cc` `NDArray::Save`, `NDArray::Load`, `NDArray::LegacyLoad`,
`LegacyTShapeLoad`, `include/mxnet/tuple.h` `Tuple::Save`, `include/mxnet/base.h` `Context::Save`; all of it
little-endian:

* uint64 0x112, uint64 0 (reserved), uint64 n and n arrays, uint64 m and m names; m is n or 0. A name is a
  uint64 length and its bytes.
* An array of version 2 (what 1.9.1 writes): uint32 0xF993FAC9, int32 storage (0 dense, 1 row_sparse, 2 csr).
  A sparse one has the shape of its values here. Shape: int32 ndim and int64 dims. If ndim is 0 the array ends
  here. int32 device (1 CPU, 2 GPU, 3 pinned), int32 its number, int32 dtype. A sparse one has, for each index
  array (row_sparse: 1; csr: 2, indptr before indices), int32 dtype and a shape. Then the values, row-major,
  then the index arrays' values.
* Version 3 (0xF993FACA, written with np_shape on): as version 2, always dense. ndim -1 is unknown and ends
  the array, 0 is a scalar. MXNet loads it with np_shape on only.
* Version 1 (0xF993FAC8, what 0.11 writes): no storage. Shape, device, number, dtype, values. ndim 0 ends the
  array.
* Without a magic number (what 0.9.5 writes): uint32 ndim and uint32 dims, then as version 1.
* v2_of_gpu.params and bfloat16.params of case formats are written by hand. MXNet 1.9.1 loads both.
* dtype, from `3rdparty/mshadow/mshadow/base.h` `TypeFlag`: 0 float32, 1 float64, 2 float16, 3 uint8, 4 int32,
  5 int8, 6 int64, 7 bool, 8 int16, 9 uint16, 10 uint32, 11 uint64, 12 bfloat16.

Answers are those of the RNN operator, or of unrolled cells where the case has cells. Both are held against
cuDNN's equations, and layers against their cells. In case net `x` is the embedding's output, and `scores`
answers `tokens`.
"""

import argparse
import os
import struct
import sys

import mxnet as mx
import numpy as np
from old_python_golden import Stack, ask, make_folder, measure, write

VERSIONS = {
    "python": ".".join(str(part) for part in sys.version_info[:3]),
    "mxnet": mx.__version__,
    "numpy": np.__version__,
}
PARTS = (
    ("i2h_weight", "W"),
    ("h2h_weight", "R"),
    ("i2h_bias", "b_W"),
    ("h2h_bias", "b_R"),
    ("h2r_weight", "Q"),
)
ACTIVATIONS = {"rnn_relu": "relu", "rnn_tanh": "tanh"}
GATE_NAMES = {"lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}


def name_parts(stack, pattern):
    """Arrays by MXNet's names; the pattern has places for the direction's letter, the layer and the part."""
    named = {}
    for at, arrays in enumerate(stack.pseudo_layers):
        for part, name in PARTS:
            if name in arrays:
                letter, layer = "lr"[at % stack.directions], at // stack.directions
                named[pattern.format(d=letter, l=layer, part=part)] = arrays[name]
    return named


def set_parameters(block, named):
    """Set each parameter of a block; one whose name ends in none of the names is an error."""
    block.initialize()
    left = dict(named)
    for name, parameter in block.collect_params().items():
        (found,) = [end for end in left if name.endswith(end)]
        parameter.set_data(mx.nd.array(left.pop(found), dtype=parameter.dtype))
    assert not left, left


def make_layer(stack, prefix):
    kinds = {"lstm": mx.gluon.rnn.LSTM, "gru": mx.gluon.rnn.GRU}
    more = {"prefix": prefix, "bidirectional": stack.directions == 2, "input_size": stack.inputs}
    more["dtype"] = stack.dtype
    if stack.projection:
        more["projection_size"] = stack.projection
    if stack.mode in kinds:
        layer = kinds[stack.mode](stack.units, stack.layers, **more)
    else:
        layer = mx.gluon.rnn.RNN(stack.units, stack.layers, ACTIVATIONS[stack.mode], **more)
    set_parameters(layer, name_parts(stack, prefix + "{d}{l}_{part}"))
    return layer


def take(*arrays):
    return [None if array is None else array.asnumpy() for array in arrays]


def give(*arrays):
    return [mx.nd.array(array, dtype=array.dtype) for array in arrays if array is not None]


def run_layer(layer):
    def run(x, *states):
        (x,), states = give(x), give(*states)
        y, last = layer(x, states)
        return take(y, *(list(last) + [None])[:2])

    return run


def run_cells(cells, stack):
    """The answers of cells, unrolled; states stand in the order of layers, and of directions in a layer."""

    def run(x, h0, c0):
        states = []
        for at in range(len(stack.pseudo_layers)):
            states += give(h0[at], None if c0 is None else c0[at])
        (inputs,) = give(x)
        y, last = cells.unroll(len(x), inputs, states, layout="TNC", merge_outputs=True)
        return [y.asnumpy()] + order_states(take(*last), stack)

    return run


def order_states(last, stack):
    each = 2 if stack.mode == "lstm" else 1
    return [np.stack(last[0::each]), np.stack(last[1::each]) if each == 2 else None]


def run_symbol(symbol, names, arguments):
    """The answers of a symbol whose outputs are y, h and c, or y and each cell's states."""

    def run(feeds):
        given = dict(arguments)
        for name, array in zip(names, feeds):
            given[name] = mx.nd.array(array)
        return take(*symbol.bind(mx.cpu(), given).forward())

    return run


def make_layers(rng):
    """Cases of gluon's layers, whose RNN operator answers."""
    cases = [
        ("lstm", Stack("lstm", 5, 4, directions=2)),
        ("gru", Stack("gru", 5, 4)),
        ("rnn_relu", Stack("rnn_relu", 5, 4, directions=2)),
        ("rnn_tanh", Stack("rnn_tanh", 5, 4)),
        ("lstm_projection", Stack("lstm", 6, 5, directions=2, projection=4)),
        ("lstm_float64", Stack("lstm", 5, 4, dtype="float64")),
    ]
    for case, stack in cases:
        layer = make_layer(stack.draw(rng), stack.mode.split("_")[0] + "0_")
        folder = make_folder("mxnet", case)
        if case != "rnn_tanh":
            layer.save_parameters(os.path.join(folder, "saved.params"))
        if case in ("lstm", "rnn_tanh"):
            layer.collect_params().save(os.path.join(folder, "collected.params"))
        arrays, worst = ask(stack, rng, run_layer(layer))
        second = None
        if not stack.projection:  # whose layers MXNet cannot take apart
            second = ask(stack, np.random.RandomState(1), run_cells(layer._unfuse(), stack))[1]
        finish(folder, stack, arrays, worst, "gluon.rnn layer, operator RNN on the CPU", second)


def finish(folder, stack, arrays, worst, computed_by, second=None, **more):
    write(
        folder,
        stack,
        arrays,
        computed_by="MXNet " + mx.__version__ + " " + computed_by,
        versions=VERSIONS,
        **more,
    )
    print(os.path.basename(folder), "from the equations", worst, "cells", second)


def make_net(rng):
    """Case net: a layer between an Embedding and a Dense, saved and exported."""
    stack = Stack("lstm", 5, 4).draw(rng)
    folder = make_folder("mxnet", "net")
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Embedding(6, 5), mx.gluon.rnn.LSTM(4, 2, input_size=5))
        net.add(mx.gluon.nn.Dense(3, flatten=False, in_units=4))
    named = name_parts(stack, "net_lstm0_{d}{l}_{part}")
    for name, shape in (("embedding0_weight", (6, 5)), ("dense0_weight", (3, 4)), ("dense0_bias", (3,))):
        named["net_" + name] = rng.uniform(-1, 1, shape).astype(np.float32)
    set_parameters(net, named)
    net.hybridize()
    tokens = rng.randint(0, 6, (7, 3)).astype(np.float32)
    scores = net(mx.nd.array(tokens)).asnumpy()
    net.save_parameters(os.path.join(folder, "saved.params"))
    net.export(os.path.join(folder, "exported"))
    x = net[0](mx.nd.array(tokens)).asnumpy()
    arrays, worst = ask(stack, rng, run_layer(net[1]), x=x)
    ours = arrays["y"].dot(named["net_dense0_weight"].T) + named["net_dense0_bias"]
    worst = max(worst, measure(ours, scores))
    arrays.update(tokens=tokens, scores=scores)
    finish(folder, stack, arrays, worst, "gluon net, operator RNN on the CPU")


def make_cells(rng):
    """Cases of gluon's cells, unrolled."""
    for case, mode, layers, directions in (
        ("cell_lstm", "lstm", 1, 1),
        ("cells_gru", "gru", 2, 1),
        ("cells_lstm_bidirectional", "lstm", 2, 2),
    ):
        stack = Stack(mode, 5, 4, layers=layers, directions=directions).draw(rng)
        if layers > 1:
            cells = make_layer(stack, "cells_")._unfuse()
        else:
            cells = mx.gluon.rnn.LSTMCell(4, input_size=5, prefix="cell_")
            set_parameters(cells, name_parts(stack, "cell_{part}"))
        folder = make_folder("mxnet", case)
        if case == "cell_lstm":
            cells.collect_params().save(os.path.join(folder, "collected.params"))
        else:
            cells.save_parameters(os.path.join(folder, "saved.params"))
        arrays, worst = ask(stack, rng, run_cells(cells, stack))
        finish(folder, stack, arrays, worst, "gluon.rnn cells unrolled on the CPU")


def make_fused_cells(rng):
    """Cases of the symbol API's FusedRNNCell: a packed vector, and its parts by name."""
    for mode in ("lstm", "gru"):
        stack = Stack(mode, 5, 4, directions=2).draw(rng)
        cell = mx.rnn.FusedRNNCell(4, 2, mode, bidirectional=True, get_next_state=True, prefix=mode + "_")
        names = ["data", "h0", "c0"][: 3 if mode == "lstm" else 2]
        begin = [mx.sym.Variable(name) for name in names[1:]]
        outputs, states = cell.unroll(7, mx.sym.Variable("data"), begin, layout="TNC", merge_outputs=True)
        symbol = mx.sym.Group([outputs] + list(states))
        packed = {mode + "_parameters": mx.nd.array(stack.pack())}
        folder = make_folder("mxnet", "fused_" + mode)
        save_both(folder, cell, symbol, packed, only_symbol="packed")
        check_parts(folder, name_parts(stack, mode + "_{d}{l}_{part}"), mode)
        answer = run_symbol(symbol, names, packed)

        def run(x, h0, c0, answer=answer):
            return (answer([x, h0, c0]) + [None])[:3]

        arrays, worst = ask(stack, rng, run)
        cells = cell.unfuse()
        # cells have their weights by layer, gates together
        args = cells.pack_weights(cell.unpack_weights(packed))
        second = ask(stack, np.random.RandomState(1), run_symbol_cells(cells, stack, args))[1]
        finish(folder, stack, arrays, worst, "FusedRNNCell, operator RNN on the CPU", second)


def save_both(folder, cell, symbol, packed, only_symbol):
    """Save a checkpoint as it is and with unpacked weights, and the symbol once."""
    mx.model.save_checkpoint(os.path.join(folder, "packed"), 1, symbol, packed, {})
    mx.rnn.save_rnn_checkpoint(cell, os.path.join(folder, "unpacked"), 1, symbol, packed, {})
    for name in {"packed", "unpacked"} - {only_symbol}:
        os.remove(os.path.join(folder, name + "-symbol.json"))


def check_parts(folder, named, mode):
    """The unpacked arrays must be the gates' rows of the named ones."""
    unpacked = mx.nd.load(os.path.join(folder, "unpacked-0001.params"))
    for name, array in named.items():
        start, end = name.rsplit("_", 1)
        gates = GATE_NAMES.get(mode, ("",))
        for gate, rows in zip(gates, np.split(array, len(gates))):
            assert np.array_equal(unpacked.pop("arg:" + start + gate + "_" + end).asnumpy(), rows)
    assert not unpacked, list(unpacked)


def run_symbol_cells(cells, stack, args):
    """The answers of the symbol API's cells: an output each step, and the states of each cell."""
    each = 2 if stack.mode == "lstm" else 1
    names = ["state%d" % at for at in range(each * len(stack.pseudo_layers))]
    begin = [mx.sym.Variable(name) for name in names]
    y, states = cells.unroll(7, mx.sym.Variable("data"), begin, layout="TNC", merge_outputs=True)
    if stack.directions == 2:
        states = [state for side in states for state in side]
    answer = run_symbol(mx.sym.Group([y] + list(states)), ["data"] + names, args)

    def run(x, h0, c0):
        feeds = [x]
        for at in range(len(stack.pseudo_layers)):
            feeds += [h0[at]] + ([c0[at]] if c0 is not None else [])
        answers = answer(feeds)
        return answers[:1] + order_states(answers[1:], stack)

    return run


def make_symbol_cells(rng):
    """Case symbol_cells: a stack of the symbol API's LSTMCell, gates together and apart."""
    stack = Stack("lstm", 5, 4).draw(rng)
    cells = mx.rnn.SequentialRNNCell()
    for layer in range(2):
        cells.add(mx.rnn.LSTMCell(4, prefix="lstm_l%d_" % layer))
    args = {name: mx.nd.array(array) for name, array in name_parts(stack, "lstm_{d}{l}_{part}").items()}
    folder = make_folder("mxnet", "symbol_cells")
    outputs, _ = cells.unroll(1, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    save_both(folder, cells, outputs, args, only_symbol="packed")
    check_parts(folder, name_parts(stack, "lstm_{d}{l}_{part}"), "lstm")
    cells.reset()
    arrays, worst = ask(stack, rng, run_symbol_cells(cells, stack, args))
    finish(folder, stack, arrays, worst, "mx.rnn cells unrolled on the CPU")


def draw_formats():
    """The recurrence of case formats, the same in each version of MXNet."""
    stack = Stack("rnn_tanh", 5, 4, directions=2)
    return stack.draw(np.random.RandomState(77))


def name_formats(stack):
    return name_parts(stack, "rnn0_{d}{l}_{part}")


def make_formats():
    """Case formats: one recurrence in each form of the file, and in forms that hold no plain floats."""
    folder, rng = make_folder("mxnet", "formats"), np.random.RandomState(78)
    stack = draw_formats()
    named = name_formats(stack)
    arrays = {name: mx.nd.array(array) for name, array in named.items()}

    def save(name, arrays):
        mx.nd.save(os.path.join(folder, name + ".params"), arrays)

    save("v2", arrays)
    with mx.util.np_shape(True):
        save("v3", {name: mx.nd.array(array) for name, array in named.items()})
    save("unnamed", list(arrays.values()))
    for dtype in ("float16", "float64", "int32"):
        # whole numbers of size about 60
        values = {name: array * 100 if dtype == "int32" else array for name, array in named.items()}
        save(dtype, {name: mx.nd.array(array, dtype=dtype) for name, array in values.items()})
    for storage in ("row_sparse", "csr"):
        sparse = arrays["rnn0_l0_i2h_weight"].tostype(storage)
        sparse.wait_to_read()  # NDArray::Save writes the shape of the values before it waits for them
        save(storage, dict(arrays, rnn0_l0_i2h_weight=sparse))
    write_by_hand(os.path.join(folder, "v2_of_gpu.params"), named, device=(2, 1))
    write_by_hand(os.path.join(folder, "bfloat16.params"), named, bfloat16=True)
    for name in ("v1", "v2", "v3", "legacy", "v2_of_gpu", "float64"):
        check_loaded(os.path.join(folder, name + ".params"), named, name == "v3")
    check_loaded(os.path.join(folder, "unnamed.params"), named, False)
    kept, worst = ask(stack, rng, run_layer(make_layer(stack, "rnn0_")))
    finish(folder, stack, kept, worst, "gluon.rnn layer, operator RNN on the CPU", names=list(named))


def write_by_hand(path, named, device=(1, 0), bfloat16=False):
    """Write a file of version 2, of another device or dtype than this MXNet has."""
    parts = [struct.pack("<QQQ", 0x112, 0, len(named))]
    for array in named.values():
        parts.append(struct.pack("<IiI%dq" % array.ndim, 0xF993FAC9, 0, array.ndim, *array.shape))
        data = (array.view(np.uint32) >> 16).astype(np.uint16) if bfloat16 else array
        parts.append(struct.pack("<iii", device[0], device[1], 12 if bfloat16 else 0) + data.tobytes())
    parts.append(struct.pack("<Q", len(named)))
    for name in named:
        parts.append(struct.pack("<Q", len(name)) + name.encode("ascii"))
    with open(path, "wb") as file:
        file.write(b"".join(parts))


def check_loaded(path, named, np_shape):
    """MXNet itself must load the arrays that were drawn, by name or in order."""
    with mx.util.np_shape(np_shape):
        loaded = mx.nd.load(path)
        if isinstance(loaded, list):
            loaded = dict(zip(named, loaded))
        assert sorted(loaded) == sorted(named), (path, list(loaded))
        for name, array in loaded.items():
            assert np.array_equal(array.asnumpy(), named[name]), (path, name)


def make_old():
    """The file of case formats that this old MXNet writes."""
    name = "legacy" if mx.__version__.startswith("0.9.") else "v1"
    arrays = {name: mx.nd.array(array) for name, array in name_formats(draw_formats()).items()}
    mx.nd.save(os.path.join(make_folder("mxnet", "formats"), name + ".params"), arrays)


def main():
    parser = argparse.ArgumentParser(description="Make tests/data/arrays/mxnet.")
    parser.add_argument("--old", action="store_true", help="write what MXNet 0.9 or 0.11 has to")
    if parser.parse_args().old:
        make_old()
        return
    rng = np.random.RandomState(61)
    make_layers(rng)
    make_net(rng)
    make_cells(rng)
    make_fused_cells(rng)
    make_symbol_cells(rng)
    make_formats()


if __name__ == "__main__":
    main()
