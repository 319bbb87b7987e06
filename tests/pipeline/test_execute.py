"""Executing a schedule gives the gradients of one device, in the time and with the memory that the schedule says."""

import copy
import itertools
import math
import random

import pytest
import torch
from pipeline_models import batch, loss_fn, one_device, stages_of
from torch import nn

from mlsyslab import Link, launch, simulate
from mlsyslab.pipeline import Action, Schedule, names, schedule
from mlsyslab.pipeline.execute import Executor, execute
from mlsyslab.pipeline.memory import peak_activations
from mlsyslab.pipeline.simulate import simulate as play

OPTIMIZERS = {"SGD": lambda ps: torch.optim.SGD(ps, lr=0.05), "Adam": lambda ps: torch.optim.Adam(ps, lr=0.01)}
SIZES = {"SGD": [(1, 3), (2, 1), (2, 5), (3, 7), (4, 2), (4, 8)], "Adam": [(2, 5), (4, 8)]}


def synchronous(sizes, but=lambda plan: False):
    """Every schedule that trains and can do these (p, m), with more chunks and directions where there are any."""
    options = {"interleaved": [{"chunks": 2}, {"chunks": 3}], "looped BFS": [{"chunks": 2}],
               "Chimera": [{}, {"directions": 4}], "TeraPipe": [{"slices": 4}, {"slices": (1, 2, 1)}]}
    chosen = []
    for name in names():
        for option in options.get(name, [{}]):
            for p, m in sizes:
                try:
                    found = schedule(name, p, m, **option)
                except ValueError:
                    continue
                if found.trains and not found.asynchronous and not but(found):
                    text = "-".join([name, *(f"{k}={v}" for k, v in option.items()), f"p={p}", f"m={m}"])
                    chosen.append(pytest.param(found, id=text.replace(" ", "")))
    return chosen


def sliced(plan):
    return bool(plan.slices)


def joined(plan):
    return any(action.joined for action in plan)


def train(comm, given):
    """What one rank does: a step after every two batches. Returns its weights, by stage, and the losses."""
    plan, stages, tied, batches, optimizer = given
    stages = {stage: copy.deepcopy(stages[stage]) for stage in plan.held[comm.rank]}
    executor = Executor(comm, stages, plan, loss_fn, tied=tied)
    update, losses = OPTIMIZERS[optimizer]([p for module in stages.values() for p in module.parameters()]), []
    for i, (x, y) in enumerate(batches):
        losses.append(executor.step(x, y).loss)
        if i % 2:
            update.step()
            update.zero_grad()
    return {s: [p.detach() for p in module.parameters()] for s, module in stages.items()}, losses


def check(plan, given, results):
    """Weights on every rank, and the losses, are those of one device."""
    _, stages, tied, batches, optimizer = given
    weights, losses = one_device(stages, tied, batches, OPTIMIZERS[optimizer], 2)
    for rank, (found, _) in enumerate(results):
        for stage, parameters in found.items():
            for ours, theirs in zip(parameters, weights[stage], strict=True):
                assert (ours - theirs).abs().max() < 1e-10, f"rank {rank}, stage {stage}"
    shares = [sum(loss for loss in row if loss is not None) for row in zip(*(r[1] for r in results), strict=True)]
    assert torch.stack(shares).tolist() == pytest.approx(losses, rel=1e-9)


def task(plan, optimizer, batches=6):
    stages, tied = stages_of(plan.stages, sliced=bool(plan.slices))
    rows = 2 * plan.microbatches + 1  # ragged: the first microbatch has a row more
    return plan, stages, tied, [batch(rows, seed) for seed in range(batches)], optimizer


@pytest.mark.parametrize(("plan", "optimizer"), [(param.values[0], optimizer) for optimizer, sizes in SIZES.items()
                                                 for param in synchronous(sizes)], ids=repr)
def test_training_is_that_of_one_device(plan, optimizer):
    """Uneven stages, tied embeddings, ragged microbatches, two batches to a step, three steps."""
    given = task(plan, optimizer)
    check(plan, given, simulate(train, [given] * plan.ranks).results)


@pytest.mark.parametrize(("p", "m", "optimizer"), [(2, 5, "Adam"), (4, 8, "SGD")])
def test_training_in_processes_is_that_of_one_device(p, m, optimizer):
    given = [task(param.values[0], optimizer) for param in synchronous([(p, m)])]
    run = launch(lambda comm, tasks: [train(comm, one) for one in tasks], [given] * p, backend="gloo", timeout=400)
    for i, one in enumerate(given):
        check(one[0], one, [result[i] for result in run.results])


