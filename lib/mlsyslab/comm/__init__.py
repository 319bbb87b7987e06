"""Ranks and the messages between them: one function a rank, in three worlds."""

from mlsyslab.comm.communicator import Communicator, Run, Task, Work
from mlsyslab.comm.errors import CommError, Deadlock, PeerLost, RankFailed, Wait
from mlsyslab.comm.failure import Failure
from mlsyslab.comm.launch import launch
from mlsyslab.comm.link import Failing, Link, Mesh, Network, Nodes, Route, Uneven
from mlsyslab.comm.simulate import simulate
from mlsyslab.comm.trace import Event, Trace

__all__ = ["CommError", "Communicator", "Deadlock", "Event", "Failing", "Failure", "Link", "Mesh", "Network", "Nodes",
           "PeerLost", "RankFailed", "Route", "Run", "Task", "Trace", "Uneven", "Wait", "Work", "launch", "simulate"]
