#!/usr/bin/env bash
# Builds a release, measures it on this machine, and prints tables for docs/performance.md (eight minutes).
# Needs PostgreSQL's programs; compares with nginx where that is installed, and with agentgateway where
# AGENTGATEWAY names its program. `tests/bench/run.sh soak` is a long run that looks at memory (six minutes).
# `tests/bench/run.sh log` reads an activity log of 5 million records (ten minutes, 7 GB of disk).
# `tests/bench/run.sh telemetry` compares gateways that trace nothing, a tenth and everything (one minute).
# `tests/bench/run.sh permissions` compares tenants with and without rules and pending requests (six minutes).
# `tests/bench/run.sh budget` counts instructions and allocations of calls with Valgrind, against tests/bench/budget.json (three
# minutes); BUDGET_DIR=DIR keeps callgrind's files.
# `tests/bench/run.sh logins` compares calls with tokens of people and with keys, and has bad tokens beside them (five minutes).
# Words choose rows by a part of their name: tests/bench/run.sh write
# `tests/bench/run.sh attacks` has every attack run beside another tenant's calls (four minutes); ATTACK='unknown keys'
# chooses among them by a part of their names.
# Settings reach the gateway: MCPPROXY__LIMITS__ACTIVITY_BATCH=50 tests/bench/run.sh read
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# the same profile as `cargo build --release`, for the program as well
# the count of allocations needs the names of functions
[[ " $* " != *" budget "* ]] || export CARGO_PROFILE_BENCH_STRIP=none CARGO_PROFILE_BENCH_DEBUG="${CARGO_PROFILE_BENCH_DEBUG:-0}"
exec cargo bench --locked --bench gateway -- "$@"
