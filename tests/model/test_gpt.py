"""The model against torch's own attention, and its counts against the model."""

import math

import pytest
import torch

from mlsyslab.model import (
    GPT,
    PUBLISHED,
    Config,
    fused,
    narayanan_parameters,
    parameter_table,
    parameters,
    published,
    written,
)
from mlsyslab.model.attention import rotate

SHAPES = {
    "gpt": {},
    "no bias, untied": {"bias": False, "tied": False},
    "llama": {"mlp": "swiglu", "norm": "rms", "position": "rotary", "bias": False, "tied": False, "kv_heads": 2, "ffn": 40},
    "palm": {"mlp": "swiglu", "position": "rotary", "bias": False, "parallel": True, "kv_heads": 1, "head_width": 6},
    "one head": {"heads": 1},
    "rms, gelu, bias": {"norm": "rms", "ffn": 7},
}


def shape(**changes):
    return Config(**{"layers": 2, "hidden": 16, "heads": 4, "vocabulary": 29, "sequence": 12, **changes})


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_parameters_are_exactly_the_models(changes):
    config = shape(**changes)
    assert sum(p.numel() for p in GPT(config).parameters()) == parameters(config) == sum(parameter_table(config).values())


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_written_and_fused_attention_agree(changes):
    config, tokens = shape(**changes), torch.randint(29, (3, 12), generator=torch.Generator().manual_seed(0))
    one, other = GPT(config, written), GPT(config, fused)
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(tokens), other(tokens))


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_no_token_sees_a_later_one(changes):
    model, tokens = GPT(shape(**changes)).eval(), torch.randint(29, (2, 12), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[:, 7] = (tokens[:, 7] + 1) % 29
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_rotary_attention_knows_distances_only():
    """Queries and keys turned by their positions: a score depends on how far apart two tokens are."""
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    turned_q, turned_k = rotate(q.expand(1, 1, 10, 8)), rotate(k.expand(1, 1, 10, 8))
    scores = (turned_q @ turned_k.transpose(-2, -1))[0, 0]
    for distance in range(-9, 10):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1).expand(1, 1, 10))


def test_the_models_queries_and_keys_are_both_turned():
    """Where all tokens are alike, a score still depends on the distance, and on nothing else."""
    seen = []

    def core(q, k, v, dropout):
        seen.append(q @ k.transpose(-2, -1))
        return written(q, k, v, dropout)

    torch.manual_seed(0)
    GPT(shape(position="rotary"), core)(torch.full((1, 12), 7))
    for scores in seen:
        for distance in range(-11, 12):
            diagonal = scores.diagonal(distance, -2, -1)
            torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal), rtol=1e-3, atol=1e-6)
        assert scores.diagonal(0, -2, -1).max() != scores.diagonal(3, -2, -1).max()


def test_the_model_learns():
    torch.manual_seed(0)
    model = GPT(shape(dropout=0.0))
    tokens = torch.arange(13).repeat(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = model.loss(tokens[:, :-1], tokens[:, 1:]).item()
    for _ in range(30):
        optimizer.zero_grad()
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
    assert first == pytest.approx(math.log(29), rel=0.1) and loss.item() < 0.2 * first


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_have_their_published_parameters(name):
    """To the digits that their authors print; "175B" stands for 174.6, "2.7B" for 2.65."""
    model = published(name)
    exact, digits = parameters(model.config) / 1e9, len(str(model.billions).rstrip("0").partition(".")[2])
    assert exact == pytest.approx(model.billions, abs=0.51 * 10**-digits if digits < 3 else 0.0006, rel=0.0023)


def test_released_weights_have_exactly_these_parameters():
    released = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
                "llama-7b": 6_738_415_616, "llama-13b": 13_015_864_320, "llama-65b": 65_285_660_672,
                "llama2-70b": 68_976_648_192, "llama3-8b": 8_030_261_248, "llama3-405b": 405_853_388_800}
    assert {name: parameters(published(name).config) for name in released} == released


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith("megatron")])
def test_narayanans_formula_leaves_out_the_last_norm_alone(name):
    config = published(name).config
    assert round(narayanan_parameters(config)) == parameters(config) - 2 * config.hidden


def test_a_trillion_parameters_on_the_meta_device():
    with torch.device("meta"):
        model = GPT(published("megatron-1008b").config)
        logits = model(torch.zeros(1, 4, dtype=torch.int64))
    assert sum(p.numel() for p in model.parameters()) == 1_008_038_758_400 and logits.shape == (1, 4, 51_200)


@pytest.mark.parametrize(("changes", "says"), [
    ({"heads": 3}, "3 heads don't divide a width of 16; take 1, 2, 4, 8 heads"),
    ({"heads": 0}, "heads is a whole number, 1 or more"),
    ({"layers": 2.0}, "layers is a whole number"),
    ({"hidden": True}, "hidden is a whole number"),
    ({"kv_heads": 3}, "kv_heads divides 4"),
    ({"mlp": "relu"}, "mlp is one of gelu, swiglu"),
    ({"norm": "batch"}, "norm is one of layer, rms"),
    ({"position": "absolute"}, "position is one of learned, rotary"),
    ({"dropout": 1.0}, "0 or more and less than 1"),
    ({"dropout": -0.1}, "0 or more and less than 1"),
    ({"position": "rotary", "head_width": 3}, "a head's width is even"),
])
def test_shapes_that_cannot_be_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        shape(**changes)


def test_too_many_tokens_and_unknown_models_are_refused():
    with pytest.raises(ValueError, match=r"shape \(1, 13\): give \(B, s\), s at most 12"):
        GPT(shape())(torch.zeros(1, 13, dtype=torch.int64))
    with pytest.raises(ValueError, match="there are gpt2, "):
        published("gpt5")
