//! The scheduler's configuration file: read strictly, defaulted and validated as upstream does, and made into profiles.
//!
//! Pure: files that it names are read by who calls. What upstream lets be tuned and there is nothing to tune here is
//! checked and has no effect: `parallelism` (one decision is one thread's), the client's rates and content types,
//! profiling, `delayCacheUntilActive` (caches fill once the lead is ours, always). Every broken rule is told.
//! Source: `kubescheduler.config.k8s.io/v1` `KubeSchedulerConfiguration`.

mod checks;
#[cfg(test)]
mod decisions;
mod error;
mod extenders;
mod file;
mod profiles;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use machinery::field::{FieldError, FieldErrors, Path, Shown};
use machinery::leader_election::LeaderElection;
use serde_json::json;

use crate::arguments::Arguments;
use crate::extender::Extender;
use crate::profile::{DEFAULT_NAME, Point, Profile, Profiles};
use crate::queue::Backoff;
pub use error::{ArgumentsError, ConfigurationError, ProfileError};
use file::File;

/// Plugins that there were once. Source: `invalidPluginsByVersion`.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
const BAD_PERCENTAGE: &str = "not in valid range [0-100]";
const LEASES: &str = "leases";

/// Upstream's component, and its Lease.
const COMPONENT: &str = "kube-scheduler";

/// The settings of a scheduler.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// By what Pods are scheduled.
    pub profiles: Profiles,
    /// The extenders, in order.
    pub extenders: Vec<Extender>,
    /// The backoff of Pods that failed.
    pub backoff: Backoff,
    /// The leader election.
    pub leader_election: LeaderElection,
    /// The kubeconfig for the API server, if the file names one.
    pub kubeconfig: Option<String>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            profiles: Profiles::default(),
            extenders: Vec::new(),
            backoff: Backoff::default(),
            leader_election: LeaderElection::of(COMPONENT),
            kubeconfig: None,
        }
    }
}

impl Configuration {
    /// Reads a file; `read` reads files that it names.
    ///
    /// # Errors
    /// What is wrong with it, every broken field by its name.
    pub fn parse(yaml: &str, read: &dyn Fn(&str) -> io::Result<String>) -> Result<Self, ConfigurationError> {
        let file = File::read(yaml)?;
        let mut errors = FieldErrors::new();
        check_client(&file.client_connection, &mut errors);
        let leader_election = leader_election(&file.leader_election, &mut errors);
        let at = Path::new;
        if let Some(parallelism) = file.parallelism.filter(|parallelism| *parallelism <= 0) {
            let why = "should be an integer value greater than zero";
            errors.push(FieldError::invalid(&at("parallelism"), i64::from(parallelism), why));
        }
        let given = match file.profiles.as_deref() {
            None | Some([]) => &[file::Profile::default()],
            Some(given) => given,
        };
        let mut arguments = all_arguments(given, &mut errors)?;
        check_profiles(given, &mut errors);
        check_percentage(file.percentage_of_nodes_to_score, &at("percentageOfNodesToScore"), &mut errors);
        let backoff = backoff(&file, &mut errors);
        let extenders = file.extenders.unwrap_or_default();
        let extenders = extenders::taken(&extenders, &mut arguments, read, &mut errors);
        if !errors.is_empty() {
            return Err(ConfigurationError::Fields(errors));
        }
        let global = file.percentage_of_nodes_to_score;
        let mut profiles =
            given.iter().zip(arguments).map(|(given, arguments)| profile(given, arguments, global));
        let first = profiles.next().unwrap_or_else(|| Ok(Profile::default()))?;
        let profiles = Profiles::new(first, profiles.collect::<Result<_, _>>()?);
        let kubeconfig = Some(file.client_connection.kubeconfig).filter(|path| !path.is_empty());
        Ok(Self { profiles, extenders, backoff, leader_election, kubeconfig })
    }
}

fn check_client(client: &file::ClientConnection, errors: &mut FieldErrors) {
    if client.burst < 0 {
        let path = Path::new("clientConnection").child("burst");
        errors.push(FieldError::invalid(&path, i64::from(client.burst), "must be non-negative"));
    }
}

