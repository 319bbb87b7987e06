"""The shape of a GPT: every number that its parameters, FLOPs and bytes follow from."""

from __future__ import annotations

from dataclasses import dataclass

MLPS, NORMS, POSITIONS = ("gelu", "swiglu"), ("layer", "rms"), ("learned", "rotary")


@dataclass(frozen=True)
class Config:
    """A decoder-only transformer.

    layers L, hidden h, heads a, vocabulary V, sequence s (tokens; also how many positions are learned).
    ffn:        width inside the MLP; 4h when not given.
    kv_heads:   heads of keys and values: a (multi-head), 1 (multi-query) or between (grouped-query); a when not given.
    head_width: d, width of a head; h/a when not given.
    mlp:        "gelu" (two matrices) or "swiglu" (three).  norm: "layer" or "rms".  position: "learned" or "rotary".
    bias:       whether linear layers and layer norms add a bias.  tied: whether embedding and output share one matrix.
    parallel:   attention and MLP side by side on one norm, x + A(N x) + M(N x), as in GPT-J and PaLM.
    dropout:    probability; on the embedding, on attention's weights and on both branches.
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    ffn: int | None = None
    kv_heads: int | None = None
    head_width: int | None = None
    mlp: str = "gelu"
    norm: str = "layer"
    position: str = "learned"
    bias: bool = True
    tied: bool = True
    parallel: bool = False
    dropout: float = 0.0

    def __post_init__(self):
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence", "ffn", "kv_heads", "head_width"):
            value = getattr(self, name)
            if value is None and name in ("ffn", "kv_heads", "head_width"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Config({name}={value!r}): {name} is a whole number, 1 or more")
        for name, allowed in (("mlp", MLPS), ("norm", NORMS), ("position", POSITIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"Config({name}={getattr(self, name)!r}): {name} is one of {', '.join(allowed)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"Config(dropout={self.dropout!r}): dropout is a probability, 0 or more and less than 1")
        self._fill("ffn", 4 * self.hidden)
        self._fill("kv_heads", self.heads)
        if self.head_width is None and self.hidden % self.heads:
            divisors = [a for a in range(1, self.hidden + 1) if self.hidden % a == 0]
            near = sorted(sorted(divisors, key=lambda a: abs(a - self.heads))[:4])
            raise ValueError(f"Config(hidden={self.hidden}, heads={self.heads}): {self.heads} heads don't divide a width of "
                             f"{self.hidden}; take {', '.join(map(str, near))} heads, or give head_width")
        self._fill("head_width", self.hidden // self.heads)
        if self.heads % self.kv_heads:
            raise ValueError(f"Config(heads={self.heads}, kv_heads={self.kv_heads}): each head of keys and values serves "
                             f"the same number of queries, so kv_heads divides {self.heads}")
        if self.position == "rotary" and self.head_width % 2:
            raise ValueError(f"Config(head_width={self.head_width}, position='rotary'): rotary positions turn pairs of "
                             "numbers, so a head's width is even")

    def _fill(self, name: str, value: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)  # a frozen dataclass settles its defaults here

    @property
    def attention_width(self) -> int:
        """a d: all heads' outputs side by side; h in most models."""
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Width of all keys; of all values."""
        return self.kv_heads * self.head_width

    @property
    def norms(self) -> int:
        """Norms a layer: one where attention and MLP stand side by side, else two."""
        return 1 if self.parallel else 2
