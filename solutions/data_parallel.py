# %% [markdown] nbgrader={"grade_id": "intro"}
# # Data parallelism
#
# Every worker has the whole model and a part of the batch. What the workers find, their gradients, has to be brought
# together in each step: on a *parameter server*, or in an *all-reduce* among the workers themselves. In this lab you will
#
# 1. write one step of training with servers that share the weights among them,
# 2. decide which workers may go on when some are slow, and say what waiting costs,
# 3. count how stale an update is,
# 4. make a server apply every update once, even where it comes twice,
# 5. compare the time on the network of servers and of a ring,
# 6. average gradients of batches that are not equally long,
# 7. put gradients into buckets, and reduce a bucket at a time, and
# 8. say what is gained when buckets are reduced while the backward pass goes on.
#
# Read the chapter *Data parallelism* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and needs
# no GPU. The exercises don't depend on one another.

# %% nbgrader={"grade_id": "imports"}
import torch

from mlsyslab import collectives
from mlsyslab.check import data_parallel as check

# %% [markdown] nbgrader={"grade_id": "rules"}
# Some exercises ask for a function that every rank runs. It knows of the others through its communicator alone:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, and the number of ranks p |
# | `comm.send(tensor, to)` | send to rank `to`; ends only when it has been *received* |
# | `comm.recv(out, source)` | receive from rank `source` into `out`, of the sent shape and dtype; returns `out` |
# | `collectives.all_reduce(comm, tensor, op="sum")` | the sum over all ranks (or their "mean", "max", …), on every rank |
#
# The others are functions of plain data, and no ranks take part. All leave their arguments as they are, and use nothing of
# `mlsyslab.data_parallel`, which knows the answers: look there afterwards.
#
# The check below each exercise calls your function on many inputs and looks at the values, and where there are ranks, at who
# sent how much to whom. Grading repeats it on inputs that you don't see. `check.NAME.show(NAME, p=4)` draws a run of a
# function with ranks.

# %% [markdown] nbgrader={"grade_id": "push_pull_text"}
# ## 1. Push and pull (14 points)
#
# The weights are a vector of n numbers. Ranks 0 … S-1 are *servers*, and server s holds part s of
# `torch.tensor_split(weights, S)`, its *shard*. The other W = p - S ranks are *workers*; each has computed a gradient of all
# n weights, on its own part of the batch. Write one synchronous step:
#
# - Each worker *pushes* to every server the part of its gradient that belongs to that server's shard.
# - A server that has the pushes of all workers *updates* its shard: w := w - rate · (mean of the W gradients).
# - Each worker *pulls* the new shard from every server, and puts the weights together.
#
# Workers talk to servers and to nobody else. One message for each push, and one for each pull.

# %% nbgrader={"grade_id": "push_pull", "solution": true}
def push_pull(comm, S, mine, rate):
    """One step of training with S servers, as one rank does it; ranks 0 … S-1 are the servers, the others are workers.

    S:    the number of servers, 1 … p-1.
    mine: on server s its shard of the weights, part s of n numbers cut by torch.tensor_split; it may be empty.
          On a worker its gradient, (n,).
    rate: the learning rate.
    Returns the new shard on a server, and all new weights, (n,), on a worker.
    """
    ### BEGIN SOLUTION
    servers, workers = range(S), range(S, comm.size)
    if comm.rank < S:
        total = torch.zeros_like(mine)
        for worker in workers:
            total += comm.recv(torch.empty_like(mine), worker)
        shard = mine - rate * total / len(workers)
        for worker in workers:
            comm.send(shard, worker)
        return shard
    parts = mine.tensor_split(S)
    for server in servers:
        comm.send(parts[server], server)
    return torch.cat([comm.recv(torch.empty_like(parts[server]), server) for server in servers])
    ### END SOLUTION

# %% nbgrader={"grade_id": "push_pull_check", "grade": true, "points": 14}
check.push_pull(push_pull)
### BEGIN HIDDEN TESTS
check.push_pull(push_pull, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "push_pull_show"}
# Look at a run: two servers, two workers.

# %% nbgrader={"grade_id": "push_pull_picture"}
check.push_pull.show(push_pull, p=4)

# %% [markdown] nbgrader={"grade_id": "may_start_text"}
# ## 2. Who may go on (16 points)
#
# In the step above everybody waits for the slowest worker. Let a worker go on without the others then, but not too far:
# under *stale synchronous parallel* (SSP) with bound s, a worker may begin its next iteration if it has completed at most s
# iterations more than the slowest worker has. With s = 0 that is bulk synchronous (BSP), with s = infinity it is
# asynchronous (ASP).

