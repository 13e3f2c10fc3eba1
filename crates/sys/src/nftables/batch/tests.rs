//! What is told to the kernel, message by message, to turn one table into another; and what cannot be turned so.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::super::{Base, ChainKind, Expr, Hook, Members, SetValue, Verdict as To};
use super::*;
use crate::rows::{rows, shown};

/// The messages behind the one that begins all, each with its flags but `NLM_F_REQUEST`.
fn told(batch: Batch<'_>) -> String {
    let bytes = batch.out.into_bytes();
    let mut rest = bytes.as_slice();
    let mut lines = Vec::new();
    for sequence in 1.. {
        let Some((header, _)) = rest.split_at_checked(16) else { break };
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        assert_eq!((word(8), word(12)), (sequence, 0), "numbered from one, by nobody yet");
        let (message, next) = rest.split_at(word(0) as usize);
        rest = next;
        let (kind, flags, body) = (half(4), half(6), &message[16..]);
        if kind == BATCH_BEGIN {
            assert_eq!((sequence, flags, body), (1, REQUEST, &[0, 0, 0, 10][..]), "for nf_tables");
            continue;
        }
        assert_eq!(kind >> 8, SUBSYSTEM);
        let name = match kind & 0xff {
            0 => "table",
            2 => "no table",
            3 => "chain",
            5 => "no chain",
            6 => "rule",
            8 => "no rules",
            9 => "set",
            11 => "no set",
            12 => "elements",
            14 => "no elements",
            other => panic!("message {other}"),
        };
        assert!(flags & REQUEST != 0 && body[1..4] == [0; 3], "{name}: {flags:x}, {:?}", &body[..4]);
        lines.push(format!("| {name} {:x} {}: {}", flags - REQUEST, body[0], shown(&body[4..])));
    }
    assert!(rest.is_empty(), "{} bytes more", rest.len());
    lines.join(" ")
}

fn of(fill: impl FnOnce(&mut Table)) -> Table {
    let mut table = Table::new("t");
    fill(&mut table);
    table
}

fn key(last: u8) -> Key {
    Key::new().ip(Ipv4Addr::new(10, 0, 0, last))
}

fn addresses(lasts: &[u8]) -> Table {
    of(|table| {
        table.set("s", &[Field::Ipv4], SetValue::None);
        lasts.iter().for_each(|last| table.element("s", key(*last), Data::None));
    })
}

fn ports(of_each: &[(u8, u16)]) -> Table {
    of(|table| {
        table.set("m", &[Field::Ipv4], SetValue::Fields(vec![Field::Port]));
        for (last, port) in of_each {
            table.element("m", key(*last), Data::Value(Key::new().port(*port)));
        }
    })
}

fn verdicts(chain: &str, verdicts: &[To]) -> Table {
    of(|table| {
        table.chains.entry(chain.to_owned()).or_default();
        verdicts.iter().for_each(|to| table.rule(chain, vec![Expr::Verdict(to.clone())]));
    })
}

/// A table in which everything refers to something.
fn whole() -> Table {
    of(|table| {
        table.base_chain("in", ChainKind::Filter, Hook::Input, 0);
        table.set("v", &[Field::Ipv4], SetValue::Verdict);
        table.element("v", key(1), Data::Verdict(To::Goto("z".into())));
        table.rule(
            "in",
            vec![
                Expr::SourceIp(crate::nftables::Reg::R0),
                Expr::VerdictMap("v".into(), crate::nftables::Reg::R0),
            ],
        );
        table.rule("z", vec![Expr::Verdict(To::Drop)]);
    })
}

