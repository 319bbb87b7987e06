"""What nbgrader is told of this course; see autograder/course.py.

Loaded by every nbgrader command and by the formgrader, so this is also the moment to make the notebooks that they look for
in solutions/ from the sources there.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from autograder.course import Course  # noqa: E402
from autograder.sources import make_notebooks  # noqa: E402

course = Course.at(ROOT)
make_notebooks(course)
get_config().merge(course.config())  # noqa: F821  traitlets gives a configuration file this function
