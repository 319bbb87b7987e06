"""Which condition divides right runs from wrong ones."""

from __future__ import annotations

from zlib import crc32

import pytest

from mlsyslab.check.contrast import contrast

GRID = [{"world size": p, "root": root, "length": length, "op": op, "dtype": dtype}
        for p in (2, 3, 4, 5, 8) for root in (0, 1) for length in (p, p + 1) for op in ("sum", "max")
        for dtype in ("float32", "int64")]


@pytest.mark.parametrize("right, said", [
    (lambda t: t["world size"] in (2, 4, 8), "a power of two is assumed"),
    (lambda t: t["world size"] % 2 == 0, "a power of two is assumed"),
    (lambda t: t["root"] == 0, "is `root` used?"),
    (lambda t: t["length"] % t["world size"] == 0, "parts of one length are assumed"),
    (lambda t: t["op"] == "sum", "is `op` used?"),
    (lambda t: t["dtype"] == "float32", "integers have to work too"),
    (lambda t: t["world size"] == 8, "right for world size 8 only"),
])
def test_contrast_names_the_condition(right, said):
    assert said in contrast([(traits, right(traits)) for traits in GRID])


PIPELINES = [{"world size": p, "microbatches": m, "chunks": v, "backwards": order}
             for p in (2, 3, 4) for m in (1, 2, 3, 4, 6, 7, 8) for v in (2, 3) for order in ("in order", "in reverse")]


@pytest.mark.parametrize("right, said", [
    (lambda t: t["microbatches"] >= t["world size"], "at least as many microbatches as ranks"),
    (lambda t: t["microbatches"] % t["world size"] == 0, "the world size divides the number of microbatches"),
    (lambda t: t["chunks"] == 2, "is v used?"),
    (lambda t: t["backwards"] == "in order", "find what a microbatch left by its number"),
])
def test_contrast_knows_pipelines_too(right, said):
    assert said in contrast([(traits, right(traits)) for traits in PIPELINES])


def test_contrast_does_without_a_world_size():
    cases = [{"layers": layers, "rows": rows} for layers in (1, 2, 3) for rows in (1, 4)]
    assert "is every layer dealt with?" in contrast([(traits, traits["layers"] == 1) for traits in cases])


@pytest.mark.parametrize("right", [lambda t: False, lambda t: t["world size"] == 2, lambda t: crc32(str(t).encode()) % 3])
def test_contrast_is_silent_where_no_condition_explains_it(right):
    assert contrast([(traits, bool(right(traits))) for traits in GRID]) is None
