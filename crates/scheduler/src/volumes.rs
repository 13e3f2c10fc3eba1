//! Binds and provisions a Pod's volumes, before the Pod is bound: volumes are set aside for claims, and
//! provisioners are told where to make others.
//!
//! Writing is a binding's work; waiting is nobody's: a Pod whose volumes are on their way is an entry here, which is
//! looked at when one of its claims changes or its time is over.
//! Source: `BindPodVolumes`, `plugins/volumebinding` of kube-scheduler.

use std::collections::{BTreeMap, BTreeSet};

use controller::volume::{SELECTED_NODE, annotation, claim_ref, is_claim_bound, is_for, set_aside};
use controller::{Action, Kind, request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::binding_error::VolumeError;
use crate::claims::TRIES_MAX;
use crate::storage::{PodVolumes, Storage, claim_key};

/// Most Pods that wait for their volumes; more are tried again later.
pub(crate) const WAITING_MAX: usize = 8192;

/// Writes what is to become of a Pod's volumes: volumes name their claims, claims their Node. Whoever shares a claim may have
/// written the same, and controllers something else meanwhile: then it goes on from what is there now.
///
/// # Errors
/// Why that cannot be any more, or what the API server said.
pub(crate) async fn write(client: &kube::Client, pod_volumes: &PodVolumes) -> Result<(), VolumeError> {
    for (volume, claim) in &pod_volumes.bind {
        keep(client, &**volume, |volume| with_claim_ref(volume, claim)).await?;
    }
    for claim in &pod_volumes.provision {
        let uid = claim.metadata.uid.as_deref();
        keep(client, &**claim, |claim| with_selected_node(claim, uid, &pod_volumes.node)).await?;
    }
    Ok(())
}

/// The write that makes an object so; nothing if it is so already, or why it cannot be.
type Write = Result<Option<Action>, VolumeError>;

/// Sets the claim that a volume is for.
fn with_claim_ref(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Write {
    match claim_ref(volume) {
        Some(known) if known.uid == claim.metadata.uid => Ok(None),
        Some(_) if !is_for(volume, claim) => {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            Err(VolumeError::Taken(name.to_owned()))
        }
        _ => Ok(Some(Action::update(&set_aside(volume, claim)))),
    }
}

/// Sets the Node that the volume of the claim with that uid is made for.
fn with_selected_node(claim: &PersistentVolumeClaim, uid: Option<&str>, node: &str) -> Write {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if claim.metadata.uid.as_deref() != uid {
        return Err(VolumeError::NoClaim(name.to_owned()));
    }
    match annotation(&claim.metadata, SELECTED_NODE) {
        Some(known) if known == node => Ok(None),
        Some(known) => Err(VolumeError::OtherNode(known.to_owned(), node.to_owned())),
        None if is_claim_bound(claim) => Ok(None),
        None => {
            let mut new = claim.clone();
            let annotations = new.metadata.annotations.get_or_insert_default();
            annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
            Ok(Some(Action::update(&new)))
        }
    }
}

async fn keep<K: Kind>(
    client: &kube::Client,
    known: &K,
    next: impl Fn(&K) -> Write,
) -> Result<(), VolumeError> {
    let mut newest: Option<K> = None;
    for _ in 0..TRIES_MAX {
        let object = newest.as_ref().unwrap_or(known);
        let Some(Action::Request(request)) = next(object)? else { return Ok(()) };
        match request::send::<K>(client, &request).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        newest = Some(request::get(client, &request.namespace, &request.name).await?);
    }
    Err(VolumeError::Overtaken)
}

/// A wait that is over: whose, what goes on from there, and how it ended.
pub(crate) type Over<T> = (String, T, Result<(), VolumeError>);

/// The Pods that wait for their volumes, each with what goes on afterwards.
pub(crate) struct Waiting<T> {
    pods: BTreeMap<String, Entry<T>>,
    by_claim: BTreeMap<String, BTreeSet<String>>,
    due: BTreeSet<(Timestamp, String)>,
}

struct Entry<T> {
    pod_volumes: PodVolumes,
    /// Claims that were seen with the Node that was chosen: our own writes may not have come back yet.
    chosen: BTreeSet<String>,
    deadline: Timestamp,
    then: T,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { pods: BTreeMap::new(), by_claim: BTreeMap::new(), due: BTreeSet::new() }
    }
}

fn claims_of(pod_volumes: &PodVolumes) -> impl Iterator<Item = String> {
    pod_volumes
        .bind
        .iter()
        .map(|(_, claim)| claim)
        .chain(&pod_volumes.provision)
        .map(|claim| claim_key(claim))
}

impl<T> Waiting<T> {
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// The Pod waits from now on. Its claims may be there already: ask [`Waiting::over`].
    pub(crate) fn add(&mut self, key: &str, pod_volumes: PodVolumes, deadline: Timestamp, then: T) {
        for claim in claims_of(&pod_volumes) {
            self.by_claim.entry(claim).or_default().insert(key.to_owned());
        }
        self.due.insert((deadline, key.to_owned()));
        self.pods.insert(key.to_owned(), Entry { pod_volumes, chosen: BTreeSet::new(), deadline, then });
    }

    /// The Pod waits no longer.
    pub(crate) fn remove(&mut self, key: &str) -> Option<T> {
        let entry = self.pods.remove(key)?;
        self.due.remove(&(entry.deadline, key.to_owned()));
        for claim in claims_of(&entry.pod_volumes) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(key);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
        Some(entry.then)
    }

    /// Those whose wait is over now that these claims are as `storage` has them.
    pub(crate) fn over<'a>(
        &mut self,
        storage: &Storage,
        claims: impl IntoIterator<Item = &'a String>,
    ) -> Vec<Over<T>> {
        let concerned: BTreeSet<String> =
            claims.into_iter().filter_map(|claim| self.by_claim.get(claim)).flatten().cloned().collect();
        let mut over = Vec::new();
        for key in concerned {
            let ended = self.pods.get_mut(&key).and_then(|entry| outcome(entry, storage));
            if let Some(ended) = ended {
                over.extend(self.remove(&key).map(|then| (key, then, ended)));
            }
        }
        over
    }

    /// Whether this Pod's wait is over.
    pub(crate) fn over_of(&mut self, storage: &Storage, key: &str) -> Option<Over<T>> {
        let ended = self.pods.get_mut(key).and_then(|entry| outcome(entry, storage))?;
        self.remove(key).map(|then| (key.to_owned(), then, ended))
    }

    /// Those that have waited for too long.
    pub(crate) fn late(&mut self, now: Timestamp) -> Vec<Over<T>> {
        let mut late = Vec::new();
        while let Some((_, key)) = self.due.first().filter(|(deadline, _)| *deadline <= now).cloned() {
            self.due.pop_first();
            let ended = Err(VolumeError::Late);
            late.extend(self.remove(&key).map(|then| (key, then, ended)));
        }
        late
    }

    /// When the next has waited for too long.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(deadline, _)| *deadline)
    }
}

