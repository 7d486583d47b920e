"""A keyword network that PyTorch trained: an LSTM of 64 units and a linear layer, as a state dict.

    cd scripts; PYTHONPATH=../tests python -m micro_fixtures.torch_weights

Runs in Python 3.11 with torch==2.14.1 and numpy==2.4.6. Both biases of the LSTM are trained.
"""

from __future__ import annotations

import numpy as np
import torch
from support import micro_data
from torch import nn

from . import answers

UNITS, EPOCHS, BATCH = 64, 6, 64


class Keywords(nn.Module):
    """The recurrence and what stands behind its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.LSTM(micro_data.COEFFICIENTS, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, micro_data.KEYWORDS)


def train(model: Keywords) -> None:
    rows = micro_data.make_keywords(micro_data.TRAINING_ROWS, micro_data.TRAINING_SEED)
    inputs, labels = torch.from_numpy(rows.inputs), torch.from_numpy(rows.labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels)).split(BATCH):
            scores = model.head(model.memory(inputs[chosen])[1][0][0])
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, labels[chosen]).backward()
            optimizer.step()


def main() -> None:
    """An LSTM of 64 units over 25 steps of 10 coefficients, which PyTorch trained with a linear layer of four
    keywords behind its last state. golden.npz has that layer: the file's recurrence is converted alone."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = Keywords()
    train(model)
    folder = answers.make_folder("keyword_torch")
    torch.save(model.state_dict(), folder / "weights.pt")
    rows = micro_data.make_keywords(micro_data.TEST_ROWS, micro_data.TEST_SEED)
    with torch.no_grad():
        outputs, (h, c) = model.memory(torch.from_numpy(rows.inputs))
        scores = torch.softmax(model.head(h[0]), dim=1).numpy()
    kept = {
        "outputs": outputs.numpy()[: answers.WHOLE_ROWS],
        "state_h": h[0].numpy()[: answers.ROWS],
        "state_c": c[0].numpy()[: answers.ROWS],
        "head_kernel": model.head.weight.detach().numpy().T,
        "head_bias": model.head.bias.detach().numpy(),
    }
    biases = [getattr(model.memory, f"bias_{end}_l0").detach().numpy() for end in ("ih", "hh")]
    assert np.abs(biases[0] - biases[1]).max() > 0.1
    answers.write(folder, main.__doc__ or "", scores, rows.labels, kept, torch=torch.__version__)


if __name__ == "__main__":
    main()
