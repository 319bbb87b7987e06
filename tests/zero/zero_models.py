"""Small models and training runs that the tests of ZeRO share."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from mlsyslab import zero

OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.01),
    "AdamW": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
}


class Tiny(nn.Module):
    """A language model with all that makes sharding hard: a tied weight, a frozen one, one that is not used, odd sizes."""

    def __init__(self, words=11, width=5, dtype=torch.float64):
        super().__init__()
        self.embed = nn.Embedding(words, width, dtype=dtype)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 7, dtype=dtype), nn.Tanh(),
                                                  nn.Linear(7, width, dtype=dtype)) for _ in range(3))
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.head = nn.Linear(width, words, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight
        self.unused = nn.Linear(3, 2, dtype=dtype)
        self.blocks[1][0].weight.requires_grad_(False)
        self.norm.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(1.5, dtype=dtype))

    def forward(self, words):
        x = self.embed(words) * self.scale
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


def tiny(dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return Tiny(dtype=dtype)


def batches(steps, rows=8, last=None, words=11):
    """Batches of `rows` rows of 4 words each; the last one of `last` rows."""
    generator = torch.Generator().manual_seed(1)
    sizes = [rows] * (steps - 1) + [rows if last is None else last]
    return [torch.randint(words, (size, 4), generator=generator) for size in sizes]


def loss_of(model, words, rows=None):
    """The loss summed over rows, each a mean over its words, to predict the word that stands there."""
    return functional.cross_entropy(model(words).flatten(0, 1), words.flatten(), reduction="sum") / words.shape[1]


def alone(optimizer, steps, accumulate=1, clip=None, make=tiny):
    """One process on the whole batches; returns the parameters after each step, and the losses."""
    model = make()
    optimizer = OPTIMIZERS[optimizer]([p for p in model.parameters() if p.requires_grad])
    after, losses = [], []
    for batch in steps:
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.requires_grad else None
        loss = loss_of(model, batch) / len(batch)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
        after.append({name: p.detach().clone() for name, p in model.named_parameters()})
    return after, losses


def together(comm, given):
    """The same on one of several ranks. given: (stage, optimizer, batches, options of shard, accumulate, clip)."""
    stage, optimizer, steps, options, accumulate, clip = given
    engine = zero.shard(comm, tiny(seed=comm.rank), OPTIMIZERS[optimizer], stage, **options)
    after, losses = [], []
    for batch in steps:
        loss_here = 0.0
        mine = batch.tensor_split(comm.size)[comm.rank].tensor_split(accumulate)
        for k, microbatch in enumerate(mine):
            loss = loss_of(engine, microbatch)
            engine.backward(loss, share=1 / len(batch), last=k == accumulate - 1)
            loss_here += loss.item() / len(batch)
        if clip:
            engine.clip_grad_norm(clip)
        engine.step()
        losses.append(loss_here)
        with engine.whole():
            after.append({name: p.detach().clone() for name, p in engine.model.named_parameters()})
    return after, losses
