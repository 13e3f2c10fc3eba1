//! Whether flags make sense together: what clap cannot see. Pure: nothing here looks at the host.
//!
//! A message names the flag, says what it must be, and is one line.

use std::net::IpAddr;

use machinery::net::{Cidr, Cidrs, Family};

use crate::args::{LeaderElection, Part, ServerArgs};

/// Flags that are wrong: what the command line ends with, exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The network that a flag gives to Pods or to Services: of IPv4, the only family that they have yet.
fn network(flag: &str, cidrs: Cidrs, longest: u8) -> Result<Cidr, UsageError> {
    let wrong = |must: String| Err(UsageError(format!("{flag} {cidrs} must be {must}")));
    let cidr = cidrs.main();
    if cidrs.of(Family::V6).is_some() {
        return wrong(
            "an IPv4 network, such as 10.42.0.0/16: Pods and Services have no IPv6 addresses".into(),
        );
    }
    if !(8..=longest).contains(&cidr.bits()) {
        return wrong(format!("a network with a prefix length between 8 and {longest}"));
    }
    if cidr != cidr.network() {
        return wrong(format!("a network's first address: {}", cidr.network()));
    }
    Ok(cidr)
}

/// Checks the flags of `server` and `up`.
///
/// # Errors
/// The first flag that cannot be.
pub fn server(args: &ServerArgs) -> Result<(), UsageError> {
    networks(args)?;
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
    let controllers = crate::controller_manager::OptionArgs::from_pairs(&args.kube_controller_manager_arg);
    controllers.map_err(|error| UsageError(error.to_string()))?;
    if args.runs(Part::Dns) && !args.runs(Part::Proxy) {
        return Err(UsageError(format!(
            "--disable proxy needs --disable dns: the built-in DNS answers at an address that the proxy puts on this \
             host; say --disable proxy,dns and run a DNS server behind a Service with the cluster IP {}, which Pods \
             ask (--cluster-dns)",
            args.cluster_dns
        )));
    }
    Ok(())
}

/// Flags of the kubelet are known before anything starts.
fn kubelet(args: &ServerArgs) -> Result<(), UsageError> {
    for taint in &args.registration.node_taint {
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let effect = taint.rsplit_once(':').filter(|(key, _)| !key.is_empty()).map(|(_, effect)| effect);
        if !effect.is_some_and(|effect| effects.contains(&effect)) {
            return Err(UsageError(format!(
                "--node-taint {taint} must be KEY=VALUE:EFFECT with an effect of {}",
                effects.join(", ")
            )));
        }
    }
    let arguments = args.registration.kubelet_args(&args.kubelet_arg);
    let read = crate::kubelet::ConfigurationArgs::from_pairs(&arguments);
    let read = read.map_err(|error| UsageError(error.to_string()))?;
    if read.port.is_some_and(|port| port == args.https_listen_port) {
        return Err(UsageError("--kubelet-arg port and --https-listen-port must differ".to_owned()));
    }
    Ok(())
}

/// A wildcard is a DNS name of a certificate, too.
fn is_name_or_address(name: &str) -> bool {
    let name_only = name.strip_prefix("*.").unwrap_or(name).to_lowercase();
    name.parse::<IpAddr>().is_ok() || is_subdomain(&name_only)
}

