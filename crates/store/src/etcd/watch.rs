//! One watch of everything, over as many streams as it takes.
//!
//! Invariant: what is delivered is complete up to [`Cursor::upto`], and a new stream goes on right after it; so no
//! member's death loses or repeats an event. It ends with `Compacted` if what comes next is gone.
//!
//! etcd says so itself only of what lies below the compacted revision. Of that revision's own changes it forgets the
//! removals, and a watch that has yet to read it (one that begins there, or that fell behind) skips them without a word
//! (etcd issue 18089, mended in 3.4.34 and 3.5.15). So an answer that may have been read from etcd's disk counts only
//! when etcd then still knows the revision before it; and a cause whose change does not follow tells it too.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::members::Version;
use super::{Core, api, txn};
use crate::{Batch, Event, ROOT, Revision, StoreError};

/// Batches that a reader may be late before the stream is held up, which is etcd's own backpressure.
pub(super) const BATCHES_MAX: usize = 64;
/// Requests on a stream that wait to be sent.
const REQUESTS_MAX: usize = 4;
/// How long a revision that somebody waits for may take to arrive by itself.
const TIMEOUT: Duration = Duration::from_millis(10);
/// How long a member may say nothing while somebody waits for a revision: then another one is asked.
const SILENCE_MAX: Duration = Duration::from_secs(2);

type Sender = mpsc::Sender<Result<Batch, StoreError>>;

/// How far a watch has come.
struct Cursor {
    upto: Revision,
    /// The cause that came last: the change that it belongs to follows in the same answer.
    cause: Option<(String, Revision, Bytes)>,
}

/// How a stream ended.
enum End {
    /// The reader has gone.
    Unread,
    /// Another stream can go on.
    Broken(String),
    /// Nothing can go on.
    Fatal(StoreError),
}

/// Serves one watch from `after` on until its reader goes away.
pub(super) async fn follow(core: Arc<Core>, after: Revision, sender: Sender) {
    let mut cursor = Cursor { upto: after, cause: None };
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 0.5);
    loop {
        let before = cursor.upto;
        let end = tokio::select! {
            end = stream(&core, &mut cursor, &sender) => end,
            () = sender.closed() => End::Unread,
        };
        match end {
            End::Unread => return,
            End::Fatal(error) => {
                if sender.send(Err(error)).await.is_err() {
                    tracing::debug!("nobody waits for the end of this watch");
                }
                return;
            }
            End::Broken(why) => {
                tracing::warn!(
                    why,
                    revision = cursor.upto,
                    "a watch of etcd broke; it goes on with the next member"
                );
                if cursor.upto > before {
                    backoff.reset();
                }
                tokio::time::sleep(backoff.next(&core.random)).await;
            }
        }
    }
}

/// Opens one stream and reads it to its end.
async fn stream(core: &Core, cursor: &mut Cursor, sender: &Sender) -> End {
    let version = match core.members.version().await {
        Ok(version) => version,
        Err(error) => return End::Broken(error.to_string()),
    };
    let (requests, queued) = mpsc::channel(REQUESTS_MAX);
    let create = api::WatchAsk::Create(api::WatchCreateRequest {
        key: Bytes::from_static(txn::CAUSES.as_bytes()),
        range_end: Bytes::from_static(txn::END.as_bytes()),
        start_revision: i64::try_from(cursor.upto + 1).unwrap_or(i64::MAX),
        progress_notify: true,
        prev_kv: true,
    });
    if requests.try_send(api::WatchRequest { ask: Some(create) }).is_err() {
        return End::Broken("the request could not be queued".to_owned());
    }
    let queued = futures::stream::unfold(queued, async |mut queued| Some((queued.recv().await?, queued)));
    let (member, mut stream) = match core.members.watch(queued).await {
        Ok(opened) => opened,
        Err((member, status)) => {
            core.members.leave(member);
            return End::Broken(super::members::text(&status));
        }
    };
    let end = read(core, cursor, sender, &requests, &mut stream, version).await;
    if matches!(end, End::Broken(_)) {
        core.members.leave(member);
    }
    end
}

