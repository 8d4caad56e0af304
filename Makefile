# make replicate   train the quick study from nothing and draw its tables and figures   (config/config.yaml)
# make figures     redraw the studies that are committed from their results (config/paper.yaml)
# make report      one HTML file with the verdicts, every table and every figure (report/<study>.html), and a page for every
#                  run, from results that are there; CONFIG=config/config.yaml for the quick study (make replicate leaves its)
# make test        the quick tests; make test SLOW=1 runs all of them
# make bench       side by side with Stable-Baselines3; prints the ratios
# make faults      runs killed, files damaged, disks full: hundreds of times; prints what went wrong
# make mutants     small faults, one at a time, in what computes: which of them do the tests notice? (half an hour; SAMPLE=200)
# make resume      go on after snakemake itself was killed; make resume-slurm: the same on Slurm (docs/clusters.md)
# make lint      ruff, snakefmt, mypy, schemas of .github, Dockerfile; make docs: the documentation as a site, in site/
# make regenerate  golden runs, schemas, config/README.md and generated blocks anew
# make rlhf        detoxify a small language model with PPO and IIF, draw figures 7 and 16 (docs/rlhf.md; STUDY=rlhf_fast);
#                  make test-rlhf, make bench-rlhf: its tests and its times. In an environment of its own, .venv-rlhf
# make clean-venv  remove the virtual environment

ifneq ($(words $(CURDIR)),1)
$(error the path of this folder has a space, with which Snakemake starts no job: $(CURDIR); move the folder)
endif

# Snakemake and matplotlib keep caches below HOME, which not every machine lets one write.
ifeq ($(shell test -w "$$HOME" && echo writable),)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
endif

PYTHON ?= python3
CORES  ?= all
CONFIG ?= config/config.yaml
STUDIES := paper confirm
BIN    := .venv/bin
READY  := .venv/ready
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
export PYTHONHASHSEED := 0

.PHONY: replicate figures report test bench faults mutants resume resume-slurm lint docs regenerate clean-venv
.DELETE_ON_ERROR:

replicate: $(READY)
	$(SNAKEMAKE) --configfile $(CONFIG)

figures: $(STUDIES:%=figures-%)

figures-%: $(READY)
	$(SNAKEMAKE) --snakefile workflow/figures.smk --configfile config/$*.yaml --forceall

report: CONFIG = config/paper.yaml
report: $(READY)
	$(SNAKEMAKE) html_report --snakefile workflow/figures.smk --configfile $(CONFIG)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(if $(SLOW),,-m "not slow") $(TESTS)

bench: $(READY)
	$(BIN)/python -m benchmarks

faults: $(READY)
	$(BIN)/python -m benchmarks.faults

mutants: $(READY)
	$(BIN)/python -m benchmarks.mutants --number $(or $(SAMPLE),200)

resume: $(READY)
	$(BIN)/rl-influence resume --cores $(CORES) --configfile $(CONFIG)

resume-slurm: $(READY)
	$(BIN)/rl-influence resume --profile workflow/profiles/slurm --configfile $(CONFIG)

lint: .venv-dev/ready
	.venv-dev/bin/ruff check .
	.venv-dev/bin/ruff format --check .
	.venv-dev/bin/snakefmt --check --line-length 120 workflow
	.venv-dev/bin/mypy --python-executable $(BIN)/python
	.venv-dev/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv-dev/bin/hadolint Dockerfile

docs: .venv-dev/ready
	NO_MKDOCS_2_WARNING=1 .venv-dev/bin/mkdocs build --quiet

regenerate: $(READY)
	$(BIN)/python -m rl_influence.publish.schemas
	$(BIN)/python tests/unit/test_golden.py
	$(BIN)/python -m rl_influence.publish.readme

clean-venv:
	rm -rf .venv

# The stamp is written last: an interrupted installation starts anew.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; choose another with make PYTHON=...")'
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.venv-dev/ready: $(READY) requirements-dev.lock
	rm -rf .venv-dev
	$(PYTHON) -m venv .venv-dev
	.venv-dev/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.lock
	touch $@

# Language models
RLHF  := .venv-rlhf/bin/python
STUDY ?= rlhf_fast
.PHONY: rlhf test-rlhf bench-rlhf

rlhf: $(READY) .venv-rlhf/ready
	$(SNAKEMAKE) $(STUDY)

test-rlhf: .venv-rlhf/ready
	$(RLHF) -m pytest tests/rlhf $(TESTS)

bench-rlhf: .venv-rlhf/ready
	$(RLHF) -m benchmarks.rlhf

.venv-rlhf/ready: requirements-rlhf.lock pyproject.toml
	rm -rf .venv-rlhf
	$(PYTHON) -m venv .venv-rlhf
	.venv-rlhf/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-rlhf.lock
	.venv-rlhf/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@
