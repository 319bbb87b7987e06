"""The data of a schedule, its text form, and how schedules are asked for."""

import csv

import pytest
from torch_orders import torch_schedule

from mlsyslab.pipeline import Action, Schedule, names, schedule, validate

CHUNKED = {"interleaved": (1, 2, 3, 4), "looped BFS": (1, 2, 3, 4)}


def every_schedule(name, ranks=range(1, 9), step=1):
    """The schedule for each p, each m up to 4p and each v that it can do."""
    for p in ranks:
        for m in range(1, 4 * p + 1, step):
            for v in CHUNKED.get(name, (None,)):
                if name in ("Chimera", "DualPipe") and p % 2:
                    continue
                yield schedule(name, p, m, v)


def test_there_are_all_the_schedules_of_the_course():
    assert names() == ["device placement", "inference", "GPipe", "1F1B", "interleaved", "looped BFS", "TeraPipe", "Chimera",
                       "ZB-H1", "ZB-H2", "ZB-V", "DualPipe", "DualPipeV", "AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW"]


@pytest.mark.parametrize("name", names())
def test_is_valid_for_every_number_of_ranks_microbatches_and_chunks(name):
    for made in every_schedule(name, step=1 if name not in CHUNKED else 3):
        validate(made)


@pytest.mark.parametrize("name", names())
def test_says_how_many_ranks_microbatches_and_chunks_it_has(name):
    for p, m in (2, 1), (4, 3), (6, 13):
        made = schedule(name, p, m)
        assert (made.ranks, made.microbatches, made.name) == (p, m, name)
        copies = 2 if name in ("Chimera", "DualPipe") else 1
        assert made.stages * copies == p * made.chunks
        assert all(len(ranks) == copies for ranks in made.placement)
        assert made.trains == (name != "inference")
        assert made.asynchronous == (name in ("AMPNet", "PipeMare", "PipeDream", "PipeDream-2BW"))


@pytest.mark.parametrize("name", names())
def test_text_goes_both_ways(name):
    for made in every_schedule(name, ranks=(1, 2, 5, 6), step=5):
        again = Schedule.from_csv(made.to_csv(), name)
        assert again.actions == made.actions
        assert (again.stages, again.microbatches, len(again.slices)) == (made.stages, made.microbatches, len(made.slices))


@pytest.mark.parametrize("name", ["interleaved", "looped BFS", "ZB-V", "DualPipeV"])
def test_torch_reads_our_text_and_we_read_torchs(name, tmp_path):
    ours, theirs = schedule(name, 4, 8), torch_schedule(name, 4, 8, 2)
    path = tmp_path / "ours.csv"
    path.write_text(ours.to_csv())
    order = theirs.pipeline_order
    theirs._load_csv(path, format="compute_only")
    assert [list(row) for row in csv.reader(ours.to_csv().splitlines())] == [
        list(map(str, theirs.pipeline_order[rank])) for rank in range(4)]
    theirs.pipeline_order = order
    theirs._dump_csv(tmp_path / "theirs.csv", format="compute_only")
    assert Schedule.from_csv((tmp_path / "theirs.csv").read_text(), name).actions == ours.actions


def test_text_of_an_action():
    for action, text in [(Action(2, "F", 0), "2F0"), (Action(12, "W", 34), "12W34"), (Action(0, "F", 3, slice=2), "0F3.2"),
                         (Action(1, "B", 5, version=4), "1B5@4"), (Action(1, "U", 5, 1, 4), "1U5.1@4")]:
        assert str(action) == text
        assert Action.parse(text) == action


@pytest.mark.parametrize("text", ["", "2G0", "F0", "2F", "2F0x", "-1F0", "2 F0", "2F0@", "2SEND_F0"])
def test_text_that_is_no_action_is_named(text):
    with pytest.raises(ValueError, match="is no action: write stage, kind"):
        Action.parse(text)


def test_bad_text_names_row_and_rank():
    with pytest.raises(ValueError, match="row 2, of rank 1: '1X0' is no action"):
        Schedule.from_csv("0F0,0B0\n1F0,1X0\n")


@pytest.mark.parametrize("asked, message", [
    (("gpype", 2, 2), "no schedule is called 'gpype'; there are device placement, inference, GPipe"),
    (("GPipe", 0, 2), "stages=0: a whole number, 1 or more"),
    (("GPipe", 2, 0), "microbatches=0: a whole number, 1 or more"),
    (("GPipe", 2, 1.5), "microbatches=1.5: a whole number"),
    (("interleaved", 2, 2, True), "chunks=True: a whole number"),
    (("1F1B", 2, 2, 2), "1F1B takes no chunks; it has no options"),
    (("ZB-V", 2, 2, 3), "ZB-V puts two chunks on every rank, the arms of the V: it needs chunks=2, not 3"),
    (("DualPipeV", 2, 2, 1), "it needs chunks=2, not 1"),
    (("DualPipe", 3, 6), "needs an even number of stages, not 3"),
    (("Chimera", 5, 6), "needs an even number of stages"),
])
def test_what_a_schedule_cannot_do_it_says(asked, message):
    with pytest.raises(ValueError, match=message):
        schedule(*asked)


@pytest.mark.parametrize("name, options, message", [
    ("Chimera", {"directions": 3}, "directions=2f"),
    ("Chimera", {"directions": 16}, "directions=2f"),
    ("TeraPipe", {"slices": [4, 0]}, "slices"),
    ("PipeDream-2BW", {"accumulate": 7}, "accumulate >= 8, not 7"),
    ("PipeMare", {"accumulate": 0}, "accumulate=0"),
    ("AMPNet", {"in_flight": 0}, "in_flight=0"),
    ("AMPNet", {"order": 0}, "AMPNet takes no order; it takes accumulate, in_flight, forward, backward"),
])
def test_options_are_checked(name, options, message):
    with pytest.raises(ValueError, match=message):
        schedule(name, 8, 8, **options)


def test_names_may_be_written_as_people_write_them():
    for text in ("1f1b", "zb-h1", "ZBH1", "Looped-BFS", "pipedream 2bw", "DUALPIPEV"):
        assert schedule(text, 2, 4).name.lower().replace("-", "").replace(" ", "") == \
            text.lower().replace("-", "").replace(" ", "")


def test_chimera_with_more_directions_starts_each_pipeline_at_another_rank():
    for p, directions in (4, 4), (8, 2), (8, 4), (8, 8), (12, 6):
        made = schedule("Chimera", p, p, directions=directions)
        validate(made)
        assert all(len(ranks) == directions for ranks in made.placement)
        assert len({made.rank_of(0, i) for i in range(directions)}) == directions


def test_dualpipe_feeds_even_microbatches_from_the_first_rank_and_odd_ones_from_the_last():
    made = schedule("DualPipe", 6, 13)
    for i in range(13):
        assert [made.rank_of(stage, i) for stage in range(6)] == (list(range(6)) if i % 2 == 0 else [5, 4, 3, 2, 1, 0])
