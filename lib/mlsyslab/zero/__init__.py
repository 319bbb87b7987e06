"""ZeRO: data parallelism in which no rank keeps what another rank keeps already (Rajbhandari et al. 2020).

    engine = zero.shard(comm, model, partial(torch.optim.AdamW, lr=3e-4), stage=2)
    for x, y in batches:                      # this rank's part of each batch
        loss = loss_fn(engine(x), y)          # forward
        engine.backward(loss)                 # gradients, averaged over all ranks
        engine.clip_grad_norm(1.0)            # where wanted: the norm over all ranks' shards
        engine.step()                         # every rank updates its own shard

| stage | parameters | gradients | optimizer state | elements sent a rank and step       |
|-------|------------|-----------|-----------------|-------------------------------------|
| 1     | whole      | whole     | a shard         | 2M (p-1)/p                          |
| 2     | whole      | a shard   | a shard         | 2M (p-1)/p                          |
| 3     | a shard    | a shard   | a shard         | 3M (p-1)/p                          |

M parameters, p ranks. The functions that every rank of `comm` calls:

`shard(comm, model, optimizer, stage, *, bucket_bytes=25 MiB, units=None, prefetch=1, overlap=True, offload=False) -> Engine`
    The model on this rank, sharded in place; all ranks start from rank 0's parameters and buffers.
    optimizer: makes a torch optimizer of a list of tensors: SGD (with momentum), Adam, AdamW, …, whatever treats every
    element by itself, for it is given flat shards: `partial(torch.optim.AdamW, lr=3e-4)`.
    Parameters of 16 bits (`model.bfloat16()`) get a master copy of 32 bits: 2 + 2 + 12 bytes a parameter with Adam.
    bucket_bytes: stages 1 and 2 talk in buckets of so many bytes.  units: stage 3 talks in modules, by default the model's
    children (and those of its ModuleLists and Sequentials).  prefetch: how many units ahead stage 3 gathers.
    overlap: whether communication goes on beside computing (`comm.start`).  offload: optimizer state on the CPU.

`Engine`
    engine(*args, **kwargs)                     the model's forward
    engine.backward(loss, share=None, last=True) share: of the whole batch in what `loss` is the mean of, 1/p by default;
                                                the shares of all ranks and microbatches add up to 1.
                                                last: False for the first microbatches of an accumulated batch
    engine.clip_grad_norm(max_norm) -> norm     the global norm before clipping
    engine.step()                               update the own shards, spread the parameters (stages 1, 2), forget gradients
    with engine.whole(): …                      all parameters are whole and up to date on every rank (stage 3: gathered)
    engine.comm, .model, .stage, .optimizer (torch's, of this rank's shards: its `param_groups` hold the lr), .steps
    engine.flats                                the `Flat`s: parameters one after the other, cut into a shard for each rank

`Flat`: .label, .names, .parameters, .length (elements), .lengths (of each rank's shard), .dtype, .trained (or frozen)

Formulas, and the same measured:

`memory(parameters, ranks, stage, parameter=2, gradient=2, optimizer=12) -> Memory(parameters, gradients, optimizer)`, .total
    Bytes on each rank, by bytes a parameter; stage 0 is plain data parallelism.  7.5e9 on 64 ranks: 120, 31.4, 16.6, 1.9 GB.
`bytes_a_parameter(optimizer, dtype) -> (parameter, gradient, optimizer)`       2, 2, 12 for Adam and torch.bfloat16
`live(engine) -> Memory`                        bytes of the tensors that this rank holds at this moment
`traffic(parameters, ranks, stage, accumulate=1) -> Traffic(reduce_scatter, all_gather)`, .total
    Elements that a rank sends a step. In stage 0 the all-reduce counts as its two halves.
`sent(engine, accumulate=1) -> list[int]`       bytes that each rank sends a step, exactly, with shards of uneven length
    The trace says the same: `run.trace.bytes_sent(rank)`; and `run.trace.peak_memory(rank)` is the peak of all that the
    engine holds, from its "alloc" and "free" events (labels "parameters", "gradients", "optimizer").

Checkpoints, written by shard:

`save(engine, folder, extra=None) -> path`      folder/step-00000010/, complete or not there at all; extra: plain data (JSON)
`load(engine, path) -> extra`                   at any world size, stage and bucket size; `CheckpointError` names a bad file
`latest(folder) -> path | None`                 the newest complete checkpoint

`python -m mlsyslab.zero.survive --ranks 4 --kill 2@7 FOLDER`: a rank is killed in the middle of training under torchrun, and
the job goes on from the last checkpoint with the ranks that are left.
"""

from mlsyslab.zero.checkpoint import latest, load, save
from mlsyslab.zero.engine import Engine
from mlsyslab.zero.flat import Flat
from mlsyslab.zero.memory import Memory, bytes_a_parameter, live, memory
from mlsyslab.zero.pieces import CheckpointError
from mlsyslab.zero.shard import shard
from mlsyslab.zero.traffic import Traffic, sent, traffic

__all__ = ["CheckpointError", "Engine", "Flat", "Memory", "Traffic", "bytes_a_parameter", "latest", "live", "load", "memory",
           "save", "sent", "shard", "traffic"]
