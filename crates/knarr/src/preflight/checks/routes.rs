//! Whether this host has the routes to the Pods of other Nodes that it should have.

use anyhow::Result;
use sys::netlink::{Route, RouteEntry};

use super::{Finding, Subject};
use crate::components::{PodRoute, missing_pod_routes, wanted_pod_routes};

/// One line for all routes that are missing.
pub(super) fn look(subject: &Subject<'_>) -> Finding {
    if !subject.is_running {
        return Finding::Fine("not looked at: no cluster runs here".into());
    }
    match read(subject) {
        Ok((wanted, has)) => judge(&wanted, &has),
        Err(error) => Finding::warning(format!("they cannot be read: {error:#}"), "run this as root"),
    }
}

fn read(subject: &Subject<'_>) -> Result<(Vec<PodRoute>, Vec<RouteEntry>)> {
    Ok((wanted_pod_routes(subject.layout)?, Route::open()?.routes()?))
}

fn judge(wanted: &[PodRoute], has: &[RouteEntry]) -> Finding {
    let missing = missing_pod_routes(wanted, has);
    let missing: Vec<String> = missing.iter().map(|route| route.gateway.to_string()).collect();
    if missing.is_empty() {
        // A Node of both families has a route of each.
        let of = |is_v4: bool| wanted.iter().filter(|route| route.destination.0.is_ipv4() == is_v4).count();
        return Finding::Fine(format!("to {} other nodes", of(true).max(of(false))));
    }
    Finding::warning(
        format!(
            "no route to the Pods of the nodes at {}: they are on no network of this host",
            missing.join(", ")
        ),
        "put this host on their network and choose its address there with --node-ip, or start the servers with a network \
         that crosses routers (--network-backend vxlan)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_is_missing_or_leads_elsewhere_is_named() {
        let wanted = [
            PodRoute { destination: ([10, 42, 1, 0].into(), 24), gateway: [192, 0, 2, 12].into() },
            PodRoute { destination: ([10, 42, 2, 0].into(), 24), gateway: [198, 51, 100, 13].into() },
        ];
        let has = |destination: [u8; 4], gateway: [u8; 4]| RouteEntry {
            kind: None,
            destination: Some((destination.into(), 24)),
            gateway: Some(gateway.into()),
            link: None,
            source: None,
        };
        let first = has([10, 42, 1, 0], [192, 0, 2, 12]);
        let told = |entries: &[RouteEntry]| match judge(&wanted, entries) {
            Finding::Fine(text) => text,
            Finding::Warning { what, .. } | Finding::Failure { what, .. } => what,
        };
        assert_eq!(told(&[first.clone(), has([10, 42, 2, 0], [198, 51, 100, 13])]), "to 2 other nodes");
        let missing =
            "no route to the Pods of the nodes at 198.51.100.13: they are on no network of this host";
        assert_eq!(told(&[first.clone(), has([10, 42, 2, 0], [192, 0, 2, 1])]), missing);
        assert_eq!(told(&[first]), missing);
    }
}
