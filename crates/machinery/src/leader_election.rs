//! Leader election among several processes: the settings of flags and configuration files.

use std::time::Duration;

/// The election of the one process that works, of several that could. Source: `LeaderElectionConfiguration` of
/// `k8s.io/component-base/config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// `true` to work only while holding the Lease.
    pub is_on: bool,
    /// The time for which a Lease that is not renewed keeps others from taking it.
    pub lease_duration: Duration,
    /// A leader that could not renew for this long stops.
    pub renew_deadline: Duration,
    /// Between renewals, and between tries.
    pub retry_period: Duration,
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
}

impl LeaderElection {
    /// The defaults of upstream's component of that name.
    pub fn of(component: &str) -> Self {
        Self {
            is_on: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            namespace: "kube-system".to_owned(),
            name: component.to_owned(),
        }
    }
}
