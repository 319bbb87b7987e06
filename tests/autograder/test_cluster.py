"""Grading on Dask: a scheduler and two workers, each a process of its own, as they would be on other machines."""

import os
import shutil
import signal
from pathlib import Path
from random import Random

import dask_cluster
import psutil
import pytest
from corpus import ADVERSARIAL
from corpus_class import CASES, check, corpus_course, grade_corpus
from dask_cluster import Cluster, until
from tiny_course import command

from autograder import cluster as on_dask
from autograder import remote, samples, sandbox
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import grade
from autograder.limits import Limits
from autograder.outcome import LIMITED, PERSON, Outcome
from autograder.workers import TRIED, TRIES, Crew

pytestmark = [pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing())),
              pytest.mark.skipif(dask_cluster.missing() is not None, reason=str(dask_cluster.missing()))]

NEEDS_GPU = "# ---\n# jupyter:\n#   mlsyslab:\n#     gpu: true\n# ---\n\n"
# All of the corpus takes minutes.
NAMES = sorted(CASES) if os.environ.get("SWEEP") else Random("Dask").sample(sorted(ADVERSARIAL), 12)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask_cluster.running(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster
        assert not list(cluster.folder.rglob("grading-*"))


def hand_in(course: Course, folder: Path, *students: str) -> None:
    samples.make(course, "tiny", folder)
    for student in students:
        shutil.copytree(folder / student, course.submitted / student)


def test_the_corpus_ends_on_dask_as_it_does_here(tmp_path, cluster):
    """A sample of it; all of it where SWEEP is set."""
    course = corpus_course(tmp_path, NAMES)
    outcomes = grade_corpus(course, NAMES, scheduler=cluster.address)
    assert set(outcomes) == {"aaa", "zzz", *NAMES}
    for outcome in outcomes.values():
        check(outcome)
    assert not cluster.grading()
    pages = [course.feedback("collectives", name).exists() for name, outcome in outcomes.items() if outcome.points]
    assert all(pages)


def test_where_there_is_no_scheduler_that_is_said(tmp_path, course, monkeypatch):
    hand_in(course, tmp_path / "samples", "ada")
    monkeypatch.setattr(on_dask, "REACHED", 0.5)
    for address in ("tcp://127.0.0.1:9", "nowhere", "http://127.0.0.1:9"):
        with pytest.raises(CourseError, match=f"no Dask scheduler answers at {address}; start one"):
            grade(course, "tiny", scheduler=address)


def test_workers_of_another_version_are_named(tmp_path, course, cluster, monkeypatch):
    hand_in(course, tmp_path / "samples", "ada")
    monkeypatch.setattr(remote, "versions", lambda: {"Python": "2.7", "the course": "older"})
    with pytest.raises(CourseError, match="\n  tcp://127.0.0.1.*: Python 3.*, here 2.7; the course .*, here") as caught:
        grade(course, "tiny", scheduler=cluster.address)
    assert "the scheduler: Python" in str(caught.value)


def test_a_submission_costs_three_workers_at_most(tmp_path, course, cluster):
    hand_in(course, tmp_path / "samples", "eve")
    process = command(course, "grade", "tiny", "--scheduler", cluster.address, "--cell-seconds", "600")
    killed = []
    for _ in range(TRIES):
        (at_work,) = until(lambda: [desk for desk in cluster.grading() if desk not in killed])  # noqa: B023  called at once
        at_work.kill()
        killed.append(at_work)
    _, said = process.communicate(timeout=dask_cluster.SLOW)
    assert process.returncode == 0, said
    outcome = Outcome.load(course.outcome("tiny", "eve"))
    assert (outcome.kind, outcome.why) == (PERSON, [TRIED])


def test_ctrl_c_ends_what_runs_on_the_workers(tmp_path, course, cluster):
    hand_in(course, tmp_path / "samples", "eve")
    (course.submitted / "odd" / "tiny").mkdir(parents=True)  # without a notebook
    process = command(course, "grade", "tiny", "--scheduler", cluster.address, "--cell-seconds", "600")
    until(lambda: course.outcome("tiny", "odd").exists())
    running = until(cluster.grading)
    inside = until(lambda: sandboxes(running[0]))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=dask_cluster.SLOW)
    assert process.returncode == 130 and "run it again to go on" in said
    until(lambda: not [gone for gone in (*running, *inside) if gone.is_running() and gone.status() != psutil.STATUS_ZOMBIE])
    assert not course.outcome("tiny", "eve").exists()


def test_what_a_worker_had_that_was_killed_is_graded_by_another(tmp_path, course, cluster, monkeypatch):
    """And here it isn't graded once more: both say by the same digest whether a submission has changed."""
    hand_in(course, tmp_path / "samples", "eve")
    (course.submitted / "odd" / "tiny").mkdir(parents=True)  # without a notebook
    process = command(course, "grade", "tiny", "--scheduler", cluster.address, "--cell-seconds", "3")
    until(cluster.grading)[0].parent().kill()
    _, said = process.communicate(timeout=dask_cluster.SLOW)
    assert process.returncode == 0, said
    monkeypatch.setattr(Crew, "graded", lambda crew, submissions: (pytest.fail(str(it)) for it in submissions))
    outcomes = grade(course, "tiny", limits=Limits(cell=3.0))
    assert [(outcome.kind, outcome.total) for outcome in outcomes] == [(LIMITED, 7), (PERSON, 0)]


def test_a_lab_that_asks_for_a_gpu_needs_workers_that_offer_one(tmp_path, course, cluster):
    course.source("tiny").write_text(NEEDS_GPU + course.source("tiny").read_text())
    hand_in(course, tmp_path / "samples", "ada")
    with pytest.raises(CourseError, match="tiny asks for a GPU, and no worker .* offers one"):
        grade(course, "tiny", scheduler=cluster.address)
    cluster.add("--resources", "GPU=1", CUDA_VISIBLE_DEVICES="")
    with on_dask.connected(cluster.address) as client:
        until(lambda: on_dask.lanes(client, {"GPU": 1}))
    with pytest.raises(CourseError, match="tiny asks for a GPU, and this machine has none"):  # so it went to that worker
        grade(course, "tiny", scheduler=cluster.address)


def test_without_workers_without_their_sandboxes_and_when_the_scheduler_goes(tmp_path, course, monkeypatch):
    hand_in(course, tmp_path / "samples", "eve")
    monkeypatch.setattr(on_dask, "PATIENCE", 1.0)
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        with pytest.raises(CourseError, match="has no workers; start some in a checkout.* -m dask worker tcp://"):
            grade(course, "tiny", scheduler=cluster.address)
        cluster.add(PATH="/nowhere")
        monkeypatch.undo()
        with pytest.raises(CourseError, match="not every machine can.*\n  tcp://.*bubblewrap isn't installed"):
            grade(course, "tiny", scheduler=cluster.address)
        process = command(course, "grade", "tiny", "--scheduler", cluster.address, "--unsafe-no-sandbox",
                          "--cell-seconds", "600")
        until(cluster.grading)
        cluster.scheduler.kill()
        _, said = process.communicate(timeout=dask_cluster.SLOW)
        assert process.returncode == 2 and f"the scheduler at {cluster.address} has gone" in said
    finally:
        cluster.close()


def sandboxes(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if child.name() == "bwrap"]
