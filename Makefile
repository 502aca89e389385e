# The two commands: `make reproduce_all` rebuilds every table and figure, `make test` runs the tests.
# VENV says where the core environment lives; PYTHON, which interpreter makes it (3.11 or newer); WORK, where a checkout
# that cannot be written to is cloned before anything runs.
VENV ?= .venv
PYTHON ?= python3
WORK ?= $(HOME)/.cache/fewbits/work
RUN = PATH="$$(cd "$(VENV)/bin" && pwd):$$PATH"

.PHONY: reproduce_all exhibits cpu setup dev test check smoke schemas locks clean

ifeq ($(shell test -w . && echo yes),yes)

reproduce_all: setup
	@$(RUN) snakemake reproduce_all --keep-going --logger rich
	@$(RUN) python -m analysis.documents --summary

# The same without training anything: tables and figures alone.
exhibits: setup
	@$(RUN) snakemake exhibits --logger rich
	@$(RUN) python -m analysis.documents --summary

# Real NeMo and MaxText on CPU, held against the published runs, golden files, a killed run that resumes, a reference codec.
cpu: dev
	@$(RUN) snakemake rerun_agreement --logger rich
	@$(RUN) python -m pytest -m slow tests/recipes/test_nemo.py tests/recipes/test_nemo_training.py tests/recipes/test_maxtext.py \
	    tests/recipes/test_maxtext_cluster.py

setup: $(VENV)/core.done

dev: $(VENV)/dev.done

# Written last: a half-built environment is built again.
$(VENV)/core.done: envs/core/requirements.lock envs/install.sh
	@sh envs/install.sh "$(PYTHON)" "$(VENV)" envs/core/requirements.lock
	@touch "$@"

$(VENV)/dev.done: $(VENV)/core.done envs/dev/requirements.lock
	@sh envs/install.sh "$(PYTHON)" "$(VENV)" envs/dev/requirements.lock
	@touch "$@"

test: dev
	@$(RUN) python -m pytest -n auto

# What must hold besides the tests: style, types, workflow lint, and everything generated in step with its source.
check: dev
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) snakefmt --check .
	@$(RUN) hadolint containers/*/Containerfile
	@$(RUN) python -m recipes.schemas --check
	@$(RUN) python -m analysis.documents --check
	@$(RUN) dvc pull -q
	@$(RUN) dvc status -q

smoke: setup
	@$(RUN) snakemake smoke --workflow-profile profiles/gpu --logger rich

schemas: setup
	@$(RUN) python -m recipes.schemas

locks: setup
	@$(RUN) bash envs/lock.sh

clean:
	rm -rf build .snakemake

else

reproduce_all exhibits cpu test check smoke:
	@echo "this checkout cannot be written to; working in a clone: $(WORK)" >&2
	@test -d "$(WORK)/.git" || git -c safe.directory='*' clone -q "$(CURDIR)" "$(WORK)"
	@git -c safe.directory='*' -C "$(WORK)" pull -q --ff-only
	@$(MAKE) -C "$(WORK)" $@

endif
