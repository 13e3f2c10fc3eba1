//! Cases of the rules of networking and discovery.

use super::*;

#[test]
fn an_ingress_says_where_paths_lead() {
    check(
        INGRESS,
        "{metadata: {annotations: {kubernetes.io/ingress.class: a}}, spec: {ingressClassName: b, rules: [{host: 1.2.3.4}, {host: '*.x'}, {host: 'a*'}, {http: {paths: [{path: x, backend: {service: {name: s, port: {number: 80}}}}, {path: /a//b/.., pathType: Exact, backend: {}}, {path: x, pathType: Odd, backend: {service: {name: S, port: {}}}}, {path: x, pathType: ImplementationSpecific, backend: {resource: {kind: '', name: ''}}}]}}], tls: [{hosts: [a_b], secretName: A}]}}",
        expect![[r#"
            spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
            spec.rules[2].host: Invalid value: "a*": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.rules[3].http.paths[0].pathType: Required value: pathType must be specified
            spec.rules[3].http.paths[1].path: Invalid value: "/a//b/..": must not contain '//'
            spec.rules[3].http.paths[1].path: Invalid value: "/a//b/..": cannot end with '/..'
            spec.rules[3].http.paths[1].backend: Invalid value: "": resource or service backend is required
            spec.rules[3].http.paths[2].pathType: Unsupported value: "Odd": supported values: "Exact", "ImplementationSpecific", "Prefix"
            spec.rules[3].http.paths[2].backend.service.name: Invalid value: "S": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.rules[3].http.paths[2].backend: Required value: port name or number is required
            spec.rules[3].http.paths[3].path: Invalid value: "x": must be an absolute path
            spec.rules[3].http.paths[3].backend.resource.kind: Required value: kind is required
            spec.rules[3].http.paths[3].backend.resource.name: Required value: name is required
            spec.tls[0].hosts[0]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            annotations.kubernetes.io/ingress.class: Invalid value: "a": must match `ingressClassName` when both are specified"#]],
    );
    check(
        INGRESS,
        "{spec: {}}",
        expect![[r#"spec: Invalid value: "null": either `defaultBackend` or `rules` must be specified"#]],
    );
    check(
        INGRESS_CLASS,
        "{spec: {controller: nowhere, parameters: {kind: k, name: x, scope: Namespace}}}",
        expect![[r#"
        spec.controller: Invalid value: "nowhere": must be a domain-prefixed path (such as "acme.io/foo")
        spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"#]],
    );
    check_update(
        INGRESS_CLASS,
        "{spec: {controller: a.b/c}}",
        "{spec: {controller: a.b/d}}",
        expect![[r#"spec.controller: Invalid value: "a.b/d": field is immutable"#]],
    );
}

#[test]
fn a_network_policy_names_peers_and_ports() {
    check(
        POLICY,
        "{spec: {podSelector: {}, policyTypes: [Sideways], ingress: [{ports: [{port: 80, endPort: 79, protocol: X}, {port: http, endPort: 80}, {endPort: 80}], from: [{}, {podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, nothing]}}, {ipBlock: {cidr: ''}}]}]}}",
        expect![[r#"
            spec.ingress[0].ports[0].protocol: Unsupported value: "X": supported values: "TCP", "UDP", "SCTP"
            spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`
            spec.ingress[0].ports[1].endPort: Invalid value: 80: may not be specified when `port` is non-numeric
            spec.ingress[0].ports[2].endPort: Invalid value: 80: may not be specified when `port` is not specified
            spec.ingress[0].from[0]: Required value: must specify a peer
            spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer
            spec.ingress[0].from[2].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`
            spec.ingress[0].from[2].ipBlock.except[1]: Invalid value: "nothing": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.ingress[0].from[3].ipBlock.cidr: Required value
            spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress""#]],
    );
    let policy = parse("{spec: {ingress: [{from: [{ipBlock: {cidr: 10.1.2.3/8}}]}]}}");
    expect![[r#"spec.ingress[0].from[0].ipBlock.cidr: CIDR value "10.1.2.3/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.2.3/32"?)"#]].assert_eq(&network_policy::warnings(&policy).join("\n"));
}

#[test]
fn addresses_and_ranges_are_strict() {
    check(
        IP,
        "{metadata: {name: 10.0.0.1}, spec: {parentRef: {resource: services, name: s}}}",
        expect![[""]],
    );
    check(
        IP,
        "{metadata: {name: 010.0.0.1}, spec: {parentRef: {}}}",
        expect![[r#"
        metadata.name: Invalid value: "010.0.0.1": must not have leading 0s
        spec.parentRef.resource: Required value
        spec.parentRef.name: Required value"#]],
    );
    check(
        IP,
        "{metadata: {name: 'FD00::1'}, spec: {}}",
        expect![[r#"
        metadata.name: Invalid value: "FD00::1": must be in canonical form ("fd00::1")
        spec.parentRef: Required value"#]],
    );
    check(
        CIDR,
        "{spec: {cidrs: [10.0.0.0/8, 11.0.0.0/8]}}",
        expect![[
            r#"spec.cidrs: Invalid value: {"cidrs":["10.0.0.0/8","11.0.0.0/8"]}: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#
        ]],
    );
    check(
        CIDR,
        "{spec: {cidrs: [10.0.0.1/8, 'FD00::/64']}}",
        expect![[r#"
        spec.cidrs[0]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length
        spec.cidrs[1]: Invalid value: "FD00::/64": must be in canonical form ("fd00::/64")"#]],
    );
    check_update(
        CIDR,
        "{spec: {cidrs: [10.0.0.0/8]}}",
        "{spec: {cidrs: [10.0.0.0/9]}}",
        expect![[r#"spec.cidrs[0]: Invalid value: "10.0.0.0/9": field is immutable"#]],
    );
}

#[test]
fn an_endpoint_can_be_sent_traffic() {
    check(
        SLICE,
        "{addressType: IPv4, ports: [{name: P, protocol: X, port: 0}, {name: P, protocol: TCP, appProtocol: 'a b'}], endpoints: [{addresses: []}, {addresses: [127.0.0.1, 169.254.0.1, 'fd00::1'], nodeName: N_, hostname: a.b, hints: {forZones: [{name: z}, {name: z}], forNodes: [{name: N_}]}}]}",
        expect![[r#"
            endpoints[0].addresses: Required value: must contain at least 1 address
            endpoints[1].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            endpoints[1].addresses[1]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)
            endpoints[1].addresses[2]: Invalid value: "fd00::1": must be an IPv4 address
            endpoints[1].nodeName: Invalid value: "N_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            endpoints[1].hostname: Invalid value: "a.b": must not contain dots
            endpoints[1].hints.forZones[1].name: Duplicate value: "z"
            endpoints[1].hints.forNodes[0].name: Invalid value: "N_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            ports[0].name: Invalid value: "P": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"
            ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            ports[1].name: Invalid value: "P": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[1].name: Duplicate value: "P"
            ports[1].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check(
        SLICE,
        "{addressType: FQDN, endpoints: [{addresses: [host, 'a.b.']}]}",
        expect![[
            r#"endpoints[0].addresses[0]: Invalid value: "host": should be a domain with at least two segments separated by dots"#
        ]],
    );
    check_update(
        SLICE,
        "{addressType: IPv4}",
        "{addressType: IPv6}",
        expect![[r#"addressType: Invalid value: "IPv6": field is immutable"#]],
    );
}
