//! How long a node takes to come up, of which `kubelet_node_startup_*` tells. Pure.
//!
//! It is told of a node that the API server has not known before, and once. Source: `NodeStartupLatencyTracker`,
//! `pkg/kubelet/util` of upstream.

use jiff::Timestamp;

use crate::metrics::Level;

/// When what happened.
pub(super) struct Startup {
    booted: Option<Timestamp>,
    started: Timestamp,
    attempted: Option<Timestamp>,
    registered: Option<Timestamp>,
    is_ready: bool,
}

/// What to tell, in seconds.
pub(super) type Told = std::vec::IntoIter<(Level, f64)>;

impl Startup {
    pub(super) fn new(booted: Option<Timestamp>, started: Timestamp) -> Self {
        Self { booted, started, attempted: None, registered: None, is_ready: false }
    }

    /// The API server is asked to take the node; the first time counts.
    pub(super) fn attempted(&mut self, now: Timestamp) {
        self.attempted.get_or_insert(now);
    }

    /// It did, and did not know the node.
    pub(super) fn registered(&mut self, now: Timestamp) -> Told {
        let Some(attempted) = self.attempted.filter(|_| self.registered.is_none()) else {
            return Vec::new().into_iter();
        };
        self.registered = Some(now);
        let before = self.booted.map(|booted| (Level::NodeStartupBefore, seconds(booted, self.started)));
        let unregistered = (Level::NodeStartupUnregistered, seconds(self.started, attempted));
        let registering = (Level::NodeStartupRegistering, seconds(attempted, now));
        before.into_iter().chain([unregistered, registering]).collect::<Vec<_>>().into_iter()
    }

    /// It knows that the node is ready.
    pub(super) fn ready(&mut self, now: Timestamp) -> Told {
        let Some(registered) = self.registered.filter(|_| !self.is_ready) else {
            return Vec::new().into_iter();
        };
        self.is_ready = true;
        let all = self.booted.map(|booted| (Level::NodeStartup, seconds(booted, now)));
        let told = (Level::NodeStartupRegistered, seconds(registered, now));
        all.into_iter().chain([told]).collect::<Vec<_>>().into_iter()
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_new_node_tells_how_long_each_step_took_and_once() {
        let mut startup = Startup::new(Some(at(10)), at(15));
        startup.attempted(at(16));
        startup.attempted(at(18));
        let told: Vec<_> = startup.registered(at(20)).collect();
        let expected = [
            (Level::NodeStartupBefore, 5.0),
            (Level::NodeStartupUnregistered, 1.0),
            (Level::NodeStartupRegistering, 4.0),
        ];
        assert_eq!(told, expected);
        let told: Vec<_> = startup.ready(at(27)).collect();
        assert_eq!(told, [(Level::NodeStartup, 17.0), (Level::NodeStartupRegistered, 7.0)]);
        assert_eq!((startup.registered(at(30)).count(), startup.ready(at(30)).count()), (0, 0));
    }

    #[test]
    fn a_node_that_is_known_tells_nothing() {
        let mut startup = Startup::new(None, at(15));
        startup.attempted(at(16));
        assert_eq!(startup.ready(at(17)).count(), 0);
        assert_eq!(startup.registered(at(20)).count(), 2, "nobody knows when the machine was booted");
    }
}
