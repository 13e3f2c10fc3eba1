//! Deadlines, ends, and who runs again: `TestActiveDeadlineHandler` of upstream's `pkg/kubelet`,
//! `TestShouldContainerBeRestarted` of its `pkg/kubelet/container`, and the rules of KEP-5307.

use super::*;
use crate::pod::snapshot::{Container, Ending, Sandbox};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn snapshot(pod: &str) -> PodSnapshot {
    PodSnapshot { pod: std::sync::Arc::new(serde_saphyr::from_str(pod).unwrap()), ..PodSnapshot::default() }
}

#[test]
fn a_pod_is_over_when_it_was_active_for_too_long() {
    let start = "status: {startTime: '1970-01-01T00:01:00Z'}";
    for (name, spec, status, now, expect) in [
        ("too long", "activeDeadlineSeconds: 30", start, 120, true),
        ("just as long", "activeDeadlineSeconds: 60", start, 120, true),
        ("not so long", "activeDeadlineSeconds: 61", start, 120, false),
        ("for ever", "restartPolicy: Never", start, 120, false),
        ("it has not begun", "activeDeadlineSeconds: 30", "status: {}", 120, false),
        ("no time at all", "activeDeadlineSeconds: 0", start, 60, true),
        ("less than no time", "activeDeadlineSeconds: -1", start, 120, false),
        ("as long as can be", "activeDeadlineSeconds: 2147483647", start, 120, false),
    ] {
        let snapshot = snapshot(&format!("{{spec: {{containers: [{{name: a}}], {spec}}}, {status}}}"));
        assert_eq!(is_past_deadline(&snapshot, at(now)), expect, "{name}");
        assert_eq!(is_over(&snapshot, at(now)), expect, "{name}");
        assert!(!is_finished(&snapshot), "{name}: nothing has ended");
    }
}

#[test]
fn who_runs_again_is_as_the_policies_and_rules_say() {
    let rule = |operator: &str, values: &str| {
        format!(
            "restartPolicyRules: [{{action: Restart, exitCodes: {{operator: {operator}, values: {values}}}}}]"
        )
    };
    for (pod, container, again, never) in [
        ("Always", String::new(), &[0, 1, 137][..], &[][..]),
        ("OnFailure", String::new(), &[1, 137, -1], &[0]),
        ("Never", String::new(), &[], &[0, 1, 137]),
        ("Never", "restartPolicy: Always".to_owned(), &[0, 1], &[]),
        ("Always", "restartPolicy: Never".to_owned(), &[], &[0, 1]),
        ("Always", "restartPolicy: OnFailure".to_owned(), &[1], &[0]),
        ("Never", format!("restartPolicy: Never, {}", rule("In", "[42]")), &[42], &[0, 1, 43]),
        ("Never", format!("restartPolicy: Never, {}", rule("NotIn", "[0, 1]")), &[2, 42], &[0, 1]),
        ("Never", format!("restartPolicy: OnFailure, {}", rule("In", "[0]")), &[0, 1], &[]),
        ("Always", format!("restartPolicy: Never, {}", rule("In", "[]")), &[], &[0, 1]),
        ("Always", format!("restartPolicy: Never, {}", rule("NotIn", "[]")), &[0, 1], &[]),
        ("Never", "restartPolicyRules: [{action: Restart}]".to_owned(), &[], &[0, 1]),
        (
            "Never",
            "restartPolicyRules: [{action: Other, exitCodes: {operator: In, values: [1]}}]".to_owned(),
            &[],
            &[1],
        ),
        (
            "Never",
            "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}, \
             {action: Restart, exitCodes: {operator: In, values: [2]}}]"
                .to_owned(),
            &[1, 2],
            &[0, 3],
        ),
    ] {
        let spec: PodSpec =
            serde_saphyr::from_str(&format!("{{restartPolicy: {pod}, containers: []}}")).unwrap();
        let text =
            if container.is_empty() { "{name: a}".to_owned() } else { format!("{{name: a, {container}}}") };
        let container: ContainerSpec = serde_saphyr::from_str(&text).unwrap();
        for code in again {
            assert!(should_restart(&spec, &container, *code), "{pod}, {text}: {code}");
        }
        for code in never {
            assert!(!should_restart(&spec, &container, *code), "{pod}, {text}: {code}");
        }
    }
    let spec = PodSpec::default();
    assert!(should_restart(&spec, &ContainerSpec::default(), 0), "if nobody says anything");
}

/// A container in a word: what has become of it.
fn container(word: &str, attempt: u32) -> Container {
    let state = match word {
        "running" => ContainerState::Running { started_at: at(1) },
        "created" => ContainerState::Created,
        "unknown" => ContainerState::Unknown,
        code => ContainerState::Exited(Exit { code: code.parse().unwrap(), ..Exit::default() }),
    };
    Container {
        id: format!("c{attempt}"),
        name: "a".into(),
        sandbox_id: "s".into(),
        attempt,
        state,
        image: String::new(),
        image_ref: String::new(),
        hash: String::new(),
        user: None,
        resources: None,
        recursive_mounts: Vec::new(),
    }
}

