use std::collections::BTreeMap;

use super::*;
use crate::families::{BOTH, config};
use crate::services::tests::{Random, news, world};
use crate::services::{Changed, Services};

/// Tables as `iptables-restore` makes them: rules by table and chain.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tables(BTreeMap<(String, String), Vec<String>>);

impl Tables {
    fn restore(&mut self, input: &str) {
        let mut table = String::new();
        for line in input.lines() {
            let key = |chain: &str| (table.clone(), chain.to_owned());
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
            match first {
                "COMMIT" => {}
                "-A" => self.0.get_mut(&key(chain)).expect(line).push(rule.to_owned()),
                "-I" => self.0.entry(key(chain)).or_default().insert(0, rule.to_owned()),
                "-D" => {
                    let rules = self.0.get_mut(&key(chain)).expect(line);
                    let at = rules.iter().position(|known| known == rule).expect(line);
                    rules.remove(at);
                }
                "-X" => {
                    assert_eq!(self.0.remove(&key(chain)), Some(Vec::new()), "{line}");
                    let leads = |rule: &String| rule.ends_with(&format!("-j {chain}"));
                    let mut left = self.0.iter().filter(|((of, _), _)| *of == table);
                    assert!(!left.any(|(_, rules)| rules.iter().any(leads)), "{line}");
                }
                _ => match (line.strip_prefix('*'), first.strip_prefix(':')) {
                    (Some(name), _) => table = name.to_owned(),
                    (_, Some(chain)) => drop(self.0.insert(key(chain), Vec::new())),
                    _ => panic!("{line}"),
                },
            }
        }
    }

    /// With the rules in order that Services share: among each other theirs says nothing, but the frame's come last.
    fn in_order(mut self) -> Self {
        let is_last = |rule: &String| {
            rule.contains("NOTE: this must be")
                || rule.starts_with("-d 127.0.0.0/8")
                || rule.starts_with("-d ::1/128")
        };
        for ((_, chain), rules) in &mut self.0 {
            if !names::PREFIXES.iter().any(|prefix| chain.starts_with(prefix)) {
                let last = rules.iter().position(is_last).unwrap_or(rules.len());
                assert!(rules[last..].iter().all(is_last), "{chain}: {rules:?}");
                rules[..last].sort();
            }
        }
        self
    }
}

#[test]
fn differences_add_up_to_what_is_made_from_nothing() {
    BOTH.into_iter().for_each(differences_add_up_in);
}

fn differences_add_up_in(family: Family) {
    let config = Arc::new(config(&BOTH));
    let scope = Scope { config: &config, family };
    let whole = |part: &Part| {
        let input =
            rules::whole(&render::frame(scope), &render::rules(part, scope), &Saved::default(), &known());
        let mut tables = Tables::default();
        tables.restore(&input);
        tables.in_order()
    };
    for seed in 1..40 {
        let mut random = Random(seed);
        let mut services = Services::new(config.clone());
        let mut last = Changed::default();
        let mut tables = whole(&Part::default());
        for step in 0..12 {
            let next = world(&mut random);
            let difference = services.update(news(if step == 0 { &next } else { &last }, &next));
            let of = |part: &Part| render::rules(part, scope);
            tables.restore(&rules::difference(&of(&difference.before), &of(&difference.after)));
            tables = tables.in_order();
            assert_eq!(tables, whole(&services.whole()), "seed {seed}, step {step}");
            last = next;
        }
    }
}

#[test]
fn every_way_leads_to_a_chain_that_there_is() {
    let config = config(&BOTH);
    for family in BOTH {
        let scope = Scope { config: &config, family };
        for frame in [render::frame(scope), super::super::ipvs::frame::frame(scope)] {
            let input = rules::whole(&frame, &Rules::default(), &Saved::default(), &known());
            let mut tables = Tables::default();
            tables.restore(&input);
            for ((table, chain), rules) in &tables.0 {
                for target in rules.iter().filter_map(|rule| rule.split(" -j ").nth(1)) {
                    let target = target.split(' ').next().unwrap().to_owned();
                    let is_there = tables.0.contains_key(&(table.clone(), target.clone()));
                    assert!(is_there || !target.starts_with("KUBE-"), "{table} {chain}: {target}");
                }
                let is_ours = |known: &(Table, &str)| known.0.name() == table && known.1 == chain;
                assert!(!chain.starts_with("KUBE-") || known().chains.iter().any(is_ours), "{table} {chain}");
            }
        }
    }
}

