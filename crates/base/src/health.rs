//! Health checks that the parts of one process answer for, by name; read by whoever serves its health.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::Metrics;

type Labels = Vec<(&'static str, String)>;

/// What keeps a part from being well; its text is fit for anybody's eyes.
pub type Fault = Box<dyn Error + Send + Sync>;
type Check = Box<dyn Fn() -> Result<(), Fault> + Send + Sync>;

/// The checks of one process.
#[derive(Default)]
pub struct Checks(Mutex<BTreeMap<String, Check>>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

impl Checks {
    /// The checks of the process whose metrics these are.
    pub fn of(metrics: &Metrics) -> Arc<Self> {
        metrics.part(|_| Self::default())
    }

    /// Adds a check; one of the same name is replaced.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), Fault> + Send + Sync + 'static) {
        let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.insert(name.to_owned(), Box::new(check));
    }

    /// Every check with what it says now, in order of name.
    pub fn all(&self) -> Vec<(String, Result<(), Fault>)> {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.iter().map(|(name, check)| (name.clone(), check())).collect()
    }
}

/// The results of checks, which `/metrics/slis` shows. Source: `k8s.io/component-base/metrics/prometheus/slis`.
#[derive(Debug)]
pub struct Results {
    registry: Metrics,
    last: Family<Labels, Gauge>,
    all: Family<Labels, Counter>,
}

impl Default for Results {
    fn default() -> Self {
        let (registry, last, all) = (Metrics::new(), Family::default(), Family::default());
        let help = "This metric records the result of a single healthcheck";
        registry.register("kubernetes_healthcheck", help, &last);
        let help = "This metric records the results of all healthcheck";
        registry.register("kubernetes_healthchecks", help, &all);
        Self { registry, last, all }
    }
}

impl Results {
    /// Those of the process whose metrics these are.
    pub fn of(metrics: &Metrics) -> Arc<Self> {
        metrics.part(|_| Self::default())
    }

    /// Keeps and counts what a check has come to; `endpoint` is `livez`, `readyz` or `healthz`.
    pub fn note(&self, endpoint: &str, name: &str, is_well: bool) {
        let status = if is_well { "success" } else { "error" };
        let labels = vec![("name", name.to_owned()), ("type", endpoint.to_owned())];
        self.last.get_or_create(&labels).set(i64::from(is_well));
        let status = ("status", status.to_owned());
        let labels = vec![("name", name.to_owned()), status, ("type", endpoint.to_owned())];
        self.all.get_or_create(&labels).inc();
    }

    /// The text exposition.
    pub fn render(&self) -> String {
        self.registry.render()
    }
}

/// The answer of a health path about the checks that are asked for, and whether all of them are well; nothing if there
/// are none. Source: `handleRootHealth` of `k8s.io/apiserver/pkg/server/healthz`.
pub fn report(
    path: &str,
    checks: impl IntoIterator<Item = (String, Result<(), Fault>)>,
    is_asked: impl Fn(&str) -> bool,
    is_verbose: bool,
) -> Option<(bool, String)> {
    let mut asked = checks.into_iter().filter(|(name, _)| is_asked(name)).peekable();
    asked.peek()?;
    let (mut lines, mut is_well) = (String::new(), true);
    for (name, found) in asked {
        match found {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                is_well = false;
                lines.push_str(&format!("[-]{name} failed: {why}\n"));
            }
        }
    }
    let told = match (is_well, is_verbose) {
        (true, false) => "ok".to_owned(),
        (true, true) => format!("{lines}{path} check passed\n"),
        (false, _) => format!("{lines}{path} check failed\n"),
    };
    Some((is_well, told))
}

#[cfg(test)]
mod tests;
