use std::sync::Arc;

use super::*;

#[test]
fn a_logs_last_words_end_as_they_were_written() {
    let record = |tag: &str, text: &str| format!("2026-01-02T03:04:05.000000000Z stdout {tag} {text}\n");
    let long = "x".repeat(3 * LOG_TAIL_MAX);
    let many: String = (0..100).map(|number| record("F", &number.to_string())).collect();
    for (name, log, expect) in [
        ("nothing", String::new(), String::new()),
        ("a whole line", record("F", "a b  c"), "a b  c\n".to_owned()),
        ("a line without an end", record("F", "a") + &record("P", "b"), "a\nb".to_owned()),
        ("parts of a line", record("P", "a") + &record("P", "b") + &record("F", "c"), "abc\n".to_owned()),
        ("an empty line", record("F", ""), "\n".to_owned()),
        ("more than is shown", record("P", &long), "x".repeat(LOG_TAIL_MAX)),
        ("no record", "nothing\n".to_owned(), String::new()),
        ("many lines", many, (20..100).map(|number| format!("{number}\n")).collect()),
    ] {
        assert_eq!(last_words(&log), expect, "{name}");
    }
    assert_eq!(last_words(&record("F", &"ä".repeat(LOG_TAIL_MAX))).len(), LOG_TAIL_MAX - 1);
}

#[test]
fn a_log_that_is_read_from_its_middle_begins_with_a_whole_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    let line = format!("2026-01-02T03:04:05.000000000Z stdout F {}\n", "y".repeat(1000));
    std::fs::write(&path, line.repeat(200)).unwrap();
    let said = log_tail(&path).unwrap();
    assert_eq!(said.len(), LOG_TAIL_MAX);
    assert!(said.bytes().all(|byte| matches!(byte, b'y' | b'\n')), "{said}");
}

/// A Pod with a container that has ended, one that runs once, and one that looks into it.
fn ended(policy: &str, code: i32) -> PodSnapshot {
    let spec = |name: &str| format!("{{name: {name}, terminationMessagePolicy: {policy}}}");
    let pod = format!(
        "{{metadata: {{name: web, namespace: shop, uid: u}}, spec: {{containers: [{}], initContainers: [{}], ephemeralContainers: [{}]}}}}",
        spec("a"),
        spec("i"),
        spec("e")
    );
    let status = |name: &str| v1::ContainerStatus {
        id: name.to_owned(),
        metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 1 }),
        state: v1::ContainerState::ContainerExited.into(),
        exit_code: code,
        ..Default::default()
    };
    PodSnapshot {
        pod: Arc::new(serde_saphyr::from_str(&pod).unwrap()),
        containers: ["a", "i", "e"].iter().map(|name| Container::from_cri(&status(name), "sb")).collect(),
        ..PodSnapshot::default()
    }
}

/// Source: `TestToKubeContainerStatus` and `getTerminationMessage` of upstream's `pkg/kubelet/kuberuntime`, `ReadAtMost` of
/// `pkg/util/tail`.
#[test]
fn what_a_container_wrote_last_is_its_message() {
    const FILE: &str = "File";
    const LOGS: &str = "FallbackToLogsOnError";
    let end = "x".repeat(4095) + "y";
    for (name, policy, code, written, expect) in [
        ("nothing", FILE, 1, Some(String::new()), String::new()),
        ("a word", FILE, 0, Some("done".into()), "done".to_owned()),
        ("a word after a failure", LOGS, 1, Some("why".into()), "why".into()),
        ("as much as is shown", FILE, 1, Some(end.clone()), end.clone()),
        ("more: its end is shown", FILE, 1, Some(format!("begin{end}")), end.clone()),
        ("nothing, but its log", LOGS, 1, Some(String::new()), "said\n".into()),
        ("nothing, and it ended well", LOGS, 0, Some(String::new()), String::new()),
        ("no file, as for one that never had one", LOGS, 1, None, String::new()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            root_dir: folder.path().join("root"),
            pod_logs_dir: folder.path().join("logs"),
            ..Config::default()
        };
        for container in ["a", "i", "e"] {
            let file = termination_log(&config.pod_dir("u"), container, 1);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            if let Some(text) = &written {
                std::fs::write(file, text).unwrap();
            }
            let log = config.log_dir("shop", "web", "u").join(container);
            std::fs::create_dir_all(&log).unwrap();
            std::fs::write(log.join("1.log"), "2026-01-02T03:04:05Z stderr F said\n").unwrap();
        }
        let mut snapshot = ended(policy, code);
        read_last_words(&config, &mut snapshot);
        for container in &snapshot.containers {
            assert_eq!(container.exit().unwrap().message, expect, "{name}, of {}", container.name);
        }
        for file in ["a", "i", "e"].map(|container| termination_log(&config.pod_dir("u"), container, 1)) {
            // What is known stays, whatever becomes of the file.
            let _gone = std::fs::remove_file(file);
        }
        read_last_words(&config, &mut snapshot);
        assert_eq!(snapshot.containers[0].exit().unwrap().message, expect, "{name}, again");
    }
}

