"""Wrong arguments: one message that says what was given and what is allowed."""

import pytest
import torch

from mlsyslab import RankFailed, collectives, simulate
from mlsyslab.comm import CommError

T = torch.ones(6)


def error(fn, tensors=(T, T, T)):
    """What rank 0 raises."""
    with pytest.raises(RankFailed) as caught:
        simulate(fn, list(tensors))
    return str(caught.value)


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter", "all_reduce",
                                "all_to_all"])
def test_an_unknown_algorithm_is_answered_with_those_there_are(op):
    text = error(lambda comm, x: getattr(collectives, op)(comm, x, algorithm="rnig"))
    assert f"{op}(algorithm='rnig')" in text
    for name in [*collectives.ALGORITHMS[op], "auto"]:
        assert name in text


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather"])
@pytest.mark.parametrize(("root", "kind"), [(3, "ValueError"), (-1, "ValueError"), (1.0, "TypeError"), ("0", "TypeError")])
def test_a_wrong_root(op, root, kind):
    text = error(lambda comm, x: getattr(collectives, op)(comm, x, root))
    assert kind in text
    assert f"{op}(root={root!r})" in text
    assert ("ranks are 0 … 2" if kind == "ValueError" else "a rank is an int") in text


@pytest.mark.parametrize("op", ["reduce", "reduce_scatter", "all_reduce"])
def test_a_wrong_reduction(op):
    text = error(lambda comm, x: getattr(collectives, op)(comm, x, op="avg"))
    assert f"{op}(op='avg')" in text
    assert "sum, product, min, max, mean" in text
    text = error(lambda comm, x: getattr(collectives, op)(comm, x.int(), op="mean"))
    assert "of int32: a mean of integers is no integer" in text
    assert "float32" in text
    text = error(lambda comm, x: getattr(collectives, op)(comm, x.to(torch.complex64), op="max"))
    assert "complex numbers have no order" in text
    text = error(lambda comm, x: getattr(collectives, op)(comm, x.to(torch.uint16), op="sum"))
    assert "of uint16" in text
    assert "int64" in text


@pytest.mark.parametrize("op", ["scatter", "gather", "all_gather", "reduce_scatter", "all_to_all"])
def test_what_is_cut_needs_a_dimension(op):
    assert "pass tensor.reshape(1)" in error(lambda comm, x: getattr(collectives, op)(comm, x), [torch.tensor(1.0)] * 3)


@pytest.mark.parametrize("op", ["broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter", "all_reduce",
                                "all_to_all"])
def test_what_is_no_dense_tensor(op):
    assert f"{op} takes a tensor, not list" in error(lambda comm, x: getattr(collectives, op)(comm, [1.0, 2.0]))
    assert ".to_dense()" in error(lambda comm, x: getattr(collectives, op)(comm, x.to_sparse()))


@pytest.mark.parametrize(("op", "lengths", "said"), [
    ("scatter", [2, 2], "one whole number of rows, 0 or more, for each of 3 ranks"),
    ("scatter", [2, 2, -1], "for each of 3 ranks"),
    ("reduce_scatter", [2, 2, 1], "are 5 rows together, but the tensor has 6"),
    ("gather", [2, 6, 6], "says that rank 0 has 2 rows, but its tensor has 6"),
    ("all_gather", [6, 6], "for each of 3 ranks"),
])
def test_lengths_that_do_not_fit(op, lengths, said):
    assert said in error(lambda comm, x: getattr(collectives, op)(comm, x, lengths=lengths))


@pytest.mark.parametrize("tensors", [[torch.ones(6), torch.ones(5), torch.ones(6)],
                                     [torch.ones(6), torch.ones(6).double(), torch.ones(6)]])
@pytest.mark.parametrize("op", ["broadcast", "all_reduce", "reduce", "reduce_scatter"])
@pytest.mark.parametrize("algorithm", ["mst", "ring"])
def test_ranks_that_disagree_on_shape_or_dtype(tensors, op, algorithm):
    with pytest.raises(CommError, match="which expects"):
        simulate(lambda comm, x: getattr(collectives, op)(comm, x, algorithm=algorithm), tensors)


def test_questions_about_costs():
    with pytest.raises(ValueError, match="an operation is one of broadcast, reduce, scatter"):
        collectives.cost("allreduce", "ring", 4, 100)
    with pytest.raises(ValueError, match="scatter can be done by mst, hierarchical"):
        collectives.cost("scatter", "ring", 4, 100)
    with pytest.raises(ValueError, match="p=0"):
        collectives.cost("scatter", "mst", 0, 100)
    with pytest.raises(ValueError, match="a divisor of p=6"):
        collectives.cost("broadcast", "hierarchical", 6, 100, node=4)
    with pytest.raises(ValueError, match="all_to_all can be done by bruck, pairwise"):
        collectives.counts("all_to_all", "mst", [1, 1])
    with pytest.raises(ValueError, match="there is no rank 2"):
        collectives.counts("scatter", "mst", [1, 1], root=2)
    with pytest.raises(ValueError, match="an operation is one of"):
        collectives.lower_bound("sum", 4, 100)
    with pytest.raises(ValueError, match="moves no data"):
        collectives.busbw("barrier", 4, 100, 1.0)
