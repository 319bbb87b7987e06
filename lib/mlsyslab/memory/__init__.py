"""Memory of training: what is held, for how long, what it comes to, and how to hold less of it. (The topic `memory`.)

What is held
    state_bytes(n, recipe)          weights, gradients, optimizer state of n parameters by precision (`states.py`)
    activation_bytes(config, …)     a layer's activations by Korthikanti's formulas (`formulas.py`)
    saved(config, batch, …)         what this library's GPT keeps for backward, tensor by tensor, exact (`activations.py`)
    training(config, batch, …)      every buffer with its size and its lifetime; `.peak`, `.at(step)` (`lifetime.py`)
    inference(config, batch, …)     the same for a forward pass alone

What is measured
    saved_bytes(fn)                 bytes that autograd keeps while fn() runs, by saved_tensors_hooks (`measured.py`)
    Live()                          context: live and peak bytes of tensors, on any device (`live.py`)

How to hold less
    every(k), selective(core)       activation checkpointing: GPT(config, run=every(k)), GPT(config, core=selective(written))
    best_spacing(L, …)              the square-root rule, and the exact best spacing (`checkpoint.py`)
    accumulate(model, …, parts)     gradient accumulation (`accumulate.py`)
    Swap()                          context: activations go to host memory and come back, asynchronously (`swap.py`)
    LossScaler, MixedPrecision      16-bit training with 32-bit master weights and a dynamic loss scale (`precision.py`)
    ways(config, batch, device)     all of these side by side: bytes, FLOPs, seconds, MFU against HFU (`ways.py`)

Planning
    plan(config, tokens, device, …) does it fit? how long? what to do then? with its reasons (`plan.py`)
    training_days, devices_for, compute_optimal     the arithmetic that it uses (`budget.py`)

The model itself, its parameters and its FLOPs are in `mlsyslab.model`.
"""

from mlsyslab.memory.accumulate import accumulate
from mlsyslab.memory.activations import Kept, saved, saved_total
from mlsyslab.memory.budget import compute_optimal, devices_for, narayanan_days, training_days
from mlsyslab.memory.checkpoint import (
    best_spacing,
    checkpoint,
    every,
    selective,
    spacing_bytes,
    square_root_spacing,
)
from mlsyslab.memory.formulas import activation_bytes
from mlsyslab.memory.lifetime import ACTIVATIONS, KINDS, Buffer, Timeline, inference, training
from mlsyslab.memory.live import Live
from mlsyslab.memory.measured import model_saved_bytes, saved_bytes
from mlsyslab.memory.plan import Plan, plan
from mlsyslab.memory.precision import LossScaler, MixedPrecision
from mlsyslab.memory.states import RECIPES, Recipe, recipe, state_bytes
from mlsyslab.memory.swap import Swap
from mlsyslab.memory.ways import Way, ways

__all__ = ["ACTIVATIONS", "KINDS", "RECIPES", "Buffer", "Kept", "Live", "LossScaler", "MixedPrecision", "Plan", "Recipe",
           "Swap", "Timeline", "Way", "accumulate", "activation_bytes", "best_spacing", "checkpoint", "compute_optimal",
           "devices_for", "every", "inference", "model_saved_bytes", "narayanan_days", "plan", "recipe", "saved",
           "saved_bytes", "saved_total", "selective", "spacing_bytes", "square_root_spacing", "state_bytes", "training",
           "training_days", "ways"]
