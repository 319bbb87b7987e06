"""The backward pass of one stage: at once (B), or cut into gradients of the input (I) and of the weights (W).

The cut (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2) works on the graph that autograd recorded. On the
path from the outputs to the inputs lie *forks*: nodes that also lead to weights, such as the matrix product of a linear
layer. I walks the path alone and keeps the gradient that arrives at each fork. W starts from there, fork by fork, and walks
only from the fork to its weights, so that I and W together compute what B computes, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge


def backward_input(outputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None],
                   inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor | None], Callable[[], None]]:
    """Gradients of the inputs now, those of the weights later.

    outputs:   what a stage computed, with the graph that led there.
    gradients: of each output; None stands for 1 (a loss).
    inputs:    leaves of that graph.
    Returns the gradient of each input (None for one that needs none or wasn't used), and the function that adds the
    gradients of the weights to their `.grad`; the graph lives until it has been called and let go.
    """
    wanted = [x for x in inputs if x.requires_grad]
    if not wanted:  # the first stage: there is no one to hand a gradient on to, so all the work is in the weights
        return [None] * len(inputs), lambda: torch.autograd.backward(outputs, gradients)
    forks = _forks([get_gradient_edge(y).node for y in outputs], {get_gradient_edge(x).node for x in wanted})
    arrived: dict[Node, tuple] = {}

    def keep(fork: Node):
        return lambda grads: arrived.__setitem__(fork, grads)

    hooks = [fork.register_prehook(keep(fork)) for fork in forks]
    try:
        found = iter(torch.autograd.grad(outputs, wanted, gradients, retain_graph=True, allow_unused=True))
    finally:
        for hook in hooks:
            hook.remove()
    groups = _sharing_weights({fork: weights for fork, weights in forks.items() if fork in arrived})
    return [next(found) if x.requires_grad else None for x in inputs], lambda: _backward_weights(groups, arrived)


def _forks(roots: Sequence[Node], ends: set[Node]) -> dict[Node, set[Node]]:
    """The nodes between `roots` and `ends` that lead to weights beside the path, each with the leaves of those weights."""
    on_path: dict[Node, bool] = {}
    weights: dict[Node, set[Node]] = {}  # off the path: the leaves below a node
    for node in _children_first(roots):
        children = [child for child, _ in node.next_functions if child is not None]
        on_path[node] = node in ends or any(on_path[child] for child in children)
        beside = [weights[child] for child in children if not on_path[child]]
        weights[node] = set().union(*beside) if children else {node}
    return {node: weights[node] for node, here in on_path.items() if here and node not in ends and weights[node]}


def _children_first(roots: Sequence[Node]) -> list[Node]:
    """Every node below `roots`, each after the nodes that it hands gradients on to."""
    order, seen, stack = [], set(), [(root, False) for root in roots]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None and child not in seen)
    return order


def _sharing_weights(forks: dict[Node, set[Node]]) -> list[tuple[list[Node], set[Node]]]:
    """Forks in groups that have no weight in common, each group with its weights."""
    groups: list[tuple[list[Node], set[Node]]] = []
    for fork, weights in forks.items():
        sharing = [group for group in groups if group[1] & weights]
        groups = [group for group in groups if not group[1] & weights]
        groups.append(([fork, *(f for nodes, _ in sharing for f in nodes)], weights.union(*(w for _, w in sharing))))
    return groups


def _backward_weights(groups: list[tuple[list[Node], set[Node]]], arrived: dict[Node, tuple]) -> None:
    for forks, weights in groups:
        starts = [(GradientEdge(fork, i), g) for fork in forks for i, g in enumerate(arrived[fork]) if g is not None]
        edges, grads = zip(*starts, strict=True)
        # A weight used twice: the path between its forks is walked again, and what arrives on it must not count again.
        hooks = [fork.register_prehook(lambda _, kept=arrived[fork]: kept) for fork in forks] if len(forks) > 1 else []
        try:
            torch.autograd.backward(edges, grads, inputs=[leaf.variable for leaf in weights])
        finally:
            for hook in hooks:
                hook.remove()
