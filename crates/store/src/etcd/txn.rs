//! One write as one transaction of etcd, and what its answer means. Pure.
//!
//! The cause goes to a key of its own, `/registry.causes/...`, in the same transaction, so that it has the same
//! revision; it opens with an id that no other write has, by which a write whose answer was lost is found again.
//! A kube-apiserver on the same etcd never looks there, and the key goes by itself after [`CAUSE_TTL_SECONDS`].

use bytes::{BufMut, Bytes, BytesMut};

use super::api;
use crate::{Change, Entry, Expect, ROOT, Revision, StoreError, Write};

/// What the keys of causes begin with: the neighbour of [`ROOT`], so that one watch sees both.
pub(super) const CAUSES: &str = "/registry.causes/";
/// The first string after every key of ours.
pub(super) const END: &str = "/registry0";
/// Causes are kept for as long as watches may look back: twice upstream's compaction interval.
pub(super) const CAUSE_TTL_SECONDS: u32 = 600;
/// Bytes of a write's id.
const ID_BYTES: usize = 16;

/// What no other write has.
pub(super) type WriteId = [u8; ID_BYTES];

/// The leases of a write's keys; 0 for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteLeases {
    /// Of the object.
    pub(super) object: i64,
    /// Of the cause.
    pub(super) cause: i64,
}

/// How etcd decided.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done, under this revision.
    Committed(Revision),
    /// A condition did not hold; what is there instead, the newest cause of the key, and the last change of the key that the
    /// write depends on.
    Refused { current: Option<Entry>, cause: Option<(WriteId, Revision)>, other: Option<Revision> },
}

/// The key of `key`'s cause, if `key` is one of ours.
pub(super) fn cause_key(key: &str) -> Option<Bytes> {
    let rest = key.strip_prefix(ROOT).filter(|rest| !rest.is_empty())?;
    Some(Bytes::from(format!("{CAUSES}{rest}")))
}

/// The key whose cause `key` holds.
pub(super) fn of_cause_key(key: &[u8]) -> Option<String> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(CAUSES)?;
    Some(format!("{ROOT}{rest}"))
}

/// Splits a stored cause.
pub(super) fn split_cause(value: &Bytes) -> Option<(WriteId, Bytes)> {
    let id = *value.first_chunk::<ID_BYTES>()?;
    Some((id, value.slice(ID_BYTES..)))
}

/// The transaction of a write that was begun when `begun_at` was the newest known revision.
pub(super) fn request(
    write: &Write,
    id: WriteId,
    leases: WriteLeases,
    begun_at: Revision,
) -> Result<api::TxnRequest, StoreError> {
    let foreign = || StoreError::Failed(format!("keys must begin with {ROOT}, {:?} does not", write.key));
    let (key, cause_key) = (Bytes::from(write.key.clone()), cause_key(&write.key).ok_or_else(foreign)?);
    let mut cause = BytesMut::with_capacity(ID_BYTES + write.cause.len());
    cause.put_slice(&id);
    cause.put_slice(&write.cause);
    let change = match &write.change {
        Change::Put { value, .. } => {
            let (key, value) = (key.clone(), value.clone());
            api::Request::Put(api::PutRequest { key, value, lease: leases.object })
        }
        Change::Delete => api::Request::DeleteRange(api::DeleteRangeRequest { key: key.clone() }),
    };
    // The cause first: a watch then has it when the change comes.
    let cause = api::Request::Put(api::PutRequest {
        key: cause_key.clone(),
        value: cause.freeze(),
        lease: leases.cause,
    });
    let mod_revision = match (write.expect, &write.change) {
        (Expect::Absent, Change::Put { .. }) => 0,
        // No key has the last change -1: absence is no revision, and what is absent cannot be removed.
        (Expect::Absent, Change::Delete) | (Expect::Revision(0), _) => -1,
        (Expect::Revision(revision), _) => i64::try_from(revision).unwrap_or(i64::MAX),
    };
    let mut compare = vec![api::Compare {
        target: api::CompareTarget::Mod.into(),
        key: key.clone(),
        mod_revision: Some(mod_revision),
        ..Default::default()
    }];
    if mod_revision == 0 {
        // A key can be absent again: a sending that arrives late must not bring back what came and went.
        compare.push(api::Compare {
            result: api::CompareResult::Less.into(),
            target: api::CompareTarget::Mod.into(),
            key: cause_key.clone(),
            mod_revision: Some(i64::try_from(begun_at + 1).unwrap_or(i64::MAX)),
            ..Default::default()
        });
    }
    let mut failure = vec![op(read(key)), op(read(cause_key))];
    if let Some(other) = &write.only_while {
        let key = Bytes::from(other.key.clone());
        compare.push(api::Compare {
            target: api::CompareTarget::Mod.into(),
            key: key.clone(),
            // No key has the last change -1: what is not there is not as it was.
            mod_revision: Some(if other.revision == 0 { -1 } else { number(other.revision) }),
            ..Default::default()
        });
        failure.push(op(api::Request::Range(api::RangeRequest {
            key,
            keys_only: true,
            ..Default::default()
        })));
    }
    Ok(api::TxnRequest { compare, success: vec![op(cause), op(change)], failure })
}

