mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::pod::failure_reason::FailureReason;
use crate::pod::snapshot::{Exit, ProbeResults, Sandbox};

/// A container in words: `name attempt state`, where the state is `created`, `running`, `unknown` or an exit code.
fn container(text: &str) -> Container {
    let mut words = text.split(' ');
    let name = words.next().unwrap().to_owned();
    let attempt = words.next().unwrap().parse().unwrap();
    let state = match words.next().unwrap() {
        "created" => ContainerState::Created,
        "unknown" => ContainerState::Unknown,
        "running" => ContainerState::Running { started_at: at(0) },
        code => ContainerState::Exited(Exit {
            code: code.parse().unwrap(),
            finished_at: at(100),
            ..Exit::default()
        }),
    };
    Container {
        id: format!("{name}-{attempt}"),
        name,
        sandbox_id: "sb".into(),
        attempt,
        state,
        image: "img".into(),
        image_ref: "ref".into(),
        hash: String::new(),
        user: None,
        resources: None,
        recursive_mounts: Vec::new(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn snapshot(pod: &str, containers: &[&str]) -> PodSnapshot {
    PodSnapshot {
        pod: Arc::new(serde_saphyr::from_str(pod).unwrap()),
        sandboxes: vec![Sandbox {
            id: "sb".into(),
            is_ready: true,
            ips: vec!["10.42.0.2".into()],
            ..Sandbox::default()
        }],
        containers: containers.iter().map(|text| container(text)).collect(),
        volumes: Step::Ready(String::new()),
        images: BTreeMap::from([("img".to_owned(), Step::Ready("ref".into()))]),
        ..PodSnapshot::default()
    }
}

/// Actions in short: their keys, with the attempt of starts and whom kills wait for.
fn check(name: &str, snapshot: &PodSnapshot, expect: &[&str]) {
    let actions: Vec<String> = next_actions(snapshot, at(100))
        .iter()
        .map(|action| match action {
            PodAction::Start { name, attempt, .. } => format!("start/{name}/{attempt}"),
            PodAction::WakeAt(time) => format!("wake/{}", time.as_second()),
            PodAction::Kill { after, .. } if !after.is_empty() => {
                format!("{} after {}", action.key(), after.join(" "))
            }
            other => other.key().to_string(),
        })
        .collect();
    assert_eq!(actions, expect, "{name}");
}

const ONE: &str = "{metadata: {uid: u}, spec: {containers: [{name: a, image: img}]}}";
const TWO: &str = "{metadata: {uid: u}, spec: {containers: [{name: a, image: img}, {name: b, image: img}]}}";
const INIT: &str = "{metadata: {uid: u}, spec: {initContainers: [{name: i, image: img}, {name: s, image: img, restartPolicy: Always}],
    containers: [{name: a, image: img}]}}";
const ONCE: &str = "{metadata: {uid: u}, spec: {restartPolicy: Never, containers: [{name: a, image: img}]}}";
const GONE: &str =
    "{metadata: {uid: u, deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 5},
    spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: a}]}}";

#[test]
fn everything_is_prepared_at_once_and_containers_follow_in_order() {
    let mut fresh = PodSnapshot { pod: snapshot(ONE, &[]).pod, ..PodSnapshot::default() };
    check("a fresh pod", &fresh, &["volumes", "sandbox", "image/img"]);
    fresh.busy = [JobKey::Volumes, JobKey::Sandbox, JobKey::Image("img".into())].into();
    check("while all of that is under way", &fresh, &[]);
    check("all is prepared", &snapshot(TWO, &[]), &["start/a/0"]);
    let mut starting = snapshot(TWO, &[]);
    starting.busy.insert(JobKey::Start("a".into()));
    check("one at a time", &starting, &[]);
    check("the second follows", &snapshot(TWO, &["a 0 running"]), &["start/b/0"]);
    check("all is well", &snapshot(TWO, &["a 0 running", "b 0 running"]), &[]);
}

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_stay() {
    check("the first", &snapshot(INIT, &[]), &["start/i/0"]);
    check("it runs", &snapshot(INIT, &["i 0 running"]), &[]);
    check("it failed", &snapshot(INIT, &["i 0 1"]), &["start/i/1"]);
    check("it ended", &snapshot(INIT, &["i 0 0"]), &["start/s/0"]);
    check("the sidecar is up", &snapshot(INIT, &["i 0 0", "s 0 running"]), &["start/a/0"]);
    check("the sidecar ended", &snapshot(INIT, &["i 0 0", "s 0 0", "a 0 running"]), &["start/s/1"]);
}

