"""Checkpoints written by shard, each rank its own file, and read back at any world size.

    folder/step-00000010/shard-00000-of-00004    what rank 0 keeps: its runs of elements of every parameter (`pieces.py`)
                         shard-00001-of-00004    …
                         manifest.json           which files there are, and what is the same for all of them

A file says of each piece which elements of which parameter it holds, not how the writer was sharded. So a reader takes what
its own shards need, whatever its world size, stage or bucket size. All is written under another name and renamed at
the end: a checkpoint is there with all of its files, or it isn't there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mlsyslab.collectives import all_gather, barrier, broadcast
from mlsyslab.zero.engine import Engine
from mlsyslab.zero.flat import Flat
from mlsyslab.zero.pieces import CheckpointError, Piece, PieceFile, write

FORMAT = "mlsyslab.zero 1"
MANIFEST = "manifest.json"

#: How torch computes, not what: a reader keeps its own.
_WAYS = {"params", "foreach", "fused", "capturable", "differentiable"}


def save(engine: Engine, folder: str | os.PathLike, extra: Any = None) -> Path:
    """Write `engine`'s state to folder/step-…/, by all ranks; returns that path when it is complete.

    folder: on a file system that all ranks share.  extra: plain data (JSON) to come back from `load`: where the data was.
    A checkpoint of the same step that is there already is replaced.
    """
    comm, folder = engine.comm, Path(folder)
    extra = json.loads(json.dumps(extra))  # whatever isn't plain data is refused before anything is written
    done = folder / f"step-{engine.steps:08d}"
    number = torch.tensor(secrets.randbits(62))
    if comm.rank == 0:
        for left in folder.glob(".step-*"):  # by a job that was killed
            shutil.rmtree(left)
        (folder / f".{done.name}").mkdir(parents=True)
    number = broadcast(comm, number).item()  # only now is there a place to write to
    about = {"format": FORMAT, "checkpoint": number, "step": engine.steps, "rank": comm.rank, "ranks": comm.size}
    written = write(folder / f".{done.name}" / _file(comm.rank, comm.size), about, list(_pieces(engine)))
    files = all_gather(comm, torch.tensor([written])).tolist()
    if comm.rank == 0:
        manifest = {**about, **_common(engine), "files": files, "extra": extra}
        del manifest["rank"]
        _write_manifest(folder / f".{done.name}" / MANIFEST, manifest)
        _replace(folder / f".{done.name}", done)
    barrier(comm)
    return done


def load(engine: Engine, path: str | os.PathLike) -> Any:
    """Put what `save` wrote into `engine`, by all ranks; returns `extra`.

    Raises CheckpointError, naming the file, where one is missing, truncated, damaged or of another checkpoint, and where
    the model or the optimizer is another.
    """
    path = Path(path)
    manifest = _read_manifest(path / MANIFEST)
    _check_same(engine, manifest, path / MANIFEST)
    reader = _Reader(path, manifest)
    states: dict[int, dict[str, torch.Tensor]] = {}
    for flat in engine.flats:
        if not flat.trained:
            reader.fill(flat, engine.comm.rank, "parameter", engine.shards[flat])
            continue
        i = engine.trained.index(flat)
        master = engine.own.masters[i].detach()
        reader.fill(flat, engine.comm.rank, "parameter", master)
        engine.shards[flat].copy_(master)
        states[i] = {slot: reader.fill(flat, engine.comm.rank, slot, torch.empty_like(master)) for slot in manifest["slots"]}
        states[i] |= {name: torch.tensor(value, dtype=getattr(torch, dtype)) for name, (dtype, value)
                      in manifest["counts"].items()}
    for name, buffer in _buffers(engine):
        reader.fill_buffer(name, buffer)
    engine.own.restore({i: state for i, state in states.items() if state}, _tuples(manifest["hyperparameters"]))
    engine.zero_grad()
    engine.refresh()
    engine.steps = manifest["step"]
    return manifest["extra"]


def latest(folder: str | os.PathLike) -> Path | None:
    """The checkpoint of the highest step in `folder`, None where there is none."""
    complete = sorted(path.parent for path in Path(folder).glob("step-*/" + MANIFEST))
    return complete[-1] if complete else None


# -- what is written --------------------------------------------------------------------------------------------------


def _pieces(engine: Engine) -> Iterator[tuple[Piece, torch.Tensor]]:
    """All that this rank keeps; buffers, which all ranks have, are written by rank 0."""
    rank = engine.comm.rank
    for flat in engine.flats:
        kept = {"parameter": engine.shards[flat]}
        if flat.trained:
            i = engine.trained.index(flat)
            kept = {"parameter": engine.own.masters[i], **engine.own.state(i)}
        for slot, shard in kept.items():
            for i, start, stop, at in flat.owned(rank):
                yield Piece(flat.names[i], slot, start, stop, _name(shard.dtype)), shard[at:at + stop - start]
    if rank == 0:
        for name, buffer in _buffers(engine):
            yield Piece(name, "buffer", 0, buffer.numel(), _name(buffer.dtype)), buffer


def _common(engine: Engine) -> dict[str, Any]:
    """What is the same on all ranks. Rank 0's shards are the longest, so it has the state of all flats."""
    group = engine.optimizer.param_groups[0]
    return {"optimizer": type(engine.optimizer).__name__,
            "hyperparameters": {name: value for name, value in group.items()
                                if name not in _WAYS and isinstance(value, (int, float, bool, tuple, list))},
            "slots": sorted(engine.own.state(0)),
            "counts": {name: [_name(value.dtype), value.item()] for name, value in engine.own.counts(0).items()},
            "shapes": _shapes(engine)}