/// Rules of one Service, but for the frame's.
fn check(what: &str, service: &str, endpoints: &str, expect: expect_test::Expect) {
    let object = |yaml: &str| -> serde_json::Value { serde_saphyr::from_str(yaml).unwrap() };
    let slice = format!(
        "{{metadata: {{namespace: ns1, name: svc1, labels: {{kubernetes.io/service-name: svc1}}}}, addressType: IPv4, ports: [{{name: p80, port: 80}}], endpoints: [{endpoints}]}}"
    );
    let service = object(&format!("{{metadata: {{namespace: ns1, name: svc1}}, {service}}}"));
    let mut services = Services::new(Arc::new(config(&[Family::V4])));
    services.update(Changed {
        services: vec![("ns1/svc1".into(), None, Some(Arc::new(serde_json::from_value(service).unwrap())))],
        slices: vec![(
            "ns1/svc1".into(),
            None,
            Some(Arc::new(serde_json::from_value(object(&slice)).unwrap())),
        )],
        nodes: None,
    });
    let config = config(&[Family::V4]);
    let rules = render::rules(&services.whole(), Scope { config: &config, family: Family::V4 });
    let text = rules::difference(&Rules::default(), &rules);
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with('-') || line.starts_with('*')).collect();
    eprintln!("{what}");
    expect.assert_eq(&(lines.join("\n") + "\n"));
}

