//! What the runtime reports of containers, and what is known of a Pod by it: `TestToKubeContainerStatus`,
//! `TestToKubeContainerState` of upstream's `pkg/kubelet/kuberuntime`, and questions to a snapshot.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn status(state: i32) -> v1::ContainerStatus {
    v1::ContainerStatus {
        id: "cid".into(),
        metadata: Some(v1::ContainerMetadata { name: "cname".into(), attempt: 3 }),
        state,
        created_at: 327_000_000_000,
        started_at: 999_000_000_000,
        finished_at: 1_278_000_000_000,
        exit_code: 44,
        reason: "GotKilled".into(),
        message: "The container was killed".into(),
        image: Some(v1::ImageSpec { image: "cimage".into(), ..v1::ImageSpec::default() }),
        image_ref: "sha256:abc".into(),
        ..v1::ContainerStatus::default()
    }
}

#[test]
fn a_container_is_as_the_runtime_reports_it() {
    let exit = Exit {
        code: 44,
        reason: "GotKilled".into(),
        message: "The container was killed".into(),
        started_at: at(999),
        finished_at: at(1278),
    };
    for (state, expect) in [
        (v1::ContainerState::ContainerCreated.into(), ContainerState::Created),
        (v1::ContainerState::ContainerRunning.into(), ContainerState::Running { started_at: at(999) }),
        (v1::ContainerState::ContainerExited.into(), ContainerState::Exited(exit)),
        (v1::ContainerState::ContainerUnknown.into(), ContainerState::Unknown),
        (77, ContainerState::Unknown),
        (-1, ContainerState::Unknown),
    ] {
        let container = Container::from_cri(&status(state), "sid");
        assert_eq!(container.state, expect);
        let told = (
            container.id.as_str(),
            container.name.as_str(),
            container.sandbox_id.as_str(),
            container.attempt,
        );
        assert_eq!(told, ("cid", "cname", "sid", 3));
        assert_eq!((container.image.as_str(), container.image_ref.as_str()), ("cimage", "sha256:abc"));
        assert_eq!((container.hash.as_str(), container.user.as_ref()), ("", None));
        assert_eq!(container.is_running(), matches!(expect, ContainerState::Running { .. }));
        assert_eq!(container.exit().is_some(), matches!(expect, ContainerState::Exited(_)));
    }
}

#[test]
fn what_a_runtime_adds_is_taken_over() {
    let mut status = status(v1::ContainerState::ContainerRunning.into());
    status.image = Some(v1::ImageSpec {
        image: "sha256:abc".into(),
        user_specified_image: "registry.example/app:1".into(),
        ..v1::ImageSpec::default()
    });
    status.annotations.insert(crate::pod::labels::CONTAINER_HASH.into(), "beef".into());
    let user = v1::LinuxContainerUser { uid: 1000, gid: 2000, supplemental_groups: vec![2000, 3000] };
    status.user = Some(v1::ContainerUser { linux: Some(user) });
    let mount = |path: &str, recursive_read_only: bool| v1::Mount {
        container_path: path.into(),
        readonly: true,
        recursive_read_only,
        ..v1::Mount::default()
    };
    status.mounts = vec![mount("/a", true), mount("/b", false), mount("/c", true)];
    let limits = v1::LinuxContainerResources { cpu_shares: 512, ..v1::LinuxContainerResources::default() };
    status.resources =
        Some(v1::ContainerResources { linux: Some(limits), ..v1::ContainerResources::default() });
    let container = Container::from_cri(&status, "sid");
    assert_eq!((container.image.as_str(), container.hash.as_str()), ("registry.example/app:1", "beef"));
    assert_eq!(container.user, Some((1000, 2000, vec![2000, 3000])));
    assert_eq!(container.recursive_mounts, ["/a", "/c"]);
    assert_eq!(container.resources.map(|resources| resources.cpu_shares), Some(512));
    let bare = Container::from_cri(&v1::ContainerStatus::default(), "");
    assert_eq!((bare.name.as_str(), bare.attempt, bare.image.as_str()), ("", 0, ""));
    assert_eq!(bare.state, ContainerState::Created, "0 is what CRI counts from");
}

