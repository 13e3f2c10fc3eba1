//! Clusters of IPv6, of both families, and of both with IPv6 first: what works over IPv4 works over each of them.
//!
//! Two hosts, a server and an agent; hosts of the first cluster have no IPv4 address at all.

use std::net::IpAddr;

use testkit::clients::KUBECTLS;
use testkit::lan::Families;
use testkit::{Cluster, Lan, Process, Session, lan};

use crate::{BUSYBOX, must};

const HOSTS: u8 = 2;
const WEB: &str = include_str!("families/web.yaml");

/// A cluster's flags, and what follows from them.
struct Flavour {
    families: Families,
    flags: [&'static str; 4],
    /// The API's names of the families, the main one first.
    names: &'static [&'static str],
}

const SIX: Flavour = Flavour {
    families: Families::V6,
    flags: ["--cluster-cidr", "fd42::/56", "--service-cidr", "fd43::/112"],
    names: &["IPv6"],
};
const DUAL: Flavour = Flavour {
    families: Families::Both,
    flags: ["--cluster-cidr", "10.42.0.0/16,fd42::/56", "--service-cidr", "10.43.0.0/16,fd43::/112"],
    names: &["IPv4", "IPv6"],
};
const SIX_FIRST: Flavour = Flavour {
    families: Families::Both,
    flags: ["--cluster-cidr", "fd42::/56,10.42.0.0/16", "--service-cidr", "fd43::/112,10.43.0.0/16"],
    names: &["IPv6", "IPv4"],
};

impl Flavour {
    fn is_dual(&self) -> bool {
        self.names.len() == 2
    }

    /// A host's address of a family.
    fn host(&self, number: u8, family: &str) -> IpAddr {
        if family == "IPv6" { lan::ip6(number).into() } else { lan::ip(number).into() }
    }

    /// A host's addresses with commas between them.
    fn node_ip(&self, number: u8) -> String {
        self.names.iter().map(|family| self.host(number, family).to_string()).collect::<Vec<_>>().join(",")
    }
}

/// As it stands in a URL.
fn in_url(ip: impl std::fmt::Display) -> String {
    let text = ip.to_string();
    if text.contains(':') { format!("[{text}]") } else { text }
}

/// The command by which a client's Pod reads the page at an address or a name. busybox' wget ends by a fault where the address
/// is of IPv6; its nc does not.
fn page(client: u8, place: &str, port: u16) -> String {
    let ask = r#"printf \"GET / HTTP/1.0\\r\\n\\r\\n\""#;
    format!(
        r#"timeout 10 kubectl exec client-{client} -- sh -c "{ask} | nc -w 5 {place} {port}" | grep -o "hello from web""#
    )
}

fn is_of(ip: &str, family: &str) -> bool {
    ip.contains(':') == (family == "IPv6")
}

/// A server, an agent, and a session in the namespace `families`.
struct Stand {
    flavour: Flavour,
    wire: Lan,
    server: Cluster,
    agent: Cluster,
    node: Process,
}

impl Stand {
    /// The agent comes to the server by its last family.
    fn new(flavour: Flavour) -> Self {
        let wire = must(Lan::of(HOSTS, flavour.families));
        let mut hosts: Vec<Cluster> =
            (0..HOSTS).map(|n| must(Cluster::on_host(env!("CARGO_BIN_EXE_knarr"), &wire, n))).collect();
        for host in &mut hosts {
            must(host.import_busybox(BUSYBOX));
        }
        let (agent, mut server) = (hosts.remove(1), hosts.remove(0));
        let up = ["up", "--node-ip", &flavour.node_ip(0), "--node-name", "host-0"];
        must(server.knarr(&[&up[..], &flavour.flags].concat()));
        let told = must(server.knarr(&["token", "create"]));
        let token = told.lines().next().unwrap();
        let by = flavour.names.last().unwrap();
        let url = format!("https://{}:6443", in_url(flavour.host(0, by)));
        let folder = agent.data_dir().display().to_string();
        let flags = ["agent", "--server", &url, "--token", token, "--node-ip", &flavour.node_ip(1)];
        let node = must(
            agent.start("agent", &[&flags[..], &["--node-name", "host-1", "--data-dir", &folder]].concat()),
        );
        Self { flavour, wire, server, agent, node }
    }

