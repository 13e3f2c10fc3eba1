//! Whether flags make sense together: what clap cannot see. Pure: nothing here looks at the host.
//!
//! A message names the flag, says what it must be, and is one line.

mod networks;
pub mod node_ip;

use std::net::IpAddr;

use machinery::leader_election::LeaderElection;
use machinery::net::{Cidrs, Family};

use crate::args::{Part, ProxyMode, ServerArgs};
use crate::usage_error::UsageError;

/// Checks the flags of `server` and `up`.
///
/// # Errors
/// The first flag that cannot be.
pub fn server(args: &ServerArgs) -> Result<(), UsageError> {
    networks::check(args)?;
    node_ip::check(&args.node_ip, args.cluster_cidr, args.service_cidr)?;
    nodes(args)?;
    cloud(args)?;
    networks::balancer_pool(args)?;
    if args.https_listen_port == 0 {
        return Err(UsageError("--https-listen-port 0 must be between 1 and 65535".into()));
    }
    if let Some(name) = &args.node_name
        && !is_subdomain(name)
    {
        return Err(UsageError(format!(
            "--node-name {name} must consist of lower case alphanumeric characters, '-' or '.', and must start and \
             end with an alphanumeric character"
        )));
    }
    args.container_runtime.handlers()?;
    if let Some(endpoint) = &args.container_runtime.container_runtime_endpoint
        && !endpoint.strip_prefix("unix://").unwrap_or(endpoint).starts_with('/')
    {
        return Err(UsageError(format!(
            "--container-runtime-endpoint {endpoint} must be a unix socket, such as \
             unix:///run/containerd/containerd.sock"
        )));
    }
    if !is_subdomain(&args.cluster_domain) {
        return Err(UsageError(format!(
            "--cluster-domain {} must be a DNS domain, such as cluster.local",
            args.cluster_domain
        )));
    }
    if !u32::from_str_radix(&args.write_kubeconfig_mode, 8).is_ok_and(|mode| mode <= 0o777) {
        return Err(UsageError(format!(
            "--write-kubeconfig-mode {} must be octal, such as 600",
            args.write_kubeconfig_mode
        )));
    }
    if let Some(name) = args.tls_san.iter().find(|name| !is_name_or_address(name)) {
        return Err(UsageError(format!("--tls-san {name} must be a DNS name or an IP address")));
    }
    kubelet(args)?;
    ingress(args)?;
    args.node_ports.networks()?;
    proxy_mode(args)?;
    let controllers = crate::controller_manager::OptionArgs::from_pairs(&args.kube_controller_manager_arg);
    controllers.map_err(|error| UsageError(error.to_string()))?;
    if args.runs(Part::Dns) && !args.runs(Part::Proxy) {
        return Err(UsageError(format!(
            "--disable proxy needs --disable dns: the built-in DNS answers at an address that the proxy puts on this \
             host; say --disable proxy,dns and run a DNS server behind a Service with the cluster IP {}, which Pods \
             ask (--cluster-dns)",
            networks::list(&args.dns_addresses())
        )));
    }
    Ok(())
}

/// The reason why there are no network policies on a Node with IPVS.
pub const WITHOUT_POLICIES: &str =
    "they judge what a host forwards, and what IPVS leads to a Pod the host sends itself";

/// Nobody believes in policies that see nothing.
fn proxy_mode(args: &ServerArgs) -> Result<(), UsageError> {
    let is_ipvs = args.proxy_mode.proxy_mode == ProxyMode::Ipvs && args.runs(Part::Proxy);
    if !(is_ipvs && args.runs(Part::NetworkPolicy) && args.runs(Part::Kubelet)) {
        return Ok(());
    }
    Err(UsageError(format!(
        "--proxy-mode ipvs needs --disable network-policy, as network policies have no effect then: \
         {WITHOUT_POLICIES}; or choose --proxy-mode nftables"
    )))
}

/// Its ports are nobody else's.
fn ingress(args: &ServerArgs) -> Result<(), UsageError> {
    if !args.runs(Part::Ingress) {
        return Ok(());
    }
    let (ports, api) = (&args.ingress, ("--https-listen-port", args.https_listen_port));
    let own = [
        ("--ingress-http-port", ports.ingress_http_port),
        ("--ingress-https-port", ports.ingress_https_port),
        ("--ingress-metrics-port", ports.ingress_metrics_port),
    ];
    for (index, (flag, port)) in own.into_iter().enumerate().filter(|(_, (_, port))| *port != 0) {
        let others = own.into_iter().skip(index + 1).chain([api]);
        if let Some((other, _)) = others.into_iter().find(|(_, other)| *other == port) {
            return Err(UsageError(format!("{flag} and {other} must differ")));
        }
    }
    Ok(())
}

