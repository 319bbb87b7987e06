"""Models cut into stages for the tests of `execute`, and what one device computes with them."""

import copy

import torch
from torch import nn

VOCABULARY, WIDTH, TOKENS = 11, 6, 4


class Block(nn.Module):
    """A residual block: its graph branches, and forks to weights in several places."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(self.norm(x))))


class Attention(nn.Module):
    """Causal attention, by slices of the sequence: the state is the keys and values of the tokens so far."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, state=None):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if state is not None:
            k, v = torch.cat([state[0], k], dim=1), torch.cat([state[1], v], dim=1)
        here, there = torch.arange(k.shape[1] - x.shape[1], k.shape[1]), torch.arange(k.shape[1])
        scores = (q @ k.transpose(1, 2)).masked_fill(there[None, :] > here[:, None], -torch.inf)
        return x + self.out(scores.softmax(dim=-1) @ v), (k, v)


class Sliced(nn.Module):
    """A stage for schedules with token slices."""

    def __init__(self, first, attention, last):
        super().__init__()
        self.first, self.attention, self.last = first, attention, last

    def forward(self, x, state=None):
        y, state = self.attention(self.first(x), state)
        return self.last(y), state


def stages_of(number, sliced=False, seed=0):
    """A small language model in `number` uneven stages, and its tied weights: the embedding is the head's matrix."""
    torch.manual_seed(seed)
    stages = [nn.Sequential(*(Block(3 + 2 * s + i) for i in range(1 + s % 3))) for s in range(number)]
    embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    head.weight = nn.Parameter(embedding.weight.detach().clone())
    if sliced:
        stages = [Sliced(embedding if s == 0 else nn.Identity(), Attention(),
                         nn.Sequential(stage, head) if s == number - 1 else stage) for s, stage in enumerate(stages)]
        names = "first.weight", "last.1.weight"
    else:
        stages[0].insert(0, embedding)
        stages[-1].append(head)
        names = "0.weight", f"{len(stages[-1]) - 1}.weight"
    return [stage.double() for stage in stages], ([{0: names[0], number - 1: names[1]}] if number > 1 else [])


def batch(rows, seed=1):
    """(inputs, targets): tokens and the tokens to predict."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (rows, TOKENS + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(logits, targets):
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def tie(stages, tied):
    """Let the tied weights be one parameter, as on one device."""
    for (first, name), (last, other) in (tuple(names.items()) for names in tied):
        *path, leaf = other.split(".")
        owner = stages[last].get_submodule(".".join(path))
        setattr(owner, leaf, stages[first].get_parameter(name))


def one_device(stages, tied, batches, optimizer, accumulate):
    """Weights by stage and losses after training on one device: the mean loss of each batch, `accumulate` batches a step."""
    stages = copy.deepcopy(stages)
    tie(stages, tied)
    update, losses = optimizer(list(nn.ModuleList(stages).parameters())), []
    for i, (x, y) in enumerate(batches):
        for stage in stages:
            x = stage(x)
            x = x[0] if isinstance(x, tuple) else x
        losses.append(loss_fn(x, y))
        losses[-1].backward()
        if (i + 1) % accumulate == 0:
            update.step()
            update.zero_grad()
    return [[p.detach() for p in stage.parameters()] for stage in stages], [loss.item() for loss in losses]
