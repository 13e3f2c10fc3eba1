//! The rate limits of Events, per server, namespace, user, or source and object. Source:
//! `plugin/pkg/admission/eventratelimit`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use machinery::field::{FieldError, FieldErrors, Path};
use serde::Deserialize;
use serde_json::json;

use crate::configuration_error::{self, ConfigurationError, check_fields, check_kind};

/// Buckets of a limit whose configuration does not say. Source: `defaultCacheSize`.
const BUCKETS: usize = 4096;
const VERSION: &str = "eventratelimit.admission.k8s.io/v1alpha1";

/// What events share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

const KINDS: [(&str, Kind); 4] = [
    ("Namespace", Kind::Namespace),
    ("Server", Kind::Server),
    ("SourceAndObject", Kind::SourceAndObject),
    ("User", Kind::User),
];

/// What the file says. Source: `eventratelimit.admission.k8s.io/v1alpha1.Configuration`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    limits: Vec<Configured>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Configured {
    r#type: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

/// The limits, and what is left of them.
#[derive(Debug, Default)]
pub struct EventRateLimits(Vec<Limit>);

#[derive(Debug)]
struct Limit {
    name: &'static str,
    kind: Kind,
    per_second: f64,
    burst: f64,
    buckets_max: usize,
    buckets: Mutex<Buckets>,
}

/// Those that were used last.
#[derive(Debug, Default)]
struct Buckets {
    by_key: HashMap<String, Bucket>,
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Timestamp,
    last_use: u64,
}

/// Limits beyond which an event is: by type and key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct LimitsReached(Vec<(&'static str, String)>);

impl fmt::Display for LimitsReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(kind, key): &(&str, String)| format!("limit reached on type {kind} for key {key}");
        match self.0.as_slice() {
            [one] => f.write_str(&text(one)),
            several => write!(f, "[{}]", several.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl EventRateLimits {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is wrong with it, in upstream's words.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let read: Configuration = configuration_error::read(text)?;
        check_kind(&read.kind, &read.api_version, "Configuration", &[VERSION])?;
        check_fields(check(&read), ", ")?;
        Ok(Self(read.limits.iter().filter_map(Limit::new).collect()))
    }

    /// `true` if nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes an event from all buckets that it is in; why it cannot, in upstream's words.
    pub(crate) fn take(&self, now: Timestamp, key: impl Fn(Kind) -> String) -> Result<(), LimitsReached> {
        let mut reached = Vec::new();
        for limit in &self.0 {
            let key = key(limit.kind);
            if !limit.take(&key, now) {
                reached.push((limit.name, key));
            }
        }
        if reached.is_empty() { Ok(()) } else { Err(LimitsReached(reached)) }
    }
}

fn check(read: &Configuration) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let limits = Path::new("limits");
    if read.limits.is_empty() {
        errors.push(FieldError::invalid(&limits, &json!([]), "must not be empty"));
    }
    for (index, limit) in read.limits.iter().enumerate() {
        let at = |field: &str| limits.index(index).child(field);
        if !KINDS.iter().any(|(name, _)| *name == limit.r#type) {
            let names = KINDS.map(|(name, _)| name);
            errors.push(FieldError::not_supported(&at("type"), limit.r#type.as_str(), &names));
        }
        for (field, value) in [("burst", limit.burst), ("qps", limit.qps)] {
            if value <= 0 {
                errors.push(FieldError::invalid(&at(field), &json!(value), "must be positive"));
            }
        }
        if limit.r#type != "Server" && limit.cache_size < 0 {
            errors.push(FieldError::invalid(
                &at("cacheSize"),
                &json!(limit.cache_size),
                "must not be negative",
            ));
        }
    }
    errors
}

impl Limit {
    fn new(read: &Configured) -> Option<Self> {
        let (name, kind) = *KINDS.iter().find(|(name, _)| *name == read.r#type)?;
        let buckets_max = usize::try_from(read.cache_size).ok().filter(|size| *size > 0).unwrap_or(BUCKETS);
        let (per_second, burst) = (f64::from(read.qps), f64::from(read.burst));
        Some(Self { name, kind, per_second, burst, buckets_max, buckets: Mutex::default() })
    }

    fn take(&self, key: &str, now: Timestamp) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bucket = match buckets.by_key.get(key).copied() {
            Some(bucket) => {
                buckets.by_use.remove(&bucket.last_use);
                bucket
            }
            None => Bucket { left: self.burst, at: now, last_use: 0 },
        };
        let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.left = (bucket.left + passed * self.per_second).min(self.burst);
        bucket.at = bucket.at.max(now);
        let is_taken = bucket.left >= 1.0;
        if is_taken {
            bucket.left -= 1.0;
        }
        buckets.keep(key, bucket, self.buckets_max);
        is_taken
    }
}

impl Buckets {
    /// Whoever was not seen for longest makes room, and begins anew if he comes back.
    fn keep(&mut self, key: &str, mut bucket: Bucket, most: usize) {
        self.uses += 1;
        bucket.last_use = self.uses;
        self.by_use.insert(self.uses, key.to_owned());
        self.by_key.insert(key.to_owned(), bucket);
        while self.by_key.len() > most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn configuration(limits: &str) -> String {
        format!("{{apiVersion: {VERSION}, kind: Configuration, limits: {limits}}}")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_burst_is_taken_and_then_so_many_a_second() {
        let limits = configuration("[{type: Server, qps: 2, burst: 3}]");
        let limits = EventRateLimits::parse(&limits).unwrap();
        let taken =
            |second: i64| (0..5).filter(|_| limits.take(at(second), |_| String::new()).is_ok()).count();
        assert_eq!([taken(0), taken(0), taken(1), taken(60), taken(59), taken(60)], [3, 0, 2, 3, 0, 0]);
    }

    #[test]
    fn every_limit_has_its_buckets_and_forgets_the_oldest() {
        let limits = "[{type: Namespace, qps: 1, burst: 1, cacheSize: 2}, {type: User, qps: 1, burst: 2}]";
        let limits = EventRateLimits::parse(&configuration(limits)).unwrap();
        let take = |namespace: &str| {
            let key = |kind| if kind == Kind::Namespace { namespace.to_owned() } else { "jane".to_owned() };
            limits.take(at(0), key).err().map(|why| why.to_string()).unwrap_or_default()
        };
        assert_eq!(take("a"), "");
        assert_eq!(take("a"), "limit reached on type Namespace for key a");
        assert_eq!(
            take("a"),
            "[limit reached on type Namespace for key a, limit reached on type User for key jane]"
        );
        assert_eq!(take("b"), "limit reached on type User for key jane");
        assert_eq!(take("c"), "limit reached on type User for key jane");
        assert_eq!(take("a"), "limit reached on type User for key jane", "it was forgotten");
    }

    fn check(limits: &str, expect: &Expect) {
        expect.assert_eq(&EventRateLimits::parse(&configuration(limits)).unwrap_err().to_string());
    }

    #[test]
    fn what_is_wrong_is_told_in_upstreams_words() {
        check("[]", &expect![[r#"limits: Invalid value: []: must not be empty"#]]);
        check(
            "[{type: Pod, qps: 0, burst: -1, cacheSize: -1}]",
            &expect![[
                r#"limits[0].type: Unsupported value: "Pod": supported values: "Namespace", "Server", "SourceAndObject", "User", limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative"#
            ]],
        );
        assert!(EventRateLimits::parse("{kind: Policy, apiVersion: v1}").is_err());
        assert!(
            EventRateLimits::parse(&configuration("[{type: Server, qps: 1, burst: 1, speed: 3}]")).is_err()
        );
    }
}
