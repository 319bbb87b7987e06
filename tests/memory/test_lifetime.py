"""Memory over time: predicted peaks against live memory, on the CPU, on the meta device, on a GPU if there is one."""

import itertools

import pytest
import torch

from mlsyslab.memory import (
    ACTIVATIONS,
    KINDS,
    RECIPES,
    Live,
    Swap,
    every,
    inference,
    recipe,
    selective,
    state_bytes,
    training,
)
from mlsyslab.model import GPT, Config, fused, parameters, plain, published, written

CONFIGS = {
    "wide": Config(4, 64, 4, 96, 32),
    "long": Config(4, 64, 4, 96, 256),
    "long, dropout": Config(3, 64, 4, 96, 128, dropout=0.1),
    "many words": Config(4, 64, 4, 4096, 64),
    "llama": Config(3, 64, 4, 128, 64, mlp="swiglu", norm="rms", position="rotary", bias=False, kv_heads=2, tied=False),
}
WAYS = [(None, 1), ("selective", 1), ("full", 1), ("full", 3)]


def live_peak(config, batch, precision, core, recompute, k, device):
    """The most bytes that are live in one step, weights and Adam's state included."""
    way = {"core": selective(core) if recompute == "selective" else core, "run": every(k) if recompute == "full" else plain}
    with torch.device(device):
        model = GPT(config, **way).to(ACTIVATIONS[precision])
        tokens = torch.zeros(batch, config.sequence, dtype=torch.int64)
        with Live().watch(*model.parameters()) as live:
            model.loss(tokens, tokens.clone()).backward()
    r = recipe(precision)
    return live.peak + parameters(config) * (r.master + r.momentum + r.variance)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_peak_is_predicted_within_four_percent(name):
    config = CONFIGS[name]
    for precision, (recompute, k) in itertools.product(("fp32", "bf16"), WAYS):
        predicted = training(config, 8, precision=precision, recompute=recompute, every=k)
        measured = live_peak(config, 8, precision, written, recompute, k, "meta")
        assert predicted.peak == pytest.approx(measured, rel=0.04), (precision, recompute, k, predicted.peak_phase)


def test_with_fused_attention_too():
    for name, (recompute, k) in itertools.product(("wide", "long", "llama"), [(None, 1), ("full", 1)]):
        predicted = training(CONFIGS[name], 8, core="fused", recompute=recompute, every=k).peak
        assert predicted == pytest.approx(live_peak(CONFIGS[name], 8, "fp32", fused, recompute, k, "cpu"), rel=0.04), name


def test_a_rehearsal_on_the_meta_device_is_exact():
    for recompute, k in WAYS:
        peaks = {live_peak(CONFIGS["long, dropout"], 2, "fp32", written, recompute, k, device) for device in ("cpu", "meta")}
        assert len(peaks) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("precision", "core", "recompute"), [
    ("fp32", "written", None), ("bf16", "written", None), ("bf16", "fused", None), ("bf16", "fused", "full"),
    ("bf16", "written", "selective")])
