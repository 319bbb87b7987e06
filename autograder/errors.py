"""What goes wrong with the course itself, as opposed to with one submission."""


class CourseError(Exception):
    """The command cannot go on; the message says what was found, and what to do."""


class NeedsPerson(Exception):
    """This submission cannot be graded by a program; the message says why."""
