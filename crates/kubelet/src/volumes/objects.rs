//! The API objects that a Pod's volumes and environment need: ConfigMaps, Secrets, tokens.
//!
//! Each ConfigMap and Secret has a watch for it alone, which is all that the Node authorizer allows; their changes wake
//! the worker. Nothing is asked for that no Pod of this node names any more.

mod watched;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use controller::Informer;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::json;

use crate::context::Context;
use crate::inbox::Inbox;
use crate::pod::env::EnvSources;
use crate::volumes::Volumes;
use crate::volumes::certificates::{Issued, PodCertificates};
use crate::volumes::error::Specific;
use crate::volumes::{TokenKey, references};
use watched::{Register, Source, Watched};

/// How long to wait for a ConfigMap's or Secret's first list.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server does not answer.
#[derive(Debug, thiserror::Error)]
#[error("failed to sync configmap and secret caches: timed out waiting for the condition")]
pub(crate) struct NotSynced;

impl Specific for NotSynced {}

/// There is no token; in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// It cannot be asked for.
    #[error("failed to fetch token: {0}")]
    Request(#[from] http::Error),
    /// The API server gives none.
    #[error("failed to fetch token: {0}")]
    Api(#[source] Box<kube::Error>),
    /// It has answered something else.
    #[error("failed to fetch token: the answer has no token")]
    NoToken,
}

impl Specific for TokenError {}

/// The objects that any Pod names.
#[derive(Default)]
pub(crate) struct Registers {
    config_maps: Register<ConfigMap>,
    secrets: Register<Secret>,
}

/// The objects of one Pod.
#[derive(Clone, Default)]
pub(crate) struct PodObjects {
    namespace: String,
    config_maps: BTreeMap<String, Arc<Watched<ConfigMap>>>,
    secrets: BTreeMap<String, Arc<Watched<Secret>>>,
    /// All of the cluster, if the Pod mounts any: kubelets may watch them all.
    trust_bundles: Option<Informer<ClusterTrustBundle>>,
    /// The Pod's own, if it mounts any.
    certificates: Option<Arc<PodCertificates>>,
}

impl PodObjects {
    /// Looks at what `pod` names from now on; a change wakes the worker, until `tasks` stop.
    pub(crate) fn follow(
        &mut self,
        volumes: &Volumes,
        pod: &Arc<Pod>,
        tasks: &base::Tasks,
        inbox: &Arc<Inbox>,
    ) {
        let (maps, mut secrets) = references(pod);
        secrets.extend(pull_secret_names(pod));
        self.namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let (registers, informers) = (&volumes.objects, &volumes.informers);
        for name in maps {
            let hold = || registers.config_maps.hold(informers, &self.namespace, &name);
            add(&mut self.config_maps, name.clone(), hold, tasks, inbox);
        }
        for name in secrets {
            let hold = || registers.secrets.hold(informers, &self.namespace, &name);
            add(&mut self.secrets, name.clone(), hold, tasks, inbox);
        }
        if self.certificates.is_none() {
            self.certificates = PodCertificates::follow(volumes, pod, tasks, inbox);
        }
        if self.trust_bundles.is_none() && crate::volumes::mounts_trust_bundles(pod) {
            let bundles = volumes.informers.informer::<ClusterTrustBundle>();
            let (mut changes, inbox) = (bundles.subscribe(), inbox.clone());
            self.trust_bundles = Some(bundles);
            tasks.spawn("trust bundle watch", async move {
                loop {
                    changes.next().await;
                    inbox.sources_changed();
                }
            });
        }
    }

    /// Waits until it is known of each object whether it exists.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn synced(&self, context: &Context, pod: &Pod) -> Result<(), NotSynced> {
        let all = async {
            // A static Pod runs without the API.
            if !crate::pod::identity::is_static(pod) {
                context.services.synced().await;
            }
            for object in self.config_maps.values() {
                object.synced().await;
            }
            for object in self.secrets.values() {
                object.synced().await;
            }
            if let Some(bundles) = &self.trust_bundles {
                bundles.synced().await;
            }
            if let Some(certificates) = &self.certificates {
                certificates.synced().await;
            }
        };
        let timeout = tokio::time::timeout(SYNC_TIMEOUT, all).await;
        timeout.map_err(|_late| NotSynced)
    }

    /// The Pod's certificates as far as they are issued; asks for those that are due.
    pub(crate) async fn certificates(&self, context: &Context, pod: &Pod) -> Issued {
        match &self.certificates {
            Some(certificates) => certificates.drive(context, pod).await,
            None => Issued::new(),
        }
    }

    /// When to ask for the next certificate, or to look for the last one.
    pub(crate) fn certificates_due(&self) -> Option<Timestamp> {
        self.certificates.as_ref()?.due()
    }

    /// The Pod's pull secrets that there are, and the names of those that there are not.
    pub(crate) fn pull_secrets(&self, pod: &Pod) -> (Vec<Arc<Secret>>, Vec<String>) {
        let present = present(&self.secrets);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in pull_secret_names(pod) {
            match present.get(&name) {
                Some(secret) => found.push(secret.clone()),
                None => missing.push(name),
            }
        }
        (found, missing)
    }

    /// What the objects say now.
    pub(crate) fn sources(&self, context: &Context, pod: &Arc<Pod>, pod_ips: Vec<String>) -> EnvSources {
        let mut services = context.services.in_namespace(&self.namespace);
        services.extend(context.services.get("default/kubernetes"));
        EnvSources {
            pod: pod.clone(),
            pod_ips,
            host_ips: context.facts.host_ips.clone(),
            config_maps: present(&self.config_maps),
            secrets: present(&self.secrets),
            trust_bundles: self.trust_bundles.iter().flat_map(Informer::list).collect(),
            services,
            files: BTreeMap::new(),
            allocatable: context.allocatable.clone(),
        }
    }
}

