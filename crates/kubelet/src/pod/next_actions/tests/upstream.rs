//! Upstream's cases for what is done next: `TestComputePodActions*`, `TestDoBackOff`, `TestKillContainerGracePeriod` and
//! `TestTerminationOrdering*` of its `pkg/kubelet/kuberuntime`, and `TestShouldContainerBeRestarted` of
//! `pkg/kubelet/container`. What upstream does at once may take several steps here: only the first one is shown.

use super::*;

/// A Pod of that restart policy and, for the rest, that spec; what is found of it. `down` stands before containers whose
/// sandbox is lost.
fn found(spec: &str, policy: &str, containers: &str) -> PodSnapshot {
    let pod = format!("{{metadata: {{uid: u}}, spec: {{restartPolicy: {policy}, {spec}}}}}");
    let (is_down, containers) = match containers.strip_prefix("down") {
        Some(rest) => (true, rest),
        None => (false, containers),
    };
    let containers: Vec<&str> =
        containers.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    let mut snapshot = snapshot(&pod, &containers);
    snapshot.sandboxes[0].is_ready = !is_down;
    snapshot
}

fn check_all(spec: &str, rows: &[(&str, &str, &str, &[&str])]) {
    for (name, policy, containers, expect) in rows {
        check(name, &found(spec, policy, containers), expect);
    }
}

#[test]
fn a_container_may_have_a_policy_of_its_own() {
    let two = |first: &str, second: &str| {
        format!("containers: [{{name: a, image: img, {first}}}, {{name: b, image: img, {second}}}]")
    };
    let own = |policy: &str| format!("restartPolicy: {policy}");
    let (always, on_failure, never) = (own("Always"), own("OnFailure"), own("Never"));
    check_all(
        &two(&always, &always),
        &[
            ("a good end", "Never", "a 0 0, b 0 running", &["start/a/1"]),
            ("a bad end", "Never", "a 0 running, b 0 111", &["start/b/1"]),
            ("both", "Never", "a 0 0, b 0 111", &["start/a/1"]),
        ],
    );
    check_all(
        &two(&on_failure, &on_failure),
        &[
            ("a good end stays", "Never", "a 0 0, b 0 running", &[]),
            ("a bad end does not", "Never", "a 0 0, b 0 111", &["start/b/1"]),
            ("one that was only made", "Never", "a 0 0, b 0 created", &["start/b/1"]),
            ("both ended well", "Always", "a 0 0, b 0 0", &["stop/sb"]),
        ],
    );
    check_all(
        &two(&never, &never),
        &[
            ("neither comes again", "Always", "a 0 0, b 0 111", &["stop/sb"]),
            ("one still runs", "Always", "a 0 111, b 0 running", &[]),
            ("one may still run", "Always", "a 0 111, b 0 unknown", &["kill/b-0/30"]),
        ],
    );
    check_all(
        &two("tty: false", &on_failure),
        &[
            ("a lost sandbox", "Always", "down a 0 137, b 0 0", &["sandbox"]),
            ("which comes for one alone", "Always", "a 0 137, b 0 0", &["start/a/1"]),
        ],
    );
}

#[test]
fn rules_by_exit_code_count_before_policies() {
    let rule = |operator: &str, values: &str| {
        format!(
            "containers: [{{name: a, image: img, restartPolicy: Never, restartPolicyRules: [{{action: Restart, \
             exitCodes: {{operator: {operator}, values: [{values}]}}}}]}}, {{name: b, image: img, restartPolicy: Never}}]"
        )
    };
    check_all(
        &rule("In", "42, 43"),
        &[
            ("a code that is named", "Never", "a 0 42, b 0 running", &["start/a/1"]),
            ("the other", "Always", "a 0 43, b 0 running", &["start/a/1"]),
            ("another", "Always", "a 0 44, b 0 running", &[]),
            ("a good end", "Always", "a 0 0, b 0 running", &[]),
            ("and all have ended", "Always", "a 0 1, b 0 1", &["stop/sb"]),
            ("one comes again, all others have ended", "Never", "a 0 42, b 0 1", &["start/a/1"]),
        ],
    );
    check_all(
        &rule("NotIn", "0"),
        &[
            ("a code that is not named", "Never", "a 0 1, b 0 running", &["start/a/1"]),
            ("one that is", "Always", "a 0 0, b 0 running", &[]),
        ],
    );
    let init = "initContainers: [{name: i, image: img, restartPolicy: Never, restartPolicyRules: [{action: Restart, \
                exitCodes: {operator: In, values: [42]}}]}, {name: j, image: img, restartPolicy: OnFailure}], \
                containers: [{name: a, image: img}]";
    check_all(
        init,
        &[
            ("an init container by its rule", "Always", "i 0 42", &["start/i/1"]),
            ("against its rule", "Always", "i 0 1", &["stop/sb"]),
            ("a good end", "Never", "i 0 0", &["start/j/0"]),
            ("another by its policy", "Never", "i 0 0, j 0 1", &["start/j/1"]),
            ("which has ended well", "Never", "i 0 0, j 0 0", &["start/a/0"]),
        ],
    );
}

