# %% [markdown] nbgrader={"grade_id": "intro"}
# # Memory: does it fit?
#
# A training step fits on a device if its *peak* does: the most bytes that are held at one moment. In this lab you will
#
# 1. count the parameters of a transformer,
# 2. count the bytes that training keeps for each of them,
# 3. add up what a layer leaves behind for its backward,
# 4. follow sizes and lifetimes through a step, to its peak,
# 5. find the best distance between checkpoints,
# 6. go forward keeping checkpoints only, and backward computing the rest again,
# 7. put a gradient together from unequal parts of a batch, and
# 8. write a step of training with a loss scale.
#
# Read the chapter *Memory: does it fit?* first. The lab takes about 90 minutes, is worth 100 points, runs on a laptop and
# needs no GPU. The exercises don't depend on one another.

# %% nbgrader={"grade_id": "imports"}
import math

import torch

from mlsyslab.check import memory as check

# %% [markdown] nbgrader={"grade_id": "rules"}
# Rules for all exercises:
#
# - Your functions leave their arguments as they are.
# - They don't call `mlsyslab.memory` or `mlsyslab.model`. Look there afterwards.
# - Byte counts are whole numbers, and exact.
#
# The check below each exercise calls your function on many inputs. Where tensors are made, it looks at how much memory they
# took on the way, too. Grading repeats the check on inputs that you don't see.

# %% [markdown] nbgrader={"grade_id": "parameters_text"}
# ## 1. Parameters (10 points)
#
# A GPT of L layers and width h, with a vocabulary of V words and up to s positions, has
#
# - an embedding of the V words, and one of the s positions, h numbers each,
# - in each layer
#     - two layer norms, each with a gain and a bias of h numbers,
#     - a linear layer from h to 3h for queries, keys and values, and one from h to h behind attention,
#     - a linear layer from h to 4h, and one from 4h back to h,
# - a last layer norm, and
# - an output matrix from h to V. If it is *tied*, it is the embedding of the words once more, not another matrix.
#
# A linear layer has a bias, a number for each output. The output matrix has none. How many heads there are doesn't matter.

# %% nbgrader={"grade_id": "parameters", "solution": true}
def parameters(L, h, V, s, tied):
    """How many parameters a GPT has.

    L: layers.  h: width.  V: words of the vocabulary.  s: positions.  tied: whether output and embedding share a matrix.
    Returns a whole number.
    """
    ### BEGIN SOLUTION
    def linear(inputs, outputs):
        return inputs * outputs + outputs

    norm = 2 * h
    layer = 2 * norm + linear(h, 3 * h) + linear(h, h) + linear(h, 4 * h) + linear(4 * h, h)
    return V * h + s * h + L * layer + norm + (0 if tied else V * h)
    ### END SOLUTION

# %% nbgrader={"grade_id": "parameters_check", "grade": true, "points": 10}
check.parameters(parameters)
### BEGIN HIDDEN TESTS
check.parameters(parameters, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "state_bytes_text"}
# ## 2. Bytes a parameter (8 points)
#
# The precision says which numbers training keeps:
#
# | | |
# |---|---|
# | `"fp32"` | everything in 32 bits |
# | `"autocast"` | as fp32; besides, a 16-bit copy of the weights, for the products |
# | `"mixed"` | weights and gradients in 16 bits; the optimizer has a 32-bit master copy, and its numbers in 32 bits |
# | `"bf16"` | everything in 16 bits, and no master copy |
#
# The optimizer remembers two numbers a parameter if it is `"adam"`, one if it is `"momentum"`, and none if it is `"sgd"`.
# The 16-bit copy of autocast counts as weights, the master copy as the optimizer's. Plain SGD needs the master copy too.

