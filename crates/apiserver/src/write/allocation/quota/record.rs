//! Writes what was charged into the quotas' `status.used`, before the object is stored: other API servers on the same
//! store count from there, and only one of two writes succeeds.
//!
//! Requests that come together are written together. What was given back in the meantime (deletions, requests that
//! failed after they were charged) makes the status too high, never too low; before anybody is refused for that, it is
//! counted anew, when no other server has charged for [`QUIET`].
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::metadata::{self, Metadata};
use resources::pod_resources::{add_all, amounts};
use resources::quota::{self, Amounts};
use serde_json::{Value, json};

use super::refusal::{QuotaRefusal, exceeded};
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result};
use crate::write::{Decoded, Writer};

const QUOTAS: GroupVersionResource<'_> = GroupVersionResource::core("resourcequotas");
/// Longer than what another server has charged takes to be stored, and to be seen here.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// How often a status that is too high is looked at again, and how long.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOKS_MAX: usize = 40;

/// What one request adds to one quota.
pub(super) struct Entry {
    /// The object's key in the store.
    pub(super) key: String,
    /// What it costs.
    pub(super) cost: Amounts,
}

/// What this server knows about a quota by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    /// What is used, by the objects in the cache and by what was charged and written.
    pub(super) counted: Amounts,
    /// The revision that this server wrote last.
    pub(super) written: u64,
    /// The newest revision that somebody else wrote, and since when it is known.
    pub(super) foreign: Option<(u64, Timestamp)>,
}

impl Own {
    /// Whether nobody else can have charged what is not seen here yet. That the newest revision is this server's own
    /// says nothing about it: it may rest on what another wrote a moment before.
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.foreign.is_none_or(|(_, at)| at + QUIET <= now)
    }
}

/// What becomes of the status.
#[derive(Debug, PartialEq)]
enum Decision {
    /// This is used now; these keys are refused.
    Write(Amounts, BTreeMap<String, QuotaRefusal>),
    /// It may be too high: it must be looked at again.
    Wait,
}

/// When a status that is too high may be counted anew.
#[derive(Clone, Copy, Debug)]
enum Recount {
    /// At once: nobody else charges.
    Now,
    /// When it is looked at again.
    Later,
    /// No more: it is too late to look again.
    Never,
}

/// Decides about `entries`, in order.
fn decide(quota: &quota::Quota, used: &Amounts, own: &Own, entries: &[Entry], recount: Recount) -> Decision {
    let mut start = used.clone();
    for (name, counted) in &own.counted {
        start.entry(name.clone()).or_insert(*counted);
    }
    let (sum, refused) = fill(quota, start.clone(), entries);
    let mut counted = own.counted.clone();
    for (name, amount) in start {
        counted.entry(name).or_insert(amount);
    }
    let (recounted, refused_anyway) = fill(quota, counted, entries);
    if refused.len() <= refused_anyway.len() {
        return Decision::Write(sum, refused);
    }
    match recount {
        Recount::Now => Decision::Write(recounted, refused_anyway),
        Recount::Later => Decision::Wait,
        Recount::Never => Decision::Write(sum, refused),
    }
}

/// Adds what fits; says what does not.
fn fill(
    quota: &quota::Quota,
    mut sum: Amounts,
    entries: &[Entry],
) -> (Amounts, BTreeMap<String, QuotaRefusal>) {
    let mut refused = BTreeMap::new();
    for entry in entries {
        match exceeded(quota, &sum, &entry.cost) {
            None => add_all(&mut sum, &entry.cost),
            Some(why) => {
                refused.insert(entry.key.clone(), why);
            }
        }
    }
    (sum, refused)
}

