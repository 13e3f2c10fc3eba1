//! Volumes that have no driver who could be asked, and that one node may have all the same: iSCSI. Nodes bring them to
//! themselves; which of them may is what their status says, and what it says is decided here.
//!
//! Keys are what nodes call the volumes, for Pods' own and those of claims alike: it is the disk that counts.
//! Source: `pkg/volume/iscsi/attacher.go`, whose `Attach` and `Detach` do nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::name;
use controller::pod::Pod;
use controller::volume::{ISCSI, claims_of, is_exclusive, iscsi_name, volume_name};
use controller::{Informers, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::{ByNode, Release, as_attached, by_node, multi_attach, release, say_attached, succeeded};
use crate::options::Options;

/// What a decision about one disk is made from.
pub(super) struct Snapshot {
    /// As nodes call it.
    unique: String,
    /// As Pods know it.
    volume: String,
    /// Only one node may have it at a time.
    is_exclusive: bool,
    /// The Pods that need it, by node.
    wanted: ByNode,
    nodes: BTreeMap<String, Arc<Node>>,
    options: Arc<Options>,
}

/// Whether a key is one of these.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(ISCSI)
}

/// What nodes call a PersistentVolume, if it is of this kind.
pub(super) fn of_volume(volume: &PersistentVolume) -> Option<String> {
    let source = volume.spec.as_ref()?.iscsi.as_ref()?;
    Some(iscsi_name(&source.target_portal, &source.iqn, source.lun))
}

/// What nodes call the volumes of this kind that a Pod names itself, and what it calls them.
pub(super) fn of_pod(pod: &Pod) -> impl Iterator<Item = (String, &str)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let source = volume.iscsi.as_ref()?;
        Some((iscsi_name(&source.target_portal, &source.iqn, source.lun), volume.name.as_str()))
    })
}

/// Those that a node's status says are attached.
pub(super) fn attached(node: &Node) -> impl Iterator<Item = String> {
    let all = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    all.filter(|attached| is_key(&attached.name)).map(|attached| attached.name.clone())
}

pub(super) fn snapshot(informers: &Informers, key: &str) -> Snapshot {
    let claims = informers.informer::<PersistentVolumeClaim>();
    let volumes = informers.informer::<PersistentVolume>().list();
    let of_key = |volume: &&Arc<PersistentVolume>| of_volume(volume).as_deref() == Some(key);
    let volumes: Vec<_> = volumes.iter().filter(of_key).collect();
    let is_claimed = |claim: &String| {
        let Some(claim) = claims.get(claim) else { return false };
        volumes.iter().any(|volume| name(&volume.metadata) == volume_name(&claim))
    };
    let pods = informers.informer::<Pod>().list();
    let own =
        pods.iter().find_map(|pod| of_pod(pod).find(|(own, _)| own == key).map(|(_, name)| name.to_owned()));
    let wants =
        |pod: &Arc<Pod>| of_pod(pod).any(|(own, _)| own == key) || claims_of(pod).iter().any(is_claimed);
    let nodes = informers.informer::<Node>().list().into_iter();
    Snapshot {
        unique: key.to_owned(),
        volume: volumes.first().map(|volume| name(&volume.metadata).to_owned()).or(own).unwrap_or_default(),
        is_exclusive: volumes.iter().any(|volume| is_exclusive(volume)),
        wanted: by_node(pods.iter().filter(|pod| wants(pod)).cloned()),
        nodes: nodes.map(|node| (name(&node.metadata).to_owned(), node)).collect(),
        options: Options::of(informers),
    }
}

