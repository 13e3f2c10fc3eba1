//! Who has proved to a registry that he may have an image that is on this node: a Pod without that proof gets it from the
//! registry, or not at all, although the image is there.
//!
//! A file per image that this kubelet has pulled, and one per pull under way, so that a crash in between does not make a
//! pulled image look like one that was there before. What was there before is for everybody, by upstream's default.
//!
//! Source: KEP-2535, `KubeletEnsureSecretPulledImages` (on in v1.35), and its policies; `ImagePulledRecord` and `ImagePullIntent` of `kubelet.config.k8s.io/v1beta1`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use registry::Reference;
use serde::{Deserialize, Serialize};

use super::keyring::Source;
use crate::config::Verification;

/// Most secrets that are remembered of one image.
const SECRETS_MAX: usize = 100;

/// Who may use an image that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// No credentials were needed.
    Everyone,
    /// Who has this secret.
    Secret(Source),
}

/// The records of one kubelet.
#[derive(Clone)]
pub(crate) struct Records(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    policy: Verification,
    /// Held while files are read and written.
    intents: Mutex<BTreeMap<String, usize>>,
}

/// A pull under way.
pub(crate) struct Intent(String);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    /// By the image's name, without tag and digest.
    #[serde(default)]
    credential_mapping: BTreeMap<String, Credentials>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credentials {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<KubernetesSecret>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubernetesSecret {
    uid: String,
    namespace: String,
    name: String,
    credential_hash: String,
}

impl From<&Source> for KubernetesSecret {
    fn from(source: &Source) -> Self {
        let Source { uid, namespace, name, hash } = source.clone();
        Self { uid, namespace, name, credential_hash: hash }
    }
}

impl KubernetesSecret {
    fn is_same_object(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// Where it stands among others.
    fn place(&self) -> (&str, &str, &str) {
        (&self.namespace, &self.name, &self.uid)
    }

    /// What could not be hashed is like nothing else.
    fn is_same_content(&self, other: &Self) -> bool {
        !self.credential_hash.is_empty() && self.credential_hash == other.credential_hash
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IntentFile<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
}

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

/// What is to be done with a Pod that wants an image that is there.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Use,
    /// And this secret is as good as the one that is known.
    UseAndRemember(KubernetesSecret),
    Ask,
}

/// What was found about a Pod's right to an image that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// It has to prove nothing.
    Allowed,
    /// It has proved it, or another with the same secret has.
    Proved,
    /// The registry is to say it.
    MustAsk,
    /// The records cannot be read.
    Failed,
}

impl Check {
    pub(crate) fn is_enough(self) -> bool {
        matches!(self, Self::Allowed | Self::Proved)
    }

    /// Source: `mustAttemptImagePullResult` of upstream.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Allowed => "credentialPolicyAllowed",
            Self::Proved => "credentialRecordFound",
            Self::MustAsk => "mustAuthenticate",
            Self::Failed => "error",
        }
    }
}

/// Decides by the record of the image about a Pod that has to prove its right.
fn judge(record: Option<&Record>, name: &str, secrets: &[KubernetesSecret]) -> Verdict {
    let Some(known) = record.and_then(|record| record.credential_mapping.get(name)) else {
        return Verdict::Ask;
    };
    if known.node_pods_accessible {
        return Verdict::Use;
    }
    for secret in secrets {
        let mut all = known.kubernetes_secrets.iter();
        if all.clone().any(|it| it == secret) {
            return Verdict::Use;
        }
        let same_content = all.clone().any(|it| it.is_same_content(secret));
        let same_object = all.any(|it| it.is_same_object(secret));
        if same_content || same_object {
            return Verdict::UseAndRemember(secret.clone());
        }
    }
    Verdict::Ask
}

/// Adds to what is known of an image by that name.
fn remember(known: &mut Credentials, access: Option<KubernetesSecret>) {
    match access {
        _ if known.node_pods_accessible => {}
        None => *known = Credentials { node_pods_accessible: true, ..Credentials::default() },
        Some(secret) => {
            known.kubernetes_secrets.retain(|it| !it.is_same_object(&secret));
            if known.kubernetes_secrets.len() < SECRETS_MAX {
                known.kubernetes_secrets.push(secret);
                known.kubernetes_secrets.sort_by(|a, b| a.place().cmp(&b.place()));
            }
        }
    }
}

/// The image's name in a record.
fn bare(image: &str) -> String {
    image.parse::<Reference>().map_or_else(|_| image.to_owned(), |reference| reference.name())
}

impl Records {
    pub(crate) fn new(dir: &Path, policy: Verification) -> Self {
        Self(Arc::new(Inner { dir: dir.to_owned(), policy, intents: Mutex::default() }))
    }

    /// Makes the directories, and turns pulls that a crash has interrupted into records if their images are there.
    pub(crate) async fn recover(&self, present: Vec<cri::v1::Image>, now: Timestamp) {
        self.blocking(move |inner| inner.recover(&present, now)).await;
    }

