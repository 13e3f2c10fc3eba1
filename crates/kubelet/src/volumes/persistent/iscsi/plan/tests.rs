use expect_test::{Expect, expect};

use super::*;

fn disk(text: &str) -> Disk {
    let source = serde_saphyr::from_str(text).unwrap();
    Disk::new("pv", false, &source).unwrap()
}

const PLAIN: &str =
    "{targetPortal: 10.0.0.1, iqn: 'iqn.2001-04.com.example:a', lun: 2, iscsiInterface: default}";
const OWN: &str = "{targetPortal: '10.0.0.1:99', portals: [10.0.0.2, '10.0.0.1:99'], iqn: 'iqn.2001-04.com.example:a', \
                   lun: 0, iscsiInterface: iface0, initiatorName: 'iqn.2001-04.com.example:node'}";

/// A line per call: what is called, `?` if nothing depends on it, and what is undone if it is refused.
fn check(steps: &[Step], expect: &Expect) {
    let lines = steps.iter().map(|step| {
        let text = step.arguments.join(" ");
        let fine = if step.fine.is_empty() { String::new() } else { format!(" {:?}", step.fine) };
        match &step.refused {
            Refused::GoOn => format!("? {text}\n"),
            Refused::Stop { undo: None, .. } => format!("{text}{fine}\n"),
            Refused::Stop { undo: Some(undo), .. } => format!("{text}{fine}\n    else {}\n", undo.join(" ")),
        }
    });
    expect.assert_eq(&lines.collect::<String>());
}

fn chap(discovery: bool, session: bool) -> Chap {
    let entries = [
        ("discovery.sendtargets.auth.username", "finder"),
        ("discovery.sendtargets.auth.password", "one"),
        ("node.session.auth.username", "user"),
        ("node.session.auth.password", "two"),
        ("node.session.auth.password_in", ""),
        ("node.session.auth.username_in", "target"),
        ("other", "x"),
    ];
    let secret = entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Chap { discovery, session, secret }
}

#[test]
fn a_target_is_discovered_before_it_is_logged_in_to() {
    let disk = disk(PLAIN);
    check(
        &log_in(&disk, &disk.portals[0], &Chap::default()),
        &expect![[r#"
        ? -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new
        -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default --discover
            else -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o delete
        ? -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default -o update -n node.session.scan -v manual
        -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default --login [15]
            else -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default -o delete
        ? -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default -o update -n node.startup -v manual
    "#]],
    );
}

#[test]
fn secrets_are_for_what_they_are_named_for() {
    let disk = disk(PLAIN);
    let said = |chap: &Chap| {
        let steps = log_in(&disk, &disk.portals[0], chap);
        let secret = steps.iter().filter(|step| step.arguments.iter().any(|one| one.contains(".auth.")));
        let texts = secret.map(|step| step.arguments[step.arguments.len() - 3..].join(" ") + "\n");
        texts.collect::<String>()
    };
    assert_eq!(said(&chap(false, false)), "");
    expect![[r#"
        discovery.sendtargets.auth.authmethod -v CHAP
        discovery.sendtargets.auth.username -v finder
        discovery.sendtargets.auth.password -v one
    "#]]
    .assert_eq(&said(&chap(true, false)));
    expect![[r#"
        node.session.auth.authmethod -v CHAP
        node.session.auth.username -v user
        node.session.auth.password -v two
        node.session.auth.username_in -v target
    "#]]
    .assert_eq(&said(&chap(false, true)));
}

#[test]
fn an_initiator_of_its_own_has_an_interface_of_its_own() {
    let disk = disk(OWN);
    assert_eq!(disk.iface, "10.0.0.1:99:pv");
    let shown = "# BEGIN RECORD\niface.iscsi_ifacename = iface0\niface.net_ifacename = <empty>\n\
                 iface.transport_name = tcp\niface.initiatorname = iqn.old\n# END RECORD\n";
    check(
        &clone_iface(&disk, shown).unwrap(),
        &expect![[r#"
        -m iface -I 10.0.0.1:99:pv -o new [15]
        -m iface -I 10.0.0.1:99:pv -o update -n iface.initiatorname -v iqn.2001-04.com.example:node
            else -m iface -I 10.0.0.1:99:pv -o delete
        -m iface -I 10.0.0.1:99:pv -o update -n iface.transport_name -v tcp
            else -m iface -I 10.0.0.1:99:pv -o delete
    "#]],
    );
    let refused = clone_iface(&disk, "iface.transport_name is tcp").unwrap_err().to_string();
    assert!(refused.contains("invalid iface setting"), "{refused}");
    let same = Disk { init_iface: disk.iface.clone(), ..disk };
    assert_eq!(
        clone_iface(&same, "").unwrap_err().to_string(),
        "iscsi: cannot clone iface with same name: 10.0.0.1:99:pv"
    );
}

#[test]
fn the_last_disk_of_a_session_ends_it() {
    let (plain, own) = (disk(PLAIN), disk(OWN));
    let ends_plain = expect![[r#"
        -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default --logout [2, 21]
        -m node -p 10.0.0.1:3260 -T iqn.2001-04.com.example:a -I default -o delete [2, 21]
    "#]];
    check(&log_out(&plain, &[]), &ends_plain);
    // By another interface, or of another target.
    let other = Disk { iqn: "iqn.2001-04.com.example:b".to_owned(), ..plain.clone() };
    check(&log_out(&plain, &[own.clone(), other]), &ends_plain);
    let ends_own = expect![[r#"
        -m node -p 10.0.0.1:99 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv --logout [2, 21]
        -m node -p 10.0.0.1:99 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv -o delete [2, 21]
        -m node -p 10.0.0.2:3260 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv --logout [2, 21]
        -m node -p 10.0.0.2:3260 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv -o delete [2, 21]
        -m iface -I 10.0.0.1:99:pv -o delete [2, 21]
    "#]];
    check(&log_out(&own, std::slice::from_ref(&plain)), &ends_own);
    // Another disk of the same session.
    let beside = Disk { lun: 7, ..plain.clone() };
    check(&log_out(&plain, &[beside]), &expect![""]);
    let half = Disk { portals: vec!["10.0.0.2:3260".to_owned()], ..own.clone() };
    check(
        &log_out(&own, &[half]),
        &expect![[r#"
        -m node -p 10.0.0.1:99 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv --logout [2, 21]
        -m node -p 10.0.0.1:99 -T iqn.2001-04.com.example:a -I 10.0.0.1:99:pv -o delete [2, 21]
    "#]],
    );
}

#[test]
fn an_interface_says_how_it_reaches_its_targets() {
    for (shown, expect) in [
        ("iface.transport_name = tcp\n", Some("tcp")),
        ("iface.transport_name = <empty>\n", Some("tcp")),
        ("iface.iscsi_ifacename = x\niface.transport_name = bnx2i\n", Some("bnx2i")),
        ("iface.iscsi_ifacename = x\n", None),
    ] {
        assert_eq!(transport(shown), expect, "{shown}");
    }
}

#[test]
fn portals_that_are_missing_are_tried_again_but_not_for_ever() {
    for (attempt, paths, portals, expect) in
        [(1, 1, 1, true), (1, 2, 3, false), (2, 2, 3, true), (4, 1, 2, false), (1, 2, 2, true)]
    {
        assert_eq!(is_enough(attempt, paths, portals), expect, "{attempt} {paths} {portals}");
    }
}
