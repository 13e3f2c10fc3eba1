//! Leader leases: of several processes that could do the same work, one does.
//!
//! The holder renews a Lease; the others watch it and take it over when it has not changed for its duration, by their
//! own clocks. Source: `k8s.io/client-go/tools/leaderelection`. Who waits does so on the watch and on one timer.
//!
//! A holder stops before others begin, however slow the answers are: its deadline counts from when a renewal that was answered
//! was sent, theirs from when they saw it. So what it sent last has `lease_duration` less `renew_deadline` to arrive.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use crate::informer::{Informer, Informers, Scope};
use crate::request::{self, ApiRequest, Verb};

/// The period in which the holder renews, and the time that others wait when it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others wait this long, in whole seconds. Source: `--leader-elect-lease-duration`.
    pub lease_duration: Duration,
    /// A holder that could not renew for this long stops. Source: `--leader-elect-renew-deadline`.
    pub renew_deadline: Duration,
    /// Between renewals. Source: `--leader-elect-retry-period`.
    pub renew_every: Duration,
    /// After a try that failed.
    pub retry_after: Duration,
}

impl Default for Timing {
    /// Upstream's, but for renewals: every 2 s would be most of what an idle cluster writes.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(4),
            retry_after: Duration::from_secs(1),
        }
    }
}

impl Timing {
    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX).max(1)
    }
}

/// The Lease that is contended for, and the contender.
#[derive(Clone, Debug)]
pub struct Election {
    /// Of the Lease; upstream's components use `kube-system`.
    pub namespace: String,
    /// Of the Lease, such as `kube-scheduler`.
    pub name: &'static str,
    /// Of this process. One that comes back under the same identity goes on without waiting.
    pub identity: String,
    /// The period of renewals, and the durations.
    pub timing: Timing,
}

/// What to do about the Lease now.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Write(Verb, Box<Lease>),
    Wait(Duration),
}

/// Decides from the Lease as it is, and from how long it has been seen unchanged.
fn next_step(election: &Election, lease: Option<&Lease>, unchanged_for: Duration, now: Timestamp) -> Step {
    let Some(lease) = lease else {
        let metadata = ObjectMeta {
            name: Some(election.name.to_owned()),
            namespace: Some(election.namespace.clone()),
            ..ObjectMeta::default()
        };
        let spec = Some(taken(election, LeaseSpec::default(), 0, now));
        return Step::Write(Verb::Create, Box::new(Lease { metadata, spec }));
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let transitions = spec.lease_transitions.unwrap_or(0);
    if holder == election.identity {
        let lease_duration_seconds = Some(election.timing.lease_seconds());
        let spec = LeaseSpec { renew_time: Some(MicroTime(now)), lease_duration_seconds, ..spec };
        return Step::Write(Verb::Update, Box::new(Lease { spec: Some(spec), ..lease.clone() }));
    }
    let seconds = spec.lease_duration_seconds.unwrap_or(election.timing.lease_seconds());
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let duration = Duration::from_secs(seconds);
    if !holder.is_empty() && unchanged_for < duration {
        return Step::Wait(duration.saturating_sub(unchanged_for));
    }
    let spec = Some(taken(election, spec, transitions + 1, now));
    Step::Write(Verb::Update, Box::new(Lease { spec, ..lease.clone() }))
}

fn taken(election: &Election, spec: LeaseSpec, transitions: i32, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(election.identity.clone()),
        lease_duration_seconds: Some(election.timing.lease_seconds()),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..spec
    }
}

/// The lead, once it is had.
pub struct Held {
    election: Election,
    informers: Informers,
    lease: Lease,
    /// When the last renewal that was answered was sent.
    renewed: Instant,
}

