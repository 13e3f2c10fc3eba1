//! Upstream's cases for a Pod's phase, conditions and container statuses, told as what the runtime has.
//!
//! Source: `TestPodPhase*`, `TestConvertToAPIContainerStatuses`, `Test_generateAPIPodStatus` and `generate_test.go` of
//! upstream's `pkg/kubelet`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ContainerState;

use super::*;
use crate::pod::crash_backoff::CrashBackoff;
use crate::pod::snapshot::{ContainerState as State, Exit, ProbeResults, Sandbox, Step};

const NOW: i64 = 1_700_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Containers in words, apart by commas: `name state`. The state is `made`, `run` (no probe has succeeded), `up`,
/// `unknown`, an exit code, or `back` and an exit code: one that waits to be started again. `old` stands before one of
/// a sandbox that is gone.
fn snapshot(pod: &str, containers: &str) -> PodSnapshot {
    let pod = format!("{{metadata: {{name: web, namespace: shop, uid: u1}}, {pod}}}");
    let sandbox = |id: &str, attempt| Sandbox {
        id: id.into(),
        is_ready: id == "new",
        ips: vec!["10.42.0.2".into()],
        attempt,
        lacks_ip: false,
    };
    let mut snapshot = PodSnapshot {
        pod: Arc::new(serde_saphyr::from_str(&pod).unwrap()),
        sandboxes: vec![sandbox("old", 0), sandbox("new", 1)],
        volumes: Step::Ready(String::new()),
        ..PodSnapshot::default()
    };
    for text in containers.split(", ").filter(|text| !text.is_empty()) {
        add(&mut snapshot, text);
    }
    snapshot
}

fn add(snapshot: &mut PodSnapshot, text: &str) {
    let (sandbox, text) = text.strip_prefix("old ").map_or(("new", text), |text| ("old", text));
    let (name, state) = text.split_once(' ').unwrap();
    let exit = |code: &str| Exit { code: code.parse().unwrap(), finished_at: at(NOW), ..Exit::default() };
    let state = match state.split_once(' ') {
        Some((_, code)) => {
            let mut backoff = CrashBackoff::default();
            backoff.restarted(at(NOW), at(NOW));
            snapshot.crashes.insert(name.into(), backoff);
            State::Exited(exit(code))
        }
        None if state == "made" => State::Created,
        None if state == "unknown" => State::Unknown,
        None if state == "run" || state == "up" => {
            let results = ProbeResults {
                container_id: format!("id-{name}"),
                startup: (state == "up").then_some(true),
                readiness: (state == "up").then_some(true),
                liveness: None,
            };
            snapshot.probes.insert(name.into(), results);
            State::Running { started_at: at(NOW) }
        }
        None => State::Exited(exit(state)),
    };
    snapshot.containers.push(container(&format!("id-{name}"), name, sandbox, state));
}

fn status(snapshot: &PodSnapshot) -> PodStatus {
    let node = NodeFacts { host_ips: vec!["10.0.0.1".into()], runtime_name: "knarr".into() };
    pod_status(snapshot, &node, at(NOW))
}

/// What `containers` make of a Pod with this spec.
type Row<'a> = (&'a str, &'a str, &'a str);