# %% nbgrader={"grade_id": "state_bytes", "solution": true}
def state_bytes(n, precision, optimizer):
    """The bytes of n parameters in training, activations not counted.

    precision: "fp32", "autocast", "mixed" or "bf16".  optimizer: "adam", "momentum" or "sgd".
    Returns a dict of whole numbers: {"weights": …, "gradients": …, "optimizer": …}.
    """
    ### BEGIN SOLUTION
    numbers = {"adam": 2, "momentum": 1, "sgd": 0}[optimizer]
    weight, gradient, master, number = {"fp32": (4, 4, 0, 4), "autocast": (6, 4, 0, 4), "mixed": (2, 2, 4, 4),
                                        "bf16": (2, 2, 0, 2)}[precision]
    return {"weights": n * weight, "gradients": n * gradient, "optimizer": n * (master + numbers * number)}
    ### END SOLUTION

# %% nbgrader={"grade_id": "state_bytes_check", "grade": true, "points": 8}
check.state_bytes(state_bytes)
### BEGIN HIDDEN TESTS
check.state_bytes(state_bytes, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "activation_bytes_text"}
# ## 3. What a layer leaves behind (14 points)
#
# An operator keeps for backward what its derivative needs: a product its inputs (the weights are there anyway), a norm its
# input, a softmax its output, a GELU its input, dropout its mask, a sum nothing. What is the output of one operator and the
# input of the next one is kept once. So a layer of a GPT keeps
#
# - of attention: the input of its norm; the norm's output, which the projections to queries, keys and values share; queries,
#   keys and values; the softmax of the scores; the mask of dropout, and the weights behind it, which multiply the values;
#   the input of the output projection; the mask of dropout behind that,
# - of the MLP: the input of its norm; the norm's output; the GELU's input and its output, each 4h wide; the mask of dropout
#   behind the MLP.
#
# Softmax, mask and weights are a × s × s for each sequence; all else has h numbers a token, if nothing is said. A number has
# `item` bytes. A mask has one byte for each element, whatever `item` is. Without dropout there are no masks, and the softmax
# is itself what multiplies the values. Leave out the norms' statistics.
#
# `recompute` is `None`; or `"selective"`, when softmax, its mask and the weights behind it are computed again, and so not
# kept; or `"full"`, when nothing but the layer's input is kept.

# %% nbgrader={"grade_id": "activation_bytes", "solution": true}
def activation_bytes(s, b, h, a, item, dropout, recompute):
    """The bytes that one layer keeps for its backward.

    s: tokens a sequence.  b: sequences.  h: width.  a: heads.  item: bytes of a number, 2 or 4.
    dropout: whether there is any.  recompute: None, "selective" or "full".
    Returns a whole number.
    """
    ### BEGIN SOLUTION
    wide, square, mask = s * b * h, a * s * s * b, 1 if dropout else 0
    if recompute == "full":
        return wide * item
    attention = wide * (6 * item + mask)  # two of the norm, q, k, v, the projection's input
    core = square * (item + (mask + item if dropout else 0))
    mlp = wide * (10 * item + mask)
    return attention + mlp + (0 if recompute == "selective" else core)
    ### END SOLUTION

# %% nbgrader={"grade_id": "activation_bytes_check", "grade": true, "points": 14}
check.activation_bytes(activation_bytes)
### BEGIN HIDDEN TESTS
check.activation_bytes(activation_bytes, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "held_text"}
# ## 4. Lifetimes (14 points)
#
# A network has L layers. Layer l (from 0) computes x_{l+1} from x_l, with weights W_l. What is held, phase by phase?
#
# In **inference** there are L phases: in phase l, layer l computes. All weights are there throughout; of the activations
# only what the layer at work reads and writes.
#
# In **training** there are 2L + 1 phases: L forward, L backward, in which the layers come in reverse order, and the update.
#
# - Weights and the optimizer's state are there throughout.
# - x_l is there from the phase that makes it (x_0: from the first phase on) to the last phase that reads it. The backward of
#   layer l reads x_l *and* x_{l+1}.
# - The backward of layer l reads the gradient of x_{l+1} and makes that of x_l, and the gradient of W_l. The gradients of
#   x_l and x_{l+1}, as large as these, are both there in that phase. The gradient of x_l lives on for the next
#   phase, and only for that.
# - The gradient of W_l, as large as W_l, is there from the backward of layer l to the update; in the update, too.

