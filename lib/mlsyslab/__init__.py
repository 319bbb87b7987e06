"""How large models are trained in parallel, in code that can be read.

Everything parallel is a function that one rank runs, `fn(comm, input)`. `simulate` runs it on every rank in this process,
`launch` in one process a rank, `torchrun … -m mlsyslab.run module:function` on a cluster.
"""

from mlsyslab.comm import (
    CommError,
    Communicator,
    Deadlock,
    Event,
    Failing,
    Failure,
    Link,
    Mesh,
    Network,
    Nodes,
    PeerLost,
    RankFailed,
    Run,
    Trace,
    Uneven,
    launch,
    simulate,
)

__all__ = ["CommError", "Communicator", "Deadlock", "Event", "Failing", "Failure", "Link", "Mesh", "Network", "Nodes",
           "PeerLost", "RankFailed", "Run", "Trace", "Uneven", "launch", "simulate"]
