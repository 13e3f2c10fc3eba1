//! Certificates of Pods: for every projected source `podCertificate` a key is made, a signer is asked, and what it issues
//! is renewed in time.
//!
//! Keys are in memory and in the Pod's volume, nowhere else: after a restart everything is asked for anew. A denial or a
//! failure is for good. Source: `pkg/kubelet/podcertificate`, KEP-4317.

mod keys;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use controller::request::{self, ApiRequest};
use controller::{EventType, Informer, Scope};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinery::features::Feature;
use parking_lot::Mutex;

use crate::context::Context;
use crate::inbox::Inbox;
use crate::pod::identity::identity;
use crate::volumes::Volumes;
use keys::KeyError;
use state::{Asked, Next, State, Unissued};

/// There are no credentials; in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// Not yet, or never.
    #[error(transparent)]
    Unissued(#[from] Unissued),
    /// Nobody was asked.
    #[error("while creating initial PodCertificateRequest: {0}")]
    Request(#[from] RequestError),
}

/// A request was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("while fetching service account: {0}")]
    Account(#[source] Box<kube::Error>),
    #[error("while generating keypair: {0}")]
    Key(#[from] KeyError),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    #[error("while creating on API: {0}")]
    Create(#[source] Box<kube::Error>),
}

/// A volume's name, and which of its sources.
pub(crate) type Key = (String, usize);

/// A private key and the chain of certificates that goes with it, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) chain: String,
}

/// What there is for each source, or why there is nothing.
pub(crate) type Issued = BTreeMap<Key, Result<Credentials, Arc<CertificateError>>>;

/// Before the next try to ask for what is due.
const RETRY: Duration = Duration::from_secs(10);
/// Renewals and new tries are spread over this long, in nanoseconds.
const JITTER: u64 = 5 * 60 * 1_000_000_000;

/// The sources of one Pod and how far they are.
pub(crate) struct PodCertificates {
    requests: Informer<PodCertificateRequest>,
    states: Mutex<BTreeMap<Key, State>>,
    /// Nobody is asked before.
    retry_at: Mutex<Option<Timestamp>>,
}

/// Those of all Pods, for who counts them.
#[derive(Default)]
pub(crate) struct All(Mutex<Vec<(Weak<PodCertificates>, Arc<Pod>)>>);

impl All {
    /// By signer and state, how many there are.
    pub(crate) fn count(&self, now: Timestamp) -> BTreeMap<(String, &'static str), usize> {
        let mut counts = BTreeMap::new();
        let all = self.0.lock();
        for (certificates, pod) in all.iter().filter_map(|(weak, pod)| Some((weak.upgrade()?, pod))) {
            let states = certificates.states.lock();
            for (key, source) in sources(pod) {
                let Some(state) = states.get(&key) else { continue };
                *counts.entry((source.signer_name.clone(), state.name(now))).or_default() += 1;
            }
        }
        counts
    }
}

/// The sources of that kind in the Pod's volumes.
fn sources(pod: &Pod) -> impl Iterator<Item = (Key, &PodCertificateProjection)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.flat_map(|volume| {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        let numbered = sources.enumerate();
        numbered.filter_map(|(i, source)| Some(((volume.name.clone(), i), source.pod_certificate.as_ref()?)))
    })
}

impl PodCertificates {
    /// Those of a Pod that has any; answers wake the worker, until `tasks` stop. A static Pod has none.
    pub(crate) fn follow(
        volumes: &Volumes,
        pod: &Arc<Pod>,
        tasks: &base::Tasks,
        inbox: &Arc<Inbox>,
    ) -> Option<Arc<Self>> {
        let is_on = Feature::PodCertificateRequest.is_on() && !crate::pod::identity::is_static(pod);
        if !is_on || sources(pod).next().is_none() {
            return None;
        }
        let requests = volumes.informers.scoped::<PodCertificateRequest>(Scope {
            field_selector: Some(format!("spec.nodeName={}", volumes.config.node_name)),
            ..Scope::default()
        });
        let (mut changes, inbox) = (requests.subscribe(), inbox.clone());
        let certificates = Arc::new(Self { requests, states: Mutex::default(), retry_at: Mutex::default() });
        let mut all = volumes.certificates.0.lock();
        all.retain(|(certificates, _)| certificates.strong_count() > 0);
        all.push((Arc::downgrade(&certificates), pod.clone()));
        drop(all);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        tasks.spawn("pod certificate watch", async move {
            loop {
                let is_own = |request: &PodCertificateRequest| request.spec.pod_uid == uid;
                if changes.next().await.iter().any(|change| change.object().is_some_and(|it| is_own(it))) {
                    inbox.sources_changed();
                }
            }
        });
        Some(certificates)
    }

    /// Waits until all requests of this node are known.
    pub(crate) async fn synced(&self) {
        self.requests.synced().await;
    }

    /// Looks at what was answered, asks for what is due, and says what there is.
    pub(crate) async fn drive(&self, context: &Context, pod: &Pod) -> Issued {
        let mut issued = Issued::new();
        for (key, source) in sources(pod) {
            let now = context.clock.now();
            let is_early = self.retry_at.lock().is_some_and(|at| at > now);
            let is_due = self.look(context, pod, &key, now) && !is_early;
            let asked = if is_due { self.ask(context, pod, &key, source).await } else { Ok(()) };
            let now = || self.states.lock().get(&key).map_or(Err(Unissued::NotYet), State::credentials);
            let there = asked.and_then(|()| Ok(now()?));
            issued.insert(key, there.map_err(Arc::new));
        }
        issued
    }

    /// When to look again if nothing happens before.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let due = self.states.lock().values().filter_map(State::due).min()?;
        Some(self.retry_at.lock().map_or(due, |retry_at| due.max(retry_at)))
    }

    /// Takes note of what was answered; whether it is time to ask.
    fn look(&self, context: &Context, pod: &Pod, key: &Key, now: Timestamp) -> bool {
        let mut states = self.states.lock();
        let Some(state) = states.remove(key) else { return true };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let request =
            state.asked().and_then(|asked| self.requests.get(&format!("{namespace}/{}", asked.name)));
        let Next { state, events, is_due } = state.next(request.as_deref(), jitter(context), now);
        for (reason, message) in events {
            context.event(pod, None, EventType::Warning, reason, message);
        }
        if let Some(state) = state {
            states.insert(key.clone(), state);
        }
        is_due
    }

    async fn ask(
        &self,
        context: &Context,
        pod: &Pod,
        key: &Key,
        source: &PodCertificateProjection,
    ) -> Result<(), CertificateError> {
        match make_request(context, pod, source).await {
            Ok(asked) => {
                *self.retry_at.lock() = None;
                let mut states = self.states.lock();
                let state = State::waiting(states.remove(key), asked);
                states.insert(key.clone(), state);
                Ok(())
            }
            Err(error) if self.states.lock().contains_key(key) => {
                tracing::warn!(
                    pod = pod.metadata.uid,
                    %error,
                    "a certificate was not renewed; the old one stays"
                );
                *self.retry_at.lock() = Some(crate::pod::time::after(context.clock.now(), RETRY));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn jitter(context: &Context) -> Duration {
    Duration::from_nanos(context.random.below(JITTER))
}

/// Makes a key and asks the signer for a certificate.
async fn make_request(
    context: &Context,
    pod: &Pod,
    source: &PodCertificateProjection,
) -> Result<Asked, RequestError> {
    let (name, namespace, uid) = identity(pod);
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    let of_account = request::get::<ServiceAccount>(&context.client, &namespace, &account).await;
    let of_account = of_account.map_err(|source| RequestError::Account(Box::new(source)))?;
    let (kind, message) = (source.key_type.clone(), uid.clone());
    let made = tokio::task::spawn_blocking(move || keys::make(&kind, message.as_bytes())).await;
    let keys::Made { private_pem, public, proof } = made??;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid: uid.clone(),
        ..OwnerReference::default()
    };
    let asked = PodCertificateRequest {
        metadata: ObjectMeta {
            namespace: Some(namespace.clone()),
            generate_name: Some("req-".to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: source.signer_name.clone(),
            pod_name: name,
            pod_uid: uid,
            service_account_name: account,
            service_account_uid: of_account.metadata.uid.unwrap_or_default(),
            node_name: context.config.node_name.clone(),
            node_uid: context.node().metadata.uid.clone().unwrap_or_default(),
            max_expiration_seconds: source.max_expiration_seconds,
            pkix_public_key: ByteString(public),
            proof_of_possession: ByteString(proof),
            unverified_user_annotations: source.user_annotations.clone(),
        },
        status: None,
    };
    let made = request::send::<PodCertificateRequest>(&context.client, &ApiRequest::create(&asked)).await;
    let made = made.map_err(|source| RequestError::Create(Box::new(source)))?;
    let created = made.metadata.creation_timestamp.map_or_else(|| context.clock.now(), |time| time.0);
    Ok(Asked::new(made.metadata.name.unwrap_or_default(), private_pem, created, jitter(context)))
}
