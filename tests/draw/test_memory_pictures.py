"""The pictures of the chapter on memory: what they show is what is."""

from __future__ import annotations

import math

import pytest

from mlsyslab import memory
from mlsyslab.draw import memory as draw
from mlsyslab.model import Config, published

SMALL = Config(layers=4, hidden=32, heads=2, vocabulary=64, sequence=16)


# -- over time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", [None, "full"])
def test_levels_are_what_a_timeline_holds_in_each_phase(recompute):
    run = memory.training(SMALL, 2, recompute=recompute)
    assert draw.levels(run) == [run.at(phase) for phase in range(len(run.phases))]


def test_phases_of_a_step_fall_into_forward_loss_backward_and_update():
    run = memory.training(SMALL, 2)
    names = [name for name, *_ in draw.stretches(run.phases)]
    assert names == ["embed", "blocks forward", "loss", "blocks backward", "embed", "update"]
    assert [name for name, *_ in draw.stretches(memory.inference(SMALL, 2).phases)] == ["embed", "blocks", "loss"]


def test_memory_over_time_says_where_the_peak_is():
    run = memory.training(SMALL, 2)
    svg = draw.over_time({"a step": run}, {"a step": ([10, run.peak], [20])}).svg()
    assert f"at most {draw.size_of(run.peak)} ({run.peak_phase})" in svg
    with pytest.raises(ValueError, match="at least one timeline"):
        draw.over_time({})


@pytest.mark.parametrize("nbytes, words", [(0, "0 B"), (999, "999 B"), (31.4e9, "31.4 GB"), (2.5e12, "2.5 TB"),
                                           (117_605_376, "118 MB")])
def test_sizes_have_three_digits_and_a_unit(nbytes, words):
    assert draw.size_of(nbytes) == words


# -- what a GPT needs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", draw.WAYS, ids=lambda way: way.name)
def test_one_rank_needs_the_peak_of_its_step(way):
    config = published("gpt2-xl").config
    held, k = draw.needs(config, 2, 512, "mixed", way)
    run = memory.training(config, 2, 512, precision="mixed", core=way.core, recompute=way.recompute, every=k or 1,
                          device="cuda")
    assert sum(held.values()) == run.peak


def test_ranks_share_model_states_and_nothing_else():
    config, way = published("gpt2-xl").config, draw.WAYS[0]
    one, _ = draw.needs(config, 2, 512, "mixed", way)
    eight, _ = draw.needs(config, 2, 512, "mixed", way, ranks=8)
    for kind in ("weights", "optimizer"):
        assert eight[kind] == one[kind] / 8
    assert eight["activations"] == one["activations"]


def test_the_best_spacing_holds_no_more_than_every_block():
    for name in ("gpt2-xl", "llama3-8b"):
        config = published(name).config
        every, best = (sum(draw.needs(config, 4, 1024, "mixed", way)[0].values()) for way in draw.WAYS[3:])
        assert best <= 1.02 * every


def test_a_frame_says_what_fits():
    svg = draw.needs_of("GPT-2 XL, 1.6 billion", "mixed (16 and 32 bits)", 2048, 1, 1).svg()
    assert svg.count("B, fits<") + svg.count("B, too much<") == len(draw.WAYS)
    svg = draw.needs_of("GPT-3, 175 billion", "mixed (16 and 32 bits)", 2048, 1, 1).svg()
    assert svg.count("B, too much<") == len(draw.WAYS)


def test_the_widget_has_a_frame_for_each_choice():
    widget = draw.gpt_memory(models=["GPT-2 XL, 1.6 billion"], sequences=[1024], batches=[1, 2], ranks=[1, 8])
    assert len(widget.children) > 4


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("L", [1, 5, 16])
def test_checkpoints_hold_what_the_square_root_rule_says(L):
    """The peak of the lifetimes is ceil(L/k) inputs and k insides, less what the first segments have not begun yet."""
    assert max(draw._held(draw.kept(L, 0), L, 1.0)) == L
    for k in range(1, L + 1):
        for inside in (1.0, 17.0):
            peak = max(draw._held(draw.kept(L, k), L, inside))
            last = L - (math.ceil(L / k) - 1) * k  # blocks of the last segment
            turn = math.ceil(L / k) + last * inside
            assert peak == max(turn, math.ceil(L / k) - 1 + k * inside if k < L else turn)
            assert peak <= memory.spacing_bytes(L, k, 1.0, inside)


def test_every_block_has_its_inside_exactly_when_it_goes_backward():
    L, k = 10, 3
    for one in draw.kept(L, k):
        if one.what == "inside":
            assert one.first <= 2 * L - 1 - one.block == one.last


# -- swapping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [0.1, 0.8, 1.0])
def test_copies_no_longer_than_a_forward_cost_nothing(copy):
    compute, copies = draw.swapped(copy, 8, 3)
    assert compute.cells[-1].end == pytest.approx(3 * 8)
    assert len(copies.cells) == 2 * (8 - 3)


@pytest.mark.parametrize("copy", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("room", [1, 3, 8])
def test_swapping_never_holds_more_blocks_than_there_is_room_for(copy, room):
    L = 8
    compute, copies = draw.swapped(copy, L, room)
    forward, backward = compute.cells[:L], {cell.name: cell for cell in compute.cells[L:]}
    leaves = {cell.name: cell.end for cell in copies.cells if cell.look == "I"}
    comes = {cell.name: cell.start for cell in copies.cells if cell.look == "W"}
    for moment in sorted({cell.start for cell in compute.cells} | set(comes.values())):
        there = 0
        for cell in forward:
            if cell.name in leaves:
                held = cell.start <= moment < leaves[cell.name] or comes[cell.name] <= moment < backward[cell.name].end
            else:
                held = cell.start <= moment < backward[cell.name].end
            there += held
        assert there <= room


def test_formats_have_their_bits():
    for name, bits in draw.FORMATS.items():
        assert sum(bits) == {"float32": 32, "float16": 16, "bfloat16": 16}[name]
    assert "float16: 1+5+10 bits" in draw.formats().svg()
