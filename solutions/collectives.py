# %% [markdown] nbgrader={"grade_id": "intro"}
# # Collectives
#
# After every backward pass of data-parallel training, each of p GPUs holds gradients that the others need. One call, an
# *all-reduce*, adds them up and gives everyone the sum. In this lab you build that call from its only raw material,
# messages between two ranks. You will
#
# 1. send one tensor to everybody in ceil(log2 p) rounds (broadcast along a tree),
# 2. deal a tensor out, a part to each rank (scatter along the same tree),
# 3. bring everybody's parts to everybody (all-gather round a ring),
# 4. add up while the parts go round (reduce-scatter round a ring),
# 5. put an all-reduce together in two ways, one for short vectors and one for long ones,
# 6. say what each of them costs,
# 7. choose the faster one for a given network, and
# 8. find out why a program hangs, and mend it.
#
# Read the chapter *Collectives* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and needs no
# GPU. The exercises don't depend on one another: where one builds on another, it uses the library's.

# %% nbgrader={"grade_id": "imports"}
import math

import torch

from mlsyslab import Deadlock, Link, collectives, simulate
from mlsyslab.check import collectives as check

# %% [markdown] nbgrader={"grade_id": "world"}
# ## A rank is a function
#
# You write what *one* rank does. `simulate(function, inputs)` calls it on every rank, as `function(comm, inputs[rank])`,
# so there are as many ranks as inputs. `comm` is all that a rank knows of the others:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, 0 … p-1, and the number of ranks p |
# | `comm.send(tensor, to)` | send to rank `to`; ends when it has been received |
# | `comm.recv(out, source)` | receive from rank `source` into `out`, of the same shape and dtype as what was sent |
# | `comm.sendrecv(tensor, to, out, source)` | both at the same time |
# | `comm.isend(tensor, to)`, `comm.irecv(out, source)` | begin to; `.wait()` on what they return ends it |
# | `comm.combine(acc, incoming, op)` | acc := op(acc, incoming), element by element, in place |
# | `comm.link` | what things cost: see exercise 6 |
#
# Run the next cell: rank 0 sends three numbers to rank 1, over a link with a latency of 1 µs and a bandwidth of 1 GB/s.

# %% nbgrader={"grade_id": "example"}
def pass_on(comm, tensor):
    if comm.rank == 0:
        comm.send(tensor, 1)
        return tensor
    received = torch.empty_like(tensor)
    comm.recv(received, 0)
    return received


run = simulate(pass_on, [torch.tensor([3.0, 1.0, 4.0]), torch.zeros(3)], link=Link(alpha=1e-6, beta=1e-9))
print("results:", run.results)
print("trace:  ", run.trace)

# %% [markdown] nbgrader={"grade_id": "rules"}
# Rules for all exercises:
#
# - Your function works for every world size, 1 among them, and for every dtype; the result has the dtype of the input.
# - The tensors that it is given stay as they are: work on copies (`tensor.clone()`) and receive into new tensors
#   (`torch.empty_like(tensor)`, `tensor.new_empty(shape)`).
# - Tensors are cut along dim 0 as `torch.tensor_split(tensor, p)` cuts them: where p doesn't divide the number of rows,
#   the first parts are longer by one; with fewer rows than ranks the last parts are empty. Other dimensions stay whole.
# - Only exercises 5 and 7 use `mlsyslab.collectives`. In the others you write the messages.
#
# The check below each exercise runs your function on many inputs and looks at the results *and* at the messages: a right
# sum that came about in another way is not the algorithm asked for. Grading repeats the check on inputs that you don't
# see. `check.NAME.show(NAME, p=5)` draws a run of your function on 5 ranks: who sends when, to whom, how much.

# %% [markdown] nbgrader={"grade_id": "mst_broadcast_text"}
# ## 1. Broadcast along a tree (12 points)
#
# Rank `root` has a tensor that all ranks need. Think of the ranks as a line from `left = 0` to `right = p-1`, and cut it
# in the middle. The root sends the tensor to one rank of the half that it is not in, and that rank becomes the root of
# its half. Now each half is a shorter line with a root of its own, and both go on in the same way, at the same time, until
# every rank stands alone.
#
# Every rank but the root receives exactly one message, and it takes L = ceil(log2 p) rounds: L (alpha + n beta) seconds
# for a tensor of n bytes.

