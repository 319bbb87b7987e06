# %% [markdown] nbgrader={"grade_id": "intro"}
# # Pipeline parallelism
#
# A model that doesn't fit on one device is cut into *stages*, one a rank, and a batch into *microbatches* that go through
# the stages one after the other, like cars through the stations of a factory. Who does what when is the *schedule*, and it
# decides how long the ranks stand idle and how much they have to remember. In this lab you will
#
# 1. say how much of the time a pipeline stands idle (its bubble),
# 2. write GPipe's schedule, which is simple and keeps everything,
# 3. write 1F1B's, which is as fast and keeps little,
# 4. count what any schedule keeps,
# 5. interleave several chunks of the model on each rank, for a smaller bubble,
# 6. cut the backward pass in two, and fill bubbles with one of the halves,
# 7. cut the model into stages of equal work,
# 8. follow the weight versions of a pipeline that never drains, and
# 9. write the loop that carries a schedule out, with messages between ranks.
#
# Read the chapter *Pipeline parallelism* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and
# needs no GPU. The exercises don't depend on one another: where one builds on another, it uses the library's.

# %% nbgrader={"grade_id": "imports"}
import torch

from mlsyslab import pipeline
from mlsyslab.check import pipeline as check
from mlsyslab.draw.pipeline import timetable
from mlsyslab.pipeline import Action

# %% [markdown] nbgrader={"grade_id": "world"}
# ## A schedule is data
#
# There are p ranks. Rank r holds stage r of the model (where nothing else is said), and m microbatches come by, numbered
# from 0. A piece of work is an *action*: a stage, a kind, a microbatch, written as `2F0`: stage 2, forward, microbatch 0.
#
# | kind | |
# |---|---|
# | `F` | forward: takes the activations of the stage before, gives its own to the stage after |
# | `B` | backward: takes the gradient of its output, gives that of its input to the stage before, adds up its weights' |
# | `I` | the first half of a backward: the gradient of the input only |
# | `W` | the second half: the gradients of the weights only |
#
# A schedule is, for each rank, the list of its actions in their order. It says nothing of times: a rank begins its next
# action as soon as what that action needs has arrived. You write schedules as plain data, a list of p lists of text. In
# Python the text of an action is `f"{stage}F{i}"`, and `Action.parse("2F0")` takes it apart.
#
# Run the next cell: two stages, three microbatches, one at a time. Half of the time each rank waits (hatched).

