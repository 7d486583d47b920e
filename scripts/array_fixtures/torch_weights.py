"""Makes tests/data/arrays/torch: weights as PyTorch saves them, and what its recurrences answer.

    python scripts/array_fixtures/torch_weights.py

run under Python 3.11 with torch==2.14.1, safetensors==0.8.0, numpy==2.4.6. Every run writes the same bytes,
but for whole modules, TorchScript, and the legacy format, whose keys of storages are addresses.

What PyTorch keeps, from torch 2.14.1 `torch/nn/modules/rnn.py`, `RNNBase.__init__`, and the docstrings of
`LSTM`, `GRU` and `RNN`:

* `weight_ih_l{k}` [G*H, I], `weight_hh_l{k}` [G*H, H or P], `bias_ih_l{k}` and `bias_hh_l{k}` [G*H], and
  `weight_hr_l{k}` [P, H] with `proj_size`. The backward direction has `_reverse` behind each name.
* Layers above the first have I = D*H, or D*P. With `bias=False` both biases are absent.
* Gates: LSTM i, f, g, o; GRU r, z, n. These are cuDNN's orders, and the equations are cuDNN's.
* A state_dict lacks the mode, the nonlinearity of `RNN`, `batch_first` and dropout. G is rows / columns of
  `weight_hh`, or, with `proj_size`, rows of `weight_hh` / columns of `weight_hr`.
* `LSTMCell`, `GRUCell` and `RNNCell` (`RNNCellBase.__init__`) have the same arrays without `_l0`.

What `torch.save` writes, from torch 2.14.1 `torch/serialization.py` `_save`, `_legacy_save`,
`torch/_tensor.py` `Tensor._reduce_ex_internal`, and `torch/nn/parameter.py` `Parameter.__reduce_ex__`:

* A zip of stored members below one folder, named as the file's stem: `data.pkl`, `byteorder`, `version`,
  `data/{key}` with a storage each, `.format_version`, `.storage_alignment`, `.data/serialization_id`.
* The pickle has protocol 2. A tensor is `torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
  requires_grad, hooks)`. The storage is a persistent id: ("storage", torch.FloatStorage, key, "cpu",
  elements). The type of the storage tells the dtype.
* `_rebuild_tensor_v3` has an untyped storage, counted in bytes, and the dtype as a seventh argument, for the
  dtypes of `torch.storage._new_dtypes`: float8 kinds, unsigned integers and others.
* A parameter is `torch._utils._rebuild_parameter(tensor, requires_grad, hooks)`, and
  `_rebuild_parameter_with_state` if it has attributes.
* A `state_dict()` is an OrderedDict with the attribute `_metadata`, which the pickle sets by BUILD.
* The legacy format is five pickles: the magic number 0x1950A86A20F9469CFC6C, the protocol 1001, facts of the
  system, the object, the keys of the storages. Each storage follows as an int64 count and its elements. Its
  persistent ids have a sixth item, None or what a view is of. A module adds ("module", class, file, source).

`computed_by` of a golden.json names the class that answered. Lengths go through `pack_padded_sequence`.
"""

import argparse
import collections
import sys
from pathlib import Path

import golden_file
import numpy as np
import safetensors.torch
import torch
from numpy_recurrence import PseudoLayer, Recurrence
from torch import nn

MODES = {"LSTM": "lstm", "GRU": "gru"}
VERSIONS = {
    "python": ".".join(map(str, sys.version_info[:3])),
    "torch": torch.__version__,
    "numpy": np.__version__,
    "safetensors": safetensors.__version__,
}


def fill(module, rng):
    """Random weights, all of them distinct; the two biases differ."""
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = rng.uniform(-0.6, 0.6, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(drawn).to(parameter.dtype))
    return module


