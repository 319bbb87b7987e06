"""Ranks and the messages between them: one function a rank, in three worlds."""

from mlsyslab.comm.communicator import Communicator, Run, Work
from mlsyslab.comm.errors import CommError, Deadlock, RankFailed, Wait
from mlsyslab.comm.launch import launch
from mlsyslab.comm.link import Failing, Link, Mesh, Network, Nodes, Route, Uneven
from mlsyslab.comm.simulate import simulate
from mlsyslab.comm.trace import Event, Trace

__all__ = ["CommError", "Communicator", "Deadlock", "Event", "Failing", "Link", "Mesh", "Network", "Nodes", "RankFailed",
           "Route", "Run", "Trace", "Uneven", "Wait", "Work", "launch", "simulate"]