async fn read(
    core: &Core,
    cursor: &mut Cursor,
    sender: &Sender,
    requests: &mpsc::Sender<api::WatchRequest>,
    stream: &mut Streaming<api::WatchResponse>,
    version: Version,
) -> End {
    let mut wanted = core.wanted.subscribe();
    let mut is_live = false;
    // Since when the member has been silent though somebody waits; and what was done about it.
    let (mut silent_since, mut pressing) = (Instant::now(), None::<BoxFuture<'_, Result<(), End>>>);
    loop {
        let is_behind = *wanted.borrow_and_update() > cursor.upto;
        let answer = tokio::select! {
            answer = stream.message() => answer,
            changed = wanted.changed(), if !is_behind => match changed {
                Ok(()) => {
                    silent_since = Instant::now();
                    continue;
                }
                Err(_) => return End::Unread,
            },
            () = tokio::time::sleep(TIMEOUT), if is_behind && pressing.is_none() => {
                pressing = Some(press(core, requests, version).boxed());
                continue;
            }
            pressed = async { pressing.as_mut()?.await.err() }, if pressing.is_some() => {
                pressing = None;
                match pressed {
                    Some(end) => return end,
                    None => continue,
                }
            }
            () = tokio::time::sleep_until(silent_since + SILENCE_MAX), if is_behind => {
                return End::Broken("the member says nothing".to_owned());
            }
        };
        silent_since = Instant::now();
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return End::Broken("the member ended the stream".to_owned()),
            Err(status) => return End::Broken(super::members::text(&status)),
        };
        if may_be_from_disk(is_live, cursor.upto, &answer)
            && let Err(end) = knows(core, cursor.upto).await
        {
            return end;
        }
        is_live |= !answer.created;
        match take(cursor, answer) {
            Ok(Some(batch)) => {
                core.seen(batch.upto);
                if sender.send(Ok(batch)).await.is_err() {
                    return End::Unread;
                }
            }
            Ok(None) => {}
            Err(end) => return end,
        }
    }
}

/// Whether etcd may have read an answer from its disk: the first one of a stream, one of several revisions, one after a
/// gap. What it tells of a change as it happens is none of them.
fn may_be_from_disk(is_live: bool, upto: Revision, answer: &api::WatchResponse) -> bool {
    let revision = |event: Option<&api::Event>| Some(txn::revision(event?.kv.as_ref()?.mod_revision));
    let (first, last) = (revision(answer.events.first()), revision(answer.events.last()));
    let is_next = first == last && first.is_none_or(|first| first == upto + 1);
    let tells_nothing = answer.created || answer.canceled;
    !(tells_nothing || is_live && is_next)
}

/// Asks whether nothing after `revision` is compacted.
async fn knows(core: &Core, revision: Revision) -> Result<(), End> {
    match core.read(&probe(revision)).await {
        Ok(_) => Ok(()),
        Err(error @ StoreError::Compacted { .. }) => Err(End::Fatal(error)),
        Err(error) => Err(End::Broken(error.to_string())),
    }
}

/// A read of next to nothing, which fails if `revision` is compacted or yet to come.
pub(super) fn probe(revision: Revision) -> api::RangeRequest {
    api::RangeRequest {
        key: Bytes::from_static(txn::CAUSES.as_bytes()),
        revision: i64::try_from(revision).unwrap_or(i64::MAX),
        count_only: true,
        ..Default::default()
    }
}

/// Makes a revision arrive that somebody waits for, though none of our keys has changed.
async fn press(core: &Core, requests: &mpsc::Sender<api::WatchRequest>, version: Version) -> Result<(), End> {
    if version.has_reliable_progress() {
        let ask = api::WatchRequest { ask: Some(api::WatchAsk::Progress(api::Done {})) };
        // A full queue holds a request for progress already.
        return match requests.try_send(ask) {
            Err(mpsc::error::TrySendError::Closed(_)) => Err(End::Broken("the stream has ended".to_owned())),
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
        };
    }
    // Progress that older versions report may overtake events: a change of our own cannot.
    let mut changed = core.members.ask::<_, api::Done>("/etcdserverpb.KV/Put", &barrier()).await.result;
    // Without space etcd takes removals only. One is enough: then next to nothing moves revisions on.
    if changed.as_ref().is_err_and(|status| status.code() == Code::ResourceExhausted) {
        let removal = api::DeleteRangeRequest { key: barrier().key };
        changed = core.members.ask("/etcdserverpb.KV/DeleteRange", &removal).await.result;
    }
    changed.map(drop).map_err(|status| End::Broken(super::members::text(&status)))
}

