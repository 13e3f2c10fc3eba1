//! Somebody else's server that has a say: which Nodes will do, which are better, who goes, and who binds.
//!
//! What it answers is not trusted: it has a deadline and a bound on its length, and names only Nodes that it was asked
//! about. Source: `k8s.io/kube-scheduler/extender/v1`, `pkg/scheduler/extender.go`.

pub(crate) mod asking;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use controller::pod::{Container, Pod};
use controller::resource_ref::key_of;
use controller::{Informer, Informers};
use futures::future::join_all;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Pod as WholePod;
use kube::client::Body;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use serde_json::{Value, json};

use crate::node_info::{NodeInfo, Snapshot};
use crate::preemption::{PreemptionCandidate, priority};
use wire::{field, list, text};

/// An answer has no more bytes than this, beside twice the question's: it is a part of that, with reasons.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What a score of an extender is multiplied with, beside its weight. Source: `MaxExtenderPriority`, 10.
const SCORE_SCALE: i64 = crate::plugins::SCORE_MAX / 10;

/// An extender, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// The URL; also its name.
    pub url: String,
    /// The verbs that it has.
    pub verbs: Verbs,
    /// The weight of its scores.
    pub weight: i64,
    /// The TLS settings for it.
    pub tls: Tls,
    /// The time that it gets to answer.
    pub timeout: Duration,
    /// `true` if it knows the Nodes, and is given names only.
    pub has_node_cache: bool,
    /// It is asked about Pods that want one of these, or about all if there are none.
    pub managed: BTreeSet<String>,
    /// `true` if things go on without its answer.
    pub is_ignorable: bool,
}

/// The verbs of an extender: the last part of the URL, each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub struct Verbs {
    pub filter: Option<String>,
    pub prioritize: Option<String>,
    pub preempt: Option<String>,
    pub bind: Option<String>,
}

/// The TLS settings for an extender; certificates and keys are PEM in base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Nobody vouches for it.
    pub is_insecure: bool,
    /// The name in its certificate, if that is not the URL's.
    pub server_name: Option<String>,
    /// Ours.
    pub certificate: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The authorities for its certificate.
    pub authorities: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Extender {
    /// `true` if the Pod wants what this one looks after. Source: `IsInterested`.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let spec = pod.spec.iter();
        let mut containers =
            spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        self.managed.is_empty() || containers.any(|container| self.manages(container))
    }

    fn manages(&self, container: &Container) -> bool {
        let Some(resources) = &container.resources else { return false };
        let mut wanted = resources.requests.iter().flatten().chain(resources.limits.iter().flatten());
        wanted.any(|(name, _)| self.managed.contains(name))
    }
}

/// Why an extender gave no answer that counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    #[error("Post {0:?}: context deadline exceeded")]
    Late(String),
    #[error("Post {url:?}: {why}")]
    Unreachable { url: String, why: String },
    #[error("failed {verb} with extender at URL {url}, code {code}")]
    Refused { verb: String, url: String, code: u16 },
    #[error("extender {url:?} answered what cannot be read: {why}")]
    Senseless { url: String, why: String },
    #[error("{0}")]
    Said(String),
    #[error("pod \"{0}\" is not known whole, as extender {1:?} is to have it")]
    NoPod(String, String),
    #[error("extender {url:?} claims a filtered node {node:?} which is not found in the input node list")]
    Unknown { url: String, node: String },
    #[error(
        "extender: {url} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node, or \
         is as important"
    )]
    NoVictim { url: String, uid: String, node: String },
}

/// What an extender says of Nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filtered {
    /// Those that will do, as positions in what was asked.
    pub(crate) good: BTreeSet<usize>,
    /// Why others will not, by name.
    pub(crate) failed: BTreeMap<String, String>,
    /// The same, whatever Pods do.
    pub(crate) failed_for_good: BTreeMap<String, String>,
}