# %% nbgrader={"grade_id": "held", "solution": true}
def held(weights, activations, state, training):
    """How many bytes are held in each phase.

    weights: the bytes of W_0 … W_{L-1}.  activations: the bytes of x_0 … x_L.
    state: the bytes of the whole optimizer's state (0 in inference).  training: whether it is training, or inference.
    Returns a list of whole numbers, one a phase: L of them, or 2L + 1 in training.
    """
    ### BEGIN SOLUTION
    L, always = len(weights), sum(weights) + state
    if not training:
        return [always + activations[l] + activations[l + 1] for l in range(L)]
    forward = [always + sum(activations[:l + 2]) for l in range(L)]
    backward = [always + sum(activations[:l + 2]) + activations[l] + activations[l + 1] + sum(weights[l:])
                for l in reversed(range(L))]
    return [*forward, *backward, always + sum(weights)]
    ### END SOLUTION

# %% nbgrader={"grade_id": "held_check", "grade": true, "points": 14}
check.held(held)
### BEGIN HIDDEN TESTS
check.held(held, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "best_spacing_text"}
# ## 5. The best spacing (12 points)
#
# With a checkpoint every k layers, the inputs of ceil(L/k) segments are held, `boundary` bytes each, and the inside of one
# segment of k layers, `inside` bytes a layer:
#
# ceil(L/k) · boundary + k · inside.
#
# The square-root rule says about where this is least. Which whole k is best? Of several that are equally good, take the
# largest: it has the fewest checkpoints.

# %% nbgrader={"grade_id": "best_spacing", "solution": true}
def best_spacing(L, boundary, inside):
    """The k, 1 … L, that holds least.

    L: layers.  boundary: bytes of a layer's input.  inside: bytes that a layer keeps.
    Returns a whole number.
    """
    ### BEGIN SOLUTION
    return min(range(L, 0, -1), key=lambda k: math.ceil(L / k) * boundary + k * inside)
    ### END SOLUTION

# %% nbgrader={"grade_id": "best_spacing_check", "grade": true, "points": 12}
check.best_spacing(best_spacing)
### BEGIN HIDDEN TESTS
check.best_spacing(best_spacing, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "layer_text"}
# ## 6. Checkpointing (18 points)
#
# Here is a layer, and its backward, written out. You will call them, and needn't change them.

# %% nbgrader={"grade_id": "layer"}
def forward(W, x):
    """y = tanh(x W)."""
    return torch.tanh(x @ W)


def backward(W, x, y, gradient):
    """From the gradient of y: the gradient of x, and that of W."""
    inner = gradient * (1 - y * y)
    return inner @ W.T, x.T @ inner

# %% [markdown] nbgrader={"grade_id": "checkpointed_text"}
# The network is x_{l+1} = forward(W_l, x_l), for l = 0 … L-1. Kept as usual, all of x_0 … x_L would be there at the turn.
# Instead, go forward and keep only x_0, x_k, x_{2k}, …: the inputs of segments of k layers, the last of which may be
# shorter. Then take the segments in reverse order. Compute what is inside of one again, from its input; go backward
# through it; let its inside go.
#
# The rule: at no time may there be more than the checkpoints, the inside of one segment, and a few tensors on their way. And
# nothing is computed more than twice. The distance of the checkpoints is the k that is given, even where another one would
# hold less. A name that still stands for a tensor keeps it: `del`, or a function that ends, lets it go.

# %% nbgrader={"grade_id": "checkpointed", "solution": true}
def checkpointed(weights, x, gradient, k):
    """The gradients of all weights, with a checkpoint every k layers.

    weights: L tensors W_l, (d, d).  x: (rows, d), x_0.  gradient: (rows, d), the gradient of x_L.  k: 1 … L.
    Returns a list of L tensors, (d, d): the gradient of W_l.
    """
    ### BEGIN SOLUTION
    def inside(segment, x):
        xs = [x]
        for W in segment:
            xs.append(forward(W, xs[-1]))
        return xs

    def back(segment, x, gradient):
        xs, found = inside(segment, x), []
        for W in reversed(segment):
            y = xs.pop()
            gradient, of_weight = backward(W, xs[-1], y, gradient)
            found.insert(0, of_weight)
        return gradient, found

    segments, inputs = [weights[l:l + k] for l in range(0, len(weights), k)], []
    for segment in segments:
        inputs.append(x)
        for W in segment:
            x = forward(W, x)
    del x
    gradients = []
    for segment in reversed(segments):
        gradient, found = back(segment, inputs.pop(), gradient)
        gradients = found + gradients
    return gradients
    ### END SOLUTION