/// More Nodes than that on one host are of no use to anybody.
const NODES_MAX: u16 = 100;

/// Nodes on one host differ in their network alone: what there is once on a host is one Node's.
fn nodes(args: &ServerArgs) -> Result<(), UsageError> {
    let wrong = |text: String| Err(UsageError(text));
    if let Some(cidrs) = args.nodes_cidr {
        nodes_cidr(args, cidrs)?;
    }
    let network = &args.network;
    if network.vxlan_vni == 0 || network.vxlan_vni >= 1 << 24 {
        return wrong(format!("--vxlan-vni {} must be between 1 and {}", network.vxlan_vni, (1 << 24) - 1));
    }
    if network.wireguard_port == 0 {
        return wrong("--wireguard-port 0 must be between 1 and 65535".to_owned());
    }
    if network.vxlan_port == 0 {
        return wrong("--vxlan-port 0 must be between 1 and 65535".to_owned());
    }
    let Some(nodes) = args.nodes else { return Ok(()) };
    if nodes == 0 || nodes > NODES_MAX {
        return wrong(format!("--nodes {nodes} must be between 1 and {NODES_MAX}"));
    }
    if nodes == 1 {
        return Ok(());
    }
    if !args.runs(Part::Agent) {
        return wrong(format!("--nodes {nodes} must be 1, or not given, without a Node (--disable-agent)"));
    }
    if args.bind_address.is_loopback() {
        return wrong(format!("--bind-address {} must be one that all --nodes reach", args.bind_address));
    }
    if args.container_runtime.container_runtime_endpoint.is_some() {
        return wrong(format!(
            "--nodes {nodes} must be 1 with --container-runtime-endpoint: it serves one Node"
        ));
    }
    if args.kubelet_arg.iter().any(|arg| arg.starts_with("root-dir=")) {
        return wrong(format!(
            "--kubelet-arg root-dir must not be given with --nodes {nodes}: each has its own"
        ));
    }
    Ok(())
}

/// Of each family of the cluster, a network that is nobody else's.
fn nodes_cidr(args: &ServerArgs, cidrs: Cidrs) -> Result<(), UsageError> {
    let wrong = |text: String| Err(UsageError(text));
    let room = u64::from(args.nodes.unwrap_or(2)) + 2;
    for cidr in cidrs.iter() {
        let (family, bits_min, like) = match cidr.family() {
            Family::V4 => ("IPv4", 8, "10.44.0.0/24"),
            Family::V6 => ("IPv6", 16, "fd44::/64"),
        };
        if args.cluster_cidr.of(cidr.family()).is_none() {
            return wrong(format!(
                "--nodes-cidr {cidrs} must be of the families of --cluster-cidr {}: Nodes have no {family} addresses",
                args.cluster_cidr
            ));
        }
        if cidr.bits() < bits_min || cidr.size() < room.max(8) {
            return wrong(format!(
                "--nodes-cidr {cidr} must be an {family} network with room for {room} addresses, such as {like}"
            ));
        }
        if cidr != cidr.network() {
            return wrong(format!(
                "--nodes-cidr {cidr} must be a network's first address: {}",
                cidr.network()
            ));
        }
        for (flag, other) in [("cluster", args.cluster_cidr), ("service", args.service_cidr)] {
            if other.overlaps(cidr.into()) {
                return wrong(format!("--nodes-cidr {cidr} and --{flag}-cidr {other} overlap"));
            }
        }
        if args.node_ip.iter().any(|ip| cidr.contains(*ip)) {
            return wrong(format!(
                "--nodes-cidr {cidr} must be a network of its own: it has --node-ip in it"
            ));
        }
    }
    match args.cluster_cidr.iter().find(|cidr| cidrs.of(cidr.family()).is_none()) {
        Some(missing) => wrong(format!(
            "--nodes-cidr {cidrs} must have an {} network, too, as --cluster-cidr {} has",
            missing.family().as_str(),
            args.cluster_cidr
        )),
        None => Ok(()),
    }
}