#[test]
fn ephemeral_containers_start_at_once_and_never_again() {
    const DEBUG: &str = "{metadata: {uid: u}, spec: {initContainers: [{name: i, image: img}],
        containers: [{name: a, image: img}], ephemeralContainers: [{name: e, image: img, targetContainerName: a}]}}";
    check("beside an init container", &snapshot(DEBUG, &["i 0 running"]), &["start/e/0"]);
    check("one that runs", &snapshot(DEBUG, &["i 0 0", "a 0 running", "e 0 running"]), &[]);
    check("one that has ended", &snapshot(DEBUG, &["i 0 0", "a 0 running", "e 0 1"]), &[]);
    let mut broken = snapshot(DEBUG, &["i 0 0", "a 0 1"]);
    broken.crashes.entry("a".into()).or_default().restarted(at(90), at(90));
    check("while its target waits", &broken, &["start/e/0"]);
}

#[test]
fn restarts_follow_the_policy_and_back_off() {
    check("the first restart is immediate", &snapshot(ONE, &["a 0 1"]), &["start/a/1"]);
    let mut crashing = snapshot(ONE, &["a 0 1", "a 1 1"]);
    crashing.crashes.entry("a".into()).or_default().restarted(at(90), at(90));
    check("the second waits", &crashing, &["back-off/a-1", "wake/110"]);
    check("a pod that ended is taken down", &snapshot(ONCE, &["a 0 1"]), &["stop/sb"]);
    let mut ended = snapshot(ONCE, &["a 0 0"]);
    ended.sandboxes[0].is_ready = false;
    check("its volumes are taken back", &ended, &["release"]);
    ended.busy.insert(JobKey::VolumeUpdate);
    check("but not while they are made", &ended, &[]);
    ended.busy.clear();
    ended.is_released = true;
    check("and stays down", &ended, &[]);
    check("old containers go", &snapshot(ONE, &["a 0 1", "a 1 1", "a 2 running"]), &["remove/a-0"]);
}

#[test]
fn a_lost_sandbox_is_replaced_after_its_containers_are_gone() {
    let mut lost = snapshot(ONE, &["a 0 running"]);
    lost.sandboxes[0].is_ready = false;
    check("the survivors go first", &lost, &["kill/a-0/30"]);
    lost.containers[0] = container("a 0 137");
    check("then a new one comes", &lost, &["sandbox"]);
}

