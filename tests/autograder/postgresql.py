"""A PostgreSQL server of the test's own, on a socket in a folder of its own; no network, no password."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


def program(name: str) -> str | None:
    """Where a program of PostgreSQL lies; Debian keeps its own off the path."""
    found = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)]
    return next(iter(found), shutil.which(name))


def missing() -> str | None:
    """Why no server can be started here; None when one can."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'psycopg[binary]'"
    return None if program("initdb") and program("pg_ctl") else "PostgreSQL is not installed: apt install postgresql"


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database. PostgreSQL refuses to run as root, who becomes nobody for it."""
    who = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:  # a short path, for the socket
        if who:
            os.chown(folder, 65534, 65534)
        data = f"{folder}/data"
        run([program("initdb"), "--auth=trust", "--username=grader", "--encoding=UTF8", "--no-sync", data], folder, who)
        options = f"-c listen_addresses= -c fsync=off -k {folder}"
        run([program("pg_ctl"), "--pgdata", data, "--log", f"{folder}/log", "-w", "-o", options, "start"], folder, who)
        try:
            yield f"postgresql+psycopg://grader@/postgres?host={folder}"
        finally:
            run([program("pg_ctl"), "--pgdata", data, "-m", "immediate", "-w", "stop"], folder, who)


def run(command: list[str], folder: str, who: dict) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": folder}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False, **who)
    assert done.returncode == 0, done.stderr