#[test]
fn tables_are_changed_in_an_order_in_which_nothing_refers_to_what_is_not_there() {
    let empty = Table::new("t");
    let (one, two) = ([To::Accept], [To::Accept, To::Drop]);
    let mut two_sets = addresses(&[1]);
    two_sets.sets.insert("m".into(), ports(&[]).sets["m"].clone());
    let changes = [
        ("everything comes", empty.clone(), whole()),
        ("everything goes", whole(), empty.clone()),
        ("a chain without rules comes", empty.clone(), verdicts("c", &[])),
        ("and goes", verdicts("c", &[]), empty.clone()),
        ("a chain with rules comes", empty.clone(), verdicts("c", &two)),
        ("a first rule", verdicts("c", &[]), verdicts("c", &one)),
        ("a second rule makes both anew", verdicts("c", &one), verdicts("c", &two)),
        ("no rule is left", verdicts("c", &two), verdicts("c", &[])),
        ("another chain instead", verdicts("c", &one), verdicts("d", &one)),
        ("a set comes", empty.clone(), addresses(&[1, 2])),
        ("a set goes with what it has", addresses(&[1, 2]), empty.clone()),
        ("elements come", addresses(&[2]), addresses(&[1, 2, 3])),
        ("elements go", addresses(&[1, 2, 3]), addresses(&[2])),
        ("some go before others come", addresses(&[1, 2]), addresses(&[2, 3])),
        ("an element with another value is another", ports(&[(1, 80), (2, 80)]), ports(&[(1, 81), (2, 80)])),
        ("a set more", addresses(&[1]), two_sets),
    ];
    let rows = rows(include_str!("tests/batches.txt"));
    let of = |section: &str| rows.iter().filter(|row| row.section == section).collect::<Vec<_>>();
    assert_eq!(of("changes").len(), changes.len());
    for (row, (name, previous, next)) in of("changes").into_iter().zip(&changes) {
        assert_eq!(row.name, *name);
        let changed = with_changes(next, &Changes::between(previous, next)).unwrap();
        assert_eq!(told(changed), row.outcome, "{name}");
        let (previous, next) = (std::slice::from_ref(previous), std::slice::from_ref(next));
        assert_eq!(told(changing(previous, next).unwrap().unwrap()), row.outcome, "{name}, among tables");
    }
}

#[test]
fn tables_are_replaced_whatever_was_there_before() {
    let of_v6 = |name: &str| Table { family: TableFamily::Ipv6, ..Table::new(name) };
    let both = [addresses(&[1]), of_v6("other"), Table { family: TableFamily::Inet, ..Table::new("t") }];
    let found = [
        ("an empty one", told(replacing(&[Table::new("t")], 0).unwrap())),
        ("one that goes with its owner", told(replacing(&[Table::new("t")], 2).unwrap())),
        ("of each family", told(replacing(&both, 0).unwrap())),
    ];
    let rows = rows(include_str!("tests/batches.txt"));
    let wanted = rows.iter().filter(|row| row.section == "replacements");
    for ((name, found), row) in found.into_iter().zip(wanted) {
        assert_eq!((name, found), (row.name, row.outcome.clone()));
    }
    assert!(replacing(&[], 0).is_none());
}

#[test]
fn tables_that_are_as_they_should_be_are_left_alone() {
    for table in [Table::new("t"), whole(), addresses(&[1]), ports(&[(1, 80)])] {
        assert!(with_changes(&table, &Changes::between(&table, &table)).is_none());
        let one = std::slice::from_ref(&table);
        assert!(changing(one, one).unwrap().is_none());
    }
    // Of several only those that change are told of.
    let before = [Table::new("u"), addresses(&[1])];
    let after = [Table::new("u"), addresses(&[1, 2])];
    let batch = told(changing(&before, &after).unwrap().unwrap());
    assert_eq!(batch, "| elements 400 2: 1=t 2=s 3{1{1{1=0a000002}}}");
}

#[test]
fn elements_are_told_in_messages_that_they_fit_into() {
    for (count, messages) in
        [(1, vec![1]), (149, vec![149]), (150, vec![150]), (151, vec![150, 1]), (450, vec![150; 3])]
    {
        let table = of(|table| {
            table.set("s", &[Field::Ipv4, Field::Ipv6], SetValue::None);
            for number in 0..count {
                let key = Key::new().ip(Ipv4Addr::from(number)).address([0; 16].into());
                table.element("s", key, Data::None);
            }
        });
        let empty = of(|table| table.set("s", &[Field::Ipv4, Field::Ipv6], SetValue::None));
        for (previous, next, word) in [(&empty, &table, "| elements"), (&table, &empty, "| no elements")] {
            let batch = told(with_changes(next, &Changes::between(previous, next)).unwrap());
            let found: Vec<_> =
                batch.split(word).skip(1).map(|message| message.matches("1{1{").count()).collect();
            assert_eq!(found, messages, "{count}, {word}");
        }
    }
}