fn check_phases(spec: &str, rows: &[Row<'_>]) {
    for (name, containers, expect) in rows {
        let phase = status(&snapshot(&format!("spec: {spec}"), containers)).phase;
        assert_eq!(phase.as_deref(), Some(*expect), "{name}: {spec}");
    }
}

#[test]
fn phases_of_main_containers_follow_the_restart_policy() {
    let spec = |policy: &str| format!("{{restartPolicy: {policy}, containers: [{{name: a}}, {{name: b}}]}}");
    for policy in ["Always", "OnFailure", "Never"] {
        check_phases(
            &spec(policy),
            &[
                ("nothing yet", "", "Pending"),
                ("both run", "a run, b run", "Running"),
                ("one is not there", "a run", "Pending"),
                ("one is made only", "a run, b made", "Pending"),
                ("one ended well", "a run, b 0", "Running"),
                ("one failed", "a run, b 1", "Running"),
            ],
        );
    }
    check_phases(
        &spec("Always"),
        &[
            ("all ended well", "a 0, b 0", "Running"),
            ("all failed", "a 1, b 1", "Running"),
            ("one waits for its restart", "a run, b back 0", "Running"),
            ("both do", "a back 1, b back 0", "Running"),
        ],
    );
    check_phases(
        &spec("OnFailure"),
        &[
            ("all ended well", "a 0, b 0", "Succeeded"),
            ("all failed", "a 1, b 1", "Running"),
            ("one failed", "a 0, b 1", "Running"),
            ("one waits for its restart", "a run, b back 1", "Running"),
        ],
    );
    check_phases(
        &spec("Never"),
        &[
            ("all ended well", "a 0, b 0", "Succeeded"),
            ("all failed", "a 1, b 1", "Failed"),
            ("one failed", "a 0, b 1", "Failed"),
        ],
    );
}

#[test]
fn phases_of_init_containers_follow_the_restart_policy() {
    let spec = |policy: &str| {
        format!(
            "{{restartPolicy: {policy}, initContainers: [{{name: x}}], containers: [{{name: a}}, {{name: b}}]}}"
        )
    };
    for (policy, failed) in [("Always", "Pending"), ("OnFailure", "Pending"), ("Never", "Failed")] {
        check_phases(
            &spec(policy),
            &[
                ("nothing yet", "", "Pending"),
                ("it runs", "x run", "Pending"),
                ("it is made", "x made", "Pending"),
                ("it failed", "x 1", failed),
                ("it has ended", "x 0", "Pending"),
                ("the others run", "x 0, a run, b run", "Running"),
                ("in another sandbox, again", "x run, old a 137, old b 137", "Pending"),
            ],
        );
    }
    check_phases(
        &spec("Always"),
        &[("it waits", "x back 1", "Pending"), ("done, and it waits", "x back 0", "Pending")],
    );
}

#[test]
fn sidecars_hold_a_pod_up_until_they_were_up_once() {
    let spec = |policy: &str| {
        format!(
            "{{restartPolicy: {policy}, initContainers: [{{name: x, restartPolicy: Always, startupProbe: {{}}}}],
            containers: [{{name: a}}, {{name: b}}]}}"
        )
    };
    for policy in ["Always", "Never"] {
        check_phases(
            &spec(policy),
            &[
                ("nothing yet", "", "Pending"),
                ("on its way", "x run", "Pending"),
                ("it ended", "x 0", "Pending"),
                ("it waits after an end", "x back 0", "Pending"),
                ("it waits after a failure", "x back 1", "Pending"),
                ("it is made", "x made", "Pending"),
                ("one of two runs", "x up, a run", "Pending"),
                ("all run", "x up, a run, b run", "Running"),
                ("it comes up again", "x run, a run, b run", "Running"),
                ("it ended beside them", "x 0, a run, b run", "Running"),
                ("it waits beside them", "x back 1, a run, b run", "Running"),
                ("all are of the sandbox before", "x run, old a run, old b run", "Pending"),
            ],
        );
    }
    check_phases(
        &spec("Never"),
        &[
            ("it outlives the others", "x up, a 0, b 0", "Running"),
            ("it comes up again and they are done", "x run, a 0, b 0", "Running"),
            ("all are done", "x 0, a 0, b 0", "Succeeded"),
            ("its failure does not count", "x 1, a 0, b 0", "Succeeded"),
            ("nor while it waits", "x back 1, a 0, b 0", "Succeeded"),
            ("that of others does", "x 0, a 0, b 3", "Failed"),
        ],
    );
    let both = "{initContainers: [{name: x}, {name: y, restartPolicy: Always, startupProbe: {}}], containers: [{name: a}]}";
    check_phases(
        both,
        &[
            ("a new sandbox begins from the start", "x run, old y 0, old a 0", "Pending"),
            ("its sidecar is on its way", "x 0, y run, old a 0", "Pending"),
            ("the main container waits in this one", "x 0, y run, a back 0", "Running"),
            ("it runs", "x 0, y run, a run", "Running"),
        ],
    );
}

