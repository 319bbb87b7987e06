"""labs/ is what the sources make, and gives nothing away."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest

from autograder import labs
from autograder.course import Course
from autograder.sources import to_notebook

ROOT = Path(__file__).parents[2]
LABS = sorted(path.stem for path in (ROOT / "solutions").glob("*.py"))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Course:
    """A course with the sources of this one, and nothing made yet."""
    root = tmp_path_factory.mktemp("course")
    (root / "solutions").mkdir()
    for lab in LABS:
        shutil.copy(ROOT / "solutions" / f"{lab}.py", root / "solutions")
    return Course.at(root)


def test_there_is_a_lab_for_every_source_and_no_other():
    assert LABS
    assert sorted(str(path.relative_to(ROOT / "labs")) for path in (ROOT / "labs").rglob("*.ipynb")
                  if ".ipynb_checkpoints" not in path.parts) == [f"{lab}/{lab}.ipynb" for lab in LABS]


@pytest.mark.parametrize("lab", LABS)
def test_a_released_lab_is_what_its_source_makes(fresh, lab):
    same = (ROOT / "labs" / lab / f"{lab}.ipynb").read_text(encoding="utf-8") == labs.released(fresh, lab)
    assert same, f"labs/{lab} is not what solutions/{lab}.py makes; run `make labs` and commit what it makes"


@pytest.mark.parametrize("lab", LABS)
def test_no_released_lab_holds_a_solution_or_a_hidden_test(lab):
    """No line that stands in a solution or a hidden test, and nowhere else in the source, is in the released lab."""
    secret, shown = split(to_notebook(ROOT / "solutions" / f"{lab}.py"))
    assert secret
    released = nbformat.read(ROOT / "labs" / lab / f"{lab}.ipynb", as_version=4)
    text = [line.strip() for cell in released.cells for line in cell.source.splitlines()]
    assert not (secret - shown) & set(text)
    assert not [line for line in text if re.search("(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)", line)]


@pytest.mark.parametrize("lab", LABS)
def test_a_released_lab_has_no_outputs_and_names_its_cells(lab):
    released = nbformat.read(ROOT / "labs" / lab / f"{lab}.ipynb", as_version=4)
    for cell in released.cells:
        assert not cell.get("outputs")
        if "nbgrader" in cell.metadata:
            assert cell.id == cell.metadata.nbgrader.grade_id


def split(source) -> tuple[set[str], set[str]]:
    """The lines of solutions and hidden tests, and all the others."""
    secret, shown = set(), set()
    for cell in source.cells:
        hidden = False
        for line in map(str.strip, cell.source.splitlines()):
            if "### BEGIN" in line or "### END" in line:
                hidden = "### BEGIN" in line
            elif line:
                (secret if hidden else shown).add(line)
    return secret, shown
