use std::net::Ipv4Addr;

use super::*;
use crate::netns::NetNs;
use crate::nftables::{ChainKind, Expr, Field, Hook, Reg, SetValue, Verdict};
use crate::nftables::{apply, apply_changes};

fn frame() -> Table {
    let mut table = Table::new("draft");
    table.base_chain("forward", ChainKind::Filter, Hook::Forward, 0);
    table.set("pods", &[Field::Ipv4], SetValue::Verdict);
    table.rule(
        "forward",
        vec![Expr::Initiator(Reg::R0, Field::Ipv4), Expr::VerdictMap("pods".into(), Reg::R0)],
    );
    table
}

fn ip(last: u8) -> Key {
    Key::new().ip(Ipv4Addr::new(10, 0, 0, last))
}

fn to(chain: &str) -> Option<Data> {
    Some(Data::Verdict(Verdict::Goto(chain.to_owned())))
}

fn drops() -> Vec<Rule> {
    vec![vec![Expr::Verdict(Verdict::Drop)]]
}

fn ports(first: u16, last: u16) -> Set {
    let mut table = Table::new("ports");
    table.range_set("ports", Field::Port);
    table.element("ports", Key::new().port(first), Data::Through(Key::new().port(last)));
    table.sets.remove("ports").unwrap_or_default()
}

fn named(chain: &str, set: &str) -> Vec<Rule> {
    vec![vec![
        Expr::TrackedProtocol(Reg::R0),
        Expr::ResponderPort(Reg::R1),
        Expr::In(set.into(), Reg::R1),
        Expr::Verdict(Verdict::Jump(chain.into())),
    ]]
}

type Step = fn(&mut Draft);

/// Each step is a transaction.
const STEPS: [(&str, Step); 9] = [
    ("a Pod comes", |draft| {
        draft.put_chain("a", drops());
        draft.put("pods", &ip(1), to("a"));
    }),
    ("what is there comes again", |draft| {
        draft.put_chain("a", drops());
        draft.put("pods", &ip(1), to("a"));
    }),
    ("it goes to another chain, and its own goes", |draft| {
        draft.put_chain("b", drops());
        draft.put("pods", &ip(1), to("b"));
        draft.remove_chain("a");
    }),
    ("a set comes with elements, and gets more", |draft| {
        draft.put_set("ports/1", ports(1, 65_535));
        draft.put_set("ports/2", ports(10, 20));
        draft.put("ports/2", &Key::new().port(30), Some(Data::Through(Key::new().port(40))));
        draft.put_chain("c", drops());
        draft.put_chain("b", named("c", "ports/1"));
    }),
    ("a set goes and comes again with other elements", |draft| {
        draft.put("ports/2", &Key::new().port(10), None);
        draft.remove_set("ports/2");
        draft.put_set("ports/2", ports(10, 21));
        draft.put("ports/2", &Key::new().port(50), Some(Data::Through(Key::new().port(60))));
    }),
    ("a chain goes and comes again", |draft| {
        draft.put_chain("b", drops());
        draft.remove_chain("c");
        draft.put_chain("c", named("b", "ports/2"));
    }),
    ("what comes goes at once", |draft| {
        draft.put_chain("d", drops());
        draft.put_set("ports/3", ports(1, 2));
        draft.put("pods", &ip(9), to("d"));
        draft.put("pods", &ip(9), None);
        draft.remove_chain("d");
        draft.remove_set("ports/3");
    }),
    ("an element changes and is as it was", |draft| {
        draft.put("pods", &ip(1), to("c"));
        draft.put("pods", &ip(1), to("b"));
    }),
    ("all goes", |draft| {
        draft.put("pods", &ip(1), None);
        draft.remove_chain("c");
        draft.remove_chain("b");
        draft.remove_set("ports/2");
        draft.remove_set("ports/1");
    }),
];

#[test]
fn changes_are_those_between_before_and_after() {
    let mut draft = Draft::new(frame());
    draft.committed();
    for (name, step) in STEPS {
        let before = draft.table().clone();
        step(&mut draft);
        let after = draft.table().clone();
        assert_eq!(draft.changes(), Changes::between(&before, &after), "{name}");
        draft.committed();
        assert!(draft.changes().is_empty(), "{name}");
    }
    assert_eq!(*draft.table(), frame());
}

/// What the kernel lists of the table, without numbers.
fn listing() -> String {
    let listed = std::process::Command::new("nft").args(["list", "ruleset"]).output();
    String::from_utf8(listed.map(|listed| listed.stdout).unwrap_or_default()).unwrap_or_default()
}

#[test]
fn the_kernel_takes_each_change_and_ends_with_the_same_table() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let (one, other) = (NetNs::anonymous().expect("a namespace"), NetNs::anonymous().expect("a namespace"));
    let (mut draft, mut whole) = (Draft::new(frame()), Table::default());
    for (name, step) in STEPS {
        one.run(|| draft.commit()).expect("the first commit is whole");
        step(&mut draft);
        // Not `commit`, which replaces the table where changes fail.
        one.run(|| apply_changes(draft.table(), &draft.changes())).expect(name);
        draft.committed();
        whole.clone_from(draft.table());
        other.run(|| apply(None, &whole)).expect(name);
        let of = |namespace: &NetNs| namespace.run(|| Ok(listing())).expect("a listing");
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(of(&one)), sorted(of(&other)), "{name}");
    }
}

#[test]
fn a_table_that_somebody_has_changed_is_replaced() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let namespace = NetNs::anonymous().expect("a namespace");
    let mut draft = Draft::new(frame());
    namespace
        .run(|| {
            draft.commit()?;
            crate::nftables::delete_table("draft")?;
            STEPS[0].1(&mut draft);
            draft.commit()?;
            assert!(listing().contains("10.0.0.1 : goto a"), "{}", listing());
            Ok(())
        })
        .expect("replaced");
}

/// What a firewall does that begins anew.
fn flush_by_others() {
    let output = std::process::Command::new("nft").args(["flush", "ruleset"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_table_that_is_owned_outlasts_flushes_and_its_owner() {
    let names = || crate::nftables::table_names().unwrap();
    NetNs::anonymous()
        .unwrap()
        .run(|| {
            // What an earlier process has left, that owned nothing.
            apply(None, &frame())?;
            let mut draft = Draft::new(frame());
            draft.own()?;
            let is_owned = draft.owner.is_some();
            draft.commit()?;
            draft.put_chain("a", drops());
            draft.commit()?;
            assert_eq!(names(), ["draft"]);
            flush_by_others();
            assert_eq!(names().len(), usize::from(is_owned), "only an old kernel lets it go");
            draft.put_chain("b", drops());
            draft.commit()?;
            drop(draft);
            assert_eq!(names(), ["draft"], "it stays");
            // Now it is the next one's, by whom it goes.
            let mut next = Draft::new(frame());
            next.own()?;
            next.commit()?;
            next.withdraw()?;
            assert_eq!(names(), Vec::<String>::new());
            next.commit()?;
            drop(next);
            crate::nftables::delete_table("draft")?;
            assert_eq!(names(), Vec::<String>::new(), "nobody's any more");
            println!("owned tables: {is_owned}");
            Ok(())
        })
        .unwrap();
}
