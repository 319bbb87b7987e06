# One line of help stands behind each target; `make help` prints them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LAB    ?= collectives
PORT   ?= 8000
export PYTHONUNBUFFERED = 1

.DEFAULT_GOAL := help
.PHONY: help course test sweep book serve labs notebook grade report release bench doctor lint clean system

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-9s %s\n", $$1, $$2}'

course: labs book grade  ## everything: environment, labs, book, grades of the sample submissions
	@echo
	@echo "The book is built:  _build/html/index.html"
	@echo "Open it with:       make serve      (then http://localhost:$(PORT))"
	@echo "Do a lab with:      make notebook"

test: $(VENV)/ready system book  ## run every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

sweep: $(VENV)/ready system  ## the slow tests: classes of 300 with 30 kills, the whole corpus on Dask, stock nbgrader on every lab
	SWEEP=1 $(BIN)/python -m pytest --timeout 7200 tests/autograder/test_kills.py tests/autograder/test_cluster.py \
	  tests/autograder/test_stock.py tests/autograder/test_known_wrong.py

book: $(VENV)/ready  ## build the book into _build/html
	$(BIN)/python book/build.py

serve: book  ## show the book at http://localhost:8000 (PORT=…)
	@echo "http://localhost:$(PORT)   (Ctrl-C ends it)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

labs: $(VENV)/ready  ## make labs/ from solutions/
	$(BIN)/python -m autograder labs

notebook: labs  ## open JupyterLab on the labs
	$(BIN)/jupyter lab --notebook-dir labs

grade: $(VENV)/ready system  ## grade a lab: LAB=collectives SUBMISSIONS=folder (by default the sample submissions)
ifdef SUBMISSIONS
	$(BIN)/python -m autograder grade $(LAB) --submissions $(SUBMISSIONS)
else
	$(BIN)/python -m autograder samples $(LAB) grades/samples/submitted
	$(BIN)/python -m autograder grade $(LAB) --grades grades/samples --cell-seconds 20
endif

report: $(VENV)/ready  ## the class on a page, and grades as CSV: LAB=collectives
	$(BIN)/python -m autograder report $(LAB)

release: labs  ## the students' archive: labs, library, requirements, how to start (_build/mlsyslab.zip)
	$(BIN)/python -m autograder release

bench: $(VENV)/ready  ## measure speed against named peers: table and JSON in _build/bench
	$(BIN)/python -m mlsyslab.bench

doctor: $(VENV)/ready  ## check this machine, with a remedy for each thing that is missing
	$(BIN)/python -m mlsyslab.doctor

lint: $(VENV)/ready  ## check the style of the code
	$(BIN)/ruff check .

clean:  ## remove everything that was made, the environment too
	rm -rf $(VENV) _build grades

$(VENV)/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, this is $$($(PYTHON) --version). Name another: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/pip install --disable-pip-version-check --requirement requirements.txt --editable .
	@touch $@

# The sandbox of the autograder, and the browser and PostgreSQL of the tests, come from the system. They are installed where that is allowed;
# where it isn't, a line says what goes without them.
system:
	@sh .ci/system bwrap bubblewrap "grading runs only with --unsafe-no-sandbox, and the tests of the sandbox are left out"
	@sh .ci/system chromium chromium "the tests in a browser are left out"
	@sh .ci/system pg_ctlcluster postgresql "the tests of a gradebook in PostgreSQL are left out"