/// Source: `TestPodSandboxChanged` of upstream's `pkg/kubelet/kuberuntime/util`.
#[test]
fn a_sandbox_is_used_if_it_is_up_alone_and_can_be_reached() {
    let sandbox = |(attempt, is_ready, lacks_ip)| Sandbox {
        id: format!("sb{attempt}"),
        attempt,
        is_ready,
        lacks_ip,
        ips: Vec::new(),
    };
    for (name, sandboxes, network, expect) in [
        ("none", &[][..], "false", None),
        ("one that is up", &[(0, true, false)], "false", Some("sb0")),
        ("one that is not", &[(0, false, false)], "false", None),
        ("two that are up", &[(0, true, false), (1, true, false)], "false", None),
        ("the newest is down", &[(0, true, false), (1, false, false)], "false", None),
        ("the older is down", &[(0, false, false), (1, true, false)], "false", Some("sb1")),
        ("without an address", &[(0, true, true)], "false", None),
        ("on the host's network", &[(0, true, true)], "true", Some("sb0")),
        ("older ones need none", &[(0, false, true), (1, true, false)], "false", Some("sb1")),
    ] {
        let pod = format!(
            "{{metadata: {{uid: u}}, spec: {{hostNetwork: {network}, containers: [{{name: a, image: img}}]}}}}"
        );
        let mut snapshot = snapshot(&pod, &[]);
        snapshot.sandboxes = sandboxes.iter().copied().map(sandbox).collect();
        assert_eq!(snapshot.ready_sandbox().map(|sandbox| &*sandbox.id), expect, "{name}");
        let next = match sandboxes {
            [(0, false, _), (1, true, false)] => &["start/a/0", "remove-sandbox/sb0"][..],
            _ if expect.is_some() => &["start/a/0"],
            _ => &["sandbox"],
        };
        check(name, &snapshot, next);
    }
    let mut unreachable = snapshot(ONE, &["a 0 running"]);
    unreachable.sandboxes[0].lacks_ip = true;
    check("what runs in one without an address", &unreachable, &["kill/a-0/30"]);
    let mut once = snapshot(ONCE, &["a 0 running"]);
    once.sandboxes[0].lacks_ip = true;
    check("what runs once is not made anew", &once, &["kill/a-0/30"]);
}

#[test]
fn failed_probes_and_new_definitions_kill() {
    let mut dead = snapshot(ONE, &["a 0 running"]);
    let results =
        ProbeResults { container_id: "a-0".into(), liveness: Some(false), ..ProbeResults::default() };
    dead.probes.insert("a".into(), results);
    check("liveness", &dead, &["kill/a-0/30"]);
    let mut changed = snapshot(ONE, &["a 0 running"]);
    changed.containers[0].hash = "other".into();
    check("definition", &changed, &["kill/a-0/30"]);
}

#[test]
fn who_fails_its_probe_is_told_whether_it_comes_back() {
    let check = |policy: &str, name: &str, expect: &str| {
        let pod = format!(
            "{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, containers: [{{name: a, image: img}}], \
             initContainers: [{{name: s, image: img, restartPolicy: Always}}]}}}}"
        );
        let mut snapshot = snapshot(&pod, &["s 0 running", "a 0 running"]);
        let container_id = format!("{name}-0");
        let results = ProbeResults { container_id, liveness: Some(false), ..ProbeResults::default() };
        snapshot.probes.insert(name.to_owned(), results);
        let messages: Vec<_> = next_actions(&snapshot, at(100))
            .into_iter()
            .filter_map(|action| match action {
                PodAction::Kill { message, .. } => Some(message),
                _ => None,
            })
            .collect();
        assert_eq!(messages, [expect], "{policy}");
    };
    check("Always", "a", "Container a failed liveness probe, will be restarted");
    check("OnFailure", "a", "Container a failed liveness probe, will be restarted");
    check("Never", "a", "Container a failed liveness probe");
    check("Always", "s", "Init container s failed liveness probe");
    check("Never", "s", "Init container s failed liveness probe");
    let own = |policy: &str, own: &str, expect: &str| {
        let pod = format!(
            "{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, containers: [{{name: a, image: img, {own}}}]}}}}"
        );
        let mut snapshot = snapshot(&pod, &["a 0 running"]);
        let container_id = "a-0".to_owned();
        let results = ProbeResults { container_id, startup: Some(false), ..ProbeResults::default() };
        snapshot.probes.insert("a".to_owned(), results);
        let PodAction::Kill { message, .. } = &next_actions(&snapshot, at(100))[0] else { panic!("no kill") };
        assert_eq!(message, expect, "{policy} {own}");
    };
    own("Always", "restartPolicy: Never", "Container a failed startup probe");
    own("Never", "restartPolicy: OnFailure", "Container a failed startup probe, will be restarted");
    const RULES: &str = "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [0]}}]";
    own("Always", RULES, "Container a failed startup probe");
}

