# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Loops, forks, threads, memory, disk and output without end; values too large to be read."""

from autograder.outcome import LIMITED

from .case import attack

ENDED = {"at": "scaled", "kinds": (LIMITED,), "why": "scaled"}


@attack(kinds=(LIMITED,), why="time")
def a_loop_in_a_cell():
    while True:
        pass


@attack(**ENDED)
def a_loop_in_a_function():
    def scaled(tensor, factor):
        while True:
            pass


@attack(at="shift")
def a_rank_that_waits_for_ever():
    def shift(comm, tensor):
        comm.recv(tensor.clone(), (comm.rank - 1) % comm.size)
        return tensor


@attack(**ENDED)
def sleep_that_no_interrupt_ends():
    import time
    def scaled(tensor, factor):
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass


@attack(**ENDED)
def arithmetic_that_no_interrupt_ends():
    def scaled(tensor, factor):
        return 7 ** (7 ** 12)


@attack()
def processes_without_end():
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass


@attack()
def threads_without_end():
    import threading
    import time
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


@attack()
def memory_without_end():
    held = []
    while True:
        held.append(bytearray(1 << 26))


@attack()
def memory_in_many_processes():
    import os
    for _ in range(8):
        if os.fork() == 0:
            held = [bytearray(b"x" * (1 << 28)) for _ in range(6)]
            while True:
                pass


@attack()
def disk_without_end():
    import itertools
    for number in itertools.count():
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 24))


@attack()
def shared_memory_without_end():
    with open("/dev/shm/big", "wb") as file:
        while True:
            file.write(bytes(1 << 24))


@attack()
def files_without_end():
    held = [open("/dev/null") for _ in range(1_000_000)]


@attack(kinds=(LIMITED,), why="")
def output_without_end():
    while True:
        print("x" * 100_000)


@attack(kinds=(LIMITED,), why="")
def displays_without_end():
    from IPython.display import HTML, display
    while True:
        display(HTML("x" * 100_000))


@attack()
def output_on_the_bare_file():
    import os
    for _ in range(200):
        os.write(1, b"\xff\x00" * 50_000)
        os.write(2, b"\x1b[2J" * 25_000)


@attack(at="scaled")
def recursion_without_end():
    import sys
    sys.setrecursionlimit(10**9)
    def scaled(tensor, factor):
        return scaled(tensor, factor)


@attack(at="scaled")
def a_list_within_itself():
    def scaled(tensor, factor):
        endless = []
        endless.append(endless)
        return endless


@attack(at="scaled")
def a_list_too_long():
    def scaled(tensor, factor):
        return list(range(3_000_000))


@attack(at="scaled")
def a_tensor_too_large():
    import torch
    def scaled(tensor, factor):
        return torch.zeros(1).expand(10**9)


@attack(at="scaled")
def a_number_too_long():
    import sys
    sys.set_int_max_str_digits(0)
    def scaled(tensor, factor):
        return 1 << 2_000_000


@attack(at="shift")
def messages_without_end():
    def shift(comm, tensor):
        while True:
            comm.sendrecv(tensor, (comm.rank + 1) % comm.size, tensor.clone(), (comm.rank - 1) % comm.size)


@attack(at="shift")
def a_message_too_large():
    def shift(comm, tensor):
        works = [comm.irecv(tensor.new_empty(1 << 34), (comm.rank - 1) % comm.size)]
        comm.wait_all(works)


@attack(at="shift")
def groups_without_end():
    def shift(comm, tensor):
        while True:
            comm = comm.split(0)