# %% nbgrader={"grade_id": "may_start", "solution": true}
def may_start(clocks, worker, s):
    """Whether a worker may begin its next iteration.

    clocks: how many iterations each worker has completed, a list of W whole numbers.
    worker: the worker that asks, 0 … W-1.
    s:      the bound, a whole number of 0 or more, or math.inf.
    Returns True or False.
    """
    ### BEGIN SOLUTION
    return clocks[worker] - min(clocks) <= s
    ### END SOLUTION

# %% nbgrader={"grade_id": "may_start_check", "grade": true, "points": 4}
check.may_start(may_start)
### BEGIN HIDDEN TESTS
check.may_start(may_start, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "finish_times_text"}
# What does the bound cost? Worker w needs `seconds[w][k]` seconds for its iteration k (counted from 0). It begins as soon as
# it has ended its iteration k-1 and the bound lets it: before iteration k it has completed k of them, so everybody must have
# completed at least k-s. Messages take no time.
#
# Say for each worker when each of its iterations ends. Which iteration of the others is the last one that it waits for?
# Mind the first s iterations, and s = infinity.

# %% nbgrader={"grade_id": "finish_times", "solution": true}
def finish_times(seconds, s):
    """When each iteration of each worker ends under SSP.

    seconds: W lists of K numbers, the seconds that each worker needs for each of its iterations.
    s:       the bound, a whole number of 0 or more, or math.inf.
    Returns W lists of K numbers, in seconds from the beginning.
    """
    ### BEGIN SOLUTION
    W, K = len(seconds), len(seconds[0])
    ends = [[] for _ in range(W)]
    for k in range(K):
        allowed = max(ends[w][int(k - s - 1)] for w in range(W)) if k > s else 0.0
        for w in range(W):
            begin = max(allowed, ends[w][-1] if k > 0 else 0.0)
            ends[w].append(begin + seconds[w][k])
    return ends
    ### END SOLUTION

# %% nbgrader={"grade_id": "finish_times_check", "grade": true, "points": 12}
check.finish_times(finish_times)
### BEGIN HIDDEN TESTS
check.finish_times(finish_times, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "staleness_text"}
# ## 3. How stale is an update? (8 points)
#
# A worker that doesn't wait computes its gradient with weights that others change meanwhile. The *staleness* of a push is
# the number of updates that the server has applied between the worker's last pull and this push: so many updates are missing
# from the weights that its gradient was computed with. Every push is applied at once.
#
# A server's log has a line for each pull and push, in the order in which they came. A worker may push several times after
# one pull.

# %% nbgrader={"grade_id": "staleness", "solution": true}
def staleness(log):
    """The staleness of each push in a server's log.

    log: pairs such as ("pull", 2) and ("push", 2), with the worker's number, in order; a worker's first line is a pull.
    Returns a list of whole numbers, one for each push, in the order of the log.
    """
    ### BEGIN SOLUTION
    updates, pulled, found = 0, {}, []
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = updates
        else:
            found.append(updates - pulled[worker])
            updates += 1
    return found
    ### END SOLUTION

# %% nbgrader={"grade_id": "staleness_check", "grade": true, "points": 8}
check.staleness(staleness)
### BEGIN HIDDEN TESTS
check.staleness(staleness, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "apply_once_text"}
# ## 4. Every update once (12 points)
#
# A server dies, and its replica takes over. The replica has every update that was acknowledged; of those that were on their
# way nobody knows. So a worker keeps an update until it is acknowledged, and sends it again when the server has changed.
# Then some come twice, and a gradient that is added twice is a wrong step.
#
# Each worker numbers its updates 0, 1, 2, …. A server remembers for each worker the number of the last one that it applied
# (-1 before the first), and so it knows what to do with the next message of that worker:
#
# - the number that follows: apply it (add it to the weights), and acknowledge it;
# - a number that it has already applied: don't apply it again, but acknowledge it, or it would be sent for ever;
# - a number further ahead: one before it was lost. Neither apply nor acknowledge it; both will come again.

# %% nbgrader={"grade_id": "apply_once", "solution": true}
def apply_once(weight, applied, messages):
    """What a server does with the messages that come, each of its workers' updates being applied once.

    weight:   (n,), the server's weights.
    applied:  for each worker the number of its last update that was applied, -1 for none.
    messages: (worker, number, update) in the order in which they come; update: (n,), to be added to the weights.
    Returns (weight, applied, acknowledged): the new weights, the new list of last numbers, and for each message
    True or False.
    """
    ### BEGIN SOLUTION
    weight, applied, acknowledged = weight.clone(), list(applied), []
    for worker, number, update in messages:
        if number == applied[worker] + 1:
            weight += update
            applied[worker] = number
        acknowledged.append(number <= applied[worker])
    return weight, applied, acknowledged
    ### END SOLUTION