def read_recurrence(layer):
    """The weights of a layer or a cell by PyTorch's names, in float64."""
    cell = isinstance(layer, nn.RNNCellBase)
    name = type(layer).__name__.removesuffix("Cell")
    mode = MODES.get(name) or f"rnn_{layer.nonlinearity}"
    suffixes = [""]
    if not cell:
        ends = ["", "_reverse"][: 1 + layer.bidirectional]
        suffixes = [f"_l{index}{end}" for index in range(layer.num_layers) for end in ends]
    arrays = {key: value.detach().double().numpy() for key, value in layer.named_parameters()}
    no_bias = np.zeros(len(arrays["weight_hh" + suffixes[0]]))
    pseudo_layers = [
        PseudoLayer(
            arrays["weight_ih" + suffix],
            arrays["weight_hh" + suffix],
            arrays.get("bias_ih" + suffix, no_bias),
            arrays.get("bias_hh" + suffix, no_bias),
            arrays.get("weight_hr" + suffix),
        )
        for suffix in suffixes
    ]
    return Recurrence(mode, 1 if cell else 1 + layer.bidirectional, pseudo_layers)


def run_layer(layer):
    """A function of golden_file.ask: the layer, with each row's steps packed."""

    def run(x, h0, c0, lengths):
        states = [torch.from_numpy(state) for state in (h0, c0) if state is not None]
        x = torch.from_numpy(x)
        packed = nn.utils.rnn.pack_padded_sequence(
            x.transpose(0, 1) if layer.batch_first else x,
            torch.from_numpy(lengths),
            batch_first=layer.batch_first,
            enforce_sorted=False,
        )
        with torch.no_grad():
            y, states = layer(packed, tuple(states) if len(states) == 2 else states[0])
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=len(x))
        h, c = states if c0 is not None else (states, None)
        return y.numpy(), h.numpy(), None if c is None else c.numpy()

    return run


def run_cell(cell):
    """A function of golden_file.ask: the cell in a loop, each row for its own steps."""

    def run(x, h0, c0, lengths):
        h, c = torch.from_numpy(h0[0]).clone(), None if c0 is None else torch.from_numpy(c0[0]).clone()
        y = torch.zeros(*x.shape[:2], h.shape[1])
        for step, inputs in enumerate(torch.from_numpy(x)):
            rows = torch.from_numpy(lengths > step)
            with torch.no_grad():
                states = cell(inputs[rows], h[rows] if c is None else (h[rows], c[rows]))
            h[rows] = states if c is None else states[0]
            if c is not None:
                c[rows] = states[1]
            y[step][rows] = h[rows]
        return y.numpy(), h.numpy()[None], None if c is None else c.numpy()[None]

    return run


def ask(layer, rng, dtype):
    cell = isinstance(layer, nn.RNNCellBase)
    recurrence = read_recurrence(layer)
    arrays, worst = golden_file.ask((run_cell if cell else run_layer)(layer), recurrence, rng, dtype)
    facts = golden_file.describe(
        recurrence,
        biases=2 if layer.bias else 0,
        dtype=str(next(layer.parameters()).dtype).removeprefix("torch."),
        computed_by=f"torch {torch.__version__} nn.{type(layer).__name__} on CPU",
    )
    return arrays, facts, worst


def hide_folders():
    """Sources, which some files keep, get a name without the folder of this installation."""
    find = torch._sources.get_source_lines_and_file

    def find_shortened(*arguments):
        lines, number, file = find(*arguments)
        for folder in (Path(torch.__file__).parents[1], Path(__file__).parent):
            file = file and file.removeprefix(f"{folder}/")
        return lines, number, file

    torch._sources.get_source_lines_and_file = find_shortened
    torch.serialization.get_source_lines_and_file = find_shortened


