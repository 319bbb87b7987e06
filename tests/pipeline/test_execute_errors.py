"""What cannot be executed is refused in one message, and nothing hangs."""

import os

import pytest
import torch
from torch import nn

from mlsyslab import RankFailed, launch, simulate
from mlsyslab.pipeline import Action, InvalidSchedule, Schedule, schedule
from mlsyslab.pipeline.asynchronous import PipeMare, train
from mlsyslab.pipeline.execute import Executor, execute

ROWS = 4
mse = nn.functional.mse_loss


def run(plan=None, stages=None, x=None, y=None, world=simulate, ranks=None, **options):
    """One step of a small pipeline, all of which can be made wrong."""
    plan = schedule("1F1B", 2, 2) if plan is None else plan
    x = torch.ones(ROWS, 3) if x is None else x
    y = torch.ones(ROWS, 3) if y is None else y
    stages = [nn.Linear(3, 3) for _ in range(plan.stages)] if stages is None else stages
    options = {"loss_fn": mse} | options

    def one(comm, _):
        return execute(comm, {s: stages[s] for s in plan.held[comm.rank % plan.ranks]}, plan, x, y, **options)

    return world(one, [None] * (ranks or plan.ranks))


class Faulty(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.layer, self.fault = nn.Linear(3, 3), fault

    def forward(self, x):
        return self.fault(self.layer(x))


class Bomb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("the gradient is bad")


def explode(x):
    raise ArithmeticError("the weather is bad")


def second(fault):
    return [nn.Linear(3, 3), Faulty(fault)]


@pytest.mark.parametrize(("broken", "messages"), [
    ({"stages": second(explode)},
     ["rank 1 of 2", "the weather is bad", "in 1F0: forward of stage 1, microbatch 0, on rank 1", "of shape (2, 3)"]),
    ({"stages": second(Bomb.apply)},
     ["rank 1 of 2", "the gradient is bad", "in 1B0: backward of stage 1, microbatch 0"]),
    ({"stages": second(Bomb.apply), "plan": schedule("ZB-H1", 2, 2)},
     ["the gradient is bad", "in 1I0: input gradient"]),
    ({"stages": [nn.Linear(3, 5), nn.Linear(3, 3)]},
     ["rank 1 of 2", "2x5 and 3x3", "in 1F0", "for an input of float32 of shape (2, 5)"]),
    ({"stages": [Faulty(lambda y: (y, y)), nn.Linear(3, 3)]},
     ["rank 0 of 2", "one floating-point tensor, not tuple"]),
    ({"stages": [Faulty(lambda y: y.long()), nn.Linear(3, 3)]},
     ["one floating-point tensor, not int64 of shape (2, 3)"]),
    ({"stages": second(lambda y: torch.ones(2, 3, requires_grad=True))},
     ["stage 1 has no gradient to hand back for microbatch 0"]),
    ({"loss_fn": lambda y, t: (y - t) ** 2},
     ["loss_fn gives the mean over a microbatch, a single number, not float32 of shape (2, 3)"]),
    ({"shapes": {0: torch.empty(ROWS, 7)}},
     ["the stage gives float32 of shape (2, 3)", "rank 1 expects float32 of shape (2, 7)"]),
    ({"shapes": {}}, ["shapes lacks stage 0"]),
    ({"x": torch.ones(1, 3)}, ["inputs has 1 rows, too few for 2 microbatches"]),
    ({"y": torch.ones(1, 3)}, ["targets has 1 rows, too few for 2 microbatches"]),
    ({"x": [torch.ones(1, 3)]}, ["inputs is a list of 1 tensors; the schedule has 2 microbatches"]),
    ({"loss_fn": None}, ["rank 1 holds the last stage, so it needs targets and loss_fn"]),
    ({"ranks": 3}, ["the schedule is for 2 ranks, and there are 3"]),
    ({"tied": [{0: "weight", 1: "wait"}]}, ["tied: stage 1 has no parameter 'wait'; it has weight, bias"]),
    ({"plan": schedule("TeraPipe", 2, 2)}, ["inputs of shape (2, 3)", "1:1:1:1", "a multiple of 4"]),
    ({"plan": schedule("PipeDream", 2, 2)}, ["PipeDream updates the weights while it runs: use `train`"]),
])
def test_a_mistake_is_named(broken, messages):
    with pytest.raises(RankFailed) as error:
        run(**broken)
    for message in messages:
        assert message in str(error.value)


def test_a_broken_schedule_is_refused():
    rows = [[Action(0, "B", 0), Action(0, "F", 0)], [Action(1, "F", 0), Action(1, "B", 0)]]
    with pytest.raises(RankFailed) as error:
        run(Schedule("broken", rows))
    assert isinstance(error.value.__cause__, InvalidSchedule)


def test_stages_are_those_that_the_rank_holds():
    plan = schedule("1F1B", 2, 2)
    with pytest.raises(RankFailed, match="rank 0 was given the modules of stages 0, 1; in this schedule it holds stages 0"):
        simulate(lambda comm, _: Executor(comm, {0: nn.Linear(3, 3), 1: nn.Linear(3, 3)}, plan), [None] * 2)


def test_the_first_stage_needs_inputs():
    with pytest.raises(RankFailed, match="rank 0 holds stage 0, so it needs the inputs"):
        simulate(lambda comm, _: execute(comm, {comm.rank: nn.Linear(3, 3)}, schedule("inference", 2, 2)), [None] * 2)


def test_a_later_step_of_another_size_is_refused():
    plan = schedule("1F1B", 2, 2)

    def steps(comm, _):
        executor = Executor(comm, {comm.rank: nn.Linear(3, 3)}, plan, mse)
        for rows in (4, 6):
            executor.step(torch.ones(rows, 3), torch.ones(rows, 3))

    with pytest.raises(RankFailed, match=r"the stage gives float32 of shape \(3, 3\); rank 1 expects .* \(2, 3\)"):
        simulate(steps, [None] * 2)


@pytest.mark.parametrize(("options", "message"), [
    ({"plan": schedule("1F1B", 2, 2)}, "1F1B has no updates in it: use `execute`"),
    ({"plan": Schedule("two homes", [[Action(0, "F", 0), Action(0, "B", 0), Action(0, "U", 0, version=1)],
                                     [Action(0, "F", 1), Action(0, "B", 1), Action(0, "U", 1, version=1)]])},
     "stage 0 is on several ranks"),
])
def test_asynchronous_training_takes_its_own_schedules(options, message):
    plan = options["plan"]
    with pytest.raises(RankFailed, match=message):
        simulate(lambda comm, _: train(comm, {s: nn.Linear(3, 3) for s in plan.held[comm.rank]}, plan, torch.ones(4, 3),
                                       torch.ones(4, 3), mse, lambda ps: torch.optim.SGD(ps, lr=0.1)), [None] * 2)


@pytest.mark.parametrize("options", [{"anneal": -1}, {"anneal": 1, "decay": 1.0}])
def test_pipemare_takes_what_its_formulas_allow(options):
    with pytest.raises(ValueError, match="anneal is a number of updates, 0 or more; decay is None, or at least 0"):
        PipeMare(**options)


@pytest.mark.parametrize(("fault", "message"), [
    (explode, r"rank 1 of 2 failed: ArithmeticError: the weather is bad"),
    (lambda x: os.kill(os.getpid(), 9), r"rank 1 of 2 failed: killed by SIGKILL"),
])
def test_in_processes_a_fault_ends_the_run(fault, message):
    with pytest.raises(RankFailed, match=message):
        run(stages=second(fault), world=lambda fn, given: launch(fn, given, backend="gloo", timeout=120))
