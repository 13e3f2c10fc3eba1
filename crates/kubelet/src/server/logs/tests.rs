use super::*;

/// Source: `TestContainerLogs*` of upstream's `pkg/kubelet/server`, `TestLogOptions` of `k8s.io/cri-client/pkg/logs` and
/// `TestValidatePodLogOptions` of `pkg/apis/core/validation`.
#[test]
fn what_is_asked_of_a_log_is_understood_or_refused() {
    const UNDECODED: &str = "400 Unable to decode query.";
    const INVALID: &str = "422 Invalid request.";
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    for (query, expect) in [
        ("", ""),
        ("tailLines=8", "tail 8"),
        ("tailLines=0", "tail 0"),
        ("tail=5", "tail 5"),
        ("tail=5&tailLines=8", "tail 5"),
        ("tail=all", ""),
        ("tail=all&tailLines=8", ""),
        ("tail=&tailLines=8", "tail 8"),
        ("limitBytes=64", "bytes 64"),
        ("timestamps=1", "times"),
        ("timestamps=true", "times"),
        ("timestamps=false", ""),
        ("sinceSeconds=10", "since 2026-01-01T00:00:50Z"),
        ("sinceTime=2026-01-01T00:00:30Z", "since 2026-01-01T00:00:30Z"),
        ("sinceTime=2026-01-01T02:00:30%2B02:00", "since 2026-01-01T00:00:30Z"),
        ("sinceTime=2026-01-01T00:00:30Z&sinceSeconds=10", INVALID),
        ("stream=Stdout&tailLines=1", INVALID),
        ("stream=All&tailLines=1", "tail 1"),
        ("stream=stdout", INVALID),
        ("stream=Stdout", "of stdout"),
        ("stream=Stderr", "of stderr"),
        ("stream=All", ""),
        ("tailLines=2&limitBytes=3&timestamps=t", "tail 2 bytes 3 times"),
        ("tailLines=-1", INVALID),
        ("tail=-1", INVALID),
        ("limitBytes=0", INVALID),
        ("limitBytes=-5", INVALID),
        ("sinceSeconds=0", INVALID),
        ("sinceSeconds=-1", INVALID),
        ("tailLines=many", UNDECODED),
        ("tail=some", UNDECODED),
        ("limitBytes=1.5", UNDECODED),
        ("sinceSeconds=9223372036854775808", UNDECODED),
        ("sinceTime=yesterday", UNDECODED),
    ] {
        let shown = match wanted(&Query::of(Some(query)), now) {
            Err(Refusal(code, message)) => format!("{} {message}", code.as_u16()),
            Ok(wanted) => {
                let parts = [
                    wanted.tail_lines.map(|lines| format!("tail {lines}")),
                    wanted.limit_bytes.map(|bytes| format!("bytes {bytes}")),
                    wanted.since.map(|since| format!("since {since}")),
                    wanted.stream.map(|stream| format!("of {stream}")),
                    wanted.timestamps.then(|| "times".to_owned()),
                ];
                parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(shown, expect, "{query}");
    }
}

#[test]
fn who_asks_too_early_is_told_what_the_container_waits_for() {
    let pod = |status: &str| -> Pod {
        serde_saphyr::from_str(&format!(
            "{{metadata: {{name: web}}, spec: {{containers: [{{name: a}}], initContainers: [{{name: i}}]}}, \
             status: {{{status}}}}}"
        ))
        .unwrap()
    };
    let waits = |reason: &str| {
        format!(
            "containerStatuses: [{{name: a, image: i, imageID: i, ready: false, restartCount: 0, state: {{waiting: {{reason: {reason}}}}}}}]"
        )
    };
    let waiting = |why: &str| format!("container \"a\" in pod \"web\" is waiting to start: {why}");
    for (name, status, container, expect) in [
        ("nothing is known", String::new(), "a", waiting("ContainerCreating")),
        ("no image", waits("ErrImagePull"), "a", waiting("image can't be pulled")),
        ("no image for long", waits("ImagePullBackOff"), "a", waiting("trying and failing to pull image")),
        ("a reason", waits("CreateContainerConfigError"), "a", waiting("CreateContainerConfigError")),
        ("no such container", String::new(), "b", "container b is not valid for pod web".to_owned()),
        (
            "an init container",
            String::new(),
            "i",
            "container \"i\" in pod \"web\" is waiting to start: ContainerCreating".to_owned(),
        ),
    ] {
        assert_eq!(waiting_message(&pod(&status), container, "web"), expect, "{name}");
    }
}
