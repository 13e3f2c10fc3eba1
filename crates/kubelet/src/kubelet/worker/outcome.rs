//! What a job found, and what that changes in the snapshot.

use std::time::Duration;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::report::Report;
use super::start::StartError;
use super::{Worker, merge};
use crate::config::CRASH_LOOP_MAX;
use crate::images::pull::PullError;
use crate::kubelet::step_error::StepError;
use crate::metrics::Measure;
use crate::node_resources::dra::DraError;
use crate::pod::crash_backoff;
use crate::pod::failure_reason::FailureReason;
use crate::pod::job::JobKey;
use crate::pod::roles::find_container;
use crate::pod::snapshot::{Failure, Sandbox, Step};
use crate::pod::time::after;
use crate::volumes::TokenKey;
use crate::volumes::error::{Retry, VolumeError};
use crate::volumes::objects::Token;

/// Before the second try of what failed.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Before further tries of a sandbox or of claims.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What a job found.
pub(crate) enum Outcome {
    /// Tokens that were fetched on the way.
    Volumes(Result<Vec<(TokenKey, Token)>, VolumeError>),
    Claims(Result<(), DraError>),
    /// Whether drivers have taken everything back.
    ClaimsTakenBack(Result<(), DraError>),
    VolumesUpdated(Result<Vec<(TokenKey, Token)>, VolumeError>),
    Sandbox(Result<Sandbox, StepError>),
    /// The image's name; then its reference.
    /// Last, when it was pulled.
    Image(String, Result<String, PullError>, Option<(Timestamp, Timestamp)>),
    /// The container's name; the end of the one before; what the runtime says about it.
    Started(String, Option<Timestamp>, Result<(v1::ContainerStatus, String), StartError>),
    Killed(Option<(v1::ContainerStatus, String)>),
    /// What the runtime says about the container afterwards.
    Resized(Result<Box<v1::ContainerStatus>, StepError>),
    Runtime {
        known: Vec<String>,
        sandboxes: Vec<Sandbox>,
        containers: Vec<(v1::ContainerStatus, String)>,
    },
    ContainerRemoved(String),
    SandboxStopped(String),
    SandboxRemoved(String),
    /// There is nothing to remember.
    Nothing,
    Released,
    Cleaned,
    Deleted,
    Gone,
    StatusWritten(Box<Pod>),
    StatusFailed(Box<kube::Error>),
    /// Try again a little later.
    Failed(StepError),
}

impl Worker {
    /// Takes a job's outcome into the snapshot.
    pub(super) fn apply(&mut self, key: JobKey, outcome: Outcome) {
        let now = self.context.clock.now();
        match outcome {
            Outcome::Volumes(result) => self.snapshot.volumes = self.volumes_step(result, now),
            Outcome::Claims(result) => self.claims_prepared(result, now),
            Outcome::ClaimsTakenBack(result) => self.claims_taken_back(key, result, now),
            Outcome::VolumesUpdated(result) => self.volumes_updated(key, result, now),
            Outcome::Sandbox(Ok(sandbox)) => self.sandbox_made(sandbox, now),
            Outcome::Sandbox(Err(error)) => self.no_sandbox(error.to_string(), now),
            Outcome::Image(image, result, pulled) => {
                pulled.into_iter().for_each(|(from, to)| self.startup.pulled(from, to));
                self.pulled(image, result, now);
            }
            Outcome::Started(name, ended, result) => self.started(name, ended, result, now),
            Outcome::Killed(status) => {
                if let Some((status, sandbox_id)) = status {
                    merge::container(&mut self.snapshot, &status, &sandbox_id);
                    if status.state == i32::from(v1::ContainerState::ContainerUnknown) {
                        self.retry_later(key, now);
                    }
                }
                merge::read_last_words(&self.context.config, &mut self.snapshot);
            }
            Outcome::Resized(result) => self.resized(key, result, now),
            Outcome::Runtime { known, sandboxes, containers } => {
                merge::all(&mut self.snapshot, &known, sandboxes, &containers, now);
                merge::read_last_words(&self.context.config, &mut self.snapshot);
            }
            Outcome::ContainerRemoved(id) => self.snapshot.containers.retain(|c| c.id != id),
            Outcome::SandboxStopped(id) => {
                for sandbox in self.snapshot.sandboxes.iter_mut().filter(|s| s.id == id) {
                    sandbox.is_ready = false;
                }
            }
            Outcome::SandboxRemoved(id) => self.snapshot.sandboxes.retain(|s| s.id != id),
            Outcome::Nothing => {}
            Outcome::Released => {
                self.snapshot.is_released = true;
                self.snapshot.volumes = Step::Missing;
            }
            Outcome::Cleaned => self.snapshot.is_cleaned = true,
            Outcome::Deleted => {
                // The object may stay for its finalizers; the node has done its part.
                self.snapshot.busy.insert(key);
            }
            Outcome::Gone if self.snapshot.is_static() => {
                self.snapshot.mirror = None;
                self.report = Report::default();
            }
            Outcome::Gone => self.snapshot.removed_from_api = true,
            Outcome::StatusWritten(pod) => self.status_written(*pod, now),
            Outcome::StatusFailed(error) => {
                tracing::warn!(pod = self.snapshot.uid(), %error, "the pod's status was not written");
                self.report.failed(now);
            }
            Outcome::Failed(error) => {
                tracing::warn!(pod = self.snapshot.uid(), step = %key, %error, "a step of the pod failed");
                if key != JobKey::Refresh {
                    self.retry_later(key, now);
                }
            }
        }
    }

