//! Projected service account tokens over their life, with time that leaps from one timer to the next.

use std::path::Path;
use std::time::Duration;

use base::Clock;
use jiff::Timestamp;
use serde_json::json;

use super::api::Api;
use super::{Node, is_ready, pod};

/// A node whose Pod has a token for an hour and one for a month.
async fn start() -> (Node, Timestamp) {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let (clock, api) = (Clock::simulated(start), Api::default());
    api.set_clock(clock.clone());
    // What looks again and again would do so all the time.
    let node = Node::start_at(clock, api, |config| config.sync_frequency = Duration::from_secs(3600));
    let token = |name: &str, seconds: u32| {
        json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": seconds}}]}})
    };
    node.api.put(pod(json!({"volumes": [token("hour", 3600), token("month", 30 * 86400)]})));
    node.until("readiness", is_ready).await;
    (node, start)
}

/// Waits until `seconds` after the start and reads both tokens: numbers in the order in which they were given.
async fn at(node: &Node, start: Timestamp, seconds: i64) -> [String; 2] {
    let left = start + jiff::SignedDuration::from_secs(seconds);
    let left = Duration::try_from(left.duration_since(node.clock.now())).unwrap();
    tokio::time::sleep(left).await;
    let volumes = node.dir.path().join("kubelet/pods/u1/volumes/kubernetes.io~projected");
    let read = |name: &str| {
        let text = std::fs::read_to_string(volumes.join(name).join(Path::new("token"))).unwrap();
        text.replace("secret ", "")
    };
    [read("hour"), read("month")]
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_at_four_fifths_of_their_life_or_after_a_day() {
    let (node, start) = start().await;
    let first = at(&node, start, 2870).await;
    assert_eq!(at(&node, start, 2875).await, first, "before four fifths of an hour");
    let second = at(&node, start, 2900).await;
    assert_eq!(
        (second[0].as_str(), &second[1]),
        ("3", &first[1]),
        "after it, the one that lives longer stays"
    );
    let day = 24 * 3600;
    // The clock leaps, which wakes nobody: somebody changes the Pod.
    node.clock.set(start + jiff::SignedDuration::from_secs(day - 20));
    node.api.annotate("the last seconds of a day");
    assert_eq!(at(&node, start, day - 10).await[1], first[1], "before a day");
    let later = at(&node, start, day + 20).await;
    assert_ne!(later[1], first[1], "after it, however long it lives");
    node.api.delete();
    node.until_gone().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_token_stays_while_there_is_no_newer_one() {
    let (node, start) = start().await;
    let first = at(&node, start, 2870).await;
    node.api.set_away(true);
    assert_eq!(at(&node, start, 3000).await, first);
    // Also when it has expired: nothing better can be had.
    assert_eq!(at(&node, start, 4000).await, first);
    node.api.set_away(false);
    let renewed = at(&node, start, 4030).await;
    assert_eq!((renewed[0].as_str(), &renewed[1]), ("3", &first[1]), "as soon as there is one");
    node.api.delete();
    node.until_gone().await;
}
