//! What nftables tells of what is there and of what goes, byte for byte as it was captured, and what is made of it; and the same
//! cut off, or with any byte of it another.

use super::super::chains::parse;
use super::super::watch::note;
use super::*;
use crate::rows::{Row, rows};

/// Every name in the table, of which each is asked for.
const TABLES: [&str; 7] = ["t", "t6", "both", "early", "b", "a-name-with-a-zero", "other"];
const CHAINS: [&str; 8] = ["in", "out", "plain", "nat", "f0", "v0", "f", "other"];

fn read(section: &str, bytes: &[u8]) -> Option<String> {
    match section {
        "base chains" => {
            let BaseChain { family, table, name, hook, policy } = parse(bytes)?;
            Some(format!("{family:?}, table {table}, chain {name}, hook {hook}, policy {policy}"))
        }
        "news" => {
            let mut taken = Taken::default();
            note(bytes, &mut taken);
            let tables = TABLES.iter().filter(|name| taken.is_of_table(name)).map(|it| format!("table {it}"));
            let chains = CHAINS.iter().filter(|name| taken.is_of_chain(name)).map(|it| format!("chain {it}"));
            let words: Vec<_> = tables.chain(chains).collect();
            (taken != Taken::default()).then(|| words.join(", "))
        }
        other => panic!("no such section: {other}"),
    }
}

fn table() -> Vec<Row> {
    rows(include_str!("told.txt"))
}

#[test]
fn what_nftables_tells_is_read_as_it_is_meant() {
    for Row { section, name, bytes, outcome } in table() {
        let read = read(section, &bytes).unwrap_or_else(|| "nothing".into());
        assert_eq!(read, outcome, "{section}: {name}");
    }
}

#[test]
fn what_nftables_tells_is_no_more_when_it_is_cut_off() {
    for Row { section, name, bytes, outcome } in table() {
        let whole: Vec<_> = outcome.split(", ").collect();
        for cut in 0..bytes.len() {
            let said = read(section, &bytes[..cut]).unwrap_or_default();
            let mut more = said.split(", ").filter(|word| !word.is_empty() && !whole.contains(word));
            assert_eq!(more.next(), None, "{section}: {name}, cut at {cut}");
        }
    }
}

#[test]
fn no_byte_of_what_nftables_tells_ends_the_reader() {
    for Row { section, mut bytes, .. } in table() {
        for at in 0..bytes.len() {
            let right = bytes[at];
            for wrong in [0, 3, 0x7f, 0xff, right ^ 0x80, right.wrapping_add(1), right.wrapping_sub(1)] {
                bytes[at] = wrong;
                read(section, &bytes);
            }
            bytes[at] = right;
        }
    }
}
