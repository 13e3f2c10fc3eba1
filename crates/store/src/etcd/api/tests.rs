//! Bytes on the wire, by hand after etcd's `rpc.proto` and `kv.proto`: a field's number times 8 and its kind, then what is in it.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn key(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn what_is_asked_is_written_as_etcd_reads_it() {
    let check = |name: &str, asked: &dyn Fn() -> Vec<u8>, hex: &str| {
        assert_eq!(asked(), bytes(hex), "{name}");
    };
    let range = RangeRequest {
        key: key("a"),
        range_end: key("b"),
        limit: 5,
        revision: 7,
        keys_only: true,
        count_only: true,
    };
    check("a range", &|| range.encode_to_vec(), "0a0161 120162 1805 2007 4001 4801");
    check("a key", &|| RangeRequest { key: key("a"), ..Default::default() }.encode_to_vec(), "0a0161");
    let compare =
        |target: CompareTarget| Compare { target: target.into(), key: key("a"), ..Default::default() };
    let less =
        Compare { result: CompareResult::Less.into(), mod_revision: Some(0), ..compare(CompareTarget::Mod) };
    check("not changed before", &|| less.encode_to_vec(), "0802 1002 1a0161 3000");
    let never = Compare { mod_revision: Some(-1), ..compare(CompareTarget::Mod) };
    check("never so", &|| never.encode_to_vec(), "1002 1a0161 30ffffffffffffffffff01");
    let absent = Compare { version: Some(0), ..compare(CompareTarget::Version) };
    check("not there", &|| absent.encode_to_vec(), "1a0161 2000");
    let put = Request::Put(PutRequest { key: key("a"), value: key("v"), lease: 9 });
    let read = Request::Range(RangeRequest { key: key("a"), ..Default::default() });
    let op = |request: &Request| RequestOp { request: Some(request.clone()) };
    let txn = TxnRequest { compare: vec![less.clone()], success: vec![op(&put)], failure: vec![op(&read)] };
    let hex = "0a09 080210021a01613000  120a 1208 0a01611201761809  1a05 0a03 0a0161";
    check("a transaction", &|| txn.encode_to_vec(), hex);
    let delete = Request::DeleteRange(DeleteRangeRequest { key: key("a") });
    check("a removal", &|| op(&delete).encode_to_vec(), "1a03 0a0161");
    check("a compaction", &|| CompactionRequest { revision: 300 }.encode_to_vec(), "08ac02");
    check("a lease", &|| LeaseGrantRequest { ttl: 3660 }.encode_to_vec(), "08cc1c");
    check("all alarms", &|| AlarmRequest {}.encode_to_vec(), "");
    check("a member's status", &|| StatusRequest {}.encode_to_vec(), "");
    let create = WatchAsk::Create(WatchCreateRequest {
        key: key("a"),
        range_end: key("b"),
        start_revision: 7,
        progress_notify: true,
        prev_kv: true,
    });
    let watch = |ask: &WatchAsk| WatchRequest { ask: Some(ask.clone()) };
    check("a watch", &|| watch(&create).encode_to_vec(), "0a0c 0a0161 120162 1807 2001 3001");
    check("its progress", &|| watch(&WatchAsk::Progress(Done {})).encode_to_vec(), "1a00");
}

/// Every answer has fields that are not read here: they are passed over.
#[test]
fn what_etcd_answers_is_read_as_far_as_it_is_needed() {
    const HEADER: &str = "0a08 0801 1002 1807 2003";
    let header = || Some(ResponseHeader { revision: 7 });
    fn check<M: Message + Default + PartialEq + std::fmt::Debug>(name: &str, hex: &str, expect: &M) {
        let found = M::decode(&*bytes(hex));
        assert!(found.as_ref().is_ok_and(|found| found == expect), "{name}: {found:?}");
    }
    let kv = |revision, value| KeyValue {
        key: key("a"),
        create_revision: 3,
        mod_revision: revision,
        version: 2,
        value: key(value),
    };
    let range = RangeResponse { header: header(), kvs: vec![kv(5, "v")], more: true, count: 4 };
    check("a range", &format!("{HEADER} 120e 0a0161 1003 1805 2002 2a0176 3009 1801 2004"), &range);
    check("nothing", "", &RangeResponse::default());
    let responses = vec![
        ResponseOp { response: Some(Response::Put(Done {})) },
        ResponseOp { response: Some(Response::DeleteRange(Done {})) },
        ResponseOp { response: Some(Response::Range(RangeResponse { count: 1, ..Default::default() })) },
        ResponseOp::default(),
    ];
    let txn = TxnResponse { header: header(), succeeded: true, responses };
    let hex = format!("{HEADER} 1001 1a06 1204 0a021807 1a08 1a06 0a021807 1001 1a04 0a02 2001 1a00");
    check("a transaction", &hex, &txn);
    let event = Event {
        r#type: EventType::Delete.into(),
        kv: Some(KeyValue { key: key("a"), mod_revision: 5, ..Default::default() }),
        prev_kv: Some(KeyValue { key: key("a"), mod_revision: 4, value: key("v"), ..Default::default() }),
    };
    let watch = WatchResponse { header: header(), events: vec![event], ..Default::default() };
    let hex = format!("{HEADER} 1001 5a13 0801 1205 0a01611805 1a08 0a016118042a0176");
    check("events", &hex, &watch);
    let ended = WatchResponse {
        created: true,
        canceled: true,
        compact_revision: 9,
        cancel_reason: "no".into(),
        ..Default::default()
    };
    check("the end of a watch", "1801 2001 2809 32026e6f 3801", &ended);
    let lease = LeaseGrantResponse { id: 9, error: "no".into() };
    check("a lease", &format!("{HEADER} 1009 183c 22026e6f"), &lease);
    let alarms = vec![
        AlarmMember { member_id: u64::MAX, alarm: AlarmType::NoSpace.into() },
        AlarmMember { member_id: 1, alarm: 7 },
    ];
    let hex = format!("{HEADER} 120d 08ffffffffffffffffff01 1001 1204 0801 1007");
    check("alarms, of which one is not known", &hex, &AlarmResponse { alarms });
    let status = StatusResponse { version: "3.5.1".into() };
    check("a status", &format!("{HEADER} 1205332e352e31 188001"), &status);
}

#[test]
fn bytes_that_are_no_answer_are_refused() {
    let whole = bytes("0a021807 120e 0a0161 1003 1805 2002 2a0176 3009 1801 2004");
    let ends: Vec<usize> =
        (0..whole.len()).filter(|end| RangeResponse::decode(&whole[..*end]).is_ok()).collect();
    assert_eq!(ends, [0, 4, 20, 22], "between fields only");
    for (name, hex) in [
        ("a length beyond the end", "1205 0a0161"),
        ("a length beyond all", "12ffffffff0f"),
        ("a number without an end", "20ffffffffffffffffffff01"),
        ("a key that is a number", "1202 0801"),
        ("a header that is a number", "0807"),
        ("field nothing", "0001"),
        ("a kind that nobody has", "0f"),
    ] {
        assert!(RangeResponse::decode(&*bytes(hex)).is_err(), "{name}");
    }
    assert!(WatchResponse::decode(&*bytes("3202ffff")).is_err(), "a reason that is no text");
}
