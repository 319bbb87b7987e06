"""Judging counts: the FLOPs of a product and of a training step, and the parameters behind them."""

from __future__ import annotations

from random import Random

from mlsyslab import model
from mlsyslab.check import number
from mlsyslab.check.exercise import Case
from mlsyslab.check.mfu.fields import PACKAGES, Fields, case


class LinearFlops(Fields):
    name, exact = "linear_flops", True
    nouns = {"forward": "FLOPs", "backward": "FLOPs"}

    def cases(self, rng: Random) -> list[Case]:
        shapes = [(4, 2048, 4096, 11_008), (3, 5, 7, 11), (1, 1, 2, 3)]
        shapes += [tuple(rng.randint(2, 9999) for _ in range(4)) for _ in range(3)]
        return [case((*shape, wanted), dict(zip(("forward", "backward"), linear_flops(*shape, wanted), strict=True)),
                     "B s n p input_gradient") for shape in shapes for wanted in (True, False)]

    def slips(self, field, B, s, n, p, input_gradient):
        forward, backward = linear_flops(B, s, n, p, input_gradient)
        right = forward if field == "forward" else backward
        own = {
            "forward": [(3 * forward, "That is forward and backward together.")],
            "backward": [
                (forward, "In backward there are two products, each as large as the one forward: one gives the gradient of "
                          "W, one that of x.") if input_gradient else
                (2 * forward, "Nobody asks for the gradient of x here: that of W is enough. Is `input_gradient` used?"),
                (forward + backward, "That is forward and backward together."),
                (0, "The gradient of W is always wanted.")],
        }[field]
        return [*own,
                (right // 2, "A term of the sum takes two FLOPs: a multiplication and an addition."),
                (right // B, "Is `B` used? Each sequence has its own product."),
                (right // s, "Is `s` used? Each token has its own product."),
                (right // (B * s), "That is for one token; there are B · s."),
                (right * n, "An element of y is one sum of n products: n counts once."),
                (right - B * s * p, "n - 1 additions would do, but everybody counts 2 FLOPs for each of the n terms.")]


def linear_flops(B: int, s: int, n: int, p: int, input_gradient: bool) -> tuple[int, int]:
    product = model.matmul_flops(B * s, n, p)
    return product, (1 + input_gradient) * product


def llama(L: int, h: int, a: int, g: int, f: int, V: int, tied: bool = False, s: int = 1) -> model.Config:
    """The shape as the library writes it."""
    return model.Config(L, h, a, V, s, ffn=f, kv_heads=g, mlp="swiglu", norm="rms", position="rotary", bias=False, tied=tied)


def drawn(rng: Random) -> tuple[int, int, int, int, int, int]:
    """L, h, a, g, f, V."""
    g, share, d = rng.choice((1, 2, 4, 8)), rng.choice((2, 3, 4)), 2 * rng.randint(1, 64)
    return rng.randint(2, 99), g * share * d, g * share, g, rng.randint(2, 30_000), rng.randint(2, 200_000)


#: L, h, a, g, f, V: as Qwen 2.5 7B (but for its biases) and LLaMA 7B, and three that are small
SHAPES = [(28, 3584, 28, 4, 18_944, 152_064), (32, 4096, 32, 32, 11_008, 32_000), (2, 24, 6, 3, 10, 7), (1, 8, 4, 1, 5, 11),
          (3, 12, 2, 2, 5, 9)]


def matrices(L: int, h: int, a: int, g: int, f: int, V: int, *, keys_values: float | None = None, gate: bool = True,
             outer: bool = True, output: bool = True) -> int:
    """Parameters with which a token is multiplied; the keywords are for mistakes.

    keys_values: numbers of all keys and values.  gate: whether the MLP has three matrices.  outer: whether there is one
    behind attention.  output: whether that to the vocabulary counts.
    """
    wide = 2 * g * (h // a) if keys_values is None else keys_values
    return int(L * (h * h * (1 + outer) + h * wide + (2 + gate) * h * f) + (V * h if output else 0))


class Parameters(Fields):
    name, exact = "parameters", True
    nouns = {"all": "parameters", "multiplied": "parameters"}

    def cases(self, rng: Random) -> list[Case]:
        return [self.case(*shape, tied) for shape in SHAPES + [drawn(rng) for _ in range(4)] for tied in (False, True)]

    def case(self, *given) -> Case:
        multiplied = matrices(*given[:-1])
        return case(given, {"all": model.parameters(llama(*given)), "multiplied": multiplied}, "L h a g f V tied")

    def slips(self, field, L, h, a, g, f, V, tied):
        shape, norms = (L, h, a, g, f, V), (2 * L + 1) * h
        rest = norms + (0 if tied else V * h) if field == "all" else 0  # what comes to the matrices
        right = matrices(*shape) + rest
        if field == "all":
            own = [
                (right - norms, "The gains of the norms are left out: h for each of the 2 L + 1 norms."),
                (right - h, "The last norm, behind all layers, is left out."),
                (right - L * h, "There are two norms in a layer."),
                (right + norms, "These norms have a gain only, no bias."),
                (right + (V * h if tied else -V * h), "Is `tied` used the right way? If it is true there is no other matrix "
                                                      "for the output."),
                (matrices(*shape), "Those are the ones that multiply. The gains, and an embedding that isn't the output "
                                   "matrix, are parameters as well."),
            ]
        else:
            own = [
                (right + V * h, "The embedding is counted, too: a token looks up its row, which is no product."),
                (right - V * h, "The output matrix is multiplied, tied or not."),
                (right + norms, "The gains of the norms are counted, too: no product of matrices has a part in them."),
                (model.parameters(llama(*shape, tied)), "Those are all parameters. A token looks up its row in the "
                                                        "embedding, and the gains are in no product of matrices."),
                (right + V * h + norms, "Those are all parameters. A token looks up its row in the embedding, and the gains "
                                        "are in no product of matrices."),
            ]
        return [*own, *((matrices(*shape, **other) + rest, words) for other, words in mistakes(*shape))]


def mistakes(L: int, h: int, a: int, g: int, f: int, V: int) -> list[tuple[dict, str]]:
    """Keywords of `matrices` that are mistakes, and words for them."""
    d = h // a
    return [
        ({"gate": False}, "The MLP has a gate: there are two matrices from h to f, and one back."),
        ({"keys_values": 2 * h}, "Is `g` used? There are only g heads of keys and of values."),
        ({"keys_values": 2 * g * h}, "All g heads of keys together are g · d wide, with d = h/a."),
        ({"keys_values": 2 * d}, "There are g heads of keys, and g of values, each d = h/a wide."),
        ({"keys_values": g * d}, "Keys and values have a matrix each."),
        ({"keys_values": 2 * h // g}, "Keys have g heads, each d = h/a wide: g · h/a numbers, not h/g."),
        ({"outer": False}, "The matrix behind attention, from h to h, is left out."),
        ({"keys_values": 0}, "The matrices for keys and values are left out."),
    ]


class StepFlops(number.Number):
    name, noun, packages = "step_flops", "FLOPs", PACKAGES

    def cases(self, rng: Random) -> list[Case]:
        sizes = [(4096, 4), (512, 3), (5, 3), (3, 2), (16, 5)]
        sizes += [(rng.randint(2, 9999), rng.randint(2, 999)) for _ in range(4)]
        shapes = SHAPES + [drawn(rng) for _ in range(4)]
        return [self.case(*shape, s, B, causal) for shape, (s, B) in zip(shapes, sizes, strict=True)
                for causal in (False, True)]

    def case(self, L, h, a, g, f, V, s, B, causal) -> Case:
        right = model.training_flops(llama(L, h, a, g, f, V, s=s), B, causal=causal)
        return case((L, h, a, g, f, V, s, B, causal), right, "L h a g f V s B causal")

    def slips(self, L, h, a, g, f, V, s, B, causal):
        shape = L, h, a, g, f, V
        multiplied, half = matrices(*shape), 2 if causal else 1

        def step(many: float = multiplied, core: float = 4 * L * h * s, passes: float = 3) -> float:
            """many: parameters that multiply.  core: FLOPs a token of attention's own products, forward, if all count."""
            return passes * B * s * (2 * many + core / half)

        right, core = step(), 4 * L * h * s
        return [
            (step(passes=1), "That is forward alone; in backward there are two products for each one forward."),
            (step(passes=2), "Backward takes twice what forward does: a product for each of its two operands."),
            (step(passes=4), "Nothing is recomputed: forward once, backward twice as much."),
            (step(core=0), "Attention's own products are left out: scores, and values weighted by them."),
            (step(core=core / 2), "Attention multiplies twice: for the scores, and to weight the values." if not causal else
             "Attention multiplies twice, for the scores and to weight the values; or is it halved twice?"),
            (step(core=core * 2), "Is `causal` used? If it is true half of attention's own products counts." if causal else
             "Attention's own products are counted twice."),
            (step(core=core * g / a), "Every head of queries has its scores: a of them, whatever g is."),
            (step(core=core * a), "The heads are d = h/a wide: all a of them together do what one of width h does."),
            (step(core=core / a), "Each of the a heads has its scores."),
            (step(core=core / s), "Each query meets each of the s keys: s × s scores a sequence."),
            (step(core=core / L), "Every layer has attention."),
            (step(core=core / B), "Every sequence has its own scores."),
            (step(core=core * B), "A token attends to its own sequence, not to the whole batch."),
            (step(multiplied + V * h), "The embedding at the input is a look-up, not a product."),
            (step(multiplied - V * h), "The output matrix is left out: h to V, for every token."),
            *((step(matrices(*shape, **other)), words) for other, words in mistakes(*shape)),
            (right / 2, "A multiplication and an addition: two FLOPs; or is all halved? `causal` concerns attention's own "
                        "products alone." if not causal else
             "A multiplication and an addition: two FLOPs for each term of a sum."),
            (step(core=core * half) / half, "`causal` concerns attention's own products alone: the matrices count in full."),
            (right / B, "Is `B` used?"),
            (right / (B * s), "That is for one token; there are B · s."),
        ]
