//! What is decided of Services, and what answers come to.

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{change, parse, render, render_outcome};

const HELD: &str = "finalizers: [service.kubernetes.io/load-balancer-cleanup]";

fn service(meta: &str, spec: &str, status: &str) -> Arc<Service> {
    parse(&format!(
        "{{metadata: {{name: web, namespace: d, uid: u, {meta}}},
           spec: {{type: LoadBalancer, ports: [{{port: 80, nodePort: 30080}}], {spec}}}, status: {{{status}}}}}"
    ))
}

fn node(name: &str, more: &str) -> Arc<Node> {
    parse(&format!("{{metadata: {{name: {name}, {more}}}, spec: {{providerID: 'example://{name}'}}}}"))
}

fn ingress(ip: &str) -> Vec<Ingress> {
    let one = v1::LoadBalancerIngress { ip: ip.to_owned(), ..v1::LoadBalancerIngress::default() };
    status::read(Some(v1::LoadBalancerStatus { ingress: vec![one] })).unwrap()
}

fn made(service: &Service, nodes: &[&str], at: &[Ingress]) -> Made {
    let nodes = nodes.iter().map(|name| ((*name).to_owned(), format!("example://{name}")));
    Made { service: facts(service), nodes: nodes.collect(), ingress: Some(at.to_vec()) }
}

fn snapshot(service: Arc<Service>, nodes: &[Arc<Node>], made: Option<Made>) -> Snapshot {
    Snapshot { service, nodes: nodes.to_vec(), made, cluster_name: "kubernetes".to_owned() }
}

fn check(snapshot: &Snapshot, expect: &Expect) {
    expect.assert_eq(&render(&plan(snapshot)));
}

fn refusal(kind: RefusalKind) -> Refusal {
    Refusal { kind, message: "quota".to_owned(), retry_after: None }
}