/// Waits until this process leads.
pub async fn acquire(election: Election, informers: &Informers) -> Held {
    let scope = Scope {
        namespace: Some(election.namespace.clone()),
        field_selector: Some(format!("metadata.name={}", election.name)),
        label_selector: None,
    };
    let leases = informers.scoped::<Lease>(scope);
    leases.synced().await;
    let (lease, renewed) = contend(&election, informers, &leases).await;
    tracing::info!(lease = election.name, identity = election.identity, "leading");
    Held { election, informers: informers.clone(), lease, renewed }
}

impl Held {
    /// Renews, and ends when that has failed for too long or somebody else has the Lease. Whoever led must then stop
    /// at once. It renews only while it is waited for, from the beginning of the lead on.
    pub async fn lost(&mut self) {
        self.keep().await;
        tracing::warn!(lease = self.election.name, "the lead was lost");
    }

    /// Gives the Lease up, so that somebody else can lead at once. Whoever led must have stopped before. Source:
    /// `ReleaseOnCancel`.
    ///
    /// # Errors
    /// If it could not be written: then it lasts to its end.
    pub async fn release(self) -> Result<(), kube::Error> {
        let spec = released(self.lease.spec.clone().unwrap_or_default(), self.informers.clock().now());
        let lease = Lease { spec: Some(spec), ..self.lease };
        write(&self.informers, Verb::Update, &lease).await.map(drop)
    }

    /// Renews until that has failed for too long, or somebody else holds the Lease.
    async fn keep(&mut self) {
        let Timing { renew_deadline, renew_every, retry_after, .. } = self.election.timing;
        let mut wait = renew_every;
        while self.renewed.elapsed() + wait < renew_deadline {
            tokio::time::sleep(wait).await;
            let now = self.informers.clock().now();
            let step = next_step(&self.election, Some(&self.lease), Duration::ZERO, now);
            let Step::Write(verb, renewal) = step else { return };
            let sent = Instant::now();
            let left = renew_deadline.saturating_sub(self.renewed.elapsed());
            match tokio::time::timeout(left, write(&self.informers, verb, &renewal)).await {
                Ok(Ok(newer)) => {
                    self.lease = newer;
                    self.renewed = sent;
                    wait = renew_every;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => return,
                failed => {
                    tracing::info!(lease = self.election.name, ?failed, "the lease was not renewed");
                    wait = retry_after;
                }
            }
        }
    }
}

/// Held by nobody, for a second.
fn released(spec: LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..spec
    }
}