/// A container's report in words: its state, and the code it has ended with.
fn report(id: &str, attempt: u32, state: &str) -> v1::ContainerStatus {
    let (state, exit_code) = match state {
        "made" => (v1::ContainerState::ContainerCreated, 0),
        "runs" => (v1::ContainerState::ContainerRunning, 0),
        "lost" => (v1::ContainerState::ContainerUnknown, 0),
        code => (v1::ContainerState::ContainerExited, code.parse().unwrap()),
    };
    v1::ContainerStatus {
        id: id.to_owned(),
        metadata: Some(v1::ContainerMetadata { name: "a".to_owned(), attempt }),
        state: state.into(),
        exit_code,
        ..Default::default()
    }
}

fn shown(container: &Container) -> String {
    let state = match &container.state {
        ContainerState::Created => "made".to_owned(),
        ContainerState::Running { .. } => "runs".to_owned(),
        ContainerState::Unknown => "lost".to_owned(),
        ContainerState::Exited(exit) => exit.code.to_string(),
    };
    format!("{} {state}", container.id)
}

#[test]
fn late_reports_take_no_container_back() {
    for (name, reports, expect) in [
        ("in order", &["made", "runs", "1"][..], "c 1"),
        ("the end came first", &["1", "runs"], "c 1"),
        ("twice", &["1", "1"], "c 1"),
        ("another end", &["1", "2"], "c 1"),
        ("it was only made, says the last", &["runs", "made"], "c runs"),
        ("it is lost", &["runs", "lost"], "c lost"),
        ("lost, and then found dead", &["lost", "137"], "c 137"),
        ("lost, and then running, says the last", &["lost", "runs"], "c lost"),
    ] {
        let mut snapshot = PodSnapshot::default();
        for state in reports {
            container(&mut snapshot, &report("c", 0, state), "sb");
        }
        assert_eq!(snapshot.containers.iter().map(shown).collect::<Vec<_>>(), [expect], "{name}");
    }
    let mut snapshot = PodSnapshot::default();
    for (id, attempt) in [("second", 1), ("first", 0), ("third", 2)] {
        container(&mut snapshot, &report(id, attempt, "1"), "sb");
    }
    assert_eq!(snapshot.containers.iter().map(shown).collect::<Vec<_>>(), ["first 1", "second 1", "third 1"]);
    snapshot.is_cleaned = true;
    container(&mut snapshot, &report("late", 3, "runs"), "sb");
    assert_eq!(snapshot.containers.len(), 3, "everything was taken back");
}

/// Source: `PodSandboxStatus` of upstream's `pkg/kubelet/kuberuntime`, whose last report counts.
#[test]
fn what_the_runtime_no_longer_has_is_lost() {
    let sandbox =
        |id: &str, attempt, is_ready| Sandbox { id: id.into(), attempt, is_ready, ..Sandbox::default() };
    let now = Timestamp::from_second(50).unwrap();
    let mut snapshot = PodSnapshot {
        sandboxes: vec![sandbox("sb0", 0, true), sandbox("sb1", 1, true)],
        containers: [("ran", "runs"), ("made", "made"), ("ended", "3"), ("new", "runs")]
            .iter()
            .map(|(id, state)| Container::from_cri(&report(id, 0, state), "sb1"))
            .collect(),
        ..PodSnapshot::default()
    };
    // One was started while the runtime was asked.
    let known = ["sb0", "sb1", "ran", "made", "ended"].map(str::to_owned);
    all(&mut snapshot, &known, vec![sandbox("sb1", 1, true), sandbox("sb2", 2, true)], &[], now);
    let sandboxes: Vec<_> =
        snapshot.sandboxes.iter().map(|found| (found.id.as_str(), found.is_ready)).collect();
    assert_eq!(sandboxes, [("sb0", false), ("sb1", true), ("sb2", true)]);
    let containers: Vec<_> = snapshot.containers.iter().map(shown).collect();
    assert_eq!(containers, ["ran 137", "made lost", "ended 3", "new runs"]);
    let exit = snapshot.containers[0].exit().unwrap();
    assert_eq!((exit.reason.as_str(), exit.finished_at), ("ContainerStatusUnknown", now));
}