#[test]
fn images_that_fail_are_tried_again_later() {
    let mut missing = snapshot(ONE, &[]);
    let failure = Failure {
        reason: FailureReason::ErrImagePull,
        message: "no".into(),
        at: at(99),
        delay: Duration::from_secs(10),
    };
    missing.images.insert("img".into(), Step::Failed(failure));
    check("shown as failed, then as waiting, then tried", &missing, &["wake/101", "wake/109"]);
}

#[test]
fn deletion_goes_from_containers_to_the_object() {
    let whole = snapshot(GONE, &["s 0 running", "a 0 running"]);
    check("all at once, the sidecar in its turn", &whole, &["kill/s-0/5 after a-0", "kill/a-0/5"]);
    check("a sidecar that is alone", &snapshot(GONE, &["s 0 running", "a 0 0"]), &["kill/s-0/5"]);
    let running = &["a 0 running"];
    let by_force = |pod| PodSnapshot { removed_from_api: true, ..snapshot(pod, running) };
    check("an object that goes by force leaves no time", &by_force(ONE), &["kill/a-0/1"]);
    check("nor if there was some before", &by_force(GONE), &["kill/a-0/1"]);
    const TWO_SIDECARS: &str =
        "{metadata: {uid: u, deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 5},
        spec: {initContainers: [{name: s, restartPolicy: Always}, {name: t, restartPolicy: Always}], containers: [{name: a}]}}";
    let all = snapshot(TWO_SIDECARS, &["s 0 running", "t 0 running", "a 0 running"]);
    let turns = ["kill/s-0/5 after t-0 a-0", "kill/t-0/5 after a-0", "kill/a-0/5"];
    check("the last sidecar goes before the first", &all, &turns);
    let both = snapshot(TWO_SIDECARS, &["s 0 running", "t 0 running", "a 0 0"]);
    check("without main containers", &both, &["kill/s-0/5 after t-0", "kill/t-0/5"]);
    let mut down = snapshot(GONE, &["s 0 0", "a 0 0"]);
    check("then the sandbox", &down, &["stop/sb"]);
    down.sandboxes[0].is_ready = false;
    check("then everything else", &down, &["cleanup"]);
    down.is_cleaned = true;
    check("the last status must be written", &down, &[]);
    down.is_status_written = true;
    check("then the object", &down, &["delete"]);
    down.removed_from_api = true;
    check("which may be gone already", &down, &[]);
}

#[test]
fn claims_are_prepared_before_the_sandbox_and_taken_back_after_the_containers() {
    const CLAIM: &str =
        "{metadata: {uid: u}, spec: {restartPolicy: Never, containers: [{name: a, image: img}],
        resourceClaims: [{name: gpu, resourceClaimName: c}]}}";
    let fresh = PodSnapshot { pod: snapshot(CLAIM, &[]).pod, ..PodSnapshot::default() };
    check("a fresh pod", &fresh, &["volumes", "claims", "image/img"]);
    let with = |containers: &[&str]| PodSnapshot {
        claims: Step::Ready(String::new()),
        holds_claims: true,
        ..snapshot(CLAIM, containers)
    };
    check("all is prepared", &with(&[]), &["start/a/0"]);
    check("it runs", &with(&["a 0 running"]), &[]);
    let ended = with(&["a 0 0"]);
    check("it has ended", &ended, &["stop/sb", "claims"]);
    let phase = |snapshot: &PodSnapshot| {
        crate::pod::status::pod_status(snapshot, &crate::pod::status::NodeFacts::default(), at(100)).phase
    };
    assert_eq!(phase(&ended).as_deref(), Some("Pending"), "as the API has it, while devices are not back");
    let back = PodSnapshot { holds_claims: false, ..ended };
    assert_eq!(phase(&back).as_deref(), Some("Succeeded"));
}

