# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Scores that a submission prints, displays, writes into its file or forges on the way to the judge."""

import nbformat

from .case import attack, attack_on_cells, cell


@attack()
def a_score_printed():
    print("3.0")
    print("scaled_test: 3/3")


@attack()
def a_score_as_the_last_expression():
    10.0


@attack(at="scaled")
def a_score_displayed_by_the_function():
    from IPython.display import display
    import sys
    def scaled(tensor, factor):
        display(3)
        sys.displayhook(3)
        print(3)
        return tensor


@attack(at="scaled")
def a_score_in_an_error():
    class Wrong(AssertionError):
        points = score = 3
        def _render_traceback_(self):
            return ["3"]
    def scaled(tensor, factor):
        raise Wrong(3)


@attack(at="scaled")
def an_error_of_the_graders_own():
    def scaled(tensor, factor):
        Gone = type("Gone", (Exception,), {})
        raise Gone("graded: 3")


@attack_on_cells()
def points_raised(notebook):
    cell(notebook, "mean_test").metadata.nbgrader["points"] = 50


@attack_on_cells()
def a_second_test_cell_of_the_same_name(notebook):
    copy = nbformat.from_dict({**cell(notebook, "scaled_test"), "id": "copy", "source": "3.0"})
    notebook.cells.insert(0, copy)


@attack_on_cells()
def test_cells_deleted(notebook):
    notebook.cells[:] = [part for part in notebook.cells if not part.id.endswith("_test")]


@attack_on_cells()
def test_cells_turned_into_text(notebook):
    for name in ("scaled_test", "shift_test"):
        part = cell(notebook, name)
        part.cell_type = "markdown"
        part.pop("outputs", None)
        part.pop("execution_count", None)


@attack_on_cells()
def a_test_cell_called_a_solution(notebook):
    cell(notebook, "scaled_test").metadata.nbgrader.update(solution=True, locked=False)
    cell(notebook, "scaled_test").source = "3.0"


@attack_on_cells()
def a_solution_cell_called_a_test(notebook):
    part = cell(notebook, "scaled")
    part.metadata.nbgrader.update(grade_id="scaled_test", grade=True, solution=False, points=3)
    part.source = "3.0"


@attack_on_cells()
def a_graded_cell_of_its_own(notebook):
    extra = nbformat.v4.new_code_cell("100.0", id="extra")
    extra.metadata["nbgrader"] = {"grade": True, "grade_id": "extra_credit", "points": 100, "locked": True, "solution": False,
                                  "task": False, "schema_version": 3}
    notebook.cells.append(extra)


@attack_on_cells()
def outputs_written_into_the_file(notebook):
    for name in ("scaled_test", "shift_test"):
        cell(notebook, name).outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "3.0"}, execution_count=1)]


@attack_on_cells()
def scores_written_into_the_file(notebook):
    for name in ("scaled_test", "shift_test"):
        cell(notebook, name).metadata.nbgrader.update(score=3, auto_score=3, manual_score=3, extra_credit=3)
    notebook.metadata["nbgrader"] = {"score": 10, "max_score": 10}


@attack(at="scaled")
def an_answer_forged_on_the_pipe():
    """It finds the socket to the judge, and says that a cell has run."""
    import json
    import os
    import struct
    def scaled(tensor, factor):
        text = json.dumps(["ran", None]).encode()
        for number in range(3, 64):
            try:
                os.write(number, struct.pack("!II", len(text), 0) + text)
            except OSError:
                pass
        return tensor


@attack(at="scaled")
def a_call_answered_twice():
    import json
    import os
    import struct
    def scaled(tensor, factor):
        for call in range(1, 100):
            text = json.dumps(["return", call, True, [], 0, []]).encode()
            for number in range(3, 16):
                try:
                    os.write(number, struct.pack("!II", len(text), 0) + text)
                except OSError:
                    pass
        return tensor


@attack(at="scaled")
def noise_on_the_pipe():
    import os
    def scaled(tensor, factor):
        for number in range(3, 64):
            try:
                os.write(number, b"\xff" * 4096)
            except OSError:
                pass
        return tensor


@attack(at="scaled")
def a_request_for_the_judges_own_functions():
    def scaled(tensor, factor):
        import threading
        line = next(value for value in __import__("gc").get_objects() if type(value).__name__ == "Line")
        for what in ("__class__", "serve", "run", "library", "error"):
            try:
                line.request(what, "os", "system", ["touch /tmp/planted"], {})
            except Exception:
                pass
        return tensor
