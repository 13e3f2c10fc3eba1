//! Queues by scripts: `+a` adds a key, `+a@3` does so after three seconds and `+a!` after a failure; `?` takes a key if one is
//! ready, `-a` ends its run and `~a` forgets its failures; `>3` is three seconds later, `#` how many wait and `=` how many run.
//!
//! Source: `queue_test.go`, `delaying_queue_test.go`, `rate_limiting_queue_test.go` of upstream's `client-go/util/workqueue`.

use expect_test::expect_file;
use futures::FutureExt;

use super::*;
use crate::table;

async fn run(script: &str) -> String {
    let (queue, random) = (WorkQueue::new(), Random::seeded(1));
    queue.retry(Retries { first: Duration::from_secs(1), max: Duration::from_secs(10) });
    let mut told = Vec::new();
    for word in script.split(' ') {
        let (deed, rest) = word.split_at(1);
        match (deed, rest.split_once('@'), rest.strip_suffix('!')) {
            ("+", Some((key, seconds)), _) => {
                queue.add_after(key.to_owned(), 1, Duration::from_secs(seconds.parse().expect("seconds")));
            }
            ("+", None, Some(key)) => drop(queue.add_rate_limited(key.to_owned(), 1, &random)),
            ("+", None, None) => queue.add(rest.to_owned(), 1),
            ("-", ..) => queue.done(rest),
            ("~", ..) => queue.forget(rest),
            (">", ..) => tokio::time::advance(Duration::from_secs(rest.parse().expect("seconds"))).await,
            ("?", ..) => told.push(queue.next().now_or_never().map_or(".".to_owned(), |(key, _)| key)),
            ("#", ..) => told.push(format!("#{}", queue.depth())),
            ("=", ..) => told.push(format!("={}", queue.running_for().len())),
            other => panic!("no such deed: {other:?}"),
        }
    }
    told.join(" ")
}

#[test]
fn queues_do_what_upstreams_do() {
    table::check(&expect_file!["scripts/queues.txt"], |script| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(script))
    });
}