    /// There is a new sandbox, for which all older ones were stopped.
    fn sandbox_made(&mut self, sandbox: Sandbox, now: Timestamp) {
        self.snapshot.sandboxes.iter_mut().for_each(|older| older.is_ready = false);
        merge::sandbox(&mut self.snapshot, sandbox);
        match self.snapshot.ready_sandbox() {
            Some(_) => self.snapshot.sandbox_failure = None,
            None => self.no_sandbox("the sandbox has no IP address".to_owned(), now),
        }
    }

    fn no_sandbox(&mut self, message: String, now: Timestamp) {
        let delay = next_delay(self.snapshot.sandbox_failure.as_ref());
        let reason = FailureReason::FailedCreatePodSandBox;
        self.snapshot.sandbox_failure = Some(Failure { reason, message, at: now, delay });
    }

    fn status_written(&mut self, pod: Pod, now: Timestamp) {
        if let Some(since) = self.report.written() {
            let took = now.duration_since(since).as_secs_f64();
            self.context.metrics.measure(Measure::PodStatusSync, &[], took);
        }
        if self.snapshot.is_static() {
            self.take_mirror(Some(pod.into()));
        } else if merge::is_newer(&pod, &self.snapshot.pod) {
            self.take_pod(pod.into());
        }
    }

    fn pulled(&mut self, image: String, result: Result<String, PullError>, now: Timestamp) {
        let step = match result {
            Ok(reference) => Step::Ready(reference),
            Err(error) => {
                let before = self.snapshot.images.get(&image).and_then(Step::failure);
                let delay = before.map_or(crash_backoff::FIRST, |f| (f.delay * 2).min(CRASH_LOOP_MAX));
                Step::Failed(Failure { reason: error.reason(), message: error.to_string(), at: now, delay })
            }
        };
        self.snapshot.images.insert(image, step);
    }

    fn resized(&mut self, key: JobKey, result: Result<Box<v1::ContainerStatus>, StepError>, now: Timestamp) {
        let error = match result {
            Ok(status) => return merge::container(&mut self.snapshot, &status, ""),
            Err(error) => error.to_string(),
        };
        if self.snapshot.resize.error.as_ref() != Some(&error) {
            let pod = self.pod();
            let text = crate::pod::resize::event_text(&pod, "error", &error);
            self.context.event(&pod, None, controller::EventType::Warning, "ResizeError", text);
        }
        self.snapshot.resize.error = Some(error);
        self.retry_later(key, now);
    }

    /// A source that went away wakes the worker when it is back, so tries may become rare.
    fn volumes_updated(
        &mut self,
        key: JobKey,
        result: Result<Vec<(TokenKey, Token)>, VolumeError>,
        now: Timestamp,
    ) {
        match result {
            Ok(tokens) => {
                self.volume_update_delay = None;
                self.tokens.extend(tokens);
            }
            Err(error) => {
                tracing::warn!(pod = self.snapshot.uid(), %error, "volumes were not updated");
                // What has changed meanwhile may be what was missing.
                if std::mem::replace(&mut self.is_volume_update_due, true) {
                    return;
                }
                if let Retry::After(delay) = error.retry(self.volume_update_delay) {
                    self.volume_update_delay = Some(delay);
                    self.retry_after(key, now, delay);
                }
            }
        }
    }

