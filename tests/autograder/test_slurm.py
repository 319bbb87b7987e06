"""The recipes for Slurm are shell scripts without errors of syntax, and name nothing that isn't there."""

import re
import subprocess

import pytest
from tiny_course import ROOT

from autograder.__main__ import parser

RECIPES = sorted((ROOT / "autograder" / "slurm").glob("*.sh"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_is_a_shell_script_whose_grading_command_exists(path):
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text().replace("\\\n", " ")
    (arguments,) = re.findall(r'^exec .* -m autograder (.*)$', text, re.MULTILINE)
    numbered = re.sub(r'"\$SLURM_CPUS_ON_NODE"', "8", arguments)
    assert parser().parse_args(numbered.replace('"', "").split()).command == "grade"
    assert re.search(rf"sbatch (.* )?autograder/slurm/{path.name}", text)
