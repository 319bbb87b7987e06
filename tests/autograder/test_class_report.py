"""The report about a class: its figures against closed forms, its tables as other programs read them, its page as it is."""

import csv
import io
import math
from statistics import correlation

import nbformat
import pytest
from tiny_course import new_course

from autograder import class_report, similar, statistics, tables
from autograder.course import write
from autograder.errors import CourseError
from autograder.judge.lab import Exercise
from autograder.outcome import GRADED, LIMITED, PERSON, Outcome, Verdict
from autograder.record import Recorder
from autograder.samples import HandedOut
from autograder.statistics import Row
from autograder.work import Result

EXERCISES = [Exercise("one", {"a": 4.0}), Exercise("two", {"b": 3.0, "c": 3.0})]


def row(student, one, two, kind=GRADED, **more):
    return Row(student, kind, {"one": one, "two": two}, (one or 0) + (two or 0), **more)


ROWS = [row("ann", 4.0, 6.0), row("bob", 4.0, 0.0, why={"two": ["Wrong: rank 3 returned 7"]}), row("cem", 0.0, 3.0),
        row("dee", 2.0, 6.0, why={"two": ["Wrong: rank 1 returned 2"]}), row("eli", 0.0, 0.0, LIMITED)]


# -- figures --------------------------------------------------------------------------------------------------------------

def test_difficulty_is_the_mean_share_and_discrimination_the_correlation_with_the_rest():
    one, two = (statistics.question(exercise, ROWS) for exercise in EXERCISES)
    assert math.isclose(one.difficulty, 10 / 20) and math.isclose(two.difficulty, 15 / 30)
    expected = correlation([4, 4, 0, 2, 0], [6, 0, 3, 6, 0])  # with two questions the rest of one is the other
    assert math.isclose(one.discrimination, expected) and math.isclose(two.discrimination, expected)
    assert (one.full, one.none, two.full, two.none) == (2, 2, 2, 2)


def test_a_question_that_all_answer_alike_tells_nobody_apart():
    assert statistics.question(EXERCISES[0], [row("a", 4.0, 1.0), row("b", 4.0, 2.0)]).discrimination is None


def test_failures_that_differ_in_numbers_only_are_counted_together():
    assert statistics.question(EXERCISES[1], ROWS).failures == [("Wrong: rank … returned …", 2)]


@pytest.mark.parametrize("totals", [[0.0], [10.0], [0.0, 10.0], [1.0, 2.5, 4.0, 9.9, 10.0, 3.0]])
def test_every_total_is_in_one_bin(totals):
    of = statistics.spread(totals, 10)
    assert sum(of.bins) == len(totals) and of.lowest == min(totals) and of.highest == max(totals)
    assert of.lowest <= of.quartiles[0] <= of.quartiles[1] <= of.quartiles[2] <= of.highest
    assert all(of.bins[min(9, int(total))] for total in totals)


# -- tables ---------------------------------------------------------------------------------------------------------------

def read(text):
    return list(csv.reader(io.StringIO(text)))


def test_the_table_holds_every_student_once():
    told = list(csv.DictReader(io.StringIO(tables.grades(EXERCISES, ROWS))))
    assert [(line["student"], line["one"], line["two"], line["total"], line["of"]) for line in told[:2]] == [
        ("ann", "4", "6", "10", "10"), ("bob", "4", "0", "4", "10")]
    assert [line["student"] for line in told] == [row.student for row in ROWS]


def test_canvas_gets_its_columns_and_points_and_no_grade_for_whom_a_person_has_to_look_at():
    told = read(tables.canvas("rings", EXERCISES, [*ROWS, row("fay", None, 6.0, PERSON, lms="77", name="Fox, Fay")]))
    assert told[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "rings"]
    assert told[1] == ["    Points Possible", "", "", "", "", "10"]
    assert told[2] == ["ann", "", "", "ann", "", "10"] and told[-1] == ["Fox, Fay", "77", "", "fay", "", ""]


def test_moodle_gets_names_grades_and_reasons():
    told = read(tables.moodle("rings", ROWS))
    assert told[0] == ["Username", "Email address", "rings", "rings feedback"]
    assert told[2] == ["bob", "", "4", "two: Wrong: rank 3 returned 7"]


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_cell_is_a_formula(text):
    told = tables.grades(EXERCISES, [row(text, 1.0, 1.0, why={text: [text]})])
    assert not [cell for line in read(told) for cell in line if cell[:1] in "=+-@\t" and cell]


# -- likeness -------------------------------------------------------------------------------------------------------------

