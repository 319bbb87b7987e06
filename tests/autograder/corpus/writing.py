# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Attempts to leave something behind: in the gradebook, with other students, in the library, for whoever comes next."""

from .case import attack


@attack()
def writes_into_the_gradebook():
    import sqlite3
    for path in ("gradebook.db", "../gradebook.db", "../../../gradebook.db", "/gradebook.db"):
        try:
            with sqlite3.connect(path) as book:
                book.execute("update grade set auto_score = 100, manual_score = 100")
        except sqlite3.Error as error:
            print(error)


@attack()
def writes_over_other_students():
    import pathlib
    for path in ("../../aaa/collectives/collectives.ipynb", "../aaa", "/submitted/aaa/collectives/collectives.ipynb"):
        try:
            pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(path).write_text("{}")
        except OSError as error:
            print(error)


@attack()
def writes_into_the_library():
    import pathlib
    import mlsyslab
    import torch
    for module in (mlsyslab, torch):
        try:
            with open(module.__file__, "a") as file:
                file.write("\nequal = lambda *args: True\n")
            print("written")
        except OSError as error:
            print(error)
    for path in pathlib.Path(mlsyslab.__file__).parent.rglob("*.pyc"):
        path.unlink()


@attack()
def leaves_a_start_file():
    import pathlib
    import site
    import sys
    for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path, "/inside", "/inside/inside", "/etc"):
        for name in ("sitecustomize.py", "usercustomize.py", "planted.pth", "torch.py"):
            try:
                pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
                (pathlib.Path(folder) / name).write_text("import builtins; builtins.planted = True")
            except OSError:
                continue


@attack()
def leaves_files_for_the_next():
    for path in ("/tmp/corpus-planted", "/dev/shm/corpus-planted", "/var/tmp/corpus-planted", "/run/corpus-planted"):
        try:
            open(path, "w").write("def scaled(tensor, factor): return (tensor * factor).to(tensor.dtype)")
        except OSError:
            continue


@attack()
def picks_up_what_the_last_one_left():
    """It is graded after the one above, and would score with what that left."""
    for path in ("/tmp/corpus-planted", "/dev/shm/corpus-planted", "/var/tmp/corpus-planted", "/run/corpus-planted"):
        try:
            exec(open(path).read())
        except OSError:
            continue


@attack()
def leaves_modules_for_the_next():
    import sys
    import torch
    import mlsyslab
    mlsyslab.planted = torch.planted = True
    sys.modules["planted"] = torch
    if hasattr(mlsyslab, "planted_before"):
        print("it is still there")


@attack()
def leaves_a_segment_of_shared_memory():
    from multiprocessing import resource_tracker, shared_memory
    memory = shared_memory.SharedMemory(name="corpus-planted", create=True, size=64)
    resource_tracker.unregister(memory._name, "shared_memory")


@attack(at="scaled")
def kills_all_it_can():
    import os
    import signal
    def scaled(tensor, factor):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
            for pid in [*range(2, 500), os.getppid()]:
                if pid != os.getpid():
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
        return tensor


@attack()
def kills_everybody_at_once():
    import os
    os.kill(-1, 9)


@attack()
def becomes_somebody_else():
    import ctypes
    import os
    device = lambda: os.mknod("/tmp/sda", 0o60660)
    for change in (lambda: os.setuid(0), lambda: os.chroot("/"), lambda: os.nice(-20), device):
        try:
            change()
        except OSError as error:
            print(error)
    libc = ctypes.CDLL(None, use_errno=True)
    print(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None), libc.unshare(0x10000000), libc.syscall(250, 0, 0, 0))


@attack()
def changes_modes_and_names():
    import os
    import mlsyslab
    for path in (mlsyslab.__file__, os.path.dirname(mlsyslab.__file__), "/inside/inside", "/usr/bin/python3"):
        for change in (lambda path: os.chmod(path, 0o777), lambda path: os.rename(path, "/tmp/away"), os.unlink):
            try:
                change(path)
                print("changed", path)
            except OSError:
                continue
