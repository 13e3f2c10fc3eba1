mod documents;
mod layers;

use std::io::Cursor;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use super::import::{Hints, import, import_dir};
use super::unpack::unpack;
use super::*;

type Row<'a> = (&'a str, tar::EntryType, u32, &'a str);

/// A tar of rows: path, kind, mode, contents or link target. Paths are written as they are, also bad ones.
fn archive(rows: &[Row<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, mode, text) in rows {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000);
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        let is_link = kind.is_symlink() || kind.is_hard_link();
        if is_link {
            header.as_gnu_mut().unwrap().linkname[..text.len()].copy_from_slice(text.as_bytes());
        }
        let data = if is_link { &[][..] } else { text.as_bytes() };
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

use tar::EntryType as T;

fn unpacked(rows: &[Row<'_>]) -> (tempfile::TempDir, Result<unpack::Unpacked, ImageError>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    unpack::make_root(&root).unwrap();
    let result = unpack(Cursor::new(archive(rows)), &root);
    (dir, result)
}

#[test]
fn modes_times_and_links_are_kept() {
    let (dir, result) = unpacked(&[
        ("d/", T::Directory, 0o1777, ""),
        ("d/file", T::Regular, 0o4755, "text"),
        ("d/hard", T::Link, 0o644, "d/file"),
        ("soft", T::Symlink, 0o777, "/d/file"),
        ("implied/parent/file", T::Regular, 0o600, "x"),
    ]);
    assert_eq!(result.unwrap().size_bytes, 5);
    let root = dir.path().join("root");
    let file = root.join("d/file").metadata().unwrap();
    assert_eq!((file.permissions().mode() & 0o7777, file.mtime(), file.nlink()), (0o4755, 1_000, 2));
    let d = root.join("d").metadata().unwrap();
    assert_eq!((d.permissions().mode() & 0o7777, d.mtime()), (0o1777, 1_000));
    assert_eq!(fs::read_link(root.join("soft")).unwrap(), Path::new("/d/file"));
    assert!(root.join("implied/parent/file").exists());
}

#[test]
fn no_other_user_of_the_host_reaches_layers_also_of_a_store_that_was_open() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("images");
    fs::create_dir_all(root.join("layers")).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        ImageStore::open(&root).unwrap();
        assert_eq!(root.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    }
}

#[test]
fn nothing_leaves_the_layer() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for rows in [
        &[("../evil", T::Regular, 0o644, "x")][..],
        &[("a/../../evil", T::Regular, 0o644, "x")][..],
        &[("hard", T::Link, 0o644, "../../etc/passwd")][..],
        &[("f", T::Regular, 0o644, "x"), ("f/evil", T::Regular, 0o644, "x")][..],
        &[("l", T::Symlink, 0o777, "l"), ("l/evil", T::Regular, 0o644, "x")][..],
    ] {
        let (dir, result) = unpacked(rows);
        assert!(
            matches!(result, Err(ImageError::Invalid(_) | ImageError::Io { .. })),
            "{rows:?}: {result:?}"
        );
        assert!(!dir.path().join("evil").exists());
    }
    // A link outwards is followed inside.
    let (dir, result) = unpacked(&[
        ("out", T::Symlink, 0o777, target),
        ("out/evil", T::Regular, 0o644, "x"),
        ("/abs", T::Regular, 0o644, "y"),
    ]);
    result.unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(dir.path().join("root").join(target.trim_start_matches('/')).join("evil").exists());
    assert!(dir.path().join("root/abs").exists());
}

#[test]
fn whiteouts_become_what_overlayfs_reads() {
    let (dir, result) = unpacked(&[
        ("d/", T::Directory, 0o755, ""),
        ("d/.wh.gone", T::Regular, 0o644, ""),
        ("d/.wh..wh..opq", T::Regular, 0o644, ""),
    ]);
    result.unwrap();
    let gone = dir.path().join("root/d/gone").metadata().unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(!dir.path().join("root/d/.wh.gone").exists());
}

#[test]
fn whiteouts_that_would_hide_what_is_above_are_refused() {
    for name in [".wh.", ".wh..", ".wh...", "d/.wh..", "d/.wh..."] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("beside"), "x").unwrap();
        let root = dir.path().join("root");
        unpack::make_root(&root).unwrap();
        let rows = [("d/", T::Directory, 0o755, ""), (name, T::Regular, 0o644, "")];
        let result = unpack(Cursor::new(archive(&rows)), &root);
        assert!(result.is_err() && dir.path().join("beside").exists() && root.exists(), "{name}: {result:?}");
    }
    // What AUFS keeps for itself is no whiteout.
    let (dir, result) = unpacked(&[(".wh..wh.plnk/", T::Directory, 0o755, ""), ("x", T::Regular, 0o644, "")]);
    result.unwrap();
    assert_eq!(fs::read_dir(dir.path().join("root")).unwrap().count(), 1);
}

