"""A lab that asks for a GPU: whose device files come into the sandbox, one job a GPU. Other device files stand for them."""

import os
from pathlib import Path

import pytest

from autograder import gpus, read, sandbox, workers
from autograder.errors import CourseError
from autograder.gpus import Gpu
from autograder.judge.lab import Lab
from autograder.limits import Limits
from autograder.samples import HandedOut
from autograder.sandbox import Library
from autograder.sources import make_notebook
from autograder.work import Grader, Job

HEAD = "# ---\n# jupyter:\n#   mlsyslab:\n#     gpu: true\n# ---\n\n"
HARMLESS = [path for path in ("/dev/fuse", "/dev/net/tun") if os.access(path, os.R_OK | os.W_OK)]  # in no sandbox by itself

needs_sandbox = pytest.mark.skipif(sandbox.missing() is not None, reason=str(sandbox.missing()))


@pytest.fixture
def course(course):
    source = course.source("tiny")
    source.write_text(HEAD + source.read_text())
    return course


def hand_in(course, student: str, code: str) -> None:
    """A submission whose `double` is `code`."""
    HandedOut(course, "tiny").hand_in(student, {"double": f"def double(x):\n    import os\n    {code}"})


def test_the_head_of_the_source_says_that_a_lab_needs_one(course):
    assert Lab.read("tiny", make_notebook(course, "tiny")).gpu
    course.source("tiny").write_text(course.source("tiny").read_text().removeprefix(HEAD))
    assert not Lab.read("tiny", make_notebook(course, "tiny")).gpu


@pytest.fixture
def dev(tmp_path) -> Path:
    """Twelve GPUs, of which the third can't be opened."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in (*map(str, range(12)), "ctl", "-uvm", "-caps"):
        (folder / f"nvidia{name}").symlink_to("/dev/null" if name != "2" else "/dev/nothing")
    return folder


@pytest.mark.parametrize("visible, expected", [
    (None, [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]), ("0", [0]), ("2,10", [3, 11]), ("", []),
])
def test_the_gpus_are_those_that_open_and_that_are_visible(dev, monkeypatch, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    shared = (f"{dev}/nvidiactl", f"{dev}/nvidia-uvm")
    assert [gpu.files for gpu in gpus.found(dev)] == [(f"{dev}/nvidia{number}", *shared) for number in expected]


@pytest.mark.parametrize("visible", ["11", "GPU-8932f937", "-1"])
def test_gpus_that_are_not_there_are_an_error(dev, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(CourseError, match=f"CUDA_VISIBLE_DEVICES is {visible!r}; it must hold numbers below 11"):
        gpus.found(dev)


def test_the_call_of_the_sandbox_passes_the_files_in():
    call = " ".join(sandbox.command(["true"], {}, Limits(), Library(), devices=("/dev/nvidia1", "/dev/nvidiactl")))
    assert "--dev-bind /dev/nvidia1 /dev/nvidia1 --dev-bind /dev/nvidiactl /dev/nvidiactl --ro-bind /sys /sys" in call
    assert call.index("--dev /dev") < call.index("--dev-bind") < call.index("--remount-ro /dev")
    assert "--dev-bind" not in sandbox.command(["true"], {}, Limits(), Library())


@needs_sandbox
@pytest.mark.skipif(not HARMLESS, reason="there is neither /dev/fuse nor /dev/net/tun")
def test_a_submission_can_use_the_device_and_sees_one_gpu(course):
    device = HARMLESS[0]
    hand_in(course, "ada", f"os.close(os.open({device!r}, os.O_RDWR)); assert os.environ['CUDA_VISIBLE_DEVICES'] == '0'; "
                           "return 2 * x if os.listdir('/sys/class') and os.path.exists('/proc/self/maps') else 0")
    (submission,) = read.find(course.submitted, "tiny")
    with Grader(Job(course, "tiny", Limits(), "seed"), Gpu(3, (device,))) as grader:
        outcome = grader.grade(submission).outcome
    assert [outcome.points[name] for name in ("test-double", "hidden-double")] == [2, 1], outcome


@needs_sandbox
def test_there_is_one_worker_for_each_gpu(course, monkeypatch):
    """Outside of a sandbox a worker's GPU is told by its number alone."""
    for number in range(4):
        hand_in(course, f"student-{number}", "raise RuntimeError('number ' + os.environ['CUDA_VISIBLE_DEVICES'])")
    monkeypatch.setattr(workers, "some", lambda lab: [Gpu(5, ()), Gpu(7, ())])
    job = Job(course, "tiny", Limits(), "seed", unsafe=True)
    with workers.Crew(job, 8) as crew:
        results = list(crew.graded(read.find(course.submitted, "tiny")))
    seen = {why for result in results for why in result.outcome.verdicts[0].why}
    assert seen == {"RuntimeError: number 5", "RuntimeError: number 7"}


@pytest.mark.skipif(bool(gpus.found()), reason="this machine has a GPU")
def test_where_there_is_none_the_lab_is_not_graded(course):
    hand_in(course, "ada", "return 2 * x")
    with pytest.raises(CourseError, match="tiny asks for a GPU, and this machine has none"):
        workers.Crew(Job(course, "tiny", Limits(), "seed"), 2)
