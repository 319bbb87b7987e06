"""Server against ring: how long the gradients of a step are on their way.

n is the bytes of the gradients, W the workers, S the servers, p the ranks of a ring. Every rank sends one message and
receives one message at a time, each in alpha + n beta (`Link`).

One server takes in W gradients and gives out W copies of the sum through one link: 2 W n beta, however many links the
workers have. S servers share that. With as many servers as workers, on the same ranks, no link carries more than the
ring's: reduce-scatter is a push to every shard's owner, all-gather is a pull.
"""

from __future__ import annotations

from mlsyslab.collectives import cost
from mlsyslab.comm import Link


def server_time(n: float, workers: int, servers: int, link: Link, colocated: bool = False) -> float:
    """Seconds for every worker to push n bytes and to pull the sum.

    servers: ranks of their own. colocated: every worker is a server too (then servers = workers).

        2 R (alpha + n/S beta) + (W-1) n/S gamma, with R = max(W, S) rounds;
        2 (W-1) (alpha + n/W beta) + (W-1) n/W gamma when colocated: the ring's time.

    Equal to the simulated time of `through_servers` when S divides the vector.
    """
    if workers < 1 or servers < 1 or n < 0:
        raise ValueError(f"workers={workers}, servers={servers}, n={n}: at least one worker and server, and 0 bytes or more")
    if colocated and servers != workers:
        raise ValueError(f"servers={servers}, workers={workers}: colocated, every worker is a server, so there are as many")
    W, S = workers, servers
    rounds = W - 1 if colocated else max(W, S)
    return 2 * rounds * link.time(n / S) + (W - 1) * n / S * link.gamma


def iteration_time_in_messages(n: float, workers: int, servers: int, link: Link) -> float:
    """Seconds that messages add to an iteration of BSP, in the long run: (R/S + 1) n beta, with R = max(W, S).

    Less than `server_time`: the values go out to one worker after the other, so the gradients come back one after the other,
    and the first ones come in while the last values go out. Leaves out alpha and what is small (headers, acknowledgements).
    """
    return (max(workers, servers) / servers + 1) * n * link.beta


def ring_time(n: float, p: int, link: Link) -> float:
    """Seconds for the ring all-reduce of n bytes: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma."""
    return cost("all_reduce", "ring", p, n).time(link)