def test_on_a_gpu_within_five_percent(precision, core, recompute):
    config = Config(8, 1024, 8, 8192, 1024)
    of = {"written": written, "fused": fused}[core]
    with torch.device("cuda"):
        model = GPT(config, selective(of) if recompute == "selective" else of, every(1) if recompute == "full" else plain)
        tokens = torch.randint(8192, (8, 1024))
    model = model.to(ACTIVATIONS[precision])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        model.loss(tokens, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    predicted = training(config, 8, precision=precision, core=core, recompute=recompute, device="cuda").peak
    assert predicted == pytest.approx(torch.cuda.max_memory_allocated(), rel=0.05)


def test_checkpointing_holds_less_as_predicted():
    """With long sequences: nothing recomputed > attention's core > every third block > every block."""
    peaks = [training(CONFIGS["long"], 8, recompute=recompute, every=k).peak
             for recompute, k in [(None, 1), ("full", 3), ("selective", 1), ("full", 1)]]
    measured = [live_peak(CONFIGS["long"], 8, "fp32", written, recompute, k, "meta")
                for recompute, k in [(None, 1), ("full", 3), ("selective", 1), ("full", 1)]]
    assert peaks == sorted(peaks, reverse=True) and measured == sorted(measured, reverse=True)
    assert peaks[0] - peaks[3] == pytest.approx(measured[0] - measured[3], rel=0.04)


def test_swapping_holds_less_as_predicted():
    """What is away isn't held; the memory that is fetched ahead is less than a block."""
    config = CONFIGS["wide"]
    for batch in (8, 32):
        with torch.device("cpu"):
            model, tokens = GPT(config), torch.zeros(batch, config.sequence, dtype=torch.int64)
        with Live().watch(*model.parameters()) as live:
            with Swap([*model.parameters(), tokens]):
                loss = model.loss(tokens, tokens)
            loss.backward()
        measured = live.peak + 8 * parameters(config)
        assert training(config, batch, swapped=True).peak == pytest.approx(measured, rel=0.06)
        assert training(config, batch, swapped=True).peak < 0.75 * training(config, batch).peak


def test_every_buffer_lives_from_its_forward_to_its_backward():
    line = training(Config(3, 16, 4, 29, 12), 2, precision="mixed")
    assert line.phases == ("embed", "block 1 forward", "block 2 forward", "block 3 forward", "logits", "loss",
                           "loss backward", "logits backward", "block 3 backward", "block 2 backward", "block 1 backward",
                           "embed backward", "update")
    of = {(b.kind, b.name): (line.phases[b.start], line.phases[b.end]) for b in line.buffers}
    for l in (1, 2, 3):
        assert of["activations", f"block {l}"] == (f"block {l} forward", f"block {l} backward")
        assert of["gradients", f"block {l}"] == (f"block {l} backward", "update")
    assert of["weights", "weights"] == of["optimizer", "optimizer's state"] == ("embed", "update")
    assert line.totals == [sum(line.at(i).values()) for i in range(len(line.phases))]
    assert line.peak == max(line.totals) and line.phases[line.totals.index(line.peak)] == line.peak_phase
    assert line.at(12)["activations"] == 0 and set(line.at(0)) == set(KINDS)


def test_at_the_update_gradients_are_whole_and_activations_gone():
    for name, precision in itertools.product(("gpt2", "llama-7b"), ACTIVATIONS):
        config = published(name).config
        last = training(config, 1, precision=precision, core="written").at(-1 + len(training(config, 1).phases))
        n, r = parameters(config), RECIPES[precision]
        assert (last["weights"], last["activations"]) == (n * r.weight, 0)
        assert last["gradients"] == pytest.approx(n * r.gradient, rel=1e-4)  # but for the last norm's


def test_training_grows_with_layers_and_inference_hardly():
    """Activations of training are O(L); a forward pass that keeps nothing reuses its two buffers."""
    def held(kind, layers):
        line = kind(Config(layers, 64, 4, 96, 128), 8)
        return line.peak - max(line.at(i)["weights"] + line.at(i)["optimizer"] + line.at(i)["gradients"]
                               for i in range(len(line.phases)))

    assert held(inference, 32) == held(inference, 4)
    assert held(training, 32) > 6 * held(training, 4)


def test_inference_is_measured_too():
    config = Config(4, 64, 4, 96, 128)
    with torch.device("meta"), torch.no_grad():
        model, tokens = GPT(config), torch.zeros(8, 128, dtype=torch.int64)
        with Live().watch(*model.parameters()) as live:
            model(tokens)
    assert inference(config, 8, dtype=torch.float32).peak == pytest.approx(live.peak, rel=0.2)


def test_adam_takes_sixteen_bytes_a_parameter():
    """GPT-3 of the seeds' estimate: 350 GB of weights; the optimizer holds master, momentum and variance, 12 bytes each."""
    held = state_bytes(175_000_000_000, "mixed")
    assert held == {"weights": 350e9, "gradients": 350e9, "optimizer": 2100e9}
    assert all(RECIPES[name].bytes_a_parameter == 16 for name in ("fp32", "mixed"))


def test_live_follows_views_and_what_was_there_before():
    x = torch.zeros(100)
    with Live() as live:
        y = x.view(10, 10).t()  # no memory of its own
        assert live.now == 0
        z = y + 1
        w = z[3:]
        del z
        assert live.now == live.peak == 400
        del w
        assert (live.now, live.peak) == (0, 400)


@pytest.mark.parametrize(("call", "says"), [
    (lambda c: training(c, 0), "batch is a whole number"),
    (lambda c: training(c, 1, precision="autocast"), "precision is one of fp32, mixed, bf16; under autocast"),
    (lambda c: training(c, 1, precision="int8"), "precision is one of fp32, mixed, bf16"),
    (lambda c: training(c, 1, recompute="full", every=4), "the model has 3 layers"),
    (lambda c: training(c, 1, recompute="half"), "recompute is None, 'selective' or 'full'"),
    (lambda c: training(c, 1, recompute="full", swapped=True), "choose one of them"),
    (lambda c: state_bytes(0), "parameters is a whole number"),
    (lambda c: state_bytes(1, "int4"), "there are fp32, autocast, mixed, bf16"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(Config(3, 16, 4, 29, 12))