GIVEN = {"f": "def f(xs, n):\n    raise NotImplementedError"}
LOOP = """def f(xs, n):
    total, count = 0, 0
    for x in xs:
        if x > n:
            total += x * 2 - 1
            count += 1
    return total / max(count, 1) + n ** 3
"""
RENAMED = """def f(xs, n):
    # all of my own making
    s, k = 0, 0
    for element in xs:

        if element > n:
            s += element * 2 - 1
            k += 1
    return s / max(k, 1) + n ** 3
"""
OTHER = """def f(xs, n):
    large = [x for x in xs if not x <= n]
    if not large:
        return n * n * n
    weights = [2 * x for x in large]
    return (sum(weights) - len(large)) / len(large) + pow(n, 3)
"""
THIRD = """def f(xs, n):
    import numpy as np
    array = np.asarray(xs, dtype=float)
    mask = array > n
    amount = int(mask.sum()) or 1
    doubled = np.where(mask, 2 * array - 1, 0.0)
    return float(doubled.sum()) / amount + float(n) ** 3
"""


def test_renaming_and_layout_hide_nothing():
    found = similar.pairs({"a": {"f": LOOP}, "b": {"f": RENAMED}, "c": {"f": OTHER}, "d": {"f": THIRD}}, GIVEN, {"f": ""})
    assert [(pair.first, pair.second) for pair in found] == [("a", "b")]
    assert found[0].share == 1 and not found[0].word_for_word


def test_a_copy_is_called_one_and_the_reference_is_compared_too():
    found = similar.pairs({"a": {"f": LOOP}, "b": {"f": LOOP}, "c": {"f": OTHER}, "d": {"f": THIRD}}, GIVEN, {"f": OTHER})
    assert {(pair.first, pair.second) for pair in found} == {("a", "b"), ("c", "the reference")}
    assert all(pair.word_for_word for pair in found)


def test_what_all_were_given_and_what_all_have_written_makes_nobody_alike():
    assert similar.pairs(dict.fromkeys("abc", GIVEN), GIVEN, {"f": LOOP}) == []
    assert [pair for pair in similar.pairs({name: {"f": LOOP} for name in "abcdef"}, GIVEN, {"f": ""})
            if not pair.word_for_word] == []


def test_code_that_is_no_python_is_compared_as_far_as_it_goes():
    similar.pairs({"a": {"f": "def f(:\n  '''"}, "b": {"f": LOOP}}, GIVEN, {"f": LOOP})


# -- the page -------------------------------------------------------------------------------------------------------------

def entered(course, student, points, kind=GRADED, why=()):
    """A result as the grader records it."""
    handed_out = HandedOut(course, "tiny")
    notebook = handed_out.filled(handed_out.solutions)
    verdict = Verdict("double", kind, points, list(why))
    with Recorder(course, "tiny") as recorder:
        recorder.record(Result(Outcome(student, kind, "x", [], [verdict], []), nbformat.writes(notebook), "page"))


def test_the_report_holds_what_the_gradebook_holds_and_runs_nothing(tmp_path):
    course = new_course(tmp_path)
    mark = "<img src=x onerror=planted()>"
    entered(course, "ann", {"test-double": 2.0, "hidden-double": 1.0, "test-warn": 3.0, "test-count": 4.0})
    entered(course, mark, {"test-double": 0.0, "hidden-double": 0.0, "test-warn": 3.0, "test-count": 0.0}, why=[mark])
    with course.gradebook() as gradebook:
        gradebook.find_grade("test-double", "tiny", "tiny", "ann").manual_score = 1
        gradebook.db.commit()
    paths = {path.name: path.read_text() for path in class_report.make(course, "tiny")}
    assert set(paths) == {"index.html", "grades.csv", "canvas.csv", "moodle.csv"}
    page = paths["index.html"]
    assert not [word for word in ("<script", "<img", "http:", "https:") if word in page]
    assert "&lt;img src=x onerror=planted()&gt;" in page
    assert "without a sandbox" not in page
    totals = {line["student"]: line["total"] for line in csv.DictReader(io.StringIO(paths["grades.csv"]))}
    assert totals == {"ann": "9", mark: "3"}  # a person gave ann 1 point in place of 2


def test_where_nothing_was_graded_there_is_nothing_to_report(tmp_path):
    with pytest.raises(CourseError, match="nothing of tiny has been graded.*autograder grade tiny"):
        class_report.make(new_course(tmp_path), "tiny")


def test_what_was_graded_without_a_sandbox_says_so(tmp_path):
    course = new_course(tmp_path)
    entered(course, "ann", {"test-double": 2.0})
    path = course.autograded("tiny", "ann")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["outcome"] = {"unsafe": True}
    write(path, nbformat.writes(notebook))
    assert "graded without a sandbox" in next(iter(class_report.make(course, "tiny"))).read_text()
