"""Timetables equal torch's, action for action."""

import pytest
from torch_orders import torch_order

from mlsyslab.pipeline import Action, schedule

GRID = [(p, m) for p in range(1, 7) for m in range(1, 4 * p + 1)]


@pytest.mark.parametrize("name, chunks", [("GPipe", 1), ("looped BFS", 2), ("looped BFS", 3), ("ZB-V", 2)])
def test_equals_torch_for_any_number_of_microbatches(name, chunks):
    for p, m in GRID:
        ours = schedule(name, p, m, chunks)
        assert ours.actions == torch_order(name, p, m, chunks).actions, (p, m)


@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_interleaved_equals_torch_where_rounds_divide_the_microbatches(chunks):
    compared = 0
    for p, m in GRID:
        if m % max(1, m // p) == 0:  # else torch refuses
            assert schedule("interleaved", p, m, chunks).actions == torch_order("interleaved", p, m, chunks).actions, (p, m)
            compared += m % p > 0
    assert compared > 20


def test_dualpipev_equals_torch_from_twice_as_many_microbatches_as_ranks():
    for p, m in GRID:
        if m >= 2 * p:  # else torch refuses
            assert schedule("DualPipeV", p, m).actions == torch_order("DualPipeV", p, m, 2).actions, (p, m)


def test_1f1b_equals_torch_but_for_the_numbers_of_the_last_ranks_forwards():
    for p, m in GRID:
        if m < p:  # torch's warm-up runs past the last microbatch
            continue
        ours, theirs = schedule("1F1B", p, m).actions, torch_order("1F1B", p, m).actions
        assert ours[:-1] == theirs[:-1], (p, m)
        # torch counts the last rank's forwards from 1, where it has no warm-up to count on from
        shifted = [a._replace(microbatch=a.microbatch - 1) if a.kind == "F" else a for a in theirs[-1]]
        assert list(ours[-1]) == shifted, (p, m)


def test_interleaved_with_one_chunk_is_1f1b():
    for p, m in GRID:
        assert schedule("interleaved", p, m, 1).actions == schedule("1F1B", p, m).actions


def test_a_row_of_each_family_as_its_paper_prints_it():
    def row(text):
        return tuple(Action.parse(word) for word in text.split())

    assert schedule("1F1B", 4, 8).actions[1] == row("1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7")
    # Qi et al. 2023, figure 2: the last device holds its W back until it would wait
    assert schedule("ZB-H1", 4, 8).actions[3][:10] == row("3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4")
    # Qi et al. 2023, figure 3 (the second device)
    assert schedule("ZB-H2", 4, 8).actions[1][:9] == row("1F0 1F1 1F2 1F3 1F4 1I0 1F5 1I1 1F6")
    # Li and Hoefler 2021, figure 3: down 0 and 2, up 1 and 3
    assert schedule("Chimera", 4, 4).actions[0] == row("0F0 0F2 3F1 3B1 3F3 3B3 0B0 0B2")
    assert schedule("Chimera", 4, 4).actions[1] == row("1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2")
