"""Judging, in a process in which no student's code ever runs.

`lab` reads what a lab asks for, `session` runs a student's cells in the sandbox and keeps it alive, `pipe` speaks with it,
`stub` stands for a student's function and does what its ranks ask for, `tests` runs the test cells, and `submission` goes
through a notebook from top to bottom.
"""
