# What people run. `make demo` sets everything up and shows the gateway at work; `make test` runs the tests.
.PHONY: demo test check check-chart check-compose check-image cluster-test image bench tools

SHELL := bash

demo:
	deploy/demo/demo.sh

# programs that the tests drive: official clients and servers, from npm and PyPI
tools:
	tests/it/setup.sh

test: tools
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run; else cargo test; fi

# what CI runs before the tests
check:
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --no-deps --document-private-items --quiet
	shellcheck -x deploy/*.sh deploy/*/*.sh tests/*.sh tests/*/*.sh tests/it/support/*.sh tests/cluster/node/*.sh .ci/run

# the Helm chart, over several sets of values (tests/helm/check.sh --update rewrites its snapshots)
check-chart:
	tests/helm/check.sh

# the container image, without a registry
image:
	deploy/image.sh

# the image, run without rights against a real Postgres
check-image:
	tests/image/check.sh

# a real Kubernetes, and the gateway on it while everything around is changed and killed; root, Debian 12; not in CI
cluster-test:
	tests/cluster/run.sh

bench:
	tests/bench/run.sh

# compose.yaml and what it mounts
check-compose:
	tests/compose/check.sh