#[test]
fn a_container_that_was_made_and_never_started_is_started_without_a_restart() {
    let mut made = snapshot(ONE, &["a 0 created"]);
    made.containers[0].hash = crate::pod::identity::spec_hash(&made.spec().containers[0]);
    check("a kubelet ended in between", &made, &["start/a/0"]);
    made.containers[0].hash = "another".into();
    check("its definition is another one now", &made, &["start/a/1"]);
}

/// A Pod of that restart policy and, for the rest, that spec; what is found of it; what is to be done.
fn check_rows(spec: &str, rows: &[(&str, &str, &[&str], &[&str])]) {
    for (name, policy, containers, expect) in rows {
        let pod = format!("{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, {spec}}}}}");
        check(name, &snapshot(&pod, containers), expect);
    }
}

/// Source of this and of what follows: `TestComputePodActions*` of upstream's `pkg/kubelet/kuberuntime`.
#[test]
fn main_containers_run_again_as_the_policy_says() {
    let three = "containers: [{name: a, image: img}, {name: b, image: img}, {name: c, image: img}]";
    let running = "c 0 running";
    check_rows(
        three,
        &[
            ("nothing is to be done", "Always", &["a 0 running", "b 0 running", running], &[]),
            ("however it ended", "Always", &["a 0 0", "b 0 111", running], &["start/a/1"]),
            ("but for the good end", "OnFailure", &["a 0 0", "b 0 111", running], &["start/b/1"]),
            ("never", "Never", &["a 0 0", "b 0 111", running], &[]),
            ("one that was only made", "OnFailure", &["a 0 0", "b 0 created", running], &["start/b/1"]),
            ("also if it runs once", "Never", &["a 0 running", "b 0 created", running], &["start/b/1"]),
            ("it may still run", "Never", &["a 0 running", "b 0 unknown", running], &["kill/b-0/30"]),
        ],
    );
    let lost = |policy: &str, containers: &[&str]| {
        let pod = format!("{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, {three}}}}}");
        let mut lost = snapshot(&pod, containers);
        lost.sandboxes[0].is_ready = false;
        lost
    };
    let all = ["a 0 137", "b 0 137", "c 0 137"];
    check("everything comes again", &lost("Always", &all), &["sandbox"]);
    check("but for the good ends", &lost("OnFailure", &["a 0 137", "b 0 0", "c 0 137"]), &["sandbox"]);
    check("all ended well", &lost("OnFailure", &["a 0 0", "b 0 0", "c 0 0"]), &["release"]);
    check("all ended, and run once", &lost("Never", &["a 0 0", "b 0 0", "c 0 0"]), &["release"]);
    check("none was ever made", &lost("Never", &[]), &["sandbox"]);
    check("one was never made", &lost("Never", &["a 0 0", "b 0 137"]), &["release"]);
    check("one still runs", &lost("Never", &["a 0 0", "b 0 running"]), &["kill/b-0/30"]);
}

#[test]
fn init_containers_run_again_in_another_sandbox_unless_the_pod_runs_once() {
    let lost = |policy: &str, containers: &[&str]| {
        let pod = format!(
            "{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, initContainers: [{{name: i, image: img}}, \
             {{name: j, image: img}}], containers: [{{name: a, image: img}}]}}}}"
        );
        let mut lost = snapshot(&pod, containers);
        lost.sandboxes[0].is_ready = false;
        lost
    };
    let phase = |snapshot: &PodSnapshot| {
        crate::pod::status::pod_status(snapshot, &crate::pod::status::NodeFacts::default(), at(100)).phase
    };
    for (name, policy, containers, expect, then) in [
        ("all were done", "Always", &["i 0 0", "j 0 0"][..], "sandbox", "Pending"),
        ("one was done", "OnFailure", &["i 0 0"], "sandbox", "Pending"),
        ("all were done, and run once", "Never", &["i 0 0", "j 0 0"], "release", "Failed"),
        ("one was done, and runs once", "Never", &["i 0 0"], "release", "Failed"),
        ("one ran", "Never", &["i 0 0", "j 0 running"], "kill/j-0/30", "Pending"),
        ("nothing was made", "Never", &[], "sandbox", "Pending"),
    ] {
        let lost = lost(policy, containers);
        check(name, &lost, &[expect]);
        assert_eq!(phase(&lost).as_deref(), Some(then), "{name}");
    }
}

