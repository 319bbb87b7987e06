"""Speed, measured against named peers: `python -m mlsyslab.bench`.

A bench is a module here with a function `rows()` that yields dicts, a row of its table each; its docstring says what is
measured. Peers are timed in turns within one run, so that both meet the same machine; what counts is the ratio.
"""
