"""Bubbles and peaks of simulated schedules equal the closed forms of their papers, and where those hold."""

import random

import pytest

from mlsyslab.pipeline import schedule, simulate

RANKS = range(1, 9)


def timelines(name, *, chunks=(None,), ranks=RANKS, times="any", seed=0, **options):
    """For p in 1…8 and m in 1…4p: p, m, v, F, I, W in random whole seconds, and the simulated timeline."""
    draw = random.Random(f"{name} {seed}")
    for p in ranks:
        for m in range(1, 4 * p + 1):
            v = draw.choice(chunks)
            F, I, W = (draw.randint(1, 9) for _ in range(3))
            if times == "equal":
                I = W = F
            elif times == "W smallest":
                W = draw.randint(0, min(F, I))
            yield p, m, v, F, I, W, simulate(schedule(name, p, m, v, **options), F=F, I=I, W=W)


def idle(timeline, work):
    """Seconds that each rank doesn't compute, all of which compute for `work`."""
    assert timeline.busy == pytest.approx([work] * timeline.schedule.ranks)
    return timeline.time - work


# -- bubbles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
def test_gpipe_and_1f1b_idle_for_p_minus_1_forwards_and_backwards(name):
    for p, m, _, F, I, W, timeline in timelines(name):
        assert idle(timeline, m * (F + I + W)) == (p - 1) * (F + I + W)
        assert timeline.bubble == pytest.approx((p - 1) / (m + p - 1))


def test_inference_idles_for_p_minus_1_forwards():
    for p, m, _, F, _, _, timeline in timelines("inference"):
        assert idle(timeline, m * F) == (p - 1) * F


def test_device_placement_uses_one_rank_at_a_time():
    for p, m, _, F, I, W, timeline in timelines("device placement"):
        assert timeline.time == p * m * (F + I + W)
        assert timeline.bubble == pytest.approx(1 - 1 / p)


@pytest.mark.parametrize("name", ["interleaved", "looped BFS"])
def test_v_chunks_divide_the_bubble_by_v(name):
    """In chunk time, F and B of a v-th of the model: ratio to work (p-1)/(v m). From m = p on; with fewer, chunks wait."""
    for p, m, v, F, I, W, timeline in timelines(name, chunks=(2, 3, 4)):
        waits = idle(timeline, m * v * (F + I + W))
        if m >= p:
            assert waits == (p - 1) * (F + I + W), (p, m, v)
        else:
            assert waits > (p - 1) * (F + I + W), (p, m, v)


def test_zb_h1_idles_w_less_per_rank():
    """(p-1)(F+I-W) for W no longer than F and I, from m = p on."""
    for p, m, _, F, I, W, timeline in timelines("ZB-H1", times="W smallest"):
        waits = idle(timeline, m * (F + I + W))
        assert waits == (p - 1) * (F + I - W) if m >= p else waits >= (p - 1) * (F + I - W), (p, m, F, I, W)


def test_zb_h2_idles_2w_less_per_rank_within_spans():
    """(p-1)(F+I-2W) on the rank that waits most, for W no longer than F and I, from m = 2p-1 on."""
    for p, m, _, F, I, W, timeline in timelines("ZB-H2", times="W smallest"):
        if m >= 2 * p - 1:
            assert max(timeline.span_idle) == (p - 1) * (F + I - 2 * W), (p, m, F, I, W)


@pytest.mark.parametrize("name", ["ZB-H2", "ZB-V"])
def test_zero_bubble_is_zero_within_spans_for_equal_times(name):
    for p, m, *_, timeline in timelines(name, times="equal"):
        assert (timeline.span_bubble == 0) == (m >= 2 * p - 1 or p == 1), (p, m)
        assert timeline.bubble > 0 or p == 1


def test_longer_weight_gradients_than_forwards_leave_a_bubble_in_zb_h1():
    """The closed form doesn't hold then: W is what the ranks wait for."""
    timeline = simulate(schedule("ZB-H1", 4, 12), F=1, I=1, W=3)
    assert idle(timeline, 12 * 5) > 3 * (1 + 1 - 3)


def test_dualpipe_bubble_for_equal_times():
    """(p/2-1)(F&B + B - 3W), from m = 2p on and for even m; DualPipeV has twice the ranks in that formula."""
    for p, m, _, F, I, W, timeline in timelines("DualPipe", ranks=(2, 4, 6, 8), times="equal"):
        if m >= 2 * p and m % 2 == 0:
            assert idle(timeline, m * (F + I + W)) == (p / 2 - 1) * (F + 2 * (I + W) - 3 * W), (p, m)
    for p, m, _, F, I, W, timeline in timelines("DualPipeV", times="equal"):
        if m >= 2 * p:
            assert idle(timeline, 2 * m * (F + I + W)) == (p - 1) * (F + 2 * (I + W) - 3 * W), (p, m)


def test_dualpipe_bubble_when_a_joined_pair_takes_less_than_its_two_halves():
    """F&B below F + B is the point of DualPipe: each hides the other's communication. Of the rank that waits most."""
    for p, m in (4, 8), (6, 12), (8, 20):
        for FB in (2, 2.5, 2.75, 3):
            timeline = simulate(schedule("DualPipe", p, m), F=1, I=1, W=1, FB=FB)
            assert max(timeline.idle) == (p / 2 - 1) * (FB + 2 - 3 * 1)


