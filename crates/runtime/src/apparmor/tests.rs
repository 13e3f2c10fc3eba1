use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn asks(kind: ProfileType, reference: &str) -> v1::LinuxContainerSecurityContext {
    let profile = v1::SecurityProfile { profile_type: kind.into(), localhost_ref: reference.into() };
    v1::LinuxContainerSecurityContext { apparmor: Some(profile), ..Default::default() }
}

#[expect(deprecated, reason = "what is tested")]
fn asks_as_of_old(text: &str) -> v1::LinuxContainerSecurityContext {
    v1::LinuxContainerSecurityContext { apparmor_profile: text.into(), ..Default::default() }
}

fn said<T>(decided: Result<T, Refusal>) -> Result<T, String> {
    decided.map_err(|refusal| base::error_chain(&refusal))
}

#[test]
fn what_a_container_gets_depends_on_what_it_asks_for_and_the_host_has() {
    use Decision::{Default, Named, Unconfined};
    use ProfileType::{Localhost, RuntimeDefault};
    let nothing = v1::LinuxContainerSecurityContext::default();
    let privileged = |context| v1::LinuxContainerSecurityContext { privileged: true, ..context };
    let named = || Ok(Named("of-host".to_owned()));
    let no = "apparmor is not supported";
    let both = v1::LinuxContainerSecurityContext {
        apparmor: asks(ProfileType::Unconfined, "").apparmor,
        ..asks_as_of_old("runtime/default")
    };
    for (what, context, with, without) in [
        ("nothing", nothing.clone(), Ok(Default), Ok(Unconfined)),
        ("unconfined", asks(ProfileType::Unconfined, ""), Ok(Unconfined), Ok(Unconfined)),
        ("default", asks(RuntimeDefault, ""), Ok(Default), Err(no)),
        ("of the host", asks(Localhost, "of-host"), named(), Err(no)),
        ("with its prefix", asks(Localhost, "localhost/of-host"), named(), Err(no)),
        ("not loaded", asks(Localhost, "of"), Err("apparmor profile not found of"), Err(no)),
        ("no name", asks(Localhost, ""), Err("nil apparmor profile is not supported"), Err(no)),
        (
            "a name too many",
            asks(RuntimeDefault, "x"),
            Err("apparmor config invalid LocalhostRef must only be set if ProfileType is Localhost"),
            Err(no),
        ),
        ("nothing, privileged", privileged(nothing), Ok(Unconfined), Ok(Unconfined)),
        ("default, privileged", privileged(asks(RuntimeDefault, "")), Ok(Unconfined), Err(no)),
        ("of the host, privileged", privileged(asks(Localhost, "of-host")), named(), Err(no)),
        ("old: default", asks_as_of_old("runtime/default"), Ok(Default), Err(no)),
        ("old: unconfined", asks_as_of_old("unconfined"), Ok(Unconfined), Ok(Unconfined)),
        ("old: of the host", asks_as_of_old("localhost/of-host"), named(), Err(no)),
        ("old: no prefix", asks_as_of_old("x"), Err("invalid profile \"x\""), Err("invalid profile \"x\"")),
        ("the new field wins", both, Ok(Unconfined), Ok(Unconfined)),
    ] {
        let host = Host { is_enabled: true, loaded: vec!["other".into(), "of-host".into()] };
        assert_eq!(said(decide(&context, &host)), with.map_err(str::to_owned), "{what}");
        let found = said(decide(&context, &Host::default()));
        assert_eq!(found, without.map_err(str::to_owned), "{what}, without");
    }
}

/// A host with AppArmor whose parser is `script`.
fn host(script: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text, mode) in [
        ("sys/module/apparmor/parameters/enabled", "Y\n", 0o644),
        (LOADED, "/usr/bin/man (enforce)\nwith a blank (complain)\n", 0o644),
        ("proc/self/attr/current", "knarr (enforce)\n", 0o644),
        ("etc/apparmor.d/abi/3.0", "", 0o644),
        (PARSER, script, 0o755),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    root
}

#[test]
fn the_default_profile_is_loaded_once() {
    let script = "#!/bin/sh\ncd \"${0%/*}/..\"\necho \"$@\" >> calls\ncat > given\n\
                  echo 'cri-containerd.apparmor.d (enforce)' >> sys/kernel/security/apparmor/profiles\n";
    let root = host(script);
    let nothing = v1::LinuxContainerSecurityContext::default();
    for _ in 0..2 {
        assert_eq!(said(profile(&nothing, root.path())), Ok(Some(DEFAULT.to_owned())));
    }
    assert_eq!(fs::read_to_string(root.path().join("calls")).unwrap(), "--replace --skip-cache\n");
    let given = fs::read_to_string(root.path().join("given")).unwrap();
    assert!(given.starts_with("abi <abi/3.0>,\n@{PROC}=/proc/\n"), "{given}");
    assert!(given.contains("signal receive peer=\"knarr\",") && !given.contains("#include"), "{given}");
    let named = profile(&asks(ProfileType::Localhost, "with a blank"), root.path());
    assert_eq!(said(named), Ok(Some("with a blank".to_owned())));
}

#[test]
fn a_host_whose_parser_fails_or_is_missing_is_told_of() {
    let nothing = v1::LinuxContainerSecurityContext::default();
    let root = host("#!/bin/sh\necho 'syntax error' >&2\nexit 1\n");
    let error = said(profile(&nothing, root.path())).unwrap_err();
    let expect =
        "load apparmor profile cri-containerd.apparmor.d: sbin/apparmor_parser: exit status: 1: syntax error";
    assert_eq!(error, expect);
    fs::remove_file(root.path().join(PARSER)).unwrap();
    assert_eq!(said(profile(&nothing, root.path())), Ok(None));
    let asked = asks(ProfileType::RuntimeDefault, "");
    assert_eq!(said(profile(&asked, root.path())), Err("apparmor is not supported".to_owned()));
}