#[test]
fn ephemeral_containers_neither_hold_up_nor_hold_on() {
    let spec = |ephemeral: &str| {
        format!(
            "initContainers: [{{name: i, image: img}}], containers: [{{name: a, image: img}}, {{name: b, image: img}}], \
             ephemeralContainers: [{ephemeral}]"
        )
    };
    let one = spec("{name: debug, image: img}");
    check_all(
        &one,
        &[
            (
                "it runs, and nothing is to be done",
                "Always",
                "i 0 0, a 0 running, b 0 running, debug 0 running",
                &[],
            ),
            ("it was never started", "Always", "i 0 0, a 0 running, b 0 running", &["start/debug/0"]),
            ("it has ended", "Always", "i 0 0, a 0 running, b 0 running, debug 0 1", &[]),
            ("it may still run", "Never", "i 0 0, a 0 running, b 0 running, debug 0 unknown", &[]),
            ("initialization is under way", "Always", "i 0 running", &["start/debug/0"]),
            (
                "the sandbox is lost, and an init container has failed",
                "OnFailure",
                "down i 0 137",
                &["sandbox"],
            ),
            ("the sandbox is lost", "Always", "down i 0 0, a 0 137, b 0 137, debug 0 137", &["sandbox"]),
            ("all others have ended", "Never", "i 0 0, a 0 0, b 0 0, debug 0 running", &["kill/debug-0/30"]),
        ],
    );
    let two = spec("{name: debug, image: img}, {name: more, image: img}");
    check_all(
        &two,
        &[("a second one", "Always", "i 0 0, a 0 running, b 0 running, debug 0 running", &["start/more/0"])],
    );
}

/// Results of probes in words: a container's name, `live`, `dead`, `up` or `slow`.
fn with_probes(mut snapshot: PodSnapshot, probes: &str) -> PodSnapshot {
    for text in probes.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let (name, result) = text.split_once(' ').unwrap();
        let results = snapshot.probes.entry(name.to_owned()).or_default();
        results.container_id = format!("{name}-0");
        match result {
            "live" => results.liveness = Some(true),
            "dead" => results.liveness = Some(false),
            "up" => results.startup = Some(true),
            "slow" => results.startup = Some(false),
            other => panic!("{other}"),
        }
    }
    snapshot
}

