"""The corpus through the real grader: nobody gains a point that isn't earned, and nobody honest loses one."""

import hashlib
import html.parser
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from corpus import ADVERSARIAL, HONEST_BUT_ODD, LAB
from corpus_class import CASES, SEED, check, corpus_course, grade_corpus

import mlsyslab
from autograder import sandbox
from autograder.course import Course
from autograder.outcome import GRADED, LIMITED, PERSON, Outcome

pytestmark = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))

ANSWERS = ("hidden_values", "expected_mean", SEED)  # stand in hidden tests only


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    return corpus_course(tmp_path_factory.mktemp("corpus"))


def digests(folder: Path) -> dict[str, str]:
    """What the files under a folder, or the file itself, hold."""
    paths = folder.rglob("*") if folder.is_dir() else [folder]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if "__pycache__" not in path.parts
            and path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24}


@pytest.fixture(scope="module")
def outcomes(course) -> dict[str, Outcome]:
    """How each ended; what they handed in and what they were judged by is afterwards as it was before."""
    files = (Path(mlsyslab.__file__), Path(torch.__file__))
    folders = (course.submitted, course.root / "solutions", sandbox.INSIDE, *files)
    before = [digests(folder) for folder in folders]
    ended = grade_corpus(course, workers=2)
    assert [digests(folder) for folder in folders] == before
    return ended


def test_the_corpus_is_large_enough():
    assert len(ADVERSARIAL) >= 60 and len(HONEST_BUT_ODD) >= 25


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_adversarial_submission_gains_a_point(outcomes, name):
    check(outcomes[name])


@pytest.mark.parametrize("name", HONEST_BUT_ODD)
def test_no_honest_submission_loses_a_point(outcomes, name):
    check(outcomes[name])


@pytest.mark.parametrize("student", ["aaa", "zzz"])
def test_the_others_have_what_they_earned(course, outcomes, student):
    check(outcomes[student])
    with course.gradebook() as gradebook:
        assert gradebook.find_submission(LAB, student).score == 10


def test_every_submission_ends_in_one_outcome_and_the_gradebook_says_the_same(course, outcomes):
    assert set(outcomes) == {"aaa", "zzz", *CASES}
    with course.gradebook() as gradebook:
        entered = {submission.student_id: submission.score for submission in gradebook.assignment_submissions(LAB)}
        grades = [grade for submission in gradebook.assignment_submissions(LAB)
                  for part in submission.notebooks for grade in part.grades]
    assert entered == {name: outcome.total for name, outcome in outcomes.items()}
    assert not any(grade.manual_score or grade.extra_credit for grade in grades)
    assert {outcome.kind for outcome in outcomes.values()} == {GRADED, LIMITED, PERSON}


def test_no_answer_is_shown_to_anybody(course, outcomes):
    """Neither in what a submission printed, nor on its page, nor in the reasons."""
    for name in outcomes:
        page, notebook = course.feedback(LAB, name), course.autograded(LAB, name)
        texts = [course.outcome(LAB, name).read_text(), page.read_text() if page.exists() else ""]
        if notebook.exists():
            cells = nbformat.read(notebook, as_version=4).cells
            texts += [str(cell.get("outputs", "")) for cell in cells]
        assert not [answer for answer in ANSWERS for text in texts if answer in text], name


def test_no_process_and_no_file_is_left(outcomes):
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if "271828.182" in line]
    left = ("corpus-planted", "corpus-pickled", "corpus-unzipped")
    assert not [name for name in left for place in ("/tmp", "/dev/shm", "/var/tmp", "/run") if Path(place, name).exists()]


class Reader(html.parser.HTMLParser):
    """What a browser would run or load of a page."""

    def __init__(self):
        super().__init__()
        self.inside, self.found = False, []

    def handle_starttag(self, tag, attributes):
        self.inside = tag == "script"
        if tag in ("iframe", "object", "embed", "base", "form"):
            self.found.append((tag, "", ""))
        for name, value in attributes:
            value = (value or "").strip().lower()
            runs = name.startswith("on") or name == "srcdoc" or value.startswith(("javascript:", "data:text/html"))
            loads = name in ("src", "data", "action") and not value.startswith(("data:image/", "#"))
            goes = (tag, name) == ("link", "href") or (name == "http-equiv" and value != "content-security-policy")
            if runs or loads or goes:
                self.found.append((tag, name, value[:80]))

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside and data.strip():
            self.found.append(("script", "text", data.strip()[:80]))


def test_no_page_runs_anything_or_loads_anything(course, outcomes):
    for name in outcomes:
        page = course.feedback(LAB, name)
        if page.exists():
            reader = Reader()
            reader.feed(page.read_text())
            assert not reader.found, (name, reader.found[:5])
