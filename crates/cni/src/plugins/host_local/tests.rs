use super::*;

fn open_with(dir: &tempfile::TempDir, ipam: Value) -> HostLocal {
    HostLocal::open(range::parse(&ipam).unwrap(), dir.path().join("net")).unwrap()
}

fn open(dir: &tempfile::TempDir) -> HostLocal {
    open_with(dir, json!({ "subnet": "10.42.0.0/29" }))
}

fn both(dir: &tempfile::TempDir) -> HostLocal {
    open_with(dir, json!({ "ranges": [[{ "subnet": "10.42.0.0/29" }], [{ "subnet": "fd42::/64" }]] }))
}

/// The addresses with spaces between them, or the error.
fn reserve(ipam: &HostLocal, id: &str, wanted: &[&str]) -> String {
    let wanted = wanted.iter().map(|ip| ip.parse().unwrap()).collect();
    match ipam.reserve(id, "eth0", wanted) {
        Ok(ips) => ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

/// The names of the files in the folder.
fn files(dir: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path().join("net")).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn addresses_are_unique_survive_a_restart_and_are_used_again_last() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2");
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3");
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2", "the same Pod keeps its address");
    ipam.release("a", "eth0").unwrap();
    ipam.release("a", "eth0").unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3");
    let more: Vec<String> = (0..4).map(|n| reserve(&ipam, &format!("c{n}"), &[])).collect();
    assert_eq!(more, ["10.42.0.4", "10.42.0.5", "10.42.0.6", "10.42.0.2"]);
    assert_eq!(
        reserve(&ipam, "d", &[]),
        "failed to allocate for range 0: no IP addresses available in range set: 10.42.0.1-10.42.0.6"
    );
    let keep = Attached { containers: ["b".to_owned()].into(), ..Attached::default() };
    assert_eq!(ipam.owners_beside(&keep).len(), 4);
    ipam.retain(&keep).unwrap();
    assert_eq!(reserve(&ipam, "d", &[]), "10.42.0.4");
}

#[test]
fn an_address_that_is_wished_for_is_given_unless_it_is_taken_or_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "a", &["10.42.0.5"]), "10.42.0.5");
    let of_set = "failed to allocate for range 0: requested";
    for (ip, says) in [
        (
            "10.42.0.5",
            format!("{of_set} IP address 10.42.0.5 is not available in range set 10.42.0.1-10.42.0.6"),
        ),
        ("10.42.0.1", format!("{of_set} ip 10.42.0.1 is subnet's gateway")),
        ("10.42.0.7", "failed to allocate all requested IPs: 10.42.0.7".to_owned()),
        ("fd42::7", "failed to allocate all requested IPs: fd42::7".to_owned()),
    ] {
        assert_eq!(reserve(&ipam, "b", &[ip]), says);
    }
    assert!(
        !files(&dir).contains(&"10.42.0.2".to_owned()),
        "what was given with a wish that failed is free again"
    );
    assert_eq!(reserve(&ipam, "c", &[]), "10.42.0.4");
}

#[test]
fn each_set_gives_an_address_and_has_files_as_upstream_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = both(&dir);
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2");
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2", "twice");
    assert_eq!(reserve(&ipam, "b", &["fd42::b"]), "10.42.0.3 fd42::b");
    let last = ["last_reserved_ip.0", "last_reserved_ip.1"];
    let ips = ["10.42.0.2", "10.42.0.3"];
    assert_eq!(files(&dir), [&ips[..], &["fd42::2", "fd42::b"], &last].concat());
    let read = |name: &str| fs::read_to_string(dir.path().join("net").join(name)).unwrap();
    assert_eq!(["fd42::b", last[0], last[1]].map(read), ["b\r\neth0", "10.42.0.3", "fd42::2"]);
    let ipam = both(&dir);
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3 fd42::b", "after a restart");
    ipam.release("a", "eth0").unwrap();
    assert_eq!(reserve(&ipam, "c", &[]), "10.42.0.4 fd42::3");
    assert_eq!(ipam.release("c", "eth0").unwrap().len(), 2);
}

#[test]
fn a_set_that_is_exhausted_takes_nothing_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let ipam =
        open_with(&dir, json!({ "ranges": [[{ "subnet": "10.42.0.0/24" }], [{ "subnet": "fd42::/126" }]] }));
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2");
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3 fd42::3");
    let none = "failed to allocate for range 1: no IP addresses available in range set: fd42::1-fd42::3";
    assert_eq!(reserve(&ipam, "c", &[]), none);
    assert!(!files(&dir).contains(&"10.42.0.4".to_owned()));
    let more = open_with(
        &dir,
        json!({ "ranges": [[{ "subnet": "10.42.0.0/24" }], [
        { "subnet": "fd42::/126" }, { "subnet": "fd43::/126" },
    ]] }),
    );
    assert_eq!(reserve(&more, "c", &[]), "10.42.0.5 fd43::2", "the next range of the set");
}

#[test]
fn a_pod_of_before_gets_an_address_of_the_family_that_its_node_has_now() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(reserve(&open(&dir), "a", &[]), "10.42.0.2");
    assert_eq!(reserve(&both(&dir), "a", &[]), "10.42.0.2 fd42::2");
}

#[test]
fn what_a_crash_left_of_a_reservation_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    let files = ["gone-eth0.new", "here-eth0.new"].map(|name| dir.path().join("net").join(name));
    files.iter().for_each(|file| fs::write(file, "half").unwrap());
    ipam.retain(&Attached { containers: ["here".to_owned()].into(), ..Attached::default() }).unwrap();
    assert_eq!(files.map(|file| file.exists()), [false, true], "a Pod that is there may be at it");
}