fn container(id: &str, sandbox_id: &str, state: v1::ContainerState) -> Container {
    let mut status = status(state.into());
    status.id = id.into();
    status.metadata = Some(v1::ContainerMetadata { name: "a".into(), attempt: 0 });
    Container::from_cri(&status, sandbox_id)
}

fn snapshot(pod: &str) -> PodSnapshot {
    PodSnapshot { pod: Arc::new(serde_saphyr::from_str(pod).unwrap()), ..PodSnapshot::default() }
}

#[test]
fn the_current_container_is_the_newest_if_its_sandbox_is_up() {
    use v1::ContainerState::{ContainerExited as Exited, ContainerRunning as Running};
    let sandbox = |id: &str, is_ready| Sandbox { id: id.into(), is_ready, ..Sandbox::default() };
    for (name, sandboxes, containers, latest, current) in [
        ("nothing", vec![], vec![], None, None),
        ("one", vec![sandbox("s1", true)], vec![container("c1", "s1", Running)], Some("c1"), Some("c1")),
        (
            "two",
            vec![sandbox("s1", true)],
            vec![container("c1", "s1", Exited), container("c2", "s1", Running)],
            Some("c2"),
            Some("c2"),
        ),
        (
            "its sandbox is down",
            vec![sandbox("s1", false)],
            vec![container("c1", "s1", Exited)],
            Some("c1"),
            None,
        ),
        (
            "it is of an older sandbox",
            vec![sandbox("s1", false), sandbox("s2", true)],
            vec![container("c1", "s1", Exited)],
            Some("c1"),
            None,
        ),
        (
            "there is another sandbox that is up",
            vec![sandbox("s1", true), sandbox("s2", true)],
            vec![container("c1", "s2", Running)],
            Some("c1"),
            None,
        ),
    ] {
        let mut snapshot = snapshot("{spec: {containers: [{name: a}]}}");
        (snapshot.sandboxes, snapshot.containers) = (sandboxes, containers);
        let id = |found: Option<&Container>| found.map(|container| container.id.clone());
        assert_eq!(id(snapshot.latest("a")).as_deref(), latest, "{name}");
        assert_eq!(id(snapshot.current("a")).as_deref(), current, "{name}");
        assert_eq!(id(snapshot.latest("b")), None, "{name}");
        assert_eq!(snapshot.has_begun_main(), current.is_some(), "{name}");
    }
}

#[test]
fn a_container_that_was_made_and_never_started_is_that_of_its_definition() {
    for (name, image, expect) in [("as it is", "one", true), ("as it was", "two", false)] {
        let mut snapshot = snapshot("{spec: {containers: [{name: a, image: one}]}}");
        snapshot.sandboxes = vec![Sandbox { id: "s".into(), is_ready: true, ..Sandbox::default() }];
        let mut made = container("c", "s", v1::ContainerState::ContainerCreated);
        let spec = ContainerSpec { name: "a".into(), image: Some(image.into()), ..ContainerSpec::default() };
        made.hash = crate::pod::identity::spec_hash(&spec);
        snapshot.containers = vec![made];
        let of_now = snapshot.spec().containers[0].clone();
        assert_eq!(snapshot.unstarted(&of_now).is_some(), expect, "{name}");
        snapshot.containers[0].state = ContainerState::Running { started_at: at(1) };
        assert!(snapshot.unstarted(&of_now).is_none(), "{name}: it runs");
    }
}

