//! Upstream's cases for containers that have ended and come again, or not: what is shown of the last two of them.
//!
//! Source: `TestGenerateAPIPodStatusWithReasonCache`, `...WithDifferentRestartPolicies`, `...WithContainerRestartPolicies`
//! and `...WithSortedContainers` of upstream's `pkg/kubelet`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerState;

use super::*;
use crate::pod::failure_reason::FailureReason;
use crate::pod::snapshot::{ContainerState as State, Exit, Sandbox, Step};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Containers in words, apart by commas, the oldest first: a name and an exit code, or `run`. Those in `failed` could not be
/// started again.
fn snapshot(spec: &str, containers: &str, failed: &[&str]) -> PodSnapshot {
    let mut snapshot = PodSnapshot {
        pod: Arc::new(serde_saphyr::from_str(&format!("{{metadata: {{uid: u1}}, spec: {spec}}}")).unwrap()),
        sandboxes: vec![Sandbox {
            id: "s".into(),
            is_ready: true,
            ips: vec!["10.42.0.2".into()],
            ..Sandbox::default()
        }],
        volumes: Step::Ready(String::new()),
        ..PodSnapshot::default()
    };
    for (number, text) in containers.split(", ").enumerate().filter(|(_, text)| !text.is_empty()) {
        let (name, state) = text.split_once(' ').unwrap();
        let state = match state.parse() {
            Ok(code) => State::Exited(Exit { code, ..Exit::default() }),
            Err(_) => State::Running { started_at: at(5) },
        };
        snapshot.containers.push(container(&format!("{name}-{number}"), name, "s", state));
    }
    for name in failed {
        let failure = Failure {
            reason: FailureReason::RunContainerError,
            message: "no".into(),
            at: at(9),
            delay: Duration::from_secs(9),
        };
        snapshot.failures.insert((*name).to_owned(), failure);
    }
    snapshot
}

/// State and state before of each, in the order in which they are shown.
fn shown(statuses: Option<Vec<ContainerStatus>>) -> String {
    let state = |state: &Option<ContainerState>| match state.clone().unwrap_or_default() {
        ContainerState { running: Some(_), .. } => "run".to_owned(),
        ContainerState { waiting: Some(waiting), .. } => waiting.reason.unwrap_or_default(),
        ContainerState { terminated: Some(ended), .. } => ended.exit_code.to_string(),
        _ => "-".to_owned(),
    };
    let one = |status: &ContainerStatus| {
        format!("{} {} {}", status.name, state(&status.state), state(&status.last_state))
    };
    statuses.iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// What is shown of main containers, and of the same as init containers.
fn check(name: &str, policy: &str, list: &str, snapshot_of: (&str, &[&str]), expect: &str, of_init: &str) {
    let status = |spec: String| {
        let node = NodeFacts { host_ips: vec!["10.0.0.1".into()], runtime_name: "knarr".into() };
        pod_status(&snapshot(&spec, snapshot_of.0, snapshot_of.1), &node, at(10))
    };
    let of_main = status(format!("{{restartPolicy: {policy}, containers: [{list}]}}"));
    assert_eq!(shown(of_main.container_statuses), expect, "{name}");
    let init =
        status(format!("{{restartPolicy: {policy}, initContainers: [{list}], containers: [{{name: z}}]}}"));
    assert_eq!(shown(init.init_container_statuses), of_init, "{name}, as init containers");
}

const TWO: &str = "{name: ok}, {name: bad}";
const ENDED: &str = "ok 2, bad 3, ok 0, bad 1";

#[test]
fn who_could_not_be_started_again_waits_and_the_others_show_how_they_ended() {
    const WAITS: &str = "RunContainerError";
    let (both, none): (&[&str], &[&str]) = (&["ok", "bad"], &[]);
    let all_ended = "bad 1 3, ok 0 2";
    let bad_waits = format!("bad {WAITS} 1, ok 0 2");
    let both_wait = format!("bad {WAITS} 1, ok {WAITS} 0");
    let in_order = "ok 0 2, bad 1 3";
    let init_waits = format!("ok 0 2, bad {WAITS} 1");
    check("none was tried", "Always", TWO, (ENDED, none), all_ended, in_order);
    check("they run once", "Never", TWO, (ENDED, both), all_ended, in_order);
    check("only the bad one comes again", "OnFailure", TWO, (ENDED, both), &bad_waits, &init_waits);
    check("both come again", "Always", TWO, (ENDED, both), &both_wait, &init_waits);
    check(
        "of three the last two count",
        "OnFailure",
        "{name: bad}",
        ("bad 4, bad 3, bad 1", none),
        "bad 1 3",
        "bad 1 3",
    );
    check("it runs again", "Always", "{name: bad}", ("bad 1, bad run", none), "bad run 1", "bad run 1");
    check(
        "there is none",
        "Always",
        TWO,
        ("", none),
        "bad ContainerCreating -, ok ContainerCreating -",
        "ok PodInitializing -, bad PodInitializing -",
    );
}

#[test]
fn a_containers_own_policy_and_its_rules_count_before_the_pods() {
    const WAITS: &str = "RunContainerError";
    let rule = |codes: &str| {
        format!(
            "{{name: bad, restartPolicy: Never, restartPolicyRules: [{{action: Restart, exitCodes: {codes}}}]}}"
        )
    };
    let own = |policy: &str| {
        format!("{{name: ok, restartPolicy: {policy}}}, {{name: bad, restartPolicy: {policy}}}")
    };
    let failed: &[&str] = &["ok", "bad"];
    for (name, list, expect) in [
        ("a rule for it", rule("{operator: In, values: [1]}"), format!("bad {WAITS} 1")),
        ("a rule for others", rule("{operator: In, values: [2]}"), "bad 1 3".to_owned()),
        ("a rule for all others", rule("{operator: NotIn, values: [1]}"), "bad 1 3".to_owned()),
        ("a rule for all but others", rule("{operator: NotIn, values: [2]}"), format!("bad {WAITS} 1")),
        ("never", own("Never"), "bad 1 3, ok 0 2".to_owned()),
        ("if it failed", own("OnFailure"), format!("bad {WAITS} 1, ok 0 2")),
        ("always", own("Always"), format!("bad {WAITS} 1, ok {WAITS} 0")),
    ] {
        let spec = format!("{{restartPolicy: Always, containers: [{list}, {{name: run}}]}}");
        let snapshot = snapshot(&spec, &format!("{ENDED}, run run"), failed);
        let statuses = pod_status(&snapshot, &NodeFacts::default(), at(10)).container_statuses;
        assert_eq!(shown(statuses), format!("{expect}, run run -"), "{name}");
    }
}

#[test]
fn main_containers_are_told_by_name_and_init_containers_in_their_order() {
    let list = "{name: c}, {name: a}, {name: d}, {name: b}";
    let spec = format!("{{initContainers: [{list}], containers: [{}]}}", list.replace("name: ", "name: m"));
    let status = pod_status(&snapshot(&spec, "", &[]), &NodeFacts::default(), at(10));
    let names = |statuses: Option<Vec<ContainerStatus>>| {
        statuses.unwrap().into_iter().map(|status| status.name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(status.container_statuses), "ma mb mc md");
    assert_eq!(names(status.init_container_statuses), "c a d b");
}
