//! What the loop makes of servers that do not do what they should.

mod scripts;

use std::convert::Infallible;

use base::health::Checks;
use base::{Clock, Metrics, Tasks};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Full, StreamBody};
use k8s_openapi::api::core::v1::Service;
use tokio::sync::watch;

use super::*;
use crate::{ClientMetrics, Informers};

/// What a server does with a request that it has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Answers a list; opens a watch and then is silent for ever.
    Silent,
    /// Never answers.
    Deaf,
    /// Answers, with a bookmark on each watch.
    Well,
}

async fn answer(
    way: Way,
    request: Request<Body>,
) -> Result<Response<UnsyncBoxBody<bytes::Bytes, Infallible>>, Infallible> {
    const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    const LIST: &str = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let forever = || futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, Infallible>>();
    let body = match (way, is_watch) {
        (Way::Deaf, _) => std::future::pending().await,
        (_, false) => UnsyncBoxBody::new(Full::from(LIST)),
        (Way::Silent, true) => UnsyncBoxBody::new(StreamBody::new(forever())),
        (Way::Well, true) => {
            let first = Ok(http_body::Frame::data(format!("{BOOKMARK}\n").into()));
            let stream = futures::StreamExt::chain(futures::stream::iter([first]), forever());
            UnsyncBoxBody::new(StreamBody::new(stream))
        }
    };
    Ok(Response::new(body))
}

/// The informers of a part that follows Services on a server of these ways, and its checks.
fn part(ways: &watch::Sender<Way>) -> (Informers, impl Fn() -> Result<(), String> + use<>) {
    let ways = ways.subscribe();
    let service = tower::service_fn(move |request| answer(*ways.borrow(), request));
    let metrics = ClientMetrics::new(&Metrics::default());
    let (clock, random) = (Clock::system(), Random::seeded(1));
    let client = kube::Client::new(service, "default");
    let informers = Informers::metered(client, Tasks::new(), clock, random, metrics.of_part("tester"));
    let check = move || {
        let all = Checks::of(metrics.registry()).all();
        let own = all.into_iter().find(|(name, _)| name == "informer-sync/tester");
        own.map_or(Ok(()), |(_, found)| found.map_err(|fault| fault.to_string()))
    };
    (informers, check)
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_a_watch_and_then_says_nothing_is_noticed() {
    let ways = watch::Sender::new(Way::Silent);
    let (informers, check) = part(&ways);
    let services = informers.informer::<Service>();
    services.synced().await;
    after(SILENCE_MAX.as_secs() - 1).await;
    assert_eq!(check(), Ok(()), "a bookmark may be late");
    after(2).await;
    assert_eq!(check(), Err("services not followed for 151 s".to_owned()));
    after(100).await;
    assert_eq!(
        check(),
        Err("services not followed for 251 s".to_owned()),
        "that the next is open says nothing"
    );
    ways.send_replace(Way::Well);
    services.reached(9).await;
    assert_eq!(check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_asked_again() {
    let ways = watch::Sender::new(Way::Deaf);
    let (informers, check) = part(&ways);
    let services = informers.informer::<Service>();
    after(31).await;
    assert_eq!(check(), Err("services not followed for 31 s".to_owned()));
    ways.send_replace(Way::Well);
    tokio::time::timeout(2 * ANSWER_MAX, services.reached(9)).await.expect("it is asked again");
    assert_eq!(check(), Ok(()));
}

#[test]
fn lines_are_cut_wherever_chunks_end() {
    let mut lines = Lines::default();
    let mut seen = Vec::new();
    for chunk in ["{\"a\"", ":1}\n{", "}\n"] {
        lines.push(chunk.as_bytes()).expect("within the bound");
        while let Some(line) = lines.next() {
            seen.push(String::from_utf8_lossy(&line).into_owned());
        }
    }
    assert_eq!(seen, ["{\"a\":1}\n", "{}\n"]);
}

#[test]
fn selectors_are_percent_encoded() {
    assert_eq!(encode("spec.nodeName=a"), "spec.nodeName%3Da");
}