#[test]
fn containers_may_have_a_restart_policy_of_their_own() {
    let of = |pod: &str, a: &str, b: &str| {
        format!("{{restartPolicy: {pod}, containers: [{{name: a, {a}}}, {{name: b, {b}}}]}}")
    };
    const ALWAYS: &str = "restartPolicy: Always";
    const ON_FAILURE: &str = "restartPolicy: OnFailure";
    const NEVER: &str = "restartPolicy: Never";
    let rule = "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";
    let other = "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [42]}}]";
    for (pod, a, b, containers, expect) in [
        ("Always", NEVER, NEVER, "a 1, b 1", "Failed"),
        ("Always", NEVER, ON_FAILURE, "a 1, b 0", "Failed"),
        ("Always", NEVER, ON_FAILURE, "a 0, b 0", "Succeeded"),
        ("Always", NEVER, ON_FAILURE, "a 0, b 1", "Running"),
        ("Always", NEVER, "tty: false", "a 1, b 0", "Running"),
        ("Never", ALWAYS, "tty: false", "a 0, b 1", "Running"),
        ("Never", ON_FAILURE, "tty: false", "a 0, b 1", "Failed"),
        ("Never", rule, rule, "a 42, b 42", "Running"),
        ("Never", rule, rule, "a 41, b 1", "Failed"),
        ("Never", other, rule, "a 41, b 1", "Running"),
        ("Never", other, rule, "a 42, b 0", "Failed"),
    ] {
        check_phases(&of(pod, a, b), &[("containers", containers, expect)]);
    }
    let init = |pod: &str, own: &str| {
        format!("{{restartPolicy: {pod}, initContainers: [{{name: x, {own}}}], containers: [{{name: a}}]}}")
    };
    for (pod, own, containers, expect) in [
        ("Always", NEVER, "x 1", "Failed"),
        ("Never", ON_FAILURE, "x 1", "Pending"),
        ("Never", ALWAYS, "x 1", "Pending"),
        ("Never", rule, "x 42", "Pending"),
        ("Never", rule, "x 1", "Failed"),
    ] {
        check_phases(&init(pod, own), &[("init containers", containers, expect)]);
    }
}

#[test]
fn what_has_ended_stays_so_and_says_why_as_long_as_the_phase_is_the_same() {
    let rows = [
        ("Succeeded", "a run", "Succeeded Test", "an end that the API has"),
        ("Failed", "a 0", "Failed Test", "a failure that it has"),
        ("Running", "a run", "Running Test", "the same phase"),
        ("Pending", "", "Pending Test", "also a first one"),
        ("Pending", "a run", "Running", "a new phase has none"),
        ("Running", "", "Pending", "back to the first one"),
        ("Running", "a 0", "Succeeded", "the end"),
    ];
    for (phase, containers, expect, name) in rows {
        let pod = format!(
            "spec: {{restartPolicy: Never, containers: [{{name: a}}]}}, status: {{phase: {phase}, reason: Test}}"
        );
        let status = status(&snapshot(&pod, containers));
        let shown = [status.phase.unwrap(), status.reason.unwrap_or_default()];
        assert_eq!(shown.join(" ").trim_end(), expect, "{name}");
    }
}

/// A container's status in short: state, the state before, the restart count.
fn shown(status: &ContainerStatus) -> String {
    let of = |state: &Option<ContainerState>| match state.clone().unwrap_or_default() {
        ContainerState { running: Some(_), .. } => "Running".to_owned(),
        ContainerState { waiting: Some(waiting), .. } => waiting.reason.unwrap_or_default(),
        ContainerState { terminated: Some(ended), .. } => {
            format!("{} {}", ended.reason.unwrap(), ended.exit_code)
        }
        _ => "none".to_owned(),
    };
    format!("{}, {}, {}", of(&status.state), of(&status.last_state), status.restart_count)
}

#[test]
fn what_the_runtime_has_lost_is_not_forgotten() {
    const RUNS: &str = "containerID: 'knarr://id-a', restartCount: 2, state: {running: {}}";
    const ENDED: &str =
        "containerID: 'knarr://id-a', restartCount: 2, state: {terminated: {exitCode: 3, reason: Error}}";
    const WAITS: &str = "restartCount: 2, state: {waiting: {reason: ContainerCreating}}";
    const GONE: &str = "deletionTimestamp: '2023-11-14T22:13:21Z'";
    let unknown = "ContainerStatusUnknown 137";
    for (name, policy, known, metadata, containers, expect) in [
        ("one that ran", "Always", RUNS, "", "", format!("Running: ContainerCreating, {unknown}, 3")),
        ("is never started twice", "Never", RUNS, "", "", format!("Failed: {unknown}, {unknown}, 3")),
        ("of a deleted Pod", "Always", RUNS, GONE, "", format!("Failed: {unknown}, none, 2")),
        ("one that had ended", "Always", ENDED, "", "", "Running: Error 3, none, 2".to_owned()),
        ("and is done", "Never", ENDED, "", "", "Failed: Error 3, none, 2".to_owned()),
        ("one that never ran", "Always", WAITS, "", "", "Pending: ContainerCreating, none, 2".to_owned()),
        (
            "one of which nobody knows",
            "Always",
            RUNS,
            "",
            "a unknown",
            format!("Running: ContainerCreating, {unknown}, 0"),
        ),
        (
            "nor is it started twice",
            "Never",
            RUNS,
            "",
            "a unknown",
            format!("Failed: {unknown}, {unknown}, 0"),
        ),
        (
            "one that never ran, and nobody knows",
            "Always",
            WAITS,
            "",
            "a unknown",
            "Pending: ContainerCreating, none, 0".to_owned(),
        ),
    ] {
        let metadata =
            if metadata.is_empty() { String::new() } else { format!("metadata: {{uid: u1, {metadata}}}, ") };
        let pod = format!(
            "{metadata}spec: {{restartPolicy: {policy}, containers: [{{name: a}}]}},
            status: {{phase: Running, containerStatuses: [{{name: a, image: i, imageID: i, ready: true, {known}}}]}}"
        );
        let status = status(&snapshot_of(&pod, containers));
        let container = &status.container_statuses.as_ref().unwrap()[0];
        assert_eq!(format!("{}: {}", status.phase.unwrap(), shown(container)), expect, "{name}");
    }
}

