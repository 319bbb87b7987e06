"""What ranks run in the tests of the process world. (Apart from the tests, so that a rank need not import pytest.)"""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16]
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (5, 3), (64, 65), (33, 17, 9)]


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def value(rank, shape, dtype):
    """A tensor that only `rank` has."""
    generator = torch.Generator().manual_seed(rank)
    return (torch.rand(shape, generator=generator) * 100).to(dtype)


def same(a, b):
    """Whether two tensors are equal bit for bit."""
    return a.dtype == b.dtype and a.shape == b.shape and \
        a.contiguous().reshape(-1).view(torch.uint8).equal(b.contiguous().reshape(-1).view(torch.uint8))


def every_kind_of_tensor(comm, _):
    """Which (dtype, shape) did not arrive as it was sent."""
    right, left = neighbours(comm)
    wrong = []
    for dtype in DTYPES:
        for shape in SHAPES:
            got = torch.empty(shape, dtype=dtype)
            comm.sendrecv(value(comm.rank, shape, dtype), right, got, left)
            if not same(got, value(left, shape, dtype)):
                wrong.append((dtype, shape))
    return wrong


def not_contiguous(comm, _):
    """Send and receive columns, transposes and steps; nothing beside them may be touched."""
    right, left = neighbours(comm)
    results = []
    for n in (6, 600):
        whole = torch.arange(n * n, dtype=torch.float32).reshape(n, n) + comm.rank
        there = torch.arange(n * n, dtype=torch.float32).reshape(n, n) + left
        room = torch.full((n, n), -1.0)
        comm.sendrecv(whole[:, 1], right, room[2], left)
        results.append(room[2].equal(there[:, 1]) and bool((room[0] == -1).all()) and bool((room[3:] == -1).all()))
        room = torch.full((n, n), -1.0)
        comm.sendrecv(whole.t(), right, room, left)
        results.append(room.equal(there.t()))
        room = torch.full((n, n), -1.0)
        comm.sendrecv(whole[::2], right, room.t()[::2], left)
        results.append(room.t()[::2].equal(there[::2]) and bool((room.t()[1::2] == -1).all()))
    return results


def combining(comm, _):
    """Sends and combines, short and long, of all layouts: whether all is as it must be, and the events of the last."""
    other, all_as_expected = 1 - comm.rank, []
    for n in (3, 700_001):  # float32: the second is 2.8 MB
        for layout in ("apart", "same", "overlapping", "strided"):
            for op, together in (("sum", torch.add), ("max", torch.maximum)):
                whole = torch.arange(2.0 * n + 2) * (comm.rank + 1)
                tensor, acc = {"apart": (whole[:n], whole[n:2 * n]), "same": (whole[:n], whole[:n]),
                               "overlapping": (whole[:n], whole[1:n + 1]),
                               "strided": (whole[:2 * n:2], whole[1:2 * n:2])}[layout]
                theirs, before = tensor.clone() / (comm.rank + 1) * (other + 1), acc.clone()
                result = comm.sendrecv_combine(tensor, other, acc, other, op)
                all_as_expected.append(result is acc and torch.equal(acc, together(before, theirs)))
    return all_as_expected, [(e.kind, e.bytes, e.peer) for e in comm.world.trace[-3:]]


def tags_in_any_order(comm, _):
    """Messages with tags may be received in another order; those with one tag come in the order of sending."""
    if comm.rank == 0:
        works = [comm.isend(torch.full((size,), float(10 * tag + turn)), 1, tag=tag)
                 for turn in range(2) for tag in range(3) for size in (4, 4000)]
        comm.wait_all(works)
        return None
    got = []
    for tag in (2, 0, 1):
        for turn in range(2):
            for size in (4, 4000):
                out = comm.recv(torch.empty(size), 0, tag=tag)
                got.append(bool((out == 10 * tag + turn).all()))
    return got


def many_under_way(comm, messages):
    """Far more messages under way than a pipe holds notes of, before anyone receives."""
    count, length = messages
    right, left = neighbours(comm)
    works = [comm.isend(torch.full((length,), float(i)), right, tag=i % 5) for i in range(count)]
    outs = [torch.empty(length) for _ in range(count)]
    works += [comm.irecv(out, left, tag=i % 5) for i, out in enumerate(outs)]
    comm.wait_all(works)
    return all(bool((out == i).all()) for i, out in enumerate(outs))