impl Filtered {
    fn says_why(&self, node: &str) -> bool {
        self.failed.contains_key(node) || self.failed_for_good.contains_key(node)
    }
}

type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// An extender that can be asked.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) extender: Arc<Extender>,
    /// What it is told of Pods; scheduling itself knows them in part.
    pods: Informer<WholePod>,
    /// Or why nobody can speak to it.
    client: Result<kube::Client, Cause>,
}

/// Makes ready to ask them. Where there are any, Pods are known whole beside what scheduling knows of them.
pub(crate) async fn clients(extenders: Vec<Extender>, informers: &Informers) -> Vec<Client> {
    if extenders.is_empty() {
        return Vec::new();
    }
    let pods = informers.informer::<WholePod>();
    pods.synced().await;
    join_all(extenders.into_iter().map(|extender| Client::new(extender, pods.clone()))).await
}

impl Client {
    /// Makes ready to ask; nothing is connected yet.
    pub(crate) async fn new(extender: Extender, pods: Informer<WholePod>) -> Self {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig(&extender), &options).await;
        let client = config
            .map_err(|failure| Arc::new(failure) as Cause)
            .and_then(|config| kube::Client::try_from(config).map_err(|failure| Arc::new(failure) as Cause));
        Self { extender: Arc::new(extender), pods, client }
    }

    /// Which of `nodes` will do. Nothing to ask means all.
    pub(crate) async fn filter(&self, pod: &Pod, nodes: &[&NodeInfo]) -> Result<Filtered, Unheard> {
        let Some(verb) = &self.extender.verbs.filter else {
            return Ok(Filtered { good: (0..nodes.len()).collect(), ..Filtered::default() });
        };
        let question = self.about(pod, nodes).await?;
        let answer = self.ask(verb, &question).await?;
        let said = text(&answer, "Error");
        if !said.is_empty() {
            return Err(Unheard::Said(wire::shortened(said)));
        }
        let by_name: BTreeMap<&str, usize> =
            nodes.iter().enumerate().map(|(index, node)| (node.name(), index)).collect();
        let mut good = BTreeSet::new();
        for name in self.named(&answer) {
            let Some(index) = by_name.get(name) else {
                let (url, node) = (self.extender.url.clone(), wire::shortened(name));
                return Err(Unheard::Unknown { url, node });
            };
            good.insert(*index);
        }
        let reasons = |name: &str| wire::reasons(field(&answer, name), |node| by_name.contains_key(node));
        let failed_for_good = reasons("FailedAndUnresolvableNodes");
        let mut failed = reasons("FailedNodes");
        failed.retain(|node, _| !failed_for_good.contains_key(node));
        Ok(Filtered { good, failed, failed_for_good })
    }

    /// The names of the Nodes that will do; none at all if the answer has no list.
    fn named<'a>(&self, answer: &'a Value) -> Vec<&'a str> {
        let names =
            field(answer, "NodeNames").filter(|names| self.extender.has_node_cache && names.is_array());
        if let Some(names) = names {
            return list(Some(names)).iter().map(|name| name.as_str().unwrap_or_default()).collect();
        }
        let nodes = field(answer, "Nodes").and_then(|nodes| field(nodes, "items"));
        let name = |node: &'a Value| text(node.get("metadata").unwrap_or(&Value::Null), "name");
        list(nodes).iter().map(name).collect()
    }

    /// What is added to the scores of `nodes`, in their order.
    pub(crate) async fn prioritize(&self, pod: &Pod, nodes: &[&NodeInfo]) -> Result<Vec<i64>, Unheard> {
        let mut scores = vec![0_i64; nodes.len()];
        let Some(verb) = &self.extender.verbs.prioritize else { return Ok(scores) };
        let question = self.about(pod, nodes).await?;
        let answer = self.ask(verb, &question).await?;
        let by_name: BTreeMap<&str, usize> =
            nodes.iter().enumerate().map(|(index, node)| (node.name(), index)).collect();
        for one in list(Some(&answer)) {
            let score = field(one, "Score").and_then(Value::as_i64).unwrap_or(0);
            let index = by_name.get(text(one, "Host"));
            if let Some(total) = index.and_then(|index| scores.get_mut(*index)) {
                let score = score.saturating_mul(self.extender.weight).saturating_mul(SCORE_SCALE);
                *total = total.saturating_add(score);
            }
        }
        Ok(scores)
    }

    /// Has it bind the Pod; `None` if it binds none.
    pub(crate) async fn bind(&self, pod: &Pod, node: &str) -> Option<Result<(), Unheard>> {
        let verb = self.extender.verbs.bind.as_deref()?;
        let question = json!({
            "PodName": pod.metadata.name,
            "PodNamespace": pod.metadata.namespace,
            "PodUID": pod.metadata.uid,
            "Node": node,
        });
        let answer = self.ask(verb, &question).await;
        Some(answer.and_then(|answer| match text(&answer, "Error") {
            "" => Ok(()),
            said => Err(Unheard::Said(wire::shortened(said))),
        }))
    }

    /// Which of `candidates` it agrees with, and who goes there.
    pub(crate) async fn preempt(
        &self,
        pod: &Pod,
        candidates: &[PreemptionCandidate],
        snapshot: &Snapshot,
    ) -> Result<Vec<PreemptionCandidate>, Unheard> {
        let Some(verb) = &self.extender.verbs.preempt else { return Ok(candidates.to_vec()) };
        let mut by_node = BTreeMap::new();
        for candidate in candidates {
            let pods = join_all(candidate.victims.iter().map(|victim| self.victim(victim))).await;
            let pods = pods.into_iter().collect::<Result<Vec<_>, _>>()?;
            by_node.insert(
                candidate.node.as_str(),
                json!({ "Pods": pods, "NumPDBViolations": candidate.violations }),
            );
        }
        let (whole, short) = match self.extender.has_node_cache {
            true => (Value::Null, json!(by_node)),
            false => (json!(by_node), Value::Null),
        };
        let whole_pod = self.whole(pod).await?;
        let question =
            json!({ "Pod": whole_pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": short });
        let answer = self.ask(verb, &question).await?;
        let left = field(&answer, "NodeNameToMetaVictims").and_then(Value::as_object);
        let mut agreed = Vec::new();
        for (node, said) in left.into_iter().flatten() {
            if !by_node.contains_key(node.as_str()) {
                let (url, node) = (self.extender.url.clone(), wire::shortened(node));
                return Err(Unheard::Unknown { url, node });
            }
            let victims = self.victims(pod, node, said, snapshot)?;
            let violations = field(said, "NumPDBViolations").and_then(Value::as_u64).unwrap_or(0);
            let violations = usize::try_from(violations).unwrap_or(usize::MAX);
            match victims.is_empty() {
                true if self.extender.is_ignorable => {}
                true => {
                    return Err(Unheard::Said(format!("expected at least one victim pod on node {node:?}")));
                }
                false => agreed.push(PreemptionCandidate { node: node.clone(), victims, violations }),
            }
        }
        Ok(agreed)
    }

    /// Who is to go from the Node: Pods that are there, and less important than `pod`.
    fn victims(
        &self,
        pod: &Pod,
        node: &str,
        said: &Value,
        snapshot: &Snapshot,
    ) -> Result<Vec<Arc<Pod>>, Unheard> {
        let here = snapshot.node(node);
        let known = list(field(said, "Pods")).iter().map(|one| {
            let uid = text(one, "UID");
            let victim = here.and_then(|node| node.pod(uid)).filter(|other| priority(other) < priority(pod));
            victim.cloned().ok_or_else(|| Unheard::NoVictim {
                url: self.extender.url.clone(),
                uid: wire::shortened(uid),
                node: node.to_owned(),
            })
        });
        let mut victims = known.collect::<Result<Vec<_>, _>>()?;
        victims.dedup_by(|a, b| a.metadata.uid == b.metadata.uid);
        Ok(victims)
    }

    /// What it is told of a Pod that is to go.
    async fn victim(&self, pod: &Pod) -> Result<Value, Unheard> {
        if self.extender.has_node_cache {
            return Ok(json!({ "UID": pod.metadata.uid }));
        }
        Ok(json!(self.whole(pod).await?))
    }

    /// All of a Pod, at least as new as it is known in part.
    async fn whole(&self, pod: &Pod) -> Result<Arc<WholePod>, Unheard> {
        let meta = &pod.metadata;
        let revision = meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let key = key_of(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
        // One of the two informers may be ahead of the other.
        let known = tokio::time::timeout(self.extender.timeout, self.pods.reached(revision)).await;
        let found = known.ok().and_then(|()| self.pods.get(&key));
        let found = found.filter(|found| found.metadata.uid == meta.uid);
        found.ok_or_else(|| Unheard::NoPod(key, self.extender.url.clone()))
    }

    async fn about(&self, pod: &Pod, nodes: &[&NodeInfo]) -> Result<Value, Unheard> {
        let pod = self.whole(pod).await?;
        if self.extender.has_node_cache {
            let names: Vec<_> = nodes.iter().map(|node| node.name()).collect();
            return Ok(json!({ "Pod": pod, "Nodes": null, "NodeNames": names }));
        }
        let items: Vec<_> = nodes.iter().map(|node| &*node.node).collect();
        Ok(json!({ "Pod": pod, "Nodes": { "metadata": {}, "items": items }, "NodeNames": null }))
    }

    async fn ask(&self, verb: &str, question: &Value) -> Result<Value, Unheard> {
        let url = format!("{}/{verb}", self.extender.url.trim_end_matches('/'));
        let asked = tokio::time::timeout(self.extender.timeout, self.exchange(verb, &url, question));
        asked.await.unwrap_or_else(|_| Err(Unheard::Late(url.clone())))
    }

    async fn exchange(&self, verb: &str, url: &str, question: &Value) -> Result<Value, Unheard> {
        let unreachable = |why: String| Unheard::Unreachable { url: url.to_owned(), why };
        let client = self.client.as_ref().map_err(|cause| unreachable(base::error_chain(cause)))?;
        let question = question.to_string().into_bytes();
        let length_max = question.len().saturating_mul(2).saturating_add(ANSWER_BYTES_MAX);
        // The client puts the extender's URL before the path.
        let request = http::Request::post(format!("/{verb}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(question))
            .map_err(|failure| unreachable(failure.to_string()))?;
        let answer =
            client.send(request).await.map_err(|failure| unreachable(base::error_chain(&failure)))?;
        if answer.status() != http::StatusCode::OK {
            let code = answer.status().as_u16();
            return Err(Unheard::Refused { verb: verb.to_owned(), url: url.to_owned(), code });
        }
        let senseless = |why: String| Unheard::Senseless { url: url.to_owned(), why };
        let body = Limited::new(answer.into_body(), length_max).collect().await;
        let body = body.map_err(|failure| senseless(failure.to_string()))?.to_bytes();
        serde_json::from_slice(&body).map_err(|failure| senseless(failure.to_string()))
    }
}

/// The same as a kubeconfig says it.
fn kubeconfig(extender: &Extender) -> Kubeconfig {
    let tls = &extender.tls;
    let name = "extender".to_owned();
    let cluster = Cluster {
        server: Some(extender.url.clone()),
        insecure_skip_tls_verify: Some(tls.is_insecure),
        certificate_authority_data: tls.authorities.clone(),
        tls_server_name: tls.server_name.clone(),
        ..Cluster::default()
    };
    let user = AuthInfo {
        client_certificate_data: tls.certificate.clone(),
        client_key_data: tls.key.clone().map(Into::into),
        ..AuthInfo::default()
    };
    let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    }
}
