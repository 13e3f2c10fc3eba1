use clap::Parser;
use cli::args::{Cli, Command};
use serde_json::json;

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
    let lasting = |groups: &[&str]| state::Certificate {
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ends_second: i64::MAX,
    };
    facts.certificates = CERTIFICATES.into_iter().map(|file| (file, lasting(&["kubelets"]))).collect();
    // Whatever listens on the host that the test runs on.
    facts.listening = vec!["127.0.0.1:10257".parse().unwrap(), "192.0.2.1:6443".parse().unwrap()];
    facts.encrypts = Some(Ok(Some("secretbox")));
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
        (
            &["--kubelet-arg", "streaming-connection-idle-timeout=0s"],
            &["4.2.1", "4.2.2", "4.2.5", "4.2.13", "5.6.2"],
        ),
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

/// Everything that a row looks at makes it fail when it is spoiled, and no other row that does not look at it.
#[test]
fn what_is_spoiled_fails_its_check() {
    type Spoil = fn(&mut Facts);
    fn told(facts: &mut Facts, pointer: &str, value: serde_json::Value) {
        let Some(Ok(kubelet)) = &mut facts.kubelet else { panic!("no kubelet") };
        *kubelet.config.pointer_mut(pointer).unwrap() = value;
    }
    fn ended(facts: &mut Facts, file: &'static str) {
        facts.certificates.get_mut(file).unwrap().ends_second = facts.now_second;
    }
    fn listens(facts: &mut Facts, at: &str) {
        facts.listening.push(at.parse().unwrap());
    }
    let cases: Vec<(&str, Spoil, &[&str])> = vec![
        (
            "masters",
            |facts| facts.certificates.get_mut(TO_KUBELETS).unwrap().groups = vec!["system:masters".into()],
            &["1.2.4-5"],
        ),
        ("to kubelets", |facts| ended(facts, TO_KUBELETS), &["1.2.4-5"]),
        ("no log", |facts| facts.files.retain(|file, _| *file != "server/logs/audit.log"), &["1.2.16"]),
        ("nothing logged", |facts| facts.audits = Ok(false), &["3.2.1"]),
        ("no policy", |facts| facts.audits = Err(anyhow::anyhow!("cannot read it")), &["3.2.1"]),
        ("in clear", |facts| facts.encrypts = Some(Ok(None)), &["1.2.27-28"]),
        ("no configuration", |facts| facts.encrypts = Some(Err(anyhow::anyhow!("broken"))), &["1.2.27-28"]),
        ("RSA", |facts| facts.ciphers.push("TLS_RSA_WITH_AES_128_GCM_SHA256".into()), &["1.2.29", "4.2.12"]),
        (
            "CBC",
            |facts| facts.ciphers.push("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA".into()),
            &["1.2.29", "4.2.12"],
        ),
        (
            "the key of accounts",
            |facts| facts.files.extend([("server/tls/service-account.key", Mode { uid: 0, mode: 0o600 })]),
            &["1.1.21", "1.2.22", "1.3.4-5"],
        ),
        ("the authority", |facts| ended(facts, "server/tls/ca.crt"), &["1.3.4-5"]),
        ("serving", |facts| ended(facts, "agent/tls/kubelet-server.crt"), &["1.3.6", "4.2.10-11"]),
        ("the kubelet's", |facts| ended(facts, "agent/tls/kubelet.crt"), &["4.2.10-11"]),
        ("the authority of clients", |facts| ended(facts, OF_CLIENTS), &["4.2.3"]),
        ("controllers", |facts| listens(facts, "0.0.0.0:10257"), &["1.3.7"]),
        ("the scheduler", |facts| listens(facts, "192.0.2.1:10259"), &["1.4.1-2"]),
        ("read only", |facts| listens(facts, "[::]:10255"), &["4.2.4"]),
        ("the proxy", |facts| listens(facts, "0.0.0.0:10249"), &["4.3.1"]),
        ("anonymous", |facts| told(facts, "/authentication/anonymous/enabled", json!(true)), &["4.2.1"]),
        ("everybody may", |facts| told(facts, "/authorization/mode", json!("AlwaysAllow")), &["4.2.2"]),
    ];
    for (name, spoil, expected) in cases {
        let mut facts = facts(&[]);
        spoil(&mut facts);
        assert_eq!(failing(&facts), expected, "{name}");
    }
    assert_eq!(failing(&self::facts(&["--disable", "network-policy"])), ["5.3.1"]);
    let mut facts = facts(&["--cni-conf-dir", "/none"]);
    for (uid, mode, expected) in
        [(0, 0o600, &[][..]), (0, 0o644, &["1.1.9-10"]), (1000, 0o600, &["1.1.9-10"])]
    {
        facts.networks = vec![("10-a.conflist".into(), Mode { uid, mode })];
        assert_eq!(failing(&facts), expected, "{uid} {mode:o}");
    }
}

/// What passes whatever is found says that it does.
#[test]
fn what_nothing_can_fail_passes_by_construction() {
    let mut spoiled = facts(&["--enable-admission-plugins", "AlwaysPullImages", "--anonymous-auth=false"]);
    spoiled.files.values_mut().for_each(|is| *is = Mode { uid: 1, mode: 0o777 });
    spoiled.certificates.values_mut().for_each(|certificate| certificate.ends_second = 0);
    spoiled.plugins = Ok(Vec::new());
    spoiled.listening =
        [10249, 10251, 10255, 10257].map(|port| SocketAddr::new([192, 0, 2, 1].into(), port)).to_vec();
    spoiled.ciphers = vec!["TLS_NULL".into()];
    spoiled.encrypts = Some(Ok(None));
    spoiled.audits = Ok(false);
    let nothing =
        Kubelet { pod_pids_limit: -1, seccomp_default: false, streams_end: false, config: json!({}) };
    spoiled.kubelet = Some(Ok(nothing));
    spoiled.args.api_server.request_timeout.0 = std::time::Duration::ZERO;
    (spoiled.args.api_server.audit_log_maxage, spoiled.args.api_server.audit_log_maxbackup) = (1, 1);
    spoiled.args.api_server.audit_log_maxsize = 1;
    let passing: Vec<_> = judge(&spoiled)
        .into_iter()
        .filter(|(_, verdict)| matches!(verdict, Verdict::Pass(_)))
        .map(|(row, _)| row.id)
        .collect();
    // What flags say: anonymous requests are off here, and the others are at their defaults; policies are enforced.
    assert_eq!(passing, ["1.2.1", "1.2.16", "3.2.2", "4.2.7", "5.3.1"]);
}
