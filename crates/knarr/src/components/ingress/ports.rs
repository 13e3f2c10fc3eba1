//! Which ports Gateways may have, and whether a port that somebody had is free.
//!
//! Nobody is told when a listener ends, so the kernel's list is read now and then, ever more rarely; nothing is sent to
//! whoever has the port.

use base::{Backoff, Random};
use cli::args::ServerArgs;
use ingress::plan::Ports;

/// Of the cluster's parts, and of others that stand beside them: kubelet, proxy, controllers, scheduler, this process.
const OF_PARTS: std::ops::RangeInclusive<u16> = 10_248..=10_260;
/// Of etcd.
const OF_ETCD: std::ops::RangeInclusive<u16> = 2379..=2381;
/// Of Services. Source: `--service-node-port-range`.
const OF_SERVICES: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Whatever Gateways ask for, no part of the cluster finds its port taken.
pub(in crate::components) fn of_gateways(args: &ServerArgs) -> Ports {
    let ports = &args.ingress;
    let own = [args.https_listen_port, ports.ingress_metrics_port];
    let own = own.map(|port| port..=port);
    Ports {
        http: ports.ingress_http_port,
        https: ports.ingress_https_port,
        reserved: own.into_iter().chain([OF_PARTS, OF_ETCD, OF_SERVICES]).collect(),
    }
}

/// The kernel's lists of this network namespace.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// `TCP_LISTEN`.
const LISTENING: &str = "0A";

/// Ends when one of these is free; never, if there are none.
pub(super) async fn one_is_free(ports: &[u16], mut backoff: Backoff, random: &Random) {
    if ports.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(backoff.next(random)).await;
        let lists = LISTS.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        // A kernel that does not tell is not taken for one where nobody listens.
        let is_told = lists.iter().any(|list| !list.is_empty());
        if is_told && ports.iter().any(|port| !lists.iter().any(|list| is_taken(list, *port))) {
            return;
        }
    }
}

/// Whether somebody listens on a port, by one of the kernel's lists.
fn is_taken(list: &str, port: u16) -> bool {
    list.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1), fields.nth(1));
        let number = local.and_then(|local| u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok());
        number == Some(port) && state == Some(LISTENING)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_while_somebody_listens() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                    0: 00000000:0050 00000000:0000 0A 00000000:00000000\n   \
                    1: 0100007F:01BB 0100007F:9C40 01 00000000:00000000\n";
        assert!(is_taken(list, 80));
        assert!(!is_taken(list, 443), "a connection is no listener");
        assert!(!is_taken(list, 8080));
        assert!(!is_taken("", 80));
    }
}
