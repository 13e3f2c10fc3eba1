//! Names of chains as kube-proxy makes them: operators and their tools find a Service's rules by them.
//!
//! Source: `pkg/proxy/iptables/proxier.go` (`portProtoHash`, `servicePortEndpointChainName`).

use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use crate::service_port::ServicePort;

/// What every name of a chain that is one Service port's begins with.
pub(super) const PREFIXES: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-SEP-"];

/// The alphabet of RFC 4648.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HASH_CHARACTERS: u32 = 16;

/// The chains of a Service port.
#[derive(Debug)]
pub(super) struct Names {
    /// `namespace/name:port`, or without the port if that has no name.
    pub(super) port: String,
    /// The transport protocol as iptables has it.
    pub(super) protocol: &'static str,
    hash: String,
}

impl Names {
    pub(super) fn of(port: &ServicePort) -> Self {
        let (service, name) = port.name.rsplit_once('/').unwrap_or((&port.name, ""));
        let text = if name.is_empty() { service.to_owned() } else { format!("{service}:{name}") };
        let protocol = protocol_name(port.protocol);
        Self { hash: hash(&format!("{text}{protocol}")), port: text, protocol }
    }

    /// To endpoints in the whole cluster.
    pub(super) fn cluster(&self) -> String {
        format!("KUBE-SVC-{}", self.hash)
    }

    /// To those on this Node.
    pub(super) fn local(&self) -> String {
        format!("KUBE-SVL-{}", self.hash)
    }

    /// From outside.
    pub(super) fn external(&self) -> String {
        format!("KUBE-EXT-{}", self.hash)
    }

    /// From outside, for those who may.
    pub(super) fn firewall(&self) -> String {
        format!("KUBE-FW-{}", self.hash)
    }

    /// To one endpoint.
    pub(super) fn endpoint(&self, target: SocketAddr) -> String {
        format!("KUBE-SEP-{}", hash(&format!("{}{}{target}", self.port, self.protocol)))
    }

    /// The name with what follows it as a comment of a rule. What the API server would not have taken for a name does
    /// not end the comment.
    pub(super) fn comment(&self, what: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-./:".contains(c);
        let name = self.port.replace(|c| !is_plain(c), "?");
        format!("-m comment --comment \"{}\"", what.replace("{}", &name))
    }
}

/// The name of a transport protocol by its number.
pub(crate) fn protocol_name(number: u8) -> &'static str {
    match number {
        17 => "udp",
        132 => "sctp",
        _ => "tcp",
    }
}

/// The first characters of the SHA-256 hash in base32: names of chains have at most 28.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bits = digest.iter().take(10).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
    let character = |index: u32| {
        let value = (bits >> (5 * (HASH_CHARACTERS - 1 - index))) & 31;
        BASE32.get(value as usize).map_or('A', |byte| char::from(*byte))
    };
    (0..HASH_CHARACTERS).map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `pkg/proxy/iptables/proxier_test.go`.
    #[test]
    fn names_are_upstreams() {
        for (text, expect) in [
            ("ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O"),
            ("ns2/svc2:p80tcp", "GNZBNJ2PO5MGZ6GT"),
            ("ns3/svc3:p80tcp", "X27LE4BHSL4DOUIK"),
            ("ns4/svc4:p80tcp", "4SW47YFZTEDKD3PK"),
            ("ns1/svc1:p80tcp10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
            ("ns2/svc2:p80tcp10.180.0.2:80", "RS4RBKLTHTF2IUXJ"),
        ] {
            assert_eq!(hash(text), expect, "{text}");
        }
    }
}
