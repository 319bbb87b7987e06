# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] nbgrader={"grade": false, "grade_id": "intro", "locked": true, "schema_version": 3, "solution": false, "task": false}
# # Collectives
#
# After every backward pass of data-parallel training, each of p GPUs holds gradients that the others need. One call, an
# *all-reduce*, adds them up and gives everyone the sum. In this lab you build that call from its only raw material,
# messages between two ranks. You will
#
# 1. send one tensor to everybody in ceil(log2 p) rounds (broadcast along a tree),
# 2. deal a tensor out, a part to each (scatter along the same tree),
# 3. collect everybody's parts on everybody (all-gather round a ring),
# 4. add up while the parts go round (reduce-scatter round a ring),
# 5. put an all-reduce together in two ways, one for short vectors and one for long ones,
# 6. say what each of them costs,
# 7. choose the faster one for a given network, and
# 8. find out why a program hangs, and mend it.
#
# Read the chapter *Collectives* first. The lab takes about 90 minutes and 100 points, runs on a laptop, and needs no GPU.
# The exercises don't depend on one another: where one builds on another, it uses the library's.

# %% nbgrader={"grade": false, "grade_id": "imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch

from mlsyslab import Link, check, collectives, simulate

# %% [markdown] nbgrader={"grade": false, "grade_id": "world", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## A rank is a function
#
# You write what *one* rank does. `simulate` calls the function on every rank, as `function(comm, inputs[rank])`, and
# `comm` is all that a rank knows of the others:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, 0 … p-1, and the number of ranks p |
# | `comm.send(tensor, to)` | send to rank `to`; ends when it has been received |
# | `comm.recv(out, source)` | receive from rank `source` into the tensor `out`, which has the shape and dtype of what was sent |
# | `comm.sendrecv(tensor, to, out, source)` | both at the same time |
# | `comm.isend(tensor, to)`, `comm.irecv(out, source)` | begin to; the result's `.wait()` ends it |
# | `comm.combine(acc, incoming, op)` | acc := op(acc, incoming), element by element, in place |
# | `comm.link` | what a message costs: `comm.link.alpha` s + bytes × `comm.link.beta` s; reducing a byte costs `comm.link.gamma` s |
#
# Run the next cell: rank 0 sends three numbers to rank 1, over a link with a latency of 1 µs and 1 GB/s.

# %% nbgrader={"grade": false, "grade_id": "example", "locked": true, "schema_version": 3, "solution": false, "task": false}
def pass_on(comm, tensor):
    if comm.rank == 0:
        comm.send(tensor, 1)
        return tensor
    received = torch.empty_like(tensor)
    comm.recv(received, 0)
    return received


run = simulate(pass_on, [torch.tensor([3.0, 1.0, 4.0]), torch.zeros(3)], link=Link(alpha=1e-6, beta=1e-9))
print(run.results, run.time, "s", run.trace)

# %% [markdown] nbgrader={"grade": false, "grade_id": "rules", "locked": true, "schema_version": 3, "solution": false, "task": false}
# Rules for all exercises:
#
# - It works for every world size, 1 among them, and for every dtype; results have the dtype of the input.
# - The input tensors stay as they are: work on copies.
# - Tensors have shape (rows, …) and are cut along dim 0 as `torch.tensor_split(tensor, p)` cuts them: where p doesn't
#   divide the rows, the first parts are longer by one, and with fewer rows than ranks the last ones are empty.
# - Write the exercise's algorithm with `comm`. Unless the text says so, nothing from `mlsyslab.collectives`.
#
# Below each exercise a check runs your function on many inputs and looks at the results *and* at the messages: a right
# sum that came about in another way is not the algorithm asked for. Grading repeats the check on other inputs.

# %% [markdown] nbgrader={"grade": false, "grade_id": "mst_broadcast_text", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1. Broadcast along a tree (12 points)
#
# Rank `root` has a tensor that all ranks need. Think of the ranks as a line from `left = 0` to `right = p-1`, and cut it
# in the middle. The root sends the tensor to one rank of the half that it is not in; that rank becomes the other half's
# root. Now each half is a shorter line with a root of its own, and both go on in the same way at the same time, until
# every rank stands alone. With L = ceil(log2 p), that takes L (alpha + n beta) seconds for n bytes, and every rank but
# the root receives exactly one message.

# %% nbgrader={"grade": false, "grade_id": "mst_broadcast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def mst_broadcast(comm, tensor, root):
    """The root's tensor, on every rank, in ceil(log2 p) rounds.

    tensor: any shape; on every rank of the same shape and dtype, but only the root's values count.
    root: the rank whose tensor it is, 0 … p-1.
    Returns a new tensor of that shape and dtype.
    """
    ### BEGIN SOLUTION
    out = tensor.clone()
    left, right = 0, comm.size - 1
    while left < right:
        mid = (left + right) // 2
        other = right if root <= mid else left  # the root of the half that `root` is not in
        if comm.rank == root:
            comm.send(out, other)
        elif comm.rank == other:
            comm.recv(out, root)
        if (comm.rank <= mid) != (root <= mid):
            root = other
        left, right = (left, mid) if comm.rank <= mid else (mid + 1, right)
    return out
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "mst_broadcast_check", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
check.mst_broadcast(mst_broadcast)
### BEGIN HIDDEN TESTS
check.mst_broadcast(mst_broadcast, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade": false, "grade_id": "ring_all_gather_text", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 3. All-gather round a ring (14 points)
#
# Every rank has one part of a tensor, and all ranks need the whole. Rank r talks to two others only: it sends to its
# right neighbour (r+1) mod p and receives from its left neighbour (r-1) mod p. In step 0 it sends its own part; in step
# k = 1, 2, … it passes on the part that it received in step k-1. After p-1 steps all parts have come by, and every link
# was busy all the time: (p-1) alpha + (p-1)/p n beta seconds, where n is the bytes of the whole.

# %% nbgrader={"grade": false, "grade_id": "ring_all_gather", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_all_gather(comm, part, lengths):
    """All parts, one after the other in the order of ranks, on every rank, in p-1 steps round a ring.

    part: (lengths[rank], …) this rank's part.
    lengths: the number of rows of each rank's part, the same list on every rank. They may differ, and be 0.
    Returns a new tensor of shape (sum(lengths), …).
    """
    ### BEGIN SOLUTION
    p, rank = comm.size, comm.rank
    whole = part.new_empty((sum(lengths), *part.shape[1:]))
    slots = whole.split(lengths)
    slots[rank].copy_(part)
    for k in range(p - 1):
        comm.sendrecv(slots[(rank - k) % p], (rank + 1) % p, slots[(rank - k - 1) % p], (rank - 1) % p)
    return whole
    ### END SOLUTION

# %% nbgrader={"grade": true, "grade_id": "ring_all_gather_check", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
check.ring_all_gather(ring_all_gather)
### BEGIN HIDDEN TESTS
check.ring_all_gather(ring_all_gather, hidden=True)
### END HIDDEN TESTS
