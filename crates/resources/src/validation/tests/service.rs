//! A row per rule of a Service.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::expect;

use super::{check_each, check_each_status, check_each_update};

const SERVICE: (&str, &str) = ("v1", "services");
const GOOD: &str = "
metadata: {name: web, namespace: d}
spec: {clusterIP: 10.43.0.1, selector: {app: web}, ports: [{port: 80}]}
";

#[test]
fn a_new_service() {
    check_each(
        SERVICE,
        GOOD,
        &[
            ("no ports", "/spec/ports", "[]"),
            ("ports without names", "/spec/ports", "[{port: 80}, {port: 81, name: A}]"),
            ("a name twice", "/spec/ports", "[{port: 80, name: a}, {port: 81, name: a}]"),
            ("a port twice", "/spec/ports", "[{port: 80, name: a}, {port: 80, name: b}]"),
            (
                "a bad protocol and target",
                "/spec/ports",
                "[{port: 80, protocol: X, targetPort: A_, appProtocol: 'a b'}]",
            ),
            ("a bad type", "/spec/type", "X"),
            ("a bad selector", "/spec/selector", "{a: 'b c'}"),
            ("a bad affinity", "/spec/sessionAffinity", "X"),
            (
                "a long affinity",
                "/spec",
                "{clusterIP: 10.43.0.1, ports: [{port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}",
            ),
            ("a bad address", "/spec/clusterIP", "x"),
            ("addresses that differ", "/spec/clusterIPs", "[10.43.0.2]"),
            ("three addresses", "/spec/clusterIPs", "[10.43.0.1, 10.43.0.2, 'fd00::1']"),
            ("two of one family", "/spec/clusterIPs", "[10.43.0.1, 10.43.0.2]"),
            (
                "none and one",
                "/spec",
                "{clusterIP: None, clusterIPs: [None, 10.43.0.1], ports: [{port: 80}]}",
            ),
            ("bad families", "/spec/ipFamilies", "[IPv6, IPv6, X]"),
            ("a bad policy", "/spec/ipFamilyPolicy", "X"),
            ("an empty policy", "/spec/ipFamilyPolicy", "''"),
            ("special addresses", "/spec/externalIPs", "[127.0.0.1, 0.0.0.0, 169.254.0.1, 224.0.0.1, x]"),
            ("a headless node port", "/spec", "{type: NodePort, clusterIP: None, ports: [{port: 80}]}"),
            (
                "a node port twice",
                "/spec",
                "{type: NodePort, clusterIP: 10.43.0.1, ports: [{port: 80, name: a, nodePort: 30000}, {port: 81, name: b, nodePort: 30000}]}",
            ),
            (
                "an external name with an address",
                "/spec",
                "{type: ExternalName, clusterIP: 10.43.0.1, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}",
            ),
            (
                "what only load balancers have",
                "/spec",
                "{clusterIP: 10.43.0.1, ports: [{port: 80}], loadBalancerSourceRanges: [x], allocateLoadBalancerNodePorts: true, loadBalancerClass: a/b, healthCheckNodePort: 1, externalTrafficPolicy: Local}",
            ),
            (
                "bad traffic policies",
                "/spec",
                "{type: NodePort, clusterIP: 10.43.0.1, ports: [{port: 80}], externalTrafficPolicy: X, internalTrafficPolicy: W, trafficDistribution: Z}",
            ),
            (
                "annotations that disagree",
                "/metadata/annotations",
                "{service.kubernetes.io/topology-aware-hints: a, service.kubernetes.io/topology-mode: b}",
            ),
        ],
        expect![[r#"
            no ports
              spec.ports: Required value
            ports without names
              spec.ports[0].name: Required value
              spec.ports[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            a name twice
              spec.ports[1].name: Duplicate value: "a"
            a port twice
              spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}
            a bad protocol and target
              spec.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"
              spec.ports[0].targetPort: Invalid value: "A_": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
              spec.ports[0].targetPort: Invalid value: "A_": must contain at least one letter (a-z)
              spec.ports[0].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            a bad type
              spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"
            a bad selector
              spec.selector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            a bad affinity
              spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"
            a long affinity
              spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400
            a bad address
              spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            addresses that differ
              spec.clusterIPs: Invalid value: ["10.43.0.2"]: first value must match `clusterIP`
            three addresses
              spec.clusterIPs: Invalid value: ["10.43.0.1","10.43.0.2","fd00::1"]: may only hold up to 2 values
            two of one family
              spec.clusterIPs: Invalid value: ["10.43.0.1","10.43.0.2"]: may specify no more than one IP for each IP family
            none and one
              spec.clusterIPs: Invalid value: ["None","10.43.0.1"]: 'None' must be the first and only value
            bad families
              spec.ipFamilies[1]: Duplicate value: "IPv6"
              spec.ipFamilies[2]: Unsupported value: "X": supported values: "IPv4", "IPv6"
              spec.clusterIPs[0]: Invalid value: "10.43.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`
            a bad policy
              spec.ipFamilyPolicy: Unsupported value: "X": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"
            an empty policy
              spec.ipFamilyPolicy: Unsupported value: "": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"
            special addresses
              spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
              spec.externalIPs[1]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)
              spec.externalIPs[2]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)
              spec.externalIPs[3]: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)
              spec.externalIPs[4]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            a headless node port
              spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services
            a node port twice
              spec.ports[1].nodePort: Duplicate value: 30000
            an external name with an address
              spec.clusterIPs: Forbidden: may not be set for ExternalName services
              spec.ipFamilies: Forbidden: may not be set for ExternalName services
              spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services
              spec.externalName: Required value
            what only load balancers have
              spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'
              spec.LoadBalancerSourceRanges[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
              spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'
              spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'
              spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services
              spec.healthCheckNodePort: Invalid value: 1: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'
            bad traffic policies
              spec.externalTrafficPolicy: Unsupported value: "X": supported values: "Cluster", "Local"
              spec.internalTrafficPolicy: Unsupported value: "W": supported values: "Cluster", "Local"
              spec.trafficDistribution: Unsupported value: "Z": supported values: "PreferClose", "PreferSameNode", "PreferSameZone"
            annotations that disagree
              metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "b": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified"#]],
    );
}

