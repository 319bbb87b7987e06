# %% [markdown] nbgrader={"grade_id": "intro"}
# # ZeRO: nothing is kept twice
#
# In data parallelism every rank keeps all parameters, all gradients and the whole state of the optimizer, and every rank
# keeps the same. ZeRO (the Zero Redundancy Optimizer) cuts them into *shards*, one a rank, and fetches a piece when it is
# used. In this lab you will
#
# 1. count the bytes that each stage of ZeRO keeps on a rank,
# 2. count what each stage sends,
# 3. cut a list of parameters into shards of (almost) equal length,
# 4. train with stage 1: each rank updates its shard only, and keeps the optimizer's state of that shard only,
# 5. go backward with stage 2: each layer's gradient is reduced as soon as it is there, and then gone,
# 6. make a step of stage 3: gather a layer, use it, free it, and
# 7. clip a gradient that nobody has.
#
# Read the chapter *ZeRO* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and needs no GPU. The
# exercises don't depend on one another.

# %% nbgrader={"grade_id": "imports"}
import torch

from mlsyslab import collectives, simulate
from mlsyslab.check import zero as check
from mlsyslab.collectives.parts import even_lengths

# %% [markdown] nbgrader={"grade_id": "world"}
# ## What you work with
#
# There are p ranks, and M parameters in all. Whatever is cut, is cut as `torch.tensor_split` does it: the first parts are
# longer by one where p doesn't divide the length. `even_lengths(length, p)` gives these lengths, and part r is rank r's.
#
# Each of your functions that takes a `comm` is run by every rank. Of `mlsyslab.collectives` you need
#
# | | |
# |---|---|
# | `reduce_scatter(comm, tensor, op)` | rank r gets part r of the tensors of all ranks, combined by `op`: "sum" or "mean" |
# | `all_gather(comm, part, lengths=…)` | every rank gets the parts of all ranks, one after the other; `lengths` are theirs |
# | `all_reduce(comm, tensor, op)` | every rank gets the tensors of all ranks, combined by `op` |
#
# They work on tensors of one dimension here: `flatten()` a matrix before it goes in, `view` what comes out.
#
# Run the next cell: five numbers on three ranks, reduced, scattered, and gathered again.

# %% nbgrader={"grade_id": "example"}
def there_and_back(comm, tensor):
    """The sum of all ranks' tensors, in two halves."""
    part = collectives.reduce_scatter(comm, tensor, "sum")
    return part, collectives.all_gather(comm, part, lengths=even_lengths(len(tensor), comm.size))


for rank, (part, whole) in enumerate(simulate(there_and_back, [torch.arange(5.0) * 10**rank for rank in range(3)]).results):
    print(f"rank {rank} had {part.tolist()}, and then {whole.tolist()}")

# %% [markdown] nbgrader={"grade_id": "rules"}
# Rules for all exercises:
#
# - Your functions work for every number of ranks p >= 1, and also for lengths that p doesn't divide; with fewer elements
#   than ranks some shards are empty.
# - They leave their arguments as they are, and don't call `mlsyslab.zero`. Look there afterwards.
#
# The check below each exercise calls your function on many inputs. It looks at what comes back, at what was sent, and at
# how much memory each rank's tensors took on the way: a rank that keeps everything has not understood ZeRO, even when all
# its values are right. Grading repeats the check on inputs that you don't see.

# %% [markdown] nbgrader={"grade_id": "state_bytes_text"}
# ## 1. What a rank keeps (12 points)
#
# Training keeps, for each parameter,
#
# | | `"mixed"` | `"single"` |
# |---|---|---|
# | the parameter | 2 bytes | 4 bytes |
# | its gradient | 2 bytes | 4 bytes |
# | a master copy of the parameter, for the update | 4 bytes | none |
# | each number of the optimizer's state | 4 bytes | 4 bytes |
#
# where `"adam"` has a state of two numbers for each parameter, `"momentum"` of one, and `"sgd"` of none. The master copy is
# counted with the optimizer. Stage 1 cuts the optimizer (master copy and state) into p shards, stage 2 the gradients too,
# and stage 3 the parameters too. Stage 0 is plain data parallelism: nothing is cut.
#
# Give the bytes on rank 0, whose shard is never shorter than the others'. A byte too few is a shard that doesn't fit.