/// Makes the barrier, unless it is there: should space run out, there is one to remove.
pub(super) async fn ensure_barrier(core: &Core) -> Result<(), Status> {
    let put = barrier();
    let is_absent = api::Compare {
        target: api::CompareTarget::Version.into(),
        key: put.key.clone(),
        version: Some(0),
        ..Default::default()
    };
    let success = vec![txn::op(api::Request::Put(put))];
    let request = api::TxnRequest { compare: vec![is_absent], success, failure: Vec::new() };
    let made = core.members.ask::<_, api::TxnResponse>("/etcdserverpb.KV/Txn", &request).await;
    made.result.map(drop)
}

fn barrier() -> api::PutRequest {
    api::PutRequest { key: Bytes::from_static(BARRIER), ..Default::default() }
}

/// Where a change is made that only moves watches on.
const BARRIER: &[u8] = b"/registry.causes/-/barrier";

/// What an answer delivers, if anything.
fn take(cursor: &mut Cursor, answer: api::WatchResponse) -> Result<Option<Batch>, End> {
    if answer.compact_revision > 0 {
        let oldest = txn::revision(answer.compact_revision);
        return Err(End::Fatal(StoreError::Compacted { requested: cursor.upto, oldest }));
    }
    if answer.canceled {
        return Err(End::Broken(answer.cancel_reason));
    }
    if answer.created {
        return Ok(None);
    }
    let before = cursor.upto;
    let mut events = Vec::with_capacity(answer.events.len() / 2);
    if answer.events.is_empty() {
        cursor.upto = cursor.upto.max(txn::header(&answer.header));
    }
    let compacted = |oldest| Err(End::Fatal(StoreError::Compacted { requested: before, oldest }));
    for event in answer.events {
        if lacks_its_past(&event) {
            return compacted(event.kv.map_or(before, |kv| txn::revision(kv.mod_revision)));
        }
        if let Some((_, revision, _)) = cursor.cause.take_if(|cause| !is_followed_by(cause, &event)) {
            return compacted(revision);
        }
        events.extend(one(cursor, event));
    }
    if let Some((_, revision, _)) = cursor.cause.take() {
        return compacted(revision);
    }
    Ok((cursor.upto > before).then_some(Batch { events, upto: cursor.upto }))
}

/// Whether what was there before a change of one of our keys was compacted meanwhile: etcd leaves it out then.
///
/// Upstream's watcher ends too when it gets such an event.
fn lacks_its_past(event: &api::Event) -> bool {
    let Some(kv) = &event.kv else { return false };
    let is_creation = event.r#type == i32::from(api::EventType::Put) && kv.create_revision == kv.mod_revision;
    !is_creation && event.prev_kv.is_none() && kv.key.starts_with(ROOT.as_bytes())
}

/// Whether `event` is the change that a cause belongs to.
fn is_followed_by((key, revision, _): &(String, Revision, Bytes), event: &api::Event) -> bool {
    let change = event.kv.as_ref();
    change.is_some_and(|kv| kv.key == key.as_bytes() && txn::revision(kv.mod_revision) == *revision)
}

