"""Pictures of ZeRO show what the library's formulas and engines say."""

from __future__ import annotations

import re
from functools import partial
from html import escape

import pytest
import torch
from torch import nn

from mlsyslab import Link, simulate, zero
from mlsyslab.draw.zero import (
    KINDS,
    NOTHING,
    OLD,
    VALID,
    held_over_time,
    memory_bar,
    memory_bars,
    memory_over_time,
    moments,
    size_of,
    who_holds,
)

SIZES = {"parameters": 2, "gradients": 2, "optimizer": 12}
STAGES = (0, 1, 2, 3)


@pytest.mark.parametrize("parameters, ranks, totals", [
    (7.5e9, 64, ("120 GB", "31.4 GB", "16.6 GB", "1.88 GB")), (7.5e9, 4, ("120 GB", "52.5 GB", "41.3 GB", "30 GB")),
    (1e12, 1024, ("16 TB", "4.01 TB", "2.01 TB", "15.6 GB")), (7.5e9, 1, ("120 GB",) * 4)])
def test_bars_say_what_the_paper_says(parameters, ranks, totals):
    picture = memory_bar(parameters, ranks).svg()
    assert tuple(re.findall(r'class="bold small end"[^>]*>([\d.]+ [GT]B)<', picture)) == totals


@pytest.mark.parametrize("nbytes, said", [(1e12, "1 TB"), (31.4e9, "31.4 GB"), (2e6, "2 MB"), (1500, "1.5 kB")])
def test_sizes_have_decimal_units(nbytes, said):
    assert size_of(nbytes) == said


# -- who holds what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("p, layers", [(4, 3), (2, 5), (3, 1)])
def test_between_steps_a_rank_holds_what_the_formula_says(stage, p, layers):
    steps = moments(stage, p, layers)
    whole = zero.memory(1, p, stage)
    for rank in range(p):
        assert steps[0].bytes(rank, SIZES) == pytest.approx(whole.parameters + whole.optimizer)
        assert steps[-1].bytes(rank, SIZES) == pytest.approx(whole.parameters + whole.optimizer)
        reduced = [part != NOTHING for step in steps if step.title == "backward, layer 0: reduced"
                   for layer in step.held["gradients"][rank] for part in layer]
        expected = zero.memory(1, p, 0 if stage == 1 else stage).gradients  # stage 1 cuts none of them
        assert sum(reduced) / len(reduced) * SIZES["gradients"] == pytest.approx(expected)


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_needed_is_there_and_nothing_stays_out_of_date(stage):
    for step in moments(stage):
        if match := re.match(r"(forward|backward), layer (\d)$", step.title):
            assert all(rank[int(match[2])] == [VALID] * 4 for rank in step.held["parameters"])
    assert not any(part == OLD for rank in moments(stage)[-1].held["parameters"] for layer in rank for part in layer)


@pytest.mark.parametrize("stage", STAGES)
def test_every_part_of_every_layer_is_somewhere_at_every_moment(stage):
    for step in moments(stage):
        for kind in ("parameters", "optimizer"):
            for layer in range(3):
                assert all(any(rank[layer][part] not in (NOTHING, OLD) for rank in step.held[kind]) for part in range(4))


def test_stage_3_has_one_whole_layer_at_a_time():
    for step in moments(3):
        for rank in step.held["parameters"]:
            assert sum(NOTHING not in layer for layer in rank) <= 1


def inside(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from inside(child)


def test_readers_step_through_each_stage():
    made = list(inside(who_holds()))
    values = {str(getattr(widget, "value", "")) for widget in made}
    for stage in STAGES:
        for step in moments(stage):
            assert any(escape(step.words) in value for value in values)
    assert sum(len(value) for value in values) < 1e6


def test_readers_choose_model_precision_optimizer_and_ranks():
    made = list(inside(memory_bars()))
    options = {widget.description: list(widget.options) for widget in made if hasattr(widget, "options")}
    assert set(options) == {"model", "precision", "optimizer", "ranks"}
    values = {str(getattr(widget, "value", "")) for widget in made}
    for recipe in ("2 + 2 + 12", "2 + 2 + 8", "2 + 2 + 4", "4 + 4 + 8", "4 + 4 + 4", "4 + 4 + 0"):
        assert any(recipe in value for value in values)
    assert sum(map(len, values)) < 1e6


# -- memory over time -------------------------------------------------------------------------------------------------


def train(comm, stage):
    torch.manual_seed(0)
    engine = zero.shard(comm, nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), partial(torch.optim.SGD, lr=0.1),
                        stage)
    with comm.work("F", seconds=1e-3):
        loss = engine(torch.ones(2, 8)).pow(2).mean()
    engine.backward(loss)
    engine.step()


def test_the_curve_of_memory_is_that_of_the_trace():
    traces = {f"stage {stage}": simulate(train, [stage] * 3, link=Link(alpha=1e-4, beta=1e-6)).trace for stage in (1, 2, 3)}
    for trace in traces.values():
        for rank in range(3):
            assert max(held for _, held in held_over_time(trace, rank)) == trace.peak_memory(rank)
    picture = memory_over_time(traces, "Memory", rank=1)._repr_html_()
    assert all(f"{name}: at most {trace.peak_memory(1):,} bytes" in picture for name, trace in traces.items())
    with pytest.raises(ValueError, match="at least one trace"):
        memory_over_time({}, "none")


def test_each_kind_has_a_colour_of_its_own():
    assert len(set(KINDS.values())) == 3
