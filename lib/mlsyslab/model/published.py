"""Shapes of models as published, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from mlsyslab.model.config import Config


@dataclass(frozen=True)
class Published:
    """A model's shape, the parameters (billions) that its authors state, and where."""

    name: str
    config: Config
    billions: float
    source: str


def published(name: str) -> Published:
    """The published model of that name, as "gpt3-175b"."""
    if name not in PUBLISHED:
        raise ValueError(f"published({name!r}): there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def _gpt2(layers: int, hidden: int, heads: int) -> Config:
    return Config(layers, hidden, heads, vocabulary=50_257, sequence=1024, dropout=0.1)


def _gpt3(layers: int, hidden: int, heads: int) -> Config:
    return Config(layers, hidden, heads, vocabulary=50_257, sequence=2048)


def _llama(layers: int, hidden: int, heads: int, ffn: int, *, kv_heads: int | None = None, vocabulary: int = 32_000,
           sequence: int = 2048) -> Config:
    return Config(layers, hidden, heads, vocabulary, sequence, ffn=ffn, kv_heads=kv_heads, mlp="swiglu", norm="rms",
                  position="rotary", bias=False, tied=False)


def _palm(layers: int, hidden: int, heads: int) -> Config:
    return Config(layers, hidden, heads, vocabulary=256_000, sequence=2048, kv_heads=1, head_width=256, mlp="swiglu",
                  position="rotary", bias=False, parallel=True)


def _megatron(layers: int, hidden: int, heads: int) -> Config:
    return Config(layers, hidden, heads, vocabulary=51_200, sequence=2048)


_GPT2 = "Radford et al. 2019, table 2; parameters as in the released weights (the paper's own column is too small)"
_GPT3 = "Brown et al. 2020, table 2.1 (its rows XL and 13B print head counts and widths that don't multiply to h)"
_LLAMA = "Touvron et al. 2023a, table 2, and the released configurations"
_LLAMA2 = "Touvron et al. 2023b, and the released configuration"
_LLAMA3 = "Llama team 2024, table 3, and the released configurations"
_PALM = "Chowdhery et al. 2022, table 1"
_MEGATRON = "Narayanan et al. 2021, table 1"
_KORTHIKANTI = "Korthikanti et al. 2022, table 3"

PUBLISHED = {model.name: model for model in (
    Published("gpt2", _gpt2(12, 768, 12), 0.124, _GPT2),
    Published("gpt2-medium", _gpt2(24, 1024, 16), 0.355, _GPT2),
    Published("gpt2-large", _gpt2(36, 1280, 20), 0.774, _GPT2),
    Published("gpt2-xl", _gpt2(48, 1600, 25), 1.558, _GPT2),
    Published("gpt3-125m", _gpt3(12, 768, 12), 0.125, _GPT3),
    Published("gpt3-760m", _gpt3(24, 1536, 16), 0.760, _GPT3),
    Published("gpt3-2.7b", _gpt3(32, 2560, 32), 2.7, _GPT3),
    Published("gpt3-6.7b", _gpt3(32, 4096, 32), 6.7, _GPT3),
    Published("gpt3-175b", _gpt3(96, 12_288, 96), 175.0, _GPT3),
    Published("llama-7b", _llama(32, 4096, 32, 11_008), 6.7, _LLAMA),
    Published("llama-13b", _llama(40, 5120, 40, 13_824), 13.0, _LLAMA),
    Published("llama-33b", _llama(60, 6656, 52, 17_920), 32.5, _LLAMA),
    Published("llama-65b", _llama(80, 8192, 64, 22_016), 65.2, _LLAMA),
    Published("llama2-70b", _llama(80, 8192, 64, 28_672, kv_heads=8, sequence=4096), 69.0, _LLAMA2),
    Published("llama3-8b", _llama(32, 4096, 32, 14_336, kv_heads=8, vocabulary=128_256, sequence=8192), 8.03, _LLAMA3),
    Published("llama3-405b", _llama(126, 16_384, 128, 53_248, kv_heads=8, vocabulary=128_256, sequence=8192), 405, _LLAMA3),
    Published("palm-8b", _palm(32, 4096, 16), 8.63, _PALM),
    Published("palm-62b", _palm(64, 8192, 32), 62.50, _PALM),
    Published("palm-540b", _palm(118, 18_432, 48), 540.35, _PALM),
    Published("megatron-1.7b", _megatron(24, 2304, 24), 1.7, _MEGATRON),
    Published("megatron-3.6b", _megatron(30, 3072, 32), 3.6, _MEGATRON),
    Published("megatron-7.5b", _megatron(36, 4096, 32), 7.5, _MEGATRON),
    Published("megatron-18.4b", _megatron(40, 6144, 48), 18.4, _MEGATRON),
    Published("megatron-39.1b", _megatron(48, 8192, 64), 39.1, _MEGATRON),
    Published("megatron-76.1b", _megatron(60, 10_240, 80), 76.1, _MEGATRON),
    Published("megatron-145.6b", _megatron(80, 12_288, 96), 145.6, _MEGATRON),
    Published("megatron-310.1b", _megatron(96, 16_384, 128), 310.1, _MEGATRON),
    Published("megatron-529.6b", _megatron(105, 20_480, 128), 529.6, _MEGATRON),
    Published("megatron-1008b", _megatron(128, 25_600, 160), 1008.0, _MEGATRON),
    Published("megatron-22b", _megatron(48, 6144, 64), 22.0, _KORTHIKANTI),
    Published("megatron-175b", _megatron(96, 12_288, 96), 175.0, _KORTHIKANTI),
)}
