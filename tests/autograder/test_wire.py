"""What travels between judge and sandbox arrives as it was, or not at all."""

import itertools
from fractions import Fraction

import numpy
import pytest
import torch

from autograder.inside import wire
from autograder.inside.vocabulary import coder

SHAPES = (), (1,), (0,), (5,), (3, 4), (2, 0, 3), (2, 1, 3)


class Own(torch.Tensor):
    """A student's class."""


def some(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def read(frame: bytes) -> object:
    return coder().value(*wire.parts(frame))


def through_a_stream(value: object) -> object:
    stream = coder().stream()
    stream.add([value])
    ((back,),) = read(stream.frame())
    return back


@pytest.mark.parametrize("dtype", wire.NUMBERED, ids=str)
def test_a_tensor_arrives_as_it_was(dtype):
    for shape in SHAPES:
        tensor = some(shape, dtype)
        assert same(through_a_stream(tensor), tensor)
        flat = wire.flat(tensor)
        assert isinstance(flat, list) or flat is tensor
        if isinstance(flat, list):
            assert same(wire.tensor_of(*through_a_stream(flat)), tensor)


@pytest.mark.parametrize("value, arrives", [
    (range(2, 5), (2, 3, 4)), (range(5, 0, -2), (5, 3, 1)), (Fraction(1, 4), 0.25), (numpy.str_("compute"), "compute"),
    (numpy.array(["memory", "compute"])[1], "compute"), ([numpy.int64(3), {"a": range(1)}], [numpy.int64(3), {"a": (0,)}])])
def test_plain_data_of_other_types_arrives_as_plain_data(value, arrives):
    """What a check accepts in a notebook, it accepts in grading."""
    back = through_a_stream(value)
    assert back == arrives and type(back) is type(arrives)


@pytest.mark.parametrize("value", [range(10**30), range(0, -10**9, -1), Fraction(10**400), Fraction(-10**400, 3), lambda: 0])
def test_what_would_be_too_large_has_a_name_and_no_more(value):
    assert isinstance(through_a_stream(value), wire.Opaque)


def test_most_tensors_that_ranks_send_are_written_plainly():
    for shape, dtype in itertools.product([(1,), (5,), (3, 4)], [torch.float32, torch.bfloat16, torch.int64, torch.bool]):
        assert isinstance(wire.flat(some(shape, dtype)), list)


@pytest.mark.parametrize("odd", [
    pytest.param(torch.eye(3).to_sparse(), id="sparse"), pytest.param(torch.empty(3, device="meta"), id="meta"),
    pytest.param(torch.ones(2, 3).t(), id="transposed"), pytest.param(torch.ones(5)[::2], id="every second"),
    pytest.param(torch.ones(10_000), id="long"), pytest.param(torch.ones(2, dtype=torch.complex64), id="complex"),
    pytest.param(torch.imag(torch.ones(2, dtype=torch.complex64).conj()), id="negative"),
    pytest.param(torch.ones(3).as_subclass(Own), id="own class")])
def test_no_other_tensor_is_taken_for_an_ordinary_one(odd):
    assert wire.flat(odd) is odd


def test_a_stream_says_what_one_frame_of_all_values_says():
    """One value after the other, and all at once: the reader finds the same, tensors that lie behind the text included."""
    values = [["send", 0, torch.arange(5000), 1], ["recv", 0, "int64", [3], 2], ["library", (1, 2.5), {"op": "sum"}], [None]]
    stream = coder().stream()
    for value in values:
        stream.add(value)
    found, expected = read(stream.frame()), read(coder().frame(values))
    assert same(found[0].pop(2), expected[0].pop(2))
    assert found == expected


def test_a_stream_holds_what_stood_in_a_tensor_when_it_was_added():
    stream, tensor = coder().stream(), torch.zeros(10_000)
    stream.add([tensor])
    tensor += 1
    assert same(read(stream.frame())[0][0], torch.zeros(10_000))


def test_a_stream_that_is_cut_short_is_refused():
    stream = coder().stream()
    for value in (["send", torch.arange(2000)], ["return"]):
        stream.add(value)
    text, rest = wire.parts(stream.frame())
    for size in range(len(text)):
        with pytest.raises(wire.Malformed):
            coder().value(text[:size], rest)
    with pytest.raises(wire.Malformed, match="shorter than it says"):
        coder().value(text, rest[:-1])


@pytest.mark.parametrize("shape, data", [([2], b"123"), ([1] * 65, b"1234"), ([-1], b"1234")])
def test_bytes_that_are_no_tensor_are_refused(shape, data):
    with pytest.raises(wire.Malformed, match="no shape"):
        wire.tensor_of(wire.NUMBERS[torch.float32], shape, data)
