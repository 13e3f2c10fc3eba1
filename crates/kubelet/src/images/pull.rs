//! Has an image by its pull policy, with upstream's events and reasons.
//!
//! Credentials are those of the Pod's pull secrets that fit the image's name (`keyring.rs`). Whether a Pod may use an
//! image that is on the node already, and that another Pod's secret has brought there, says `records.rs`. As upstream's
//! default is, one image is pulled after the other, and only so many in a while. Source: `pkg/kubelet/images` of upstream.

mod error;
mod keyring;
mod records;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use controller::EventType;
use cri::{CriError, v1};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use parking_lot::Mutex;
use registry::Reference;
use tokio::sync::Semaphore;

use crate::config::{ImagePulls, PullRate};
use crate::context::Context;
use crate::images::Images;
use crate::metrics::{Count, Measure, image_size};
use crate::pod::container_config::sandbox_config;
use crate::pod::needed_images;
use crate::volumes::objects::PodObjects;
pub(crate) use error::PullError;
use error::{AttemptError, Attempts};
use keyring::{Credential, Keyring, SecretError};
use records::{Access, Records};

/// Images under this host name are made on the node: there is no registry to ask for newer ones.
const LOCAL_REGISTRY: &str = "knarr.local/";
/// How long a pull takes before an event says how far it is; the next says so after twice as long.
const PROGRESS_FIRST: Duration = Duration::from_secs(15);

/// What all pulls of a kubelet share.
pub(crate) struct Pulls {
    /// Of pulls at the same time; `None` is any number.
    slots: Option<Semaphore>,
    /// `None` lets any number begin.
    rate: Option<Mutex<base::Bucket>>,
    pub(crate) records: Records,
}

impl Pulls {
    pub(crate) fn new(root_dir: &Path, rules: &ImagePulls) -> Self {
        let slots = rules.at_once.map(|most| Semaphore::new(usize::try_from(most).unwrap_or(1).max(1)));
        let rate = rules.rate.map(|rate| Mutex::new(bucket(rate)));
        let records = Records::new(&root_dir.join("image_manager"), rules.verification.clone());
        Self { slots, rate, records }
    }

    /// Whether another pull may begin now.
    fn may_begin(&self, now: jiff::Timestamp) -> bool {
        self.rate.as_ref().is_none_or(|bucket| bucket.lock().take(now))
    }
}

/// Source: `throttleImagePulling` in `pkg/kubelet/images/helpers.go` of upstream.
fn bucket(rate: PullRate) -> base::Bucket {
    let interval = SignedDuration::from_secs(1) / i32::try_from(rate.per_second).unwrap_or(i32::MAX).max(1);
    base::Bucket::new(interval, rate.burst)
}

/// One image for one Pod.
pub(crate) struct Want {
    store: Arc<Images>,
    pod: Arc<Pod>,
    objects: PodObjects,
    /// As the spec has it.
    image: String,
    policy: String,
    container: Option<String>,
}

/// An image that is here.
pub(crate) struct Had {
    pub(crate) reference: String,
    /// From when to when, unless it was here before.
    pub(crate) pulled: Option<(jiff::Timestamp, jiff::Timestamp)>,
}

/// What turned out on the way to having an image or not.
#[derive(Default)]
struct Found {
    is_present: Option<bool>,
    is_pull_required: Option<bool>,
}

impl Want {
    pub(crate) fn new(
        store: Arc<Images>,
        pod: Arc<Pod>,
        objects: PodObjects,
        image: String,
        policy: String,
    ) -> Self {
        let container = needed_images::container_of(&pod, &image);
        Self { store, pod, objects, image, policy, container }
    }

    /// Looks whether the image is there, and pulls it if the policy says so. Source: `EnsureImageExists` of upstream's
    /// `pkg/kubelet/images`.
    pub(crate) async fn ensure_exists(&self, cause: u64) -> Result<Had, PullError> {
        let Self { store, pod, image, .. } = self;
        let start = store.clock.now();
        let mut found = Found::default();
        let result = self.have(&mut found).await;
        let told =
            |known: Option<bool>| known.map_or("unknown", |known| if known { "true" } else { "false" });
        let labels = [&self.policy.to_lowercase(), told(found.is_present), told(found.is_pull_required)];
        store.metrics.count(Count::EnsuredImages, &labels);
        match &result {
            Ok(_) => store.span(cause, "image present", pod, start, image),
            Err(error) => {
                let reason = error.reason();
                self.event(EventType::Warning, "Failed", format!("Error: {}", reason.as_str()));
                if reason.is_pull_failure() {
                    self.event(EventType::Normal, "BackOff", format!("Back-off pulling image \"{image}\""));
                    self.event(EventType::Warning, "Failed", "Error: ImagePullBackOff".into());
                }
            }
        }
        result
    }