#[test]
fn init_containers_that_had_their_turn_do_not_run_again() {
    let three = "initContainers: [{name: i, image: img}, {name: j, image: img}, {name: k, image: img}],
        containers: [{name: a, image: img}]";
    check_rows(
        three,
        &[
            ("the first", "Always", &[], &["start/i/0"]),
            ("all are done", "Always", &["i 0 0", "j 0 0", "k 0 0"], &["start/a/0"]),
            ("the last one runs", "Always", &["i 0 0", "j 0 0", "k 0 running"], &[]),
            ("those before it were removed", "Always", &["k 0 running"], &[]),
            ("and it is done", "Always", &["k 0 0"], &["start/a/0"]),
            ("and it failed", "Always", &["k 0 1"], &["start/k/1"]),
            ("one in the middle", "Always", &["j 0 0"], &["start/k/0"]),
            ("one that was only made", "Always", &["i 0 0", "j 0 0", "k 0 created"], &["start/k/1"]),
            ("it failed", "OnFailure", &["i 0 0", "j 0 0", "k 0 137"], &["start/k/1"]),
            ("for good", "Never", &["i 0 0", "j 0 0", "k 0 137"], &["stop/sb"]),
            ("it may still run", "OnFailure", &["i 0 0", "j 0 0", "k 0 unknown"], &["kill/k-0/30"]),
            ("a main container was made", "Always", &["a 0 created"], &["start/a/1"]),
            ("a main container has ended", "Always", &["a 0 1"], &["start/a/1"]),
        ],
    );
}

#[test]
fn a_sidecar_that_was_up_holds_nobody_up() {
    let three = "initContainers: [{name: s, image: img, restartPolicy: Always},
        {name: t, image: img, restartPolicy: Always}, {name: i, image: img}], containers: [{name: a, image: img}]";
    check_rows(
        three,
        &[
            ("it ended while the next one runs", "Always", &["s 0 1", "t 0 running"], &["start/s/1"]),
            ("and waits", "Never", &["s 0 1", "t 0 running", "i 0 0", "a 0 running"], &["start/s/1"]),
            ("it was removed", "Always", &["t 0 running", "i 0 running"], &["start/s/0"]),
            ("the last of them has ended", "Never", &["s 0 running", "t 0 137"], &["start/t/1"]),
            ("it may still run", "Never", &["s 0 running", "t 0 unknown"], &["kill/t-0/30"]),
            ("main containers are done", "Never", &["s 0 0", "t 0 0", "i 0 0", "a 0 0"], &["stop/sb"]),
        ],
    );
    let pod = format!("{{metadata: {{uid: u}}, spec: {{{three}}}}}");
    let mut crashing = snapshot(&pod, &["s 0 1", "t 0 running", "i 0 0"]);
    crashing.crashes.entry("s".into()).or_default().restarted(at(90), at(90));
    check("main containers come meanwhile", &crashing, &["back-off/s-0", "wake/110", "start/a/0"]);
    crashing.containers.pop();
    check("so do init containers", &crashing, &["back-off/s-0", "wake/110", "start/i/0"]);
}

