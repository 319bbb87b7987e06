"""What those who teach the course run: labs made from their sources, submissions graded, grades recorded.

    python -m autograder labs                    labs/ from solutions/
    python -m autograder samples LAB DIR         five submissions to try the grading with
    python -m autograder grade LAB               grade the submissions of a lab
    python -m autograder report LAB              the class on a page, and grades as CSV
    python -m autograder release                 the students' archive

How a submission is graded, and which file does it:

    read       find it, and take it as data that anybody may have written
    rebuild    the lab's own cells, with the student's code in its places
    judge/     its cells run in the sandbox, the lab's test cells here, where functions are stubs
    sandbox    bubblewrap around a warm process, which forks a child a submission
    inside/    what runs in there; it knows no answer
    pages      the graded notebook and the feedback
    record     into nbgrader's gradebook and folders, by one writer

What a check reads off a run it reads here: ranks run in the sandbox, and each of their steps is done again in the judge's
own simulated world, where messages are matched, counted and timed. What can only be seen where the code runs (the memory of
its tensors, the number of its matrix products) is measured in the sandbox, beside the code, and is believed.

`work.Grader(job).grade(submission)` is all of that but the last, for one submission; a `Job` is plain data.
A `workers.Crew` does it in several processes, and `grade.grade` for a folder. Every submission ends in one
`outcome.Outcome`, with one `Verdict` for each exercise: graded, limited, or needs a person. Of a class, `class_report`
gathers the outcomes, `statistics` and `similar` say what they mean, `class_page` and `tables` show it.
"""

import sys

# jsonschema, which nbformat loads, would compile a grammar of internationalized addresses: two seconds of every start, for a
# check that the schema of notebooks doesn't ask for.
sys.modules.setdefault("rfc3987_syntax", None)