# name: class, its arguments, dtype of the weights, files
CASES = {
    "lstm_bi_2l": (nn.LSTM, {"num_layers": 2, "bidirectional": True}, torch.float32, "pt safetensors npz"),
    "gru_2l": (nn.GRU, {"num_layers": 2}, torch.float32, "pt safetensors npz"),
    "gru_bi": (nn.GRU, {"bidirectional": True}, torch.float32, "pt"),
    "rnn_tanh_bi_2l": (nn.RNN, {"num_layers": 2, "bidirectional": True}, torch.float32, "pt"),
    "rnn_relu_2l": (nn.RNN, {"num_layers": 2, "nonlinearity": "relu"}, torch.float32, "pt"),
    "lstm_projected_bi_2l": (
        nn.LSTM,
        {"hidden_size": 6, "num_layers": 2, "bidirectional": True, "proj_size": 5},
        torch.float32,
        "pt",
    ),
    "lstm_no_bias_2l": (nn.LSTM, {"num_layers": 2, "bias": False}, torch.float32, "pt"),
    "lstm_cell": (nn.LSTMCell, {}, torch.float32, "pt npz"),
    "gru_cell": (nn.GRUCell, {}, torch.float32, "pt"),
    "lstm_float64": (nn.LSTM, {"num_layers": 2}, torch.float64, "pt"),
    "lstm_bfloat16": (nn.LSTM, {"num_layers": 2}, torch.bfloat16, "pth safetensors"),
    "lstm_float16": (nn.LSTM, {"num_layers": 2}, torch.float16, "pt npz"),
}
# where the first seed leaves a weight without effect
SEEDS = {"rnn_relu_2l": 4}


def save(state, folder, endings):
    """The same weights in each kind of file."""
    for ending in endings.split():
        path = folder / f"weights.{ending}"
        if ending == "npz":
            np.savez(path, **{key: value.numpy() for key, value in state.items()})
        elif ending == "safetensors":
            safetensors.torch.save_file(dict(state), path)
        else:
            torch.save(state, path)


def make_layer(case, index):
    kind, arguments, dtype, endings = CASES[case]
    rng = np.random.default_rng(SEEDS.get(case, 8600 + index))
    layer = fill(kind(**{"input_size": 4, "hidden_size": 5, **arguments}).to(dtype), rng)
    folder = golden_file.make_folder("torch", case)
    save(layer.state_dict(), folder, endings)
    if case == "lstm_cell":
        # the module's source is inside, as ("module", class, file, source) of a persistent id
        torch.save(layer, folder / "legacy_module.pt", _use_new_zipfile_serialization=False)
    # halves are numbers of float32 too: the answers are those of a float32 network with the stored weights
    answered = "float64" if dtype == torch.float64 else "float32"
    stored = str(dtype).removeprefix("torch.")
    arrays, facts, worst = ask(layer.to(getattr(torch, answered)), rng, answered)
    golden_file.write(folder, arrays, {**facts, "dtype": stored, "answers": answered, "versions": VERSIONS})
    print(f"{case}: {worst:.1e}")


class Decoder(nn.Module):
    """A recurrence one level below the model."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(5, 3, num_layers=2)


class Translator(nn.Module):
    """Two recurrences among other layers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.encoder = nn.LSTM(4, 6, bidirectional=True, batch_first=True)
        self.norm = nn.BatchNorm1d(12)
        self.decoder = Decoder()
        self.head = nn.Linear(3, 9)


class Tagger(nn.Module):
    """A small network for the many ways to save one."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, bidirectional=True)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def make_model():
    rng = np.random.default_rng(8650)
    model = fill(Translator(), rng)
    folder = golden_file.make_folder("torch", "model")
    save(model.state_dict(), folder, "pt safetensors")
    arrays, recurrences = {}, {}
    for name in ("encoder", "decoder.rnn"):
        answers, facts, worst = ask(model.get_submodule(name), rng, "float32")
        arrays.update({f"{name}/{key}": value for key, value in answers.items()})
        recurrences[name] = facts
        print(f"model {name}: {worst:.1e}")
    golden_file.write(folder, arrays, {"recurrences": recurrences, "versions": VERSIONS})


def flatten(state):
    """All tensors as views of one storage, as a GPU keeps a network for cuDNN."""
    flat = torch.cat([value.reshape(-1) for value in state.values()])
    views, at = collections.OrderedDict(), 0
    for key, value in state.items():
        views[key] = flat[at : at + value.numel()].view(value.shape)
        at += value.numel()
    return views


def transpose(state):
    """The same numbers with other strides."""
    return {
        key: value.t().contiguous().t() if value.ndim == 2 else torch.stack([value, -value], 1)[:, 0]
        for key, value in state.items()
    }


def tie(state):
    """A second name for some of the tensors: the same storage twice in one file."""
    tied = {key: state[key] for key in state if key.startswith("rnn.")}
    return {
        **tied,
        "twin.weight": tied["rnn.weight_hh_l0_reverse"],
        "twin.rows": tied["rnn.weight_ih_l0"][3:],
    }


def train(model, optimizer):
    """The state of an optimizer after a step of rate 0, which leaves the weights as they are."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model(torch.ones(7, 3, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    return optimizer.state_dict()