# %% nbgrader={"grade_id": "apply_once_check", "grade": true, "points": 12}
check.apply_once(apply_once)
### BEGIN HIDDEN TESTS
check.apply_once(apply_once, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "sync_seconds_text"}
# ## 5. Server or ring? (10 points)
#
# W workers have gradients of n bytes each, and in the end every one has what it needs for its next step. How long does the
# exchange take? Every machine has one link, which sends at 1/beta bytes a second and receives at the same rate at the same
# time (full duplex). Vectors are long, so leave latency out, and combining numbers takes no time. Three ways:
#
# - `"server"`: S servers on machines of their own, each with n/S bytes of the weights. All workers push; when all that is
#   done, all pull. Within each of the two the messages are so well ordered that the busiest link never rests.
# - `"beside"`: a server runs beside each worker, on the same machine (S = W). What it has to say to the worker beside it
#   crosses no link.
# - `"ring"`: no servers (S = 0), a ring all-reduce among the workers.
#
# Which link is the busiest? It isn't always the same one.

# %% nbgrader={"grade_id": "sync_seconds", "solution": true}
def sync_seconds(way, workers, servers, n, beta):
    """Seconds on the network for one exchange of gradients.

    way:     "server", "beside" or "ring".
    workers: W, 1 or more.  servers: S; W for "beside" and 0 for "ring".
    n:       bytes of the gradient, of the weights too.  beta: seconds a byte.
    """
    ### BEGIN SOLUTION
    busiest = max(n, workers * n / servers) if way == "server" else (workers - 1) / workers * n
    return 2 * busiest * beta
    ### END SOLUTION

# %% nbgrader={"grade_id": "sync_seconds_check", "grade": true, "points": 10}
check.sync_seconds(sync_seconds)
### BEGIN HIDDEN TESTS
check.sync_seconds(sync_seconds, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "average_text"}
# ## 6. The mean of what? (12 points)
#
# The loss of a batch is the mean over its rows, and so is its gradient. The batch is dealt out to p ranks; each has computed
# the gradient of the mean loss over *its own* rows. Where every rank has the same number of rows, the gradient of the whole
# batch is the mean of these. The last batch of an epoch is not so kind: rows are left over, and some ranks have fewer of
# them, or none at all. A mean over no rows is 0/0, so the gradient of such a rank is full of NaN.
#
# Return the gradient of the mean loss over all rows of all ranks, on every rank. Use `collectives.all_reduce`.

# %% nbgrader={"grade_id": "average", "solution": true}
def average(comm, gradient, rows):
    """The gradient of the mean loss over the whole batch.

    gradient: (n,), the gradient of the mean loss over this rank's rows; NaN where there are none.
    rows:     how many rows this rank has, 0 or more; not 0 on all ranks.
    Returns (n,), the same on every rank.
    """
    ### BEGIN SOLUTION
    total = gradient * rows if rows else torch.zeros_like(gradient)
    number = torch.tensor([rows], dtype=gradient.dtype)
    summed = collectives.all_reduce(comm, torch.cat([total, number]))
    return summed[:-1] / summed[-1]
    ### END SOLUTION

# %% nbgrader={"grade_id": "average_check", "grade": true, "points": 12}
check.average(average)
### BEGIN HIDDEN TESTS
check.average(average, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "make_buckets_text"}
# ## 7. Buckets (20 points)
#
# A model has hundreds of parameters, many of them small. An all-reduce for each would be all latency; one for all of them
# couldn't begin before the last gradient is there. So gradients go into *buckets*, in the order in which the backward pass
# finds them: that of the last parameter first. A parameter is put into the bucket that is open, and when the bucket then
# holds `limit` bytes or more, it is closed and the next one is opened. The first bucket has a smaller limit of its own, so
# that something can leave early. The last one may be less than full.

# %% nbgrader={"grade_id": "make_buckets", "solution": true}
def make_buckets(sizes, first, limit):
    """Which parameters' gradients are reduced together.

    sizes: bytes of each parameter, in the order of the forward pass, one or more.
    first: bytes at which the first bucket is closed.  limit: bytes at which each of the others is closed.
    Returns a list of buckets, in the order in which they fill; a bucket is a list of parameters' numbers (places in
    `sizes`), in the order in which their gradients come.
    """
    ### BEGIN SOLUTION
    buckets, bucket, room = [], [], first
    for number in reversed(range(len(sizes))):
        bucket.append(number)
        if sum(sizes[i] for i in bucket) >= room:
            buckets.append(bucket)
            bucket, room = [], limit
    return buckets + [bucket] if bucket else buckets
    ### END SOLUTION