#[test]
fn sidecars_come_in_their_order_and_stay_whatever_the_policy() {
    const SPEC: &str = "initContainers: [{name: s, image: img, restartPolicy: Always},
        {name: t, image: img, restartPolicy: Always, livenessProbe: {}, startupProbe: {}},
        {name: v, image: img, restartPolicy: Always, livenessProbe: {}, startupProbe: {}}],
        containers: [{name: a, image: img}]";
    const UP: &str = "t up, t live, v up, v live";
    const ALL: &str = "s 0 running, t 0 running, v 0 running";
    for (name, policy, containers, probes, expect) in [
        ("initialization is over", "Always", ALL, UP, &["start/a/0"][..]),
        ("nothing was started", "Always", "", "", &["start/s/0"]),
        ("one was only made", "Always", "s 0 running, t 0 running, v 0 created", UP, &["start/v/1"]),
        ("the next one", "Always", "s 0 running", "", &["start/t/0"]),
        ("nobody knows whether it lives", "Always", "s 0 running, t 0 running", "t up", &["start/v/0"]),
        ("it lives", "Always", "s 0 running, t 0 running", "t up, t live", &["start/v/0"]),
        ("it does not", "Always", ALL, "t up, v up, v dead", &["kill/v-0/30", "start/a/0"]),
        ("nobody knows whether it is up", "Always", "s 0 running, t 0 running", "", &[]),
        ("it does not come up", "Always", ALL, "t up, v slow", &["kill/v-0/30"]),
        ("two have ended", "Always", "s 0 0, t 0 running, v 0 0", "t up", &["start/s/1"]),
        ("the first has ended", "Always", "s 0 0, t 0 running, v 0 running", UP, &["start/s/1"]),
        ("the sandbox is lost, and runs once", "Never", "down s 0 137, t 0 137, v 0 137", "", &["release"]),
        ("nothing was made in it", "Never", "down", "", &["sandbox"]),
        ("the sandbox is lost", "OnFailure", "down s 0 137, t 0 137, v 0 137", "", &["sandbox"]),
        ("the sandbox is lost, always", "Always", "down s 0 137, t 0 137, v 0 137", "", &["sandbox"]),
        (
            "the last has failed, and runs once",
            "Never",
            "s 0 running, t 0 running, v 0 137",
            "t up",
            &["start/v/1"],
        ),
        (
            "the last may still run",
            "Never",
            "s 0 running, t 0 running, v 0 unknown",
            "t up",
            &["kill/v-0/30"],
        ),
        (
            "main containers run",
            "Never",
            "s 0 running, t 0 running, v 0 137, a 0 running",
            "t up",
            &["start/v/1"],
        ),
        ("main containers are done", "Never", "s 0 0, t 0 0, v 0 0, a 0 0", UP, &["stop/sb"]),
        ("and sidecars run on", "Never", "s 0 running, t 0 0, v 0 0, a 0 0", UP, &["kill/s-0/30"]),
        ("the first two were removed", "Always", "v 0 running", "v up", &["start/s/0"]),
    ] {
        check(name, &with_probes(found(SPEC, policy, containers), probes), expect);
    }
    let mut changed = found(SPEC, "Always", ALL);
    changed = with_probes(changed, UP);
    changed.containers[2].hash = "other".into();
    check("the last is another one now", &changed, &["kill/v-0/30", "start/a/0"]);
}

#[test]
fn main_containers_that_fail_their_probes_go() {
    const TWO: &str =
        "containers: [{name: a, image: img, livenessProbe: {}, startupProbe: {}}, {name: b, image: img}]";
    const BOTH: &str = "a 0 running, b 0 running";
    for (name, policy, probes, expect) in [
        ("alive", "Always", "a up, a live", &[][..]),
        ("dead", "Always", "a up, a dead", &["kill/a-0/30"]),
        ("dead, and runs once", "Never", "a up, a dead", &["kill/a-0/30"]),
        ("slow", "Always", "a slow", &["kill/a-0/30"]),
        ("slow, and on failure", "OnFailure", "a slow", &["kill/a-0/30"]),
        ("nobody knows", "Always", "", &[]),
    ] {
        check(name, &with_probes(found(TWO, policy, BOTH), probes), expect);
    }
    let mut another = with_probes(found(TWO, "Always", BOTH), "a dead");
    another.containers[0].id = "a-1".into();
    check("the results are of an earlier one", &another, &[]);
}

#[test]
fn grace_periods_are_the_pods_unless_a_probe_has_its_own() {
    let spec = |probes: &str, pod: &str| {
        let pod =
            if pod.is_empty() { String::new() } else { format!(", terminationGracePeriodSeconds: {pod}") };
        format!("containers: [{{name: a, image: img{probes}}}]{pod}")
    };
    let liveness = |seconds: &str| format!(", livenessProbe: {{terminationGracePeriodSeconds: {seconds}}}");
    let startup = |seconds: &str| format!(", startupProbe: {{terminationGracePeriodSeconds: {seconds}}}");
    let both = startup("10") + &liveness("30");
    for (name, spec, reason, expect) in [
        ("the Pod's", spec("", "60"), "changed", "60"),
        ("of liveness", spec(&liveness("10"), "60"), "dead", "10"),
        ("of startup", spec(&startup("10"), "60"), "slow", "10"),
        ("of startup, and longer", spec(&startup("60"), "10"), "slow", "60"),
        ("of liveness, and longer", spec(&liveness("60"), "10"), "dead", "60"),
        ("another reason than liveness", spec(&liveness("10"), "60"), "changed", "60"),
        ("another reason than startup", spec(&startup("10"), "60"), "changed", "60"),
        ("all three, another reason", spec(&both, "60"), "changed", "60"),
        ("all three, startup", spec(&both, "60"), "slow", "10"),
        ("all three, liveness", spec(&both, "60"), "dead", "30"),
        ("none is said", spec("", ""), "changed", "30"),
    ] {
        let mut snapshot = found(&spec, "Always", "a 0 running");
        match reason {
            "changed" => snapshot.containers[0].hash = "other".into(),
            probe => snapshot = with_probes(snapshot, &format!("a {probe}")),
        }
        check(name, &snapshot, &[&format!("kill/a-0/{expect}")]);
    }
}

