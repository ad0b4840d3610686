# The agent and the edge of `headstart` as an implementation of docs/interop.md.
case $ROLE in
client)
    exec "$HEADSTART" agent --listen "$LISTEN" --edge "$NAME=$EDGE,$ADVERTISED"
    ;;
server)
    set -- edge --listen "$LISTEN" --origin "$ORIGIN"
    case $TESTCASE in
    early-data) set -- "$@" --early-data ;;
    forwarded-join)
        if ! [ -e "$SITE/keys" ]; then
            "$HEADSTART" keys new --fleet "$SITE/fleet"
            printf 'edge %s\n' "$EDGE_1" "$EDGE_2" >>"$SITE/fleet"
            "$HEADSTART" keys new "$SITE/keys"
        fi
        set -- "$@" --fleet "$SITE/fleet" --fleet-edge "$NUMBER" --keys "$SITE/keys"
        ;;
    esac
    exec "$HEADSTART" "$@"
    ;;
esac
