"""BSP, ASP and SSP: when workers go on, how long that takes, how stale what they read is."""

import math

import numpy as np
import pytest

from mlsyslab import Link
from mlsyslab.data_parallel import (
    ASP,
    BSP,
    SGD,
    SSP,
    BoundBroken,
    HeavyTailed,
    Job,
    Setup,
    Slow,
    Steady,
    Transient,
    check_bound,
    idle,
    iteration_time,
    lead,
    logistic,
    loss_curve,
    play,
    spirals,
    staleness,
)

MODELS = [BSP(), SSP(0), SSP(1), SSP(3), ASP()]
STRAGGLERS = [Steady(), Steady(jitter=0.3), Slow(factors={1: 3.0}, jitter=0.1), Transient(probability=0.2),
              HeavyTailed(shape=1.5)]
CLOCKS = 15


def record(model, straggler, workers=3, servers=1, link=None, clocks=CLOCKS, rate=0.5):
    return play(Job(logistic(workers), clocks, Setup(servers, model, SGD(rate)), straggler), link)


# -- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slowest", range(5))
@pytest.mark.parametrize("clock", range(5))
def test_who_may_begin(clock, slowest):
    assert BSP().may_begin(clock, slowest) == (clock <= slowest)
    assert ASP().may_begin(clock, slowest)
    for s in range(4):
        assert SSP(s).may_begin(clock, slowest) == (clock - s <= slowest)


@pytest.mark.parametrize("s", [-1, 1.5, None, math.inf])
def test_a_bound_is_a_number_of_clocks(s):
    with pytest.raises(ValueError, match="a number of clocks, 0 or more; without a bound use ASP"):
        SSP(s)


# -- stragglers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: type(s).__name__)
def test_a_straggler_is_a_function_of_its_seed_worker_and_clock(straggler):
    again = type(straggler)(**vars(straggler))
    assert [straggler(2, c) for c in range(9)] == [again(2, c) for c in reversed(range(9))][::-1]
    other = type(straggler)(**vars(straggler) | {"seed": 1})
    assert (straggler == Steady()) or any(straggler(w, c) != other(w, c) for w in range(3) for c in range(99))


def test_what_stragglers_are_like():
    def times(straggler, worker=0):
        return np.array([straggler(worker, clock) for clock in range(4000)])

    assert set(times(Steady(2.0))) == {2.0}
    jitter = times(Steady(2.0, jitter=0.25))
    assert 1.5 <= jitter.min() < 1.51 and 2.49 < jitter.max() <= 2.5
    assert set(times(Slow(2.0, factors={1: 3.0}), 0)) == {2.0} and set(times(Slow(2.0, factors={1: 3.0}), 1)) == {6.0}
    transient = times(Transient(2.0, probability=0.1, factor=5.0))
    assert set(transient) == {2.0, 10.0} and (transient == 10).mean() == pytest.approx(0.1, abs=0.02)
    heavy = times(HeavyTailed(2.0, shape=3.0))
    assert heavy.mean() == pytest.approx(2.0, rel=0.05) and heavy.min() >= 2 * 2 / 3
    for x in (2, 4, 8):  # P(longer than x times the least) = x^-shape
        assert (heavy > x * 4 / 3).mean() == pytest.approx(x**-3.0, abs=0.02)


@pytest.mark.parametrize("make", [lambda: Steady(0), lambda: Steady(jitter=2), lambda: Slow(factors={0: 0}),
                                  lambda: Transient(probability=2), lambda: Transient(factor=0),
                                  lambda: HeavyTailed(shape=1)])
def test_stragglers_that_cannot_be(make):
    with pytest.raises(ValueError, match="more than 0|above 0|more than 1"):
        make()


# -- how long it takes ------------------------------------------------------------------------------------------------


