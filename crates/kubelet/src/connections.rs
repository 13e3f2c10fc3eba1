//! Tracked connections: when the kernel's table of them is full, every new connection of the host, its Pods and its Services
//! is dropped, and the kernel says so nowhere but in its log.
//!
//! Source: the event is node-problem-detector's `ConntrackFull`.

/// From this share on, in percent, it is told: what is dropped now and then is dropped at the peaks.
const FULL_PERCENT: u64 = 95;
/// Below this share it may be told again.
const CALM_PERCENT: u64 = 80;

/// How many connections the kernel tracks in a network namespace, and how many it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Now.
    pub count: u64,
    /// At most, of all namespaces.
    pub max: u64,
}

impl Tracked {
    /// Those of the calling thread's namespace; `None` if nothing has been tracked since the machine was started.
    pub fn now() -> Option<Self> {
        let read =
            |name: &str| sys::netns::sysctl(&format!("net/netfilter/nf_conntrack_{name}")).ok()?.parse().ok();
        Some(Self { count: read("count")?, max: read("max")? })
    }

    /// How full the table is, in percent.
    pub fn percent(self) -> u64 {
        self.count.saturating_mul(100).checked_div(self.max).unwrap_or(0)
    }
}

/// Whether a full table has been told.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    is_told: bool,
}

impl Connections {
    /// The words about a table that has become full, once.
    pub(crate) fn look(&mut self) -> Option<String> {
        let tracked = Tracked::now().filter(|tracked| self.is_news(*tracked))?;
        let Tracked { count, max } = tracked;
        tracing::warn!(count, max, "the kernel's table of connections is full: new ones are dropped");
        Some(format!(
            "The kernel tracks {count} connections of at most {max}, and drops new ones when there are more: raise \
             net.netfilter.nf_conntrack_max"
        ))
    }

    fn is_news(&mut self, tracked: Tracked) -> bool {
        let is_full = tracked.percent() >= FULL_PERCENT;
        let is_news = is_full && !self.is_told;
        if is_full || tracked.percent() < CALM_PERCENT {
            self.is_told = is_full;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_told_once_until_it_has_been_calm() {
        let mut connections = Connections::default();
        let mut told = |count: u64| connections.is_news(Tracked { count, max: 1000 });
        let counts = [0, 949, 950, 1000, 1001, 900, 990, 799, 951];
        let expected = [false, false, true, false, false, false, false, false, true];
        assert_eq!(counts.map(&mut told), expected);
        assert_eq!(Tracked { count: 7, max: 0 }.percent(), 0, "a kernel that tracks nothing");
    }
}