# %% nbgrader={"grade_id": "mst_broadcast", "solution": true}
def mst_broadcast(comm, tensor, root):
    """The root's tensor, on every rank, in ceil(log2 p) rounds.

    tensor: any shape; of the same shape and dtype on every rank, but only the root's values count.
    root:   the rank whose tensor it is, 0 … p-1.
    Returns a new tensor of the same shape and dtype.
    """
    ### BEGIN SOLUTION
    out = tensor.clone()
    left, right = 0, comm.size - 1
    while left < right:
        mid = (left + right) // 2
        other = right if root <= mid else left  # becomes the root of the half that `root` is not in
        if comm.rank == root:
            comm.send(out, other)
        elif comm.rank == other:
            comm.recv(out, root)
        if (comm.rank <= mid) != (root <= mid):
            root = other
        left, right = (left, mid) if comm.rank <= mid else (mid + 1, right)
    return out
    ### END SOLUTION

# %% nbgrader={"grade_id": "mst_broadcast_check", "grade": true, "points": 12}
check.mst_broadcast(mst_broadcast)
### BEGIN HIDDEN TESTS
check.mst_broadcast(mst_broadcast, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "mst_broadcast_show"}
# Look at a run of yours. Which ranks are idle in the first round, and which link carries nothing at all?

# %% nbgrader={"grade_id": "mst_broadcast_picture"}
check.mst_broadcast.show(mst_broadcast, p=8)

# %% [markdown] nbgrader={"grade_id": "mst_scatter_text"}
# ## 2. Scatter along a tree (14 points)
#
# Rank `root` has a tensor, and rank r needs only part r of it, `tensor.tensor_split(p)[r]`. The tree is the one of
# exercise 1, but the root sends only what the other half needs: the parts of the ranks in that half, all in one message.
# The new root keeps its own part, and sends on the others' in the same way.
#
# The root sends every part but its own once, so it takes L alpha + (p-1)/p n beta seconds, where n is the bytes of the whole
# (if p is a power of two; elsewhere the halves are unequal, and it can take a little longer).

# %% nbgrader={"grade_id": "mst_scatter", "solution": true}
def mst_scatter(comm, tensor, root):
    """Part r of the root's tensor, on rank r, in ceil(log2 p) rounds.

    tensor: (rows, …); of the same shape and dtype on every rank, but only the root's values count.
    root:   the rank whose tensor it is, 0 … p-1.
    Returns this rank's part, as `tensor.tensor_split(p)[rank]` cuts it.
    """
    ### BEGIN SOLUTION
    held = tensor.clone()
    parts = held.tensor_split(comm.size)
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    left, right = 0, comm.size - 1
    while left < right:
        mid = (left + right) // 2
        if root <= mid:
            other, first, last = right, mid + 1, right
        else:
            other, first, last = left, left, mid
        message = held[starts[first]:starts[last + 1]]  # the parts of the half that `root` is not in
        if comm.rank == root:
            comm.send(message, other)
        elif comm.rank == other:
            comm.recv(message, root)
        if (comm.rank <= mid) != (root <= mid):
            root = other
        left, right = (left, mid) if comm.rank <= mid else (mid + 1, right)
    return parts[comm.rank].clone()
    ### END SOLUTION

# %% nbgrader={"grade_id": "mst_scatter_check", "grade": true, "points": 14}
check.mst_scatter(mst_scatter)
### BEGIN HIDDEN TESTS
check.mst_scatter(mst_scatter, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "ring_all_gather_text"}
# ## 3. All-gather round a ring (14 points)
#
# Every rank has one part of a tensor, and all ranks need the whole. Rank r talks to two others only: it sends to its
# right neighbour (r+1) mod p and receives from its left neighbour (r-1) mod p. In step 0 it sends its own part; in step
# k = 1, 2, … it passes on the part that it received in step k-1.
#
# After p-1 steps all parts have come by, and every link was busy all the time: (p-1) alpha + (p-1)/p n beta seconds,
# where n is the bytes of the whole. Send and receive at the same time, or every rank waits for the next one to listen.