/// Writes `entries` into the status of a quota; answers which are refused, and why.
pub(super) async fn write(
    writer: &Writer,
    namespace: &str,
    name: &str,
    entries: &[Entry],
) -> Result<BTreeMap<String, QuotaRefusal>> {
    for look in 0..=LOOKS_MAX {
        let mut refused = None;
        let mut add = |old: &Value| {
            refused = None;
            let revision = Metadata::of(old).resource_version().parse().unwrap_or_default();
            let now = writer.clock.now();
            let own = writer.quota.own(namespace, name, revision, now);
            let used = amounts(old.pointer("/status/used"));
            let recount = match own.is_quiet(now) {
                true => Recount::Now,
                false if look < LOOKS_MAX => Recount::Later,
                false => Recount::Never,
            };
            match decide(&quota::Quota::of(old), &used, &own, entries, recount) {
                Decision::Wait => Ok(Decoded::of_server(old.clone())),
                Decision::Write(used, keys) => {
                    refused = Some(keys);
                    Ok(Decoded::of_server(with_used(old, &used)))
                }
            }
        };
        let written = writer.loopback.change_status(writer, QUOTAS, (namespace, name), &mut add).await;
        match (written, refused) {
            (Ok(Some(revision)), Some(refused)) => {
                writer.quota.wrote(namespace, name, revision);
                return Ok(refused);
            }
            (Ok(None), _) => return Ok(BTreeMap::new()),
            (Ok(Some(_)), None) => tokio::time::sleep(LOOK_AGAIN).await,
            // Without the quota there is no limit.
            (Err(failure), _) if failure.reason == "NotFound" => return Ok(BTreeMap::new()),
            (Err(failure), _) => return Err(failure),
        }
    }
    Err(Error::internal("the quota's status did not settle"))
}

/// The quota with what is used, and nothing else changed.
fn with_used(old: &Value, used: &Amounts) -> Value {
    let mut new = old.clone();
    metadata::remove(&mut new, "resourceVersion");
    let hard = old.pointer("/spec/hard").cloned().unwrap_or_default();
    let shown: BTreeMap<&String, String> =
        used.iter().filter(|(name, _)| hard.get(*name).is_some()).map(|(n, q)| (n, q.to_string())).collect();
    let Some(status) = crate::tree::child(&mut new, "status") else { return new };
    status.entry("hard").or_insert(hard);
    status.insert("used".to_owned(), json!(shown));
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(yaml: &str) -> Amounts {
        amounts(Some(&serde_saphyr::from_str::<Value>(yaml).unwrap()))
    }

    /// Three requests of one ConfigMap each against a limit of five: what is used then, and who is refused.
    fn check(used: &str, counted: &str, recount: Recount, expect: &str) {
        let quota: Value =
            serde_saphyr::from_str("{metadata: {name: q}, spec: {hard: {configmaps: 5}}}").unwrap();
        let own = Own { counted: numbers(counted), ..Own::default() };
        let entry = |key: &str| Entry { key: key.into(), cost: numbers("{configmaps: 1}") };
        let entries = ["a", "b", "c"].map(entry);
        let decision = decide(&quota::Quota::of(&quota), &numbers(used), &own, &entries, recount);
        let got = match decision {
            Decision::Wait => "wait".to_owned(),
            Decision::Write(used, refused) => {
                format!("{} {}", quota::show(&used), refused.into_keys().collect::<Vec<_>>().join(","))
            }
        };
        assert_eq!(got.trim(), expect, "{used} {counted}");
    }

    #[test]
    fn what_fits_is_written() {
        check("{configmaps: 2}", "{configmaps: 2}", Recount::Now, "configmaps=5");
        check("{}", "{configmaps: 1}", Recount::Now, "configmaps=4");
    }

    #[test]
    fn a_status_that_is_too_high_is_counted_anew_when_nobody_else_charges() {
        check("{configmaps: 5}", "{configmaps: 2}", Recount::Now, "configmaps=5");
        check("{configmaps: 5}", "{configmaps: 2}", Recount::Later, "wait");
        check("{configmaps: 4}", "{configmaps: 2}", Recount::Never, "configmaps=5 b,c");
    }

    #[test]
    fn who_finds_no_room_by_either_count_is_refused_at_once() {
        check("{configmaps: 4}", "{configmaps: 4}", Recount::Later, "configmaps=5 b,c");
        check("{configmaps: 5}", "{configmaps: 4}", Recount::Now, "configmaps=5 b,c");
    }

    #[test]
    fn another_servers_writes_are_waited_for() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        assert!(Own { written: 7, ..Own::default() }.is_quiet(now), "nobody else writes");
        for written in [7, 10] {
            let own = Own { written, foreign: Some((9, now)), ..Own::default() };
            assert!(!own.is_quiet(now) && own.is_quiet(now + QUIET), "written {written}, before or after");
        }
    }
}
