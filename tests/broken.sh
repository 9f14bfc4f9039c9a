#!/usr/bin/env bash
# Are the tests of known faults worth anything? Each must pass on the program as it is, and fail on the broken variant
# that tests/faults.tsv names beside it (tests/broken.toml holds those). Takes a quarter of an hour, and room for a
# second build in target/broken.
#
#   tests/broken.sh            all of them
#   tests/broken.sh A6 B3      those of these faults
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --locked -p tokscope-tests --bin broken -- "$@"