/// An event of one of our keys; causes are kept for the event that follows.
fn one(cursor: &mut Cursor, event: api::Event) -> Option<Event> {
    let is_delete = event.r#type == i32::from(api::EventType::Delete);
    let kv = event.kv?;
    let revision = txn::revision(kv.mod_revision);
    cursor.upto = cursor.upto.max(revision);
    if let Some(key) = txn::of_cause_key(&kv.key) {
        let cause = if is_delete { None } else { txn::split_cause(&kv.value) };
        cursor.cause = cause.map(|(_, cause)| (key, revision, cause));
        return None;
    }
    let key = String::from_utf8(kv.key.to_vec()).ok().filter(|key| key.starts_with(ROOT))?;
    let cause = cursor.cause.take_if(|(of, at, _)| *of == key && *at == revision);
    Some(Event {
        revision,
        cause: cause.map(|(.., cause)| cause).unwrap_or_default(),
        previous: event.prev_kv.and_then(txn::entry),
        entry: if is_delete { None } else { txn::entry(kv) },
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: api::EventType, key: &'static str, revision: i64, value: &'static [u8]) -> api::Event {
        let kv = api::KeyValue {
            key: Bytes::from(key),
            mod_revision: revision,
            create_revision: revision,
            value: Bytes::from_static(value),
            ..Default::default()
        };
        let prev_kv = (kind == api::EventType::Delete).then(|| kv.clone());
        api::Event { r#type: kind.into(), kv: Some(kv), prev_kv }
    }

    fn answer(events: Vec<api::Event>) -> api::WatchResponse {
        let header = Some(api::ResponseHeader { revision: 90 });
        api::WatchResponse { header, events, ..Default::default() }
    }

    fn check(upto: Revision, answer: api::WatchResponse, expect: &str) {
        let mut cursor = Cursor { upto, cause: None };
        let found = match take(&mut cursor, answer) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(batch)) => {
                let events = batch.events.iter().map(|e| {
                    let sign = if e.entry.is_some() { '+' } else { '-' };
                    format!("{sign}{}@{}({})", e.key, e.revision, String::from_utf8_lossy(&e.cause))
                });
                format!("{} upto {}", events.collect::<Vec<_>>().join(" "), batch.upto)
            }
            Err(End::Broken(why)) => format!("broken: {why}"),
            Err(End::Fatal(error)) => error.to_string(),
            Err(End::Unread) => "unread".to_owned(),
        };
        assert_eq!(found.trim(), expect);
    }

    #[test]
    fn an_answer_becomes_a_batch_with_causes_joined() {
        use api::EventType::{Delete, Put};
        let cause = |key, revision| event(Put, key, revision, b"0123456789abcdef{c}");
        let changes = vec![
            cause("/registry.causes/a", 5),
            event(Put, "/registry/a", 5, b"1"),
            event(Put, "/registry/foreign", 6, b"by a kube-apiserver"),
            cause("/registry.causes/a", 7),
            event(Delete, "/registry/a", 7, b""),
            event(Delete, "/registry/expired", 8, b""),
            event(Delete, "/registry.causes/a", 9, b""),
        ];
        let expect =
            "+/registry/a@5({c}) +/registry/foreign@6() -/registry/a@7({c}) -/registry/expired@8() upto 9";
        check(4, answer(changes), expect);
        check(4, answer(vec![event(Put, "/registry.causes/-/barrier", 6, b"")]), "upto 6");
    }

    #[test]
    fn an_event_whose_past_was_compacted_ends_the_watch() {
        let change = |create_revision, key| {
            let mut event = event(api::EventType::Put, key, 7, b"2");
            if let Some(kv) = &mut event.kv {
                kv.create_revision = create_revision;
            }
            answer(vec![event])
        };
        check(4, change(7, "/registry/a"), "+/registry/a@7() upto 7");
        check(4, change(5, "/registry/a"), "revision 4 was compacted, the oldest is 7");
        check(4, change(5, "/registry.causes/a"), "upto 7");
        let mut removal = event(api::EventType::Delete, "/registry/a", 7, b"");
        removal.prev_kv = None;
        check(4, answer(vec![removal]), "revision 4 was compacted, the oldest is 7");
    }

    #[test]
    fn a_removal_that_etcd_has_forgotten_ends_the_watch() {
        use api::EventType::{Delete, Put};
        let cause = |key, revision| event(Put, key, revision, b"0123456789abcdef{c}");
        let skipped = "revision 4 was compacted, the oldest is 5";
        check(4, answer(vec![cause("/registry.causes/a", 5)]), skipped);
        let next = [cause("/registry.causes/b", 6), event(Put, "/registry/b", 6, b"1")];
        check(4, answer([vec![cause("/registry.causes/a", 5)], next.to_vec()].concat()), skipped);
        let another = [cause("/registry.causes/a", 5), event(Put, "/registry/a", 6, b"1")];
        check(4, answer(another.to_vec()), skipped);
        let whole = [cause("/registry.causes/a", 5), event(Delete, "/registry/a", 5, b"")];
        check(4, answer(whole.to_vec()), "-/registry/a@5({c}) upto 5");
    }

    #[test]
    fn what_comes_as_it_happens_needs_no_second_look() {
        use api::EventType::Put;
        let of = |revisions: &[i64]| {
            answer(revisions.iter().map(|at| event(Put, "/registry/a", *at, b"1")).collect())
        };
        let check = |is_live, revisions: &[i64], expected| {
            assert_eq!(may_be_from_disk(is_live, 4, &of(revisions)), expected, "{is_live} {revisions:?}");
        };
        check(true, &[5], false);
        check(true, &[5, 5], false);
        check(true, &[], false);
        check(false, &[5], true);
        check(false, &[], true);
        check(true, &[5, 6], true);
        check(true, &[6], true);
        assert!(!may_be_from_disk(false, 4, &api::WatchResponse { created: true, ..of(&[]) }));
    }

    #[test]
    fn answers_without_events_are_progress_or_the_end() {
        check(4, answer(vec![]), "upto 90");
        check(90, answer(vec![]), "nothing");
        check(4, api::WatchResponse { created: true, ..answer(vec![]) }, "nothing");
        let gone = api::WatchResponse { canceled: true, compact_revision: 20, ..Default::default() };
        check(4, gone, "revision 4 was compacted, the oldest is 20");
        let lost = "etcdserver: no leader".to_owned();
        let canceled = api::WatchResponse { canceled: true, cancel_reason: lost, ..Default::default() };
        check(4, canceled, "broken: etcdserver: no leader");
    }

    /// Source: `TestParseEvent` of upstream's `etcd3`.
    #[test]
    fn events_are_what_upstream_takes_them_for() {
        let kv = |create: i64, revision: i64, value: &'static [u8]| api::KeyValue {
            key: Bytes::from_static(b"/registry/key"),
            create_revision: create,
            mod_revision: revision,
            value: Bytes::from_static(value),
            ..Default::default()
        };
        let check =
            |r#type: api::EventType, kv: api::KeyValue, prev_kv: Option<api::KeyValue>, expect: &str| {
                let event = api::Event { r#type: r#type.into(), kv: Some(kv), prev_kv };
                check(0, answer(vec![event]), expect);
            };
        check(api::EventType::Put, kv(1, 1, b"value"), None, "+/registry/key@1() upto 1");
        check(api::EventType::Put, kv(1, 2, b"value"), Some(kv(1, 1, b"v")), "+/registry/key@2() upto 2");
        check(api::EventType::Delete, kv(1, 2, b""), None, "revision 0 was compacted, the oldest is 2");
        check(api::EventType::Delete, kv(1, 2, b""), Some(kv(1, 1, b"value")), "-/registry/key@2() upto 2");
    }

    #[test]
    fn events_that_no_etcd_sends_move_nothing_back() {
        use api::EventType::Put;
        check(7, answer(vec![event(Put, "/registry/a", 5, b"1")]), "nothing");
        check(7, answer(vec![event(Put, "/registry/a", -5, b"1")]), "nothing");
        check(7, answer(vec![api::Event::default()]), "nothing");
        check(7, answer(vec![event(Put, "/other/a", 8, b"1")]), "upto 8");
        check(7, answer(vec![event(Put, "", 8, b"1")]), "upto 8");
        let mut odd = event(Put, "/registry/a", 8, b"1");
        odd.kv.as_mut().unwrap().key = Bytes::from_static(b"/registry/\xff");
        check(7, answer(vec![odd, event(Put, "/registry/b", 9, b"1")]), "+/registry/b@9() upto 9");
        // A cause that holds no id is nobody's.
        let short = event(Put, "/registry.causes/a", 8, b"short");
        check(7, answer(vec![short, event(Put, "/registry/a", 8, b"1")]), "+/registry/a@8() upto 8");
        let unknown = api::Event { r#type: 9, ..event(Put, "/registry/a", 8, b"1") };
        check(7, answer(vec![unknown]), "revision 7 was compacted, the oldest is 8");
        check(7, api::WatchResponse { header: None, ..answer(vec![]) }, "nothing");
        let back = Some(api::ResponseHeader { revision: -1 });
        check(7, api::WatchResponse { header: back, ..answer(vec![]) }, "nothing");
    }
}
