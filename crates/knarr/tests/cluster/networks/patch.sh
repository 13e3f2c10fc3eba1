# Sourced by the programs that are played: kubectl, and a bare PATCH as client libraries send it, which needs no right to read.
kubectl() { /kubectl/kubectl "$@"; }

# patch PATH CONTENT-TYPE BODY: over a proxy of its own, which adds TLS and the account's token.
patch() {
    [ -e /tmp/api ] || { kubectl proxy --port=0 > /tmp/api & }
    until port=$(grep -o '[0-9]*$' /tmp/api 2> /dev/null); do sleep 0.05; done
    { printf 'PATCH %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %s\r\n\r\n%s' \
        "$1" "application/$2+json" "$(printf %s "$3" | wc -c)" "$3"; sleep 1; } | nc 127.0.0.1 "$port" | grep -q '^HTTP/1.1 200'
}

# is_up NODE REASON NAME: the condition that says that its network is there.
is_up() {
    patch "/api/v1/nodes/$1/status" strategic-merge-patch '{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False",
        "reason": "'"$2"'", "message": "'"$3"' is running on this node", "lastTransitionTime": "'"$(date -u +%Y-%m-%dT%H:%M:%SZ)"'",
        "lastHeartbeatTime": "'"$(date -u +%Y-%m-%dT%H:%M:%SZ)"'"}]}}'
}
