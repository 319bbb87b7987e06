"""Buckets are reduced while backward goes on: what happens between the first gradient of a step and the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import finalize, ref

import torch
from torch import nn

from mlsyslab.collectives import all_reduce, broadcast
from mlsyslab.collectives.auto import choose_for
from mlsyslab.comm import Communicator
from mlsyslab.data_parallel.buckets import Bucket, assign, pieces

#: What the simulated clock charges for the backward of one parameter, from its name and itself.
Seconds = Callable[[str, nn.Parameter], float]


class Reducer:
    """Averages gradients over the ranks, bucket by bucket, as autograd makes them.

    names, parameters: all that train, in the order in which the forward uses them.
    syncing: whether the next backward is to be averaged, or adds up here.
    used: the parameters that the outputs of forwards depend on since the last step, None for all.
    """

    def __init__(self, comm: Communicator, names: Sequence[str], parameters: Sequence[nn.Parameter], first_bucket_bytes: int,
                 bucket_bytes: int, gradient_dtype: torch.dtype | None, find_unused: bool, algorithm: str,
                 seconds: Seconds | None):
        self.comm, self.names, self.parameters = comm, list(names), list(parameters)
        self.first_bucket_bytes, self.bucket_bytes = first_bucket_bytes, bucket_bytes
        self.gradient_dtype, self.find_unused, self.algorithm, self.seconds = gradient_dtype, find_unused, algorithm, seconds
        self.syncing, self.used = True, None
        self.order: list[int] | None = list(reversed(range(len(self.parameters))))  # to be bucketed in; None: as they are
        self.known = False  # whether the order is that of a backward, and not a guess
        self.running = False
        self.since = 0.0  # when the computing began that leads to the next gradient
        self._arrange()
        me = ref(self)  # the module's parameters must not keep alive what averages them, nor call it when it has gone
        for i, parameter in enumerate(self.parameters):
            hook = parameter.register_post_accumulate_grad_hook(lambda _, i=i: me()._arrived(i))
            finalize(self, hook.remove).atexit = False

    # -- a backward ---------------------------------------------------------------------------------------------------

    def _arrived(self, i: int) -> None:
        """Autograd has made the gradient of a parameter, and added it to what was there."""
        self._note_computing(i)
        if not self.syncing:
            return
        if not self.running:
            self._begin()
        if i in self.placed:
            raise RuntimeError(f"rank {self.comm.rank}: a gradient of {self.names[i]} came, and the forward's outputs "
                               "didn't show that they depend on it. Checkpoint with use_reentrant=False")
        self.arrived.append(i)
        self._put(i)

    def _begin(self) -> None:
        self.running = True
        self._arrange()
        self.arrived: list[int] = []
        self.placed: set[int] = set()
        self.missing = [len(bucket.parameters) for bucket in self.buckets]
        self.tasks: list = []
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)  # when this backward is through
        if self.used is not None:
            for i in range(len(self.parameters)):
                if i not in self.used:
                    self._put(i)

    def _put(self, i: int) -> None:
        """Put a gradient into its bucket; start the buckets that are full, in order, for all ranks must start them alike."""
        number, place = self.places[i]
        self.placed.add(i)
        self.buckets[number].put(place, 1 / self.comm.size)
        self.missing[number] -= 1
        while len(self.tasks) < len(self.buckets) and not self.missing[len(self.tasks)]:
            bucket = self.buckets[len(self.tasks)]
            self.tasks.append(self.comm.start(bucket.reduce, self.algorithms[bucket.number], self.gradient_dtype))

    def _finish(self) -> None:
        """Backward is through: wait for the buckets, whose sums are the gradients."""
        self.running, self.used = False, None
        lacking = [i for i in range(len(self.parameters)) if i not in self.arrived]
        if lacking and not self.find_unused:
            raise RuntimeError(self._what_is_lacking(lacking))
        for i in range(len(self.parameters)):
            if i not in self.placed:  # an output depends on it, and the loss doesn't
                self._put(i)
        has_gradient = self._anywhere() if self.find_unused else None
        for task in self.tasks:
            task.wait()
        for bucket in self.buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if has_gradient is None or parameter in has_gradient:
                    parameter.grad = view
        if not self.known:
            self._learn_order(lacking)

    def _what_is_lacking(self, lacking: list[int]) -> str:
        names = ", ".join(self.names[i] for i in lacking[:5]) + (", …" if len(lacking) > 5 else "")
        return (f"rank {self.comm.rank}: this backward gave no gradient for {names} ({len(lacking)} of "
                f"{len(self.parameters)} parameters), and the other ranks wait for it. If the loss doesn't always depend on "
                "all: find_unused_parameters=True. (A checkpoint runs a backward of its own, unless use_reentrant=False.)")

    def _anywhere(self) -> set[nn.Parameter]:
        """The parameters that have a gradient on some rank. The others are left without one, as on one device."""
        flags = torch.tensor([parameter.grad is not None for parameter in self.parameters], dtype=torch.int32)
        total = self.comm.start(all_reduce, flags.to(self.comm.device)).wait().tolist()
        return {parameter for parameter, ranks in zip(self.parameters, total, strict=True) if ranks}

    def _note_computing(self, i: int) -> None:
        """Write into the trace what led to this gradient; the simulated clock knows of it only by `seconds`."""
        label = f"backward {self.names[i]}"
        if self.seconds is None:
            self.comm.record("compute", self.since, self.comm.now(), label=label)
        else:
            with self.comm.work(label, self.seconds(self.names[i], self.parameters[i])):
                pass
        self.since = self.comm.now()

    # -- the buckets --------------------------------------------------------------------------------------------------

    def _learn_order(self, lacking: list[int]) -> None:
        """From now on, bucket in the order in which gradients came on rank 0 in the first backward."""
        order = broadcast(self.comm, torch.tensor([*self.arrived, *lacking], device=self.comm.device)).tolist()
        self.known = True
        if self._assigned(order) != self.assigned:
            self.order = order

    def _assigned(self, order: list[int]) -> list[list[int]]:
        """The parameters of each bucket."""
        chosen = [self.parameters[i] for i in order]
        together = assign([p.nbytes for p in chosen], self.first_bucket_bytes, self.bucket_bytes,
                          [(p.dtype, p.device) for p in chosen])
        return [[order[i] for i in indices] for indices in together]

    def _arrange(self) -> None:
        """Make the buckets, if there is a new order. Gradients that are there move when they are put into them."""
        if self.order is None:
            return
        self.assigned, self.order = self._assigned(self.order), None
        self.buckets = []  # their memory is free for the new ones
        self.buckets = [Bucket(number, [self.names[i] for i in indices], [self.parameters[i] for i in indices])
                        for number, indices in enumerate(self.assigned)]
        self.places = {i: (number, place) for number, indices in enumerate(self.assigned) for place, i in enumerate(indices)}
        self.algorithms = [self._algorithm(bucket) for bucket in self.buckets]

    def _algorithm(self, bucket: Bucket) -> str:
        if self.algorithm != "auto":
            return self.algorithm
        nbytes = bucket.elements * (self.gradient_dtype or bucket.dtype).itemsize
        return choose_for(self.comm, "all_reduce", nbytes // pieces(nbytes, self.comm.size))