    fn event(&self, event_type: EventType, reason: &str, message: String) {
        self.store.event(&self.pod, self.container.as_deref(), event_type, reason, message);
    }

    /// Tells of the error under the event's name.
    fn failed(&self, event: &str, error: PullError) -> PullError {
        self.event(EventType::Warning, event, error.to_string());
        error
    }

    async fn have(&self, on_the_way: &mut Found) -> Result<Had, PullError> {
        let image = &self.image;
        let reference: Reference = image.parse().map_err(|source| {
            self.failed("InspectFailed", PullError::Name { image: image.clone(), source })
        })?;
        let must_ask = self.policy == "Always" && !image.starts_with(LOCAL_REGISTRY);
        let present = match must_ask {
            true => None,
            false => status(&self.store, image).await.map_err(|source| {
                self.failed("InspectFailed", PullError::Inspect { image: image.clone(), source })
            })?,
        };
        let never = || self.failed("ErrImageNeverPull", PullError::Never(image.clone()));
        on_the_way.is_present = (!must_ask).then_some(present.is_some());
        if present.is_none() && self.policy == "Never" {
            return Err(never());
        }
        let secrets = self.secrets().await?;
        let credentials = || Keyring::of(&secrets).map(|keyring| keyring.lookup(&reference.name()));
        if let Some(found) = present {
            let is_allowed = image.starts_with(LOCAL_REGISTRY) || self.check(&found.id, credentials).await?;
            on_the_way.is_pull_required = Some(!is_allowed);
            if is_allowed {
                let message = format!(
                    "Container image \"{image}\" already present on machine and can be accessed by the pod"
                );
                self.event(EventType::Normal, "Pulled", message);
                return Ok(Had { reference: found.id, pulled: None });
            }
            if self.policy == "Never" {
                return Err(never());
            }
        }
        on_the_way.is_pull_required = Some(true);
        self.pull(credentials()?).await
    }

    /// Whether the Pod has a right to the image of this id that is here. Its credentials for the image are read no
    /// earlier than they are needed: what is wrong with them harms nobody else.
    async fn check(
        &self,
        id: &str,
        credentials: impl Fn() -> Result<Vec<Credential>, SecretError>,
    ) -> Result<bool, SecretError> {
        let (store, now) = (&self.store, self.store.clock.now());
        let mut check = store.pulls.records.check(&self.image, id, std::iter::empty(), now).await;
        if !check.is_enough() {
            let credentials = credentials()?;
            let sources = credentials.iter().filter_map(|credential| credential.source.as_ref());
            check = store.pulls.records.check(&self.image, id, sources, now).await;
        }
        store.metrics.count(Count::ImageChecks, &[check.label()]);
        Ok(check.is_enough())
    }