def done_before_its_notes_are_read(comm, count):
    """Rank 1 has all it wants, and returns, while rank 0 does not yet read what rank 1 has posted."""
    if comm.rank == 1:
        outs = [torch.empty(1) for _ in range(count)]
        for out in outs:
            comm.irecv(out, 0)
        return True
    comm.compute(0.5)
    comm.wait_all([comm.isend(torch.ones(1), 1) for _ in range(count)])
    return True


def mixture(comm, x):
    """Some of everything, the same in each world."""
    right, left = neighbours(comm)
    got = torch.empty_like(x)
    if comm.size > 1:
        comm.sendrecv(x, right, got, left)
        comm.combine(x, got)
        row = comm.split(comm.rank % 2, key=-comm.rank)
        if row.size > 1:
            word = torch.tensor([row.rank], dtype=torch.int64)
            if row.rank == 0:
                for peer in range(1, row.size):
                    row.send(word, peer, tag=3)
            else:
                row.recv(word, 0, tag=3)
        comm.barrier()
        with comm.work("step"):
            x = x * 2
    else:
        row = comm
    return x, list(row.ranks), row.rank, comm.nodes


def chain(comm, seconds):
    """A token from rank to rank; each holds it for a while. Returns when this rank had it."""
    token = torch.zeros(1000)
    if comm.rank > 0:
        comm.recv(token, comm.rank - 1)
    start = comm.now()
    comm.compute(seconds, "hold")
    end = comm.now()
    if comm.rank + 1 < comm.size:
        comm.send(token, comm.rank + 1)
    return start, end


def torch_distributed(comm, x):
    dist.all_reduce(x)
    return x


def uses_isend_without_wait(comm, _):
    if comm.rank == 0:
        comm.isend(torch.arange(1000.0), 1)
        return None
    time.sleep(0.2)
    return comm.recv(torch.empty(1000), 0)


def surroundings(comm, _):
    return os.getcwd(), os.environ.get("MLSYSLAB_TEST"), list(sys.path), torch.get_num_threads()


def speaks(comm, text):
    print(f"{text} {comm.rank}")
    print(f"{text} {comm.rank}", file=sys.stderr)
    os.write(1, f"raw {comm.rank}\n".encode())
    comm.barrier()


# -- what goes wrong --------------------------------------------------------------------------------------------------


def raises(comm, failing):
    if comm.rank == failing:
        raise ValueError("odd length")
    comm.barrier()


def ends_by(comm, how):
    if comm.rank == 1:
        if how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, how))
        elif how == "_exit":
            os._exit(3)
        else:
            sys.exit("enough")
    comm.recv(torch.empty(3), (comm.rank + 1) % comm.size)


def ends_inside_gloo(comm, _):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1_000_000))


def all_send_first(comm, n):
    right, left = neighbours(comm)
    comm.send(torch.ones(n), right)
    comm.recv(torch.ones(n), left)


def waits_for_one_that_returned(comm, _):
    if comm.rank == 0:
        comm.recv(torch.empty(3), 1)


def wrong_tag(comm, _):
    if comm.rank == 0:
        comm.send(torch.empty(300), 1, tag=4)
    else:
        comm.recv(torch.empty(300), 0, tag=3)


def exchange_with_the_wrong_one(comm, n):
    right, _ = neighbours(comm)
    comm.sendrecv(torch.ones(n), right, torch.empty(n), right)


def exchange_under_two_tags(comm, n):
    other = 1 - comm.rank
    comm.sendrecv(torch.ones(n), other, torch.empty(n), other, tag=3 + comm.rank)


def one_misses_the_barrier(comm, _):
    if comm.rank != 2:
        comm.barrier()
    else:
        comm.recv(torch.empty(1), 0)


def never_ends(comm, _):
    if comm.rank == 0:
        while True:
            pass
    comm.barrier()


def mismatch(comm, sends):
    if comm.rank == 0:
        comm.send(torch.zeros(*sends[0], dtype=sends[1]), 1)
    else:
        comm.recv(torch.zeros(3, 4), 0)


def returns_a_lock(comm, _):
    import threading
    return threading.Lock()


def starts_a_process_and_fails(comm, path):
    if comm.rank == 0:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(path, "w") as file:
            file.write(str(child.pid))
        raise ValueError("after starting a process")
    comm.barrier()


def tells_pid_and_stays(comm, folder):
    with open(os.path.join(folder, f"rank{comm.rank}"), "w") as file:
        file.write(str(os.getpid()))
    if comm.rank == 0:
        time.sleep(600)
    comm.barrier()


def slow_but_alive(comm, seconds):
    """Rank 0 computes while all others wait for it: no deadlock."""
    if comm.rank == 0:
        time.sleep(seconds)
    comm.barrier()
    return True
