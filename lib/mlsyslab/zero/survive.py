"""Collectives are not fault-tolerant: what is done about it.

    python -m mlsyslab.zero.survive --ranks 4 --kill 2@7 FOLDER

When a rank dies, the others wait for it in the middle of a collective, and no result can come: the whole job has to end. It
is started again with the ranks that are left; they read the last checkpoint, which more ranks wrote, and go on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from mlsyslab.zero.training import Settings

PROGRAM = "mlsyslab.zero.training:main"
INPUTS = "mlsyslab.zero.training:inputs"


class Life(NamedTuple):
    """One start of the job: on how many ranks, the exit status of torchrun, and what it said."""

    ranks: int
    status: int
    said: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended the rank that was the first to end, as torchrun's report tells."""
        cause = re.search(r"Root Cause.*?exitcode\s*: (-?\d+)", self.said, re.DOTALL)
        return cause is not None and int(cause[1]) < 0


def survive(settings: Settings, ranks: int) -> Iterator[Life]:
    """Run the training under torchrun until it is done, after each death with one rank fewer.

    `settings.kill` is for the first life alone. Raises RuntimeError where a rank ended by an error of its own, which would
    only come again, or where no rank is left.
    """
    for left in range(ranks, 0, -1):
        life = start(settings, left)
        yield life
        if life.status == 0:
            return
        if not life.killed:
            break
        settings = replace(settings, kill=None)
    raise RuntimeError(f"the training ended on {life.ranks} ranks:\n{life.said}")


def start(settings: Settings, ranks: int) -> Life:
    """One job of so many ranks on this machine; returns when all of them have ended."""
    environ = {**os.environ, "MLSYSLAB_TRAINING": json.dumps(asdict(settings)), "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(ranks),
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
               "-m", "mlsyslab.run", PROGRAM, "--inputs", INPUTS, "--backend", "gloo"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environ)
    return Life(ranks, done.returncode, done.stdout)


def read_log(folder: str | os.PathLike) -> list[dict]:
    """Every step that was made, in the order in which they were: {"step", "loss", "ranks"}."""
    path = Path(folder) / "log.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mlsyslab.zero.survive", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for checkpoints and the log; a new one, or one to go on in")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--every", type=int, default=Settings.every, help="steps between two checkpoints")
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=Settings.stage)
    parser.add_argument("--kill", metavar="RANK@STEP", type=_kill, help="kill a rank (SIGKILL) in the middle of a step")
    options = parser.parse_args()
    settings = Settings(str(options.folder), options.steps, options.every, options.stage, kill=options.kill)
    shown = len(read_log(options.folder))
    for life in survive(settings, options.ranks):
        for line in read_log(options.folder)[shown:]:
            print(f"{line['ranks']} ranks   step {line['step']:3}   loss {line['loss']:.6f}")
            shown += 1
        print(f"{life.ranks} ranks   {'done' if life.status == 0 else 'a rank has died, and with it the job'}")


def _kill(text: str) -> tuple[int, int]:
    try:
        rank, step = map(int, text.split("@"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give RANK@STEP, such as 2@7") from None
    return rank, step


if __name__ == "__main__":
    main()