    /// Whether a Pod with these secrets may use the image `id`, which it calls `image`, without asking the registry.
    pub(crate) async fn check<'a>(
        &self,
        image: &str,
        id: &str,
        secrets: impl Iterator<Item = &'a Source>,
        now: Timestamp,
    ) -> Check {
        let secrets: Vec<KubernetesSecret> = secrets.map(KubernetesSecret::from).collect();
        let (image, id) = (image.to_owned(), id.to_owned());
        self.blocking(move |inner| inner.check(&image, &id, &secrets, now)).await.unwrap_or(Check::Failed)
    }

    /// Notes that a pull begins.
    pub(crate) async fn intend(&self, image: &str) -> Intent {
        let image = image.to_owned();
        let noted = image.clone();
        self.blocking(move |inner| inner.intend(&noted)).await;
        Intent(image)
    }

    /// Notes that a pull has failed.
    pub(crate) async fn give_up(&self, Intent(image): Intent) {
        self.blocking(move |inner| inner.end(&image)).await;
    }

    /// Notes that a pull has succeeded, and whose it was.
    pub(crate) async fn pulled(
        &self,
        Intent(intent): Intent,
        image: &str,
        id: &str,
        access: Access,
        now: Timestamp,
    ) {
        let (image, id) = (image.to_owned(), id.to_owned());
        let access = match access {
            Access::Everyone => None,
            Access::Secret(source) => Some(KubernetesSecret::from(&source)),
        };
        self.blocking(move |inner| {
            inner.note(&image, &id, now, |known| remember(known, access));
            inner.end(&intent);
        })
        .await;
    }

    /// Forgets images that are gone.
    pub(crate) async fn prune(&self, present: BTreeSet<String>, until: Timestamp) {
        self.blocking(move |inner| inner.prune(&present, until)).await;
    }

    /// How many pulls are under way, and how many images are recorded.
    pub(crate) async fn counts(&self) -> (usize, usize) {
        let count = |inner: &Inner, folder: &str| {
            std::fs::read_dir(inner.dir.join(folder)).into_iter().flatten().flatten().count()
        };
        self.blocking(move |inner| (count(inner, "pulling"), count(inner, "pulled")))
            .await
            .unwrap_or_default()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Option<T> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.inspect_err(|error| tracing::error!(%error, "the records of image pulls failed")).ok()
    }
}

impl Inner {
    fn pulled_file(&self, id: &str) -> PathBuf {
        self.file("pulled", id)
    }

    fn file(&self, folder: &str, name: &str) -> PathBuf {
        let digest = registry::Digest::of(name.as_bytes());
        self.dir.join(folder).join(format!("sha256-{}", digest.hex()))
    }

    fn read(&self, id: &str) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.pulled_file(id)).ok()?).ok()
    }

    fn check(&self, image: &str, id: &str, secrets: &[KubernetesSecret], now: Timestamp) -> Check {
        let intents = self.intents.lock();
        let record = self.read(id);
        let was_pulled = self.pulled_file(id).exists()
            || intents.contains_key(image)
            || self.file("pulling", image).exists();
        drop(intents);
        let name = bare(image);
        if !self.policy.is_needed(&name, was_pulled) {
            return Check::Allowed;
        }
        match judge(record.as_ref(), &name, secrets) {
            Verdict::Use => Check::Proved,
            Verdict::UseAndRemember(secret) => {
                self.note(image, id, now, |known| remember(known, Some(secret)));
                Check::Proved
            }
            Verdict::Ask => Check::MustAsk,
        }
    }

    fn intend(&self, image: &str) {
        let mut intents = self.intents.lock();
        *intents.entry(image.to_owned()).or_default() += 1;
        let file = IntentFile { kind: "ImagePullIntent", api_version: API_VERSION, image };
        write(&self.file("pulling", image), &file);
    }

    fn end(&self, image: &str) {
        let mut intents = self.intents.lock();
        match intents.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                intents.remove(image);
                remove(&self.file("pulling", image));
            }
        }
    }

    fn note(&self, image: &str, id: &str, now: Timestamp, change: impl FnOnce(&mut Credentials)) {
        let _alone = self.intents.lock();
        let before = self.read(id);
        let mut record =
            before.clone().unwrap_or_else(|| Record { image_ref: id.to_owned(), ..Record::default() });
        change(record.credential_mapping.entry(bare(image)).or_default());
        if before.as_ref() != Some(&record) {
            (record.kind, record.api_version) = ("ImagePulledRecord".into(), API_VERSION.into());
            record.last_updated_time = now;
            write(&self.pulled_file(id), &record);
        }
    }

    fn recover(&self, present: &[cri::v1::Image], now: Timestamp) {
        for folder in ["pulled", "pulling"] {
            if let Err(error) = std::fs::create_dir_all(self.dir.join(folder)) {
                tracing::warn!(dir = %self.dir.display(), %error, "image pulls are not recorded");
            }
        }
        let names = |image: &cri::v1::Image| -> Vec<String> {
            image.repo_tags.iter().chain(&image.repo_digests).cloned().collect()
        };
        for entry in std::fs::read_dir(self.dir.join("pulling")).into_iter().flatten().flatten() {
            let value: serde_json::Value = std::fs::read(entry.path())
                .ok()
                .and_then(|it| serde_json::from_slice(&it).ok())
                .unwrap_or_default();
            let image = value.get("image").and_then(|it| it.as_str()).unwrap_or_default().to_owned();
            let full = image.parse::<Reference>().map(|it| it.to_string()).unwrap_or_default();
            for found in present.iter().filter(|it| names(it).contains(&full)) {
                // Pulled, but nobody knows with what: everybody has to ask.
                self.note(&image, &found.id, now, |_| {});
            }
            remove(&entry.path());
        }
    }

    fn prune(&self, present: &BTreeSet<String>, until: Timestamp) {
        let _alone = self.intents.lock();
        for entry in std::fs::read_dir(self.dir.join("pulled")).into_iter().flatten().flatten() {
            let record: Option<Record> =
                std::fs::read(entry.path()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if record.is_some_and(|it| !present.contains(&it.image_ref) && it.last_updated_time < until) {
                remove(&entry.path());
            }
        }
    }
}

fn write(path: &Path, content: &impl Serialize) {
    let written = serde_json::to_vec(content).map_err(std::io::Error::from).and_then(|bytes| {
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, bytes)?;
        std::fs::rename(&temporary, path)
    });
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "an image pull was not recorded");
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "the record of an image pull stays");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