/// Source: `pkg/proxy/iptables/proxier_test.go`.
#[test]
fn rules_are_upstreams() {
    let one = "{addresses: [10.180.0.1], nodeName: node-a}";
    let two = "{addresses: [10.180.0.1], nodeName: node-b}, {addresses: [10.180.0.2], nodeName: node-b}";
    let ports = "ports: [{name: p80, port: 80, nodePort: 3001}]";
    check(
        "a cluster IP",
        "spec: {clusterIP: 172.30.0.41, ports: [{name: p80, port: 80}]}",
        one,
        expect_test::expect![[r#"
            *nat
            -I KUBE-SERVICES -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
            -A KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment "ns1/svc1:p80" -s 10.180.0.1 -j KUBE-MARK-MASQ
            -A KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment "ns1/svc1:p80" -m tcp -p tcp -j DNAT --to-destination 10.180.0.1:80
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.42.0.0/16 -j KUBE-MARK-MASQ
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -j KUBE-SEP-SXIVWICOYRO3J4NJ
        "#]],
    );
    check(
        "no endpoints",
        &format!("spec: {{type: NodePort, clusterIP: 172.30.0.41, externalIPs: [192.168.99.22], {ports}}}"),
        "",
        expect_test::expect![[r#"
            *filter
            -I KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 3001 -j REJECT --reject-with tcp-reset
            -I KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 192.168.99.22 --dport 80 -j REJECT --reject-with tcp-reset
            -I KUBE-SERVICES -m comment --comment "ns1/svc1:p80 has no endpoints" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j REJECT --reject-with tcp-reset
        "#]],
    );
    check(
        "a balancer with ranges, local endpoints elsewhere, and clients that stay",
        &format!(
            "spec: {{type: LoadBalancer, clusterIP: 172.30.0.41, externalTrafficPolicy: Local, healthCheckNodePort: 30000,
               sessionAffinity: ClientIP, loadBalancerSourceRanges: [203.0.113.0/25, 192.0.2.0/24], {ports}}},
             status: {{loadBalancer: {{ingress: [{{ip: 1.2.3.4}}]}}}}"
        ),
        two,
        expect_test::expect![[r#"
            *filter
            -I KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 3001 -j DROP
            -I KUBE-EXTERNAL-SERVICES -m comment --comment "ns1/svc1:p80 has no local endpoints" -m tcp -p tcp -d 1.2.3.4 --dport 80 -j DROP
            -I KUBE-NODEPORTS -m comment --comment "ns1/svc1:p80 health check node port" -m tcp -p tcp --dport 30000 -j ACCEPT
            -I KUBE-PROXY-FIREWALL -m comment --comment "ns1/svc1:p80 traffic not accepted by KUBE-FW-XPGD46QRK7WJZT7O" -m tcp -p tcp -d 1.2.3.4 --dport 80 -j DROP
            *nat
            -I KUBE-NODEPORTS -m comment --comment "ns1/svc1:p80" -m tcp -p tcp --dport 3001 -j KUBE-EXT-XPGD46QRK7WJZT7O
            -I KUBE-SERVICES -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 -j KUBE-SVC-XPGD46QRK7WJZT7O
            -I KUBE-SERVICES -m comment --comment "ns1/svc1:p80 loadbalancer IP" -m tcp -p tcp -d 1.2.3.4 --dport 80 -j KUBE-FW-XPGD46QRK7WJZT7O
            -A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "pod traffic for ns1/svc1:p80 external destinations" -s 10.42.0.0/16 -j KUBE-SVC-XPGD46QRK7WJZT7O
            -A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "masquerade LOCAL traffic for ns1/svc1:p80 external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
            -A KUBE-EXT-XPGD46QRK7WJZT7O -m comment --comment "route LOCAL traffic for ns1/svc1:p80 external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-XPGD46QRK7WJZT7O
            -A KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 192.0.2.0/24 -j KUBE-EXT-XPGD46QRK7WJZT7O
            -A KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 203.0.113.0/25 -j KUBE-EXT-XPGD46QRK7WJZT7O
            -A KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 loadbalancer IP" -s 1.2.3.4 -j KUBE-EXT-XPGD46QRK7WJZT7O
            -A KUBE-FW-XPGD46QRK7WJZT7O -m comment --comment "other traffic to ns1/svc1:p80 will be dropped by KUBE-PROXY-FIREWALL"
            -A KUBE-SEP-LXVODXWDISEETFEF -m comment --comment "ns1/svc1:p80" -s 10.180.0.2 -j KUBE-MARK-MASQ
            -A KUBE-SEP-LXVODXWDISEETFEF -m comment --comment "ns1/svc1:p80" -m recent --name KUBE-SEP-LXVODXWDISEETFEF --set -m tcp -p tcp -j DNAT --to-destination 10.180.0.2:80
            -A KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment "ns1/svc1:p80" -s 10.180.0.1 -j KUBE-MARK-MASQ
            -A KUBE-SEP-SXIVWICOYRO3J4NJ -m comment --comment "ns1/svc1:p80" -m recent --name KUBE-SEP-SXIVWICOYRO3J4NJ --set -m tcp -p tcp -j DNAT --to-destination 10.180.0.1:80
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 cluster IP" -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.42.0.0/16 -j KUBE-MARK-MASQ
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -m recent --name KUBE-SEP-SXIVWICOYRO3J4NJ --rcheck --seconds 10800 --reap -j KUBE-SEP-SXIVWICOYRO3J4NJ
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.2:80" -m recent --name KUBE-SEP-LXVODXWDISEETFEF --rcheck --seconds 10800 --reap -j KUBE-SEP-LXVODXWDISEETFEF
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.1:80" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-SXIVWICOYRO3J4NJ
            -A KUBE-SVC-XPGD46QRK7WJZT7O -m comment --comment "ns1/svc1:p80 -> 10.180.0.2:80" -j KUBE-SEP-LXVODXWDISEETFEF
        "#]],
    );
}

/// What is not ours stays, whatever leads to what is.
#[test]
fn removal_takes_what_is_ours_and_nothing_else() {
    let saved = Saved::read(
        "*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:MINE - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -j MINE
-A KUBE-SERVICES -d 10.43.0.1/32 -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A MINE -s 192.0.2.1/32 -j KUBE-MARK-MASQ
COMMIT
*raw
:KUBE-SERVICES - [0:0]
COMMIT
",
    );
    let removal = rules::whole(&Frame::default(), &Rules::default(), &saved, &known());
    expect_test::expect![[r#"
        *nat
        :KUBE-MARK-MASQ - [0:0]
        :KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
        :KUBE-SERVICES - [0:0]
        -D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
        -X KUBE-SEP-ABCDEFGHIJKLMNOP
        -X KUBE-SERVICES
        COMMIT
    "#]]
    .assert_eq(&removal);
}