async fn contend(election: &Election, informers: &Informers, leases: &Informer<Lease>) -> (Lease, Instant) {
    let key = format!("{}/{}", election.namespace, election.name);
    let mut changes = leases.subscribe();
    let mut seen = (None, Instant::now());
    loop {
        let lease = leases.get(&key);
        let revision = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if revision != seen.0 {
            seen = (revision, Instant::now());
        }
        let step = next_step(election, lease.as_deref(), seen.1.elapsed(), informers.clock().now());
        let sent = Instant::now();
        let wait = match step {
            Step::Wait(wait) => wait,
            Step::Write(verb, lease) => match write(informers, verb, &lease).await {
                Ok(lease) => return (lease, sent),
                Err(error) => {
                    tracing::debug!(lease = election.name, %error, "the lease was not acquired");
                    election.timing.retry_after
                }
            },
        };
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn write(informers: &Informers, verb: Verb, lease: &Lease) -> Result<Lease, kube::Error> {
    let request = if verb == Verb::Create { ApiRequest::create(lease) } else { ApiRequest::update(lease) };
    request::send(informers.client(), &request).await
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use super::*;

    fn election() -> Election {
        Election {
            namespace: "kube-system".into(),
            name: "kube-scheduler",
            identity: "a".into(),
            timing: Timing::default(),
        }
    }

    fn held_by(holder: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(2),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    fn check(lease: Option<Lease>, unchanged_seconds: u64, expected: &str) {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let step = next_step(&election(), lease.as_ref(), Duration::from_secs(unchanged_seconds), now);
        let text = match step {
            Step::Wait(wait) => format!("wait {} s", wait.as_secs()),
            Step::Write(_, lease) => {
                let spec = lease.spec.expect("a spec");
                format!(
                    "{:?} after {:?} transitions",
                    spec.holder_identity.expect("a holder"),
                    spec.lease_transitions
                )
            }
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_ours_or_stale() {
        check(None, 0, "\"a\" after Some(0) transitions");
        check(Some(held_by("a")), 0, "\"a\" after Some(2) transitions");
        check(Some(held_by("")), 0, "\"a\" after Some(3) transitions");
        check(Some(held_by("b")), 4, "wait 11 s");
        check(Some(held_by("b")), 15, "\"a\" after Some(3) transitions");
        let spec = released(held_by("b").spec.expect("a spec"), Timestamp::UNIX_EPOCH);
        check(Some(Lease { spec: Some(spec), ..Lease::default() }), 0, "\"a\" after Some(3) transitions");
    }

    /// Source: `TestTryAcquireOrRenewLeases` of upstream's `client-go/tools/leaderelection`.
    #[test]
    fn a_lease_says_who_has_it_since_when_and_how_often_it_changed_hands() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let of = |holder: Option<&str>, seconds: Option<i32>, transitions: Option<i32>| {
            let spec = LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: seconds,
                lease_transitions: transitions,
                acquire_time: Some(MicroTime(at(5))),
                renew_time: Some(MicroTime(at(6))),
                ..LeaseSpec::default()
            };
            Some(Lease { spec: Some(spec), ..Lease::default() })
        };
        // What it says then: duration, transitions, since when, renewed when; or how long to wait.
        for (name, lease, unchanged, expect) in [
            ("there is none", None, 0, "Create 15 0 10 10"),
            ("it says nothing", Some(Lease::default()), 0, "Update 15 1 10 10"),
            ("nobody has had it", of(None, None, None), 0, "Update 15 1 10 10"),
            ("nobody has it", of(Some(""), Some(15), Some(7)), 0, "Update 15 8 10 10"),
            ("it is ours", of(Some("a"), Some(15), Some(7)), 0, "Update 15 7 5 10"),
            ("ours, and stale", of(Some("a"), Some(15), Some(7)), 99, "Update 15 7 5 10"),
            ("ours, with another duration", of(Some("a"), Some(60), Some(7)), 0, "Update 15 7 5 10"),
            ("another has it", of(Some("b"), Some(15), Some(7)), 0, "wait 15"),
            ("for a while", of(Some("b"), Some(15), Some(7)), 14, "wait 1"),
            ("for long enough", of(Some("b"), Some(15), Some(7)), 15, "Update 15 8 10 10"),
            ("by its own duration", of(Some("b"), Some(60), Some(7)), 15, "wait 45"),
            ("which it does not say", of(Some("b"), None, None), 5, "wait 10"),
            ("of no time", of(Some("b"), Some(0), Some(7)), 0, "Update 15 8 10 10"),
            ("of less than that", of(Some("b"), Some(-5), Some(7)), 0, "Update 15 8 10 10"),
        ] {
            let found = match next_step(&election(), lease.as_ref(), Duration::from_secs(unchanged), at(10)) {
                Step::Wait(wait) => format!("wait {}", wait.as_secs()),
                Step::Write(verb, lease) => {
                    let spec = lease.spec.expect("a spec");
                    assert_eq!(spec.holder_identity.as_deref(), Some("a"), "{name}");
                    let second = |time: Option<MicroTime>| time.expect("a time").0.as_second();
                    format!(
                        "{verb:?} {} {} {} {}",
                        spec.lease_duration_seconds.expect("a duration"),
                        spec.lease_transitions.unwrap_or(0),
                        second(spec.acquire_time),
                        second(spec.renew_time)
                    )
                }
            };
            assert_eq!(found, expect, "{name}");
        }
    }
}
