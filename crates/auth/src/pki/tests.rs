use std::os::unix::fs::PermissionsExt;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn api_server() -> Leaf {
    Leaf::api_server(
        "cluster.local",
        "10.43.0.1".parse().unwrap(),
        &["host"],
        &["192.0.2.7".parse().unwrap()],
    )
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()).unwrap()
}

#[test]
fn the_api_server_has_all_its_names_and_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let pair = authority.issue(&api_server(), now()).unwrap();
    let facts = Facts::read(&der(&pair)).unwrap();
    for name in [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "host",
    ] {
        assert!(facts.dns_names.iter().any(|own| own == name), "{name}");
    }
    for address in ["10.43.0.1", "127.0.0.1", "192.0.2.7"] {
        assert!(facts.addresses.contains(&address.parse().unwrap()), "{address}");
    }
}

#[test]
fn files_are_kept_and_only_the_owner_reads_keys() {
    let dir = tempfile::tempdir().unwrap();
    let first = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let pair = first.ensure_leaf(dir.path(), "admin", &Leaf::admin(), now()).unwrap();
    let again = Authority::ensure(dir.path(), "ca", now()).unwrap();
    assert_eq!(first.certificate_pem(), again.certificate_pem());
    let same = again.ensure_leaf(dir.path(), "admin", &Leaf::admin(), now()).unwrap();
    assert_eq!((pair.certificate_pem, pair.renew_at), (same.certificate_pem, same.renew_at));
    ensure_service_account_key(dir.path()).unwrap();
    for key in ["ca.key", "admin.key", "sa.key"] {
        let mode = std::fs::metadata(dir.path().join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
}

#[test]
fn a_leaf_is_made_anew_when_it_does_not_serve_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let other_dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let other = Authority::ensure(other_dir.path(), "ca", now()).unwrap();
    let leaf = api_server();
    let mut more_names = leaf.clone();
    more_names.dns_names.push("new.example".to_owned());
    let rows = [
        ("nothing changed", &authority, &leaf, now(), false),
        ("near its end", &authority, &leaf, days(now(), LEAF_DAYS - RENEW_BEFORE_DAYS + 1), true),
        ("expired", &authority, &leaf, days(now(), LEAF_DAYS + 1), true),
        ("a name is missing", &authority, &more_names, now(), true),
        ("another authority", &other, &leaf, now(), true),
    ];
    for (name, by, wanted, at, is_new) in rows {
        let files = tempfile::tempdir().unwrap();
        let before = authority.ensure_leaf(files.path(), "x", &leaf, now()).unwrap();
        let after = by.ensure_leaf(files.path(), "x", wanted, at).unwrap();
        assert_eq!(before.certificate_pem != after.certificate_pem, is_new, "{name}");
        assert!(after.renew_at > at, "{name}");
    }
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("x.crt"), "no certificate").unwrap();
    std::fs::write(files.path().join("x.key"), "no key").unwrap();
    authority.ensure_leaf(files.path(), "x", &leaf, now()).unwrap();
}

#[test]
fn an_authority_without_its_key_is_an_error_and_an_expired_one_keeps_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let first = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let leaf = first.issue(&Leaf::admin(), now()).unwrap();
    let later = Authority::ensure(dir.path(), "ca", days(now(), AUTHORITY_DAYS + 1)).unwrap();
    assert_ne!(first.certificate_pem(), later.certificate_pem());
    assert!(later.renew_at(&leaf.certificate_pem, &leaf.key_pem, &Leaf::admin()).is_some());
    std::fs::remove_file(dir.path().join("ca.key")).unwrap();
    assert!(matches!(Authority::ensure(dir.path(), "ca", now()), Err(PkiError::Authority { .. })));
}

#[test]
fn a_client_certificate_names_user_and_groups() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let pair = authority.issue(&Leaf::kubelet_client("host-1"), now()).unwrap();
    let user = crate::x509::user(&der(&pair)).unwrap();
    assert_eq!(user.name, "system:node:host-1");
    assert_eq!(user.groups, ["system:nodes", "system:authenticated"]);
    assert_eq!(user.node(), Some("host-1"));
}

#[test]
fn a_kubeconfig_holds_server_authority_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", now()).unwrap();
    let pair = authority.issue(&Leaf::admin(), now()).unwrap();
    let text = kubeconfig("knarr", "https://127.0.0.1:6443", authority.certificate_pem(), "admin", &pair);
    assert!(text.contains("    server: https://127.0.0.1:6443\n"));
    assert!(text.contains(&format!("    client-key-data: {}\n", STANDARD.encode(&pair.key_pem))));
    assert!(text.contains("current-context: knarr\n"));
}
