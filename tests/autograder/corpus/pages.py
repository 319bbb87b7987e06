# ruff: noqa  (the bodies are cells of a notebook, as people write them)
"""Pages that would do something in the browser of whoever reads the feedback: `planted()` must never be called."""

import nbformat

from .case import attack, attack_on_cells, cell

SCRIPT = "<script>planted()</script><img src=x onerror=planted()><iframe srcdoc='<script>planted()</script>'></iframe>"


@attack()
def a_script_displayed():
    from IPython.display import HTML, display
    display(HTML("<script>planted()</script><img src=x onerror='planted()'><svg onload=planted()></svg>"))
    display(HTML("<a href='javascript:planted()'>grades</a><form action='javascript:planted()'><button>go</button></form>"))
    display(HTML("<style>body { display: none }</style><base href='http://192.0.2.1/'><meta http-equiv=refresh content='0;/'>"))


@attack()
def a_script_in_other_kinds_of_output():
    from IPython.display import SVG, Javascript, Latex, Markdown, display
    display(SVG("<svg xmlns='http://www.w3.org/2000/svg' onload='planted()'><script>planted()</script></svg>"))
    display(Javascript("planted()"))
    display(Markdown("<script>planted()</script>\n\n[x](javascript:planted()) <img src=x onerror=planted()>"))
    display(Latex(r"$\href{javascript:planted()}{x}$ <script>planted()</script>"))
    display({"application/javascript": "planted()", "text/html": "<b onclick=planted()>b</b>",
             "application/vnd.jupyter.widget-view+json": "{}"}, raw=True)


@attack()
def a_script_printed():
    print("</pre><script>planted()</script>")
    print("\x1b[31m<img src=x onerror=planted()>\x1b[0m")


@attack(at="scaled")
def a_script_in_an_error():
    def scaled(tensor, factor):
        raise ValueError("</pre><script>planted()</script><img src=x onerror=planted()>")


@attack(at="scaled")
def a_script_in_the_code():
    # </pre></div><script>planted()</script>
    text = "</script><script>planted()</script>"
    def scaled(tensor, factor):
        return text


@attack(at="scaled")
def a_script_as_the_name_of_a_class():
    Odd = type("<script>planted()</script>", (Exception,), {})
    def scaled(tensor, factor):
        raise Odd("<script>planted()</script>")


@attack_on_cells()
def a_script_in_a_text_cell(notebook):
    notebook.cells.append(nbformat.v4.new_markdown_cell(SCRIPT + "\n\n[x](javascript:planted())", id="text"))
    notebook.cells.append(nbformat.v4.new_raw_cell(SCRIPT, id="raw"))
    cell(notebook, "imports").source += f"\n# {SCRIPT}"


@attack_on_cells()
def a_script_in_an_attachment(notebook):
    extra = nbformat.v4.new_markdown_cell("![a](attachment:a.svg)", id="attached")
    extra["attachments"] = {"a.svg": {"image/svg+xml": "<svg onload='planted()'/>", "text/html": SCRIPT}}
    notebook.cells.append(extra)


@attack_on_cells()
def a_script_in_the_metadata(notebook):
    notebook.metadata["title"] = SCRIPT
    notebook.metadata["kernelspec"] = {"name": SCRIPT, "display_name": SCRIPT, "language": SCRIPT}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}, "x": SCRIPT}}
    for part in notebook.cells:
        part.metadata["tags"] = [SCRIPT]
