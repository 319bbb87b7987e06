"""How a world is divided into servers and workers, and by which rules they play."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlsyslab.data_parallel.consistency import BSP, Consistency
from mlsyslab.data_parallel.rules import SGD, Rule


@dataclass(frozen=True)
class Setup:
    """Ranks 0 … servers-1 serve, all others work.

    servers:     how many, each with a shard of the values.
    consistency: BSP(), ASP() or SSP(s).  rule: what a server does with a gradient.
    replicas:    2 to keep every shard on two servers, so that either may die; 1 to keep it on one.
    elastic:     whether a dead worker is left out until it comes back, and then goes on where the slowest is. Else the
                 others wait for it, as far as their consistency makes them, and it does again what it had not pushed.
    """

    servers: int = 1
    consistency: Consistency = field(default_factory=BSP)
    rule: Rule = field(default_factory=lambda: SGD(0.1))
    replicas: int = 1
    elastic: bool = False

    def __post_init__(self):
        if type(self.servers) is not int or self.servers < 1:
            raise ValueError(f"Setup(servers={self.servers!r}): a number of ranks, 1 or more")
        if self.replicas not in (1, 2):
            raise ValueError(f"Setup(replicas={self.replicas!r}): a shard is kept on 1 or 2 servers")
        if self.replicas > self.servers:
            raise ValueError("Setup(servers=1, replicas=2): two copies of a shard need two servers")
        if not isinstance(self.consistency, Consistency):
            raise TypeError(f"Setup(consistency={self.consistency!r}): one of BSP(), ASP(), SSP(s)")

    def holders(self, shard: int) -> list[int]:
        """The servers that keep a shard: its primary at the start, and the next server as its backup."""
        return [(shard + k) % self.servers for k in range(self.replicas)]

    def held(self, server: int) -> list[int]:
        """The shards that a server keeps."""
        return [shard for shard in range(self.servers) if server in self.holders(shard)]

    def workers(self, size: int) -> int:
        """How many of `size` ranks work."""
        if size <= self.servers:
            raise ValueError(f"{size} ranks with {self.servers} of them servers leave no worker: use more ranks")
        return size - self.servers