    /// The Pod's pull secrets; those that are missing are told of.
    async fn secrets(&self) -> Result<Vec<Arc<Secret>>, PullError> {
        let names = crate::volumes::objects::pull_secret_names(&self.pod);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.objects.synced(&self.store, &self.pod).await?;
        let (secrets, missing) = self.objects.pull_secrets(&self.pod);
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.store.event(&self.pod, None, EventType::Warning, "FailedToRetrieveImagePullSecret", message);
        }
        Ok(secrets)
    }

    async fn pull(&self, credentials: Vec<Credential>) -> Result<Had, PullError> {
        let (store, image) = (&self.store, &self.image);
        self.event(EventType::Normal, "Pulling", format!("Pulling image \"{image}\""));
        let waiting_since = store.clock.now();
        let _slot = match &store.pulls.slots {
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let start = store.clock.now();
        let intent = store.pulls.records.intend(image).await;
        let (reference, used) = match self.try_all(&credentials).await {
            Ok(pulled) => pulled,
            Err(attempts) => {
                store.pulls.records.give_up(intent).await;
                let message = format!("Failed to pull image \"{image}\": {attempts}");
                self.event(EventType::Warning, "Failed", message);
                return Err(PullError::of(image, attempts));
            }
        };
        let now = store.clock.now();
        let access = used.and_then(|credential| credential.source).map_or(Access::Everyone, Access::Secret);
        store.pulls.records.pulled(intent, image, &reference, access, now).await;
        let size = status(store, image).await.ok().flatten().map_or(0, |found| found.size);
        let took = |since: jiff::Timestamp| go_milliseconds(now.duration_since(since).as_millis());
        let message = format!(
            "Successfully pulled image \"{image}\" in {} ({} including waiting). Image size: {size} bytes.",
            took(start),
            took(waiting_since)
        );
        self.event(EventType::Normal, "Pulled", message);
        let seconds = now.duration_since(start).as_secs_f64();
        store.metrics.measure(Measure::ImagePull, &[image_size(size)], seconds);
        Ok(Had { reference, pulled: Some((start, now)) })
    }

    /// With each of the credentials that fit, until one is good; without any if there is none.
    async fn try_all(&self, credentials: &[Credential]) -> Result<(String, Option<Credential>), Attempts> {
        let mut errors = Vec::new();
        let all: Vec<Option<&Credential>> = match credentials {
            [] => vec![None],
            some => some.iter().map(Some).collect(),
        };
        for credential in all {
            if !self.store.pulls.may_begin(self.store.clock.now()) {
                errors.push(AttemptError::RateExceeded);
                continue;
            }
            match self.ask_runtime(credential).await {
                Ok(reference) => return Ok((reference, credential.cloned())),
                Err(error) => errors.push(error.into()),
            }
        }
        Err(Attempts(errors))
    }

    async fn ask_runtime(&self, credential: Option<&Credential>) -> Result<String, CriError> {
        let store = &self.store;
        let request = v1::PullImageRequest {
            image: Some(image_spec(&self.image)),
            auth: credential.map(|it| it.auth.clone()),
            sandbox_config: Some(sandbox_config(&store.config, &self.pod, 0, "")),
        };
        let pull = store.images.pull_image(request);
        tokio::pin!(pull);
        let mut patience = PROGRESS_FIRST;
        loop {
            tokio::select! {
                pulled = &mut pull => return pulled.map(|answer| answer.image_ref),
                () = tokio::time::sleep(patience) => {
                    patience *= 2;
                    self.tell_progress().await;
                }
            }
        }
    }

    /// Says in an event how far the pull is, if the runtime knows.
    async fn tell_progress(&self) {
        let request = v1::ImageStatusRequest { image: Some(image_spec(&self.image)), verbose: true };
        let info = self.store.images.image_status(request).await.map(|answer| answer.info);
        let progress = info.ok().and_then(|mut info| info.remove(cri::annotations::PULL_PROGRESS));
        let progress: serde_json::Value =
            serde_json::from_str(progress.as_deref().unwrap_or_default()).unwrap_or_default();
        let number = |key: &str| progress.get(key).and_then(serde_json::Value::as_u64);
        let numbers = (number("layersDone"), number("layers"), number("bytesDone"), number("bytes"));
        if let (Some(layers_done), Some(layers), Some(bytes_done), Some(bytes)) = numbers {
            let message = format!(
                "Pulling image \"{}\": {bytes_done} of {bytes} bytes, {layers_done} of {layers} layers",
                self.image
            );
            self.event(EventType::Normal, "Pulling", message);
        }
    }
}

/// A duration in whole milliseconds as Go prints it: `405ms`, `1.5s`, `2m3.004s`.
fn go_milliseconds(milliseconds: i128) -> String {
    let milliseconds = u64::try_from(milliseconds).unwrap_or_default();
    if milliseconds == 0 {
        return "0s".into();
    }
    if milliseconds < 1000 {
        return format!("{milliseconds}ms");
    }
    let (whole, rest) = (milliseconds / 1000, milliseconds % 1000);
    let fraction =
        if rest == 0 { String::new() } else { format!(".{rest:03}").trim_end_matches('0').to_owned() };
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

fn image_spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}

async fn status(context: &Context, image: &str) -> Result<Option<v1::Image>, CriError> {
    let request = v1::ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
    match context.images.image_status(request).await {
        Ok(answer) => Ok(answer.image),
        Err(CriError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (milliseconds, expect) in [
            (0, "0s"),
            (405, "405ms"),
            (1000, "1s"),
            (1500, "1.5s"),
            (123_004, "2m3.004s"),
            (3_600_010, "1h0m0.01s"),
        ] {
            assert_eq!(go_milliseconds(milliseconds), expect);
        }
    }
}