fn number(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn read(key: Bytes) -> api::Request {
    api::Request::Range(api::RangeRequest { key, ..Default::default() })
}

pub(super) fn op(request: api::Request) -> api::RequestOp {
    api::RequestOp { request: Some(request) }
}

/// What etcd answered to [`request`].
pub(super) fn outcome(answer: api::TxnResponse) -> Outcome {
    if answer.succeeded {
        return Outcome::Committed(header(&answer.header));
    }
    let mut found = answer.responses.into_iter().map(|response| first([response]));
    let current = found.next().flatten().and_then(entry);
    let cause =
        found.next().flatten().and_then(|kv| Some((split_cause(&kv.value)?.0, revision(kv.mod_revision))));
    let other = found.next().flatten().map(|kv| revision(kv.mod_revision));
    Outcome::Refused { current, cause, other }
}

/// The first key in the first range of a transaction's answer.
pub(super) fn first(responses: impl IntoIterator<Item = api::ResponseOp>) -> Option<api::KeyValue> {
    match responses.into_iter().next()?.response? {
        api::Response::Range(range) => range.kvs.into_iter().next(),
        api::Response::Put(_) | api::Response::DeleteRange(_) => None,
    }
}

/// A key and its value as the store's callers know them; `None` if the key is no text.
pub(super) fn entry(kv: api::KeyValue) -> Option<Entry> {
    Some(Entry {
        key: String::from_utf8(kv.key.to_vec()).ok()?,
        value: kv.value,
        create_revision: revision(kv.create_revision),
        revision: revision(kv.mod_revision),
    })
}

/// The revision of the whole store when it answered.
pub(super) fn header(header: &Option<api::ResponseHeader>) -> Revision {
    header.as_ref().map_or(0, |header| revision(header.revision))
}

/// etcd's revisions are never negative.
pub(super) fn revision(number: i64) -> Revision {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::{delete, put};

    #[test]
    fn a_cause_lies_beside_its_object_and_is_found_back() {
        let key = cause_key("/registry/pods/default/web").unwrap();
        assert_eq!(&key[..], b"/registry.causes/pods/default/web");
        assert_eq!(of_cause_key(&key).as_deref(), Some("/registry/pods/default/web"));
        assert_eq!(of_cause_key(b"/registry/pods/default/web"), None);
        assert!(CAUSES < ROOT && ROOT < END);
        for foreign in ["/other/x", "/registry", "/registry/", ""] {
            assert_eq!(cause_key(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_condition_of_a_write_is_the_last_change_of_its_key() {
        let rows = [
            (put("/registry/a", Expect::Absent, "1"), 0),
            (put("/registry/a", Expect::Revision(7), "1"), 7),
            (put("/registry/a", Expect::Revision(0), "1"), -1),
            (delete("/registry/a", 9), 9),
        ];
        for (write, expected) in rows {
            let txn = request(&write, [1; 16], WriteLeases::default(), 41).unwrap();
            assert_eq!(txn.compare[0].mod_revision, Some(expected), "{write:?}");
            assert_eq!((txn.success.len(), txn.failure.len()), (2, 2));
            let not_since: Vec<_> =
                txn.compare[1..].iter().map(|more| (more.result, more.mod_revision)).collect();
            let must_be_absent = [(api::CompareResult::Less.into(), Some(42))];
            assert_eq!(not_since, must_be_absent[..usize::from(expected == 0)], "{write:?}");
        }
        let foreign = request(&put("/a", Expect::Absent, "1"), [1; 16], WriteLeases::default(), 0);
        assert!(matches!(foreign, Err(StoreError::Failed(_))));
    }

    #[test]
    fn a_refusal_shows_what_is_there_and_whose_it_is() {
        let kv = |key: &'static str, value: &'static [u8]| api::KeyValue {
            key: Bytes::from(key),
            create_revision: 3,
            mod_revision: 5,
            value: Bytes::from_static(value),
            ..Default::default()
        };
        let range = |kvs| api::ResponseOp {
            response: Some(api::Response::Range(api::RangeResponse { kvs, ..Default::default() })),
        };
        let there = vec![kv("/registry/a", b"x")];
        let cause = vec![kv("/registry.causes/a", b"0123456789abcdef{}")];
        let answer = api::TxnResponse { responses: vec![range(there), range(cause)], ..Default::default() };
        let Outcome::Refused { current: Some(entry), cause: Some((id, 5)), other: None } = outcome(answer)
        else {
            panic!("refused, with what is there");
        };
        assert_eq!((entry.revision, entry.create_revision, &id), (5, 3, b"0123456789abcdef"));
        let nothing =
            api::TxnResponse { responses: vec![range(vec![]), range(vec![])], ..Default::default() };
        assert_eq!(outcome(nothing), Outcome::Refused { current: None, cause: None, other: None });
    }

    #[test]
    fn answers_that_no_etcd_gives_say_nothing_wrong() {
        let kv = |key: &'static [u8], value: &'static [u8], revision: i64| api::KeyValue {
            key: Bytes::from_static(key),
            create_revision: revision,
            mod_revision: revision,
            value: Bytes::from_static(value),
            ..Default::default()
        };
        let range = |kvs: Vec<api::KeyValue>| api::ResponseOp {
            response: Some(api::Response::Range(api::RangeResponse { kvs, ..Default::default() })),
        };
        let put = || api::ResponseOp { response: Some(api::Response::Put(api::Done {})) };
        let refused = Outcome::Refused { current: None, cause: None, other: None };
        for (name, responses) in [
            ("none", vec![]),
            ("one without content", vec![api::ResponseOp::default()]),
            ("one that changes something", vec![put(), put(), put()]),
            ("keys that are no text", vec![range(vec![kv(b"\xff", b"x", 5)]), range(vec![])]),
            ("a cause that is too short", vec![range(vec![]), range(vec![kv(b"c", b"0123456789abcde", 5)])]),
            ("a cause that is empty", vec![range(vec![]), range(vec![kv(b"c", b"", 5)])]),
        ] {
            let answer = api::TxnResponse { responses, ..Default::default() };
            assert_eq!(outcome(answer), refused, "{name}");
        }
        // Negative numbers are none, and what is more than was asked for does not count.
        let there = vec![kv(b"/registry/a", b"x", -5), kv(b"/registry/b", b"y", 9)];
        let cause = vec![kv(b"/registry.causes/a", b"0123456789abcdef", i64::MIN)];
        let responses = vec![range(there), range(cause), range(vec![kv(b"o", b"", 3)]), range(vec![])];
        let Outcome::Refused { current: Some(entry), cause: Some((_, 0)), other: Some(3) } =
            outcome(api::TxnResponse { responses, ..Default::default() })
        else {
            panic!("what is there is told");
        };
        assert_eq!((entry.key.as_str(), entry.revision), ("/registry/a", 0));
        let done = |revision: Option<i64>| {
            let header = revision.map(|revision| api::ResponseHeader { revision });
            outcome(api::TxnResponse { succeeded: true, header, ..Default::default() })
        };
        assert_eq!(done(Some(7)), Outcome::Committed(7));
        assert_eq!((done(None), done(Some(-1))), (Outcome::Committed(0), Outcome::Committed(0)));
    }

    #[test]
    fn a_write_that_depends_on_another_key_asks_for_that_too() {
        for (revision, expect) in [(0, -1), (7, 7), (u64::MAX, i64::MAX)] {
            let only_while = Some(crate::Unchanged { key: "/registry/lock".into(), revision });
            let write = Write { only_while, ..put("/registry/a", Expect::Revision(3), "1") };
            let txn = request(&write, [1; 16], WriteLeases { object: 5, cause: 6 }, 41).unwrap();
            let last = txn.compare.last().unwrap();
            assert_eq!(
                (&last.key[..], last.mod_revision),
                (&b"/registry/lock"[..], Some(expect)),
                "{revision}"
            );
            let reads: Vec<(String, bool)> = txn
                .failure
                .into_iter()
                .map(|op| match op.request {
                    Some(api::Request::Range(range)) => {
                        (String::from_utf8(range.key.to_vec()).unwrap(), range.keys_only)
                    }
                    other => panic!("{other:?}"),
                })
                .collect();
            let keys = ["/registry/a", "/registry.causes/a", "/registry/lock"].map(str::to_owned);
            assert_eq!(reads, keys.into_iter().zip([false, false, true]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_write_is_its_cause_and_its_change_under_their_leases() {
        let leases = WriteLeases { object: 5, cause: 6 };
        let of = |write: &Write| request(write, *b"0123456789abcdef", leases, 41).unwrap().success;
        let made = of(&put("/registry/a", Expect::Absent, "v"));
        let [Some(api::Request::Put(cause)), Some(api::Request::Put(object))] =
            [made[0].request.clone(), made[1].request.clone()]
        else {
            panic!("two puts: {made:?}");
        };
        assert_eq!((&cause.key[..], cause.lease), (&b"/registry.causes/a"[..], 6));
        assert_eq!(&cause.value[..], b"0123456789abcdefcause of v");
        assert_eq!((&object.key[..], &object.value[..], object.lease), (&b"/registry/a"[..], &b"v"[..], 5));
        let removed = of(&delete("/registry/a", 9));
        assert!(
            matches!(&removed[1].request, Some(api::Request::DeleteRange(it)) if it.key == "/registry/a")
        );
        // What is absent cannot be removed.
        let nothing = Write { expect: Expect::Absent, ..delete("/registry/a", 9) };
        let compare = request(&nothing, [1; 16], leases, 41).unwrap().compare;
        assert_eq!(compare.iter().map(|it| it.mod_revision).collect::<Vec<_>>(), [Some(-1)]);
    }
}