def random_schedule(rng):
    """An order of F, B or I, and W that nobody designed, on ranks that hold any stages."""
    p, stages, m = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 5)
    home = [rng.randrange(p) for _ in range(stages)]
    home[:min(p, stages)] = range(min(p, stages))
    p = 1 + max(home)
    left = {Action(s, "F", i) for s in range(stages) for i in range(m)}
    for s, i in [(s, i) for s in range(stages) for i in range(m)]:
        left |= {Action(s, "B", i)} if rng.random() < 0.5 else {Action(s, "I", i), Action(s, "W", i)}
    needs = {"F": lambda s: [(s - 1, "F")], "B": lambda s: [(s, "F"), (s + 1, "BI")], "W": lambda s: [(s, "I")]}
    needs["I"] = needs["B"]
    rows = [[] for _ in range(p)]
    while left:
        ready = [a for a in left if not any(b.microbatch == a.microbatch and b.stage == s and b.kind in kinds
                                            for s, kinds in needs[a.kind](a.stage) for b in left)]
        action = rng.choice(sorted(ready))
        left.remove(action)
        rows[home[action.stage]].append(action)
    return Schedule("random", rows)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_that_is_valid_runs_without_deadlock_and_is_right(seed):
    """The executor knows nothing about schedules; messages between two ranks need not arrive in the order of their use."""
    given = task(random_schedule(random.Random(seed)), "SGD")
    check(given[0], given, simulate(train, [given] * given[0].ranks).results)


# -- time, memory, messages -------------------------------------------------------------------------------------------------


def line(comm, given):
    """One step of square layers, each action charged its modelled time."""
    plan, seconds = given
    stages = {stage: nn.Linear(2, 2) for stage in plan.held[comm.rank]}
    shapes = {stage: torch.empty(2 * plan.microbatches, 2, device="meta") for stage in range(plan.stages - 1)}
    x = torch.ones(2 * plan.microbatches, 2)
    return execute(comm, stages, plan, x, x, nn.functional.mse_loss, shapes=shapes, seconds=seconds)


@pytest.mark.parametrize("link", [None, Link(0.15, 0.01)], ids=["free", "link"])
@pytest.mark.parametrize("plan", synchronous([(1, 2), (2, 4), (3, 7), (4, 8)], but=lambda p: sliced(p) or joined(p)))
def test_a_run_on_the_simulated_clock_is_the_simulated_timeline(plan, link):
    """Every action starts and ends when the simulator says so; sums over copies, of which it knows nothing, come after.

    Slices need other stages; joined actions start together there, and one by one here. No two stages take the same time, so
    that no two messages ask for a port at the same moment.
    """
    cost = {kind: [base * (1 + 0.1 * math.sin(1 + s)) for s in range(plan.stages)]
            for kind, base in {"F": 1.0, "B": 2.5, "I": 1.2, "W": 1.3}.items()}
    run = simulate(line, [(plan, lambda action: cost[action.kind][action.stage])] * plan.ranks, link=link)
    timeline = play(plan, **cost, link=link, message=2 * 2 * 4)

    def computing(trace, rank):
        return [(e.label, e.start, e.end) for e in trace.of(rank) if e.kind == "compute"]

    for rank in range(plan.ranks):
        ours, theirs = computing(run.trace, rank), computing(timeline.trace, rank)
        assert [label for label, *_ in ours] == [label for label, *_ in theirs]
        assert [time for _, *times in ours for time in times] == pytest.approx([t for _, *times in theirs for t in times])


class Token:
    """Lives as long as the graph that holds it; counts how many do."""

    def __init__(self, count):
        self.count = count
        count["now"] += 1
        count["peak"] = max(count["peak"], count["now"])

    def __del__(self):
        self.count["now"] -= 1


class Hold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.token = Token(count)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Counted(nn.Module):
    """A stage that counts how many of its rank's graphs are alive."""

    def __init__(self, count):
        super().__init__()
        self.layer, self.count = nn.Linear(2, 2), count

    def forward(self, x):
        return self.layer(Hold.apply(self.layer(x), self.count))


@pytest.mark.parametrize("plan", synchronous([(1, 3), (2, 5), (4, 4), (4, 12)], but=sliced))
def test_live_activations_peak_where_the_schedule_says(plan):
    """Counted by the graphs themselves, by the executor, and in the trace's bytes."""

    def one(comm, _):
        count = {"now": 0, "peak": 0}
        stages = {stage: Counted(count) for stage in plan.held[comm.rank]}
        x = torch.ones(plan.microbatches, 2)
        return execute(comm, stages, plan, x, x, nn.functional.mse_loss).peak_activations, count

    run = simulate(one, [None] * plan.ranks)
    for rank, (peak, expected) in enumerate(zip(run.results, peak_activations(plan), strict=True)):
        assert peak == (expected, {"now": 0, "peak": expected})
        assert run.trace.peak_memory(rank) == expected * 2 * (2 * 4)


