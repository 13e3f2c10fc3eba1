//! Another host that has the Node's address: packets for the Node go to either, now here and now there. Heard by what that
//! host says to its neighbours, told in the log and on the Node. IPv4: of IPv6 the kernel does not use what another has.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use base::{Backoff, Tasks};
use controller::record::{self, Recorder};
use controller::{EventType, Informers};
use sys::neighbours::conflicts::{Claim, Claims};
use sys::netlink::Route;
use tokio::time::Instant;

/// How soon a link is looked for again that is gone, and how late at last.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long nothing more is told of one who has been told of.
const TOLD_FOR: Duration = Duration::from_secs(600);
/// Of more hosts at a time nothing is told.
const TOLD_MAX: usize = 16;

/// Hears who else has one of the Node's addresses, until the tasks stop.
pub(super) fn follow(node: &str, ips: &[IpAddr], informers: &Informers, tasks: &Tasks) {
    let recorder = informers.recorder_on("kubelet", node);
    for ip in ips {
        let IpAddr::V4(ip) = *ip else { continue };
        let (node, recorder, random) = (node.to_owned(), recorder.clone(), informers.random().clone());
        tasks.spawn("address conflicts", async move {
            let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX, 0.2);
            let mut told = Told::default();
            loop {
                let Err(error) = hear(ip, &mut told, &node, &recorder, &mut backoff).await;
                tracing::debug!(%error, %ip, "others that have the Node's address are not heard");
                tokio::time::sleep(backoff.next(&random)).await;
            }
        });
    }
}

/// Where the host has an address: the link, and its hardware address.
///
/// # Errors
/// The kernel does not say. `None` for an address that is on no link with neighbours.
pub(crate) fn place_of(ip: Ipv4Addr) -> sys::Result<Option<(u32, [u8; 6])>> {
    let mut route = Route::open()?;
    let address = route.addresses()?.into_iter().find(|address| address.ip == IpAddr::V4(ip));
    let Some(address) = address.filter(|_| !ip.is_loopback()) else { return Ok(None) };
    let link = route.links()?.into_iter().find(|link| link.index == address.link);
    Ok(link.and_then(|link| Some((link.index, <[u8; 6]>::try_from(link.mac).ok()?))))
}

async fn hear(
    ip: Ipv4Addr,
    told: &mut Told,
    node: &str,
    recorder: &Recorder,
    backoff: &mut Backoff,
) -> sys::Result<std::convert::Infallible> {
    let gone = || {
        sys::Error::new(
            format!("find the link of {ip}"),
            std::io::Error::from_raw_os_error(nix::libc::ENODEV),
        )
    };
    let (link, mac) = place_of(ip)?.ok_or_else(gone)?;
    let mut claims = Claims::new(link, mac, ip)?;
    loop {
        let claim = claims.next().await?;
        backoff.reset();
        if told.is_news(claim, Instant::now()) {
            let mac = mac_text(claim.mac);
            tracing::warn!(%ip, mac, "another host has the Node's address");
            let message = format!(
                "Another host says that it has {ip}, the address of this Node, at {mac}: packets for either come to the \
                 other; give one of them another address"
            );
            recorder.event(record::node(node), EventType::Warning, "AddressConflict", message);
        }
    }
}

pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Whom has been told of, and when.
#[derive(Debug, Default)]
struct Told(BTreeMap<[u8; 6], Instant>);

impl Told {
    fn is_news(&mut self, claim: Claim, now: Instant) -> bool {
        self.0.retain(|_, told| now.duration_since(*told) < TOLD_FOR);
        let is_news = !self.0.contains_key(&claim.mac) && self.0.len() < TOLD_MAX;
        if is_news {
            self.0.insert(claim.mac, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_of_once_in_a_while_and_not_of_all_of_many() {
        let (mut told, now) = (Told::default(), Instant::now());
        let mut is_news = |mac: u8, seconds| {
            let claim = Claim { ip: Ipv4Addr::LOCALHOST, mac: [mac; 6] };
            told.is_news(claim, now + Duration::from_secs(seconds))
        };
        assert!(is_news(1, 0) && is_news(2, 1), "two hosts");
        assert!(!is_news(1, 599) && is_news(1, 600), "the first again");
        let news = (3..100).filter(|mac| is_news(*mac, 602)).count();
        assert_eq!(news, TOLD_MAX - 1);
    }
}