def with_attributes(state):
    parameters = {key: nn.Parameter(value.clone()) for key, value in state.items()}
    parameters["rnn.weight_ih_l0"].origin = "somewhere"
    return parameters


def make_containers():
    """One network in each way to save it; those for refusal come with the reason."""
    rng = np.random.default_rng(8660)
    model = fill(Tagger(), rng)
    folder = golden_file.make_folder("torch", "containers")
    state = model.state_dict()
    # the first has an array of the shape of each weight, the second is small
    momentum = train(model, torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9))
    adam = train(model, torch.optim.Adam(model.head.parameters(), lr=0.0))
    checkpoint = {
        "model_state_dict": state,
        "optimizer_state_dict": momentum,
        "epoch": 3,
        "args": argparse.Namespace(lr=0.5, cell="lstm"),
    }
    lightning = {
        "epoch": 3,
        "global_step": 700,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": collections.OrderedDict((f"model.{key}", value) for key, value in state.items()),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"completed": 4}}}},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.25)}},
        "optimizer_states": [adam],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"hidden_size": 3, "bidirectional": True},
    }
    files = {
        "state_dict.pt": ("rnn", "state_dict()", state),
        "checkpoint.pt": (
            "rnn",
            "state_dict beside an optimizer, an epoch and an argparse.Namespace",
            checkpoint,
        ),
        "lightning.ckpt": ("model.rnn", "the keys of a checkpoint of Lightning", lightning),
        "data_parallel.pt": ("module.rnn", "of nn.DataParallel", nn.DataParallel(model).state_dict()),
        "one_storage.pt": ("rnn", "all tensors are views of one storage", flatten(state)),
        "strided.pt": ("rnn", "transposed and strided tensors", transpose(state)),
        "tied.pt": ("rnn", "tensors that share a storage", tie(state)),
        "parameters.pt": ("rnn", "nn.Parameter as values", dict(model.named_parameters())),
        "parameters_with_state.pt": ("rnn", "an nn.Parameter with an attribute", with_attributes(state)),
        "module.pt": ("rnn", "the whole module, of a class of this script", model),
        "lstm_module.pt": ("", "a whole nn.LSTM", model.rnn),
    }
    for name, (_, _, value) in files.items():
        torch.save(value, folder / name)
    torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(tie(state), folder / "legacy_tied.pt", _use_new_zipfile_serialization=False)
    torch.jit.save(torch.jit.script(model), folder / "script.pt")
    arrays, facts, worst = ask(model.rnn, rng, "float32")
    described = {name: {"prefix": prefix, "what": what} for name, (prefix, what, _) in files.items()}
    described["legacy.pt"] = {"prefix": "rnn", "what": "state_dict() in the format before torch 1.6"}
    described["legacy_tied.pt"] = {"prefix": "rnn", "what": "tied.pt in the format before torch 1.6"}
    described["script.pt"] = {"prefix": "rnn", "what": "TorchScript of the whole module"}
    # the network of weight_norm is another: its weight_hh_l0 is _g * _v / |_v|
    normed = nn.utils.weight_norm(nn.LSTM(4, 3), "weight_hh_l0")
    torch.save(fill(normed, rng).state_dict(), folder / "weight_norm.pt")
    described["weight_norm.pt"] = {
        "prefix": "",
        "what": "weight_hh_l0 is taken apart into _g and _v: to be refused",
    }
    golden_file.write(folder, arrays, {**facts, "files": described, "versions": VERSIONS})
    print(f"containers: {worst:.1e}")


def main():
    hide_folders()
    for index, case in enumerate(CASES):
        make_layer(case, index)
    make_model()
    make_containers()


if __name__ == "__main__":
    main()
