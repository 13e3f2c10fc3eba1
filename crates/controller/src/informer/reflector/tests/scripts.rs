//! Servers by scripts: what each request is answered, what was asked for, and what is known at the end.
//!
//! Source: `reflector_test.go` of upstream's `client-go/tools/cache`: `TestReflectorListAndWatch`, `TestReflectorWatchHandler`,
//! `TestReflectorExpiredExactResourceVersion`, `TestReflectorFullListIfExpired`, `TestBackoffOnTooManyRequests`.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::*;

/// The object `name@revision`.
fn object(text: &str) -> String {
    let (name, revision) = text.split_once('@').expect("a revision");
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{revision}"}}}}"#)
}

/// `list REVISION OBJECT...`; `watch EVENT...` with `+`, `~` and `-` before objects that come, change and go, `=` before a
/// bookmark, `!` before an error, and `...` if it stays open; a status; or any other text as the body.
fn answered(text: &'static str) -> Response<UnsyncBoxBody<bytes::Bytes, Infallible>> {
    let mut words = text.split(' ');
    let full = |body: String| UnsyncBoxBody::new(Full::from(body));
    let (mut status, mut body) = (200, full(text.to_owned()));
    match words.next() {
        Some("list") => {
            let revision = words.next().expect("a revision");
            let items: Vec<String> = words.map(object).collect();
            body = full(format!(
                r#"{{"metadata":{{"resourceVersion":"{revision}"}},"items":[{}]}}"#,
                items.join(",")
            ));
        }
        Some("watch") => {
            let line = |word: &str| {
                let (deed, rest) = word.split_at(1);
                let (kind, object) = match deed {
                    "+" => ("ADDED", object(rest)),
                    "~" => ("MODIFIED", object(rest)),
                    "-" => ("DELETED", object(rest)),
                    "=" => ("BOOKMARK", format!(r#"{{"metadata":{{"resourceVersion":"{rest}"}}}}"#)),
                    _ => ("ERROR", format!(r#"{{"kind":"Status","code":{rest},"message":"no"}}"#)),
                };
                format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
            };
            let all: Vec<&str> = words.collect();
            let lines: String = all.iter().filter(|word| **word != "...").map(|word| line(word)).collect();
            let first = futures::stream::iter([Ok(http_body::Frame::data(lines.into()))]);
            body = match all.last() {
                Some(&"...") => {
                    let stream = futures::StreamExt::chain(first, futures::stream::pending());
                    UnsyncBoxBody::new(StreamBody::new(stream))
                }
                _ => UnsyncBoxBody::new(StreamBody::new(first)),
            };
        }
        Some(code) => status = code.parse().unwrap_or(200),
        None => {}
    }
    Response::builder().status(status).body(body).expect("an answer")
}

/// Runs for some minutes against a server of these answers, which then never answers again.
async fn run(answers: &[&'static str]) -> (Vec<String>, Vec<String>) {
    let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let next = answers.lock().pop_front();
        let revision = query.rsplit("resourceVersion=").next().unwrap_or_default();
        if next.is_some() {
            let kind = if query.contains("watch=true") { "watch" } else { "list" };
            log.lock().push(format!("{kind} {revision}"));
        }
        async move {
            match next {
                Some(next) => Ok::<_, Infallible>(answered(next)),
                None => std::future::pending().await,
            }
        }
    });
    let metrics = ClientMetrics::new(&Metrics::default());
    let (clock, random) = (Clock::system(), Random::seeded(1));
    let client = kube::Client::new(service, "default");
    let informers = Informers::metered(client, Tasks::new(), clock, random, metrics.of_part("tester"));
    let services = informers.informer::<Service>();
    after(60).await;
    let known = services.list().into_iter().map(|service| {
        let meta = &service.metadata;
        format!(
            "{}@{}",
            meta.name.clone().unwrap_or_default(),
            meta.resource_version.clone().unwrap_or_default()
        )
    });
    (asked.lock().clone(), known.collect())
}

/// What the server answers, what it was asked, and what is known.
type Script = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const SCRIPTS: &[Script] = &[
    (
        "a list and a watch",
        &["list 5 a@2 b@3", "watch +c@6 ..."],
        &["list 0", "watch 5"],
        &["a@2", "b@3", "c@6"],
    ),
    (
        "a watch goes on where the last one ended",
        &["list 5", "watch +a@6 ~a@8", "watch +b@9 ..."],
        &["list 0", "watch 5", "watch 8"],
        &["a@8", "b@9"],
    ),
    (
        "also after a deletion, and a bookmark",
        &["list 5 a@2", "watch -a@7", "watch =12", "watch +b@13 ..."],
        &["list 0", "watch 5", "watch 7", "watch 12"],
        &["b@13"],
    ),
    (
        "a place that is gone needs a list",
        &["list 5 a@2 b@3", "watch !410", "list 9 b@8", "watch ..."],
        &["list 0", "watch 5", "list 0", "watch 9"],
        &["b@8"],
    ),
    (
        "whether the watch or its answer says so",
        &["list 5 a@2", "410", "list 9 a@8", "watch ..."],
        &["list 0", "watch 5", "list 0", "watch 9"],
        &["a@8"],
    ),
    (
        "any other error on a watch needs one, too",
        &["list 5 a@2", "watch !500", "list 9", "watch ..."],
        &["list 0", "watch 5", "list 0", "watch 9"],
        &[],
    ),
    (
        "a server that is away is asked again for the same",
        &["503", "500", "list 5 a@2", "503", "429", "watch +b@6 ..."],
        &["list 0", "list 0", "list 0", "watch 5", "watch 5", "watch 5"],
        &["a@2", "b@6"],
    ),
    (
        "nobody who is refused is told anything",
        &["403", "401", "list 5 a@2", "watch ..."],
        &["list 0", "list 0", "list 0", "watch 5"],
        &["a@2"],
    ),
    (
        "what is no list is none",
        &["nonsense", "{}", r#"{"items":[]}"#, "list 5 a@2", "watch ..."],
        &["list 0", "list 0", "list 0", "list 0", "watch 5"],
        &["a@2"],
    ),
    (
        "what is no event needs a list",
        &["list 5 a@2", "nonsense\n", "list 9 b@8", "watch ..."],
        &["list 0", "watch 5", "list 0", "watch 9"],
        &["b@8"],
    ),
    (
        "an event that is cut off is not one",
        &["list 5 a@2", r#"{"type":"ADDED","object":{"metadata":{"name":"b""#, "watch +b@6 ..."],
        &["list 0", "watch 5", "watch 5"],
        &["a@2", "b@6"],
    ),
    (
        "a watch that ends at once is one that failed, and goes on from the same place",
        &["list 5 a@2", "watch", "watch", "watch +b@6 ..."],
        &["list 0", "watch 5", "watch 5", "watch 5"],
        &["a@2", "b@6"],
    ),
    (
        "an empty list takes away all that was there",
        &["list 5 a@2 b@3", "watch !410", "list 9", "watch ..."],
        &["list 0", "watch 5", "list 0", "watch 9"],
        &[],
    ),
];

#[tokio::test(start_paused = true)]
async fn servers_are_asked_as_upstreams_reflector_asks_them() {
    for (name, answers, asked, known) in SCRIPTS {
        let (found_asked, found_known) = run(answers).await;
        assert_eq!(found_asked, *asked, "{name}");
        assert_eq!(found_known, *known, "{name}");
    }
}
