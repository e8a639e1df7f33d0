# What people run. `make demo` sets everything up and shows the gateway at work; `make test` runs the tests.
# Each target installs what it needs as root on Debian, and names it elsewhere (deploy/needs.sh).
.PHONY: help install demo test bare-test upgrade-test agents-test pictures check check-budget check-chart check-compose check-image check-release check-supply fuzz sbom cluster-test image bench tools

SHELL := bash

# lists the targets, each with the comment above it
help:
	@awk '/^# / { about = about " " substr($$0, 3) } \
	  /^[a-z-]+:/ { sub(":.*", ""); printf "make %-14s%s\n", $$0, about } \
	  !/^#/ { about = "" }' Makefile

# builds and starts the gateway with servers behind it, and prints commands to try (deploy/demo/demo.sh)
demo:
	deploy/demo/demo.sh

PREFIX ?= /usr/local
PROFILE ?= release
# the program, its manual pages and completions, in PREFIX (/usr/local) below DESTDIR; PROFILE is that of cargo
install:
	@case '$(PREFIX)' in '~'*) echo 'make: PREFIX=$(PREFIX) has a ~ that no shell has replaced: make install PREFIX="$$HOME/.local"' >&2; exit 2;; esac
	cargo build --locked --profile $(PROFILE) --bin mcpproxy
	deploy/release/files.sh "$${CARGO_TARGET_DIR:-target}/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/mcpproxy" "$(DESTDIR)$(PREFIX)"

# what `make test` installs, and no tests: programs, and official clients and servers from npm and PyPI
tools:
	deploy/needs.sh rust c ps node python postgres pgbouncer nginx promtool chromium cargo-nextest
	tests/it/setup.sh

# all tests; TESTS are arguments of nextest: make test TESTS="-E 'test(replicas)'"
test: tools
	@echo "not among these tests: Claude Code, Codex and Gemini CLI (make agents-test), the release before (make upgrade-test)"
	cargo nextest run $(TESTS)

# `make demo` and `make test`, each on a bare Debian of its own; RUN names one of them, or ci; root, Debian; not in CI
bare-test:
	tests/bare/run.sh $(RUN)

# another release upgraded to this one under load, replica by replica, and back: make upgrade-test FROM=v1.2.0
# FROM is any git revision, by default the newest tag before this commit; it is built in target/upgrade
upgrade-test:
	deploy/needs.sh rust c git postgres cargo-nextest
	tests/upgrade/run.sh $(FROM)

# Claude Code, Codex and Gemini CLI with a scripted model, nearly 900 MB from npm; Linux (x64); not in CI
agents-test:
	deploy/needs.sh rust c ps node postgres cargo-nextest
	tests/clients/agents.sh

# takes the pictures of README and docs/console.md anew, with the texts of their pages (docs/pictures)
pictures:
	deploy/needs.sh rust c node postgres chromium cargo-nextest
	MCPPROXY_TEST_PICTURES=new cargo nextest run --test it -E 'test(/^console::pictures::/)'

# what CI runs before the tests
check:
	deploy/needs.sh rust rust-lints c shellcheck typos
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --no-deps --document-private-items --quiet
	shellcheck -x deploy/*.sh deploy/*/*.sh tests/*.sh tests/*/*.sh tests/it/support/*.sh tests/cluster/node/*.sh .ci/run
	PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" typos

# the Helm chart, over several sets of values (tests/helm/check.sh --update rewrites its snapshots)
check-chart:
	deploy/needs.sh python
	tests/helm/check.sh

# the container image, without a registry
image:
	deploy/needs.sh rust c buildah
	deploy/image.sh

# the image, run without rights against a real Postgres
check-image:
	tests/image/check.sh

# make install, the archive of a release for this machine, and the Homebrew formula
check-release:
	deploy/needs.sh rust c
	tests/release/check.sh

# a real Kubernetes, and the gateway on it while everything around is changed and killed; root, Debian 12; not in CI.
# FROM is a git revision with fewer migrations, installed first and upgraded from; by default this tree, under another tag
cluster-test:
	MCPPROXY_CLUSTER_FROM=$(FROM) tests/cluster/run.sh

# measures a release build against other gateways (docs/performance.md), and fails where a bound is missed
bench:
	deploy/needs.sh rust c postgres
	cargo test --release --lib -- domain::schema::tests::bounds domain::web_page::reading::tests::corpus
	tests/bench/run.sh

# instructions and allocations of calls, against tests/bench/budget.json; x86_64
check-budget:
	deploy/needs.sh rust c postgres valgrind
	tests/bench/run.sh budget

# compose.yaml and what it mounts
check-compose:
	deploy/needs.sh python compose nginx promtool
	tests/compose/check.sh

# licences, sources and bans of the dependencies, and that each is used; advisories where their database can be reached
check-supply:
	deploy/needs.sh rust c cargo-machete cargo-deny
	cargo machete
	cargo deny --locked check licenses bans sources
	@if cargo deny fetch db >/dev/null 2>&1; then cargo deny --locked check advisories; \
	else echo "advisories are not checked: their database (github.com/rustsec/advisory-db) cannot be reached"; fi

# what the program is made of, for target/sbom.cdx.json (CycloneDX)
sbom:
	deploy/needs.sh rust c python3 cargo-cyclonedx
	deploy/sbom.sh

FUZZ_SECONDS ?= 60
FUZZ_START ?= $(shell date +%s)
# each fuzz target for FUZZ_SECONDS, one after the other; FUZZ_START is where chance begins
fuzz:
	deploy/needs.sh rust c cargo-nextest
	@echo "FUZZ_START=$(FUZZ_START) repeats this run"
	FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_START=$(FUZZ_START) cargo nextest run --profile fuzz --lib -E 'test(/::fuzz::/)'
