SHELL = /bin/bash

.PHONY: dev test lint format types proto sim cluster compat bench check quickstart

dev:            ## .venv with everything that developers need
	. scripts/environment.sh && make_environment .venv && install_when_changed .venv -e '.[test,speed,postgresql,dev]'

test:           ## unit and property tests
	scripts/test -m 'not slow'

lint:           ## style, format, layout
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/python -m pytest -q tests/test_layout.py

format:
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

types:
	.venv/bin/mypy

proto:          ## tube/pb from proto
	.venv/bin/python scripts/gen_proto.py

sim:            ## simulations
	scripts/test tests/sim

cluster:        ## real processes
	scripts/test tests/cli

compat:         ## other people's clients against us, ours against their servers; renews docs/compatibility.md
	scripts/compat --write

bench:          ## one JSON result per program, in bench/results
	mkdir -p bench/results
	for name in start rebalance broker; do .venv/bin/python -m bench.$$name > bench/results/$$name.json || exit 1; done
	.venv/bin/python bench/log_commit.py > bench/results/log_commit.json

quickstart:
	scripts/quickstart

check:          ## all that CI runs
	.ci/run
