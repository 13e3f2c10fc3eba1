//! Tells when routes may be gone: somebody has deleted one, or a link has changed, with which its routes go.

use nix::libc;

use super::{Listener, News, Socket, messages};
use crate::Result;

const GROUPS: i32 = libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | RTMGRP_IPV6_IFADDR
    | RTMGRP_IPV6_ROUTE;
// Source: `include/uapi/linux/rtnetlink.h`.
const RTMGRP_IPV6_IFADDR: i32 = 0x100;
const RTMGRP_IPV6_ROUTE: i32 = 0x400;

/// Changes of links, addresses and routes of one network namespace.
#[derive(Debug)]
pub struct RouteWatch(Listener);

impl RouteWatch {
    /// Watches from now on, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> Result<Self> {
        Ok(Self(Listener::new(Socket::listen(libc::NETLINK_ROUTE, GROUPS as u32)?)?))
    }

    /// Waits until a route may be gone, or may be made that could not be. Of IPv4 the kernel does not tell of routes that go
    /// with their link; so what is there has to be looked at.
    ///
    /// # Errors
    /// The kernel does not tell any more.
    pub async fn changed(&mut self) -> Result<()> {
        loop {
            let news =
                self.0.read(|datagram, any: &mut bool| *any |= messages(datagram).any(|it| counts(it.kind)));
            if news.await? != News::Told(false) {
                return Ok(());
            }
        }
    }
}

/// Whether news of this kind take routes away, or make them possible.
pub(super) fn counts(kind: u16) -> bool {
    [libc::RTM_NEWLINK, libc::RTM_DELLINK, libc::RTM_NEWADDR, libc::RTM_DELADDR, libc::RTM_DELROUTE]
        .contains(&kind)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::netlink::{Address, NewRoute, Route};
    use crate::netns::NetNs;

    #[tokio::test]
    async fn routes_that_go_are_told_and_those_that_come_are_not() {
        let namespace = NetNs::anonymous().unwrap();
        let change =
            |work: fn(&mut Route) -> Result<()>| namespace.run(|| work(&mut Route::open()?)).unwrap();
        let (destination, gateway) = (Some(([10, 9, 0, 0].into(), 24)), Some([192, 0, 2, 2].into()));
        let route = || NewRoute { destination, gateway, ..NewRoute::default() };
        change(|route| {
            route.create_bridge("b")?;
            let link = route.index("b")?;
            route.add_address(Address { link, ip: [192, 0, 2, 1].into(), prefix: 24 })?;
            route.set_up("b")
        });
        let runtime = tokio::runtime::Handle::current();
        let mut watch = namespace
            .run(|| {
                let _entered = runtime.enter();
                RouteWatch::new()
            })
            .unwrap();
        let mut is_told =
            async || tokio::time::timeout(Duration::from_millis(300), watch.changed()).await.is_ok();
        namespace.run(|| Route::open()?.add_route(&route())).unwrap();
        assert!(!is_told().await, "a route has come");
        namespace.run(|| Route::open()?.delete_route(&route())).unwrap();
        assert!(is_told().await, "it has gone");
        change(|route| route.set_down("b"));
        assert!(is_told().await, "its link is down");
        assert!(!is_told().await, "all was told");
    }
}
