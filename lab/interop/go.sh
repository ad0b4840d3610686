#!/bin/sh
# go/cmd/turboproxy, whose path is in TURBOPROXY, as an implementation of docs/interop.md.
case $ROLE-$TESTCASE in
client-*) exec "$TURBOPROXY" -listen "$LISTEN" -edge "$NAME=$EDGE,$ADVERTISED" ;;
server-forwarded-join) exit 127 ;;
server-early-data) exec "$TURBOPROXY" -listen "$LISTEN" -origin "$ORIGIN" -early-data ;;
server-*) exec "$TURBOPROXY" -listen "$LISTEN" -origin "$ORIGIN" ;;
esac