    fn session(&self) -> Session<'_> {
        let session = must(Session::new(&self.server, KUBECTLS[1], "families"));
        must(session.must("eventually '[ $(kubectl get nodes -o name | wc -l) = 2 ]'"));
        must(session.must("kubectl wait --for=condition=Ready node --all --timeout=60s"));
        session
    }

    /// Every page of a client that asks somebody is that of the Deployment.
    fn prove(&self) {
        let session = self.session();
        std::fs::write(session.folder().join("web.yaml"), WEB).unwrap();
        must(
            session.must("kubectl apply -f web.yaml && kubectl rollout status deployment/web --timeout=90s"),
        );
        for host in 0..HOSTS {
            must(session.must(&format!(
                "kubectl run client-{host} --image={BUSYBOX} --overrides='{{\"spec\":{{\"nodeName\":\"host-{host}\"}}}}' -- sleep 3600"
            )));
        }
        must(session.must("kubectl wait --for=condition=Ready pod --all --timeout=60s"));
        self.objects(&session);
        for family in self.flavour.names {
            self.service_of(&session, family);
        }
        self.streams(&session);
        self.names(&session);
        if self.flavour.is_dual() {
            self.there_and_back(&session);
        }
        must(
            session.must(
                "kubectl delete service --all --timeout=60s && kubectl delete -f web.yaml --timeout=60s",
            ),
        );
        must(session.must("kubectl delete pods --all --timeout=60s --wait=false"));
    }

    /// Addresses of both families, the main one first, are where users look for them.
    fn objects(&self, session: &Session<'_>) {
        let list = |what: &str, path: &str| -> Vec<String> {
            let text = must(session.must(&format!("kubectl get {what} -o jsonpath='{path}'")));
            text.split_whitespace().map(str::to_owned).collect()
        };
        let main = self.flavour.names[0];
        for host in 0..HOSTS {
            let node = format!("node host-{host}");
            let addresses = list(&node, "{.status.addresses[?(@.type==\"InternalIP\")].address}");
            assert_eq!(addresses.join(","), self.flavour.node_ip(host));
            let cidrs = list(&node, "{.spec.podCIDRs[*]}");
            let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).collect();
            assert_eq!(cidrs.len(), self.flavour.names.len(), "{cidrs:?}");
            assert!(
                cidrs.iter().zip(self.flavour.names).all(|(cidr, family)| is_of(cidr, family)),
                "{cidrs:?}"
            );
            let pod = format!("pod client-{host}");
            let ips = list(&pod, "{.status.podIPs[*].ip}");
            assert_eq!(ips.len(), self.flavour.names.len(), "{ips:?}");
            assert!(ips.iter().zip(self.flavour.names).all(|(ip, family)| is_of(ip, family)), "{ips:?}");
            assert_eq!(list(&pod, "{.status.hostIPs[*].ip}").join(","), self.flavour.node_ip(host));
            let wide = must(session.must(&format!("kubectl get {node} {pod} -o wide 2>/dev/null || kubectl get {node} -o wide && kubectl get {pod} -o wide")));
            assert!(
                wide.contains(&self.flavour.host(host, main).to_string()) && wide.contains(&ips[0]),
                "{wide}"
            );
        }
        let kubernetes = list("service kubernetes -n default", "{.spec.clusterIPs[*]}");
        assert!(kubernetes.len() == 1 && is_of(&kubernetes[0], main), "{kubernetes:?}");
        let ends = list("endpointslice kubernetes -n default", "{.addressType} {.endpoints[*].addresses[*]}");
        assert_eq!(ends.join(" "), format!("{main} {}", self.flavour.host(0, main)));
    }

    /// A Service of one family: its address, its names, a port of each Node, and its Pods themselves.
    fn service_of(&self, session: &Session<'_>, family: &str) {
        let name = family.to_lowercase();
        let service = format!(
            "kubectl create -f - <<'EOF'\n\
             {{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{type: NodePort, selector: {{app: web}}, ipFamilies: [{family}], \
             ports: [{{port: 80, targetPort: 8080}}]}}}}\n---\n\
             {{apiVersion: v1, kind: Service, metadata: {{name: bare-{name}}}, spec: {{clusterIP: None, selector: {{app: web}}, \
             ipFamilies: [{family}], ports: [{{port: 8080}}]}}}}\nEOF"
        );
        must(session.must(&service));
        let slices = format!(
            "kubectl get endpointslices -l kubernetes.io/service-name={name} -o jsonpath='{{.items[*].addressType}} {{.items[*].endpoints[*].addresses[*]}}'"
        );
        let found = must(session.must(&format!(
            "eventually '[ $({slices} | wc -w) = 3 ] && {slices}'",
            slices = slices.replace('\'', "\"")
        )));
        let ips: Vec<&str> = found.split_whitespace().collect();
        assert!(ips[0] == family && ips[1..].iter().all(|ip| is_of(ip, family)), "{found}");
        let address =
            must(session.must(&format!("kubectl get service {name} -o jsonpath='{{.spec.clusterIP}}'")));
        assert!(is_of(&address, family), "{address}");
        let mut places: Vec<(String, u16)> = ips[1..].iter().map(|ip| ((*ip).to_owned(), 8080)).collect();
        let named = [address.clone(), name.clone(), format!("{name}.families.svc.cluster.local")];
        places.extend(named.map(|place| (place, 80)));
        places.push((format!("bare-{name}"), 8080));
        for (client, (place, port)) in (0..HOSTS).flat_map(|client| places.iter().map(move |at| (client, at)))
        {
            must(session.must(&format!("eventually '{}'", page(client, place, *port))));
        }
        let port = must(
            session.must(&format!("kubectl get service {name} -o jsonpath='{{.spec.ports[0].nodePort}}'")),
        );
        for host in 0..HOSTS {
            let url = format!("http://{}:{port}/", in_url(self.flavour.host(host, family)));
            must(session.must(&format!(
                "eventually 'curl --silent --fail --max-time 5 -g \"{url}\" | grep -o \"hello from web\"'"
            )));
            // From the wire, where no Node is.
            let page = self
                .wire
                .command(None, "curl")
                .args(["--silent", "--fail", "--max-time", "5", "-g", &url])
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&page.stdout).contains("hello from web"), "{url}: {page:?}");
        }
        let through = format!("kubectl get --raw /api/v1/namespaces/families/services/{name}:80/proxy/");
        must(session.must(&format!("{through} | grep -o 'hello from web'")));
    }

    /// The API server reaches kubelets and Pods, those of the other host, too.
    fn streams(&self, session: &Session<'_>) {
        for host in 0..HOSTS {
            must(session.must(&format!("kubectl exec client-{host} -- hostname | grep -x client-{host}")));
        }
        must(session.must("for pod in $(kubectl get pods -l app=web -o name); do kubectl logs $pod | grep 'listens on port'; done"));
        must(session.must(
            "for pod in $(kubectl get pods -l app=web -o name); do kubectl get --raw /api/v1/namespaces/families/pods/${pod#pod/}:8080/proxy/ | grep -o 'hello from web'; done",
        ));
        must(session.must(
            "pod=$(kubectl get pods -l app=web -o name | head -n 1); kubectl port-forward $pod 18080:8080 >forward.log 2>&1 & forward=$!; \
             eventually 'curl --silent --fail --max-time 5 http://127.0.0.1:18080/ | grep -o \"hello from web\"'; done=$?; kill $forward; \
             [ $done = 0 ] || { cat forward.log; false; }",
        ));
        // What a Pod is told of the API server is where it is.
        let get = "kubectl exec client-1 -- sh -c 'echo $KUBERNETES_SERVICE_HOST'";
        let host = must(session.must(get));
        assert!(is_of(host.trim(), self.flavour.names[0]), "{host}");
    }

    /// DNS answers at an address of each family, for names of each.
    fn names(&self, session: &Session<'_>) {
        let told = must(session.must("kubectl exec client-1 -- cat /etc/resolv.conf"));
        let servers: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("nameserver ")).collect();
        assert_eq!(servers.len(), self.flavour.names.len(), "{told}");
        assert!(servers.iter().zip(self.flavour.names).all(|(ip, family)| is_of(ip, family)), "{told}");
        for server in servers {
            for family in self.flavour.names {
                let name = format!("{}.families.svc.cluster.local", family.to_lowercase());
                let kind = if *family == "IPv6" { "aaaa" } else { "a" };
                let found = must(session.must(&format!(
                    "kubectl exec client-1 -- nslookup -type={kind} {name} {server} || true"
                )));
                let address = must(session.must(&format!(
                    "kubectl get service {} -o jsonpath='{{.spec.clusterIP}}'",
                    family.to_lowercase()
                )));
                assert!(found.contains(&address), "{name} at {server}: {found}");
                let back = must(
                    session.must(&format!("kubectl exec client-1 -- nslookup {address} {server} || true")),
                );
                assert!(back.contains(&name), "{address} at {server}: {back}");
            }
        }
    }

    /// A Service of one family gets the other, and loses it again.
    fn there_and_back(&self, session: &Session<'_>) {
        let (main, other) = (self.flavour.names[0], self.flavour.names[1]);
        must(session.must(
            "kubectl expose deployment web --name=turning --type=NodePort --port=80 --target-port=8080",
        ));
        let ips = |what: &str| -> Vec<String> {
            let text =
                must(session.must(&format!("kubectl get service turning -o jsonpath='{{.spec.{what}[*]}}'")));
            text.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(ips("ipFamilies"), [main]);
        let change = |policy: &str| {
            must(session.must(&format!(
                "kubectl patch service turning -p '{{\"spec\":{{\"ipFamilyPolicy\":\"{policy}\"}}}}'"
            )))
        };
        for _ in 0..2 {
            change("RequireDualStack");
            let both = ips("clusterIPs");
            assert!(both.len() == 2 && is_of(&both[0], main) && is_of(&both[1], other), "{both:?}");
            for ip in &both {
                must(session.must(&format!("eventually '{}'", page(1, ip, 80))));
            }
            let port =
                must(session.must("kubectl get service turning -o jsonpath='{.spec.ports[0].nodePort}'"));
            let url = format!("http://{}:{port}/", in_url(self.flavour.host(1, other)));
            let curl = format!("curl --silent --fail --max-time 2 -g \"{url}\"");
            must(session.must(&format!("eventually '{curl} | grep -o \"hello from web\"'")));
            change("SingleStack");
            assert_eq!(ips("clusterIPs"), [both[0].clone()]);
            must(session.must(&format!("eventually '! {curl}' && eventually '! {}'", page(1, &both[1], 80))));
            must(session.must(&format!("eventually '{}'", page(1, &both[0], 80))));
        }
    }

    fn remove(self) {
        must(self.node.stop());
        must(self.agent.remove());
        must(self.server.remove());
        drop(self.wire);
    }
}

#[test]
fn a_cluster_of_ipv6_works_on_hosts_without_ipv4() {
    let stand = Stand::new(SIX);
    stand.prove();
    stand.remove();
}

#[test]
fn a_cluster_of_both_families_works_over_each() {
    let stand = Stand::new(DUAL);
    stand.prove();
    stand.remove();
}

#[test]
fn a_cluster_of_both_families_may_have_ipv6_first() {
    let stand = Stand::new(SIX_FIRST);
    stand.prove();
    stand.remove();
}