#[test]
fn results_of_probes_are_of_the_container_that_they_are_about() {
    let mut snapshot = snapshot("{spec: {containers: [{name: a, startupProbe: {}}]}}");
    snapshot.sandboxes = vec![Sandbox { id: "s".into(), is_ready: true, ..Sandbox::default() }];
    snapshot.containers = vec![container("c2", "s", v1::ContainerState::ContainerRunning)];
    let started =
        |snapshot: &PodSnapshot| snapshot.is_started(&snapshot.spec().containers[0], &snapshot.containers[0]);
    assert!(!started(&snapshot), "nobody has asked");
    for (id, startup, expect) in
        [("c1", Some(true), false), ("c2", Some(false), false), ("c2", None, false), ("c2", Some(true), true)]
    {
        let results = ProbeResults { container_id: id.into(), startup, ..ProbeResults::default() };
        snapshot.probes.insert("a".into(), results);
        assert_eq!(started(&snapshot), expect, "{id} {startup:?}");
    }
    snapshot.busy.insert(JobKey::Start("a".into()));
    assert!(!started(&snapshot), "it is being started");
}

#[test]
fn who_is_on_its_way_down_and_what_may_run() {
    let mut gone = snapshot("{metadata: {uid: u1}}");
    assert!(!gone.is_terminating() && !gone.may_run());
    gone.removed_from_api = true;
    assert!(gone.is_terminating(), "the object is gone");
    assert!(snapshot("{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}").is_terminating());
    for (key, expect) in [
        (JobKey::Sandbox, true),
        (JobKey::Start("a".into()), true),
        (JobKey::Volumes, false),
        (JobKey::Image("img".into()), false),
        (JobKey::Kill { id: "c".into(), grace: 1 }, false),
        (JobKey::Refresh, false),
    ] {
        gone.busy = BTreeSet::from([key.clone()]);
        assert_eq!(gone.may_run(), expect, "{key}");
    }
    gone.busy.clear();
    gone.containers = vec![container("c", "s", v1::ContainerState::ContainerExited)];
    assert!(!gone.may_run());
    gone.containers.push(container("d", "s", v1::ContainerState::ContainerRunning));
    assert!(gone.may_run());
}

#[test]
fn a_static_pods_status_is_its_mirrors() {
    let of_api = snapshot("{metadata: {uid: u1}}");
    assert_eq!((of_api.uid(), of_api.status_uid()), ("u1", Some("u1")));
    let mut of_file = snapshot("{metadata: {uid: h1, annotations: {kubernetes.io/config.source: file}}}");
    assert_eq!((of_file.is_static(), of_file.status_uid()), (true, None), "nobody shows it");
    of_file.mirror = Some(Arc::new(serde_saphyr::from_str("{metadata: {uid: m1}}").unwrap()));
    assert_eq!((of_file.uid(), of_file.status_uid()), ("h1", Some("m1")));
}

#[test]
fn what_the_api_has_is_found_whatever_the_containers_role() {
    let status =
        |name: &str| format!("{{name: {name}, image: i, imageID: i, ready: false, restartCount: 0}}");
    let snapshot = snapshot(&format!(
        "{{status: {{phase: Running, containerStatuses: [{}], initContainerStatuses: [{}], \
         ephemeralContainerStatuses: [{}]}}}}",
        status("main"),
        status("init"),
        status("debug")
    ));
    for (name, expect) in [("main", true), ("init", true), ("debug", true), ("other", false), ("", false)] {
        assert_eq!(snapshot.recorded(name).is_some(), expect, "{name}");
    }
    assert_eq!(snapshot.recorded_phase(), "Running");
    assert_eq!(PodSnapshot::default().recorded_phase(), "");
    assert!(PodSnapshot::default().recorded("main").is_none());
    assert!(PodSnapshot::default().spec().containers.is_empty());
}

#[test]
fn a_step_says_what_has_become_of_it() {
    let failure = Failure {
        reason: FailureReason::ErrImagePull,
        message: "no such image".into(),
        at: at(100),
        delay: Duration::from_secs(20),
    };
    assert_eq!(failure.retry_at(), at(120));
    let failed = Step::Failed(failure.clone());
    assert_eq!((failed.is_ready(), failed.failure()), (false, Some(&failure)));
    assert_eq!((Step::default().is_ready(), Step::Missing.failure()), (false, None));
    let ready = Step::Ready("ref".into());
    assert_eq!((ready.is_ready(), ready.failure()), (true, None));
}
