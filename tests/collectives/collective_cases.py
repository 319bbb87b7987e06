"""Cases for collectives, what they must give by definition, and the inputs: what the tests here share."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch

from mlsyslab import Link, collectives
from mlsyslab.collectives import ALGORITHMS, even_lengths

WORLDS = [*range(1, 10), 16]
ROOTED = ("broadcast", "reduce", "scatter", "gather")
REDUCING = ("reduce", "reduce_scatter", "all_reduce")
EVERY = [(op, algorithm) for op, table in ALGORITHMS.items() for algorithm in table]

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, torch.complex64, torch.complex128]


class Case(NamedTuple):
    """One call. lengths: rows of each rank's part, which are also how the operation cuts by itself if `given` is False."""

    op: str
    algorithm: str
    lengths: list[int]
    given: bool = False
    root: int = 0
    tail: tuple[int, ...] = ()
    dtype: torch.dtype = torch.int64
    reduction: str = "sum"
    contiguous: bool = True

    @property
    def rows(self) -> int:
        return sum(self.lengths)


class Grouped(Link):
    """Equal links, but ranks that belong to nodes of any sizes."""

    def __init__(self, nodes: list[int]):
        super().__init__(1e-6, 1e-9, 1e-10)
        object.__setattr__(self, "nodes", nodes)

    def node(self, rank: int) -> int:
        return self.nodes[rank]


def call(comm, case: Case, tensor: torch.Tensor | None):
    """Run `case` on this rank, whose input `tensor` is."""
    operation, algorithm = getattr(collectives, case.op), {"algorithm": case.algorithm}
    if case.op == "barrier":
        return operation(comm, **algorithm)
    options = {"lengths": case.lengths} if case.given else {}
    if case.op in ROOTED:
        options["root"] = case.root
    if case.op in REDUCING:
        options["op"] = case.reduction
    return operation(comm, tensor, **options, **algorithm)


def inputs(case: Case, seed: int) -> list[torch.Tensor | None]:
    """One tensor a rank, of small whole numbers, with which every dtype computes exactly in any order."""
    p, generator = len(case.lengths), torch.Generator().manual_seed(seed)
    if case.op == "barrier":
        return [None] * p

    def tensor(rows: int) -> torch.Tensor:
        shape = (rows, *case.tail)
        if case.reduction == "product":
            choice = torch.tensor([1, 1, 1, -1, 2])
            numbers = choice[torch.randint(5, shape, generator=generator)]
        else:
            numbers = torch.randint(-3, 4, shape, generator=generator)
        values = (numbers > 0) if case.dtype == torch.bool else numbers.to(case.dtype)
        if case.dtype.is_complex:
            values = values + 1j * torch.randint(-2, 3, shape, generator=generator)
            values = values.to(case.dtype)
        if case.contiguous:
            return values
        spread = torch.zeros((2 * rows, *case.tail), dtype=case.dtype)
        spread[::2] = values
        return spread[::2]

    return [tensor(case.lengths[rank] if case.op in ("gather", "all_gather") else case.rows) for rank in range(p)]


def reduced(tensors: list[torch.Tensor], reduction: str) -> torch.Tensor:
    """The tensors combined, by definition, in the order of ranks."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        if reduction in ("sum", "mean"):
            total = total + tensor
        elif reduction == "product":
            total = total * tensor
        else:
            total = (torch.minimum if reduction == "min" else torch.maximum)(total, tensor)
    return total / len(tensors) if reduction == "mean" else total


def expected(case: Case, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """What each rank must get: the definition, in one process."""
    p = len(tensors)
    everywhere = {"broadcast": lambda: tensors[case.root], "all_gather": lambda: torch.cat(tensors),
                  "all_reduce": lambda: reduced(tensors, case.reduction)}
    at_root = {"reduce": lambda: reduced(tensors, case.reduction), "gather": lambda: torch.cat(tensors)}
    in_parts = {"scatter": lambda: tensors[case.root].split(case.lengths),
                "reduce_scatter": lambda: reduced(tensors, case.reduction).split(case.lengths)}
    if case.op in everywhere:
        return [everywhere[case.op]()] * p
    if case.op in at_root:
        return [at_root[case.op]() if rank == case.root else None for rank in range(p)]
    if case.op in in_parts:
        return list(in_parts[case.op]())
    if case.op == "all_to_all":
        return [torch.cat([tensor.tensor_split(p)[rank] for tensor in tensors]) for rank in range(p)]
    return [None] * p


def same(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    """Equal in every bit that counts: dtype, shape, values."""
    if got is None or want is None:
        return got is want
    return got.dtype == want.dtype and got.shape == want.shape and torch.equal(got, want)


def grid(p: int, seed: int = 0) -> list[Case]:
    """Every operation and algorithm, for several roots and awkward lengths, the rest drawn at random."""
    draw, cases = random.Random(1000 * seed + p), []
    for op, algorithm in EVERY:
        if op == "barrier":
            cases.append(Case(op, algorithm, [0] * p))
            continue
        for root in sorted({0, p // 2, p - 1}) if op in ROOTED else [0]:
            for rows in (0, 1, p - 1, p, 2 * p + 3, None):
                given = rows is None and op in ("scatter", "gather", "all_gather", "reduce_scatter")
                even = even_lengths(3 * p if rows is None else rows, p)
                lengths = [draw.randrange(4) for _ in range(p)] if given else even
                dtype = draw.choice(DTYPES)
                allowed = ["sum", "product"] + ["min", "max"] * (not dtype.is_complex)
                allowed += ["mean"] * (dtype.is_floating_point or dtype.is_complex)
                reduction = draw.choice(allowed) if op in REDUCING else "sum"
                # gather and all_gather can't know unequal lengths by themselves
                given = given or (op in ("gather", "all_gather") and len(set(lengths)) > 1)
                cases.append(Case(op, algorithm, lengths, given, root, draw.choice([(), (3,), (2, 2)]), dtype, reduction,
                                  draw.random() < 0.7))
    return cases


def elements(case: Case) -> list[int]:
    """How the operation cuts, for `counts`: what is whole before and after is cut by elements."""
    if case.op in ("broadcast", "reduce", "all_reduce"):
        return even_lengths(case.rows * width(case) // case.dtype.itemsize, len(case.lengths))
    return case.lengths


def width(case: Case) -> int:
    """Bytes of one row."""
    return torch.empty(case.tail).numel() * case.dtype.itemsize


def counted(case: Case, nodes: list[int] | None = None) -> list[collectives.Count]:
    """What the closed forms say of `case`."""
    whole = case.op in ("broadcast", "reduce", "all_reduce")
    return collectives.counts(case.op, case.algorithm, elements(case), case.dtype.itemsize if whole else width(case),
                              case.root, nodes)