pub(super) fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Snapshot { unique, volume, wanted, nodes, .. } = snapshot;
    let has = |node: &Node| attached(node).any(|name| name == *unique);
    let mut is_taken = false;
    for node in nodes.values().filter(|node| has(node)) {
        is_taken = true;
        if wanted.contains_key(name(&node.metadata)) {
            continue;
        }
        match release(Some(node), unique, &snapshot.options, now) {
            Release::WhenUnused => {}
            Release::After(left) => plan.requeue(left),
            Release::Now => {
                let all = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
                let others = all.filter(|attached| attached.name != *unique).cloned().collect();
                plan.push_step(say_attached(node, others));
            }
        }
    }
    for (node_name, pods) in wanted {
        let Some(node) = nodes.get(node_name).filter(|node| !has(node)) else { continue };
        if is_taken && snapshot.is_exclusive {
            plan.push_step(multi_attach(volume, wanted, node_name, pods));
            continue;
        }
        is_taken = true;
        let mut all = node.status.as_ref().and_then(|s| s.volumes_attached.clone()).unwrap_or_default();
        all.push(as_attached(unique.clone()));
        plan.push_step(say_attached(node, all));
        plan.push_step(succeeded(volume, pods));
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, parse, render};

    const HAS: &str = "volumesAttached: [{name: 'kubernetes.io/csi/d^h', devicePath: ''}, \
                       {name: 'kubernetes.io/iscsi/p:iqn:0', devicePath: ''}]";

    fn check(is_exclusive: bool, wanted: &[(&str, &str)], one: &str, two: &str, expect: &Expect) {
        let mut by_node = ByNode::new();
        for (node, pod) in wanted {
            let pod = format!("{{metadata: {{name: {pod}, namespace: x}}, spec: {{containers: []}}}}");
            by_node.entry((*node).to_owned()).or_default().push(Arc::new(parse(&pod)));
        }
        let nodes = format!(
            "[{{metadata: {{name: one, resourceVersion: '7'}}, status: {{{one}}}}}, \
             {{metadata: {{name: two, resourceVersion: '8'}}, status: {{{two}}}}}]"
        );
        let snapshot = Snapshot {
            unique: "kubernetes.io/iscsi/p:iqn:0".to_owned(),
            volume: "v".to_owned(),
            is_exclusive,
            wanted: by_node,
            nodes: list::<Node>(&nodes).into_iter().map(|n| (name(&n.metadata).to_owned(), n)).collect(),
            options: Arc::default(),
        };
        expect.assert_eq(&render(&plan(&snapshot, noon())));
    }

    #[test]
    fn a_disk_is_attached_where_pods_want_it_and_beside_what_is_there() {
        let known = "volumesAttached: [{name: 'kubernetes.io/csi/d^h', devicePath: ''}]";
        check(
            true,
            &[("one", "p")],
            known,
            "",
            &expect![[r#"
            step
              patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d^h"},{"devicePath":"","name":"kubernetes.io/iscsi/p:iqn:0"}]}}
            step
              Normal SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "v" 
        "#]],
        );
        check(true, &[("one", "p")], HAS, "", &expect![""]);
        check(true, &[("gone", "p")], "", "", &expect![""]);
    }

    #[test]
    fn a_disk_of_one_node_goes_to_no_other() {
        check(
            true,
            &[("one", "p"), ("two", "q")],
            "",
            "",
            &expect![[r#"
            step
              patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/p:iqn:0"}]}}
            step
              Normal SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "v" 
            step
              Warning FailedAttachVolume: Multi-Attach error for volume "v" Volume is already used by pod(s) p
        "#]],
        );
        check(
            true,
            &[("two", "q")],
            &format!("{HAS}, volumesInUse: ['kubernetes.io/iscsi/p:iqn:0']"),
            "",
            &expect![[r#"
                step
                  Warning FailedAttachVolume: Multi-Attach error for volume "v" Volume is already exclusively attached to one node and can't be attached to another
            "#]],
        );
        check(
            false,
            &[("one", "p"), ("two", "q")],
            HAS,
            "",
            &expect![[r#"
            step
              patch nodes/status two {"metadata":{"resourceVersion":"8"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/iscsi/p:iqn:0"}]}}
            step
              Normal SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "v" 
        "#]],
        );
    }

    #[test]
    fn a_disk_is_detached_when_its_node_has_done_with_it() {
        check(
            true,
            &[],
            HAS,
            "",
            &expect![[r#"
            step
              patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d^h"}]}}
        "#]],
        );
        check(true, &[], &format!("{HAS}, volumesInUse: ['kubernetes.io/iscsi/p:iqn:0']"), "", &expect![""]);
        let away = "conditions: [{type: Ready, status: Unknown, lastTransitionTime: '2000-01-01T00:00:00Z'}]";
        check(
            true,
            &[],
            &format!("{HAS}, volumesInUse: ['kubernetes.io/iscsi/p:iqn:0'], {away}"),
            "",
            &expect![[r#"
                step
                  patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d^h"}]}}
            "#]],
        );
    }

    #[test]
    fn pods_and_volumes_name_the_same_disk() {
        let source = "iscsi: {targetPortal: p, iqn: iqn, lun: 0}";
        let volume: PersistentVolume = parse(&format!("{{metadata: {{name: v}}, spec: {{{source}}}}}"));
        let pod: Pod =
            parse(&format!("{{spec: {{containers: [], volumes: [{{name: a}}, {{name: b, {source}}}]}}}}"));
        let name = "kubernetes.io/iscsi/p:iqn:0";
        assert_eq!(of_volume(&volume).as_deref(), Some(name));
        assert_eq!(of_pod(&pod).collect::<Vec<_>>(), [(name.to_owned(), "b")]);
    }
}
