# %% [markdown]
# # A small lab for the corpus
#
# One function of plain data, one of tensors, one that ranks run.

# %% nbgrader={"grade_id": "imports"}
import math

import torch

from mlsyslab import simulate
from mlsyslab.check import inputs

# %% [markdown]
# Three exercises, ten points.

# %% nbgrader={"grade_id": "mean", "solution": true}
def mean(values):
    """The mean of a list of numbers; NaN for an empty one."""
    ### BEGIN SOLUTION
    return sum(values) / len(values) if values else math.nan
    ### END SOLUTION

# %% nbgrader={"grade_id": "mean_test", "grade": true, "points": 4}
assert mean([1, 2, 6]) == 3, f"the mean of 1, 2 and 6 is 3, not {mean([1, 2, 6])}"
assert math.isnan(mean([])), f"the mean of nothing is NaN, not {mean([])}"
### BEGIN HIDDEN TESTS
mean_source = inputs.source("mean", hidden=True)
for mean_length in (1, 3, 8):
    hidden_values = [mean_source.randint(-99, 99) for _ in range(mean_length)]
    expected_mean = sum(hidden_values) / mean_length
    assert mean(list(hidden_values)) == expected_mean, "mean: wrong on other numbers"
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled", "solution": true}
def scaled(tensor, factor):
    """The tensor times the factor, as a new tensor of the same dtype."""
    ### BEGIN SOLUTION
    return (tensor * factor).to(tensor.dtype)
    ### END SOLUTION

# %% nbgrader={"grade_id": "scaled_test", "grade": true, "points": 3}
def alike(came, expected):
    return isinstance(came, torch.Tensor) and came.dtype == expected.dtype and torch.equal(came, expected)


def scaled_right(given, factor):
    return alike(scaled(given.clone(), factor), (given * factor).to(given.dtype))


assert scaled_right(torch.arange(6.0).reshape(2, 3), 2), "scaled: each element times the factor, in the same dtype"
### BEGIN HIDDEN TESTS
scaled_source = inputs.source("scaled", hidden=True)
for scaled_dtype in (torch.int64, torch.bfloat16):
    hidden_tensor = inputs.tensor(scaled_source, (4, 3), scaled_dtype)
    assert scaled_right(hidden_tensor, scaled_source.randint(2, 5)), "scaled: wrong on other tensors"
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "shift", "solution": true}
def shift(comm, tensor):
    """The tensor of the left neighbour on a ring: one message a rank."""
    ### BEGIN SOLUTION
    out = torch.empty_like(tensor)
    comm.sendrecv(tensor, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
    return out
    ### END SOLUTION

# %% nbgrader={"grade_id": "shift_test", "grade": true, "points": 3}
def shift_right(tensors):
    run = simulate(shift, [tensor.clone() for tensor in tensors], timeout=3.0)
    p = len(tensors)
    right = [alike(came, tensors[rank - 1]) for rank, came in enumerate(run.results)]
    assert all(right), "shift: a rank returns the tensor of its left neighbour"
    assert [run.trace.messages(rank) for rank in range(p)] == [1] * p, "shift: each rank sends one message"
    assert all(run.trace.bytes_sent(rank) == tensors[rank].nbytes for rank in range(p)), "shift: the whole tensor"


shift_right([torch.full((2,), float(rank)) for rank in range(3)])
### BEGIN HIDDEN TESTS
shift_source = inputs.source("shift", hidden=True)
hidden_tensors = [inputs.tensor(shift_source, (3,), torch.int64) for _ in range(4)]
shift_right(hidden_tensors)
### END HIDDEN TESTS