/// Flags of the kubelet are known before anything starts.
fn kubelet(args: &ServerArgs) -> Result<(), UsageError> {
    if let Some((taint, flaw)) =
        crate::taint::first_flaw(args.registration.node_taint.iter().map(String::as_str))
    {
        return Err(UsageError(format!("--node-taint {taint} {flaw}")));
    }
    let arguments = args.registration.kubelet_args(&args.kubelet_arg);
    let read = crate::kubelet::ConfigurationArgs::from_pairs(&arguments);
    let read = read.map_err(|error| UsageError(error.to_string()))?;
    if read.port.is_some_and(|port| port == args.https_listen_port) {
        return Err(UsageError("--kubelet-arg port and --https-listen-port must differ".to_owned()));
    }
    Ok(())
}

/// Who asks a cloud must have one, and nobody else gives away its load balancers.
fn cloud(args: &ServerArgs) -> Result<(), UsageError> {
    args.cloud.options().map_err(|error| UsageError(error.to_string()))?;
    let has_cloud = args.has_cloud();
    if args.cloud.cloud_provider_endpoint.is_some() && !has_cloud {
        return Err(UsageError(
            "--cloud-provider-endpoint needs --cloud-provider external: Nodes wait for what their cloud says of them".to_owned(),
        ));
    }
    if args.cloud.cloud_provider_endpoint.is_none() && !args.cloud.cloud_controller_manager_arg.is_empty() {
        return Err(UsageError(
            "--cloud-controller-manager-arg needs --cloud-provider-endpoint: the cloud's controllers do not run here".to_owned(),
        ));
    }
    if has_cloud && !args.servicelb_pool.is_empty() {
        return Err(UsageError(
            "--servicelb-pool must not be given with --cloud-provider external: load balancers are the cloud's".to_owned(),
        ));
    }
    Ok(())
}

/// A wildcard is a DNS name of a certificate, too.
fn is_name_or_address(name: &str) -> bool {
    let name_only = name.strip_prefix("*.").unwrap_or(name).to_lowercase();
    name.parse::<IpAddr>().is_ok() || is_subdomain(&name_only)
}