#[test]
fn what_has_another_definition_is_not_changed() {
    let base = |table: &mut Table, kind, hook, priority| {
        table.chains.entry("c".into()).or_default().base = Some(Base { kind, hook, priority });
    };
    let set = |change: fn(&mut Set)| {
        of(|table| {
            table.set("s", &[Field::Ipv4], SetValue::None);
            change(table.sets.get_mut("s").unwrap());
        })
    };
    let chain = of(|table| base(table, ChainKind::Filter, Hook::Input, 0));
    let plain = set(|_| ());
    for (name, previous, next) in [
        ("another name", Table::new("u"), Table::new("t")),
        ("another family", Table { family: TableFamily::Inet, ..Table::new("t") }, Table::new("t")),
        ("a chain that packets enter now", verdicts("c", &[]), chain.clone()),
        ("one that they enter no more", chain.clone(), verdicts("c", &[])),
        ("another hook", chain.clone(), of(|table| base(table, ChainKind::Filter, Hook::Output, 0))),
        ("another priority", chain.clone(), of(|table| base(table, ChainKind::Filter, Hook::Input, 1))),
        ("another type", chain.clone(), of(|table| base(table, ChainKind::Nat, Hook::Input, 0))),
        ("another key", plain.clone(), set(|set| set.key = vec![Field::Port])),
        ("one field more", plain.clone(), set(|set| set.key.push(Field::Port))),
        ("a map now", plain.clone(), set(|set| set.value = SetValue::Verdict)),
        ("ranges now", plain.clone(), set(|set| set.members = Members::Ranges)),
        ("with a timeout now", plain.clone(), set(|set| set.timeout = Some(Duration::from_secs(1)))),
        (
            "another timeout",
            set(|set| set.timeout = Some(Duration::from_secs(1))),
            set(|set| set.timeout = Some(Duration::from_secs(2))),
        ),
    ] {
        assert!(!can_change(&previous, &next), "{name}");
        let (previous, next) = (std::slice::from_ref(&previous), std::slice::from_ref(&next));
        let refused = changing(previous, next).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), "change nftables table t", "{name}");
        // It is when the whole of it is told: then nothing of before counts.
        assert!(replacing(next, 0).is_some(), "{name}");
    }
    for (name, previous, next) in [
        ("fewer than before", vec![plain.clone(), Table::new("u")], vec![plain.clone()]),
        ("more than before", vec![plain.clone()], vec![plain.clone(), Table::new("u")]),
        ("none", vec![plain.clone()], vec![]),
        ("in another order", vec![Table::new("u"), plain.clone()], vec![plain.clone(), Table::new("u")]),
    ] {
        assert!(changing(&previous, &next).is_err(), "{name}");
    }
    // What only one of both has is made or deleted, whatever its definition is.
    assert!(can_change(&chain, &plain) && can_change(&plain, &chain));
}

#[test]
fn only_what_passes_by_itself_is_tried_again() {
    for (code, is_tried_again) in [
        (libc::EBUSY, true),
        (libc::EAGAIN, true),
        (libc::EINTR, true),
        (libc::ENOBUFS, true),
        (libc::ENOMEM, true),
        (libc::ENOENT, false),
        (libc::EEXIST, false),
        (libc::EINVAL, false),
        (libc::EPERM, false),
        (libc::EOPNOTSUPP, false),
        (libc::EMSGSIZE, false),
        (libc::ERANGE, false),
    ] {
        assert_eq!(is_busy(&io::Error::from_raw_os_error(code)), is_tried_again, "{code}");
    }
    assert!(!is_busy(&io::Error::other("resource busy")), "no word of the kernel's");
}
