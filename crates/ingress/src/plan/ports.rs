//! The ports that Gateways may have: those of Ingresses, and any other that needs no right and is nobody else's.

use std::ops::RangeInclusive;

use crate::scheme::Scheme;
use crate::table::Entrance;

/// Below this only root can listen. Source: `net.ipv4.ip_unprivileged_port_start`.
const UNPRIVILEGED_FIRST: u16 = 1024;

/// The ports of a Node, as far as they concern listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Of Ingresses without TLS; 0 for none.
    pub http: u16,
    /// Of Ingresses with TLS; 0 for none.
    pub https: u16,
    /// Others' own: of the cluster's parts, and of Services.
    pub reserved: Vec<RangeInclusive<u16>>,
}

/// The reason why a listener cannot have a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortRefused {
    /// Out of range.
    #[error("is no port")]
    None,
    /// It speaks otherwise.
    #[error("is served by knarr with TLS: the protocol must be HTTPS")]
    IsHttps,
    /// It speaks otherwise.
    #[error("is served by knarr without TLS: the protocol must be HTTP")]
    IsHttp,
    /// Only root could take it.
    #[error(
        "needs root, which whoever answers requests has given up: use a port of --ingress-http-port or --ingress-https-port, or one of 1024 and more"
    )]
    Privileged,
    /// It is somebody else's.
    #[error("is one that the cluster itself or NodePorts use")]
    Reserved,
}

impl Ports {
    /// The entrance of a listener.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn entrance(&self, port: i64, scheme: Scheme) -> Result<Entrance, PortRefused> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or(PortRefused::None)?;
        match scheme {
            Scheme::Http if port == self.http => Ok(Entrance::Http),
            Scheme::Https if port == self.https => Ok(Entrance::Https),
            _ if port == self.http => Err(PortRefused::IsHttp),
            _ if port == self.https => Err(PortRefused::IsHttps),
            _ if port < UNPRIVILEGED_FIRST => Err(PortRefused::Privileged),
            _ if self.reserved.iter().any(|range| range.contains(&port)) => Err(PortRefused::Reserved),
            _ => Ok(Entrance::Port(port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_has_a_port_that_needs_no_right_and_is_nobodys() {
        let ports = Ports { http: 80, https: 443, reserved: vec![6443..=6443, 30000..=32767] };
        for (port, scheme, expected) in [
            (80, Scheme::Http, Ok(Entrance::Http)),
            (443, Scheme::Https, Ok(Entrance::Https)),
            (8443, Scheme::Https, Ok(Entrance::Port(8443))),
            (1024, Scheme::Http, Ok(Entrance::Port(1024))),
            (80, Scheme::Https, Err(PortRefused::IsHttp)),
            (443, Scheme::Http, Err(PortRefused::IsHttps)),
            (81, Scheme::Http, Err(PortRefused::Privileged)),
            (6443, Scheme::Https, Err(PortRefused::Reserved)),
            (31000, Scheme::Http, Err(PortRefused::Reserved)),
            (0, Scheme::Http, Err(PortRefused::None)),
            (-1, Scheme::Http, Err(PortRefused::None)),
            (65536 + 80, Scheme::Http, Err(PortRefused::None)),
        ] {
            assert_eq!(ports.entrance(port, scheme), expected, "{port} {scheme:?}");
        }
        let none = Ports { http: 0, https: 0, reserved: Vec::new() };
        assert_eq!(none.entrance(0, Scheme::Http), Err(PortRefused::None));
        assert_eq!(none.entrance(80, Scheme::Http), Err(PortRefused::Privileged));
    }
}