# %% nbgrader={"grade_id": "state_bytes", "solution": true}
def state_bytes(M, p, stage, precision, optimizer):
    """The bytes of parameters, gradients and optimizer on rank 0.

    M: the number of parameters.  p: the number of ranks.  stage: 0, 1, 2 or 3.
    precision: "mixed" or "single".  optimizer: "adam", "momentum" or "sgd".
    Returns a dict of whole numbers: {"parameters": …, "gradients": …, "optimizer": …}.
    """
    ### BEGIN SOLUTION
    numbers = {"adam": 2, "momentum": 1, "sgd": 0}[optimizer]
    each, master = (2, 4) if precision == "mixed" else (4, 0)
    shard = -(-M // p)
    return {"parameters": each * (shard if stage >= 3 else M), "gradients": each * (shard if stage >= 2 else M),
            "optimizer": (master + 4 * numbers) * (shard if stage >= 1 else M)}
    ### END SOLUTION

# %% nbgrader={"grade_id": "state_bytes_check", "grade": true, "points": 12}
check.state_bytes(state_bytes)
### BEGIN HIDDEN TESTS
check.state_bytes(state_bytes, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "elements_sent_text"}
# ## 2. What a rank sends (10 points)
#
# Say that p divides M, and that all goes over a ring. Then a reduce-scatter of M elements makes each rank send (p-1)/p M of
# them, and an all-gather of M elements as many; an all-reduce is the one after the other.
#
# A training step may take several microbatches, k of them, whose gradients add up before the one update at its end.
#
# - Stage 0 adds them up on each rank, and all-reduces the sum once.
# - Stage 1 adds them up too. It reduce-scatters the sum once, updates, and all-gathers the new parameters.
# - Stage 2 has no room for the sum: it reduce-scatters the gradients of every microbatch, and adds up shards. Then it
#   updates, and all-gathers the new parameters.
# - Stage 3 has no room for the parameters either: it gathers them for every forward and again for every backward, and
#   reduce-scatters the gradients of every microbatch. After the update there is nothing to send.
#
# How many elements does one rank send in a step?

# %% nbgrader={"grade_id": "elements_sent", "solution": true}
def elements_sent(M, p, stage, k):
    """How many elements each rank sends in one training step.

    M: the number of parameters, a multiple of p.  p: the number of ranks.  stage: 0, 1, 2 or 3.
    k: the number of microbatches, 1 or more.
    Returns a number.
    """
    ### BEGIN SOLUTION
    times = {0: 2, 1: 2, 2: k + 1, 3: 3 * k}[stage]
    return times * (p - 1) * M // p
    ### END SOLUTION

# %% nbgrader={"grade_id": "elements_sent_check", "grade": true, "points": 10}
check.elements_sent(elements_sent)
### BEGIN HIDDEN TESTS
check.elements_sent(elements_sent, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "shard_of_text"}
# ## 3. Shards (12 points)
#
# A model is a list of parameters of very different lengths. To cut it evenly, lay them end to end, as one flat vector, and
# cut that: rank r's shard is part r of `tensor_split`. A shard may begin in the middle of one parameter and end in the
# middle of another, or lie inside of one.
#
# For three parameters of 5, 2 and 4 elements and p = 2, the flat vector has 11, and the shards have 6 and 5. Rank 0's is all
# of parameter 0 and the first element of parameter 1; rank 1's is the other element of parameter 1, and parameter 2:
#
# - `shard_of([5, 2, 4], 2, 0)` is `[(0, 0, 5), (1, 0, 1)]`,
# - `shard_of([5, 2, 4], 2, 1)` is `[(1, 1, 2), (2, 0, 4)]`.
#
# Each entry is (which parameter, from which of its elements, up to which), in order, and none is empty.

# %% nbgrader={"grade_id": "shard_of", "solution": true}
def shard_of(lengths, p, r):
    """Which pieces of which parameters make up rank r's shard.

    lengths: the number of elements of each parameter, 0 or more.  p: the number of ranks.  r: the rank, 0 … p-1.
    Returns a list of (parameter, start, stop): its elements start … stop-1, with start < stop.
    """
    ### BEGIN SOLUTION
    parts = even_lengths(sum(lengths), p)
    first = sum(parts[:r])
    last = first + parts[r]
    pieces, offset = [], 0
    for i, length in enumerate(lengths):
        start, stop = max(first - offset, 0), min(last - offset, length)
        if start < stop:
            pieces.append((i, start, stop))
        offset += length
    return pieces
    ### END SOLUTION

# %% nbgrader={"grade_id": "shard_of_check", "grade": true, "points": 12}
check.shard_of(shard_of)
### BEGIN HIDDEN TESTS
check.shard_of(shard_of, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "update_text"}
# ## 4. Stage 1 (20 points)
#
# This is what an optimizer does in a step. It looks at each element by itself, so it can be applied to a shard as well as to
# a whole model: the numbers are the same. You will call it, and needn't change it.

# %% nbgrader={"grade_id": "update"}
def update(optimizer, parameters, gradient, state, t):
    """Step t (counted from 1) of an optimizer, in place.

    optimizer: "sgd", "momentum" or "adamw".  parameters, gradient: of one length.
    state: a list, empty before the first step, in which the optimizer leaves what it needs to remember.
    """
    if not state:
        state += [torch.zeros_like(parameters) for _ in range({"sgd": 0, "momentum": 1, "adamw": 2}[optimizer])]
    if optimizer == "sgd":
        parameters -= 0.1 * gradient
    elif optimizer == "momentum":
        state[0].mul_(0.9).add_(gradient)
        parameters -= 0.1 * state[0]
    else:
        m, v = state
        parameters -= 0.1 * 0.01 * parameters
        m.mul_(0.9).add_(gradient, alpha=0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        parameters -= 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)

# %% [markdown] nbgrader={"grade_id": "zero1_text"}
# Train with stage 1. Every rank has all parameters at the start, and all gradients of its own samples. In each step it
#
# - gets the mean gradient of all ranks, but only of its shard,
# - updates its shard of the parameters, with an optimizer that has state for that shard only,
# - and gets the new parameters of everyone.
#
# Every rank has as many samples as the others, so the gradient of the whole batch is the mean of theirs. A rank may not send
# more than plain data parallelism would: 2 (p-1)/p M elements a step.

# %% nbgrader={"grade_id": "zero1", "solution": true}
def zero1(comm, parameters, gradients, optimizer):
    """Train with ZeRO stage 1, for as many steps as there are gradients.

    parameters: (M,), the same on every rank.  Rank r's shard is part r of tensor_split(p).
    gradients:  for each step, this rank's gradient, (M,): the mean over its own samples.
    optimizer:  "sgd", "momentum" or "adamw", for `update`.
    Returns (parameters, state): the trained parameters, (M,), the same on every rank; and the list of tensors that the
    optimizer remembers on this rank, each as long as this rank's shard.
    """
    ### BEGIN SOLUTION
    lengths, state = even_lengths(len(parameters), comm.size), []
    shard = parameters.tensor_split(comm.size)[comm.rank].clone()
    for t, gradient in enumerate(gradients, 1):
        update(optimizer, shard, collectives.reduce_scatter(comm, gradient, "mean"), state, t)
        parameters = collectives.all_gather(comm, shard, lengths=lengths)
    return parameters, state
    ### END SOLUTION

# %% nbgrader={"grade_id": "zero1_check", "grade": true, "points": 20}
check.zero1(zero1)
### BEGIN HIDDEN TESTS
check.zero1(zero1, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "zero1_show"}
# Look at a run: three steps of training on four ranks. Each is a reduce-scatter (with sums, in the middle strip) and an
# all-gather (without).

# %% nbgrader={"grade_id": "zero1_picture"}
check.zero1.show(zero1, p=4)

# %% [markdown] nbgrader={"grade_id": "zero2_text"}
# ## 5. Stage 2 (14 points)
#
# In stage 1 a rank has its whole gradient before it sends any of it. But backward makes gradients one layer after the other.
# Reduce each when it is there, keep your part, and let the whole go before the next layer's comes: then there is never more
# than a layer of it.
#
# The model is a stack of L linear layers, x_{l+1} = x_l W_l, with nothing between them. Write g_l for the gradient of the
# loss with respect to x_l. From g_{l+1} come two things: the gradient of W_l, which is x_l^T g_{l+1}, and g_l, which is
# g_{l+1} W_l^T.
#
# The loss is a mean over the samples of *all* ranks, and the number of samples need not be the same on all of them. What
# arrives as `gradient` is already divided by the number of all samples, so the gradient of a weight is the *sum* of what the
# ranks find.

# %% nbgrader={"grade_id": "zero2_backward", "solution": true}
def zero2_backward(comm, weights, inputs, gradient):
    """Go backward through the layers, and keep this rank's shard of each gradient.

    weights:  L tensors, W_l of shape (d_l, d_{l+1}), the same on every rank.
    inputs:   L tensors, x_l of shape (rows, d_l): the input of layer l, for this rank's samples.
    gradient: (rows, d_L), the gradient of the loss with respect to the output of the last layer.
    Returns a list of L tensors of one dimension: part r of tensor_split(p) of the flattened gradient of W_l, summed over
    all ranks.
    """
    ### BEGIN SOLUTION
    shards = []
    for W, x in zip(reversed(weights), reversed(inputs), strict=True):
        shards.insert(0, collectives.reduce_scatter(comm, (x.T @ gradient).flatten(), "sum"))
        gradient = gradient @ W.T
    return shards
    ### END SOLUTION

# %% nbgrader={"grade_id": "zero2_backward_check", "grade": true, "points": 14}
check.zero2_backward(zero2_backward)
### BEGIN HIDDEN TESTS
check.zero2_backward(zero2_backward, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "zero3_text"}
# ## 6. Stage 3 (20 points)
#
# Now nobody has the weights. Each rank has its part of every layer, flat, and a layer is put together only while it is used:
# gather it, multiply, let it go. Backward needs it again, and gathers it again; it reduces the layer's gradient to shards as
# in stage 2, and each rank updates its own part, by W_l := W_l - lr · gradient. The new parts stay where they are.
#
# The model is that of exercise 5. The loss is 1/N · the sum over the samples of all ranks of |x_L - target|²/2, where N
# counts the samples of all ranks, so that the gradient begins with (x_L - target) / N on each rank.
#
# The rank's memory is watched. The rule is: whole layers only as long as they are needed, and no more than a few at once. A
# name that still stands for a tensor keeps it: `del`, or a function that ends, lets it go.

# %% nbgrader={"grade_id": "zero3_step", "solution": true}
def zero3_step(comm, shards, widths, x, target, N, lr):
    """One training step of ZeRO stage 3 with plain SGD.

    shards: L tensors of one dimension: part r of tensor_split(p) of the flattened W_l.
    widths: L + 1 numbers; W_l has the shape (widths[l], widths[l + 1]).
    x:      (rows, widths[0]), this rank's samples; at least one.  target: (rows, widths[L]).
    N:      the number of samples on all ranks.  lr: the learning rate.
    Returns the list of the L new shards.
    """
    ### BEGIN SOLUTION
    def gathered(layer):
        d_in, d_out = widths[layer:layer + 2]
        return collectives.all_gather(comm, shards[layer], lengths=even_lengths(d_in * d_out, comm.size)).view(d_in, d_out)

    layers, inputs = range(len(shards)), [x]
    for layer in layers:
        inputs.append(inputs[-1] @ gathered(layer))
    gradient, new = (inputs.pop() - target) / N, []
    for layer in reversed(layers):
        own = collectives.reduce_scatter(comm, (inputs[layer].T @ gradient).flatten(), "sum")
        new.insert(0, shards[layer] - lr * own)
        gradient = gradient @ gathered(layer).T
    return new
    ### END SOLUTION

# %% nbgrader={"grade_id": "zero3_step_check", "grade": true, "points": 20}
check.zero3_step(zero3_step)
### BEGIN HIDDEN TESTS
check.zero3_step(zero3_step, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "zero3_step_picture"}
check.zero3_step.show(zero3_step, p=3)

# %% [markdown] nbgrader={"grade_id": "clip_text"}
# ## 7. Clipping (12 points)
#
# A gradient whose norm is too large is scaled down to `max_norm`: every element is multiplied by
#
# min(1, max_norm / (norm + 1e-6)),
#
# where norm is the root of the sum of the squares of *all* elements of *all* layers. After stage 2 or 3 no rank has them
# all: each has its shard of every layer, and no element is on two ranks. To bring the gradient together again would undo
# what ZeRO has won. How little has to be sent?

# %% nbgrader={"grade_id": "clip", "solution": true}
def clip(comm, shards, max_norm):
    """Scale a sharded gradient down to norm `max_norm` where it is larger.

    shards: this rank's part of each layer's gradient, tensors of one dimension, some of them empty perhaps.
    max_norm: a number greater than 0.
    Returns (shards, norm): the scaled shards, and the norm of the whole gradient before, a number, the same on every rank.
    """
    ### BEGIN SOLUTION
    squares = sum((shard**2).sum() for shard in shards)
    norm = collectives.all_reduce(comm, squares.reshape(1), "sum").sqrt().item()
    factor = min(1.0, max_norm / (norm + 1e-6))
    return [factor * shard for shard in shards], norm
    ### END SOLUTION

# %% nbgrader={"grade_id": "clip_check", "grade": true, "points": 12}
check.clip(clip)
### BEGIN HIDDEN TESTS
check.clip(clip, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "end"}
# These are the three stages of ZeRO. The library's, `mlsyslab.zero`, does the same with any PyTorch module: it finds out by
# hooks when a layer's parameters are needed and when its gradients are there, fetches the next layer while this one
# computes, and writes checkpoints by shard.