/// One whose metadata are said.
fn snapshot_of(pod: &str, containers: &str) -> PodSnapshot {
    let found = snapshot("spec: {containers: []}", containers);
    let metadata = if pod.starts_with("metadata") { "" } else { "metadata: {uid: u1}, " };
    PodSnapshot { pod: Arc::new(serde_saphyr::from_str(&format!("{{{metadata}{pod}}}")).unwrap()), ..found }
}

#[test]
fn an_init_container_that_was_removed_stays_done() {
    let pod = "spec: {initContainers: [{name: x}], containers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [
        {name: x, image: i, imageID: i, ready: true, restartCount: 1, containerID: 'knarr://x',
         state: {terminated: {exitCode: 0, reason: Completed}}}]}";
    for containers in ["a run", "a made", "a back 1"] {
        let status = status(&snapshot(pod, containers));
        let init = &status.init_container_statuses.as_ref().unwrap()[0];
        assert_eq!(shown(init), "Completed 0, none, 1", "{containers}");
        assert!(init.ready && init.container_id.as_deref() == Some("knarr://x"), "{containers}");
        let initialized = status.conditions.iter().flatten().find(|c| c.type_ == "Initialized").unwrap();
        assert_eq!(initialized.status, "True", "{containers}");
    }
}

#[test]
fn main_containers_wait_for_initialization_until_they_are_made() {
    for (spec, containers, expect) in [
        ("{containers: [{name: a}]}", "", "ContainerCreating"),
        ("{initContainers: [{name: x}], containers: [{name: a}]}", "x run", "PodInitializing"),
        ("{initContainers: [{name: x}], containers: [{name: a}]}", "x 0", "PodInitializing"),
        (
            "{initContainers: [{name: x}], containers: [{name: a}, {name: b}]}",
            "x 0, b run",
            "PodInitializing",
        ),
    ] {
        let status = status(&snapshot(&format!("spec: {spec}"), containers));
        let state = status.container_statuses.unwrap().remove(0).state.unwrap();
        assert_eq!(state.waiting.unwrap().reason.as_deref(), Some(expect), "{spec} {containers}");
    }
}

/// The condition with its reason and message.
fn condition(snapshot: &PodSnapshot, type_: &str) -> String {
    let conditions = status(snapshot).conditions.unwrap();
    let found = conditions.into_iter().find(|condition| condition.type_ == type_).unwrap();
    let parts = [Some(found.status), found.reason, found.message];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[test]
fn readiness_names_the_containers_in_the_specs_order() {
    const TWO: &str = "{containers: [{name: '5678'}, {name: '1234', readinessProbe: {}}]}";
    const SIDECARS: &str = "{initContainers: [{name: z, restartPolicy: Always, readinessProbe: {}}, {name: i}, {name: y, restartPolicy: Always}],
        containers: [{name: b}, {name: a}]}";
    const ONCE: &str = "{restartPolicy: Never, containers: [{name: a}]}";
    let not = |names: &str| format!("False ContainersNotReady containers with unready status: [{names}]");
    for (spec, containers, expect) in [
        (TWO, "1234 up, 5678 run", "True".to_owned()),
        (TWO, "1234 run, 5678 run", not("1234")),
        (TWO, "5678 run", not("1234")),
        (TWO, "", not("5678 1234")),
        (TWO, "1234 back 1, 5678 back 1", not("5678 1234")),
        (SIDECARS, "z up, i 0, y run, a run, b run", "True".to_owned()),
        (SIDECARS, "z run, i 0, y run, a run, b run", not("z")),
        (SIDECARS, "z up, i 0, y back 1, a run, b run", not("y")),
        (SIDECARS, "z up", not("y b a")),
        (ONCE, "a 0", "False PodCompleted".to_owned()),
        (ONCE, "a 1", "False PodFailed".to_owned()),
    ] {
        let snapshot = snapshot(&format!("spec: {spec}"), containers);
        for type_ in ["ContainersReady", "Ready"] {
            assert_eq!(condition(&snapshot, type_), expect, "{spec} {containers}");
        }
    }
}

