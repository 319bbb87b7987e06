# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Ends of every kind: of the function, of the process, of the line to the judge."""

from autograder.outcome import LIMITED

from .case import attack

ENDED = {"at": "scaled", "kinds": (LIMITED,), "why": "scaled"}


@attack(at="scaled")
def exits_by_sys():
    import sys
    def scaled(tensor, factor):
        sys.exit(0)


@attack(at="scaled")
def exits_by_quit():
    def scaled(tensor, factor):
        quit()


@attack(**ENDED)
def exits_at_once():
    import os
    def scaled(tensor, factor):
        os._exit(0)


@attack(**ENDED)
def is_killed_by_itself():
    import os
    def scaled(tensor, factor):
        os.kill(os.getpid(), 9)


@attack(kinds=(LIMITED,), at="scaled", why="time")
def is_stopped_by_itself():
    import os
    def scaled(tensor, factor):
        os.kill(os.getpid(), 19)


@attack(**ENDED)
def reads_address_zero():
    import ctypes
    def scaled(tensor, factor):
        ctypes.string_at(0)


@attack(**ENDED)
def aborts():
    import os
    def scaled(tensor, factor):
        os.abort()


@attack(**ENDED)
def becomes_another_program():
    import os
    def scaled(tensor, factor):
        os.execv("/bin/true", ["true"])


@attack(**ENDED)
def closes_every_file():
    import os
    def scaled(tensor, factor):
        os.closerange(0, 1000)
        return tensor


@attack(at="scaled")
def interrupts():
    import os
    import signal
    def scaled(tensor, factor):
        os.kill(os.getpid(), signal.SIGINT)
        raise KeyboardInterrupt


@attack(at="scaled")
def raises_something_that_is_no_error():
    def scaled(tensor, factor):
        class Odd(BaseException):
            def __str__(self):
                raise Odd
            __repr__ = __str__
        raise Odd


@attack(at="scaled")
def forks_and_both_answer():
    import os
    def scaled(tensor, factor):
        os.fork()
        return tensor


@attack()
def exits_in_a_cell():
    import os
    os._exit(3)


@attack()
def registers_an_end():
    import atexit
    import os
    import signal
    atexit.register(lambda: os._exit(0))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, lambda *args: None)


@attack()
def a_thread_that_stays():
    import threading
    import time
    def change():
        while True:
            globals()["scaled"] = lambda tensor, factor: tensor
            time.sleep(0.05)
    threading.Thread(target=change).start()


@attack()
def a_daemon_that_stays():
    import subprocess
    for _ in range(3):
        subprocess.Popen(["sleep", "271828.182"], start_new_session=True)


@attack()
def a_double_fork_that_stays():
    import os
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(64):
                try:
                    os.close(number)
                except OSError:
                    pass
            os.execv("/bin/sleep", ["sleep", "271828.182"])
        os._exit(0)