# %% nbgrader={"grade_id": "checkpointed_check", "grade": true, "points": 18}
check.checkpointed(checkpointed)
### BEGIN HIDDEN TESTS
check.checkpointed(checkpointed, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "part_text"}
# ## 7. Accumulation (12 points)
#
# The model is one matrix: the scores of row i are x_i W. The loss is the mean cross-entropy of all rows that count; where
# the target is -1 (padding) a row doesn't count. Here is the gradient of that mean, for any number of rows. As in PyTorch,
# it is NaN where no row counts.

# %% nbgrader={"grade_id": "part"}
def mean_gradient(W, x, targets):
    """The gradient with respect to W of the mean loss of the rows that count."""
    counts = targets >= 0
    p = torch.softmax(x @ W, dim=1)
    p[counts, targets[counts]] -= 1
    p[~counts] = 0
    return x.T @ p / counts.sum()

# %% [markdown] nbgrader={"grade_id": "accumulated_text"}
# The probabilities of all rows at once are too large. Cut the batch into `parts` parts, as `tensor_split` does it, call
# `mean_gradient` on each, and put the gradient of the *whole* batch's mean together from what you get. The parts need not be
# equally long, and still less need they have the same number of rows that count. At least one row of the batch does.

# %% nbgrader={"grade_id": "accumulated", "solution": true}
def accumulated(W, x, targets, parts):
    """The gradient of the mean loss of the whole batch, computed in parts.

    W: (d, V).  x: (n, d).  targets: (n,) of int64; -1 where a row doesn't count.  parts: 1 … n.
    Returns (d, V): what mean_gradient(W, x, targets) would give.
    """
    ### BEGIN SOLUTION
    total, n = torch.zeros_like(W), (targets >= 0).sum()
    for some, their in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        count = (their >= 0).sum()
        if count:
            total += mean_gradient(W, some, their) * (count / n)
    return total
    ### END SOLUTION

# %% nbgrader={"grade_id": "accumulated_check", "grade": true, "points": 12}
check.accumulated(accumulated)
### BEGIN HIDDEN TESTS
check.accumulated(accumulated, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "scaled_step_text"}
# ## 8. Loss scaling (12 points)
#
# A float16 model was run with its loss multiplied by `scale`, so the gradient that came out is `scale` times too large.
# Write what comes then:
#
# - If any element is infinite or NaN, there is no update. The scale is halved, and the row of good steps is over: it counts
#   from 0 again.
# - Otherwise the float32 master weights are updated, by master - lr · (the true gradient), and the step is a good one. After
#   `interval` good steps in a row the scale is doubled, and the count begins at 0 again.
#
# In float16 the true gradient may be too small to be anything but 0.

# %% nbgrader={"grade_id": "scaled_step", "solution": true}
def scaled_step(master, gradient, scale, good, lr, interval):
    """One step of SGD with a dynamic loss scale.

    master: (n,) of float32.  gradient: (n,) of float16, of the scaled loss.  scale: a number.
    good: how many good steps in a row there were before.  lr: the learning rate.  interval: 1 or more; good < interval.
    Returns (master, scale, good) after the step.
    """
    ### BEGIN SOLUTION
    if not gradient.isfinite().all():
        return master, scale / 2, 0
    master = master - lr * (gradient.float() / scale)
    return (master, scale * 2, 0) if good + 1 == interval else (master, scale, good + 1)
    ### END SOLUTION

# %% nbgrader={"grade_id": "scaled_step_check", "grade": true, "points": 12}
check.scaled_step(scaled_step)
### BEGIN HIDDEN TESTS
check.scaled_step(scaled_step, hidden=True)
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "end"}
# With the first four you can say of any model whether it fits; with the next four you can make it fit. The library's
# `mlsyslab.memory` does the same for a real GPT, with dropout, on any device.