#[test]
fn those_that_go_wait_for_those_that_came_after_them() {
    let spec = |sidecars: &[&str]| {
        let sidecars: Vec<String> =
            sidecars.iter().map(|name| format!("{{name: {name}, restartPolicy: Always}}")).collect();
        format!(
            "{{metadata: {{uid: u, deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 10}}, \
             spec: {{initContainers: [{{name: once}}, {}], containers: [{{name: a}}, {{name: b}}]}}}}",
            sidecars.join(", ")
        )
    };
    check(
        "one after the main containers",
        &snapshot(&spec(&["s"]), &["s 0 running", "a 0 running", "b 0 running"]),
        &["kill/s-0/10 after a-0 b-0", "kill/a-0/10", "kill/b-0/10"],
    );
    check(
        "three in reverse order",
        &snapshot(&spec(&["s", "t", "v"]), &["s 0 running", "t 0 running", "v 0 running", "a 0 running"]),
        &[
            "kill/s-0/10 after t-0 v-0 a-0",
            "kill/t-0/10 after v-0 a-0",
            "kill/v-0/10 after a-0",
            "kill/a-0/10",
        ],
    );
    check(
        "those that have ended hold nobody up",
        &snapshot(&spec(&["s", "t", "v"]), &["s 0 running", "t 0 0", "v 0 running", "a 0 0"]),
        &["kill/s-0/10 after v-0", "kill/v-0/10"],
    );
    check(
        "an init container that still runs goes at once",
        &snapshot(&spec(&["s"]), &["once 0 running"]),
        &["kill/once-0/10"],
    );
}

/// What came and went twice, with the delay that it has earned.
fn crashing(policy: &str, code: i32, ended_at: i64, restarts: &[i64]) -> PodSnapshot {
    let mut snapshot = found("containers: [{name: a, image: img}]", policy, &format!("a 0 1, a 1 {code}"));
    for container in &mut snapshot.containers {
        if let ContainerState::Exited(exit) = &mut container.state {
            exit.finished_at = at(ended_at);
        }
    }
    for time in restarts {
        snapshot.crashes.entry("a".into()).or_default().restarted(at(*time), at(*time));
    }
    snapshot
}

#[test]
fn who_ends_again_and_again_waits_longer_each_time() {
    check("it has not waited yet", &crashing("Always", 1, 100, &[]), &["start/a/2"]);
    check("ten seconds", &crashing("Always", 1, 95, &[90]), &["back-off/a-1", "wake/105"]);
    check("they are over", &crashing("Always", 1, 90, &[80]), &["start/a/2"]);
    check("twenty", &crashing("Always", 1, 95, &[70, 90]), &["back-off/a-1", "wake/115"]);
    check("forty", &crashing("OnFailure", 1, 95, &[50, 70, 90]), &["back-off/a-1", "wake/135"]);
    check("a good end waits, too", &crashing("Always", 0, 95, &[90]), &["back-off/a-1", "wake/105"]);
    check("who does not come again does not wait", &crashing("OnFailure", 0, 95, &[90]), &["stop/sb"]);
    let five_minutes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    check(
        "never longer than five minutes",
        &crashing("Always", 1, 95, &five_minutes),
        &["back-off/a-1", "wake/395"],
    );
    let short = crashing("Always", 1, 95, &[]);
    let mut bounded = crate::pod::crash_backoff::CrashBackoff::with_max(Duration::from_secs(3));
    for time in [80, 90] {
        bounded.restarted(at(time), at(time));
    }
    let short = PodSnapshot { crashes: BTreeMap::from([("a".to_owned(), bounded)]), ..short };
    check("nor than the operator says", &short, &["start/a/2"]);
}