/// Whether every claim is bound, or that it will not be; nothing while that is open.
fn outcome<T>(entry: &mut Entry<T>, storage: &Storage) -> Option<Result<(), VolumeError>> {
    let known = |claim: &PersistentVolumeClaim| {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let found =
            storage.claims.get(&claim_key(claim)).filter(|now| now.metadata.uid == claim.metadata.uid);
        found.ok_or_else(|| VolumeError::NoClaim(name.to_owned()))
    };
    let mut is_done = true;
    for (_, claim) in &entry.pod_volumes.bind {
        match known(claim) {
            Ok(now) => is_done &= is_claim_bound(now),
            Err(why) => return Some(Err(why)),
        }
    }
    for claim in &entry.pod_volumes.provision {
        let now = match known(claim) {
            Ok(now) => now,
            Err(why) => return Some(Err(why)),
        };
        if is_claim_bound(now) {
            continue;
        }
        is_done = false;
        if annotation(&now.metadata, SELECTED_NODE) == Some(&entry.pod_volumes.node) {
            entry.chosen.insert(claim_key(claim));
        } else if entry.chosen.contains(&claim_key(claim)) {
            // The provisioner has given up there.
            let name = now.metadata.name.as_deref().unwrap_or_default();
            return Some(Err(VolumeError::Provisioning(name.to_owned())));
        }
    }
    is_done.then_some(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    const BIND_MAX: Duration = Duration::from_secs(600);

    use std::sync::Arc;

    use super::*;

    fn claim(name: &str, more: &str) -> Arc<PersistentVolumeClaim> {
        let text = format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}{more}}}, spec: {{volumeName: x}}}}"
        );
        Arc::new(serde_saphyr::from_str(&text).unwrap())
    }

    const CHOSEN: &str = ", annotations: {volume.kubernetes.io/selected-node: one}";
    const BOUND: &str = ", annotations: {pv.kubernetes.io/bind-completed: 'yes'}";

    fn waiting(claims: &[&str]) -> Waiting<()> {
        let provision = claims.iter().map(|name| claim(name, "")).collect();
        let pod_volumes = PodVolumes { node: "one".into(), provision, ..PodVolumes::default() };
        let mut waiting = Waiting::default();
        waiting.add("d/p", pod_volumes, Timestamp::UNIX_EPOCH + BIND_MAX, ());
        waiting
    }

    /// What becomes of a Pod that waits for `a` and `b` while they change so, one after the other.
    fn check(changes: &[(&str, Option<&str>)], expect: Option<Result<(), &str>>) {
        let mut storage = Storage::default();
        for name in ["a", "b"] {
            storage.claims.insert(format!("d/{name}"), claim(name, ""));
        }
        let mut waiting = waiting(&["a", "b"]);
        let mut seen = None;
        for (name, more) in changes {
            let key = format!("d/{name}");
            match more {
                Some(more) => storage.claims.insert(key.clone(), claim(name, more)),
                None => storage.claims.remove(&key),
            };
            seen = seen.or(waiting.over(&storage, [&key]).pop().map(|(_, (), ended)| ended));
        }
        let seen = seen.map(|ended| ended.map_err(|error| error.to_string()));
        assert_eq!(seen, expect.map(|ended| ended.map_err(str::to_owned)), "{changes:?}");
        assert_eq!(waiting.len(), usize::from(expect.is_none()));
        assert_eq!(waiting.by_claim.is_empty(), expect.is_some());
        assert_eq!(waiting.next_due().is_none(), expect.is_some());
    }

    #[test]
    fn a_promise_is_written_once_whoever_shares_it() {
        let said = |write: Write| match write {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(_)) => "written".to_owned(),
            Err(error) => error.to_string(),
        };
        let choose = |more: &str, node: &str| said(with_selected_node(&claim("a", more), Some("a"), node));
        assert_eq!(choose("", "one"), "written");
        assert_eq!(choose(CHOSEN, "one"), "nothing");
        assert_eq!(
            choose(CHOSEN, "two"),
            "selectedNode annotation value \"one\" not set to scheduled node \"two\""
        );
        assert_eq!(choose(BOUND, "two"), "nothing");
        let other = said(with_selected_node(&claim("a", ""), Some("b"), "one"));
        assert_eq!(other, "persistentvolumeclaim \"a\" not found");
        let give = |reference: &str| {
            let volume = format!("{{metadata: {{name: v}}, spec: {{{reference}}}}}");
            said(with_claim_ref(&serde_saphyr::from_str(&volume).unwrap(), &claim("a", "")))
        };
        assert_eq!(give(""), "written");
        assert_eq!(give("claimRef: {namespace: d, name: a}"), "written");
        assert_eq!(give("claimRef: {namespace: d, name: a, uid: a}"), "nothing");
        let taken = "volume \"v\" already bound to a different claim.";
        assert_eq!(give("claimRef: {namespace: d, name: a, uid: before}"), taken);
        assert_eq!(give("claimRef: {namespace: d, name: b, uid: b}"), taken);
    }

    #[test]
    fn a_wait_ends_when_every_claim_is_bound() {
        check(&[("a", Some(CHOSEN)), ("a", Some(BOUND))], None);
        check(&[("a", Some(BOUND)), ("b", Some(BOUND))], Some(Ok(())));
        check(&[("other", Some(BOUND))], None);
    }

    #[test]
    fn a_wait_ends_when_a_claim_goes_or_its_provisioner_gives_up() {
        check(&[("a", None)], Some(Err("persistentvolumeclaim \"a\" not found")));
        check(&[("a", Some(""))], None);
        check(&[("a", Some(CHOSEN)), ("a", Some(""))], Some(Err("provisioning failed for PVC \"a\"")));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut waiting = waiting(&["a"]);
        assert!(waiting.late(Timestamp::UNIX_EPOCH).is_empty());
        let late = waiting.late(Timestamp::UNIX_EPOCH + BIND_MAX);
        assert!(matches!(&late[..], [(key, (), Err(VolumeError::Late))] if key == "d/p"), "{late:?}");
        assert!(waiting.next_due().is_none());
    }
}
