"""What is read from a trace, against counts made by hand and by brute force."""

import json
import random

import numpy as np
import pytest

from mlsyslab import Event, Trace

BY_HAND = [
    Event(0, "send", 0.0, 2.0, 8, 1), Event(1, "recv", 0.0, 2.0, 8, 0),
    Event(0, "compute", 1.0, 4.0, label="forward"), Event(0, "combine", 3.0, 5.0, 16),
    Event(1, "send", 2.0, 3.0, 4, 2), Event(2, "recv", 2.0, 3.0, 4, 1),
    Event(0, "send", 2.0, 6.0, 2, 2), Event(2, "recv", 2.0, 6.0, 2, 0),
]


def test_counts():
    trace = Trace(BY_HAND)
    assert trace.size == 3 and len(trace) == 8 and list(trace) == BY_HAND
    assert [trace.messages(rank) for rank in range(3)] == [2, 1, 0] and trace.messages() == 3
    assert [trace.bytes_sent(rank) for rank in range(3)] == [10, 4, 0] and trace.bytes_sent() == 14
    assert trace.bytes_combined() == trace.bytes_combined(0) == 16 and trace.bytes_combined(1) == 0
    assert trace.time == 6.0
    assert trace.busy(0) == 4.0 and trace.busy(1) == 0.0  # 1 … 5: the overlap counts once
    assert trace.bubble == 1 - 4 / 18
    assert trace.rounds == 2
    assert trace.of(1) == [BY_HAND[1], BY_HAND[4]]
    assert trace[-1] == BY_HAND[-1] and trace[2:4] == BY_HAND[2:4]


def test_an_empty_trace():
    trace = Trace(size=2)
    assert (trace.messages(), trace.bytes_sent(0), trace.time, trace.rounds, trace.bubble, trace.peak_memory(1)) == (0,) * 6
    assert list(trace) == [] and len(trace) == 0


def test_rounds_are_the_longest_chain():
    """Oracle: longest path over all pairs of messages that share a rank, one ending before the other begins."""
    draw = random.Random(1)
    for _ in range(100):
        messages = []
        for _ in range(draw.randint(1, 12)):
            start = draw.randint(0, 8)
            messages.append((start, start + draw.randint(1, 3), *draw.sample(range(4), 2)))
        depth = {}
        for m in sorted(messages):
            before = [depth[o] for o in depth if o[1] <= m[0] and {o[2], o[3]} & {m[2], m[3]}]
            depth[m] = max([depth.get(m, 0), 1 + max(before, default=0)])
        trace = Trace([Event(a, "send", s, e, 1, b) for s, e, a, b in messages])
        assert trace.rounds == max(depth.values())


def test_columns_hold_what_rows_hold():
    """Many events, packed in blocks, written one by one and as columns."""
    n = 150_000
    rows, columns = Trace(), Trace()
    for i in range(n):
        rows.add(i % 7, "compute", i * 1.0, i + 0.5, label="AB"[i % 2])
    i = np.arange(n)
    columns.extend_columns(i % 7, "compute", i * 1.0, i + 0.5, labels=("A", "B"), label=i % 2)
    assert len(rows) == len(columns) == n
    assert rows == columns
    assert rows[n - 1] == Event((n - 1) % 7, "compute", n - 1.0, n - 0.5, 0, -1, "B")


def test_extend_shifts_in_time():
    trace = Trace()
    trace.extend(BY_HAND, shift=10.0)
    assert trace.time == 16.0 and trace[0] == Event(0, "send", 10.0, 12.0, 8, 1)


def test_peak_memory():
    trace = Trace([Event(0, "alloc", 1, 1, 10), Event(0, "alloc", 2, 2, 5), Event(0, "free", 3, 3, 10),
                   Event(0, "alloc", 4, 4, 8), Event(1, "alloc", 0, 0, 3)])
    assert [trace.peak_memory(rank) for rank in range(3)] == [15, 3, 0]


def test_traces_compare_by_what_happened():
    assert Trace(BY_HAND) == Trace(BY_HAND)
    assert Trace(BY_HAND) != Trace(BY_HAND[:-1]) and Trace(BY_HAND) != Trace(BY_HAND, size=4)
    assert "3 ranks, 8 events, 3 messages, 14 bytes" in repr(Trace(BY_HAND))


def test_chrome_export(tmp_path):
    Trace(BY_HAND).to_chrome(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(BY_HAND) and {e["tid"] for e in spans} == {0, 1, 2}
    assert spans[2]["name"] == "forward" and spans[2]["ts"] == pytest.approx(1e6) and spans[2]["dur"] == pytest.approx(3e6)
    assert spans[0]["name"] == "send to 1"