fn leader_election(given: &file::LeaderElection, errors: &mut FieldErrors) -> LeaderElection {
    let default = LeaderElection::of(COMPONENT);
    let or = |text: &str, default: String| if text.is_empty() { default } else { text.to_owned() };
    let (lease, renew) = (given.lease_duration.or_seconds(15), given.renew_deadline.or_seconds(10));
    let retry = given.retry_period.or_seconds(2);
    let is_on = given.leader_elect.unwrap_or(true);
    if is_on {
        let path = Path::new("leaderElection");
        let spans = [("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)];
        for (field, span) in spans.into_iter().filter(|(_, span)| span.0 <= 0) {
            let why = "must be greater than zero";
            errors.push(FieldError::invalid(&path.child(field), String::from(span), why));
        }
        if lease <= renew {
            let why = "must be greater than `RenewDeadline`";
            errors.push(FieldError::invalid(&path.child("leaseDuration"), String::from(renew), why));
        }
        if !given.resource_lock.is_empty() && given.resource_lock != LEASES {
            let why = "resourceLock value must be \"leases\"";
            errors.push(FieldError::invalid(&path.child("resourceLock"), &given.resource_lock, why));
        }
    }
    LeaderElection {
        is_on,
        lease_duration: lease.duration(),
        renew_deadline: renew.duration(),
        retry_period: retry.duration(),
        namespace: or(&given.resource_namespace, default.namespace),
        name: or(&given.resource_name, default.name),
    }
}

fn backoff(file: &File, errors: &mut FieldErrors) -> Backoff {
    let (first, max) =
        (file.pod_initial_backoff_seconds.unwrap_or(1), file.pod_max_backoff_seconds.unwrap_or(10));
    if first <= 0 {
        let path = Path::new("podInitialBackoffSeconds");
        errors.push(FieldError::invalid(&path, first, "must be greater than 0"));
    }
    if max < first {
        let why = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.push(FieldError::invalid(&Path::new("podMaxBackoffSeconds"), max, why));
    }
    let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or(0));
    Backoff { first: seconds(first), max: seconds(max) }
}

fn check_percentage(given: Option<i32>, path: &Path, errors: &mut FieldErrors) {
    if let Some(percentage) = given.filter(|percentage| !(0..=100).contains(percentage)) {
        errors.push(FieldError::invalid(path, i64::from(percentage), BAD_PERCENTAGE));
    }
}

/// What the plugins of each profile are told.
///
/// # Errors
/// What cannot be read; upstream looks no further then.
fn all_arguments(
    given: &[file::Profile],
    errors: &mut FieldErrors,
) -> Result<Vec<Arguments>, ConfigurationError> {
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    for (index, profile) in given.iter().enumerate() {
        let list = Path::new("profiles").index(index).child("pluginConfig");
        let (mut arguments, mut seen) = (Arguments::default(), BTreeSet::new());
        for (number, one) in profile.plugin_config.iter().flatten().enumerate() {
            let path = list.index(number);
            if !seen.insert(&one.name) {
                errors.push(FieldError::duplicate(&path, &one.name));
            }
            if REMOVED.contains(&one.name.as_str()) {
                errors.push(removed(&path, &one.name));
            }
            let taken = checks::take(&mut arguments, &one.name, &one.args, &path.child("args"), errors);
            unreadable.extend(taken.err().map(|error| (path.to_string(), error)));
        }
        all.push(arguments);
    }
    if unreadable.is_empty() { Ok(all) } else { Err(ConfigurationError::Arguments(unreadable)) }
}

fn removed(path: &Path, name: &str) -> FieldError {
    const VERSION: &str = "v1";
    let own = format!("{}/{VERSION}", error::GROUP);
    let why = format!("was invalid in version {VERSION:?} (KubeSchedulerConfiguration is version {own:?})");
    FieldError::invalid(path, name, &why)
}

fn check_profiles(given: &[file::Profile], errors: &mut FieldErrors) {
    let list = Path::new("profiles");
    let alone = given.len() == 1;
    let name = |profile: &file::Profile| match &profile.scheduler_name {
        None if alone => DEFAULT_NAME.to_owned(),
        name => name.clone().unwrap_or_default(),
    };
    let sorting = |profile: &file::Profile| {
        profile.plugins.as_ref().map(|plugins| plugins.queue_sort.clone()).unwrap_or_default()
    };
    for (index, profile) in given.iter().enumerate() {
        let path = list.index(index);
        if name(profile).is_empty() {
            errors.push(FieldError::required(&path.child("schedulerName"), ""));
        }
        check_percentage(
            profile.percentage_of_nodes_to_score,
            &path.child("percentageOfNodesToScore"),
            errors,
        );
        let plugins = path.child("plugins");
        for point in Point::ALL {
            let set = profile.plugins.iter().flat_map(|plugins| point.of(plugins).enabled());
            for (number, plugin) in set.enumerate().filter(|(_, one)| REMOVED.contains(&one.name.as_str())) {
                let path = plugins.child(point.field()).child("enabled").index(number);
                errors.push(removed(&path, &plugin.name));
            }
        }
        let earlier = given.iter().take(index).rposition(|other| name(other) == name(profile));
        if let Some(earlier) = earlier {
            let other = Shown::from(list.index(earlier).child("schedulerName").to_string());
            errors.push(FieldError::duplicate(&path.child("schedulerName"), other));
        }
        if given.first().is_some_and(|first| sorting(first) != sorting(profile)) {
            let (path, shown) = (plugins.child("queueSort"), Shown::from(&json!(sorting(profile))));
            errors.push(FieldError::invalid(&path, shown, "must be the same for all profiles"));
        }
    }
}

/// # Errors
/// What cannot be, as upstream says it when it sets profiles up.
fn profile(
    given: &file::Profile,
    arguments: Arguments,
    global: Option<i32>,
) -> Result<Profile, ConfigurationError> {
    let name = given.scheduler_name.as_deref().unwrap_or(DEFAULT_NAME);
    let none = file::Plugins::default();
    let mut made = profiles::profile(name, given.plugins.as_ref().unwrap_or(&none), arguments)
        .map_err(|source| ConfigurationError::Profile { name: name.to_owned(), source })?;
    let percentage = given.percentage_of_nodes_to_score.or(global).unwrap_or(0);
    made.percentage_of_nodes_to_score = usize::try_from(percentage).unwrap_or(0);
    Ok(made)
}
