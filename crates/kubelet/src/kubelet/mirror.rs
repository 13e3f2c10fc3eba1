//! Mirrors: objects in the API that show what runs from files. Made, deleted and made again so that there is exactly
//! one for each static Pod, and of the right content.
//!
//! Source: `pkg/kubelet/pod/mirror_client.go`, `deleteOrphanedMirrorPods` of upstream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::Informer;
use controller::request::{self, ApiRequest, Propagation};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch;

use crate::context::Context;
use crate::inbox::Inboxes;
use crate::kubelet::static_pods::StaticPods;
use crate::pod::identity::MIRROR;
use crate::pod::identity::hash;
use crate::pod::identity::identity;
use crate::pod::identity::is_mirror;
use crate::pod::identity::mirrored_hash;
use crate::pod::identity::namespaced_name;

/// What is to be done about mirrors.
#[derive(Debug, PartialEq)]
enum Action {
    /// Make one for this static Pod.
    Create(Arc<Pod>),
    /// Take this one away.
    Delete(Arc<Pod>),
}

/// Runs until the group of tasks stops.
pub(crate) async fn run(
    context: Arc<Context>,
    pods: Informer<Pod>,
    mut statics: watch::Receiver<Arc<StaticPods>>,
    inboxes: Inboxes,
) {
    pods.synced().await;
    let mut changes = pods.subscribe();
    let mut nodes = context.node.subscribe();
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10), 0.2);
    loop {
        let wanted = statics.borrow_and_update().clone();
        let present: Vec<_> = pods.list();
        let mut has_failed = false;
        for action in plan(&wanted, &present, &inboxes.uids()) {
            if let Err(error) = carry_out(&context, action).await {
                tracing::warn!(%error, "a mirror pod is not as it should be");
                has_failed = true;
            }
        }
        let pause = if has_failed { backoff.next(&context.random) } else { Duration::MAX };
        if !has_failed {
            backoff.reset();
        }
        tokio::select! {
            changed = statics.changed() => if changed.is_err() { return },
            _ = changes.next() => {}
            _ = nodes.next() => {}
            () = inboxes.ended() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One mirror for each static Pod; one whose Pod is gone stays until its containers are.
fn plan(wanted: &StaticPods, present: &[Arc<Pod>], alive: &BTreeSet<String>) -> Vec<Action> {
    let mut actions = Vec::new();
    for (key, pod) in wanted {
        let found = present.iter().find(|other| namespaced_name(other) == *key);
        match found {
            None => actions.push(Action::Create(pod.clone())),
            Some(other) if !is_mirror(other) => {}
            Some(mirror) => {
                let is_right = mirrored_hash(mirror) == hash(pod);
                if !is_right || mirror.metadata.deletion_timestamp.is_some() {
                    actions.push(Action::Delete(mirror.clone()));
                }
            }
        }
    }
    let is_orphan = |pod: &&Arc<Pod>| is_mirror(pod) && !wanted.contains_key(&namespaced_name(pod));
    for mirror in present.iter().filter(is_orphan) {
        let is_alive = mirrored_hash(mirror).is_some_and(|uid| alive.contains(uid));
        if !is_alive {
            actions.push(Action::Delete(mirror.clone()));
        }
    }
    actions
}

async fn carry_out(context: &Context, action: Action) -> Result<(), kube::Error> {
    let (pod, is_new) = match &action {
        Action::Create(pod) => (pod, true),
        Action::Delete(pod) => (pod, false),
    };
    let (name, namespace, uid) = identity(pod);
    let request = if is_new {
        // Without its Node it would be taken for garbage; the Node's coming wakes us.
        let Some(node) = context.node.get(&context.config.node_name) else { return Ok(()) };
        let node_uid = node.metadata.uid.clone().unwrap_or_default();
        ApiRequest::create(&mirror_of(pod, &context.config.node_name, node_uid))
    } else {
        ApiRequest::delete::<Pod>(&namespace, &name, Some(&uid), Propagation::Background, Some(0))
    };
    match request::carry_out(&context.client, &request).await {
        // The informer will say.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}

fn mirror_of(pod: &Pod, node_name: &str, node_uid: String) -> Pod {
    let mut mirror = pod.clone();
    let hash = hash(pod).unwrap_or_default().to_owned();
    mirror.status = None;
    mirror.metadata.uid = None;
    mirror.metadata.annotations.get_or_insert_default().insert(MIRROR.into(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node_name.to_owned(),
        uid: node_uid,
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, annotations: &str, extra: &str) -> Arc<Pod> {
        let text = format!(
            "{{metadata: {{name: {name}, namespace: ns, uid: u-{name}, annotations: {{{annotations}}}{extra}}}}}"
        );
        Arc::new(serde_saphyr::from_str(&text).unwrap())
    }

    fn check(present: &[Arc<Pod>], alive: &[&str], expect: &[&str]) {
        let a = pod("a", "kubernetes.io/config.hash: h1, kubernetes.io/config.source: file", "");
        let wanted = StaticPods::from([("ns/a".to_owned(), a)]);
        let alive = alive.iter().map(|uid| (*uid).to_owned()).collect();
        let told: Vec<_> = plan(&wanted, present, &alive)
            .into_iter()
            .map(|action| match action {
                Action::Create(pod) => format!("create {}", namespaced_name(&pod)),
                Action::Delete(pod) => format!("delete {}", namespaced_name(&pod)),
            })
            .collect();
        assert_eq!(told, expect);
    }

    #[test]
    fn there_is_exactly_one_mirror_of_the_right_content() {
        let right = || pod("a", "kubernetes.io/config.mirror: h1", "");
        check(&[], &[], &["create ns/a"]);
        check(&[right()], &[], &[]);
        check(&[pod("a", "kubernetes.io/config.mirror: h0", "")], &[], &["delete ns/a"]);
        let leaving =
            pod("a", "kubernetes.io/config.mirror: h1", ", deletionTimestamp: '2026-01-01T00:00:00Z'");
        check(&[leaving], &[], &["delete ns/a"]);
        check(&[pod("a", "", "")], &[], &[]);
        let orphan = || pod("b", "kubernetes.io/config.mirror: h2", "");
        check(&[right(), orphan()], &["h2"], &[]);
        check(&[right(), orphan()], &[], &["delete ns/b"]);
    }

    #[test]
    fn a_mirror_belongs_to_its_node() {
        let mirror = mirror_of(&pod("a", "kubernetes.io/config.hash: h1", ""), "n1", "node-uid".into());
        assert_eq!(mirrored_hash(&mirror), Some("h1"));
        assert_eq!(mirror.metadata.owner_references.unwrap()[0].uid, "node-uid");
        assert_eq!(mirror.metadata.uid, None);
    }

    /// Source: `TestGetStaticPodToMirrorPodMap`, `TestRemovePods` of upstream's `pkg/kubelet/pod`, and
    /// `deleteOrphanedMirrorPods`.
    #[test]
    fn every_static_pod_has_its_own_mirror() {
        let wanted = |names: &[&str]| -> StaticPods {
            let one = |name: &&str| {
                let hash = format!("kubernetes.io/config.hash: h-{name}, kubernetes.io/config.source: file");
                (format!("ns/{name}"), pod(name, &hash, ""))
            };
            names.iter().map(one).collect()
        };
        let mirror = |name: &str| pod(name, &format!("kubernetes.io/config.mirror: h-{name}"), "");
        for (name, statics, present, alive, expect) in [
            ("nothing", &[][..], vec![], &[][..], &[][..]),
            ("all are shown", &["a", "b"], vec![mirror("a"), mirror("b")], &[], &[]),
            ("one is not shown", &["a", "b"], vec![mirror("b")], &[], &["create ns/a"]),
            ("none is shown", &["b", "a"], vec![], &[], &["create ns/a", "create ns/b"]),
            ("one is gone", &["a"], vec![mirror("a"), mirror("b")], &[], &["delete ns/b"]),
            ("one is gone and still runs", &["a"], vec![mirror("a"), mirror("b")], &["h-b"], &[]),
            ("all are gone", &[], vec![mirror("a"), mirror("b")], &["h-a"], &["delete ns/b"]),
            ("a Pod of that name is somebody's", &["a"], vec![pod("a", "", "")], &[], &[]),
            ("others are nobody's business", &[], vec![pod("a", "", ""), pod("b", "x: y", "")], &[], &[]),
            (
                "a mirror of nothing",
                &[],
                vec![pod("a", "kubernetes.io/config.mirror: ''", "")],
                &[],
                &["delete ns/a"],
            ),
        ] {
            let alive = alive.iter().map(|uid: &&str| (*uid).to_owned()).collect();
            let told: Vec<String> = plan(&wanted(statics), &present, &alive)
                .into_iter()
                .map(|action| match action {
                    Action::Create(pod) => format!("create {}", namespaced_name(&pod)),
                    Action::Delete(pod) => format!("delete {}", namespaced_name(&pod)),
                })
                .collect();
            assert_eq!(told, expect, "{name}");
        }
    }
}
