"""A model for the tests of DDP, and what one process makes of whole batches."""

import copy

import torch
from torch import nn

VOCABULARY, WIDTH, TOKENS = 11, 6, 4
OPTIMIZERS = {"SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01)}


class Tied(nn.Module):
    """A small language model. The embedding is the head's matrix too, and one layer doesn't learn."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.frozen, self.narrow = nn.Linear(WIDTH, 13), nn.Linear(13, 13), nn.Linear(13, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen.requires_grad_(False)
        self.to(dtype)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(x + self.narrow(torch.tanh(self.frozen(torch.relu(self.wide(self.norm(x)))))))


def batches(rows):
    """(inputs, targets) of so many rows each: tokens and the tokens to predict."""
    generator = torch.Generator().manual_seed(1)
    tokens = [torch.randint(VOCABULARY, (n, TOKENS + 1), generator=generator) for n in rows]
    return [(t[:, :-1], t[:, 1:]) for t in tokens]


def loss_fn(logits, targets):
    """The mean over rows."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def one_process(model, optimizer, data, loss_fn=loss_fn):
    """The parameters after each step, the gradient of each being that of a whole batch."""
    model = copy.deepcopy(model)
    update, steps = OPTIMIZERS[optimizer](model.parameters()), []
    for x, y in data:
        loss_fn(model(x), y).backward()
        update.step()
        update.zero_grad()
        steps.append(values(model))
    return steps


def values(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def furthest(ours, theirs):
    """The largest difference, with the step and the parameter where it is."""
    return max(((mine[name] - other[name]).abs().max().item(), step, name)
               for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)) for name in other)
