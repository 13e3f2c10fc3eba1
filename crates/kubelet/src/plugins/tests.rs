//! Which plugins are taken in, and which sockets are looked at: `TestValidatePlugin` of upstream's `pkg/volume/csi`,
//! `TestPluginRegistration*` of its `pkg/kubelet/pluginmanager/pluginwatcher`.

use std::os::unix::net::UnixListener;

use super::*;

fn found(type_: &str, name: &str, versions: &[&str]) -> Result<Kind, String> {
    let info = PluginInfo {
        r#type: type_.into(),
        name: name.into(),
        supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        ..PluginInfo::default()
    };
    check(&info).map_err(|error| error.to_string())
}

#[test]
fn a_driver_speaks_some_first_version_of_csi() {
    for (versions, expect) in [
        (&["v1.0.0"][..], true),
        (&["1.0.0"], true),
        (&["0.3.0"], false),
        (&["0.2.0"], false),
        (&["0.2.0", "v0.3.0"], false),
        (&["0.2.0", "v1.0.0"], true),
        (&["0.2.0", "v1.2.3"], true),
        (&["v1.2.3", "v0.3.0"], true),
        (&["v1.2.3", "v0.3.0", "2.0.1"], true),
        (&["v1.2.3", "4.9.12", "v0.3.0", "2.0.1"], true),
        (&["v1.2.3", "boo", "v0.3.0", "2.0.1"], true),
        (&["4.9.12", "2.0.1"], false),
        (&[], false),
        (&["var", "boo", "foo"], false),
        (&[" v1.0"], true),
        (&["1.11.0-rc1"], true),
        (&["1"], false),
        (&["v1."], false),
        (&["1.x"], false),
        (&["vv1.0"], false),
        (&["11.0"], false),
        (&["10.1"], false),
        (&[""], false),
    ] {
        let told =
            format!("failed to get driver version: none of the driver's versions {versions:?} is supported");
        let expect = if expect { Ok(Kind::Csi) } else { Err(told) };
        assert_eq!(found("CSIPlugin", "test.plugin", versions), expect);
    }
}

#[test]
fn plugins_are_of_kinds_that_somebody_takes() {
    for (type_, name, versions, expect) in [
        ("CSIPlugin", "test.plugin", &["1.0.0"][..], Ok(Kind::Csi)),
        // What a driver of devices speaks is known where it is taken in.
        ("DRAPlugin", "gpu.example.com", &[], Ok(Kind::Dra)),
        ("DevicePlugin", "example.com/gpu", &["v1beta1"], Ok(Kind::Device)),
        (
            "DevicePlugin",
            "gpu",
            &["v1beta1"],
            Err("invalid name of device plugin socket: the ResourceName \"gpu\" is invalid"),
        ),
        ("Other", "x", &["1.0.0"], Err("no handler registered for plugin type: Other at socket")),
        ("csiplugin", "x", &["1.0.0"], Err("no handler registered for plugin type: csiplugin at socket")),
        ("", "x", &["1.0.0"], Err("no handler registered for plugin type:  at socket")),
    ] {
        assert_eq!(found(type_, name, versions), expect.map_err(str::to_owned), "{type_} {name}");
    }
    assert_eq!(
        [Kind::Csi, Kind::Dra, Kind::Device].map(Kind::name),
        ["CSIPlugin", "DRAPlugin", "DevicePlugin"]
    );
}

fn sockets(folder: &Path, depth: usize) -> std::io::Result<Vec<String>> {
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mut found = BTreeMap::new();
    walk(&watch, folder, depth, &mut found)?;
    let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    Ok(found.keys().map(name).collect())
}

#[test]
fn sockets_are_found_wherever_they_are_below_the_folder_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("plugins_registry");
    let outside = folder.path().join("outside");
    for path in [&root.join("driver/deep"), &root.join(".hidden"), &outside] {
        std::fs::create_dir_all(path).unwrap();
    }
    let sockets_at =
        |paths: &[PathBuf]| paths.iter().map(|path| UnixListener::bind(path).unwrap()).collect::<Vec<_>>();
    let kept = sockets_at(&[
        root.join("a.sock"),
        root.join("driver/b.sock"),
        root.join("driver/deep/c.sock"),
        root.join(".d.sock"),
        root.join(".hidden/e.sock"),
        outside.join("f.sock"),
    ]);
    std::fs::write(root.join("file"), "no socket").unwrap();
    std::os::unix::fs::symlink(outside.join("f.sock"), root.join("link.sock")).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    assert_eq!(sockets(&root, DEPTH_MAX).unwrap(), ["a.sock", "driver/b.sock", "driver/deep/c.sock"]);
    assert_eq!(sockets(&root, 1).unwrap(), ["a.sock", "driver/b.sock"], "no deeper than that");
    assert_eq!(sockets(&root, 0).unwrap(), ["a.sock"]);
    drop(kept);
    assert_eq!(sockets(&root, 0).unwrap(), ["a.sock"], "whoever listens there is asked");
    std::fs::remove_file(root.join("a.sock")).unwrap();
    assert!(sockets(&root, 0).unwrap().is_empty());
    assert!(sockets(&root.join("none"), 0).is_err_and(|error| is_gone(&error)));
    assert!(sockets(&root.join("file"), 0).is_err_and(|error| is_gone(&error)));
}

#[test]
fn a_socket_in_anothers_place_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let identity = || {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
        let mut found = BTreeMap::new();
        walk(&watch, folder.path(), 0, &mut found).unwrap();
        found.remove(&path)
    };
    let first = UnixListener::bind(&path).unwrap();
    let before = identity();
    assert_eq!(identity(), before, "as long as it is there");
    drop(first);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(identity(), None);
    // It may have the same number, but it is younger.
    let _second = UnixListener::bind(&path).unwrap();
    assert!(identity().is_some() && identity() != before);
}
