"""What those who teach the course run: labs made from their sources, submissions graded, grades recorded.

    python -m autograder labs                    labs/ from solutions/
    python -m autograder samples LAB DIR         five submissions to try the grading with
    python -m autograder grade LAB               grade the submissions of a lab

A submission passes through one file after another: `read`, `sanitise`, `run` (in the `sandbox`), `score`, `record`,
`report`.
"""