#[test]
fn nodes_long_names_and_attributes_come_as_they_are() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind: T, extensions: &[(&str, &[u8])]| {
        builder.append_pax_extensions(extensions.iter().copied()).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o640);
        header.set_size(0);
        if kind == T::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        builder.append_data(&mut header, path, std::io::empty()).unwrap();
    };
    let long = ["directory"; 30].join("/");
    let longer = format!("{}/file", "n".repeat(200));
    // The file capability `cap_net_raw+ep`: revision 2 and the effective bit, then the sets.
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    add("fifo", T::Fifo, &[]);
    add("null", T::Char, &[]);
    add(&long, T::Regular, &[]);
    add("short", T::Regular, &[("path", longer.as_bytes())]);
    add(
        "ping",
        T::Regular,
        &[("SCHILY.xattr.security.capability", capability), ("SCHILY.xattr.trusted.overlay.opaque", b"y")],
    );
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    unpack::make_root(&root).unwrap();
    unpack(Cursor::new(builder.into_inner().unwrap()), &root).unwrap();
    assert!(root.join("fifo").metadata().unwrap().file_type().is_fifo());
    let null = root.join("null").metadata().unwrap();
    assert!(null.file_type().is_char_device() && null.rdev() == nix::sys::stat::makedev(1, 3));
    assert!(root.join(&long).is_file() && root.join(&longer).is_file());
    let code = "import os, sys; print(os.listxattr(sys.argv[1]), os.getxattr(sys.argv[1], 'security.capability').hex())";
    let output =
        std::process::Command::new("python3").args(["-c", code]).arg(root.join("ping")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("['security.capability'] 0100000200200000"), "{text}");
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let entry = |kind: T, size: u64, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_path("x").unwrap();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size);
        header.set_cksum();
        [header.as_bytes().as_slice(), data].concat()
    };
    let huge = vec![b'x'; 6 << 20];
    for (name, tar) in [
        ("a name of megabytes", entry(T::GNULongName, huge.len() as u64, &huge)),
        ("records of megabytes", entry(T::XHeader, huge.len() as u64, &huge)),
        ("a file larger than is accepted", entry(T::Regular, unpack::LAYER_BYTES_MAX + 1, &[])),
        ("a directory with content beyond measure", entry(T::Directory, u64::MAX >> 2, &[])),
        ("a file larger than the disk", entry(T::Regular, 60 << 40, &[])),
        ("a file that ends too early", entry(T::Regular, 1 << 20, b"x")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        unpack::make_root(&root).unwrap();
        assert!(unpack(Cursor::new(gzip(&tar)), &root).is_err(), "{name}");
    }
}

