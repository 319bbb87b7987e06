"""What the test cells of the labs call: `from mlsyslab.check import LAB as check`, then `check.NAME(NAME)`.

A check calls the student's function on many inputs, compares what it gives back with what it should give back, and reads
the trace: who sent how much to whom, in how many rounds. It prints a line when all is right, and raises `Wrong` otherwise,
with a message that says what was expected, what came, on which rank, for which world size and input, and, where it can be
told, which mistake that looks like.

- `check.NAME(NAME, hidden=True)` draws the inputs from the seed in the environment variable MLSYSLAB_SEED.
- `check.NAME.show(NAME, p=4)` draws one run of the student's function on p ranks.

Each lab has a module here, whose checks derive from `Exercise` (of a function that every rank runs) or `Formula` (of a
function of plain data, called by itself): cases to try, a judge of what comes, and diagnoses of the mistakes that people
make.
"""

from mlsyslab.check.exercise import Case, Check, Exercise, Formula
from mlsyslab.check.messages import Wrong

__all__ = ["Case", "Check", "Exercise", "Formula", "Wrong"]
