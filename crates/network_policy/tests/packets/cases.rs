//! Upstream's cases, each a row: policies, and which probes they let through. Those of one Pod are about `x/a`.
//!
//! Rows of policies that change, and of namespaces and Pods that do, are in `changes_are_followed`.

use crate::lan::{Probe, Protocol};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) policies: &'static str,
    pub(crate) allows: fn(&Probe) -> bool,
}

/// A probe that the policies of a row are not about, since those are about `x/a` as a server.
fn is_elsewhere(it: &Probe) -> bool {
    !it.is_to("x", "a") || it.is_to_itself()
}

fn is_tcp(it: &Probe, port: u16) -> bool {
    (it.protocol, it.port) == (Protocol::Tcp, port)
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "default-deny-ingress",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Ingress]}}",
        allows: |it| it.server_namespace() != "x" || it.is_to_itself(),
    },
    Case {
        name: "default-deny-egress, all Pods of a namespace",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Egress]}}",
        allows: |it| it.client_namespace() != "x" || it.is_to_itself(),
    },
    Case {
        name: "default-deny-all",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}",
        allows: |it| (it.client_namespace() != "x" && it.server_namespace() != "x") || it.is_to_itself(),
    },
    Case {
        name: "from Pods of the own namespace by podSelector",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}}",
        allows: |it| is_elsewhere(it) || it.is_from("x", "b"),
    },
    Case {
        name: "ingress for a target in a namespace that denies",
        policies: "- {metadata: {namespace: x, name: deny}, spec: {podSelector: {}}}
- {metadata: {namespace: x, name: allow}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{}]}}",
        allows: |it| it.server_namespace() != "x" || it.is_to("x", "a") || it.is_to_itself(),
    },
    Case {
        name: "from Pods of all namespaces",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {}}]}]}}",
        allows: |_| true,
    },
    Case {
        name: "only from another namespace by namespaceSelector",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}]}]}}",
        allows: |it| is_elsewhere(it) || it.client_namespace() == "y",
    },
    Case {
        name: "podSelector with matchExpressions",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || it.is_from("x", "b"),
    },
    Case {
        name: "namespaceSelector with matchExpressions",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: In, values: [y]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || it.client_namespace() == "y",
    },
    Case {
        name: "podSelector or namespaceSelector",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}, \
                   {namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || !it.is_from("x", "c"),
    },
    Case {
        name: "podSelector and namespaceSelector",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: b}}, \
                   namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || (it.client_name() == "b" && it.client_namespace() != "x"),
    },
    Case {
        name: "several podSelectors and namespaceSelectors",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}, \
                   namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || (it.client_name() != "a" && it.client_namespace() != "x"),
    },
    Case {
        name: "any of several podSelectors",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}, {podSelector: {matchLabels: {pod: c}}}]}]}}",
        allows: |it| is_elsewhere(it) || it.client_namespace() == "x",
    },
    Case {
        name: "a Pod of another namespace",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: a}}, namespaceSelector: {matchLabels: {ns: y}}}]}]}}",
        allows: |it| is_elsewhere(it) || it.is_from("y", "a"),
    },
    Case {
        name: "ports",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}], ports: [{port: 81, protocol: TCP}]}]}}",
        allows: |it| is_elsewhere(it) || (it.client_namespace() == "y" && is_tcp(it, 81)),
    },
    Case {
        name: "stacked policies that overlap",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}], ports: [{port: 81}]}]}}
- {metadata: {namespace: x, name: q}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}], ports: [{port: 80}]}]}}",
        allows: |it| is_elsewhere(it) || (it.client_namespace() == "y" && it.protocol == Protocol::Tcp),
    },
    Case {
        name: "allow-all",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{}]}}",
        allows: |_| true,
    },
    Case {
        name: "ingress on a named port",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{ports: [{port: serve-81-tcp}]}]}}",
        allows: |it| it.server_namespace() != "x" || is_tcp(it, 81) || it.is_to_itself(),
    },
    Case {
        name: "ingress from a namespace on a named port",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}], ports: [{port: serve-80-tcp}]}]}}",
        allows: |it| is_elsewhere(it) || (it.client_namespace() == "y" && is_tcp(it, 80)),
    },
    Case {
        name: "egress on a named port",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Egress], \
                   egress: [{ports: [{port: serve-80-tcp}]}]}}",
        allows: |it| it.client_namespace() != "x" || is_tcp(it, 80) || it.is_to_itself(),
    },
    Case {
        name: "a named port of UDP",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, \
                   ingress: [{ports: [{port: serve-80-udp, protocol: UDP}]}]}}",
        allows: |it| it.server_namespace() != "x" || (it.protocol, it.port) == (Protocol::Udp, 80) || it.is_to_itself(),
    },
    Case {
        name: "a range of ports",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{ports: [{port: 81, endPort: 90}]}]}}",
        allows: |it| it.server_namespace() != "x" || is_tcp(it, 81) || it.is_to_itself(),
    },
    Case {
        name: "no ingress from other namespaces",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}}",
        allows: |it| it.server_namespace() != "x" || it.client_namespace() == "x",
    },
    Case {
        name: "egress denied to a Pod by podSelector",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}}",
        allows: |it| !it.is_from("x", "a") || it.is_to_itself(),
    },
    Case {
        name: "ingress and egress together",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}], \
                   egress: [{ports: [{port: 80}]}]}}",
        allows: |it| {
            it.is_to_itself()
                || ((!it.is_to("x", "a") || it.is_from("x", "b")) && (!it.is_from("x", "a") || is_tcp(it, 80)))
        },
    },
    Case {
        name: "egress denied on the client's side although the server allows it",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: a}}}]}]}}