#[test]
fn a_service_keeps_its_address() {
    check_each_update(
        SERVICE,
        &GOOD.replace("spec: {", "spec: {clusterIPs: [10.43.0.1], "),
        &[
            ("another address", "/spec/clusterIP", "10.43.0.2"),
            ("no address", "/spec/clusterIP", "null"),
            ("none", "/spec/clusterIP", "None"),
            (
                "a second address",
                "/spec",
                "{clusterIP: 10.43.0.1, clusterIPs: [10.43.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}",
            ),
            ("another name", "/spec", "{type: ExternalName, externalName: a.b}"),
        ],
        expect![[r#"
            another address
              spec.clusterIPs[0]: Invalid value: ["10.43.0.2"]: may not change once set
            no address
            none
              spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set
            a second address
            another name"#]],
    );
    check_each_update(
        SERVICE,
        "{metadata: {name: web, namespace: d}, spec: {type: LoadBalancer, clusterIP: 10.43.0.1, clusterIPs: [10.43.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack, externalTrafficPolicy: Local, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30000}]}}",
        &[
            ("another class", "/spec/loadBalancerClass", "a/b"),
            ("another health check", "/spec/healthCheckNodePort", "31001"),
            ("one address less", "/spec/clusterIPs", "[10.43.0.1]"),
            ("one family less", "/spec/ipFamilies", "[IPv4]"),
            ("the other family", "/spec/ipFamilies", "[IPv6, IPv4]"),
        ],
        expect![[r#"
            another class
              spec.loadBalancerClass: Invalid value: "a/b": may not change once set
            another health check
              spec.healthCheckNodePort: Forbidden: field is immutable
            one address less
              spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be set to 'SingleStack' when releasing the secondary clusterIP
            one family less
              spec.ipFamilyPolicy: Invalid value: "PreferDualStack": must be set to 'SingleStack' when releasing the secondary ipFamily
            the other family
              spec.ipFamilies[0]: Invalid value: ["IPv6","IPv4"]: may not change once set
              spec.ipFamilies[0]: Invalid value: ["IPv6","IPv4"]: may not change once set
              spec.clusterIPs[0]: Invalid value: "10.43.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`
              spec.clusterIPs[1]: Invalid value: "fd00::1": expected an IPv4 value as indicated by `ipFamilies[1]`"#]],
    );
}

#[test]
fn where_a_load_balancer_is() {
    check_each_status(
        SERVICE,
        "{metadata: {name: web, namespace: d}, spec: {type: LoadBalancer, clusterIP: 10.43.0.1, ports: [{port: 80}]}}",
        &[
            ("a bad address", "/status/loadBalancer/ingress", "[{ip: x, ipMode: VIP}]"),
            ("a bad mode", "/status/loadBalancer/ingress", "[{ip: 1.1.1.1, ipMode: X}]"),
            ("a mode without an address", "/status/loadBalancer/ingress", "[{ipMode: VIP, hostname: A}]"),
            ("an address as name", "/status/loadBalancer/ingress", "[{hostname: 1.1.1.1}]"),
        ],
        expect![[r#"
            a bad address
              status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            a bad mode
              status.loadBalancer.ingress[0].ipMode: Unsupported value: "X": supported values: "Proxy", "VIP"
            a mode without an address
              status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set
              status.loadBalancer.ingress[0].hostname: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            an address as name
              status.loadBalancer.ingress[0].hostname: Invalid value: "1.1.1.1": must be a DNS name, not an IP address"#]],
    );
    check_each_status(
        SERVICE,
        GOOD,
        &[("no load balancer", "/status/loadBalancer/ingress", "[{hostname: a}]")],
        expect![[r#"
            no load balancer
              status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"#]],
    );
}
