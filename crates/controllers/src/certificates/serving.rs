//! Approves Nodes' requests for the certificates of their kubelets' ports, each for its own name and for the address that
//! its request came from. Upstream leaves these to people or to add-ons; without one, `kubectl logs` does not reach a
//! Node that has joined.
//!
//! A Node writes its addresses itself, so that they prove nothing. Where its request came from the API server has
//! written down. Even from there nothing is approved that belongs to somebody else: Services, servers, other Nodes.
//! A request comes from an address of one family: in a cluster of both, a Node that has sent one from its own gets one
//! address of the other family on its word (`docs/adr/0032-a-second-address.md`). Certificates for
//! further addresses people approve.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use auth::NODE_USER_PREFIX;
use auth::signing::Asked;
use controller::metadata::name;
use controller::{Change, Controller, Informers, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use machinery::net::{Cidr, Family};

use super::{KUBELET_SERVING, approve, check_kubelet_serving, has, has_certificate, usages};
use crate::service_cidr;

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "kubelet-serving-approving-controller",
    queue: "kubelet_serving_approving",
    sources: |_| {
        vec![
            Source::itself::<CertificateSigningRequest>(),
            Source::of::<Node>(waiting_requests),
            // Nothing is decided before these are known.
            Source::of::<Service>(|_, _| Vec::new()),
            Source::of::<EndpointSlice>(|_, _| Vec::new()),
            Source::of::<ServiceCIDR>(|_, _| Vec::new()),
        ]
    },
    reconcile: |informers, key, now| match Snapshot::of(informers, key) {
        Some(snapshot) => plan(&snapshot, now),
        None => Plan::nothing(),
    },
};

/// The requests that came before the addresses of Nodes were known here.
fn waiting_requests(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let addresses = |node: &Option<Arc<Node>>| node.as_ref().map(|node| addresses(node).collect::<Vec<_>>());
    if addresses(&change.old) == addresses(&change.new) {
        return Vec::new();
    }
    let requests = informers.informer::<CertificateSigningRequest>().list();
    let waiting = requests.iter().filter(|request| is_waiting(request));
    waiting.map(|request| name(&request.metadata).to_owned()).collect()
}

fn is_waiting(request: &CertificateSigningRequest) -> bool {
    let is_decided = has(request, "Approved") || has(request, "Denied") || has_certificate(request);
    !is_decided && request.spec.signer_name == KUBELET_SERVING
}

/// The input of a decision.
pub struct Snapshot {
    /// The request.
    pub request: Arc<CertificateSigningRequest>,
    /// The Node that sent it.
    pub node: Option<Arc<Node>>,
    /// Addresses that are no Node's to have, or another Node's.
    pub taken: BTreeSet<IpAddr>,
    /// The ranges of Services.
    pub ranges: Vec<Arc<ServiceCIDR>>,
    /// The ranges of Nodes' Pods.
    pub pods: Vec<Cidr>,
}

impl Snapshot {
    fn of(informers: &Informers, key: &str) -> Option<Self> {
        let request = informers.informer::<CertificateSigningRequest>().get(key)?;
        let nodes = informers.informer::<Node>();
        let own = request.spec.username.as_deref().and_then(|user| user.strip_prefix(NODE_USER_PREFIX));
        let node = own.and_then(|node| nodes.get(node));
        let (mut taken, all) = (BTreeSet::new(), nodes.list());
        for other in all.iter().filter(|other| Some(name(&other.metadata)) != own) {
            taken.extend(addresses(other));
        }
        let pods =
            all.iter().flat_map(|node| node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten()));
        let pods = pods.filter_map(|cidr| Cidr::legacy(cidr)).collect();
        for service in informers.informer::<Service>().list() {
            taken.extend(service_addresses(&service));
        }
        for slice in informers.informer::<EndpointSlice>().list() {
            taken.extend(server_addresses(&slice));
        }
        let ranges = informers.informer::<ServiceCIDR>().list();
        Some(Self { request, node, taken, ranges, pods })
    }
}