@pytest.mark.parametrize("directions", [2, 4, 6, 8])
def test_chimera_bubble_for_forwards_as_long_as_backwards(directions):
    """(p/f - 2)/(2m + p/f - 2) with 2f directions, for m = p, 2p, …; (p-2)/(2m+p-2) with two."""
    f = directions // 2
    for p in range(2 * f, 17, 2 * f):
        for m in range(p, 4 * p + 1, p):
            timeline = simulate(schedule("Chimera", p, m, directions=directions), F=3, B=3)
            assert timeline.bubble == pytest.approx((p / f - 2) / (2 * m + p / f - 2)), (p, m)


def test_chimera_bubble_for_backwards_twice_as_long():
    """(p-2)/(1.5 m + p - 2) for m = p."""
    for p in range(2, 17, 2):
        timeline = simulate(schedule("Chimera", p, p), F=1, B=2)
        assert timeline.bubble == pytest.approx((p - 2) / (1.5 * p + p - 2)), p


@pytest.mark.parametrize("name", ["AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW"])
def test_asynchronous_schedules_idle_only_at_the_start_and_the_end(name):
    """As long as 1F1B's fill and drain, once in a training run of any length: towards 0."""
    for p in RANKS:
        for m in (p, 4 * p, 32 * p):
            timeline = simulate(schedule(name, p, m), F=1, B=2)
            # AMPNet takes what comes, which now and then isn't what the next rank waits for
            assert idle(timeline, m * 3) <= (p if name == "AMPNet" else p - 1) * 3, (p, m)


# -- peaks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, chunks, peak, holds", [
    ("GPipe", (1,), lambda p, m, v, r: m, None),
    ("looped BFS", (1, 2, 3, 4), lambda p, m, v, r: m * v, None),
    ("1F1B", (1,), lambda p, m, v, r: min(m, p - r), None),
    ("device placement", (1,), lambda p, m, v, r: 1, None),
    ("inference", (1,), lambda p, m, v, r: 1, None),
    ("interleaved", (2, 3, 4), lambda p, m, v, r: min(m * v, (v - 1) * p + 2 * (p - 1 - r) + 1), lambda p, m: m % p == 0),
    ("ZB-H1", (1,), lambda p, m, v, r: min(m, p), None),
    ("ZB-H2", (1,), lambda p, m, v, r: min(m, 2 * p - 1), None),
    ("ZB-V", (2,), lambda p, m, v, r: 2 * p, lambda p, m: m >= 2 * p - 1),
    ("DualPipeV", (2,), lambda p, m, v, r: 2 * p + 1, lambda p, m: m > 2 * p),
    ("PipeDream", (1,), lambda p, m, v, r: min(m, p - r), None),
    ("PipeDream-2BW", (1,), lambda p, m, v, r: min(m, p - r), None),
    ("PipeMare", (1,), lambda p, m, v, r: min(m, 2 * (p - r) - 1), None),
])
def test_peak_activations(name, chunks, peak, holds):
    for p, m, v, *_, timeline in timelines(name, chunks=chunks):
        if holds is None or holds(p, m):
            assert timeline.peak_activations == [peak(p, m, v, r) for r in range(p)], (p, m, v)


def test_peak_activations_of_two_directions():
    for p, m, *_, timeline in timelines("DualPipe", ranks=(2, 4, 6, 8)):
        if m > 2 * p and m % 2 == 0:
            assert timeline.peak_activations == [p + 1] * p, (p, m)
    for p in range(2, 17, 2):
        peaks = simulate(schedule("Chimera", p, p)).peak_activations
        assert max(peaks) == p and min(peaks) == p // 2 + 1, p


def test_peak_activations_count_bytes_by_stage():
    """1F1B on three ranks: rank r keeps 3 - r microbatches, of so many bytes each."""
    timeline = simulate(schedule("1F1B", 3, 6), activation=[10, 200, 3000])
    assert timeline.peak_activations == [30, 400, 3000]


def test_activations_are_held_from_the_start_of_the_forward_to_the_end_of_what_frees_them():
    assert simulate(schedule("GPipe", 1, 2)).live.tolist() == [1, 2, 2, 1]
    # rank 1, F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3: W frees, I does not
    assert simulate(schedule("ZB-H1", 2, 4)).live.tolist()[12:] == [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    assert simulate(schedule("inference", 1, 3)).live.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["AMPNet", "PipeMare", "1F1B", "DualPipe"])
def test_one_weight_version_without_stashing(name):
    assert all(timeline.weight_versions == [1] * p for p, *_, timeline in timelines(name, ranks=(2, 4, 6)))


def test_pipedream_stashes_a_version_for_each_microbatch_under_way():
    """p-r on rank r, once the pipeline has been full for as long as it took to fill."""
    for p, m, *_, timeline in timelines("PipeDream"):
        most = [p - r for r in range(p)]
        assert all(have <= may for have, may in zip(timeline.weight_versions, most, strict=True))
        if m >= 2 * p - 1:
            assert timeline.weight_versions == most, (p, m)


def test_pipedream_2bw_has_two_versions():
    for p, m, *_, timeline in timelines("PipeDream-2BW"):
        assert timeline.weight_versions == [1 if m <= p else 2] * p, (p, m)
    for p in RANKS:
        for accumulate in range(p, 3 * p):
            assert max(simulate(schedule("PipeDream-2BW", p, 6 * p, accumulate=accumulate)).weight_versions) == 2