#[test]
fn a_finalizer_is_there_before_the_cloud_is_asked() {
    let nodes = [node("a", ""), node("b", "")];
    check(
        &snapshot(service("", "", ""), &nodes, None),
        &expect![[r#"
        - Normal EnsuringLoadBalancer: Ensuring load balancer
        - Patch("application/strategic-merge-patch+json") services/status web {"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"],"uid":"u"}}
        - ask EnsureLoadBalancer d/web [a b]
    "#]],
    );
    let excluded = "labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}";
    check(
        &snapshot(service(HELD, "", ""), &[node("a", excluded)], None),
        &expect![[r#"
        - Normal EnsuringLoadBalancer: Ensuring load balancer
        - Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer
        - ask EnsureLoadBalancer d/web []
    "#]],
    );
}

#[test]
fn the_cloud_is_asked_again_only_if_something_has_changed() {
    let nodes = [node("a", ""), node("b", "")];
    let at = "loadBalancer: {ingress: [{ip: 198.51.100.7, ipMode: VIP}]}";
    let known = service(HELD, "", at);
    let made = |nodes: &[&str]| Some(made(&known, nodes, &ingress("198.51.100.7")));
    check(&snapshot(known.clone(), &nodes, made(&["a", "b"])), &expect![""]);
    // What is said in the status is what the cloud has said.
    check(
        &snapshot(service(HELD, "", ""), &nodes, made(&["a", "b"])),
        &expect![[r#"
        - Patch("application/strategic-merge-patch+json") services/status web {"metadata":{"uid":"u"},"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7","ipMode":"VIP"}]}}}
    "#]],
    );
    check(
        &snapshot(known.clone(), &nodes, made(&["a"])),
        &expect![[r#"
        - ask UpdateLoadBalancer d/web [a b]
    "#]],
    );
    let ensured =
        "- Normal EnsuringLoadBalancer: Ensuring load balancer\n- ask EnsureLoadBalancer d/web [a b]\n";
    for (meta, spec) in [
        ("annotations: {size: large}", ""),
        ("", "loadBalancerSourceRanges: [192.0.2.0/24]"),
        ("", "externalTrafficPolicy: Local"),
        ("", "sessionAffinity: ClientIP"),
        ("", "ipFamilies: [IPv4, IPv6]"),
    ] {
        let changed = service(&format!("{HELD}, {meta}"), spec, at);
        assert_eq!(render(&plan(&snapshot(changed, &nodes, made(&["a", "b"])))), ensured, "{meta} {spec}");
    }
    let labelled = service(&format!("{HELD}, labels: {{a: b}}"), "", at);
    check(&snapshot(labelled, &nodes, made(&["a", "b"])), &expect![""]);
}

#[test]
fn who_wants_none_or_has_a_class_gets_none() {
    let going = "deletionTimestamp: '2026-01-01T12:00:00Z'";
    for (meta, spec) in [
        ("", "loadBalancerClass: knarr.io/servicelb"),
        (HELD, "loadBalancerClass: example.com/other"),
        (&*format!("{HELD}, {going}"), "loadBalancerClass: example.com/other"),
        ("", "type: ClusterIP"),
        (going, ""),
    ] {
        let text = format!("{{metadata: {{name: web, namespace: d, uid: u, {meta}}}, spec: {{{spec}}}}}");
        let one: Arc<Service> = if spec.starts_with("type") { parse(&text) } else { service(meta, spec, "") };
        assert_eq!(render(&plan(&snapshot(one, &[], None))), "", "{meta} {spec}");
    }
}

#[test]
fn a_load_balancer_goes_before_its_service() {
    let going = format!("{HELD}, deletionTimestamp: '2026-01-01T12:00:00Z'");
    let at = "loadBalancer: {ingress: [{ip: 198.51.100.7}]}";
    let service = service(&going, "", at);
    check(
        &snapshot(service.clone(), &[], None),
        &expect![[r#"
        - ask GetLoadBalancer d/web
    "#]],
    );
    let other: Arc<Service> =
        parse(&format!("{{metadata: {{name: web, namespace: d, {HELD}}}, spec: {{type: ClusterIP}}}}"));
    check(
        &snapshot(other, &[], None),
        &expect![[r#"
        - ask GetLoadBalancer d/web
    "#]],
    );
    let request = v1::LoadBalancerRequest::default();
    let told = |answer| render_outcome(&found(&service, &request, answer));
    expect![[r#"
        - Normal DeletingLoadBalancer: Deleting load balancer
        - ask EnsureLoadBalancerDeleted d/web
    "#]]
    .assert_eq(&told(Ok(true)));
    let gone = expect![[r#"
        - Patch("application/strategic-merge-patch+json") services/status web {"metadata":{"$deleteFromPrimitiveList/finalizers":["service.kubernetes.io/load-balancer-cleanup"],"uid":"u"},"status":{"loadBalancer":{"ingress":null}}}
        - Normal DeletedLoadBalancer: Deleted load balancer
    "#]];
    gone.assert_eq(&told(Ok(false)));
    gone.assert_eq(&told(Err(refusal(RefusalKind::NotFound))));
    gone.assert_eq(&render_outcome(&taken_back(&service, Ok(()))));
    expect![[r#"
        - Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to check if load balancer exists before cleanup: quota
        failed: quota
    "#]]
    .assert_eq(&told(Err(refusal(RefusalKind::Failed))));
    expect![[r#"
        - Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to delete load balancer: quota
        failed: quota
    "#]]
    .assert_eq(&render_outcome(&taken_back(&service, Err(refusal(RefusalKind::Failed)))));
}

#[test]
fn a_service_that_is_gone_leaves_no_load_balancer() {
    let made = made(&service("", "", ""), &[], &[]);
    assert_eq!(render(&forgotten("d/web", &made, "kubernetes")), "- ask EnsureLoadBalancerDeleted d/web\n");
}

#[test]
fn what_the_cloud_says_of_a_load_balancer_is_told() {
    let service = service(HELD, "", "");
    let told = |answer| {
        let (known, outcome) = ensured(&service, answer);
        format!("{}{}", if known.is_some() { "" } else { "not known\n" }, render_outcome(&outcome))
    };
    expect![[r#"
        - Patch("application/strategic-merge-patch+json") services/status web {"metadata":{"uid":"u"},"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7","ipMode":"VIP"}]}}}
        - Normal EnsuredLoadBalancer: Ensured load balancer
    "#]]
    .assert_eq(&told(Ok(ingress("198.51.100.7"))));
    assert_eq!(told(Err(refusal(RefusalKind::Elsewhere))), "", "somebody else makes it");
    expect![[r#"
        not known
        - Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: quota
        failed: quota
    "#]]
    .assert_eq(&told(Err(refusal(RefusalKind::Failed))));
    let nodes: BTreeMap<String, String> = (10..35).map(|n| (format!("n{n}"), String::new())).collect();
    let failed = render_outcome(&updated(&service, &nodes, Err(refusal(RefusalKind::Failed))));
    assert!(
        failed.contains("n29 <5 more>] [node names limited, total number of nodes: 25], error: quota"),
        "{failed}"
    );
    assert_eq!(
        render_outcome(&updated(&service, &nodes, Ok(()))),
        "- Normal UpdatedLoadBalancer: Updated load balancer with new hosts\n"
    );
}

#[test]
fn addresses_that_cannot_be_are_not_believed() {
    let read = |ip: &str, hostname: &str, ip_mode: &str| {
        let [ip, hostname, ip_mode] = [ip, hostname, ip_mode].map(str::to_owned);
        status::read(Some(v1::LoadBalancerStatus {
            ingress: vec![v1::LoadBalancerIngress { ip, hostname, ip_mode }],
        }))
    };
    for (ip, hostname, ip_mode) in
        [("192.0.2.1", "", ""), ("", "lb.example.com", ""), ("2001:db8::1", "", "Proxy")]
    {
        assert!(read(ip, hostname, ip_mode).is_ok(), "{ip} {hostname} {ip_mode}");
    }
    for (ip, hostname, ip_mode) in [
        ("", "", ""),
        ("everywhere", "", ""),
        ("192.0.2.1/24", "", ""),
        ("", "no name", ""),
        ("", "lb.example.com", "VIP"),
        ("192.0.2.1", "", "vip"),
    ] {
        assert!(read(ip, hostname, ip_mode).is_err(), "{ip} {hostname} {ip_mode}");
    }
    let many = v1::LoadBalancerStatus { ingress: vec![v1::LoadBalancerIngress::default(); 65] };
    assert!(status::read(Some(many)).is_err_and(|refusal| refusal.message.contains("at most 64")));
    assert!(status::read(None).is_err());
}

/// Source: `Test_shouldSyncUpdatedNode_individualPredicates` and `..._compoundedPredicates` of upstream's service
/// controller.
#[test]
fn nodes_that_drain_leave_load_balancers_as_they_are() {
    let node = |marks: &str| -> Arc<Node> {
        let has = |mark: &str| marks.split(' ').any(|one| one == mark);
        let part = |mark: &str, text: &'static str| if has(mark) { text } else { "" };
        parse(&format!(
            "{{metadata: {{name: a, labels: {{{}{}}}{}}}, spec: {{taints: [{}{}], providerID: '{}'}},
               status: {{conditions: [{{type: Ready, status: '{}'}}, {{type: DiskPressure, status: '{}'}}]}}}}",
            part("excluded", "node.kubernetes.io/exclude-from-external-load-balancers: '', "),
            part("label", "other: ''"),
            part("deleted", ", deletionTimestamp: '2026-01-01T12:00:00Z'"),
            part("drained", "{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}, "),
            part("taint", "{key: other, effect: NoSchedule}"),
            if has("unnamed") { "" } else if has("renamed") { "providerID-2" } else { "providerID" },
            if has("unready") { "False" } else { "True" },
            if has("pressure") { "True" } else { "False" },
        ))
    };
    let is_news = |old: Option<&str>, new: Option<&str>| {
        let (old, new) = (old.map(node), new.map(node));
        concerns_load_balancers(&Change { key: "a".into(), old, new, revision: 1 })
    };
    for (one, other, expect) in [
        ("", "", false),
        ("", "excluded", true),
        ("excluded", "excluded", false),
        ("", "taint", false),
        ("", "label", false),
        ("unready", "unready", false),
        ("", "unready", false),
        ("unready", "unready pressure", false),
        ("", "pressure", false),
        ("", "deleted", false),
        ("", "drained", false),
        ("", "unnamed", true),
        ("", "renamed", true),
        ("drained", "drained excluded", true),
        ("drained", "drained unnamed", true),
        ("drained", "drained renamed", true),
        ("drained", "drained unready", false),
        ("excluded", "excluded drained", false),
        ("excluded", "excluded unready", false),
        ("excluded", "excluded unnamed", true),
        ("excluded", "excluded renamed", true),
        ("unready", "unready drained", false),
        ("unready", "unready excluded", true),
        ("unready", "unready unnamed", true),
        ("unready", "unready renamed", true),
        ("unnamed", "unnamed excluded", true),
        ("unnamed", "unnamed unready", false),
        ("unnamed", "unnamed drained", false),
    ] {
        assert_eq!(is_news(Some(one), Some(other)), expect, "{one:?} to {other:?}");
        assert_eq!(is_news(Some(other), Some(one)), expect, "{other:?} to {one:?}");
    }
    assert!(is_news(None, Some("")) && is_news(Some(""), None), "one that comes or goes");
    // Whoever asks for another reason leaves such Nodes out.
    let one = service(HELD, "", "");
    let known = Some(made(&one, &["a"], &[]));
    let told = render(&plan(&snapshot(one, &[node("drained")], known)));
    assert_eq!(told, "- ask UpdateLoadBalancer d/web []\n");
}

/// Source: `TestNeedsUpdate` of upstream's service controller. What a port leads to in Pods is not told to providers.
#[test]
fn what_a_load_balancer_depends_on_is_what_upstream_says() {
    let changes = |old: &str, new: &str| {
        let one = |more: &str| -> Arc<Service> {
            let more: Vec<&str> = more.split(';').map(str::trim).collect();
            let pick = |name: &str, usual: &'static str| {
                let found = more.iter().find(|part| part.starts_with(name)).copied();
                found.unwrap_or(usual).to_owned()
            };
            parse(&format!(
                "{{metadata: {{name: web, namespace: d, {}}}, spec: {{{}, {}, {}}}}}",
                pick("uid", "uid: u"),
                pick("type", "type: LoadBalancer"),
                pick("ports", "ports: [{port: 80}]"),
                more.iter()
                    .filter(|part| !["uid", "type", "ports"].iter().any(|own| part.starts_with(own)))
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", "),
            ))
        };
        let (old, new) = (one(old), one(new));
        facts(&old) != facts(&new) || is_wanted(&old) != is_wanted(&new)
    };
    for (name, old, new, expect) in [
        ("nothing", "", "", false),
        ("another type", "", "type: ClusterIP", true),
        ("ports", "ports: [{port: 8000}, {port: 9000}]", "ports: [{port: 8001}, {port: 9001}]", true),
        ("more ports", "ports: [{port: 80}]", "ports: [{port: 80}, {port: 81}]", true),
        ("names of ports", "ports: [{port: 80}]", "ports: [{port: 80, name: a}]", true),
        ("protocols", "ports: [{port: 80}]", "ports: [{port: 80, protocol: UDP}]", true),
        (
            "the protocol that counts anyway",
            "ports: [{port: 80}]",
            "ports: [{port: 80, protocol: TCP}]",
            false,
        ),
        ("ports of Nodes", "ports: [{port: 80}]", "ports: [{port: 80, nodePort: 30080}]", true),
        ("protocols of applications", "", "ports: [{port: 80, appProtocol: http}]", true),
        (
            "other ones",
            "ports: [{port: 80, appProtocol: http}]",
            "ports: [{port: 80, appProtocol: tcp}]",
            true,
        ),
        (
            "the number of external addresses",
            "externalIPs: [192.0.2.1]",
            "externalIPs: [192.0.2.2, 192.0.2.3]",
            true,
        ),
        ("external addresses", "externalIPs: [192.0.2.1]", "externalIPs: [192.0.2.2]", true),
        ("another Service", "uid: old", "uid: new", true),
        ("the traffic policy", "", "externalTrafficPolicy: Local", true),
        ("the port of health checks", "", "healthCheckNodePort: 30123", true),
        ("one family more", "ipFamilies: [IPv4]", "ipFamilies: [IPv4, IPv6]", true),
        ("one family less", "ipFamilies: [IPv4, IPv6]", "ipFamilies: [IPv4]", true),
        ("the same families", "ipFamilies: [IPv4]", "ipFamilies: [IPv4]", false),
        ("the wanted address", "", "loadBalancerIP: 192.0.2.1", true),
        ("the time of affinity", "", "sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", true),
        ("addresses in the cluster", "", "clusterIPs: [10.0.0.1]", false),
        ("who is behind it", "", "selector: {a: b}", false),
    ] {
        assert_eq!(changes(old, new), expect, "{name}");
        assert_eq!(changes(new, old), expect, "{name}, the other way");
    }
}

/// Source: `TestNeedsCleanup` of upstream's service controller.
#[test]
fn a_load_balancer_is_left_where_a_finalizer_says_so() {
    let going = "deletionTimestamp: '2026-01-01T12:00:00Z'";
    for (name, meta, spec, expect) in [
        ("no finalizer", "", "", false),
        ("no finalizer, deleted", going, "", false),
        ("another finalizer", "finalizers: [other]", "type: NodePort", false),
        ("none is wanted any more", HELD, "type: NodePort", true),
        ("one is wanted", HELD, "type: LoadBalancer", false),
        ("deleted", &*format!("{HELD}, {going}"), "", true),
        ("deleted with one", &*format!("{HELD}, {going}"), "type: LoadBalancer", true),
        (
            "somebody else's",
            &*format!("{HELD}, {going}"),
            "type: LoadBalancer, loadBalancerClass: example.com/x",
            false,
        ),
    ] {
        let service = parse(&format!("{{metadata: {{name: web, {meta}}}, spec: {{{spec}}}}}"));
        assert_eq!(is_left(&service), expect, "{name}");
    }
}

#[test]
fn only_what_concerns_its_load_balancer_is_news_of_a_service() {
    let text = |meta: &str, spec: &str, status: &str| {
        format!(
            "{{metadata: {{name: web, namespace: d, uid: u, {meta}}}, spec: {{{spec}}}, status: {{loadBalancer: {{{status}}}}}}}"
        )
    };
    let balanced = "type: LoadBalancer, ports: [{port: 80, nodePort: 30080}]";
    let usual = text("", balanced, "");
    for (new, expect) in [
        (usual.clone(), false),
        (text("labels: {x: y}, resourceVersion: '9'", balanced, ""), false),
        (text(HELD, balanced, ""), false),
        (text("", &format!("{balanced}, clusterIPs: [10.0.0.1]"), ""), false),
        (text("annotations: {x: y}", balanced, ""), true),
        (text("", balanced, "ingress: [{ip: 1.2.3.4}]"), true),
        (text("", &balanced.replace("30080", "30081"), ""), true),
        (text("", &format!("{balanced}, loadBalancerClass: a.example/b"), ""), true),
        (text("", &balanced.replace("LoadBalancer", "NodePort"), ""), true),
        (text("deletionTimestamp: '2026-01-01T12:00:00Z'", balanced, ""), true),
        (String::new(), true),
    ] {
        assert_eq!(is_news(&change(&usual, &new)), expect, "{new}");
        assert_eq!(is_news(&change(&new, &usual)), expect, "back from {new}");
    }
    // Whoever never had one is nobody's, whatever changes.
    for spec in [
        "type: ClusterIP",
        "type: NodePort",
        "type: ExternalName",
        &format!("{balanced}, loadBalancerClass: a/b"),
    ] {
        assert!(!is_news(&change("", &text("", spec, ""))), "{spec}");
        assert!(!is_news(&change(&text("", spec, ""), &text("annotations: {x: y}", spec, ""))), "{spec}");
    }
    let left = text(HELD, "type: ClusterIP", "");
    assert!(is_news(&change("", &left)), "a load balancer is left");
    assert!(!is_news(&change(&left, &left)));
}
