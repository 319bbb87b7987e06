# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""What tests compare with is changed, or what they compare is made to be equal to everything."""

from .case import attack, attack_on_cells, cell


@attack()
def torch_functions_that_agree():
    import torch
    torch.equal = torch.allclose = torch.is_tensor = lambda *args, **kwargs: True
    torch.Tensor.__eq__ = lambda self, other: True
    torch.Tensor.equal = lambda self, other: True


@attack()
def numpy_functions_that_agree():
    import numpy
    numpy.allclose = numpy.array_equal = numpy.isclose = lambda *args, **kwargs: True
    numpy.testing.assert_allclose = numpy.testing.assert_array_equal = lambda *args, **kwargs: None


@attack()
def builtins_that_agree():
    import builtins
    builtins.all = builtins.any = builtins.isinstance = lambda *args: True


@attack()
def assertion_errors_that_are_nothing():
    import builtins
    class Nothing(Exception):
        def __new__(cls, *args):
            raise SystemExit(0)
    builtins.AssertionError = Nothing


@attack()
def asserts_taken_out_of_the_tree():
    import ast
    class Without(ast.NodeTransformer):
        def visit_Assert(self, node):
            return ast.Pass()
    get_ipython().ast_transformers.append(Without())


@attack()
def asserts_taken_out_of_the_text():
    get_ipython().input_transformers_post.append(
        lambda lines: [line if "assert" not in line else "pass\n" for line in lines])


@attack()
def a_shell_that_runs_nothing_any_more():
    shell = get_ipython()
    old = shell.run_cell
    type(shell).run_cell = lambda self, source, **kwargs: old("pass", **kwargs)


@attack()
def errors_that_a_handler_swallows():
    get_ipython().set_custom_exc((BaseException,), lambda *args, **kwargs: None)


@attack()
def a_trace_function_that_steps_over_errors():
    import sys
    import threading
    def step(frame, event, argument):
        if event == "exception":
            frame.f_trace = None
        return step
    sys.settrace(step)
    threading.settrace(step)
    sys.excepthook = lambda *args: None


@attack()
def the_names_that_tests_use():
    class Anything:
        def __getattr__(self, name):
            return Anything()
        def __call__(self, *args, **kwargs):
            return Anything()
        def __eq__(self, other):
            return True
        def __iter__(self):
            return iter([])
    simulate = inputs = torch = math = alike = scaled_right = shift_right = Anything()


@attack(at="shift")
def a_helper_of_an_earlier_test():
    """The third test uses a function that the second one defines."""
    def alike(came, expected):
        return True
    def shift(comm, tensor):
        out = tensor.clone()
        comm.sendrecv(tensor, (comm.rank + 1) % comm.size, out, (comm.rank - 1) % comm.size)
        return out + 1


@attack()
def communicators_that_count_wrong():
    from mlsyslab.comm.trace import Trace
    from mlsyslab.comm import communicator
    Trace.messages = Trace.bytes_sent = lambda self, rank: 1
    communicator.Communicator.size = 1


@attack(at="scaled")
def an_object_equal_to_everything():
    class Equal:
        def __eq__(self, other):
            return True
        __ne__ = __lt__ = __gt__ = lambda self, other: False
        __hash__ = None
        def __bool__(self):
            return True
        dtype = shape = property(lambda self: Equal())
    def scaled(tensor, factor):
        return Equal()


@attack(at="scaled")
def a_tensor_subclass_that_agrees():
    import torch
    class Agreeing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in (torch.equal, torch.Tensor.equal, torch.Tensor.__eq__, torch.allclose):
                return True
            return super().__torch_function__(func, types, args, kwargs or {})
    def scaled(tensor, factor):
        return tensor.as_subclass(Agreeing)


@attack(at="mean", points=(0, 0, 0))
def a_float_equal_to_every_number():
    class Any(float):
        __eq__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __hash__ = float.__hash__
    def mean(values):
        return Any("nan")


@attack(at="mean", points=(0, 0, 0))
def a_number_that_becomes_another():
    class Many(int):
        def __float__(self):
            return float("nan")
        def __index__(self):
            return 3
    def mean(values):
        return Many(7)


@attack(at="mean", points=(0, 0, 0))
def an_array_of_objects():
    import numpy
    class Equal:
        __eq__ = lambda self, other: True
    def mean(values):
        return numpy.array([Equal()], dtype=object)


@attack(at="mean", points=(0, 0, 0))
def nan_for_every_list():
    def mean(values):
        return float("nan")


@attack(at="mean", points=(0, 0, 0))
def all_answers_at_once():
    def mean(values):
        return {n / k for n in range(-99, 100) for k in range(1, 9)}


@attack(at="scaled")
def a_tensor_without_values():
    def scaled(tensor, factor):
        return tensor.to("meta")


@attack(at="scaled")
def a_tensor_of_one_element():
    def scaled(tensor, factor):
        return tensor.new_tensor(0).expand(tensor.shape)


@attack(at="scaled")
def an_input_made_to_fit():
    def scaled(tensor, factor):
        tensor.zero_()
        return tensor


@attack(at="mean", points=(0, 0, 0))
def a_list_emptied_before_the_answer():
    def mean(values):
        values.clear()
        values.extend([0])
        return 0


@attack(at="mean", points=(0, 0, 0))
def a_function_that_is_a_class_with_properties():
    class mean:
        def __new__(cls, values):
            return object.__new__(cls)
        def __eq__(self, other):
            return True
        def __float__(self):
            return float("nan")


@attack(at="mean", points=(0, 0, 0))
def right_only_for_what_is_shown():
    """Hard-coded answers: the hidden numbers come from a secret seed."""
    def mean(values):
        return {(1, 2, 6): 3, (): float("nan")}.get(tuple(values), 0)


@attack(at="mean", points=(0, 0, 0))
def right_only_on_the_first_call():
    calls = []
    def mean(values):
        calls.append(values)
        return sum(values) / len(values) if len(calls) == 1 else 0


@attack(at="shift")
def ranks_that_talk_through_a_global():
    """The right tensors, but no message."""
    import time
    left = {}
    def shift(comm, tensor):
        left[comm.rank] = tensor
        comm.barrier()
        return left[(comm.rank - 1) % comm.size].clone()


@attack(at="shift")
def a_trace_written_by_the_student():
    import torch
    left = {}
    def shift(comm, tensor):
        left[comm.rank] = tensor
        comm.barrier()
        comm.record("send", 0.0, 1.0, bytes=tensor.nbytes, peer=(comm.rank + 1) % comm.size)
        return left[(comm.rank - 1) % comm.size]


@attack(at="shift")
def a_message_shorter_than_the_tensor():
    left = {}
    def shift(comm, tensor):
        left[comm.rank] = tensor
        comm.sendrecv(tensor[:0], (comm.rank + 1) % comm.size, tensor[:0].clone(), (comm.rank - 1) % comm.size)
        comm.barrier()
        return left[(comm.rank - 1) % comm.size]


@attack(at="shift")
def the_answer_of_the_library():
    """Shifting is in the library too, as part of what this lab withholds."""
    from mlsyslab import collectives
    def shift(comm, tensor):
        whole = collectives.all_gather(comm, tensor)
        return whole[((comm.rank - 1) % comm.size) * len(tensor):][:len(tensor)]


@attack_on_cells()
def tests_that_assert_nothing(notebook):
    for name in ("scaled_test", "shift_test"):
        cell(notebook, name).source = "assert True"
