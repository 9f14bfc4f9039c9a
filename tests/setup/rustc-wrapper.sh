#!/usr/bin/env bash
# Called by cargo in rustc's place when the page is built. A macro of one of its dependencies puts a hash of
# the path of its manifest into the page; that path is made the same on every machine.
case ${CARGO_MANIFEST_PATH-} in
    */registry/src/*/*) export CARGO_MANIFEST_PATH=/crates/${CARGO_MANIFEST_PATH#*/registry/src/*/} ;;
esac
exec "$@"