/// Names of the Pod's pull secrets; admission has added those of its ServiceAccount.
pub(crate) fn pull_secret_names(pod: &Pod) -> Vec<String> {
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).filter(|name| !name.is_empty()).collect()
}

fn add<K: Source>(
    all: &mut BTreeMap<String, Arc<Watched<K>>>,
    name: String,
    hold: impl FnOnce() -> Arc<Watched<K>>,
    tasks: &base::Tasks,
    inbox: &Arc<Inbox>,
) {
    let Entry::Vacant(entry) = all.entry(name) else { return };
    let (object, inbox) = (entry.insert(hold()).clone(), inbox.clone());
    tasks.spawn("volume source watch", object.follow(move || inbox.sources_changed()));
}

fn present<K: Source>(objects: &BTreeMap<String, Arc<Watched<K>>>) -> BTreeMap<String, Arc<K>> {
    objects.iter().filter_map(|(name, object)| Some((name.clone(), object.get()?))).collect()
}

/// Seconds before a token that is about to expire is asked for again at the earliest.
const REFRESH_MIN: u64 = 10;
/// Seconds after which every token is renewed.
const REFRESH_MAX: u64 = 24 * 3600;
/// Before the next try for a token that is due.
const REFRESH_RETRY: Duration = Duration::from_secs(10);

/// A token and when to ask for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) refresh_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

/// A newer token than `old`, if that is due. One that cannot be had is waited for with the old one, as long as that
/// lives. Source: upstream's `pkg/kubelet/token`.
///
/// # Errors
/// As [`request_token`].
pub(crate) async fn renewed_token(
    context: &Context,
    pod: &Pod,
    key: &TokenKey,
    old: Option<&Token>,
) -> Result<Option<Token>, TokenError> {
    let now = context.clock.now();
    if old.is_some_and(|token| token.refresh_at > now) {
        return Ok(None);
    }
    let error = match request_token(context, pod, key).await {
        Ok(token) => return Ok(Some(token)),
        Err(error) => error,
    };
    let Some(old) = old.filter(|token| token.expires_at > now) else { return Err(error) };
    tracing::warn!(pod = pod.metadata.uid, %error, "a token was not renewed; the old one is still good");
    Ok(Some(Token { refresh_at: crate::pod::time::after(now, REFRESH_RETRY), ..old.clone() }))
}

/// Asks for a token that is bound to `pod`. Source: `TokenRequest`, authentication.k8s.io/v1.
///
/// # Errors
/// The API server gives none.
pub(crate) async fn request_token(context: &Context, pod: &Pod, key: &TokenKey) -> Result<Token, TokenError> {
    let (name, namespace, uid) = crate::pod::identity::identity(pod);
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).filter(|n| !n.is_empty());
    let account = account.unwrap_or_else(|| "default".into());
    let audiences: Vec<&str> = Some(key.0.as_str()).filter(|a| !a.is_empty()).into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {
            "audiences": audiences,
            "expirationSeconds": key.1,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
        },
    });
    let request =
        http::Request::post(format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"))
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())?;
    let answer = context.client.request::<TokenRequest>(request).await;
    let answer = answer.map_err(|error| TokenError::Api(Box::new(error)))?;
    let status = answer.status.ok_or(TokenError::NoToken)?;
    let refresh_at = refresh_at(context.clock.now(), status.expiration_timestamp.0);
    Ok(Token { text: status.token, refresh_at, expires_at: status.expiration_timestamp.0 })
}

/// When to ask for the next token: after four fifths of this one's life, or a day. Source: upstream's
/// `pkg/kubelet/token`.
fn refresh_at(now: Timestamp, expires_at: Timestamp) -> Timestamp {
    let lifetime = u64::try_from(expires_at.duration_since(now).as_secs()).unwrap_or(0);
    crate::pod::time::after(now, Duration::from_secs((lifetime * 4 / 5).clamp(REFRESH_MIN, REFRESH_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_refreshed_well_before_they_expire() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (name, lifetime, expect) in [
            ("the shortest that the API allows", 600, 480),
            ("an hour", 3607, 2885),
            ("a year", 365 * 24 * 3600, 24 * 3600),
            ("one that has expired by a wrong clock", -5, 10),
        ] {
            assert_eq!(refresh_at(at(1000), at(1000 + lifetime)), at(1000 + expect), "{name}");
        }
    }
}
