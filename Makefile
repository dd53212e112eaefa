# Every target does its own set-up: python3 (>= 3.11, with venv), git, make and a package index are enough.
.DEFAULT_GOAL := help
.PHONY: help demo chat test chaos bench lock clean

VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 14

# The stamps make a second run install nothing; a changed lock file installs again.
$(VENV)/.product: requirements.lock
	@test -x $(PY) || python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; python3 is $$(python3 --version 2>&1)."; exit 1; }
	@test -x $(PY) || python3 -m venv $(VENV) \
		|| { echo "python3 has no venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing the locked dependencies into $(VENV) ..."
	@$(PIP_INSTALL) -r requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.product
	@echo "Installing the locked test tools into $(VENV) ..."
	@$(PIP_INSTALL) -r requirements-dev.lock
	@touch $@

demo: $(VENV)/.product ## the local playground: no account, no key (options: ARGS="--port 9000 --no-open")
	@$(PY) -m bots demo $(ARGS)

chat: $(VENV)/.product ## talk to the agent in the terminal (without a key: ARGS="--model scripted")
	@$(PY) -m harness chat $(ARGS)

test: $(VENV)/.dev ## format, lint, types, import rules and the whole test suite
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(VENV)/bin/pyright
	@$(VENV)/bin/lint-imports
	@$(PY) -m pytest -n 4 --dist worksteal $(ARGS)

chaos: $(VENV)/.dev ## long crash seeds: many more kills and examples, some ten minutes
	@$(PY) -m pytest -n 2 --chaos tests/e2e/test_survival_kills.py tests/recovery tests/stores tests/features $(ARGS)

bench: $(VENV)/.dev ## the figures of ARCHITECTURE.md, as ratios in one run, JSON on standard output
	@$(PY) -m tests.bench $(ARGS)

lock: $(VENV)/.dev ## write both lock files anew from pyproject.toml
	$(VENV)/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 \
		--custom-compile-command "make lock" pyproject.toml -o requirements.lock
	$(VENV)/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 --all-extras \
		--custom-compile-command "make lock" -c requirements.lock pyproject.toml -o requirements-dev.lock

clean: ## remove the environment and local data
	rm -rf $(VENV) .data