- {metadata: {namespace: y, name: a}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}]}]}}
- {metadata: {namespace: y, name: b}, spec: {podSelector: {matchLabels: {pod: b}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}]}]}}",
        allows: |it| {
            let by_client = !it.is_from("x", "a") || it.is_to("y", "a");
            let by_server = (!it.is_to("y", "a") && !it.is_to("y", "b")) || it.is_from("x", "a");
            it.is_to_itself() || (by_client && by_server)
        },
    },
    Case {
        name: "egress to a server in another namespace",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: a}}}]}]}}",
        allows: |it| !it.is_from("x", "a") || it.is_to("y", "a") || it.is_to_itself(),
    },
    Case {
        name: "every port of a protocol",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{ports: [{protocol: TCP}]}]}}",
        allows: |it| it.server_namespace() != "x" || it.protocol == Protocol::Tcp || it.is_to_itself(),
    },
    Case {
        name: "several ingress policies, one of which allows all",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}}
- {metadata: {namespace: x, name: q}, spec: {podSelector: {}, ingress: [{}]}}",
        allows: |_| true,
    },
    Case {
        name: "several egress policies, one of which allows all",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, egress: [{ports: [{port: 80}]}], policyTypes: [Egress]}}
- {metadata: {namespace: x, name: q}, spec: {podSelector: {}, egress: [{}], policyTypes: [Egress]}}",
        allows: |_| true,
    },
    Case {
        // Addresses are given in order: x/a has .2, and z/c .10.
        name: "egress to a block",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{ipBlock: {cidr: 10.42.0.4/30}}]}]}}",
        allows: |it| {
            let is_inside = it.is_to("x", "c") || it.server_namespace() == "y";
            !it.is_from("x", "a") || is_inside || it.is_to_itself()
        },
    },
    Case {
        name: "egress to a block with an exception",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{ipBlock: {cidr: 10.42.0.0/24, except: [10.42.0.5/32]}}]}]}}",
        allows: |it| !it.is_from("x", "a") || !it.is_to("y", "a"),
    },
    Case {
        name: "an address in an exception of one block and in another block",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{ipBlock: {cidr: 10.42.0.0/24, except: [10.42.0.5/32]}}]}]}}
- {metadata: {namespace: x, name: q}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{ipBlock: {cidr: 10.42.0.5/32}}]}]}}",
        allows: |_| true,
    },
    Case {
        name: "ingress and egress are controlled apart",
        policies: "- {metadata: {namespace: x, name: in}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress], \
                   ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}}
- {metadata: {namespace: x, name: out}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], \
                   egress: [{to: [{podSelector: {matchLabels: {pod: c}}}]}]}}",
        allows: |it| {
            let (by_server, by_client) =
                (!it.is_to("x", "a") || it.is_from("x", "b"), !it.is_from("x", "a") || it.is_to("x", "c"));
            it.is_to_itself() || (by_server && by_client)
        },
    },
    Case {
        name: "SCTP is not TCP",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{ports: [{port: 81, protocol: SCTP}]}]}}",
        allows: is_elsewhere,
    },
    Case {
        name: "UDP is not TCP",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{ports: [{port: 81, protocol: UDP}]}]}}",
        allows: |it| is_elsewhere(it) || (it.protocol, it.port) == (Protocol::Udp, 81),
    },
    Case {
        name: "a namespace by the label that all have",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                   ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}}]}]}}",
        allows: |it| is_elsewhere(it) || it.client_namespace() == "y",
    },
    Case {
        name: "a namespace not by the label that all have",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: \
                   [{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}]}}]}]}}",
        allows: |it| is_elsewhere(it) || it.client_namespace() != "x",
    },
    Case {
        name: "Pods of several names at several ports",
        policies: "- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: \
                   {pod: b}}}, {namespaceSelector: {matchLabels: {ns: z}}}], \
                   ports: [{port: 80}, {port: 81, protocol: UDP}, {port: 90, endPort: 99}]}]}}",
        allows: |it| {
            let is_peer = it.is_from("x", "b") || it.client_namespace() == "z";
            let is_port = is_tcp(it, 80) || (it.protocol, it.port) == (Protocol::Udp, 81);
            it.server_namespace() != "x" || it.is_to_itself() || (is_peer && is_port)
        },
    },
];