    fn retry_later(&mut self, key: JobKey, now: Timestamp) {
        self.retry_after(key, now, RETRY_FIRST);
    }

    fn retry_after(&mut self, key: JobKey, now: Timestamp, delay: Duration) {
        self.snapshot.busy.insert(key.clone());
        self.retries.insert(key, after(now, delay));
    }

    fn claims_prepared(&mut self, result: Result<(), DraError>, now: Timestamp) {
        self.snapshot.holds_claims = self.context.resources.dra.holds(self.snapshot.uid());
        self.snapshot.claims = match result {
            Ok(()) => Step::Ready(String::new()),
            Err(error) => {
                let delay = next_delay(self.snapshot.claims.failure());
                let (reason, message) = (FailureReason::FailedPrepareDynamicResources, error.to_string());
                Step::Failed(Failure { reason, message, at: now, delay })
            }
        };
    }

    fn claims_taken_back(&mut self, key: JobKey, result: Result<(), DraError>, now: Timestamp) {
        if let Err(error) = result {
            tracing::warn!(pod = self.snapshot.uid(), %error, "claims were not taken back");
            self.retry_later(key, now);
            return;
        }
        self.snapshot.claims = Step::Missing;
        self.snapshot.holds_claims = false;
    }

    fn volumes_step(&mut self, result: Result<Vec<(TokenKey, Token)>, VolumeError>, now: Timestamp) -> Step {
        match result {
            Ok(tokens) => {
                self.tokens.extend(tokens);
                Step::Ready(String::new())
            }
            Err(error) => {
                let (reason, message) = (error.reason(), error.to_string());
                let delay = match error.retry(self.snapshot.volumes.failure().map(|failure| failure.delay)) {
                    Retry::Never => {
                        self.context.metrics.rejected(reason.as_str());
                        self.end(crate::pod::snapshot::rejected(reason.as_str().to_owned(), message.clone()));
                        RETRY_MAX
                    }
                    // What has changed meanwhile may be what was missing.
                    Retry::After(_) if self.is_volume_update_due => return Step::Missing,
                    Retry::After(delay) => delay,
                };
                Step::Failed(Failure { reason, message, at: now, delay })
            }
        }
    }

    fn started(
        &mut self,
        name: String,
        ended: Option<Timestamp>,
        result: Result<(v1::ContainerStatus, String), StartError>,
        now: Timestamp,
    ) {
        if let Some(ended) = ended {
            let max = self.context.config.crash_loop_max;
            let backoff = || crash_backoff::CrashBackoff::with_max(max);
            self.snapshot.crashes.entry(name.clone()).or_insert_with(backoff).restarted(ended, now);
        }
        match result {
            Ok((status, sandbox_id)) => {
                self.snapshot.failures.remove(&name);
                merge::container(&mut self.snapshot, &status, &sandbox_id);
                self.forget_image(&name);
                self.note_start();
            }
            Err(error) => {
                let before = self.snapshot.failures.get(&name);
                let delay = before.map_or(crash_backoff::FIRST, |f| (f.delay * 2).min(CRASH_LOOP_MAX));
                let (reason, message) = (error.reason(), error.to_string());
                self.snapshot.failures.insert(name.clone(), Failure { reason, message, at: now, delay });
                self.forget_image(&name);
                self.launch_refresh();
            }
        }
    }

    /// Measures how long a new Pod took until all of it ran.
    fn note_start(&mut self) {
        let runs =
            |name: &str| self.snapshot.current(name).is_some_and(crate::pod::snapshot::Container::is_running);
        if !self.snapshot.spec().containers.iter().all(|container| runs(&container.name)) {
            return;
        }
        self.startup.runs(&self.context.metrics, &self.snapshot, self.context.clock.now());
    }

    /// The next start of that container asks for its images again: it may be gone, or newer.
    fn forget_image(&mut self, container: &str) {
        let Some(spec) = find_container(self.snapshot.spec(), container) else { return };
        for (image, _) in crate::pod::needed_images::needed_by(self.snapshot.spec(), &spec) {
            self.snapshot.images.remove(&image);
        }
    }
}

fn next_delay(before: Option<&Failure>) -> Duration {
    before.map_or(RETRY_FIRST, |failure| (failure.delay * 2).min(RETRY_MAX))
}