# %% nbgrader={"grade_id": "ring_all_gather", "solution": true}
def ring_all_gather(comm, part, lengths):
    """All parts, one after the other in the order of ranks, on every rank, in p-1 steps round a ring.

    part:    (lengths[rank], …) this rank's part.
    lengths: how many rows each rank's part has, the same list on every rank. They may differ, and be 0.
    Returns a new tensor of shape (sum(lengths), …).
    """
    ### BEGIN SOLUTION
    p, rank = comm.size, comm.rank
    whole = part.new_empty((sum(lengths), *part.shape[1:]))
    slots = whole.split(lengths)  # views: what is received into a slot stands in its place
    slots[rank].copy_(part)
    for k in range(p - 1):
        comm.sendrecv(slots[(rank - k) % p], (rank + 1) % p, slots[(rank - k - 1) % p], (rank - 1) % p)
    return whole
    ### END SOLUTION

# %% nbgrader={"grade_id": "ring_all_gather_check", "grade": true, "points": 14}
check.ring_all_gather(ring_all_gather)
### BEGIN HIDDEN TESTS
check.ring_all_gather(ring_all_gather, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ring_all_gather_picture"}
check.ring_all_gather.show(ring_all_gather, p=5)

# %% [markdown] nbgrader={"grade_id": "ring_reduce_scatter_text"}
# ## 4. Reduce-scatter round a ring (16 points)
#
# Every rank has a whole tensor. Rank r needs part r of the sum (or product, minimum, maximum) of them all. Again rank r
# sends to (r+1) mod p and receives from (r-1) mod p, p-1 times, but what goes round are partial results: a rank combines
# the part that it receives with its own part of the same number, and sends the result on in the next step.
#
# Part j has to end on rank j with the contributions of all p ranks in it. On which rank does it begin, then, and which
# part does rank r send in step k? Write down the steps for p = 3 before you program them.
#
# Combine with `comm.combine(acc, incoming, op)`, so that the simulated clock can charge gamma seconds a byte for it:
# (p-1) alpha + (p-1)/p n (beta + gamma) seconds.

# %% nbgrader={"grade_id": "ring_reduce_scatter", "solution": true}
def ring_reduce_scatter(comm, tensor, op):
    """Part r of all ranks' tensors combined element by element, on rank r, in p-1 steps round a ring.

    tensor: (rows, …), of the same shape and dtype on every rank.
    op:     "sum", "product", "min" or "max", as `comm.combine` takes it.
    Returns this rank's part of the result, cut as `tensor.tensor_split(p)[rank]`.
    """
    ### BEGIN SOLUTION
    p, rank = comm.size, comm.rank
    parts = tensor.clone().tensor_split(p)
    for k in range(p - 1):
        outgoing, mine = parts[(rank - k - 1) % p], parts[(rank - k - 2) % p]
        incoming = torch.empty_like(mine)
        comm.sendrecv(outgoing, (rank + 1) % p, incoming, (rank - 1) % p)
        comm.combine(mine, incoming, op)
    return parts[rank].clone()
    ### END SOLUTION

# %% nbgrader={"grade_id": "ring_reduce_scatter_check", "grade": true, "points": 16}
check.ring_reduce_scatter(ring_reduce_scatter)
### BEGIN HIDDEN TESTS
check.ring_reduce_scatter(ring_reduce_scatter, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "all_reduce_text"}
# ## 5. All-reduce, in two ways (12 points)
#
# An all-reduce gives every rank the sum (or product, minimum, maximum) of all ranks' tensors. It needs no messages of
# its own: two other collectives, one after the other, make it. Which two depends on the length of the vector.
#
# - For *short* vectors few rounds count: combine everything on one rank along the tree, and send it out again along the
#   tree. 2 L rounds, and in each of them whole tensors travel.
# - For *long* vectors busy links count: leave each rank with a combined part, then bring all parts to all ranks, both
#   round the ring. No rank sends more than about 2 (p-1)/p n bytes, however many ranks there are.
#
# Here you use the library, where each collective is called by all ranks and returns this rank's result:
#
# | | returns |
# |---|---|
# | `collectives.broadcast(comm, tensor, root, algorithm=…)` | the root's tensor; every rank passes one of its shape |
# | `collectives.reduce(comm, tensor, root, op, algorithm=…)` | the combined tensor on the root, `None` elsewhere |
# | `collectives.scatter(comm, tensor, root, algorithm=…)` | part r of the root's tensor |
# | `collectives.reduce_scatter(comm, tensor, op, algorithm=…)` | part r of the combined tensor |
# | `collectives.all_gather(comm, part, lengths=…, algorithm=…)` | all parts, in order; `lengths` as in exercise 3 |
#
# `algorithm` is `"mst"` for the tree and `"ring"` for the ring; say which, or the library chooses. `all_reduce` itself is
# not allowed, of course.

# %% nbgrader={"grade_id": "short_all_reduce", "solution": true}
def short_all_reduce(comm, tensor, op):
    """All ranks' tensors combined element by element, on every rank, in 2 ceil(log2 p) rounds.

    tensor: (rows, …), of the same shape and dtype on every rank.  op: "sum", "product", "min" or "max".
    Returns a new tensor of the same shape and dtype.
    """
    ### BEGIN SOLUTION
    total = collectives.reduce(comm, tensor, 0, op, algorithm="mst")
    return collectives.broadcast(comm, tensor if total is None else total, 0, algorithm="mst")
    ### END SOLUTION

# %% nbgrader={"grade_id": "short_all_reduce_check", "grade": true, "points": 5}
check.short_all_reduce(short_all_reduce)
### BEGIN HIDDEN TESTS
check.short_all_reduce(short_all_reduce, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "long_all_reduce", "solution": true}
def long_all_reduce(comm, tensor, op):
    """All ranks' tensors combined element by element, on every rank; each rank sends about 2 (p-1)/p n bytes.

    tensor: (rows, …), of the same shape and dtype on every rank.  op: "sum", "product", "min" or "max".
    Returns a new tensor of the same shape and dtype.
    """
    ### BEGIN SOLUTION
    lengths = [len(part) for part in tensor.tensor_split(comm.size)]
    part = collectives.reduce_scatter(comm, tensor, op, algorithm="ring")
    return collectives.all_gather(comm, part, lengths=lengths, algorithm="ring")
    ### END SOLUTION

# %% nbgrader={"grade_id": "long_all_reduce_check", "grade": true, "points": 7}
check.long_all_reduce(long_all_reduce)
### BEGIN HIDDEN TESTS
check.long_all_reduce(long_all_reduce, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "cost_text"}
# ## 6. What they cost (10 points)
#
# In the model of the chapter a message of m bytes takes alpha + m beta seconds, and combining m bytes takes m gamma
# seconds. A rank sends one message at a time and receives one at a time, and may do both at once. The time of a
# collective on p ranks is then
#
# a · alpha + b · n beta + g · n gamma
#
# with three numbers a, b, g that depend on p alone. n is the bytes of the *whole* tensor: of what ends up on every rank in a
# broadcast, an all-gather or an all-reduce, and of what every rank begins with in a reduction. The root is rank 0, and p
# divides the number of rows. p is any number of ranks, but a power of two where a scatter or a gather takes part.
#
# The texts of exercises 1 to 4 name the costs of the building blocks (a reduce is a broadcast run backwards, with a
# combine after each message; a gather is a scatter run backwards). What do the operations cost that are made of two, where
# the second begins when the first has ended?
#
# | | `"mst"`: short vectors | `"ring"`: long vectors |
# |---|---|---|
# | `"broadcast"` | tree | scatter, then all-gather |
# | `"reduce"` | tree | reduce-scatter, then gather |
# | `"all_gather"` | gather, then broadcast | ring |
# | `"reduce_scatter"` | reduce, then scatter | ring |
# | `"all_reduce"` | reduce, then broadcast | reduce-scatter, then all-gather |

# %% nbgrader={"grade_id": "cost", "solution": true}
def cost(op, algorithm, p):
    """The time of a collective, as the coefficients (a, b, g) of alpha, n beta and n gamma.

    op:        "broadcast", "reduce", "all_gather", "reduce_scatter" or "all_reduce".
    algorithm: "mst" or "ring", as in the table above.
    p:         the number of ranks, 1 or more; a power of two where a scatter or a gather takes part.
    Returns three numbers.
    """
    ### BEGIN SOLUTION
    def then(first, second):
        return tuple(x + y for x, y in zip(first, second, strict=True))

    L, c = math.ceil(math.log2(p)), (p - 1) / p
    broadcast, reduce = (L, L, 0), (L, L, L)
    scatter = gather = (L, c, 0)
    all_gather, reduce_scatter = (p - 1, c, 0), (p - 1, c, c)
    return {
        ("broadcast", "mst"): broadcast,
        ("reduce", "mst"): reduce,
        ("all_gather", "mst"): then(gather, broadcast),
        ("reduce_scatter", "mst"): then(reduce, scatter),
        ("all_reduce", "mst"): then(reduce, broadcast),
        ("broadcast", "ring"): then(scatter, all_gather),
        ("reduce", "ring"): then(reduce_scatter, gather),
        ("all_gather", "ring"): all_gather,
        ("reduce_scatter", "ring"): reduce_scatter,
        ("all_reduce", "ring"): then(reduce_scatter, all_gather),
    }[op, algorithm]
    ### END SOLUTION

# %% nbgrader={"grade_id": "cost_check", "grade": true, "points": 10}
check.cost(cost)
### BEGIN HIDDEN TESTS
check.cost(cost, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "choice_text"}
# ## 7. Choosing the algorithm (10 points)
#
# The short all-reduce has fewer rounds, the long one moves fewer bytes. Somewhere in between lies the length at which
# both take the same time. First find that length, from what each of them costs (exercise 6; the chapter's table of costs
# has the same). For p = 2 and p = 3 the ring has no more rounds than the tree: there it is 0.

# %% nbgrader={"grade_id": "crossover", "solution": true}
def crossover(p, alpha, beta, gamma):
    """The length n, in bytes, at which the short and the long all-reduce take the same time.

    p: the number of ranks, 2 or more.  alpha: s a message.  beta: s/byte sent.  gamma: s/byte combined.
    Returns a number of bytes, 0 or more, not necessarily whole.
    """
    ### BEGIN SOLUTION
    L, c = math.ceil(math.log2(p)), (p - 1) / p
    return 2 * (p - 1 - L) * alpha / (2 * (L - c) * beta + (L - c) * gamma)
    ### END SOLUTION

# %% nbgrader={"grade_id": "crossover_check", "grade": true, "points": 5}
check.crossover(crossover)
### BEGIN HIDDEN TESTS
check.crossover(crossover, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "fast_all_reduce_text"}
# Now use it: an all-reduce that is never slower than the better of the two. `comm.link.alpha`, `comm.link.beta` and
# `comm.link.gamma` say what things cost here; `collectives.all_reduce(comm, tensor, op, algorithm=…)` does the work, with
# `"mst"` (short) or `"ring"` (long). `"auto"` would take the exercise from you. Every rank must come to the same choice.
#
# If `crossover` doesn't work yet, compare the two times themselves.

# %% nbgrader={"grade_id": "fast_all_reduce", "solution": true}
def fast_all_reduce(comm, tensor, op):
    """All ranks' tensors combined element by element, on every rank, by the faster of "mst" and "ring".

    tensor: (rows, …), of the same shape and dtype on every rank.  op: "sum", "product", "min" or "max".
    Returns a new tensor of the same shape and dtype.
    """
    ### BEGIN SOLUTION
    p, n, link = comm.size, tensor.nbytes, comm.link
    L, c = math.ceil(math.log2(p)), (p - 1) / p
    short = 2 * L * link.alpha + 2 * L * n * link.beta + L * n * link.gamma
    long = 2 * (p - 1) * link.alpha + 2 * c * n * link.beta + c * n * link.gamma
    return collectives.all_reduce(comm, tensor, op, algorithm="mst" if short < long else "ring")
    ### END SOLUTION

# %% nbgrader={"grade_id": "fast_all_reduce_check", "grade": true, "points": 5}
check.fast_all_reduce(fast_all_reduce)
### BEGIN HIDDEN TESTS
check.fast_all_reduce(fast_all_reduce, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "deadlock_text"}
# ## 8. A program that hangs (12 points)
#
# A simulation of heat in a rod is spread over p ranks that stand on a line. In every step each rank needs the rows of its
# two neighbours, so each sends its row to both. Beyond the ends of the line there is nothing: zeros. Somebody wrote the
# following, and on a cluster it never ends. The simulated world says why.

# %% nbgrader={"grade_id": "hanging_exchange"}
def hanging_exchange(comm, row):
    left, right = torch.zeros_like(row), torch.zeros_like(row)
    if comm.rank < comm.size - 1:
        comm.send(row, comm.rank + 1)
        comm.recv(right, comm.rank + 1)
    if comm.rank > 0:
        comm.send(row, comm.rank - 1)
        comm.recv(left, comm.rank - 1)
    return torch.stack([left, row, right])


try:
    simulate(hanging_exchange, [torch.tensor([float(rank)]) for rank in range(4)])
except Deadlock as deadlock:
    print(deadlock)

# %% [markdown] nbgrader={"grade_id": "deadlock_cycle_text"}
# All ranks wait, but only some of them wait *for one another, in a circle*; the others wait for somebody who waits. The
# circle is where to look for the mistake. Try other world sizes, then say which ranks are in it.

# %% nbgrader={"grade_id": "deadlock_cycle", "solution": true}
def deadlock_cycle(p):
    """The ranks that wait for one another in a circle when p ranks run `hanging_exchange`.

    p: the number of ranks, 1 or more.  Returns a list of ranks, in any order; [] where no rank waits in a circle.
    """
    ### BEGIN SOLUTION
    return [p - 2, p - 1] if p > 1 else []
    ### END SOLUTION

# %% nbgrader={"grade_id": "deadlock_cycle_check", "grade": true, "points": 4}
check.deadlock_cycle(deadlock_cycle)
### BEGIN HIDDEN TESTS
check.deadlock_cycle(deadlock_cycle, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "exchange_text"}
# Now mend it. Each rank still sends exactly one message to each neighbour. All exchanges that can go on at the same time
# should: at most 4 rounds, however many ranks there are. (The first thing that comes to mind may end, but take p-1 rounds.)

# %% nbgrader={"grade_id": "exchange", "solution": true}
def exchange(comm, row):
    """The rows of the left neighbour, this rank and the right neighbour, on a line of ranks, in at most 4 rounds.

    row: any shape, of the same shape and dtype on every rank.
    Returns a tensor of shape (3, *row.shape): [row of rank-1, own row, row of rank+1]; zeros where there is no neighbour.
    """
    ### BEGIN SOLUTION
    rank, p = comm.rank, comm.size
    left, right = torch.zeros_like(row), torch.zeros_like(row)
    for to, source, out in ((rank + 1, rank - 1, left), (rank - 1, rank + 1, right)):  # all right, then all left
        works = []
        if 0 <= source < p:
            works.append(comm.irecv(out, source))
        if 0 <= to < p:
            works.append(comm.isend(row, to))
        for work in works:
            work.wait()
    return torch.stack([left, row, right])
    ### END SOLUTION

# %% nbgrader={"grade_id": "exchange_check", "grade": true, "points": 8}
check.exchange(exchange)
### BEGIN HIDDEN TESTS
check.exchange(exchange, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "end"}
# That is a complete all-reduce, and the reasons for its shape. The same functions run unchanged on real processes:
# replace `simulate` by `launch`, and compare the measured times with exercise 6.
