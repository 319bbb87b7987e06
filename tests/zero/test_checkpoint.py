"""Checkpoints: written by shard, read at any world size, complete or refused."""

import json
from functools import partial

import pytest
import torch
from torch import nn
from zero_models import OPTIMIZERS, alone, batches, loss_of, tiny

from mlsyslab import RankFailed, launch, simulate, zero

STEPS = batches(6, rows=8)


def train(comm, given):
    """Train on STEPS[first:last], from `path` where there is one; saves and returns (parameters, path, extra)."""
    folder, path, first, last, stage, optimizer = given
    engine = zero.shard(comm, tiny(seed=comm.rank), OPTIMIZERS[optimizer], stage, bucket_bytes=400)
    extra = zero.load(engine, path) if path else None
    assert engine.steps == first
    for batch in STEPS[first:last]:
        mine = batch.tensor_split(comm.size)[comm.rank]
        engine.backward(loss_of(engine, mine), share=1 / len(batch))
        engine.step()
    saved = zero.save(engine, folder, {"first": first, "note": "é"})
    with engine.whole():
        return {name: p.detach().clone() for name, p in engine.model.named_parameters()}, saved, extra


def equal(results, expected):
    return all(torch.equal(parameters[name], expected[name]) for parameters, *_ in results for name in expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_same_ranks_go_on_bit_by_bit(stage, optimizer, tmp_path):
    through = simulate(train, [(tmp_path / "a", None, 0, 6, stage, optimizer)] * 4).results
    half = simulate(train, [(tmp_path / "b", None, 0, 3, stage, optimizer)] * 4).results
    resumed = simulate(train, [(tmp_path / "b", half[0][1], 3, 6, stage, optimizer)] * 4).results
    assert equal(resumed, through[0][0])
    assert resumed[0][2] == {"first": 0, "note": "é"}
    assert zero.latest(tmp_path / "b") == resumed[0][1]
    assert resumed[0][1].name == "step-00000006"


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_other_ranks_stages_and_buckets_go_on(ranks, tmp_path):
    """Written by 4 ranks in one stage, read by others in another; the sums of gradients then differ in their last bits."""
    after, _ = alone("Adam", STEPS)
    for wrote, reads in ((1, 3), (2, 2), (3, 1)):
        half = simulate(train, [(tmp_path, None, 0, 3, wrote, "Adam")] * 4).results
        resumed = simulate(train, [(tmp_path, half[0][1], 3, 6, reads, "Adam")] * ranks).results
        for parameters, *_ in resumed:
            assert max((parameters[name] - after[-1][name]).abs().max().item() for name in parameters) < 1e-10


def read_only(comm, path):
    """What has been read, put together from all ranks' shards: parameters, and the optimizer's state of every element."""
    engine = zero.shard(comm, tiny(seed=5), OPTIMIZERS["Adam"], 2, bucket_bytes=300)
    zero.load(engine, path)
    states = {}
    for i, flat in enumerate(engine.trained):
        for slot, values in engine.own.state(i).items():
            for k, start, stop, at in flat.owned(comm.rank):
                states[flat.names[k], slot, start] = values[at:at + stop - start].clone()
    return {name: p.detach().clone() for name, p in engine.model.named_parameters()}, states, engine.own.counts(0)


def test_what_is_read_is_what_was_written_to_the_last_bit(tmp_path):
    written, path, _ = simulate(train, [(tmp_path, None, 0, 3, 3, "Adam")] * 4).results[0]
    whole = {}
    for ranks in (1, 2, 3):
        results = simulate(read_only, [path] * ranks).results
        assert equal([results[0]], written)
        states = {}
        for _, of_rank, counts in results:
            states |= of_rank
            assert counts["step"] == 3
        joined = {key: torch.cat([states[k] for k in sorted(k for k in states if k[:2] == key)])
                  for key in {k[:2] for k in states}}
        whole = whole or joined
        assert {slot for _, slot in joined} == {"exp_avg", "exp_avg_sq"}
        assert all(torch.equal(joined[key], whole[key]) for key in whole)


def whole_numbers(comm, given):
    """Steps in which every product and sum is exact: small whole numbers, rates that are powers of two."""
    path, first, last, folder = given
    model = nn.Linear(3, 2, dtype=torch.float64)
    nn.init.constant_(model.weight, 1.0)
    nn.init.constant_(model.bias, 0.0)
    engine = zero.shard(comm, model, partial(torch.optim.SGD, lr=2**-8, momentum=0.5), 2, bucket_bytes=1)
    if path:
        zero.load(engine, path)
    for step in range(first, last):
        x = torch.arange(24.0, dtype=torch.float64).view(8, 3).roll(step, 0).tensor_split(comm.size)[comm.rank] - 11
        engine.backward((engine(x) * x[:, :2]).sum() / 8 + engine(x).sum(), share=1.0)
        engine.step()
    saved = zero.save(engine, folder) if folder else None
    return torch.cat([p.detach().flatten() for p in model.parameters()]), saved


def test_where_arithmetic_is_exact_every_world_size_goes_on_bit_by_bit(tmp_path):
    through = simulate(whole_numbers, [(None, 0, 4, None)] * 4).results[0][0]
    saved = simulate(whole_numbers, [(None, 0, 2, tmp_path)] * 4).results[0][1]
    for ranks in (1, 2, 3, 4):
        for parameters, _ in simulate(whole_numbers, [(saved, 2, 4, None)] * ranks).results:
            assert torch.equal(parameters, through)


def test_processes_write_and_read(tmp_path):
    after, _ = alone("Adam", STEPS)
    half = launch(train, [(tmp_path, None, 0, 3, 3, "Adam")] * 3, backend="gloo").results
    resumed = simulate(train, [(tmp_path, half[0][1], 3, 6, 3, "Adam")] * 2).results
    assert max((resumed[1][0][name] - after[-1][name]).abs().max().item() for name in after[-1]) < 1e-10


def sixteen_bits(comm, given):
    path, folder, steps = given
    model = tiny(torch.bfloat16)
    engine = zero.shard(comm, model, OPTIMIZERS["AdamW"], 2)
    if path:
        zero.load(engine, path)
    for batch in STEPS[engine.steps:steps]:
        engine.backward(loss_of(engine, batch), share=1 / len(batch) / comm.size)
        engine.step()
        engine.optimizer.param_groups[0]["lr"] /= 2
    saved = zero.save(engine, folder)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), saved, engine.optimizer.param_groups[0]["lr"]