# %% nbgrader={"grade_id": "example"}
one_at_a_time = [["0F0", "0B0", "0F1", "0B1", "0F2", "0B2"],
                 ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"]]
action = Action.parse("1F2")
print(action.stage, action.kind, action.microbatch)
timetable(pipeline.Schedule("one at a time", [map(Action.parse, row) for row in one_at_a_time]), unit="forwards")

# %% [markdown] nbgrader={"grade_id": "rules"}
# Rules for all exercises:
#
# - Your function works for any number of ranks p >= 1 and of microbatches m >= 1, also for m < p, and for m that p doesn't
#   divide.
# - It leaves its arguments as they are.
# - Of `mlsyslab.pipeline` your functions use `Action` only. The rest of it knows the answers: look there afterwards.
#
# The check below each exercise calls your function on many inputs. It doesn't compare a schedule with the library's, but
# asks whether it can be run, how long it takes, and how much it keeps: another order that is as good passes. Grading
# repeats the check on inputs that you don't see. `check.NAME.show(NAME, p=4, m=8)` draws the schedule that yours makes.

# %% [markdown] nbgrader={"grade_id": "inference_bubble_text"}
# ## 1. The bubble (8 points)
#
# First without backward, as in serving a model: m microbatches go through p stages. Stage s takes t_s seconds for each.
# While the first microbatch is on its way to the last stage, the last ranks wait; and while the last one is on its way, the
# first ranks have nothing left. The *bubble* is the share of all ranks' time in which they compute nothing:
#
# bubble = idle time / total time,
#
# where the total is p times the seconds from the start of the first action to the end of the last. Messages take no time.
#
# How long does the run take? Begin with stages that all take the same time, then think about what one slow stage does to
# all microbatches behind the first.

# %% nbgrader={"grade_id": "inference_bubble", "solution": true}
def inference_bubble(times, m):
    """The share of the time in which ranks are idle when m microbatches go forward through a pipeline.

    times: seconds that each stage takes for one microbatch, one entry a stage, so p = len(times).
    m:     the number of microbatches, 1 or more.
    Returns a number from 0 to 1.
    """
    ### BEGIN SOLUTION
    p, work = len(times), sum(times)
    total = work + (m - 1) * max(times)
    return 1 - m * work / (p * total)
    ### END SOLUTION

# %% nbgrader={"grade_id": "inference_bubble_check", "grade": true, "points": 8}
check.inference_bubble(inference_bubble)
### BEGIN HIDDEN TESTS
check.inference_bubble(inference_bubble, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "gpipe_text"}
# ## 2. GPipe (6 points)
#
# Now with training. In GPipe every rank does all its m forwards, and then all its backwards. The pipeline fills and drains
# twice, once for the forwards and once for the backwards, so a rank is idle for (p-1)(F+B) seconds, where F and B are the
# seconds of a forward and a backward. At the turn every rank keeps the activations of all m microbatches.

# %% nbgrader={"grade_id": "gpipe", "solution": true}
def gpipe(p, m):
    """GPipe's schedule: all forwards, then all backwards.

    p: the number of ranks and stages, 1 or more.  m: the number of microbatches, 1 or more.
    Returns p lists, one a rank, of actions such as "0F0" and "0B0".
    """
    ### BEGIN SOLUTION
    return [[f"{r}{kind}{i}" for kind in "FB" for i in range(m)] for r in range(p)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "gpipe_check", "grade": true, "points": 6}
check.gpipe(gpipe)
### BEGIN HIDDEN TESTS
check.gpipe(gpipe, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "gpipe_show"}
# Look at it. Below each lane stands how many activations the rank keeps.

# %% nbgrader={"grade_id": "gpipe_picture"}
check.gpipe.show(gpipe, p=4, m=8)

# %% [markdown] nbgrader={"grade_id": "one_f_one_b_text"}
# ## 3. 1F1B (12 points)
#
# The last rank could begin microbatch 0's backward as soon as its forward is done; nothing is gained by waiting. In 1F1B
# ("one forward, one backward") rank r
#
# - warms up with p-1-r forwards, as many as it takes until the first gradient comes back to it,
# - then does a forward and a backward in turn, the backward always of the oldest microbatch that waits for one,
# - and when the forwards have run out, does the backwards that are left.
#
# It takes as long as GPipe. But rank r never keeps more than p-r activations, however many microbatches there are.

# %% nbgrader={"grade_id": "one_f_one_b", "solution": true}
def one_f_one_b(p, m):
    """1F1B's schedule: as long as GPipe's, with min(m, p-r) activations on rank r.

    p: the number of ranks and stages, 1 or more.  m: the number of microbatches, 1 or more.
    Returns p lists, one a rank, of actions such as "0F0" and "0B0".
    """
    ### BEGIN SOLUTION
    def rank(r):
        warmup = min(m, p - 1 - r)
        row = [f"{r}F{i}" for i in range(warmup)]
        for i in range(m):
            if warmup + i < m:
                row.append(f"{r}F{warmup + i}")
            row.append(f"{r}B{i}")
        return row

    return [rank(r) for r in range(p)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "one_f_one_b_check", "grade": true, "points": 12}
check.one_f_one_b(one_f_one_b)
### BEGIN HIDDEN TESTS
check.one_f_one_b(one_f_one_b, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "one_f_one_b_picture"}
check.one_f_one_b.show(one_f_one_b, p=4, m=8)

# %% [markdown] nbgrader={"grade_id": "peak_activations_text"}
# ## 4. What a schedule keeps (8 points)
#
# A forward leaves activations that its backward needs. They are there from the start of that F until the end of the same
# stage's B for the same microbatch; where the backward is cut in two, until the end of W. How many does each rank hold at
# once, at most? It follows from the order of its actions alone. A rank may hold several stages (exercise 5), and each
# forward leaves activations of its own.

# %% nbgrader={"grade_id": "peak_activations", "solution": true}
def peak_activations(schedule):
    """For each rank, the most forwards whose activations it holds at one time.

    schedule: p lists of actions such as "0F0", of the kinds F and B, or F, I and W; every forward has its backward.
    Returns a list of p whole numbers.
    """
    ### BEGIN SOLUTION
    peaks = []
    for row in schedule:
        live = peak = 0
        for action in map(Action.parse, row):
            live += {"F": 1, "B": -1, "W": -1, "I": 0}[action.kind]
            peak = max(peak, live)
        peaks.append(peak)
    return peaks
    ### END SOLUTION

# %% nbgrader={"grade_id": "peak_activations_check", "grade": true, "points": 8}
check.peak_activations(peak_activations)
### BEGIN HIDDEN TESTS
check.peak_activations(peak_activations, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "interleaved_text"}
# ## 5. Interleaving (12 points)
#
# The bubble lasts as long as a microbatch takes through the first p-1 stages and back. Cut the model finer, into p v
# stages, and give each rank v of them, its *chunks*: chunk c of rank r is stage c p + r. Now a microbatch reaches the last
# rank in a v-th of the time, and the bubble is a v-th; the price is v times the messages.
#
# A rank's forwards come in *rounds*. The microbatches 0 … m-1 are cut into max(1, m // p) rounds, as even as can be and the
# longer ones first (as `torch.tensor_split` cuts). All microbatches of a round pass through the rank's chunk 0, then all of
# them through its chunk 1, and so on; then comes the next round. The backwards come in the same rounds, but through the
# chunks in reverse. For p = 2, m = 4, v = 2, rank 0 (stages 0 and 2):
#
# - forwards 0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3,
# - backwards 2B0 2B1 0B0 0B1 2B2 2B3 0B2 0B3.
#
# As in 1F1B there is a warm-up, of (v-1) k + 2 (p-1-r) forwards (m v at most) on rank r, where k is the length of the first
# round; then a forward and a backward in turn; then the backwards that are left.

# %% nbgrader={"grade_id": "interleaved", "solution": true}
def interleaved(p, m, v):
    """The interleaved schedule of p v stages on p ranks.

    p: the number of ranks, 1 or more.  m: the number of microbatches, 1 or more.  v: chunks a rank, 2 or more.
    Returns p lists, one a rank, of actions such as "0F0" and "0B0"; rank r has the stages r, p + r, 2p + r, ….
    """
    ### BEGIN SOLUTION
    rounds = [part.tolist() for part in torch.arange(m).tensor_split(max(1, m // p))]

    def rank(r):
        forwards = [f"{c * p + r}F{i}" for microbatches in rounds for c in range(v) for i in microbatches]
        backwards = [f"{c * p + r}B{i}" for microbatches in rounds for c in reversed(range(v)) for i in microbatches]
        warmup = min(m * v, (v - 1) * len(rounds[0]) + 2 * (p - 1 - r))
        row = forwards[:warmup]
        for forward, backward in zip(forwards[warmup:], backwards, strict=False):
            row += [forward, backward]
        return row + backwards[m * v - warmup:]

    return [rank(r) for r in range(p)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "interleaved_check", "grade": true, "points": 12}
check.interleaved(interleaved)
### BEGIN HIDDEN TESTS
check.interleaved(interleaved, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "interleaved_picture"}
check.interleaved.show(interleaved, p=4, m=8, v=2)

# %% [markdown] nbgrader={"grade_id": "split_text"}
# ## 6. A backward in two halves (18 points)
#
# The backward of a stage computes two things: the gradient of its input, for which the stage before is waiting, and those
# of its weights, for which nobody waits until the end of the step. So let the first, I, come at once, and the second, W,
# when there is time.
#
# Take a stage of L linear layers with relu between them:
#
# x_0 is the input,  a_l = x_l W_l,  x_{l+1} = relu(a_l),  and the output is a_{L-1}, without relu.
#
# Write G_l for the gradient of the loss with respect to a_l, the one that *arrives* at layer l. G_{L-1} is given: the
# gradient of the output. Then the gradient with respect to x_l is G_l W_l^T, and that of W_l is x_l^T G_l. Which G_l comes
# before it? relu lets a gradient through where it let something through on the way forward, where x_{l+1} > 0.
#
# I goes back through the layers and keeps the G_l; W needs them, and no weights. Each of the two has one matrix product a
# layer to do, and does no more.

# %% nbgrader={"grade_id": "backward_input", "solution": true}
def backward_input(weights, inputs, gradient):
    """I: the gradient of the stage's input, and what W will need.

    weights:  L tensors, W_l of shape (d_l, d_{l+1}).
    inputs:   L tensors, x_l of shape (rows, d_l), the input of layer l.
    gradient: (rows, d_L), the gradient of the stage's output.
    Returns (gradient of x_0, arrived): a tensor (rows, d_0), and the list of L tensors G_l of shape (rows, d_{l+1}).
    """
    ### BEGIN SOLUTION
    arrived = []
    for layer in reversed(range(len(weights))):
        arrived.insert(0, gradient)
        gradient = gradient @ weights[layer].T
        if layer > 0:
            gradient = gradient * (inputs[layer] > 0)
    return gradient, arrived
    ### END SOLUTION

# %% nbgrader={"grade_id": "backward_input_check", "grade": true, "points": 7}
check.backward_input(backward_input)
### BEGIN HIDDEN TESTS
check.backward_input(backward_input, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "backward_weights", "solution": true}
def backward_weights(inputs, arrived):
    """W: the gradients of the stage's weights, from what I kept.

    inputs:  L tensors, x_l of shape (rows, d_l), the input of layer l.
    arrived: L tensors, G_l of shape (rows, d_{l+1}), the gradient at the output of layer l's matrix product.
    Returns a list of L tensors, the gradient of W_l, of shape (d_l, d_{l+1}).
    """
    ### BEGIN SOLUTION
    return [x.T @ G for x, G in zip(inputs, arrived, strict=True)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "backward_weights_check", "grade": true, "points": 4}
check.backward_weights(backward_weights)
### BEGIN HIDDEN TESTS
check.backward_weights(backward_weights, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "zb_h1_text"}
# Now use the halves. In 1F1B rank r waits, in the end, between its last backwards, for the gradients that come back one by
# one. ZB-H1 is 1F1B with I in place of B, and with W's to fill that wait: rank r holds every W back by r microbatches. After
# the I of microbatch i it does the W of microbatch i-r, where there is one; the last r W's come at the very end.
#
# For F = I = W the bubble falls to a third, (p-1)(F+I-W), and no rank keeps more activations than p, as rank 0 did before.

# %% nbgrader={"grade_id": "zb_h1", "solution": true}
def zb_h1(p, m):
    """ZB-H1's schedule: 1F1B with backward in two halves, W held back by r microbatches on rank r.

    p: the number of ranks and stages, 1 or more.  m: the number of microbatches, 1 or more.
    Returns p lists, one a rank, of actions such as "0F0", "0I0" and "0W0".
    """
    ### BEGIN SOLUTION
    def rank(r):
        warmup = min(m, p - 1 - r)
        row = [f"{r}F{i}" for i in range(warmup)]
        for i in range(m):
            if warmup + i < m:
                row.append(f"{r}F{warmup + i}")
            row.append(f"{r}I{i}")
            if i >= r:
                row.append(f"{r}W{i - r}")
        return row + [f"{r}W{i}" for i in range(max(0, m - r), m)]

    return [rank(r) for r in range(p)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "zb_h1_check", "grade": true, "points": 7}
check.zb_h1(zb_h1)
### BEGIN HIDDEN TESTS
check.zb_h1(zb_h1, hidden=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "zb_h1_picture"}
check.zb_h1.show(zb_h1, p=4, m=8)

# %% [markdown] nbgrader={"grade_id": "partition_text"}
# ## 7. Stages of equal work (10 points)
#
# Exercise 1 showed that the slowest stage sets the pace. Layer l of a model takes t_l seconds, forward and backward
# together. Cut the chain of n layers into p stages, each of one or more layers in a row, so that the slowest stage is as
# fast as possible.
#
# Let T(k, j) be the time of the slowest stage when the first j layers are cut into k stages in the best way. The last of
# these stages begins at some layer i, so
#
# T(k, j) = min over i of max( T(k-1, i), t_i + … + t_{j-1} ),  with T(0, 0) = 0.
#
# Remember which i was best, and walk back from T(p, n). Sums of layers in a row are differences of two running sums.

# %% nbgrader={"grade_id": "partition", "solution": true}
def partition(times, p):
    """How many layers each stage gets, so that the slowest stage is as fast as possible.

    times: seconds of each layer, 0 or more, one entry a layer.
    p:     the number of stages, 1 … len(times); every stage gets at least one layer.
    Returns a list of p whole numbers that add up to len(times).
    """
    ### BEGIN SOLUTION
    n = len(times)
    upto = [0.0]
    for t in times:
        upto.append(upto[-1] + t)
    T = [[float("inf")] * (n + 1) for _ in range(p + 1)]
    begin = [[0] * (n + 1) for _ in range(p + 1)]
    T[0][0] = 0.0
    for k in range(1, p + 1):
        for j in range(k, n + 1):
            T[k][j], begin[k][j] = min((max(T[k - 1][i], upto[j] - upto[i]), i) for i in range(k - 1, j))
    sizes, j = [], n
    for k in range(p, 0, -1):
        sizes.append(j - begin[k][j])
        j = begin[k][j]
    return sizes[::-1]
    ### END SOLUTION

# %% nbgrader={"grade_id": "partition_check", "grade": true, "points": 10}
check.partition(partition)
### BEGIN HIDDEN TESTS
check.partition(partition, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "versions_text"}
# ## 8. A pipeline that never drains (8 points)
#
# PipeDream runs 1F1B without an end: after *every* backward a stage updates its own weights, and nobody waits. The price is
# that a microbatch's backward finds weights that have changed since its forward. To get the gradient of one function all the
# same, a stage *stashes* the weights that a forward used, and the same microbatch's backward uses them again.
#
# A stage's weights begin as version 0, and each update makes the next version. Rank r's actions come in the order of 1F1B
# (exercise 3), each B followed by an update at once. A forward uses the newest version that there is.

# %% nbgrader={"grade_id": "pipedream_versions", "solution": true}
def pipedream_versions(p, r, m):
    """Which version of its weights rank r uses for each microbatch, in PipeDream.

    p: the number of ranks and stages, 1 or more.  r: the rank, 0 … p-1.  m: the number of microbatches, 1 or more.
    Returns a list of m pairs: (version of the forward, version of the backward), by microbatch.
    """
    ### BEGIN SOLUTION
    versions = [max(0, i - (p - 1 - r)) for i in range(m)]
    return [(version, version) for version in versions]
    ### END SOLUTION

# %% nbgrader={"grade_id": "pipedream_versions_check", "grade": true, "points": 5}
check.pipedream_versions(pipedream_versions)
### BEGIN HIDDEN TESTS
check.pipedream_versions(pipedream_versions, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "versions_held_text"}
# How many versions does rank r hold at once, at most, in a long run? A version is there until the last backward that uses it
# has ended; the update that follows then takes its place. The newest weights count too.

# %% nbgrader={"grade_id": "versions_held", "solution": true}
def versions_held(p, r):
    """The most versions of its weights that rank r of p holds at once in a long run of PipeDream.

    p: the number of ranks and stages, 1 or more.  r: the rank, 0 … p-1.  Returns a whole number.
    """
    ### BEGIN SOLUTION
    return p - r
    ### END SOLUTION

# %% nbgrader={"grade_id": "versions_held_check", "grade": true, "points": 3}
check.versions_held(versions_held)
### BEGIN HIDDEN TESTS
check.versions_held(versions_held, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "run_rank_text"}
# ## 9. Carrying it out (18 points)
#
# So far nothing was computed. Write what one rank does with its row of the schedule: action after action, it receives what
# the action needs, computes, and sends on what comes out. Which schedule it is, the loop needn't know.
#
# To keep it small, stage r is one matrix: y = x W. The last rank compares its output with the targets; the loss is
#
# loss = 1/N · sum over all rows of |y - target|²/2,
#
# where N counts the rows of *all* microbatches together. So its gradient begins on the last rank as (y - target) / N. With
# the gradient g of a stage's output, that of its input is g W^T, and that of its weight is x^T g, added up over the
# microbatches. Every rank calls your function, which is all it knows of the others:
#
# | | |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number r, and the number of ranks p |
# | `comm.recv(out, source)` | receive from rank `source` into `out`, of the sent shape and dtype; returns `out` |
# | `comm.send(tensor, to)` | send; ends only when it has been *received* |
# | `comm.isend(tensor, to)` | begin to send and go on; returns a work, to be waited for |
# | `comm.wait_all(works)` | wait until all these sends have ended |
# | `with comm.work(action, seconds=1.0):` | what is computed inside takes one second on the simulated clock |
#
# Do the computing of every action inside `comm.work`, with the action's text, so that it stands in the trace; receive before
# it, and send after it. Keep what a backward will need until then, and no longer: after the backward of a microbatch nothing
# should refer to its activations any more.
#
# One thing to think about before you begin: in 1F1B there are moments at which a rank sends activations down while the next
# one sends a gradient up.

# %% nbgrader={"grade_id": "run_rank", "solution": true}
def run_rank(comm, row, weight, inputs, targets):
    """Carry out one rank's row of a schedule.

    row:     this rank's actions, such as ["1F0", "1B0"], of the kinds F and B; rank r holds stage r.
    weight:  (d_in, d_out), this stage's weight; the d_out of a stage is the d_in of the next.
    inputs:  m tensors (rows_i, d_in of the first stage), the microbatches. Their values are there on rank 0 only; elsewhere
             they say how many rows each microbatch has.
    targets: m tensors (rows_i, d_out of the last stage). Their values are there on the last rank only.
    Returns the gradient of the loss with respect to `weight`: (d_in, d_out).
    """
    ### BEGIN SOLUTION
    rank, last = comm.rank, comm.size - 1
    d_in, d_out = weight.shape
    N = sum(map(len, targets))
    total = torch.zeros_like(weight)
    kept, sends = {}, []
    for text in row:
        action = Action.parse(text)
        i = action.microbatch
        if action.kind == "F":
            x = inputs[i]
            if rank > 0:
                x = comm.recv(weight.new_empty(len(inputs[i]), d_in), rank - 1)
            with comm.work(text, seconds=1.0):
                y = x @ weight
            kept[i] = x, y
            if rank < last:
                sends.append(comm.isend(y, rank + 1))
        else:
            x, y = kept.pop(i)
            if rank < last:
                g = comm.recv(weight.new_empty(len(inputs[i]), d_out), rank + 1)
            with comm.work(text, seconds=1.0):
                if rank == last:
                    g = (y - targets[i]) / N
                total += x.T @ g
                back = g @ weight.T
            if rank > 0:
                sends.append(comm.isend(back, rank - 1))
    comm.wait_all(sends)
    return total
    ### END SOLUTION

# %% nbgrader={"grade_id": "run_rank_check", "grade": true, "points": 18}
check.run_rank(run_rank)
### BEGIN HIDDEN TESTS
check.run_rank(run_rank, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "run_rank_show"}
# This is a run of yours, read off the messages and the work of the ranks. It is the picture of exercise 3, but here every
# cell is a matrix product that took place, and every line a message.

# %% nbgrader={"grade_id": "run_rank_picture"}
check.run_rank.show(run_rank, p=4)

# %% [markdown] nbgrader={"grade_id": "end"}
# That is a pipeline, from the timetable down to the messages. The library's executor, `mlsyslab.pipeline.execute`, is the
# same loop with real modules, any schedule, and both halves of the backward. Run it on real processes with `launch`, and lay
# its trace over the simulated timetable with `mlsyslab.draw.pipeline.overlay`.
