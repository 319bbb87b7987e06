"""Known-wrong solutions of the lab `data_parallel`."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from known_wrong import KnownWrong

from mlsyslab import collectives, data_parallel

wrong = KnownWrong()

# -- 1. push and pull -------------------------------------------------------------------------------------------------


def step(comm, S, mine, update):
    """Right, if `update(shard, pushes)` is."""
    workers = range(S, comm.size)
    if comm.rank < S:
        shard = update(mine, [comm.recv(torch.empty_like(mine), worker) for worker in workers])
        for worker in workers:
            comm.send(shard, worker)
        return shard
    parts = mine.tensor_split(S)
    for server in range(S):
        comm.send(parts[server], server)
    return torch.cat([comm.recv(torch.empty_like(parts[server]), server) for server in range(S)])


@wrong("push_pull", "divide by the number of workers")
def push_pull_of_the_sum(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard - rate * sum(pushes))


@wrong("push_pull", "servers have no gradient")
def push_pull_by_all_ranks(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard - rate * sum(pushes) / comm.size)


@wrong("push_pull", "went up the slope")
def push_pull_uphill(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard + rate * sum(pushes) / len(pushes))


@wrong("push_pull", "The learning rate is left out")
def push_pull_without_rate(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard - sum(pushes) / len(pushes))


@wrong("push_pull", "Only the gradient of worker 2 (rank 4)")
def push_pull_of_the_last(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard - rate * pushes[-1])


@wrong("push_pull", "what a worker pulls is weights")
def push_pull_of_gradients(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: sum(pushes) / len(pushes))


@wrong("push_pull", "the input of rank 0 was changed")
def push_pull_in_place(comm, S, mine, rate):
    return step(comm, S, mine, lambda shard, pushes: shard.sub_(rate * sum(pushes) / len(pushes)))


@wrong("push_pull", "apply all pushes first, then answer")
def push_pull_answered_at_once(comm, S, mine, rate):
    if comm.rank >= S:
        return step(comm, S, mine, None)
    shard, W = mine.clone(), comm.size - S
    for worker in range(S, comm.size):
        shard -= rate * comm.recv(torch.empty_like(mine), worker) / W
        comm.send(shard, worker)
    return shard


@wrong("push_pull", "workers talk to servers, and to nobody else")
def push_pull_through_one_server(comm, S, mine, rate):
    """Server 0 does it all, and tells the other servers."""
    if comm.rank == 0:
        lengths = [int(comm.recv(torch.empty(1, dtype=torch.int64), s)) for s in range(1, S)]
        weight = torch.cat([mine, *(comm.recv(mine.new_empty(length), s) for s, length in enumerate(lengths, 1))])
        pushes = [comm.recv(torch.empty_like(weight), worker) for worker in range(S, comm.size)]
        weight = weight - rate * sum(pushes) / len(pushes)
        for s in range(1, S):
            comm.send(weight.tensor_split(S)[s], s)
        for worker in range(S, comm.size):
            comm.send(weight, worker)
        return weight.tensor_split(S)[0]
    if comm.rank < S:
        comm.send(torch.tensor([len(mine)]), 0)
        comm.send(mine, 0)
        return comm.recv(torch.empty_like(mine), 0)
    comm.send(mine, 0)
    return comm.recv(torch.empty_like(mine), 0)


@wrong("push_pull", "what belongs to server 0, and no more")
def push_pull_of_whole_gradients(comm, S, mine, rate):
    """Every server gets everything, and takes its part."""
    workers = range(S, comm.size)
    if comm.rank < S:
        n = torch.zeros(1, dtype=torch.int64)
        pushes = []
        for worker in workers:
            comm.recv(n, worker)
            pushes.append(comm.recv(mine.new_empty(int(n)), worker).tensor_split(S)[comm.rank])
        shard = mine - rate * sum(pushes) / len(pushes)
        for worker in workers:
            comm.send(shard, worker)
        return shard
    for server in range(S):
        comm.send(torch.tensor([len(mine)]), server)
        comm.send(mine, server)
    return torch.cat([comm.recv(torch.empty_like(part), server) for server, part in enumerate(mine.tensor_split(S))])


@wrong("push_pull", "others are workers and send first")
def push_pull_pulls_first(comm, S, mine, rate):
    if comm.rank < S:
        return step(comm, S, mine, lambda shard, pushes: shard - rate * sum(pushes) / len(pushes))
    parts = mine.tensor_split(S)
    new = torch.cat([comm.recv(torch.empty_like(part), server) for server, part in enumerate(parts)])
    for server, part in enumerate(parts):
        comm.send(part, server)
    return new


@wrong("push_pull", "A worker returns all 7 weights")
def push_pull_one_part(comm, S, mine, rate):
    out = step(comm, S, mine, lambda shard, pushes: shard - rate * sum(pushes) / len(pushes))
    return out if comm.rank < S else out.tensor_split(S)[0]


@wrong("push_pull", "mlsyslab.collectives is called")
def push_pull_of_collectives(comm, S, mine, rate):
    return collectives.all_reduce(comm, mine)


@wrong("push_pull", "part s of torch.tensor_split")
def push_pull_even_parts(comm, S, mine, rate):
    if comm.rank < S:
        return step(comm, S, mine, lambda shard, pushes: shard - rate * sum(pushes) / len(pushes))
    size = -(-len(mine) // S)
    parts = [mine[s * size:(s + 1) * size] for s in range(S)]
    for server in range(S):
        comm.send(parts[server], server)
    return torch.cat([comm.recv(torch.empty_like(parts[server]), server) for server in range(S)])


# -- 2. who may go on -------------------------------------------------------------------------------------------------


@wrong("may_start", "it waits until the slowest one has caught up")
def may_start_one_more(clocks, worker, s):
    return clocks[worker] - min(clocks) <= s + 1


@wrong("may_start", "which is not more than s = 2: it may")
def may_start_one_less(clocks, worker, s):
    return clocks[worker] - min(clocks) < s


@wrong("may_start", "The slowest worker is never held")
def may_start_all_or_none(clocks, worker, s):
    return max(clocks) - min(clocks) <= s


@wrong("may_start", "The slowest worker is never held")
def may_start_by_the_fastest(clocks, worker, s):
    return max(clocks) - clocks[worker] <= s


@wrong("may_start", "expected True or False")
def may_start_a_distance(clocks, worker, s):
    return s - (clocks[worker] - min(clocks))


@wrong("may_start", "printing a result does not return it")
def may_start_printed(clocks, worker, s):
    print(clocks[worker] - min(clocks) <= s)


@wrong("may_start", "in this exercise you write that yourself")
def may_start_of_the_library(clocks, worker, s):
    return data_parallel.SSP(int(min(s, 10**6))).may_begin(clocks[worker], min(clocks))


def ends_of(seconds, s, back, own=True, among=max):
    W, K = len(seconds), len(seconds[0])
    ends = [[] for _ in range(W)]
    for k in range(K):
        allowed = among(ends[w][int(k - back)] for w in range(W)) if k >= back else 0.0
        for w in range(W):
            ends[w].append(max(allowed, ends[w][-1] if k and own else 0.0) + seconds[w][k])
    return ends


@wrong("finish_times", "nobody waits for anybody")
def finish_times_asp(seconds, s):
    return ends_of(seconds, s, math.inf)


@wrong("finish_times", "That is BSP")
def finish_times_bsp(seconds, s):
    return ends_of(seconds, s, 1)


@wrong("finish_times", "one further ahead than the bound allows")
def finish_times_one_more(seconds, s):
    return ends_of(seconds, s, s + 2)


@wrong("finish_times", "one iteration too early")
def finish_times_one_less(seconds, s):
    return ends_of(seconds, s, max(1, s))


@wrong("finish_times", "own iterations come one after the other")
def finish_times_without_own(seconds, s):
    return ends_of(seconds, s, s + 1, own=False)


@wrong("finish_times", "nobody waits for anybody")
def finish_times_of_the_fastest(seconds, s):
    return ends_of(seconds, s, s + 1, among=min)


@wrong("finish_times", "expected 3 lists, one a worker, of 8 numbers each")
def finish_times_by_iteration(seconds, s):
    return [list(row) for row in zip(*ends_of(seconds, s, s + 1), strict=True)]


@wrong("finish_times", "ndarray, [[")
def finish_times_in_an_array(seconds, s):
    return np.array(ends_of(seconds, s, s + 1))


@wrong("finish_times", "a list of lists with a Tensor in them")
def finish_times_of_tensors(seconds, s):
    return [[torch.tensor(end) for end in row] for row in ends_of(seconds, s, s + 1)]


@wrong("finish_times", "a list with a Tensor in it")
def finish_times_in_tensors(seconds, s):
    return [torch.tensor(row) for row in ends_of(seconds, s, s + 1)]


@wrong("finish_times", "nobody waits for anybody")
def finish_times_in_fractions(seconds, s):
    return [[Fraction(end) for end in row] for row in ends_of(seconds, s, math.inf)]


@wrong("finish_times", "cannot convert float infinity to integer")
def finish_times_without_infinity(seconds, s):
    return ends_of(seconds, int(s), s + 1)


# -- 3. staleness -----------------------------------------------------------------------------------------------------


@wrong("staleness", "The push itself is counted")
def staleness_with_itself(log):
    updates, pulled, found = 0, {}, []
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = updates
        else:
            updates += 1
            found.append(updates - pulled[worker])
    return found


@wrong("staleness", "A worker's own push changes the weights too")
def staleness_of_others(log):
    since, found = {}, []
    for kind, worker in log:
        if kind == "pull":
            since[worker] = 0
        else:
            found.append(since[worker])
            for other in since:
                since[other] += other != worker
    return found


@wrong("staleness", "a push brings it no new weights")
def staleness_since_the_push(log):
    updates, pulled, found = 0, {}, []
    for kind, worker in log:
        if kind == "push":
            found.append(updates - pulled[worker])
            updates += 1
        pulled[worker] = updates
    return found


@wrong("staleness", "Pulls are counted too")
def staleness_in_lines(log):
    at, found = {}, []
    for place, (kind, worker) in enumerate(log):
        if kind == "pull":
            at[worker] = place
        else:
            found.append(place - at[worker] - 1)
    return found


@wrong("staleness", "Each update counts, also when one worker")
def staleness_in_workers(log):
    since, found = {}, []
    for kind, worker in log:
        if kind == "pull":
            since[worker] = set()
        else:
            found.append(len(since[worker]))
            for own in since.values():
                own.add(worker)
    return found


@wrong("staleness", "how far a worker is ahead")
def staleness_in_clocks(log):
    done, found = dict.fromkeys({worker for _, worker in log}, 0), []
    for kind, worker in log:
        if kind == "push":
            found.append(done[worker] - min(done.values()))
            done[worker] += 1
    return found


@wrong("staleness", "each has a staleness")
def staleness_by_line(log):
    updates, pulled, found = 0, {}, []
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = updates
        found.append(updates - pulled[worker])
        updates += kind == "push"
    return found


@wrong("staleness", "expected a list of whole numbers")
def staleness_mean(log):
    return 1.5


# -- 4. every update once ---------------------------------------------------------------------------------------------


def serve(weight, applied, messages, apply, acknowledge=lambda number, last: number <= last + 1):
    weight, applied, acknowledged = weight.clone(), list(applied), []
    for worker, number, update in messages:
        acknowledged.append(acknowledge(number, applied[worker]))
        if apply(number, applied[worker]):
            weight += update
            applied[worker] = number
    return weight, applied, acknowledged


@wrong("apply_once", "was applied again")
def apply_everything(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: True)


@wrong("apply_once", "only if it is the very last one")
def apply_but_the_last(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number != last)


@wrong("apply_once", "that one is then taken for an old one, and lost")
def apply_what_is_newer(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number > last)


@wrong("apply_once", "equal to that of the last one")
def apply_not_older(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number >= last)


@wrong("apply_once", "would send it for ever")
def apply_without_a_second_answer(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number == last + 1, lambda number, last: number == last + 1)


@wrong("apply_once", "worker would never send it again")
def apply_and_acknowledge_all(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number == last + 1, lambda number, last: True)


@wrong("apply_once", "Each worker counts its own updates")
def apply_by_one_count(weight, applied, messages):
    weight, last, acknowledged = weight.clone(), max(applied), []
    applied = list(applied)
    for worker, number, update in messages:
        acknowledged.append(number <= last + 1)
        if number == last + 1:
            weight += update
            last = applied[worker] = number
    return weight, applied, acknowledged


@wrong("apply_once", "the wrong way round")
def apply_and_refuse(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number == last + 1, lambda number, last: number > last + 1)


@wrong("apply_once", "weight came as float32 of shape")
def apply_in_float32(weight, applied, messages):
    weight, applied, answers = serve(weight, applied, messages, lambda number, last: number == last + 1)
    return weight.float(), applied, answers


@wrong("apply_once", "applied came as [2, 2]")
def apply_and_count(weight, applied, messages):
    weight, applied, answers = serve(weight, applied, messages, lambda number, last: number == last + 1)
    return weight, [last + 1 for last in applied], answers


@wrong("apply_once", "expected three things")
def apply_weight_only(weight, applied, messages):
    return serve(weight, applied, messages, lambda number, last: number == last + 1)[0]


@wrong("apply_once", "a whole number for each worker")
def apply_counts_by_name(weight, applied, messages):
    weight, applied, answers = serve(weight, applied, messages, lambda number, last: number == last + 1)
    return weight, dict(enumerate(applied)), answers


# -- 5. server or ring ------------------------------------------------------------------------------------------------


def right_seconds(way, W, S, n, beta):
    return 2 * n * beta * (max(1, W / S) if way == "server" else (W - 1) / W)


@wrong("sync_seconds", "That is one way only")
def seconds_of_the_push(way, W, S, n, beta):
    return right_seconds(way, W, S, n, beta) / 2


@wrong("sync_seconds", "n bytes leave it, however many servers there are")
def seconds_of_servers_only(way, W, S, n, beta):
    return 2 * W * n / S * beta if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "A server has a part of the vector only")
def seconds_of_whole_servers(way, W, S, n, beta):
    return 2 * W * n * beta if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "the pushes of all workers")
def seconds_of_a_worker(way, W, S, n, beta):
    return 2 * n * beta if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "W/S needn't be whole")
def seconds_rounded_down(way, W, S, n, beta):
    return 2 * n * beta * max(1, W // S) if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "W/S needn't be whole")
def seconds_rounded_up(way, W, S, n, beta):
    return 2 * n * beta * -(-W // S) if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "needs no link for that worker")
def seconds_of_servers_anywhere(way, W, S, n, beta):
    return right_seconds("ring" if way == "ring" else "server", W, S, n, beta)


@wrong("sync_seconds", "own part doesn't travel")
def seconds_of_a_ring_of_everything(way, W, S, n, beta):
    return 2 * n * beta if way == "ring" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "A message of the ring is a p-th")
def seconds_of_whole_messages(way, W, S, n, beta):
    return 2 * (W - 1) * n * beta if way == "ring" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "the all-gather that follows takes as long")
def seconds_of_half_a_ring(way, W, S, n, beta):
    return (W - 1) / W * n * beta if way == "ring" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "machines of their own")
def seconds_of_servers_beside(way, W, S, n, beta):
    return 2 * max(1, (W - 1) / S) * n * beta if way == "server" else right_seconds(way, W, S, n, beta)


@wrong("sync_seconds", "expected a number of seconds")
def seconds_in_words(way, W, S, n, beta):
    return f"{right_seconds(way, W, S, n, beta)} s"


# -- 6. the mean of what ----------------------------------------------------------------------------------------------


def known(gradient, rows):
    return gradient if rows else torch.zeros_like(gradient)


def weighed(comm, gradient, rows):
    return collectives.all_reduce(comm, known(gradient, rows) * rows)


def all_rows(comm, rows):
    return collectives.all_reduce(comm, torch.tensor([rows]))


@wrong("average", "weight each by its rows")
def average_of_means(comm, gradient, rows):
    return collectives.all_reduce(comm, known(gradient, rows), op="mean")


@wrong("average", "The ranks' means were added up")
def average_sum_of_means(comm, gradient, rows):
    return collectives.all_reduce(comm, known(gradient, rows))


@wrong("average", "That is the sum over all rows; divide")
def average_undivided(comm, gradient, rows):
    return weighed(comm, gradient, rows)


@wrong("average", "divided by p; divide by all rows")
def average_by_ranks(comm, gradient, rows):
    return weighed(comm, gradient, rows) / comm.size


@wrong("average", "Divided by this rank's own rows")
def average_by_own_rows(comm, gradient, rows):
    return weighed(comm, gradient, rows) / max(1, rows)


@wrong("average", "were not multiplied by their rows")
def average_unweighted(comm, gradient, rows):
    return collectives.all_reduce(comm, known(gradient, rows)) / all_rows(comm, rows)


@wrong("average", "nothing was exchanged")
def average_of_one(comm, gradient, rows):
    return gradient.clone()


@wrong("average", "the mean over no rows is 0/0")
def average_with_nan(comm, gradient, rows):
    return collectives.all_reduce(comm, gradient * rows) / all_rows(comm, rows)


@wrong("average", "also one without rows")
def average_without_the_empty(comm, gradient, rows):
    if rows == 0:
        return gradient
    return weighed(comm, gradient, rows) / all_rows(comm, rows)


@wrong("average", "Is something gathered on one rank")
def average_on_rank_0(comm, gradient, rows):
    own = torch.cat([known(gradient, rows) * rows, torch.tensor([rows], dtype=gradient.dtype)])
    if comm.rank == 0:
        for other in range(1, comm.size):
            own += comm.recv(torch.empty_like(own), other)
        for other in range(1, comm.size):
            comm.send(own, other)
    else:
        comm.send(own, 0)
        comm.recv(own, 0)
    return own[:-1] / own[-1]


@wrong("average", "Is something gathered on one rank")
def average_gathers_everything(comm, gradient, rows):
    every = collectives.all_gather(comm, known(gradient, rows) * rows)
    return every.view(comm.size, -1).sum(0) / all_rows(comm, rows)


@wrong("average", "the input of rank 0 was changed")
def average_in_place(comm, gradient, rows):
    gradient *= rows
    return collectives.all_reduce(comm, known(gradient, rows)) / all_rows(comm, rows)


@wrong("average", "the result has the dtype of the input")
def average_in_float32(comm, gradient, rows):
    return (weighed(comm, gradient, rows) / all_rows(comm, rows)).float()


# -- 7. buckets -------------------------------------------------------------------------------------------------------


def fill(order, sizes, first, limit, full=lambda held, room: held >= room):
    buckets, bucket, room = [], [], first
    for number in order:
        bucket.append(number)
        if full(sum(sizes[i] for i in bucket), room):
            buckets.append(bucket)
            bucket, room = [], limit
    return buckets + [bucket] if bucket else buckets


@wrong("make_buckets", "the last parameter's first")
def buckets_in_order(sizes, first, limit):
    return fill(range(len(sizes)), sizes, first, limit)


@wrong("make_buckets", "the small bucket is the first to be reduced")
def buckets_reversed_at_the_end(sizes, first, limit):
    return fill(range(len(sizes)), sizes, first, limit)[::-1]


@wrong("make_buckets", "Within a bucket too")
def buckets_sorted(sizes, first, limit):
    return [sorted(bucket) for bucket in fill(reversed(range(len(sizes))), sizes, first, limit)]


@wrong("make_buckets", "The first bucket has a limit of its own")
def buckets_of_one_limit(sizes, first, limit):
    return fill(reversed(range(len(sizes))), sizes, limit, limit)


@wrong("make_buckets", "that of the first bucket only")
def buckets_all_small(sizes, first, limit):
    return fill(reversed(range(len(sizes))), sizes, first, first)


@wrong("make_buckets", ">=, not >")
def buckets_over_the_limit(sizes, first, limit):
    return fill(reversed(range(len(sizes))), sizes, first, limit, lambda held, room: held > room)


@wrong("make_buckets", "a parameter is put in, then the bucket is looked at")
def buckets_never_over(sizes, first, limit):
    buckets, bucket, room = [], [], first
    for number in reversed(range(len(sizes))):
        if bucket and sum(sizes[i] for i in bucket) + sizes[number] > room:
            buckets.append(bucket)
            bucket, room = [], limit
        bucket.append(number)
    return [*buckets, bucket]


@wrong("make_buckets", "is the last bucket, which isn't full, kept?")
def buckets_full_ones(sizes, first, limit):
    buckets = fill(reversed(range(len(sizes))), sizes, first, limit)
    return buckets if sum(sizes[k] for k in buckets[-1]) >= limit else buckets[:-1]


@wrong("make_buckets", "There is an empty bucket in it")
def buckets_with_an_empty_one(sizes, first, limit):
    return [*fill(reversed(range(len(sizes))), sizes, first, limit), []]


@wrong("make_buckets", "one bucket for all parameters")
def buckets_one(sizes, first, limit):
    return [list(reversed(range(len(sizes))))]


@wrong("make_buckets", "a bucket for each parameter")
def buckets_each(sizes, first, limit):
    return [[k] for k in reversed(range(len(sizes)))]


@wrong("make_buckets", "in this exercise you write that yourself")
def buckets_of_the_library(sizes, first, limit):
    return data_parallel.assign(sizes, first, limit)


def reduced(comm, parameters, gradients, buckets, reduce):
    """Right, if `reduce(flat)` gives the mean."""
    means = [None] * len(parameters)
    for bucket in buckets:
        own = [torch.zeros_like(parameters[k]) if gradients[k] is None else gradients[k] for k in bucket]
        flat = reduce(torch.cat([gradient.flatten() for gradient in own]))
        for k, part in zip(bucket, flat.split([gradient.numel() for gradient in own]), strict=True):
            means[k] = part.view(parameters[k].shape)
    return means


@wrong("reduce_buckets", "divide by p, or take op=\"mean\"")
def reduce_sum(comm, parameters, gradients, buckets):
    return reduced(comm, parameters, gradients, buckets, lambda flat: collectives.all_reduce(comm, flat))


@wrong("reduce_buckets", "nothing was exchanged")
def reduce_nothing(comm, parameters, gradients, buckets):
    return [torch.zeros_like(p) if g is None else g.clone() for p, g in zip(parameters, gradients, strict=True)]


@wrong("reduce_buckets", "One all-reduce a bucket: join its gradients")
def reduce_each(comm, parameters, gradients, buckets):
    return [collectives.all_reduce(comm, torch.zeros_like(p) if g is None else g, op="mean")
            for p, g in zip(parameters, gradients, strict=True)]


@wrong("reduce_buckets", "so that the first can be on its way")
def reduce_all_at_once(comm, parameters, gradients, buckets):
    every = [[k for bucket in buckets for k in bucket]]
    return reduced(comm, parameters, gradients, every, lambda flat: collectives.all_reduce(comm, flat, op="mean"))


@wrong("reduce_buckets", "otherwise the others wait for it")
def reduce_what_is_there(comm, parameters, gradients, buckets):
    means = [torch.zeros_like(p) for p in parameters]
    for bucket in buckets:
        for k in bucket:
            if gradients[k] is not None:
                means[k] = collectives.all_reduce(comm, gradients[k], op="mean")
    return means


@wrong("reduce_buckets", "object has no attribute 'flatten'")
def reduce_none(comm, parameters, gradients, buckets):
    means = [None] * len(parameters)
    for bucket in buckets:
        flat = collectives.all_reduce(comm, torch.cat([gradients[k].flatten() for k in bucket]), op="mean")
        for k, part in zip(bucket, flat.split([gradients[k].numel() for k in bucket]), strict=True):
            means[k] = part.view(parameters[k].shape)
    return means


@wrong("reduce_buckets", "Divided by the ranks that used the parameter")
def reduce_by_users(comm, parameters, gradients, buckets):
    sums = reduced(comm, parameters, gradients, buckets, lambda flat: collectives.all_reduce(comm, flat))
    users = collectives.all_reduce(comm, torch.tensor([float(g is not None) for g in gradients]))
    return [one / max(1.0, float(number)) for one, number in zip(sums, users, strict=True)]


@wrong("reduce_buckets", "in the order of the buckets; put each")
def reduce_in_the_order_of_buckets(comm, parameters, gradients, buckets):
    means = reduced(comm, parameters, gradients, buckets, lambda flat: collectives.all_reduce(comm, flat, op="mean"))
    return [means[k] for bucket in buckets for k in bucket]


@wrong("reduce_buckets", "Is something gathered on one rank")
def reduce_on_rank_0(comm, parameters, gradients, buckets):
    def by_rank_0(flat):
        if comm.rank == 0:
            flat = flat.clone()
            for other in range(1, comm.size):
                flat += comm.recv(torch.empty_like(flat), other)
            flat /= comm.size
            for other in range(1, comm.size):
                comm.send(flat, other)
            return flat
        comm.send(flat, 0)
        return comm.recv(torch.empty_like(flat), 0)

    return reduced(comm, parameters, gradients, buckets, by_rank_0)


@wrong("reduce_buckets", "reduce them in the order of `buckets`")
def reduce_the_last_bucket_first(comm, parameters, gradients, buckets):
    return reduced(comm, parameters, gradients, buckets[::-1], lambda flat: collectives.all_reduce(comm, flat, op="mean"))


@wrong("reduce_buckets", "sent buckets 2, 1 and 0")
def reduce_sorted_buckets(comm, parameters, gradients, buckets):
    return reduced(comm, parameters, gradients, sorted(buckets, key=min),
                   lambda flat: collectives.all_reduce(comm, flat / comm.size))


@wrong("reduce_buckets", "torch.zeros makes float32")
def reduce_zeros_of_float32(comm, parameters, gradients, buckets):
    own = [torch.zeros(p.shape) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
    return reduced(comm, parameters, own, buckets, lambda flat: collectives.all_reduce(comm, flat, op="mean"))


@wrong("reduce_buckets", "expected a list of 12 tensors")
def reduce_by_name(comm, parameters, gradients, buckets):
    return dict(enumerate(reduce_nothing(comm, parameters, gradients, buckets)))


@wrong("reduce_buckets", "of shape")
def reduce_flat(comm, parameters, gradients, buckets):
    means = reduced(comm, parameters, gradients, buckets, lambda flat: collectives.all_reduce(comm, flat, op="mean"))
    return [mean.flatten() for mean in means]


# -- 8. what overlap gains --------------------------------------------------------------------------------------------


def timed(buckets, ready, cost, in_line=True):
    free = last = 0.0
    for bucket in buckets:
        end = max(ready(bucket), free if in_line else 0.0) + cost(bucket)
        free, last = end, max(last, end)
    return last


def cost_of(sizes, a, b):
    return lambda bucket: a + b * sum(sizes[k] for k in bucket)


@wrong("step_seconds", "without overlap")
def seconds_without_overlap(seconds, sizes, buckets, a, b):
    return sum(seconds) + sum(map(cost_of(sizes, a, b), buckets))


@wrong("step_seconds", "each waits for the one before it")
def seconds_side_by_side(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[min(bucket):]), cost_of(sizes, a, b), in_line=False)


@wrong("step_seconds", "the backward pass alone")
def seconds_of_backward(seconds, sizes, buckets, a, b):
    return sum(seconds)


@wrong("step_seconds", "The last bucket can't be hidden")
def seconds_of_the_longer(seconds, sizes, buckets, a, b):
    return max(sum(seconds), sum(map(cost_of(sizes, a, b), buckets)))


@wrong("step_seconds", "when its last gradient is there, not its first")
def seconds_from_the_first_gradient(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[max(bucket):]), cost_of(sizes, a, b))


@wrong("step_seconds", "The numbers in a bucket come in any order")
def seconds_from_the_last_listed(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[bucket[-1]:]), cost_of(sizes, a, b))


@wrong("step_seconds", "seconds of the parameters before the bucket")
def seconds_before_the_bucket(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[:min(bucket)]), cost_of(sizes, a, b))


@wrong("step_seconds", "when its last gradient is there, not its first")
def seconds_in_fractions(seconds, sizes, buckets, a, b):
    return Fraction(timed(buckets, lambda bucket: sum(seconds[max(bucket):]), cost_of(sizes, a, b)))


@wrong("step_seconds", "which begins with the last parameter")
def seconds_in_forward_order(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[:max(bucket) + 1]), cost_of(sizes, a, b))


@wrong("step_seconds", "Each bucket pays the latency a too")
def seconds_without_latency(seconds, sizes, buckets, a, b):
    return timed(buckets, lambda bucket: sum(seconds[min(bucket):]), cost_of(sizes, 0, b))


@wrong("step_seconds", "on all ranks the same, also when a later one is ready first")
def seconds_by_readiness(seconds, sizes, buckets, a, b):
    return timed(sorted(buckets, key=lambda c: -min(c)), lambda bucket: sum(seconds[min(bucket):]), cost_of(sizes, a, b))


@wrong("step_seconds", "expected a number of seconds")
def seconds_of_each(seconds, sizes, buckets, a, b):
    return [0.0 for _ in buckets]
