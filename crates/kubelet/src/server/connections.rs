//! How many connections the kubelet's port has, and of whom: so that nobody who may do nothing keeps others out.
//!
//! A connection is counted for its address until a request of it has been let pass; then it is counted among those that
//! may do something, where certificates, such as the API server's, do not share with tokens. There is room beside the
//! rest for addresses from which somebody with a certificate was let pass lately.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Connections that nothing was let pass of yet.
const UNPROVEN_MAX: usize = 512;
/// Of these, one address has so many at most.
const UNPROVEN_OF_ADDRESS_MAX: usize = 32;
/// So many more, and of one address, for addresses that are known.
const UNPROVEN_KNOWN_MAX: usize = 128;
/// Connections of those who have a certificate and were let pass.
const CERTIFIED_MAX: usize = 1024;
/// Connections of those who have a token and were let pass.
const BEARERS_MAX: usize = 256;
/// Addresses that are known: several times what a cluster has of API servers.
const KNOWN_MAX: usize = 64;

/// What a connection counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not shown that it may do anything.
    Unproven,
    /// A certificate was let pass.
    Certified,
    /// A token was.
    Bearer,
}

#[derive(Debug, Default)]
struct Counts {
    unproven: usize,
    of_address: HashMap<IpAddr, usize>,
    certified: usize,
    bearers: usize,
    /// The one that was let pass last is last.
    known: VecDeque<IpAddr>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Counts>);

impl Connections {
    /// A place for a new connection; `None` if there is none for its address.
    pub(super) fn begin(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.0.lock();
        let (all_max, own_max) = match counts.known.contains(&address) {
            true => (UNPROVEN_MAX + UNPROVEN_KNOWN_MAX, UNPROVEN_KNOWN_MAX),
            false => (UNPROVEN_MAX, UNPROVEN_OF_ADDRESS_MAX),
        };
        let own = counts.of_address.get(&address).copied().unwrap_or_default();
        if counts.unproven >= all_max || own >= own_max {
            return None;
        }
        counts.unproven += 1;
        counts.of_address.insert(address, own + 1);
        Some(Place { all: Arc::clone(self), address, standing: Mutex::new(Standing::Unproven) })
    }
}

impl Counts {
    fn remove(&mut self, standing: Standing, address: IpAddr) {
        match standing {
            Standing::Certified => self.certified -= 1,
            Standing::Bearer => self.bearers -= 1,
            Standing::Unproven => {
                self.unproven -= 1;
                let left = self.of_address.get(&address).map_or(0, |count| count.saturating_sub(1));
                match left {
                    0 => drop(self.of_address.remove(&address)),
                    left => drop(self.of_address.insert(address, left)),
                }
            }
        }
    }
}

/// A connection's place, for as long as it is there.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<Connections>,
    address: IpAddr,
    standing: Mutex<Standing>,
}

impl Place {
    /// A request was let pass. Where there is no room among its like the connection stays what it is.
    pub(super) fn passed(&self, wanted: Standing) {
        let mut standing = self.standing.lock();
        if *standing != Standing::Unproven {
            return;
        }
        let mut counts = self.all.0.lock();
        let is_full = match wanted {
            Standing::Unproven => true,
            Standing::Certified => counts.certified >= CERTIFIED_MAX,
            Standing::Bearer => counts.bearers >= BEARERS_MAX,
        };
        if is_full {
            return;
        }
        counts.remove(Standing::Unproven, self.address);
        match wanted {
            Standing::Certified => {
                counts.certified += 1;
                counts.known.retain(|known| *known != self.address);
                counts.known.push_back(self.address);
                if counts.known.len() > KNOWN_MAX {
                    counts.known.pop_front();
                }
            }
            _ => counts.bearers += 1,
        }
        *standing = wanted;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let standing = *self.standing.get_mut();
        self.all.0.lock().remove(standing, self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: usize) -> IpAddr {
        IpAddr::from([10, 42, u8::try_from(last / 256).unwrap(), u8::try_from(last % 256).unwrap()])
    }

    #[test]
    fn one_address_has_its_share_and_no_more() {
        let all = Arc::new(Connections::default());
        let mut held: Vec<Place> = std::iter::from_fn(|| all.begin(address(1))).collect();
        assert_eq!(held.len(), UNPROVEN_OF_ADDRESS_MAX);
        assert!(all.begin(address(2)).is_some(), "others have theirs");
        held.pop();
        assert!(all.begin(address(1)).is_some(), "what has ended is given again");
        drop(held);
        assert_eq!(all.0.lock().of_address, HashMap::new());
    }

    #[test]
    fn the_api_server_gets_in_while_everybody_else_fills_the_port() {
        let all = Arc::new(Connections::default());
        let api_server = address(0);
        let first = all.begin(api_server).unwrap();
        first.passed(Standing::Certified);
        let mut held = Vec::new();
        for pod in 1..200 {
            held.extend(std::iter::from_fn(|| all.begin(address(pod))));
        }
        assert_eq!(held.len(), UNPROVEN_MAX);
        assert!(all.begin(address(300)).is_none());
        let mut sessions = Vec::new();
        while let Some(session) = all.begin(api_server) {
            session.passed(Standing::Certified);
            sessions.push(session);
            assert!(sessions.len() <= CERTIFIED_MAX + UNPROVEN_KNOWN_MAX, "there is an end");
        }
        assert_eq!(all.0.lock().certified, CERTIFIED_MAX);
        drop((first, held, sessions));
        let counts = all.0.lock();
        assert_eq!((counts.unproven, counts.certified, counts.bearers), (0, 0, 0));
    }

    #[test]
    fn tokens_do_not_take_the_place_of_certificates() {
        let all = Arc::new(Connections::default());
        let mut held = Vec::new();
        for scraper in 0..BEARERS_MAX + 10 {
            let place = all.begin(address(scraper)).unwrap();
            place.passed(Standing::Bearer);
            held.push(place);
        }
        let of_both = || {
            let counts = all.0.lock();
            (counts.bearers, counts.unproven)
        };
        assert_eq!(of_both(), (BEARERS_MAX, 10));
        let place = all.begin(address(1000)).unwrap();
        place.passed(Standing::Certified);
        place.passed(Standing::Bearer);
        assert_eq!(all.0.lock().certified, 1, "it stays what it was first");
    }
}
