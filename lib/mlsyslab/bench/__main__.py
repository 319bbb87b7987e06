"""Run benches, print a table of each and write what was measured to JSON files."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from mlsyslab.bench.report import print_table, write_json

#: name on the command line: module
BENCHES = {
    "launch": "mlsyslab.bench.launch",
    "all_reduce": "mlsyslab.bench.all_reduce",
    "simulate": "mlsyslab.bench.simulate",
    "pipeline": "mlsyslab.bench.pipeline",
    "schedules": "mlsyslab.bench.schedules",
    "data_parallel": "mlsyslab.bench.data_parallel",
    "zero": "mlsyslab.bench.zero",
    "mfu": "mlsyslab.bench.mfu",
    "autograder": "autograder.bench",  # in a checkout of the course only
}


def main() -> None:
    modules = {name: importlib.import_module(module) for name, module in BENCHES.items()
               if importlib.util.find_spec(module.partition(".")[0])}
    width = max(map(len, modules))
    listing = "\n".join(f"  {name:{width}}  {module.__doc__.splitlines()[0]}" for name, module in modules.items())
    parser = argparse.ArgumentParser(prog="python -m mlsyslab.bench", description=__doc__, epilog=f"benches:\n{listing}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; all when none is named")
    parser.add_argument("--out", type=Path, default=Path("_build/bench"), metavar="FOLDER", help="where the JSON files go")
    parser.add_argument("--list", action="store_true", help="list the benches and end")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in modules]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(modules)}")
    if options.list:
        print(listing)
        return
    for name in options.names or modules:
        rows = []
        for row in modules[name].rows():
            rows.append(row)
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        print_table(modules[name].__doc__.splitlines()[0], rows)
        print(f"written to {write_json(options.out / f'{name}.json', name, rows)}\n")


if __name__ == "__main__":
    main()
