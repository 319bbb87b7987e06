"""Parameters of 16 bits with a master copy of 32: against a loop that does the same by hand."""

import pytest
import torch
from zero_models import OPTIMIZERS, batches, loss_of, tiny

from mlsyslab import simulate, zero

STEPS = batches(4, rows=8)


def by_hand(optimizer, dtype, ranks):
    """One process with all ranks' gradients, added up in 16 bits in the order of ranks."""
    model = tiny(dtype)
    trained = [p for p in model.parameters() if p.requires_grad]
    masters = [torch.nn.Parameter(p.detach().float()) for p in trained]
    optimizer = OPTIMIZERS[optimizer](masters)
    for batch in STEPS:
        total = [torch.zeros_like(p) for p in trained]
        for mine in batch.tensor_split(ranks):
            model.zero_grad()
            (loss_of(model, mine) * torch.tensor(1 / len(batch), dtype=dtype)).backward()
            for t, p in zip(total, trained, strict=True):
                t += p.grad if p.grad is not None else 0
        for master, gradient in zip(masters, total, strict=True):
            master.grad = gradient.float()
        optimizer.step()
        for master, p in zip(masters, trained, strict=True):
            p.data.copy_(master)
    return [p.detach() for p in trained], [m.detach() for m in masters]


def sharded(comm, given):
    stage, optimizer, dtype = given
    model = tiny(dtype)
    engine = zero.shard(comm, model, OPTIMIZERS[optimizer], stage, bucket_bytes=200)
    for batch in STEPS:
        engine.backward(loss_of(engine, batch.tensor_split(comm.size)[comm.rank]), share=1 / len(batch))
        engine.step()
    dtypes = {t.dtype for i in range(len(engine.trained)) for t in (engine.own.masters[i], *engine.own.state(i).values())}
    with engine.whole():
        return [p.detach().clone() for p in model.parameters() if p.requires_grad], dtypes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_sixteen_bits_with_a_master_copy(stage, dtype):
    """Bit by bit on 1 and 2 ranks, where a sum has one order; the masters keep what 16 bits would round away."""
    for optimizer in OPTIMIZERS:
        for ranks in (1, 2):
            wanted, masters = by_hand(optimizer, dtype, ranks)
            for parameters, dtypes in simulate(sharded, [(stage, optimizer, dtype)] * ranks).results:
                assert dtypes == {torch.float32}
                assert all(torch.equal(a, b) for a, b in zip(parameters, wanted, strict=True))
    assert any(not torch.equal(m, m.to(dtype).float()) for m in masters)


def test_small_updates_are_not_lost():
    """Steps of 2^-12 at 1: less than half of bfloat16's last bit, which is 2^-7."""
    def descend(comm, _):
        model = torch.nn.Linear(1, 4, bias=False, dtype=torch.bfloat16)
        torch.nn.init.ones_(model.weight)
        engine = zero.shard(comm, model, lambda p: torch.optim.SGD(p, lr=2**-12), 2)
        for _ in range(64):
            engine.backward(engine(torch.ones(1, 1, dtype=torch.bfloat16)).sum())
            engine.step()
        return model.weight.detach().float()

    for weight in simulate(descend, [None] * 2).results:
        assert (weight == 1 - 64 * 2**-12).all()


def test_layers_of_two_precisions_share_a_model():
    def mixed(comm, stage):
        model = tiny(torch.bfloat16)
        for block in model.blocks:
            block[2].to(torch.float32)
            block.register_forward_hook(lambda _m, _g, out: out.to(torch.bfloat16))
            block[1].register_forward_hook(lambda _m, _g, out: out.float())
        engine = zero.shard(comm, model, OPTIMIZERS["Adam"], stage)
        first = [p.detach().clone() for p in engine.own.masters]
        for batch in STEPS:
            engine.backward(loss_of(engine, batch))
            engine.step()
        return {flat.dtype for flat, before, now in zip(engine.trained, first, engine.own.masters, strict=True)
                if not torch.equal(before, now)}

    for stage in (1, 2, 3):
        assert simulate(mixed, [stage] * 3).results == [{torch.bfloat16, torch.float32}] * 3
