"""What staleness costs on the small task of the chapter, each method against the synchronous run that updates as often."""

import pytest

from mlsyslab.pipeline.convergence import METHODS, converge


def test_ampnet_breaks_where_the_synchronous_run_learns():
    synchronous, ampnet = (converge(method, microbatches=560) for method in ("synchronous", "AMPNet"))
    assert synchronous.final < 0.1
    assert ampnet.final > 3 * synchronous.final and ampnet.weight_versions == 1


def test_2bw_holds():
    synchronous, two_versions = (converge(method, microbatches=480, accumulate=8)
                                 for method in ("synchronous", "PipeDream-2BW"))
    assert two_versions.final == pytest.approx(synchronous.final, rel=0.15) and two_versions.weight_versions == 2


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_at_a_low_rate_and_repeats_itself(method):
    accumulate = 3 if method == "PipeDream-2BW" else 1
    first, again = (converge(method, p=3, microbatches=96, rate=0.01, accumulate=accumulate) for _ in range(2))
    assert first == again and len(first.losses) == 96
    assert first.final < first.losses[0]


@pytest.mark.parametrize(("options", "message"), [
    ({"method": "hope"}, "method='hope': choose one of synchronous, AMPNet"),
    ({"method": "synchronous", "accumulate": 3}, "800 microbatches a multiple of it"),
])
def test_what_cannot_be_run_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        converge(**options)