def test_the_master_copy_and_the_learning_rate_come_back(tmp_path):
    """The rounded parameters alone would not do: what a step adds is often less than their last bit."""
    through = simulate(sixteen_bits, [(None, tmp_path / "a", 6)] * 2).results
    half = simulate(sixteen_bits, [(None, tmp_path / "b", 3)] * 2).results
    resumed = simulate(sixteen_bits, [(half[0][1], tmp_path / "b", 6)] * 2).results
    assert torch.equal(resumed[0][0], through[0][0])
    assert resumed[0][2] == through[0][2] == 0.01 / 2**6


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    return simulate(train, [(tmp_path / "run", None, 0, 2, 2, "Adam")] * 3).results[0][1]


def refused(path, words, optimizer="Adam", ranks=2):
    def read(comm, _):
        zero.load(zero.shard(comm, tiny(), OPTIMIZERS[optimizer], 3), path)

    with pytest.raises(RankFailed) as failure:
        simulate(read, [None] * ranks)
    assert isinstance(failure.value.__cause__, zero.CheckpointError)
    message = str(failure.value.__cause__)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("left", [0, 5, 100, -1])
def test_a_truncated_file_is_refused_by_name(saved, left):
    file = saved / "shard-00001-of-00003"
    file.write_bytes(file.read_bytes()[:left])
    refused(saved, [f"{file} is {'truncated' if left == -1 else 'damaged'}"])


def test_a_file_that_is_missing(saved):
    (saved / "shard-00002-of-00003").unlink()
    refused(saved, [str(saved / "shard-00002-of-00003"), "missing"])


def test_one_bit_that_is_not_what_it_was(saved):
    file = saved / "shard-00000-of-00003"
    data = bytearray(file.read_bytes())
    data[-1 - len(data) // 4] ^= 1
    file.write_bytes(data)
    refused(saved, [str(file), "damaged"], ranks=1)


def test_a_header_that_is_not_what_it_was(saved):
    file = saved / "shard-00000-of-00003"
    file.write_bytes(file.read_bytes().replace(b'"start": 0', b'"start": 1', 1))
    refused(saved, [str(file), "its header is not what was written"])


def test_files_of_two_ranks_mixed_up(saved):
    one, two = saved / "shard-00001-of-00003", saved / "shard-00002-of-00003"
    one_data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(one_data)
    refused(saved, [str(one), "mixed up", "shard 2 of 3"])


def test_a_file_of_another_checkpoint(saved, tmp_path):
    other = simulate(train, [(tmp_path / "other", None, 0, 1, 2, "Adam")] * 3).results[0][1]
    name = "shard-00001-of-00003"
    (saved / name).write_bytes((other / name).read_bytes())
    refused(saved, [str(saved / name), "mixed up", "step 1"])


def test_a_manifest_that_is_cut_or_gone(saved):
    manifest = saved / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text[:len(text) // 2])
    refused(saved, [str(manifest), "damaged or truncated"])
    manifest.write_text(text.replace('"step": 2', '"step": 3'))
    refused(saved, [str(manifest), "damaged"])
    manifest.unlink()
    refused(saved, [str(manifest), "missing"])
    assert zero.latest(saved.parent) is None


def test_another_optimizer_and_another_model(saved):
    refused(saved, ["manifest.json", "Adam", "SGD"], optimizer="SGD")

    def read(comm, _):
        zero.load(zero.shard(comm, nn.Linear(2, 2), OPTIMIZERS["Adam"], 1), saved)

    with pytest.raises(RankFailed, match="another model: bias is not there, .*has shape \\(2,\\)"):
        simulate(read, [None])


def test_a_job_that_died_while_it_saved_leaves_no_checkpoint(saved, tmp_path):
    """Half a checkpoint has another name: it is never taken for one, and goes when the next is saved."""
    folder = saved.parent
    (folder / ".step-00000009").mkdir()
    (folder / ".step-00000009" / "shard-00000-of-00003").write_bytes(b"half")
    assert zero.latest(folder) == saved
    simulate(train, [(folder, saved, 2, 3, 2, "Adam")] * 2)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000002", "step-00000003"]
    assert sorted(path.name for path in zero.latest(folder).iterdir()) == \
        ["manifest.json", "shard-00000-of-00002", "shard-00001-of-00002"]


def test_a_checkpoint_is_plain_bytes(saved):
    """No pickle: a length, JSON, and numbers that NumPy reads."""
    data = (saved / "shard-00000-of-00003").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    assert (header["rank"], header["ranks"], header["step"]) == (0, 3, 2)
    assert len(data) == 8 + length + sum((piece["stop"] - piece["start"]) * 8 for piece in header["pieces"])
