use super::*;

/// Source: `determinePodSandboxIPs` of upstream's `pkg/kubelet/kuberuntime`, and `PodSandboxChanged` there.
#[test]
fn a_sandbox_has_the_addresses_that_are_some() {
    for (name, network, expect, lacks_ip) in [
        ("no network at all", None, &[][..], false),
        ("the host's, or none yet", Some(&[""][..]), &[], true),
        ("one", Some(&["10.0.0.1"]), &["10.0.0.1"], false),
        ("of both families", Some(&["10.0.0.1", "fd00::1"]), &["10.0.0.1", "fd00::1"], false),
        ("the other family first", Some(&["fd00::1", "10.0.0.1"]), &["fd00::1", "10.0.0.1"], false),
        ("only a second one", Some(&["", "fd00::1"]), &["fd00::1"], true),
        ("nonsense", Some(&["10.0.0.x"]), &[], false),
        ("nonsense beside an address", Some(&["10.0.0.1", "fd00::g"]), &[], false),
        ("nothing beside an address", Some(&["10.0.0.1", ""]), &[], false),
        ("a range", Some(&["10.0.0.1/24"]), &[], false),
    ] {
        let network = network.map(|ips: &[&str]| v1::PodSandboxNetworkStatus {
            ip: ips[0].to_owned(),
            additional_ips: ips[1..].iter().map(|&ip| v1::PodIp { ip: ip.to_owned() }).collect(),
        });
        let status = v1::PodSandboxStatus { id: "sb".into(), network, ..Default::default() };
        let found = sandbox_from_cri(&status);
        assert_eq!(
            (found.ips, found.lacks_ip),
            (expect.iter().map(|&ip| ip.to_owned()).collect(), lacks_ip),
            "{name}"
        );
        assert!(found.is_ready, "{name}");
    }
    let metadata = Some(v1::PodSandboxMetadata { attempt: 3, ..Default::default() });
    let state = v1::PodSandboxState::SandboxNotready.into();
    let found = sandbox_from_cri(&v1::PodSandboxStatus { metadata, state, ..Default::default() });
    assert_eq!((found.attempt, found.is_ready), (3, false));
}

fn container(id: &str, exit_code: i32) -> v1::ContainerStatus {
    v1::ContainerStatus { id: id.into(), exit_code, ..Default::default() }
}

fn event(
    container_id: &str,
    sandbox: Option<&str>,
    statuses: Vec<v1::ContainerStatus>,
) -> v1::ContainerEventResponse {
    v1::ContainerEventResponse {
        container_id: container_id.into(),
        pod_sandbox_status: sandbox.map(|id| v1::PodSandboxStatus { id: id.into(), ..Default::default() }),
        containers_statuses: statuses,
        ..Default::default()
    }
}

/// Source: `TestHealthyEventedPLEG`, `TestEventedPLEG_getPodIPs` of upstream's `pkg/kubelet/pleg`: what an event does not
/// tell is asked for.
#[test]
fn an_event_is_enough_if_it_tells_of_its_subject() {
    for (name, event, refresh, containers, sandboxes) in [
        ("nothing", event("", None, vec![]), true, 0, 0),
        (
            "a container of which nobody knows the sandbox",
            event("c", None, vec![container("c", 0)]),
            true,
            1,
            0,
        ),
        ("a container", event("c", Some("sb"), vec![container("c", 0)]), false, 1, 1),
        (
            "a container and its neighbour",
            event("c", Some("sb"), vec![container("c", 0), container("d", 0)]),
            false,
            2,
            1,
        ),
        ("a container that is gone", event("c", Some("sb"), vec![]), true, 0, 1),
        ("a sandbox without any", event("sb", Some("sb"), vec![]), false, 0, 1),
    ] {
        let inbox = Inbox::default();
        inbox.runtime_event(event);
        let mail = inbox.take();
        assert_eq!(
            (mail.refresh, mail.containers.len(), mail.sandboxes.len()),
            (refresh, containers, sandboxes),
            "{name}"
        );
    }
}

#[test]
fn of_each_thing_the_newest_news_are_kept() {
    let inbox = Inbox::default();
    let pod = |name: &str| {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    };
    inbox.runtime_event(event("c", Some("sb"), vec![container("c", 1), container("d", 0)]));
    inbox.runtime_event(event("c", Some("sb"), vec![container("c", 2)]));
    inbox.pod(pod("old"), 1);
    inbox.pod(pod("new"), 2);
    inbox.probe("a", ProbeKind::Liveness, "c", true);
    inbox.probe("a", ProbeKind::Readiness, "c", true);
    inbox.probe("a", ProbeKind::Liveness, "d", false);
    let mail = inbox.take();
    let codes: Vec<_> =
        mail.containers.iter().map(|(id, (status, _))| (id.as_str(), status.exit_code)).collect();
    assert_eq!(codes, [("c", 2), ("d", 0)]);
    assert_eq!(mail.pod, Some((pod("new"), 2)));
    let probes: Vec<_> = mail.probes.values().cloned().collect();
    assert_eq!(probes, [("d".to_owned(), false), ("c".to_owned(), true)]);
    assert!(!mail.is_removed && !mail.refresh && mail.ending.is_none());
    let none = inbox.take();
    assert!(none.pod.is_none() && none.containers.is_empty() && none.probes.is_empty(), "it was taken");
}

#[tokio::test]
async fn a_pod_that_is_on_its_way_down_does_not_come_up_again() {
    let inbox = Inbox::default();
    inbox.set_released();
    inbox.set_stopped();
    inbox.stopped().await;
    inbox.released().await;
    inbox.removed();
    inbox.news().await;
    assert!(inbox.take().is_removed);
}