fn addresses(node: &Node) -> impl Iterator<Item = IpAddr> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.filter(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"))
        .filter_map(|address| address.address.parse().ok())
}

fn service_addresses(service: &Service) -> Vec<IpAddr> {
    let mut texts: Vec<&str> = Vec::new();
    if let Some(spec) = &service.spec {
        let lists = [&spec.cluster_ips, &spec.external_ips];
        texts.extend(lists.into_iter().flatten().flatten().map(String::as_str));
        texts.extend([&spec.cluster_ip, &spec.load_balancer_ip].into_iter().flatten().map(String::as_str));
    }
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    texts.extend(ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.as_deref()));
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

/// Where the `kubernetes` Service leads.
fn server_addresses(slice: &EndpointSlice) -> Vec<IpAddr> {
    let metadata = &slice.metadata;
    let service = metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name"));
    let is_servers = metadata.namespace.as_deref() == Some("default")
        && service.is_some_and(|service| service == "kubernetes");
    if !is_servers {
        return Vec::new();
    }
    let texts = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Decides whether to approve.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let (mut plan, request) = (Plan::nothing(), &snapshot.request);
    if !is_waiting(request) {
        return plan;
    }
    let Ok(asked) = Asked::of_pem(&request.spec.request.0) else { return plan };
    let is_itself = request.spec.username.as_deref() == Some(asked.common_name.as_str());
    let is_node = request.spec.groups.iter().flatten().any(|group| group == auth::NODES);
    if check_kubelet_serving(&asked, &usages(request)).is_err() || !is_itself || !is_node {
        return plan;
    }
    match foreign(snapshot, &asked) {
        None => {
            let message = "Auto approving kubelet server certificate for the Node's own name and address.";
            plan.push(approve(request, message, now));
        }
        Some(what) => tracing::info!(
            request = name(&request.metadata),
            what,
            "a kubelet's server certificate is left to people: it is for something that was not seen to be its Node's"
        ),
    }
    plan
}

/// The first name or address that is asked for and was not seen to be the Node's.
fn foreign(snapshot: &Snapshot, asked: &Asked) -> Option<String> {
    let Some(node) = &snapshot.node else { return Some("a Node that does not exist".to_owned()) };
    let dns = asked.dns_names.iter().find(|dns| *dns != name(&node.metadata));
    let peer = peer_of(&snapshot.request);
    let is_own = |ip: IpAddr| {
        let is_of_service =
            snapshot.ranges.iter().any(|range| service_cidr::contains(range, ip.to_canonical()));
        is_a_hosts(ip)
            && addresses(node).any(|own| own == ip)
            && !snapshot.taken.contains(&ip)
            && !is_of_service
    };
    let is_seen = |ip: IpAddr| {
        Some(ip) == peer || peer.is_some_and(|peer| is_own(peer) && is_second(snapshot, &asked.ips, peer, ip))
    };
    let ip = asked.ips.iter().find(|ip| !is_own(**ip) || !is_seen(**ip));
    dns.cloned().or_else(|| ip.map(ToString::to_string))
}

/// Whether an address is the one of the other family that a Node of a cluster of both has beside `peer`.
fn is_second(snapshot: &Snapshot, asked: &[IpAddr], peer: IpAddr, ip: IpAddr) -> bool {
    let has = |family| snapshot.ranges.iter().any(|range| service_cidr::has_family(range, family));
    let is_lone = asked.iter().filter(|other| Family::of(**other) == Family::of(ip)).count() == 1;
    has(Family::V4)
        && has(Family::V6)
        && is_lone
        && Family::of(peer) != Family::of(ip)
        && !snapshot.pods.iter().any(|range| range.contains(ip))
}

/// Where the API server saw the request come from.
fn peer_of(request: &CertificateSigningRequest) -> Option<IpAddr> {
    let [address] = request.spec.extra.as_ref()?.get(auth::PEER_ADDRESS)?.as_slice() else { return None };
    address.parse().ok()
}

