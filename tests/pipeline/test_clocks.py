"""The simulated clock against two that know nothing of it: the definition, and the simulated world of ranks and messages."""

import random

import numpy as np
import pytest
import torch

import mlsyslab
from mlsyslab import CommError, Failing, Link, Nodes
from mlsyslab.pipeline import InvalidSchedule, Schedule, names, replay, schedule, simulate

MADE = [(name, p, m) for name in names() for p, m in [(1, 3), (2, 5), (4, 3), (4, 9), (6, 12)]
        if not (p % 2 and name in ("Chimera", "DualPipe"))]


def seconds(made, draw):
    """Random seconds by stage, and by slice where there are slices; eighths, so that sums are exact."""
    shape = (made.stages, len(made.slices)) if made.slices else (made.stages,)
    return {kind: np.array([draw.randint(8, 72) / 8 for _ in range(int(np.prod(shape)))]).reshape(shape) for kind in "FIWU"}


def of(times, action):
    if action.kind == "B":
        return of(times, action._replace(kind="I")) + of(times, action._replace(kind="W"))
    table = times[action.kind]
    return float(table[action.stage, action.slice] if table.ndim == 2 else table[action.stage])


def by_definition(made, times):
    """When each action ends, by "it starts when its rank is free and its inputs are there" until nothing changes."""
    ends, before = {}, None
    while ends != before:
        before = dict(ends)
        for row in made.actions:
            now, left = 0.0, list(row)
            while left:
                together = [left.pop(0)]
                if together[0].joined:
                    together.append(left.pop(0))
                inputs = [ends.get((s, kind, a.microbatch, j), 0.0)
                          for a in together for s, j in made.needs(a) for kind in ("F" if a.kind == "F" else "BI")]
                now = max([now, *inputs]) + sum(of(times, a) for a in together)
                ends |= {a.key: now for a in together}
    return ends


@pytest.mark.parametrize("name, p, m", MADE)
def test_ends_are_the_fixed_point_of_the_definition(name, p, m):
    made = schedule(name, p, m)
    times = seconds(made, random.Random(f"{name}{p}{m}"))
    timeline = simulate(made, **times)
    ends = by_definition(made, times)
    assert [ends[a.key] for a in made] == timeline.end.tolist()
    assert timeline.time == max(ends.values())


@pytest.mark.parametrize("name, p, m", MADE)
def test_the_replay_of_a_run_is_the_run_but_for_what_it_lost_between_actions(name, p, m):
    made, draw = schedule(name, p, m), random.Random(f"{name}{p}{m}")
    timeline = simulate(made, **seconds(made, draw), link=Link(0.5), message=0)
    again = replay(made, timeline.trace, Link(0.5), 0)
    assert np.allclose(again.end, timeline.end, rtol=0, atol=1e-9)
    late = [e._replace(start=2 * e.start, end=2 * e.start + e.end - e.start) for e in timeline.trace if e.kind == "compute"]
    assert np.allclose(replay(made, late, Link(0.5), 0).end, timeline.end, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=f'no "compute" of {made.actions[-1][-1]} .1 actions'):
        replay(made, [e for e in late if e.label != str(made.actions[-1][-1])])


def rank_program(made, times, sizes):
    """The schedule as a rank's function: every receive is posted beforehand, every send goes when its action is done."""

    def run(comm, _):
        row = made.actions[comm.rank]
        number = {key: n for n, key in enumerate(sorted({a.key for a in made}))}
        buffers, receives = {}, {}
        for a in row:
            for s, j in made.needs(a):
                source = made.rank_of(s, a.microbatch)
                if source != comm.rank:
                    key = next(k for k in (("F",) if a.kind == "F" else "BI") if (s, k, a.microbatch, j) in number)
                    key = (s, key, a.microbatch, j)
                    buffers[a.key] = torch.empty(sizes[min(s, a.stage)], dtype=torch.uint8)
                    receives[a.key] = comm.irecv(buffers[a.key], source, tag=number[key])
        works = []
        for a in row:
            if a.key in receives:
                receives[a.key].wait()
            comm.compute(of(times, a), str(a))
            to = a.stage + 1 if a.kind == "F" else a.stage - 1
            if a.kind in "FBI" and 0 <= to < made.stages and (target := made.rank_of(to, a.microbatch)) != comm.rank:
                works.append(comm.isend(torch.empty(sizes[min(a.stage, to)], dtype=torch.uint8), target, tag=number[a.key]))
        for work in works:
            work.wait()

    return run