#[test]
fn a_sidecars_startup_probe_holds_up_what_comes_after_it() {
    let probed =
        "initContainers: [{name: s, image: img, restartPolicy: Always, startupProbe: {}, livenessProbe: {}}],
        containers: [{name: a, image: img}]";
    let pod = format!("{{metadata: {{uid: u}}, spec: {{{probed}}}}}");
    let of = |startup: Option<bool>, liveness: Option<bool>, containers: &[&str]| {
        let mut snapshot = snapshot(&pod, containers);
        let container_id = "s-0".into();
        snapshot.probes.insert("s".into(), ProbeResults { container_id, startup, liveness, readiness: None });
        snapshot
    };
    let alone = ["s 0 running"];
    check("no result yet", &of(None, None, &alone), &[]);
    check("it is up", &of(Some(true), None, &alone), &["start/a/0"]);
    check("and alive", &of(Some(true), Some(true), &alone), &["start/a/0"]);
    check("it failed", &of(Some(false), None, &alone), &["kill/s-0/30"]);
    check("it was up, and is not alive", &of(Some(true), Some(false), &alone), &["kill/s-0/30", "start/a/0"]);
    let beside = ["s 0 running", "a 0 0"];
    check("it comes up again", &of(None, None, &beside), &["start/a/1"]);
}

#[test]
fn what_the_runtime_has_forgotten_counts_on() {
    let known = |known: &str, policy: &str| {
        let pod = format!(
            "{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, containers: [{{name: a, image: img}}]}},
            status: {{containerStatuses: [{{name: a, image: i, imageID: i, ready: false, restartCount: 3, {known}}}]}}}}"
        );
        snapshot(&pod, &[])
    };
    const RAN: &str = "containerID: 'x://1', state: {running: {}}";
    const ENDED: &str = "containerID: 'x://1', state: {terminated: {exitCode: 0}}";
    const FAILED: &str = "containerID: 'x://1', state: {terminated: {exitCode: 1}}";
    const WAITS: &str = "state: {waiting: {}}, lastState: {terminated: {exitCode: 1, containerID: 'x://1'}}";
    const LOST: &str = "state: {waiting: {}}, lastState: {terminated: {exitCode: 137}}";
    for (name, status, policy, expect) in [
        ("it ran", RAN, "Always", "start/a/4"),
        ("it ran, and runs once", RAN, "Never", "stop/sb"),
        ("it had ended", ENDED, "Always", "start/a/4"),
        ("well", ENDED, "OnFailure", "stop/sb"),
        ("not so well", FAILED, "OnFailure", "start/a/4"),
        ("it waited", WAITS, "OnFailure", "start/a/4"),
        ("its loss is counted already", LOST, "OnFailure", "start/a/3"),
        ("also if it runs once", LOST, "Never", "stop/sb"),
    ] {
        check(name, &known(status, policy), &[expect]);
    }
}

#[test]
fn a_probe_may_have_a_grace_period_of_its_own() {
    let check = |name: &str, pod: &str, results: ProbeResults, expect: &str| {
        let mut snapshot = snapshot(&format!("{{metadata: {{uid: u}}, spec: {{{pod}}}}}"), &["a 0 running"]);
        snapshot.probes.insert("a".into(), ProbeResults { container_id: "a-0".into(), ..results });
        check(name, &snapshot, &[expect]);
    };
    let dead = || ProbeResults { liveness: Some(false), startup: Some(true), ..ProbeResults::default() };
    let slow = || ProbeResults { startup: Some(false), ..ProbeResults::default() };
    let of = |probes: &str, pod: &str| format!("containers: [{{name: a, image: img, {probes}}}], {pod}");
    const BOTH: &str = "livenessProbe: {terminationGracePeriodSeconds: 20}, startupProbe: {terminationGracePeriodSeconds: 10}";
    let long = "terminationGracePeriodSeconds: 60";
    let short = "terminationGracePeriodSeconds: 5";
    check("the Pod's", &of("livenessProbe: {}", long), dead(), "kill/a-0/60");
    check("the probe's", &of(BOTH, long), dead(), "kill/a-0/20");
    check("that of the other probe", &of(BOTH, long), slow(), "kill/a-0/10");
    check("even a longer one", &of(BOTH, short), dead(), "kill/a-0/20");
    check("of startup, too", &of(BOTH, short), slow(), "kill/a-0/10");
    check(
        "none at all is a second",
        &of("livenessProbe: {}", "terminationGracePeriodSeconds: 0"),
        dead(),
        "kill/a-0/1",
    );
}
