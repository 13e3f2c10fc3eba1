//! Whether another host has an address of this Node: asked of the neighbours on its link.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sys::neighbours::conflicts::{self, Claim};

use super::{Finding, Subject};
use crate::components::{mac_text, place_of};

/// How long an answer may take; those of one network answer within a few milliseconds.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// One line for all of them.
pub(super) fn look(subject: &Subject<'_>) -> Finding {
    let mut found = Vec::new();
    for ip in &subject.node_ips {
        let IpAddr::V4(ip) = *ip else { continue };
        match ask(ip) {
            Ok(claim) => found.extend(claim),
            Err(error) => {
                return Finding::warning(format!("neighbours cannot be asked: {error}"), "run this as root");
            }
        }
    }
    judge(&found)
}

fn ask(ip: Ipv4Addr) -> sys::Result<Option<Claim>> {
    match place_of(ip)? {
        Some((link, mac)) => conflicts::ask(link, mac, ip, ANSWER_MAX),
        None => Ok(None),
    }
}

fn judge(found: &[Claim]) -> Finding {
    if found.is_empty() {
        return Finding::Fine("no other host has the node's".into());
    }
    let of = |claim: &Claim| format!("{} at {}", claim.ip, mac_text(claim.mac));
    Finding::warning(
        format!(
            "another host has the node's address: {}",
            found.iter().map(of).collect::<Vec<_>>().join(", ")
        ),
        "give one of them another: packets for either come to the other",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_with_the_nodes_address_is_named() {
        let claim = Claim { ip: [192, 0, 2, 1].into(), mac: [2, 0, 0, 0, 0, 0xaf] };
        let Finding::Warning { what, .. } = judge(&[claim]) else { panic!("no warning") };
        assert_eq!(what, "another host has the node's address: 192.0.2.1 at 02:00:00:00:00:af");
        assert!(matches!(judge(&[]), Finding::Fine(_)));
    }
}
