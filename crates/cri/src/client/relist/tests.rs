use super::*;
use crate::tests::{Pair, pair};

const SANDBOX: (&str, bool) = ("pod", true);
const CONTAINER: (&str, bool) = ("c", false);

fn list(items: &[((&str, bool), i32)]) -> List {
    let seen = |is_sandbox, state| Seen { sandbox: "pod".into(), is_sandbox, state };
    items.iter().map(|((id, is_sandbox), state)| ((*id).to_owned(), seen(*is_sandbox, *state))).collect()
}

fn check(old: &[((&str, bool), i32)], new: &[((&str, bool), i32)], expect: &[(&str, &str)]) {
    let found = changes(&list(old), &list(new));
    let found: Vec<_> = found.iter().map(|change| (change.id.as_str(), change.kind.as_str_name())).collect();
    assert_eq!(found, expect);
}

#[test]
fn what_differs_between_two_lists_has_happened() {
    let (ready, not_ready) = (0, 1);
    let (created, running, exited) = (0, 1, 2);
    check(&[(SANDBOX, ready)], &[(SANDBOX, ready)], &[]);
    check(
        &[],
        &[(SANDBOX, ready), (CONTAINER, created)],
        &[("c", "CONTAINER_CREATED_EVENT"), ("pod", "CONTAINER_STARTED_EVENT")],
    );
    check(&[(CONTAINER, created)], &[(CONTAINER, running)], &[("c", "CONTAINER_STARTED_EVENT")]);
    // It has started and ended meanwhile: the end is what matters.
    check(&[(CONTAINER, created)], &[(CONTAINER, exited)], &[("c", "CONTAINER_STOPPED_EVENT")]);
    check(&[(SANDBOX, ready)], &[(SANDBOX, not_ready)], &[("pod", "CONTAINER_STOPPED_EVENT")]);
    check(&[(CONTAINER, exited)], &[], &[("c", "CONTAINER_DELETED_EVENT")]);
}

/// What one look at the runtime tells: what has happened to whom, with the states of all containers of its Pod.
async fn looked(pair: &Pair, known: &mut List) -> Vec<String> {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    once(&pair.client, known, &sender, &Clock::system()).await.unwrap();
    drop(sender);
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        let event = event.unwrap();
        let kind = event.container_event_type().as_str_name().trim_start_matches("CONTAINER_").to_lowercase();
        let containers: Vec<String> = event
            .containers_statuses
            .iter()
            .map(|status| format!("{}={}", status.id, status.state))
            .collect();
        let sandbox = event.pod_sandbox_status.map_or("gone".to_owned(), |status| status.state.to_string());
        told.push(format!("{} {kind} sandbox={sandbox} {}", event.container_id, containers.join(" ")));
    }
    told
}

/// Source: `TestRelisting`, `TestDetectingContainerDeaths`, `TestRemoveCacheEntry` and `TestRelistWithCache` of upstream's
/// `pkg/kubelet/pleg`.
#[tokio::test]
async fn each_look_tells_what_has_happened_since_the_last() {
    use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
    use v1::PodSandboxState::{SandboxNotready, SandboxReady};
    let pair = pair();
    let change = |change: &dyn Fn(&mut crate::tests::State)| change(&mut pair.runtime.0.lock().unwrap());
    let mut known = List::new();
    assert_eq!(looked(&pair, &mut known).await, [""; 0], "there is nothing");
    change(&|state| {
        state.sandboxes.insert("p".into(), SandboxReady);
        state.containers.insert("c1".into(), ("p".into(), ContainerCreated));
        state.containers.insert("c2".into(), ("p".into(), ContainerRunning));
    });
    assert_eq!(
        looked(&pair, &mut known).await,
        [
            "c1 created_event sandbox=0 c1=0 c2=1",
            "c2 started_event sandbox=0 c1=0 c2=1",
            "p started_event sandbox=0 c1=0 c2=1",
        ]
    );
    assert_eq!(looked(&pair, &mut known).await, [""; 0], "nothing has happened");
    change(&|state| {
        state.containers.insert("c1".into(), ("p".into(), ContainerRunning));
        state.containers.insert("c2".into(), ("p".into(), ContainerExited));
        state.containers.insert("c3".into(), ("p".into(), ContainerExited));
    });
    assert_eq!(
        looked(&pair, &mut known).await,
        [
            "c1 started_event sandbox=0 c1=1 c2=2 c3=2",
            "c2 stopped_event sandbox=0 c1=1 c2=2 c3=2",
            "c3 stopped_event sandbox=0 c1=1 c2=2 c3=2",
        ],
        "one came and went in between"
    );
    change(&|state| {
        state.sandboxes.insert("p".into(), SandboxNotready);
        state.containers.remove("c2");
        state.sandboxes.insert("q".into(), SandboxReady);
    });
    assert_eq!(
        looked(&pair, &mut known).await,
        [
            "c2 deleted_event sandbox=1 c1=1 c3=2",
            "p stopped_event sandbox=1 c1=1 c3=2",
            "q started_event sandbox=0 ",
        ],
        "each Pod has its own"
    );
    change(&|state| {
        state.sandboxes.clear();
        state.containers.clear();
    });
    let gone = looked(&pair, &mut known).await;
    assert!(gone.iter().all(|told| told.contains("deleted_event sandbox=gone")), "{gone:?}");
    assert_eq!(gone.len(), 4);
    assert!(known.is_empty(), "{known:?}");
    pair.tasks.stop();
}

/// Source: `TestRelistWithReinspection` of upstream's `pkg/kubelet/pleg`.
#[tokio::test]
async fn what_could_not_be_looked_at_is_told_by_the_next_look() {
    let pair = pair();
    let mut known = List::new();
    pair.runtime.0.lock().unwrap().sandboxes.insert("p".into(), v1::PodSandboxState::SandboxReady);
    pair.runtime.0.lock().unwrap().failure = Some(CriError::Internal("busy".into()));
    let (sender, _events) = mpsc::channel(EVENTS_MAX);
    assert!(once(&pair.client, &mut known, &sender, &Clock::system()).await.is_err());
    assert!(known.is_empty());
    pair.runtime.0.lock().unwrap().failure = None;
    assert_eq!(looked(&pair, &mut known).await, ["p started_event sandbox=0 "]);
    pair.tasks.stop();
}