#[test]
fn the_newest_end_counts_and_what_is_lost_counts_as_a_failure() {
    let ran = "state: {running: {}}";
    for (name, of_runtime, recorded, expect) in [
        ("nothing is known", "", "", None),
        ("it runs", "running", "", None),
        ("it was made", "created", "", None),
        ("it has ended", "0", "", Some(0)),
        ("it has failed", "3", "", Some(3)),
        ("it runs again", "3 running", "", None),
        ("it has failed again", "3 4", "", Some(4)),
        ("the runtime does not know how it is", "unknown", "", None),
        ("nor does anybody else, but it ran", "unknown", ran, Some(137)),
        ("it is lost", "", ran, Some(137)),
        ("it is lost, and ended before", "", "state: {terminated: {exitCode: 5}}", Some(5)),
        (
            "it is lost, and waited to run again",
            "",
            "state: {waiting: {}}, lastState: {terminated: {exitCode: 6}}",
            Some(6),
        ),
        (
            "it is lost, and ran again",
            "",
            "state: {running: {}}, lastState: {terminated: {exitCode: 6}}",
            Some(137),
        ),
        ("it is lost, and never ran", "", "state: {waiting: {reason: ContainerCreating}}", None),
        ("what the runtime knows counts first", "0", "state: {terminated: {exitCode: 5}}", Some(0)),
    ] {
        let status = if recorded.is_empty() {
            String::new()
        } else {
            format!(
                ", status: {{containerStatuses: [{{name: a, image: i, imageID: i, ready: false, restartCount: 0, {recorded}}}]}}"
            )
        };
        let mut snapshot = snapshot(&format!("{{spec: {{containers: [{{name: a}}]}}{status}}}"));
        snapshot.containers = (0..)
            .zip(of_runtime.split_whitespace())
            .map(|(attempt, word)| container(word, attempt))
            .collect();
        let spec = snapshot.spec().containers[0].clone();
        assert_eq!(latest_code(&snapshot, &spec), expect, "{name}");
    }
}

#[test]
fn a_pod_is_finished_when_nothing_of_it_will_ever_run_again() {
    let ended = || Some(Ending::default());
    for (name, spec, of_runtime, phase, ending, expect) in [
        ("it runs", "restartPolicy: Never", "running", "Running", None, false),
        ("it ran once", "restartPolicy: Never", "0", "Running", None, true),
        ("it failed once", "restartPolicy: Never", "1", "Running", None, true),
        ("it runs till it succeeds, and has", "restartPolicy: OnFailure", "0", "Running", None, true),
        ("it runs till it succeeds, and has not", "restartPolicy: OnFailure", "1", "Running", None, false),
        ("it always runs", "restartPolicy: Always", "0", "Running", None, false),
        ("its phase is the last one", "restartPolicy: Always", "running", "Succeeded", None, true),
        ("its phase is the other last one", "restartPolicy: Always", "running", "Failed", None, true),
        ("it had to go", "restartPolicy: Always", "running", "Running", ended(), true),
        ("nothing was made yet", "restartPolicy: Never", "", "Pending", None, false),
    ] {
        let text = format!("{{spec: {{containers: [{{name: a}}], {spec}}}, status: {{phase: {phase}}}}}");
        let mut snapshot = snapshot(&text);
        snapshot.sandboxes = vec![Sandbox { id: "s".into(), is_ready: true, ..Sandbox::default() }];
        snapshot.containers = (0..)
            .zip(of_runtime.split_whitespace())
            .map(|(attempt, word)| container(word, attempt))
            .collect();
        snapshot.ending = ending;
        assert_eq!(is_finished(&snapshot), expect, "{name}");
    }
}

#[test]
fn what_runs_once_has_failed_when_its_sandbox_is_lost_after_something_was_made_in_it() {
    for (name, policy, of_runtime, is_ready, expect) in [
        ("it is there", "Never", "running", true, false),
        ("it is lost", "Never", "running", false, true),
        ("it is lost, and nothing was made in it", "Never", "", false, false),
        ("it is lost of what runs again", "Always", "running", false, false),
        ("it is lost of what runs till it succeeds", "OnFailure", "running", false, false),
    ] {
        let mut snapshot =
            snapshot(&format!("{{spec: {{containers: [{{name: a}}], restartPolicy: {policy}}}}}"));
        snapshot.sandboxes = vec![Sandbox { id: "s".into(), is_ready, ..Sandbox::default() }];
        snapshot.containers = of_runtime.split_whitespace().map(|word| container(word, 0)).collect();
        assert_eq!(is_finished(&snapshot), expect, "{name}");
    }
}