fn networks(args: &ServerArgs) -> Result<(), UsageError> {
    let pods = network("--cluster-cidr", args.cluster_cidr, 24)?;
    let services = network("--service-cidr", args.service_cidr, 28)?;
    if pods.overlaps(services) {
        return Err(UsageError(format!(
            "--cluster-cidr {} and --service-cidr {} overlap: give Pods and Services addresses of their own",
            args.cluster_cidr, args.service_cidr
        )));
    }
    let dns = args.cluster_dns;
    if !services.contains(dns) {
        return Err(UsageError(format!(
            "--cluster-dns {dns} must be an address of --service-cidr {services}"
        )));
    }
    if [services.nth(0), services.nth(1), Some(services.last())].contains(&Some(dns)) {
        return Err(UsageError(format!(
            "--cluster-dns {} must be free: the first two addresses and the last of --service-cidr are taken",
            args.cluster_dns
        )));
    }
    let Some(ip) = args.node_ip else { return Ok(()) };
    let wrong = |must: String| UsageError(format!("--node-ip {ip} must {must}"));
    match ip {
        IpAddr::V6(_) => Err(wrong("be an IPv4 address: Pods have no other".into())),
        IpAddr::V4(ip)
            if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() =>
        {
            Err(wrong("be an address that other machines could reach".into()))
        }
        _ if pods.contains(ip) => Err(wrong(format!("lie outside --cluster-cidr {pods}"))),
        _ if services.contains(ip) => Err(wrong(format!("lie outside --service-cidr {services}"))),
        IpAddr::V4(_) => Ok(()),
    }
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
mod tests {
    use super::*;
    use crate::{Cli, Command};
    use clap::Parser;

    fn check(flags: &str, expected: &str) {
        let words = ["knarr", "up"].into_iter().chain(flags.split_whitespace());
        let Command::Up(args) = Cli::try_parse_from(words).expect(flags).command else { panic!("not up") };
        let found = server(&args).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found, expected, "{flags}");
    }

    #[test]
    fn sound_flags_are_sound() {
        check("", "");
        check("--node-ip 192.0.2.1 --node-name a.b-1 --disable proxy,dns", "");
        check("--cluster-cidr 10.0.0.0/16 --service-cidr 10.1.0.0/24 --cluster-dns 10.1.0.2", "");
    }

    #[test]
    fn networks_are_networks_that_do_not_overlap() {
        check(
            "--cluster-cidr 10.42.0.0/25",
            "--cluster-cidr 10.42.0.0/25 must be a network with a prefix length between 8 and 24",
        );
        check(
            "--service-cidr 10.43.0.0/16,fd43::/112",
            "--service-cidr 10.43.0.0/16,fd43::/112 must be an IPv4 network, such as 10.42.0.0/16: Pods and Services \
             have no IPv6 addresses",
        );
        for (text, what) in [
            ("ten", "\"ten\" must be a network, such as 10.43.0.0/16 or fd43::/112"),
            ("10.42.0.0/33", "\"10.42.0.0/33\" must be a network"),
            ("10.0.0.0/16,10.1.0.0/16", "must have one network, or one of each family"),
        ] {
            let told = Cli::try_parse_from(["knarr", "up", "--cluster-cidr", text]).unwrap_err().to_string();
            assert!(told.contains(what) && told.contains("--cluster-cidr"), "{told}");
        }
        check(
            "--service-cidr 10.43.0.7/16",
            "--service-cidr 10.43.0.7/16 must be a network's first address: 10.43.0.0/16",
        );
        check(
            "--cluster-cidr 10.0.0.0/8",
            "--cluster-cidr 10.0.0.0/8 and --service-cidr 10.43.0.0/16 overlap: give Pods and Services addresses of \
             their own",
        );
    }

    #[test]
    fn addresses_lie_where_they_belong() {
        check(
            "--cluster-dns 10.44.0.10",
            "--cluster-dns 10.44.0.10 must be an address of --service-cidr 10.43.0.0/16",
        );
        check(
            "--cluster-dns 10.43.0.1",
            "--cluster-dns 10.43.0.1 must be free: the first two addresses and the last of --service-cidr are taken",
        );
        check("--node-ip ::1", "--node-ip ::1 must be an IPv4 address: Pods have no other");
        check(
            "--node-ip 127.0.0.1",
            "--node-ip 127.0.0.1 must be an address that other machines could reach",
        );
        check("--node-ip 10.42.3.4", "--node-ip 10.42.3.4 must lie outside --cluster-cidr 10.42.0.0/16");
    }

    #[test]
    fn other_flags_name_themselves() {
        check("--https-listen-port 0", "--https-listen-port 0 must be between 1 and 65535");
        check(
            "--node-name Web_1",
            "--node-name Web_1 must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
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
            let election = args.leader.or(LeaderElection::default());
            let found = leader_election(&election).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{flags}");
        };
        check("", "");
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