#[test]
fn results_of_probes_are_about_one_container() {
    let mut snapshot = PodSnapshot::default();
    let of = |snapshot: &PodSnapshot| {
        let results = &snapshot.probes["a"];
        (results.container_id.clone(), results.startup, results.liveness, results.readiness)
    };
    probe(&mut snapshot, "a".into(), ProbeKind::Startup, "1".into(), true);
    probe(&mut snapshot, "a".into(), ProbeKind::Readiness, "1".into(), false);
    assert_eq!(of(&snapshot), ("1".into(), Some(true), None, Some(false)));
    probe(&mut snapshot, "a".into(), ProbeKind::Liveness, "2".into(), true);
    assert_eq!(of(&snapshot), ("2".into(), None, Some(true), None), "of another one nothing is known yet");
}

/// Source: `TestUpdatePodStatus*` of upstream's `pkg/kubelet/prober`.
#[test]
fn after_a_restart_of_the_kubelet_containers_count_as_the_api_knows_them() {
    for (name, status, expect) in [
        ("ready", "containerID: 'fake://c', ready: true, started: true", Some((Some(true), Some(true)))),
        ("started", "containerID: 'fake://c', ready: false, started: true", Some((Some(true), None))),
        ("neither", "containerID: 'fake://c', ready: false, started: false", Some((None, None))),
        ("another container", "containerID: 'fake://d', ready: true, started: true", None),
        ("another runtime's", "containerID: 'other://c', ready: true, started: true", None),
        ("none", "ready: true, started: true", None),
    ] {
        let pod = format!(
            "{{status: {{containerStatuses: [{{name: a, image: i, imageID: i, restartCount: 0, {status}}}]}}}}"
        );
        let mut snapshot = PodSnapshot {
            pod: Arc::new(serde_saphyr::from_str(&pod).unwrap()),
            containers: vec![Container::from_cri(&report("c", 0, "runs"), "sb")],
            ..PodSnapshot::default()
        };
        seed_probes(&mut snapshot, "fake");
        let found = snapshot.probes.get("a").map(|results| (results.startup, results.readiness));
        assert_eq!(found, expect, "{name}");
    }
}

#[test]
fn another_definition_is_tried_at_once() {
    let pod = |image: &str| -> Pod {
        serde_saphyr::from_str(&format!(
            "{{spec: {{containers: [{{name: a, image: {image}}}, {{name: b, image: same}}], initContainers: [{{name: i, image: {image}}}]}}}}"
        ))
        .unwrap()
    };
    let mut snapshot = PodSnapshot { pod: Arc::new(pod("old")), ..PodSnapshot::default() };
    for name in ["a", "b", "i"] {
        snapshot.crashes.insert(name.into(), crate::pod::crash_backoff::CrashBackoff::default());
    }
    forget_changed(&mut snapshot, &pod("old"));
    assert_eq!(snapshot.crashes.len(), 3);
    forget_changed(&mut snapshot, &pod("new"));
    assert_eq!(snapshot.crashes.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn revisions_are_compared_as_numbers() {
    let pod = |revision: &str| -> Pod {
        serde_saphyr::from_str(&format!("{{metadata: {{resourceVersion: '{revision}'}}}}")).unwrap()
    };
    for (new, old, expect) in
        [("10", "9", true), ("9", "10", false), ("9", "9", false), ("1", "", true), ("", "1", false)]
    {
        assert_eq!(is_newer(&pod(new), &pod(old)), expect, "{new} {old}");
    }
}
