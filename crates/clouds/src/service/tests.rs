//! What is decided of Services, and what answers come to.

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{parse, render, render_outcome};

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
