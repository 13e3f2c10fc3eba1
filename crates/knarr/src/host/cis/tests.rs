use clap::Parser;
use cli::args::{Cli, Command};

use super::*;

fn facts(flags: &[&str]) -> Facts {
    let words = ["knarr", "doctor", "--data-dir", "/none"].iter().chain(flags);
    let Command::Doctor(doctor) = Cli::try_parse_from(words).unwrap().command else { panic!("no doctor") };
    let mut facts = Facts::of(&doctor.server, &Layout::new(&doctor.server.data_dir).unwrap());
    let secret = |uid| Mode { uid, mode: 0o600 };
    facts.files.extend(OF_ROOT.map(|file| (file, secret(0))));
    facts.files.extend(OF_CONTROL_PLANE.map(|file| (file, secret(CONTROL_PLANE_UID))));
    facts.files.insert("server", Mode { uid: CONTROL_PLANE_UID, mode: 0o700 });
    facts.files.insert("agent", Mode { uid: 0, mode: 0o700 });
    facts
}

fn failing(facts: &Facts) -> Vec<&'static str> {
    let failed = |(_, verdict): &(&Row, Verdict)| matches!(verdict, Verdict::Fail(_));
    judge(facts).into_iter().filter(failed).map(|(row, _)| row.id).collect()
}

#[test]
fn a_cluster_with_default_flags_fails_no_check() {
    assert_eq!(failing(&facts(&[])), Vec::<&str>::new());
    let of = |id: &str| judge(&facts(&[])).into_iter().find(|(row, _)| row.id == id).unwrap().1;
    for (id, expected) in [
        ("1.2.3", Verdict::Pass("it runs".into())),
        ("1.2.16", Verdict::Pass("server/logs/audit.log".into())),
        ("1.2.17", Verdict::Pass("30".into())),
        ("4.2.13", Verdict::Pass("4096".into())),
        ("2.1-7", Verdict::NotApplicable("the store is in the control plane's process".into())),
    ] {
        assert_eq!(of(id), expected, "{id}");
    }
}

#[test]
fn what_somebody_has_loosened_fails_its_check() {
    for (flags, expected) in [
        (
            &["--disable-admission-plugins", "DenyServiceExternalIPs,NodeRestriction"][..],
            &["1.2.3", "1.2.14"][..],
        ),
        (
            &["--audit-log-maxage", "7", "--audit-log-maxbackup", "2", "--audit-log-maxsize", "5"],
            &["1.2.17", "1.2.18", "1.2.19"],
        ),
        (&["--audit-log-maxage", "0"], &[]),
        (&["--kubelet-arg", "pod-max-pids=-1"], &["4.2.13"]),
        // It is a field of the configuration only: a kubelet that cannot start is judged by none.
        (&["--kubelet-arg", "streaming-connection-idle-timeout=0s"], &["4.2.5", "4.2.13", "5.6.2"]),
        (&["--disable", "agent", "--kubelet-arg", "pod-max-pids=-1"], &[]),
        (&["--datastore-endpoint", "http://192.0.2.9:2379"], &["1.2.23-26"]),
        (&["--datastore-endpoint", "https://192.0.2.9:2379"], &[]),
    ] {
        assert_eq!(failing(&facts(flags)), expected, "{flags:?}");
    }
}

#[test]
fn a_file_that_others_read_or_own_fails_its_check() {
    for (file, uid, mode, expected) in [
        ("admin.kubeconfig", 0, 0o644, "1.1.13-18"),
        ("admin.kubeconfig", CONTROL_PLANE_UID, 0o600, "1.1.13-18"),
        ("server/tls/ca.key", CONTROL_PLANE_UID, 0o640, "1.1.21"),
        ("server", CONTROL_PLANE_UID, 0o711, "1.1.11"),
        ("server/logs/audit.log", CONTROL_PLANE_UID, 0o644, "1.1.21"),
        ("agent/tls/kubelet.key", 0, 0o604, "4.2.9"),
    ] {
        let mut facts = facts(&[]);
        facts.files.insert(file, Mode { uid, mode });
        assert_eq!(failing(&facts), [expected], "{file} {mode:o}");
    }
}