#[test]
fn readiness_gates_count_once_containers_are_ready() {
    const MISSING: &str = "corresponding condition of pod readiness gate \"one\" does not exist.";
    const OTHER: &str = "corresponding condition of pod readiness gate \"two\" does not exist.";
    let is = |gate: &str, status: &str| {
        format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {status}")
    };
    let not = |text: &str| format!("False ReadinessGatesNotReady {text}");
    for (gates, known, containers, expect) in [
        ("one", "", "a run", not(MISSING)),
        ("one", "one False", "a run", not(&is("one", "False"))),
        ("one", "one Unknown", "a run", not(&is("one", "Unknown"))),
        ("one", "one True", "a run", "True".to_owned()),
        ("one two", "one True", "a run", not(OTHER)),
        ("one two", "one True, two False", "a run", not(&is("two", "False"))),
        ("one two", "two False", "a run", not(&format!("{MISSING}, {}", is("two", "False")))),
        ("one two", "one True, two True", "a run", "True".to_owned()),
        (
            "one",
            "one True",
            "a back 1",
            "False ContainersNotReady containers with unready status: [a]".to_owned(),
        ),
    ] {
        let gates: Vec<_> = gates.split(' ').map(|gate| format!("{{conditionType: {gate}}}")).collect();
        let known = known.split(", ").filter_map(|known| known.split_once(' '));
        let known: Vec<_> = known.map(|(type_, is)| format!("{{type: {type_}, status: '{is}'}}")).collect();
        let pod = format!(
            "spec: {{readinessGates: [{}], containers: [{{name: a}}]}}, status: {{conditions: [{}]}}",
            gates.join(", "),
            known.join(", ")
        );
        assert_eq!(condition(&snapshot(&pod, containers), "Ready"), expect, "{gates:?} {known:?}");
    }
}

#[test]
fn initialization_is_over_when_something_after_it_has_begun() {
    const TWO: &str = "{initContainers: [{name: x}, {name: y}], containers: [{name: a}]}";
    const SIDECAR: &str =
        "{initContainers: [{name: x, restartPolicy: Always, startupProbe: {}}], containers: [{name: a}]}";
    const ONCE: &str = "{restartPolicy: Never, initContainers: [{name: x}], containers: [{name: a}]}";
    let not =
        |names: &str| format!("False ContainersNotInitialized containers with incomplete status: [{names}]");
    for (spec, containers, expect) in [
        ("{containers: [{name: a}]}", "", "True".to_owned()),
        (TWO, "", not("x y")),
        (TWO, "x 0", not("y")),
        (TWO, "x 0, y run", not("y")),
        (TWO, "x 0, y 1", not("y")),
        (TWO, "x 0, y 0", "True".to_owned()),
        (TWO, "y run, old a 0", "True".to_owned()),
        (SIDECAR, "x run", not("x")),
        (SIDECAR, "x up", "True".to_owned()),
        (SIDECAR, "x run, a run", "True".to_owned()),
        (SIDECAR, "x back 1, a 1", "True".to_owned()),
        (SIDECAR, "x back 1, a back 1", not("x")),
        (ONCE, "x 0, a 0", "True PodCompleted".to_owned()),
        (ONCE, "x 0, a 1", "True".to_owned()),
        (ONCE, "x 1", not("x")),
    ] {
        let snapshot = snapshot(&format!("spec: {spec}"), containers);
        assert_eq!(condition(&snapshot, "Initialized"), expect, "{spec} {containers}");
    }
}

#[test]
fn containers_can_start_in_a_sandbox_that_has_an_address() {
    for (name, spec, change, expect) in [
        ("none", "{containers: [{name: a}]}", "none", "False"),
        ("it is not ready", "{containers: [{name: a}]}", "dead", "False"),
        ("it has no address", "{containers: [{name: a}]}", "bare", "False"),
        ("it has one", "{containers: [{name: a}]}", "", "True"),
        ("the host's", "{hostNetwork: true, containers: [{name: a}]}", "bare", "True"),
    ] {
        let mut snapshot = snapshot(&format!("spec: {spec}"), "");
        match change {
            "none" => snapshot.sandboxes.clear(),
            "dead" => snapshot.sandboxes[1].is_ready = false,
            "bare" => snapshot.sandboxes[1].ips.clear(),
            _ => {}
        }
        assert_eq!(condition(&snapshot, "PodReadyToStartContainers"), expect, "{name}");
    }
}