def _shapes(engine: Engine) -> dict[str, list[int]]:
    """The shape of each parameter and buffer, by its name."""
    shapes = {name: list(shape) for flat in engine.flats for name, shape in zip(flat.names, flat.shapes, strict=True)}
    return shapes | {name: list(buffer.shape) for name, buffer in _buffers(engine)}


def _buffers(engine: Engine) -> list[tuple[str, torch.Tensor]]:
    """The model's buffers that are part of its state."""
    parameters = {name for name, _ in engine.model.named_parameters(remove_duplicate=False)}
    return [(name, tensor) for name, tensor in engine.model.state_dict().items()
            if name not in parameters and isinstance(tensor, torch.Tensor)]


def _file(rank: int, ranks: int) -> str:
    return f"shard-{rank:05d}-of-{ranks:05d}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Two lines: the manifest, and its checksum."""
    text = json.dumps(manifest)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{text}\n{zlib.crc32(text.encode())}\n")
        file.flush()
        os.fsync(file.fileno())


def _replace(new: Path, done: Path) -> None:
    """Let `new` be `done`. Of what was there before, nothing is deleted until `new` has its name."""
    before = done.with_name(f".{done.name}.before")
    if done.exists():
        done.rename(before)
    new.rename(done)
    if before.exists():
        shutil.rmtree(before)


# -- what is read -----------------------------------------------------------------------------------------------------


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        text, checksum = path.read_text(encoding="utf-8").splitlines()
        if zlib.crc32(text.encode()) != int(checksum):
            raise ValueError
        manifest = json.loads(text)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: {path.parent} holds no checkpoint, or not all of it") from None
    except ValueError:
        raise CheckpointError(f"{path} is damaged or truncated") from None
    if manifest["format"] != FORMAT:
        raise CheckpointError(f"{path} has the format {manifest['format']!r}; this version reads {FORMAT!r}")
    return manifest


def _check_same(engine: Engine, manifest: dict[str, Any], path: Path) -> None:
    """Raise CheckpointError unless the checkpoint is one of this model and optimizer."""
    here, there = _shapes(engine), manifest["shapes"]
    for name in here | there:
        if here.get(name) != there.get(name):
            has = f"has shape {tuple(there[name])}" if name in there else "is not there"
            wants = f"has shape {tuple(here[name])}" if name in here else "doesn't have it"
            raise CheckpointError(f"{path} is of another model: {name} {has}, and the engine's model {wants}")
    optimizer = type(engine.optimizer).__name__
    if manifest["optimizer"] != optimizer:
        raise CheckpointError(f"{path} holds the state of {manifest['optimizer']}; the engine's optimizer is {optimizer}")


class _Reader:
    """The files of one checkpoint, and where in them each tensor's elements are."""

    def __init__(self, path: Path, manifest: dict[str, Any]):
        self.path = path
        self.found: dict[tuple[str, str], list[tuple[Piece, PieceFile]]] = defaultdict(list)
        for rank, written in enumerate(manifest["files"]):
            file = PieceFile(path / _file(rank, manifest["ranks"]))
            about = file.about
            if (about["checkpoint"], about["rank"]) != (manifest["checkpoint"], rank):
                raise CheckpointError(f"{file.path} is mixed up: it was written as shard {about['rank']} of "
                                      f"{about['ranks']} at step {about['step']}, in another checkpoint or place")
            file.check(*written)
            for piece in file.pieces:
                self.found[piece.name, piece.slot].append((piece, file))

    def fill(self, flat: Flat, rank: int, slot: str, shard: torch.Tensor) -> torch.Tensor:
        """Put into `shard`, rank's part of `flat`, what was saved as `slot`; returns it."""
        for i, start, stop, at in flat.owned(rank):
            self._fill(flat.names[i], slot, start, stop, shard[at:at + stop - start])
        return shard

    def fill_buffer(self, name: str, buffer: torch.Tensor) -> None:
        flat = torch.empty(buffer.numel(), dtype=buffer.dtype)
        self._fill(name, "buffer", 0, len(flat), flat)
        buffer.copy_(flat.view(buffer.shape))

    def _fill(self, name: str, slot: str, start: int, stop: int, out: torch.Tensor) -> None:
        """Elements start … stop-1 of a tensor."""
        missing = stop - start
        for piece, file in self.found[name, slot]:
            low, high = max(start, piece.start), min(stop, piece.stop)
            if low >= high:
                continue
            if piece.dtype != _name(out.dtype):
                raise CheckpointError(f"{file.path} holds {slot} of {name} as {piece.dtype}; the engine has "
                                      f"{_name(out.dtype)}")
            out[low - start:high - start].copy_(file.read(piece)[low - piece.start:high - piece.start])
            missing -= high - low
        if missing:
            raise CheckpointError(f"{self.path} lacks {missing} elements of {slot} of {name}: was it saved with that "
                                  "parameter frozen?")


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples, and torch's optimizers take some."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