def test_between_i_and_w_nothing_above_the_last_weights_is_kept():
    """What lies between a stage's last weights and its output is gone after I."""
    plan = schedule("ZB-H2", 3, 8)

    class Top(nn.Linear):
        def forward(self, x):
            return Hold.apply(super().forward(x), self.count)

    def one(comm, _):
        stage = Top(2, 2)
        stage.count = {"now": 0, "peak": 0}
        x = torch.ones(plan.microbatches, 2)
        execute(comm, {comm.rank: stage}, plan, x, x, nn.functional.mse_loss)
        return stage.count["peak"]

    peaks = simulate(one, [None] * plan.ranks).results
    for row, peak in list(zip(plan.actions, peaks, strict=True))[1:]:  # the first stage has no I to speak of
        waiting = itertools.accumulate({"F": 1, "I": -1}.get(action.kind, 0) for action in row)
        assert peak == max(waiting)


@pytest.mark.parametrize("plan", synchronous([(4, 8)], but=sliced))
def test_every_border_is_crossed_once_each_way_and_shapes_are_told_once(plan):
    told = simulate(line, [(plan, None)] * plan.ranks).trace
    crossings = sum(2 for s in range(plan.stages - 1) for i in range(plan.microbatches)
                    if plan.rank_of(s, i) != plan.rank_of(s + 1, i))
    sums = sum(len(ranks) * (len(ranks) - 1) for ranks in {tuple(ranks) for ranks in plan.placement})
    assert told.messages() == crossings + sums
    stages, tied = stages_of(plan.stages)

    def two_steps(comm, _):
        held = {stage: copy.deepcopy(stages[stage]) for stage in plan.held[comm.rank]}
        executor = Executor(comm, held, plan, loss_fn)
        executor.step(*batch(8))
        comm.barrier()
        start = sum(1 for e in comm.world.trace if e.kind == "send" and e.rank == comm.rank)
        executor.step(*batch(8))
        return start, sum(1 for e in comm.world.trace if e.kind == "send" and e.rank == comm.rank) - start

    first, second = map(sum, zip(*simulate(two_steps, [None] * plan.ranks).results, strict=True))
    assert second == crossings + sums and first == second + crossings // 2


def test_inference_gives_the_outputs_and_keeps_nothing():
    plan = schedule("inference", 3, 5)
    stages, _ = stages_of(3)
    x, _ = batch(11)
    run = simulate(lambda comm, _: execute(comm, {comm.rank: stages[comm.rank]}, plan, x), [None] * 3)
    found = torch.cat([run.results[2].outputs[i] for i in range(5)])
    torch.testing.assert_close(found, nn.Sequential(*stages)(x))
    assert not found.requires_grad and [step.peak_activations for step in run.results] == [0, 0, 0]


def test_microbatches_of_any_size_can_be_given():
    plan, (stages, _) = schedule("1F1B", 2, 3), stages_of(2)
    x, y = batch(9)
    reference = nn.Sequential(*copy.deepcopy(stages))
    loss = loss_fn(reference(x), y)
    loss.backward()

    xs, ys = x.split([1, 6, 2]), y.split([1, 6, 2])

    def one(comm, _):
        step = execute(comm, {comm.rank: stages[comm.rank]}, plan, list(xs), list(ys), loss_fn)
        return step, [p.grad for p in stages[comm.rank].parameters()]

    (_, first), (step, second) = simulate(one, [None] * 2).results
    assert step.loss.item() == pytest.approx(loss.item())
    assert [step.losses[i].item() for i in range(3)] == pytest.approx(
        [loss_fn(reference(a), b).item() for a, b in zip(xs, ys, strict=True)])
    for ours, theirs in zip(first + second, reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad)


def test_frozen_parameters_stay_without_gradient():
    plan, (stages, _) = schedule("ZB-H1", 3, 4), stages_of(3)
    for parameter in (*stages[0].parameters(), *stages[1][0].parameters()):
        parameter.requires_grad_(False)
    reference = copy.deepcopy(stages)
    x, y = batch(8)
    loss_fn(nn.Sequential(*reference)(x), y).backward()
    simulate(lambda comm, _: execute(comm, {comm.rank: stages[comm.rank]}, plan, x, y, loss_fn) and None, [None] * 3)
    for ours, theirs in zip(nn.ModuleList(stages).parameters(), nn.ModuleList(reference).parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)