@pytest.mark.parametrize("link", [Link(2, 1), Nodes(2, Link(0.5, 0.25), Link(3, 1.5))], ids=["link", "nodes"])
@pytest.mark.parametrize("name", [n for n in names() if n not in ("DualPipe", "DualPipeV", "TeraPipe")])
def test_equals_the_simulated_world_with_messages(name, link):
    """Joined actions are one computation and slices give ranks two inputs: those two are left to the definition."""
    for p, m in (2, 3), (4, 5), (4, 8):
        made = schedule(name, p, m)
        draw = random.Random(f"{name}{p}{m}")
        # no two messages are ready at the same time, when either may go first
        times = {kind: table + np.array([draw.random() for _ in table]) for kind, table in seconds(made, draw).items()}
        sizes = [draw.randint(0, 6) for _ in range(made.stages)]
        timeline = simulate(made, **times, link=link, message=sizes)
        run = mlsyslab.simulate(rank_program(made, times, sizes), [None] * p, link=link)
        theirs = sorted((e.rank, e.label, e.start, e.end) for e in run.trace if e.kind == "compute")
        ours = sorted((e.rank, e.label, e.start, e.end) for e in timeline.trace if e.kind == "compute")
        assert [e[:2] for e in ours] == [e[:2] for e in theirs]
        np.testing.assert_allclose([e[2:] for e in ours], [e[2:] for e in theirs])
        assert timeline.trace.messages() == run.trace.messages()
        assert timeline.trace.bytes_sent() == run.trace.bytes_sent()


def test_messages_of_interleaving_are_v_times_as_many():
    """Narayanan et al. 2021, section 2.2.2: the price of the smaller bubble."""
    p, m = 4, 8
    for v in (1, 2, 3, 4):
        trace = simulate(schedule("interleaved", p, m, v), link=Link(0, 0), message=10).trace
        borders = p * v - 1
        assert trace.messages() == 2 * m * borders
        assert trace.bytes_sent() == 20 * m * borders
    # a V's turning point needs no message
    assert simulate(schedule("ZB-V", p, m), link=Link(0, 0)).trace.messages() == 2 * m * (2 * p - 2)


def test_the_trace_tells_what_the_timeline_tells():
    for name in ("1F1B", "DualPipeV", "interleaved", "PipeDream", "ZB-H2", "inference"):
        timeline = simulate(schedule(name, 4, 9), F=2, I=3, W=1, link=Link(0.5, 0.25), message=2, activation=7)
        trace = timeline.trace
        assert trace.time == timeline.time
        assert trace.bubble == pytest.approx(timeline.bubble)
        assert [trace.busy(r) for r in range(4)] == pytest.approx(timeline.busy.tolist())
        assert sorted(e.label for e in trace if e.kind == "compute") == sorted(map(str, timeline.schedule))
        assert trace.messages() == len([e for e in trace if e.kind == "recv"])
        assert [trace.peak_memory(r) for r in range(4)] == timeline.peak_activations


def test_sending_without_overlap_holds_the_sender_up():
    """Two ranks, inference: rank 0 computes 1 s and sends 2 s in turn; rank 1 has nothing to send."""
    made = schedule("inference", 2, 3)
    link = Link(2, 0)
    alone, overlapped = simulate(made, link=link, overlap=False), simulate(made, link=link)
    assert alone.start.tolist() == [0, 3, 6, 3, 6, 9]
    assert overlapped.start.tolist() == [0, 1, 2, 3, 5, 7]
    for name in names():
        made = schedule(name, 4, 6)
        assert simulate(made, link=link, overlap=False).time >= simulate(made, link=link).time >= simulate(made).time


def test_a_slow_stage_sets_the_pace():
    for slow in range(4):
        F = [2 if stage == slow else 1 for stage in range(4)]
        assert simulate(schedule("inference", 4, 10), F=F).time == 10 * 2 + 3


def test_full_backward_may_cost_something_else_than_its_halves():
    made = schedule("GPipe", 1, 4)
    assert simulate(made).time == 12 and simulate(made, B=1.5).time == 10
    assert simulate(schedule("ZB-H1", 1, 4), B=1.5).time == 12  # has no full backward


def test_a_broken_link_says_which_result_is_lost():
    with pytest.raises(CommError, match="the result of 0F2 never reaches rank 1: the link from rank 0 breaks at 5 s"):
        simulate(schedule("inference", 2, 6), link=Failing(Link(1, 0), {(0, 1): 5}), F=2)


def test_what_cannot_be_carried_out_is_refused():
    with pytest.raises(InvalidSchedule, match="this backward is missing"):
        simulate(Schedule.from_csv("0F0,0F1,0B0\n"))
    with pytest.raises(InvalidSchedule, match="deadlock: rank 0 → rank 1 → rank 0"):
        simulate(Schedule.from_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"))


@pytest.mark.parametrize("wrong, message", [
    ({"F": [1, 2, 3]}, "F has shape .3,.: give one number, 4 .one a stage."),
    ({"W": -1}, "W=-1: give finite numbers, 0 or more"),
    ({"I": float("inf")}, "finite"),
    ({"activation": [1, 2]}, "activation has shape"),
    ({"message": [1, 2], "link": Link(1, 1)}, "message has 2 entries: give one number, or one for each of the 3 borders"),
])
def test_bad_times_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        simulate(schedule("1F1B", 4, 4), **wrong)


def test_a_hundred_thousand_actions():
    """Not a measurement: that time and memory stay in proportion."""
    made = schedule("interleaved", 32, 416, 4)
    timeline = simulate(made)
    assert len(made) == 2 * 32 * 4 * 416
    assert timeline.time == 4 * 416 * 3 + 31 * 3
    assert len(timeline.trace) == 2 * len(made)  # computing; and keeping and freeing activations
