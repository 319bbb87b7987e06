"""Placement learned by trial: any layer on any device, a policy trained by REINFORCE on the simulated step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mlsyslab.pipeline.partition.profile import LayerProfile
from mlsyslab.pipeline.partition.stages import check


@dataclass(frozen=True)
class Placement:
    """devices: the device of each layer.  time: simulated seconds of a step.  history: best time so far, by trial round."""

    devices: tuple[int, ...]
    time: float
    history: tuple[float, ...]


def step_time(devices: Sequence[int] | np.ndarray, layers: Sequence[LayerProfile], microbatches: int,
              bandwidth: float = float("inf")) -> np.ndarray:
    """Simulated seconds of one synchronous step: m microbatches forward, then backward, through layers on any devices.

    A device takes microbatches in order, and its layers of one microbatch in order; activations (and gradients, backward)
    go to another device at `bandwidth` bytes a second while both devices compute on. With one contiguous stage a device this
    is GPipe.

    devices: (..., n) the device of each layer, one placement or many.  Returns (...) seconds.
    """
    devices = np.asarray(devices)
    many = devices.reshape(-1, devices.shape[-1])
    each = np.arange(len(many))
    free = np.zeros((len(many), int(many.max()) + 1))

    def through(start: np.ndarray, order: Sequence[int], seconds: Sequence[float], nbytes: Sequence[float]) -> np.ndarray:
        """Pass one microbatch through the layers in `order`; when it comes out."""
        at, before = start, None
        for l, t, n in zip(order, seconds, nbytes, strict=True):
            here = many[:, l]
            if before is not None:
                at = at + (many[:, before] != here) * (n / bandwidth)
            at = np.maximum(at, free[each, here]) + t
            free[each, here] = at
            before = l
        return at

    n, sizes = len(layers), [layer.activations for layer in layers]
    out = [through(np.zeros(len(many)), range(n), [layer.forward for layer in layers], [0, *sizes[:-1]])
           for _ in range(microbatches)]
    for start in out:
        through(start, range(n - 1, -1, -1), [layer.backward for layer in reversed(layers)], [0, *reversed(sizes[:-1])])
    return free.max(axis=1).reshape(devices.shape[:-1])


def reinforce(layers: Sequence[LayerProfile], devices: int, microbatches: int, bandwidth: float = float("inf"), *,
              rounds: int = 300, trials: int = 64, rate: float = 0.1, entropy: float = 0.01, seed: int = 0) -> Placement:
    """Learn where to put layers from the step time alone (the idea of ColocRL: Mirhoseini et al. 2017).

    The policy chooses layer after layer, and knows where it put the layer before: pi(d_l | d_{l-1}) is the softmax of
    theta[l, d_{l-1}]. (The paper's is an LSTM over the operations; for a chain a table does.) Each round tries `trials`
    placements. The reward of a placement d is R(d) = -sqrt(step time), the baseline b their mean, and theta climbs

        mean over trials of (R(d) - b) grad log pi(d) + entropy grad H(pi).

    layers: profile of the chain.  devices: p.  microbatches: m of a step.  bandwidth: bytes a second between devices.
    rounds, trials: placements tried = rounds x trials.  rate: Adam's.
    entropy: how much to keep exploring, faded out linearly.
    Returns the best placement that was tried. The same seed gives the same placement.
    """
    n = len(check([layer.time for layer in layers], 1))
    if devices < 1 or microbatches < 1 or rounds < 1 or trials < 2:
        raise ValueError(f"devices={devices}, microbatches={microbatches}, rounds={rounds}, trials={trials}: "
                         "each is 1 or more, trials 2 or more (the baseline is their mean)")
    generator = torch.Generator().manual_seed(seed)
    theta = torch.zeros(n, devices, devices, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=rate, maximize=True)
    best, best_time, history = None, float("inf"), []
    for done in range(rounds):
        tried, log_likelihood, H = _sample(theta, trials, generator)
        times = step_time(tried.numpy(), layers, microbatches, bandwidth)
        if times.min() < best_time:
            best, best_time = tuple(tried[int(times.argmin())].tolist()), float(times.min())
        history.append(best_time)
        R = -torch.from_numpy(times).sqrt()
        advantage = ((R - R.mean()) / (R.std() + 1e-12)).to(theta.dtype)
        optimizer.zero_grad()
        ((advantage * log_likelihood).mean() + entropy * (1 - done / rounds) * H).backward()
        optimizer.step()
    return Placement(best, best_time, tuple(history))


def _sample(theta: torch.Tensor, trials: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(devices (trials, n), log pi of each (trials,), mean entropy of the choices made)."""
    log_pi = theta.log_softmax(dim=-1)
    here = torch.zeros(trials, dtype=torch.long)
    chosen, log_likelihood, H = [], torch.zeros(trials), torch.zeros(())
    for row in log_pi:
        choice = row[here]
        H = H - (choice.exp() * choice).sum(dim=-1).mean() / len(log_pi)
        here = torch.multinomial(choice.detach().exp(), 1, generator=generator).squeeze(1)
        log_likelihood = log_likelihood + choice.gather(1, here[:, None]).squeeze(1)
        chosen.append(here)
    return torch.stack(chosen, dim=1), log_likelihood, H
