"""Collectives are not fault-tolerant: a dead rank ends every rank's run. The job goes on from the last checkpoint."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from mlsyslab import Failure, Link, PeerLost, RankFailed, launch, simulate, zero
from mlsyslab.zero import training
from mlsyslab.zero.survive import Life, read_log, survive
from mlsyslab.zero.training import Settings


def losses_alone(steps, rows):
    """One process, torch's own optimizer, no shards."""
    model = training.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        x, y = training.batch(step, rows)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(log, settings, ranks):
    """Every step's loss is that of one process, also those made twice; returns (step, ranks) of what was logged."""
    alone = losses_alone(settings.steps, settings.rows)
    assert all(abs(line["loss"] - alone[line["step"]]) < 1e-10 for line in log)
    return [(line["step"], line["ranks"]) for line in log]


def test_a_killed_rank_under_torchrun(tmp_path):
    """Killed (SIGKILL) in step 7 of 10, on 3 ranks; 2 ranks go on from the checkpoint after step 4."""
    settings = Settings(str(tmp_path), steps=10, every=5, stage=3, kill=(1, 7))
    lives = list(survive(settings, 3))
    assert [(life.ranks, life.status == 0, life.killed) for life in lives] == [(3, False, True), (2, True, False)]
    assert check(read_log(tmp_path), settings, 3) == [(s, 3) for s in range(7)] + [(s, 2) for s in range(5, 10)]


def test_killed_again_and_again_until_one_is_left(tmp_path):
    """The same program in processes of `launch`, a death in every life."""
    settings = Settings(str(tmp_path), steps=12, every=3)
    for ranks, step in ((3, 4), (2, 8)):
        with pytest.raises(RankFailed, match="killed by SIGKILL"):
            launch(training.main, [replace(settings, kill=(ranks - 1, step))] * ranks, backend="gloo")
    simulate(training.main, [settings])
    assert check(read_log(tmp_path), settings, 3) == \
        [(s, 3) for s in range(4)] + [(s, 2) for s in range(3, 8)] + [(s, 1) for s in range(6, 12)]


def test_the_other_ranks_can_only_wait_and_fail(tmp_path):
    """On the simulated clock: a rank dies, and whoever exchanges messages with it learns that it is lost."""
    settings = Settings(str(tmp_path), steps=50, every=4)
    with pytest.raises(RankFailed) as failure:
        simulate(training.main, [settings] * 4, Link(alpha=1.0), failures=[Failure(2, at=100.0)])
    lost = failure.value.__cause__
    assert isinstance(lost, PeerLost)
    found = zero.latest(tmp_path)
    assert found is not None
    simulate(training.main, [settings] * 3)
    log = check(read_log(tmp_path), settings, 4)
    resumed = int(found.name.removeprefix("step-"))
    assert log[-50 + resumed:] == [(step, 3) for step in range(resumed, 50)]


def test_an_error_of_the_program_is_not_tried_again(monkeypatch):
    """What torchrun says where a rank raised (and it ended another one by SIGTERM), and where a rank was killed."""
    raised = "[1]:\n  exitcode  : -15 (pid: 8)\nRoot Cause (first observed failure):\n  exitcode  : 1 (pid: 9)\n"
    killed = raised.replace("-15", "1").replace(": 1 (pid: 9)", ": -9 (pid: 9)")
    said = {3: killed, 2: raised}
    monkeypatch.setattr("mlsyslab.zero.survive.start", lambda settings, ranks: Life(ranks, 1, said[ranks]))
    lives = survive(Settings("nowhere"), 3)
    assert [next(lives).killed, next(lives).killed] == [True, False]
    with pytest.raises(RuntimeError, match="ended on 2 ranks"):
        next(lives)
