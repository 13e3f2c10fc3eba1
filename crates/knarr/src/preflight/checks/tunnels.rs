//! Whether this Node's tunnels to the API servers elsewhere stand.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Finding, Subject};
use crate::components::{self, TunnelStanding};

/// One line for all tunnels that do not stand.
pub(super) fn look(subject: &Subject<'_>) -> Finding {
    if !subject.is_running {
        return Finding::Fine("not looked at: no cluster runs here".into());
    }
    judge(&components::tunnels(subject.layout))
}

fn judge(all: &BTreeMap<SocketAddr, TunnelStanding>) -> Finding {
    let broken = |(server, standing): (&SocketAddr, &TunnelStanding)| {
        standing.broken.as_ref().map(|why| format!("to {server}: {why}"))
    };
    let broken: Vec<String> = all.iter().filter_map(broken).collect();
    match (all.len(), broken.is_empty()) {
        (0, _) => Finding::Fine("none: there is no API server on another host".into()),
        (count, true) => Finding::Fine(format!("to API servers: {count}")),
        (_, false) => Finding::warning(
            format!("not all stand: {}", broken.join("; ")),
            "logs, exec and port-forward of Pods here work only where the server has a way of its own to this host; let \
             this host reach the server's port",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_does_not_stand_is_named() {
        let of = |broken: &[(&str, Option<&str>)]| {
            let standing = |(server, why): &(&str, Option<&str>)| {
                (server.parse().unwrap(), TunnelStanding { broken: why.map(str::to_owned) })
            };
            match judge(&broken.iter().map(standing).collect()) {
                Finding::Fine(text) => text,
                Finding::Warning { what, .. } | Finding::Failure { what, .. } => what,
            }
        };
        assert_eq!(of(&[]), "none: there is no API server on another host");
        assert_eq!(of(&[("192.0.2.11:6443", None), ("192.0.2.12:6443", None)]), "to API servers: 2");
        assert_eq!(
            of(&[("192.0.2.11:6443", None), ("192.0.2.12:6443", Some("the server does not answer"))]),
            "not all stand: to 192.0.2.12:6443: the server does not answer"
        );
    }
}