def timetable(model, straggler, workers):
    """When each worker ends each clock, by the definition: ends[worker][clock]. Messages take no time."""
    ends = [[0.0] * CLOCKS for _ in range(workers)]
    for c in range(CLOCKS):
        for w in range(workers):
            start = ends[w][c - 1] if c else 0.0
            if c - 1 - model.bound >= 0:
                start = max(start, *(ends[q][int(c - 1 - model.bound)] for q in range(workers)))
            ends[w][c] = start + straggler(w, c)
    return ends


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: type(s).__name__)
def test_times_are_those_of_the_definition(model, straggler):
    """BSP takes the sum of each clock's longest iteration, ASP each worker's own sum, SSP what lies between."""
    run, ends = record(model, straggler, link=Link()), timetable(model, straggler, 3)
    assert run.time == pytest.approx(max(row[-1] for row in ends))
    for worker in range(3):
        computing = [e.end for e in run.trace.of(1 + worker) if e.kind == "compute"]
        assert computing == pytest.approx(ends[worker])
    working = sum(straggler(w, c) for w in range(3) for c in range(CLOCKS))
    assert idle(run) == pytest.approx(1 - working / sum(row[-1] for row in ends))
    starts = [[ends[w][c] - straggler(w, c) for c in range(CLOCKS)] for w in range(3)]
    assert iteration_time(run) == pytest.approx(sum(row[-1] - row[0] for row in starts) / 3 / (CLOCKS - 1))


@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: type(s).__name__)
def test_the_looser_the_bound_the_less_is_waited(straggler):
    bsp, ssp0, ssp1, ssp3, asp = (record(model, straggler, link=Link()) for model in MODELS)
    assert bsp.time == pytest.approx(ssp0.time)
    assert asp.time <= ssp3.time <= ssp1.time <= ssp0.time
    assert idle(asp) == pytest.approx(0, abs=1e-12)


# -- how stale it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_bound_holds_at_every_reading(model, straggler, servers):
    run = record(model, straggler, servers=servers)
    assert check_bound(run) == servers * 3 * CLOCKS
    assert max(step.ahead for step in lead(run)) <= model.bound


def test_the_bound_is_reached():
    """A worker that is much slower is left behind by just so much."""
    for s in (0, 1, 4):
        assert max(step.ahead for step in lead(record(SSP(s), Slow(factors={0: 100.0})))) == s
    assert max(step.ahead for step in lead(record(ASP(), Slow(factors={0: 100.0})))) == CLOCKS - 1


def test_a_broken_bound_is_told():
    run = record(ASP(), Slow(factors={0: 100.0}))
    strict = Setup(1, SSP(2))
    run.job = Job(run.job.task, CLOCKS, strict, run.job.straggler)
    with pytest.raises(BoundBroken, match=r"worker \d had shard 0 for clock 3, when the slowest .* 0: 3 ahead, and 2 are"):
        check_bound(run)


@pytest.mark.parametrize("workers", [2, 4])
def test_histogram_of_staleness(workers):
    """One count for every update of every shard. Alike workers see W-1 updates of others; bounds limit the number."""
    for model in MODELS:
        counts = staleness(record(model, HeavyTailed(shape=1.5), workers))
        assert sum(counts.values()) == workers * CLOCKS
        if model.waits_for_all:
            assert set(counts) == {0}
        # the others make at most 2s+1 updates each between what I read and what I write
        assert max(counts) <= (workers - 1) * (2 * model.bound + 1)
    even = staleness(record(ASP(), Steady(jitter=0.01), workers, clocks=40))
    assert even.most_common(1)[0][0] == workers - 1


def to_reach(loss, model, rule, workers, clocks, straggler):
    """Seconds until some worker has values of this loss."""
    record = play(Job(spirals(workers), clocks, Setup(1, model, rule), straggler))
    return next((time for time, _, found in loss_curve(record) if found < loss), math.inf)


def test_not_waiting_saves_time():
    bsp, ssp, asp = (to_reach(0.2, model, SGD(0.4), 4, 40, Transient(probability=0.1, factor=10.0))
                     for model in (BSP(), SSP(3), ASP()))
    assert asp < ssp < bsp < math.inf and 2 * asp < bsp


def test_stale_gradients_do_harm_where_steps_are_long():
    bsp, asp = (to_reach(0.1, model, SGD(0.4, momentum=0.9), 8, 20, HeavyTailed(shape=1.5)) for model in (BSP(), ASP()))
    assert bsp < math.inf == asp