# %% nbgrader={"grade_id": "make_buckets_check", "grade": true, "points": 8}
check.make_buckets(make_buckets)
### BEGIN HIDDEN TESTS
check.make_buckets(make_buckets, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "reduce_buckets_text"}
# Now reduce them. Each rank has a gradient for each parameter, or None for a parameter that its part of the batch didn't use
# (an expert that no token was sent to, say). Put a bucket's gradients one behind the other into one flat tensor, all-reduce
# that, and cut it up again: one all-reduce a bucket, in the order of the buckets. Ranks have equal batches here, so the
# result is the mean over all p ranks, and a rank without a gradient counts as zeros.

# %% nbgrader={"grade_id": "reduce_buckets", "solution": true}
def reduce_buckets(comm, parameters, gradients, buckets):
    """The mean of every gradient over all ranks, one all-reduce a bucket.

    parameters: a list of tensors of any shapes, the same on every rank.
    gradients:  for each parameter this rank's gradient, of its shape and dtype, or None where this rank didn't use it.
    buckets:    lists of parameters' numbers, the same on every rank; each parameter is in one of them.
    Returns a list of tensors, for each parameter the mean of its gradient, of its shape.
    """
    ### BEGIN SOLUTION
    means = [None] * len(parameters)
    for bucket in buckets:
        own = [torch.zeros_like(parameters[k]) if gradients[k] is None else gradients[k] for k in bucket]
        mean = collectives.all_reduce(comm, torch.cat([gradient.flatten() for gradient in own]), op="mean")
        for k, part in zip(bucket, mean.split([gradient.numel() for gradient in own]), strict=True):
            means[k] = part.view(parameters[k].shape)
    return means
    ### END SOLUTION

# %% nbgrader={"grade_id": "reduce_buckets_check", "grade": true, "points": 12}
check.reduce_buckets(reduce_buckets)
### BEGIN HIDDEN TESTS
check.reduce_buckets(reduce_buckets, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "reduce_buckets_picture"}
check.reduce_buckets.show(reduce_buckets, p=3)

# %% [markdown] nbgrader={"grade_id": "step_seconds_text"}
# ## 8. What overlap gains (8 points)
#
# A bucket whose gradients are all there can be reduced while the backward pass goes on. The all-reduce of a bucket takes
# a + b · (its bytes) seconds, and slows the backward pass down in nothing. They go one after the other, in the order of the
# buckets, which is the same on all ranks: a bucket waits for those before it, even if it is ready first. When has the last
# one been reduced?

# %% nbgrader={"grade_id": "step_seconds", "solution": true}
def step_seconds(seconds, sizes, buckets, a, b):
    """Seconds from the beginning of the backward pass until every bucket has been reduced.

    seconds: what the backward pass takes for each parameter's gradient, in the order of the forward pass. They come in
             reverse, one after the other.
    sizes:   bytes of each gradient.
    buckets: lists of parameters' numbers, in the order in which they are reduced; each parameter is in one of them.
    a, b:    seconds an all-reduce, and seconds a byte of it.
    """
    ### BEGIN SOLUTION
    free = 0.0
    for bucket in buckets:
        ready = sum(seconds[min(bucket):])
        free = max(ready, free) + a + b * sum(sizes[k] for k in bucket)
    return free
    ### END SOLUTION

# %% nbgrader={"grade_id": "step_seconds_check", "grade": true, "points": 8}
check.step_seconds(step_seconds)
### BEGIN HIDDEN TESTS
check.step_seconds(step_seconds, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "sizes_text"}
# What is the best size of a bucket? With your two functions, for a model of 24 parameters of 4 MB each, 2.4 ms of backward
# pass for each, and an all-reduce that takes 2 ms and 0.4 ms for each MB. Why are small buckets bad, and why large ones?

# %% nbgrader={"grade_id": "sizes"}
def step_by_limit(limit):
    """Milliseconds of a step, for buckets of `limit` MB."""
    sizes = [4.0] * 24
    return step_seconds([2.4] * 24, sizes, make_buckets(sizes, limit, limit), a=2.0, b=0.4)

try:
    for limit in (4, 8, 12, 16, 32, 96):
        print(f"{limit:3} MB  {step_by_limit(limit):.1f} ms")
except NotImplementedError:
    print("Come back when exercises 7 and 8 are written.")