/// RFC 1123, as `metadata.name` of a Node has it.
fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let of_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(of_label) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Checks how leaders are elected. Source: `LeaderElectionConfig`, `NewLeaderElector`.
///
/// # Errors
/// The first that cannot be.
pub fn leader_election(election: &LeaderElection) -> Result<(), UsageError> {
    let names = [("name", &election.name), ("namespace", &election.namespace)];
    if let Some((what, _)) = names.into_iter().find(|(_, name)| name.is_empty()) {
        return Err(UsageError(format!("--leader-elect-resource-{what} must not be empty")));
    }
    if election.lease_duration.as_secs() < 1 {
        return Err(UsageError("--leader-elect-lease-duration must be 1s or longer".into()));
    }
    if election.retry_period.is_zero() {
        return Err(UsageError("--leader-elect-retry-period must be longer than 0s".into()));
    }
    if election.lease_duration <= election.renew_deadline {
        return Err(UsageError(
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline".into(),
        ));
    }
    if election.renew_deadline <= election.retry_period.mul_f64(1.2) {
        return Err(UsageError(
            "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period".into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Cli, Command};
    use clap::Parser;

    pub(super) fn check(flags: &str, expected: &str) {
        let words = ["knarr", "up"].into_iter().chain(flags.split_whitespace());
        let Command::Up(args) = Cli::try_parse_from(words).expect(flags).command else { panic!("not up") };
        let found = server(&args).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found, expected, "{flags}");
    }

    #[test]
    fn who_asks_a_cloud_has_one() {
        check("--cloud-provider external --cloud-provider-endpoint unix:///run/cloud.sock", "");
        check("--kubelet-arg cloud-provider=external --cloud-provider-endpoint /run/cloud.sock", "");
        check(
            "--cloud-provider-endpoint /run/cloud.sock",
            "--cloud-provider-endpoint needs --cloud-provider external: Nodes wait for what their cloud says of them",
        );
        check(
            "--cloud-provider external --cloud-controller-manager-arg node-monitor-period=1s",
            "--cloud-controller-manager-arg needs --cloud-provider-endpoint: the cloud's controllers do not run here",
        );
        check(
            "--cloud-provider external --servicelb-pool 198.51.100.0/24",
            "--servicelb-pool must not be given with --cloud-provider external: load balancers are the cloud's",
        );
    }

    #[test]
    fn sound_flags_are_sound() {
        check("", "");
        check("--node-ip 192.0.2.1 --node-name a.b-1 --disable proxy,dns", "");
        check("--cluster-cidr 10.0.0.0/16 --service-cidr 10.1.0.0/24 --cluster-dns 10.1.0.2", "");
    }

    #[test]
    fn ports_for_ingresses_are_nobody_elses() {
        check("--ingress-http-port 6443", "--ingress-http-port and --https-listen-port must differ");
        check("--ingress-https-port 80", "--ingress-http-port and --ingress-https-port must differ");
        check("--ingress-metrics-port 443", "--ingress-https-port and --ingress-metrics-port must differ");
        check("--ingress-http-port 0 --ingress-https-port 0 --ingress-metrics-port 0", "");
        check("--ingress-http-port 6443 --disable ingress", "");
        check("--ingress-http-port 6443 --disable-agent", "");
    }

    #[test]
    fn a_nodes_addresses_are_repeated_or_have_commas_between_them() {
        const DUAL: &str = "--cluster-cidr 10.42.0.0/16,fd42::/56 --service-cidr 10.43.0.0/16,fd43::/112";
        check(&format!("{DUAL} --node-ip 192.0.2.1,2001:db8::1"), "");
        check(&format!("{DUAL} --node-ip 192.0.2.1 --node-ip 2001:db8::1"), "");
        check(
            &format!("{DUAL} --node-ip 192.0.2.1"),
            "--node-ip 192.0.2.1 must have an IPv6 address, as Pods of --cluster-cidr 10.42.0.0/16,fd42::/56 have",
        );
        check("--node-ip 10.42.3.4", "--node-ip 10.42.3.4 must lie outside --cluster-cidr 10.42.0.0/16");
        check(&format!("{DUAL} --nodes 3 --nodes-cidr 10.44.0.0/24,fd44::/64"), "");
        check(
            &format!("{DUAL} --nodes 3 --nodes-cidr 10.44.0.0/24"),
            "--nodes-cidr 10.44.0.0/24 must have an IPv6 network, too, as --cluster-cidr 10.42.0.0/16,fd42::/56 has",
        );
        check(
            &format!("{DUAL} --nodes 3 --nodes-cidr 10.44.0.0/24,fd42::/64"),
            "--nodes-cidr fd42::/64 and --cluster-cidr 10.42.0.0/16,fd42::/56 overlap",
        );
        check(
            &format!("{DUAL} --nodes 7 --nodes-cidr 10.44.0.0/24,fd44::/125"),
            "--nodes-cidr fd44::/125 must be an IPv6 network with room for 9 addresses, such as fd44::/64",
        );
    }

    #[test]
    fn nodes_on_one_host_have_a_network_of_their_own() {
        check("--nodes 3 --nodes-cidr 10.44.0.0/29 --node-ip 192.0.2.1", "");
        check("--nodes 1 --disable-agent", "");
        check("--nodes 0", "--nodes 0 must be between 1 and 100");
        check("--nodes 101", "--nodes 101 must be between 1 and 100");
        check(
            "--nodes 2 --disable-agent",
            "--nodes 2 must be 1, or not given, without a Node (--disable-agent)",
        );
        check(
            "--nodes 2 --bind-address 127.0.0.1",
            "--bind-address 127.0.0.1 must be one that all --nodes reach",
        );
        check(
            "--nodes 2 --container-runtime-endpoint unix:///run/c.sock",
            "--nodes 2 must be 1 with --container-runtime-endpoint: it serves one Node",
        );
        check(
            "--nodes 2 --kubelet-arg root-dir=/x",
            "--kubelet-arg root-dir must not be given with --nodes 2: each has its own",
        );
        check(
            "--nodes 7 --nodes-cidr 10.44.0.0/29",
            "--nodes-cidr 10.44.0.0/29 must be an IPv4 network with room for 9 addresses, such as 10.44.0.0/24",
        );
        check(
            "--nodes-cidr fd44::/112",
            "--nodes-cidr fd44::/112 must be of the families of --cluster-cidr 10.42.0.0/16: Nodes have no IPv6 addresses",
        );
        check(
            "--nodes-cidr 10.44.0.7/24",
            "--nodes-cidr 10.44.0.7/24 must be a network's first address: 10.44.0.0/24",
        );
        check(
            "--nodes-cidr 10.42.7.0/24",
            "--nodes-cidr 10.42.7.0/24 and --cluster-cidr 10.42.0.0/16 overlap",
        );
        check(
            "--nodes-cidr 192.0.2.0/24 --node-ip 192.0.2.1",
            "--nodes-cidr 192.0.2.0/24 must be a network of its own: it has --node-ip in it",
        );
    }

    #[test]
    fn node_ports_are_at_the_nodes_address_or_in_networks() {
        check("--nodeport-addresses 192.0.2.0/24,127.0.0.0/8", "");
        check("--nodeport-addresses primary", "");
        check(
            "--nodeport-addresses primary,192.0.2.0/24",
            "--nodeport-addresses must be networks or primary, not both",
        );
    }

    #[test]
    fn ipvs_needs_policies_to_be_somebody_elses() {
        check("--proxy-mode iptables", "");
        check("--proxy-mode ipvs --disable network-policy --ipvs-scheduler lc", "");
        check("--proxy-mode ipvs --disable proxy,dns", "");
        check(
            "--proxy-mode ipvs",
            "--proxy-mode ipvs needs --disable network-policy, as network policies have no effect then: they judge what a \
             host forwards, and what IPVS leads to a Pod the host sends itself; or choose --proxy-mode nftables",
        );
    }

    #[test]
    fn other_flags_name_themselves() {
        check("--vxlan-vni 0", "--vxlan-vni 0 must be between 1 and 16777215");
        check("--vxlan-vni 16777216", "--vxlan-vni 16777216 must be between 1 and 16777215");
        check("--wireguard-port 0", "--wireguard-port 0 must be between 1 and 65535");
        check("--flannel-backend wireguard-native --wireguard-key-days 0", "");
        check("--vxlan-port 0", "--vxlan-port 0 must be between 1 and 65535");
        check("--flannel-backend vxlan --vxlan-vni 4096 --vxlan-port 4789", "");
        check("--https-listen-port 0", "--https-listen-port 0 must be between 1 and 65535");
        check(
            "--node-name Web_1",
            "--node-name web_1 must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
             with an alphanumeric character",
        );
        check(
            "--cluster-domain .local",
            "--cluster-domain .local must be a DNS domain, such as cluster.local",
        );
        check("--tls-san a.example.com,192.0.2.1,*.b.example,::1", "");
        check("--tls-san a_b", "--tls-san a_b must be a DNS name or an IP address");
        check(
            "--kubelet-arg max-pots=1",
            "--kubelet-arg max-pots=1: the kubelet has no such flag; `knarr kubelet --help` lists them",
        );
        check("--node-label a=b --node-taint a=b:NoSchedule,c:NoExecute --kubelet-arg node-labels=c=d", "");
        check(
            "--node-taint a=b",
            "--node-taint a=b must be KEY=VALUE:EFFECT with an effect of NoSchedule, PreferNoSchedule, NoExecute",
        );
        check(
            "--node-label disk",
            "--kubelet-arg node-labels=disk: \"disk\" must be KEY=VALUE, such as disk=ssd",
        );
        check("--kube-controller-manager-arg node-monitor-grace-period=20s", "");
        check(
            "--kube-controller-manager-arg kubeconfig=/x",
            "--kube-controller-manager-arg kubeconfig=/x: the controllers of a server have no such flag; `knarr \
             controller-manager --help` lists all of them",
        );
        check("--kubelet-arg port=6443", "--kubelet-arg port and --https-listen-port must differ");
        check("--write-kubeconfig-mode 888", "--write-kubeconfig-mode 888 must be octal, such as 600");
        check(
            "--disable proxy",
            "--disable proxy needs --disable dns: the built-in DNS answers at an address that the proxy puts on this \
             host; say --disable proxy,dns and run a DNS server behind a Service with the cluster IP 10.43.0.10, \
             which Pods ask (--cluster-dns)",
        );
    }

    #[test]
    fn a_lease_outlives_its_renewals() {
        let check = |flags: &str, expected: &str| {
            let words =
                ["knarr", "scheduler", "--kubeconfig", "f"].into_iter().chain(flags.split_whitespace());
            let Command::Scheduler(args) = Cli::try_parse_from(words).expect(flags).command else { panic!() };
            let election = args.leader.or(LeaderElection::of("kube-scheduler"));
            let found = leader_election(&election).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{flags}");
        };
        check("", "");
        check("--leader-elect-resource-name own --leader-elect-resource-namespace there", "");
        check("--leader-elect-resource-name=", "--leader-elect-resource-name must not be empty");
        check("--leader-elect-resource-namespace=", "--leader-elect-resource-namespace must not be empty");
        check(
            "--leader-elect-lease-duration 9s",
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline",
        );
        check(
            "--leader-elect-retry-period 9s",
            "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period",
        );
    }
}