#[test]
fn directories_that_a_layer_only_implies_are_as_the_layers_below_have_them() {
    let check = |layers: &[&[Row<'_>]], path: &str, expect: Option<u32>| {
        let (_dir, store, random) = store();
        let tars: Vec<Vec<u8>> = layers.iter().map(|rows| archive(rows)).collect();
        let digests: Vec<String> = tars.iter().map(|tar| digest(tar).replace("sha256:", "")).collect();
        for (tar, digest) in tars.iter().zip(&digests) {
            super::import::add_layer(&store, Cursor::new(tar), digest, &random).unwrap();
        }
        let layers = store.with_parents(digests.clone()).unwrap();
        assert_eq!(store.with_parents(layers.clone()).unwrap(), layers, "the same again");
        let added = layers.get(digests.len()).map(|layer| store.layer_dir(layer).join(path));
        let mode = added.and_then(|path| path.metadata().ok()).map(|it| it.permissions().mode() & 0o7777);
        assert_eq!(mode, expect, "{path} of {layers:?}");
    };
    let tmp: Row<'_> = ("tmp/", T::Directory, 0o1777, "");
    let file: Row<'_> = ("tmp/a/file", T::Regular, 0o644, "x");
    check(&[&[tmp], &[file]], "tmp", Some(0o1777));
    check(&[&[tmp], &[file]], "tmp/a", None);
    check(&[&[tmp, ("tmp/a/", T::Directory, 0o700, "")], &[file], &[file]], "tmp/a", Some(0o700));
    check(&[&[tmp], &[tmp, file]], "tmp", None);
    check(&[&[tmp], &[file, tmp]], "tmp", None);
    check(&[&[tmp], &[file], &[("tmp/", T::Directory, 0o755, "")]], "tmp", None);
    check(&[&[tmp], &[(".wh.tmp", T::Regular, 0, "")], &[file]], "tmp", None);
    check(&[&[tmp], &[file], &[(".wh.tmp", T::Regular, 0, "")]], "tmp", None);
    let opaque: Row<'_> = ("tmp/.wh..wh..opq", T::Regular, 0, "");
    check(&[&[tmp], &[opaque, file]], "tmp", Some(0o1777));
    check(&[&[tmp, ("tmp/a/", T::Directory, 0o700, "")], &[opaque, file]], "tmp/a", None);
    check(&[&[("tmp", T::Symlink, 0, "var")], &[file]], "tmp", None);
    check(&[&[file]], "tmp", None);
}

#[test]
fn the_last_tag_of_a_repository_takes_its_digests_along() {
    let (_dir, store, random) = store();
    let named = Hints { name: Some("r.example/a:1".into()), ..Hints::default() };
    let tar = archive(&[("x", T::Regular, 0o644, "y")]);
    let image = import(&store, Cursor::new(tar), &named, &random).unwrap().remove(0);
    let digest = format!("r.example/a@{}", digest(b"m"));
    let names = BTreeSet::from(["r.example/a:2".to_owned(), digest.clone()]);
    store.add(Image { names: names.clone(), pulled: names, ..image }).unwrap();
    store.remove("r.example/a:1", &BTreeSet::new()).unwrap();
    assert!(store.find(&digest).is_some(), "a:2 has it too");
    store.remove("r.example/a:2", &BTreeSet::new()).unwrap();
    assert_eq!(store.list(), []);
}

#[test]
fn nobody_clears_or_collects_what_a_pull_is_at_work_on() {
    let (dir, store, random) = store();
    let named = Hints { name: Some("a".into()), ..Hints::default() };
    let tar = archive(&[("x", T::Regular, 0o644, "y")]);
    let image = import(&store, Cursor::new(tar), &named, &random).unwrap().remove(0);
    let busy = store.busy().unwrap();
    fs::write(dir.path().join("tmp/part"), "x").unwrap();
    ImageStore::open(dir.path()).unwrap();
    assert!(dir.path().join("tmp/part").exists());
    drop(busy);
    let wanted = store.want(&image.layers);
    store.remove("a", &BTreeSet::new()).unwrap();
    store.collect(&BTreeSet::new()).unwrap();
    assert!(store.lower_dirs(&image)[0].exists());
    drop(wanted);
    store.collect(&BTreeSet::new()).unwrap();
    assert!(matches!(store.add_if_whole(image), Err(ImageError::LayersGone)));
    ImageStore::open(dir.path()).unwrap();
    assert!(!dir.path().join("tmp/part").exists());
}

fn store() -> (tempfile::TempDir, ImageStore, base::Random) {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path()).unwrap();
    (dir, store, base::Random::seeded(1))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn digest(bytes: &[u8]) -> String {
    registry::Digest::of(bytes).to_string()
}

fn config_of(layer: &[u8]) -> String {
    serde_json::json!({
        "config": { "Cmd": ["/bin/x"], "Env": null, "User": "7" },
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
    })
    .to_string()
}

#[test]
fn a_docker_archive_becomes_an_image_that_survives_reopening() {
    let (dir, store, random) = store();
    let layer = archive(&[("bin/x", T::Regular, 0o755, "program")]);
    let layer_text = text(&layer);
    let config = config_of(&layer);
    let manifest = r#"[{"Config":"c.json","RepoTags":["a/b:1"],"Layers":["l/layer.tar"]}]"#;
    let tar = archive(&[
        ("l/layer.tar", T::Regular, 0o644, &layer_text),
        ("c.json", T::Regular, 0o644, &config),
        ("manifest.json", T::Regular, 0o644, manifest),
    ]);
    let images = import(&store, Cursor::new(gzip(&tar)), &Hints::default(), &random).unwrap();
    assert_eq!(images[0].config.cmd, ["/bin/x"]);
    assert_eq!(images[0].id, digest(config.as_bytes()));
    drop(store);
    let store = ImageStore::open(dir.path()).unwrap();
    let image = store.find("a/b:1").unwrap();
    assert_eq!(image, images[0]);
    assert_eq!(store.find(&image.id).unwrap(), image);
    assert_eq!(store.find(&image.id[7..19]).unwrap(), image);
    assert!(store.lower_dirs(&image)[0].join("bin/x").exists());
    store.remove("a/b:1", &image.layers.iter().cloned().collect()).unwrap();
    assert!(store.find("a/b:1").is_none());
    assert!(store.lower_dirs(&image)[0].exists(), "a container still needs it");
    store.collect(&image.layers.iter().cloned().collect()).unwrap();
    store.add(image.clone()).unwrap();
    store.collect(&BTreeSet::new()).unwrap();
    assert!(store.lower_dirs(&image)[0].exists(), "an image needs it");
    store.remove(&image.id, &BTreeSet::new()).unwrap();
    assert!(!store.lower_dirs(&image)[0].exists());
    fs::create_dir(dir.path().join("layers/stray")).unwrap();
    store.collect(&BTreeSet::new()).unwrap();
    let left: Vec<_> =
        fs::read_dir(dir.path().join("layers")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    store.remove("a/b:1", &BTreeSet::new()).unwrap();
}

#[test]
fn an_oci_layout_is_read_from_directory_and_tar_for_this_platform() {
    let layer = gzip(&archive(&[("x", T::Regular, 0o644, "y")]));
    let config = config_of(&archive(&[("x", T::Regular, 0o644, "y")]));
    let (layer_digest, config_digest) = (digest(&layer), digest(config.as_bytes()));
    let manifest = serde_json::json!({
        "config": { "digest": config_digest }, "layers": [{ "digest": layer_digest }]
    })
    .to_string();
    let index = serde_json::json!({ "manifests": [
        { "digest": digest(b"none"), "platform": { "os": "windows", "architecture": "amd64" } },
        { "digest": digest(manifest.as_bytes()), "mediaType": "application/vnd.oci.image.manifest.v1+json",
          "annotations": { "org.opencontainers.image.ref.name": "example.com/x:2" } },
    ]})
    .to_string();
    let (dir, store, random) = store();
    let layout = dir.path().join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(layout.join("index.json"), &index).unwrap();
    for blob in [layer.as_slice(), config.as_bytes(), manifest.as_bytes()] {
        fs::write(layout.join("blobs/sha256").join(&digest(blob)[7..]), blob).unwrap();
    }
    let images = import_dir(&store, &layout, &Hints::default(), &random).unwrap();
    assert!(images[0].names.contains("example.com/x:2"));
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all(".", &layout).unwrap();
    let again = import(&store, Cursor::new(tar.into_inner().unwrap()), &Hints::default(), &random).unwrap();
    assert_eq!(again[0].id, images[0].id);
    // A blob that is not what its name says.
    fs::write(layout.join("blobs/sha256").join(&config_digest[7..]), "{}").unwrap();
    let error = import_dir(&store, &layout, &Hints::default(), &random).unwrap_err().to_string();
    assert_eq!(error, format!("invalid image: the blob {config_digest} is damaged"));
}

#[test]
fn broken_archives_are_invalid_and_leave_nothing() {
    let (dir, store, random) = store();
    let named = Hints { name: Some("x".into()), ..Hints::default() };
    let bad_layer = r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}]"#;
    let config = config_of(b"another layer");
    for (name, bytes, hints) in [
        ("text", b"no tar at all".to_vec(), &named),
        ("gzip of nothing", vec![0x1f, 0x8b, 0], &named),
        ("no name", archive(&[("x", T::Regular, 0o644, "y")]), &Hints::default()),
        ("bad manifest", archive(&[("manifest.json", T::Regular, 0o644, "{")]), &named),
        (
            "wrong digest",
            archive(&[
                ("manifest.json", T::Regular, 0o644, bad_layer),
                ("c.json", T::Regular, 0o644, &config),
                ("l.tar", T::Regular, 0o644, ""),
            ]),
            &named,
        ),
    ] {
        let result = import(&store, Cursor::new(bytes), hints, &random);
        assert!(result.is_err(), "{name}");
    }
    assert!(store.list().is_empty());
    drop(store);
    ImageStore::open(dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(dir.path().join("layers")).unwrap().count(), 0);
}

/// Tars in tests hold zeros and ASCII only.
fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