/// Whether an address can be one of a host among others.
fn is_a_hosts(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        // What is an IPv4 address in other words is asked for as such.
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast() && !is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::signing::tests::request_of;
    use crate::fixture::{list, noon, parse, render};

    const OWN: &str = "192.0.2.1";

    /// Node `a`, which says that it has all of `addresses`, asks for `ips` and `dns` from `peer`.
    fn snapshot(addresses: &[&str], peer: Option<&str>, ips: &[&str], dns: &[&str]) -> Snapshot {
        let mut request = request_of(KUBELET_SERVING);
        let subject = auth::pki::Subject {
            organization: Some("system:nodes".into()),
            ..auth::pki::Subject::server(
                "s",
                "system:node:a",
                dns.iter().map(|dns| (*dns).to_owned()).collect(),
                ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            )
        };
        request.spec.request.0 = auth::pki::request(&subject).unwrap().0.into_bytes();
        request.spec.usages = Some(vec!["server auth".into(), "digital signature".into()]);
        request.spec.groups = Some(vec!["system:nodes".into()]);
        request.spec.username = Some("system:node:a".into());
        request.spec.extra = peer.map(|peer| [(auth::PEER_ADDRESS.to_owned(), vec![peer.to_owned()])].into());
        let mut node: Node = parse("{metadata: {name: a}, status: {}}");
        let internal = |ip: &&str| parse(&format!("{{type: InternalIP, address: '{ip}'}}"));
        node.status.as_mut().unwrap().addresses = Some(addresses.iter().map(internal).collect());
        let mut taken = BTreeSet::new();
        let services = "[{spec: {clusterIP: 203.0.113.9, externalIPs: [192.0.2.50]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.51}]}}}]";
        list::<Service>(services).iter().for_each(|service| taken.extend(service_addresses(service)));
        let slices = "[{metadata: {namespace: default, name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}, \
                      addressType: IPv4, endpoints: [{addresses: [192.0.2.10]}]}, {metadata: {namespace: shop, name: x, \
                      labels: {kubernetes.io/service-name: kubernetes}}, addressType: IPv4, endpoints: [{addresses: [192.0.2.1]}]}]";
        list::<EndpointSlice>(slices).iter().for_each(|slice| taken.extend(server_addresses(slice)));
        taken.insert("192.0.2.2".parse().unwrap());
        let ranges = list("[{metadata: {name: kubernetes}, spec: {cidrs: [10.43.0.0/16]}}]");
        let pods = vec!["10.42.0.0/24".parse().unwrap(), "fd42::/64".parse().unwrap()];
        Snapshot { request: Arc::new(request), node: Some(Arc::new(node)), taken, ranges, pods }
    }

    #[test]
    fn a_node_of_a_cluster_of_both_families_gets_one_address_of_the_other() {
        const SIX: &str = "2001:db8::1";
        const BOTH: &str = "[10.43.0.0/16, 'fd43::/112']";
        let check = |ranges: &str, addresses: &[&str], peer: Option<&str>, ips: &[&str], expected: bool| {
            let mut snapshot = snapshot(addresses, peer, ips, &["a"]);
            snapshot.ranges =
                list(&format!("[{{metadata: {{name: kubernetes}}, spec: {{cidrs: {ranges}}}}}]"));
            snapshot.taken.insert("2001:db8::2".parse().unwrap());
            let plan = render(&plan(&snapshot, noon()));
            assert_eq!(!plan.is_empty(), expected, "{ranges} {addresses:?} {peer:?} {ips:?}");
        };
        let own = [OWN, SIX];
        check(BOTH, &own, Some(OWN), &own, true);
        check(BOTH, &own, Some(SIX), &own, true);
        // It may have come to the server by the family that is not its first.
        check(BOTH, &own, Some(SIX), &[OWN], true);
        check("[10.43.0.0/16]", &own, Some(OWN), &own, false);
        check("['fd43::/112']", &own, Some(SIX), &own, false);
        check("['fd43::/112']", &own, Some(SIX), &[SIX], true);
        // From nowhere, from elsewhere, and from another's address.
        check(BOTH, &own, None, &own, false);
        check(BOTH, &own, Some("192.0.2.7"), &own, false);
        check(BOTH, &["192.0.2.2", SIX], Some("192.0.2.2"), &[SIX], false);
        check(BOTH, &[OWN], Some(OWN), &own, false);
        let two = [OWN, SIX, "2001:db8::3"];
        check(BOTH, &two, Some(OWN), &two, false);
        check(BOTH, &[OWN, "192.0.2.3", SIX], Some(SIX), &[OWN, "192.0.2.3", SIX], false);
        let lies = [
            "2001:db8::2",
            "fd43::1",
            "fd43::77",
            "fd42::7",
            "fe80::1",
            "::1",
            "::",
            "ff02::1",
            "::ffff:192.0.2.1",
            "192.0.2.3",
        ];
        for lie in lies {
            check(BOTH, &[OWN, lie], Some(OWN), &[OWN, lie], false);
        }
    }

    #[test]
    fn a_node_gets_its_own_name_and_the_address_that_it_asks_from() {
        let check = |addresses: &[&str], peer: Option<&str>, ips: &[&str], dns: &[&str], expected: bool| {
            let plan = render(&plan(&snapshot(addresses, peer, ips, dns), noon()));
            assert_eq!(!plan.is_empty(), expected, "{addresses:?} {peer:?} {ips:?} {dns:?}");
        };
        let lies = [
            "192.0.2.10",
            "192.0.2.2",
            "192.0.2.50",
            "192.0.2.51",
            "203.0.113.9",
            "10.43.0.1",
            "10.43.0.77",
            "127.0.0.1",
            "0.0.0.0",
            "169.254.1.1",
            "::1",
            "::ffff:192.0.2.1",
            "fe80::1",
            OWN,
        ];
        check(&[OWN], Some(OWN), &[OWN], &["a"], true);
        check(&[OWN], Some(OWN), &[OWN], &[], true);
        check(&[OWN, "192.0.2.3"], Some(OWN), &[OWN, "192.0.2.3"], &["a"], false);
        check(&[OWN], None, &[OWN], &["a"], false);
        check(&[OWN], Some("nonsense"), &[OWN], &["a"], false);
        check(&[], Some(OWN), &[OWN], &["a"], false);
        for name in ["kubernetes", "kubernetes.default", "localhost", "b"] {
            check(&[OWN], Some(OWN), &[OWN], &[name], false);
            check(&[OWN], Some(OWN), &[OWN], &["a", name], false);
        }
        for lie in lies.into_iter().filter(|lie| *lie != OWN) {
            check(&lies, Some(OWN), &[lie], &["a"], false);
            check(&lies, Some(OWN), &[OWN, lie], &["a"], false);
            // Even if it seems to come from there.
            check(&lies, Some(lie), &[lie], &["a"], false);
        }
    }

    #[test]
    fn only_a_node_that_is_there_is_approved_and_only_for_itself() {
        let check = |change: fn(&mut Snapshot), expected: bool| {
            let mut snapshot = snapshot(&[OWN], Some(OWN), &[OWN], &["a"]);
            change(&mut snapshot);
            assert_eq!(!render(&plan(&snapshot, noon())).is_empty(), expected);
        };
        check(|_| {}, true);
        check(|s| s.node = None, false);
        check(|s| Arc::make_mut(&mut s.request).spec.username = Some("system:node:b".into()), false);
        check(|s| Arc::make_mut(&mut s.request).spec.groups = None, false);
        check(|s| Arc::make_mut(&mut s.request).spec.usages = Some(vec!["client auth".into()]), false);
        let two = |s: &mut Snapshot| {
            let extra = Arc::make_mut(&mut s.request).spec.extra.as_mut().unwrap();
            extra.get_mut(auth::PEER_ADDRESS).unwrap().push("192.0.2.9".into());
        };
        check(two, false);
    }
}
