//! Upstream's cases for what is written all at once: `TestWriteOnce`, `TestUpdate`, `TestMultipleUpdates`, `TestPathsToRemove`,
//! `TestCreateUserVisibleFiles` and `TestWriteAgainAfterUnexpectedExit` of its `pkg/volume/util`.

use std::os::unix::fs::MetadataExt;

use super::*;

/// Sets of files, one after the other: `path=text:mode`.
const SETS: &str = include_str!("tests/sets.txt");

fn files(set: &str) -> BTreeMap<String, File> {
    let one = |text: &str| {
        let (path, rest) = text.split_once('=').unwrap();
        let (data, mode) = rest.split_once(':').unwrap_or((rest, "644"));
        let mode = u32::from_str_radix(mode, 8).unwrap();
        (path.to_owned(), File { data: data.into(), mode, owner: None })
    };
    set.split_whitespace().map(one).collect()
}

/// What is seen through the visible names.
fn seen(dir: &Path) -> BTreeMap<String, File> {
    fn look(dir: &Path, prefix: &str, found: &mut BTreeMap<String, File>) {
        for entry in fs::read_dir(dir.join(prefix)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if prefix.is_empty() && name.starts_with("..") {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let metadata = fs::metadata(dir.join(&path)).unwrap();
            if metadata.is_dir() {
                look(dir, &path, found);
            } else {
                let data = fs::read(dir.join(&path)).unwrap();
                found.insert(path, File { data, mode: metadata.mode() & 0o7777, owner: None });
            }
        }
    }
    let mut found = BTreeMap::new();
    look(dir, "", &mut found);
    found
}

/// Visible names with what they lead to, and how many sets are kept.
fn layout(dir: &Path) -> (BTreeMap<String, String>, usize) {
    let (mut links, mut sets) = (BTreeMap::new(), 0);
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match fs::read_link(entry.path()) {
            Ok(to) if !name.starts_with("..") => {
                links.insert(name, to.display().to_string());
            }
            Ok(_) => assert_eq!(name, DATA),
            Err(_) => sets += 1,
        }
    }
    (links, sets)
}

#[test]
fn a_volume_holds_exactly_the_set_that_was_written_last() {
    for row in SETS.lines().filter(|row| !row.is_empty() && !row.starts_with('#')) {
        let (name, sets) = row.split_once('|').unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut before: Option<(BTreeMap<String, File>, std::path::PathBuf)> = None;
        for (number, set) in sets.split('|').enumerate() {
            let files = files(set);
            write(dir.path(), &files, None).unwrap();
            assert_eq!(seen(dir.path()), files, "{name}, set {number}");
            let (links, kept) = layout(dir.path());
            let tops: BTreeSet<_> =
                files.keys().map(|path| path.split('/').next().unwrap().to_owned()).collect();
            let expect = tops.into_iter().map(|top| (top.clone(), format!("..data/{top}"))).collect();
            assert_eq!((links, kept), (expect, 1), "{name}, set {number}");
            let current = fs::read_link(dir.path().join(DATA)).unwrap();
            if let Some((old, link)) = &before {
                assert_eq!(
                    *old == files,
                    *link == current,
                    "{name}, set {number}: written only if it is another"
                );
            }
            before = Some((files, current));
        }
    }
}

#[test]
fn what_a_kill_left_is_finished_with_the_next_write() {
    type Left = fn(&Path);
    let left: [(&str, Left); 4] = [
        ("no links yet", |dir| {
            fs::remove_file(dir.join("foo")).unwrap();
            fs::remove_file(dir.join("bar")).unwrap();
        }),
        ("one link", |dir| fs::remove_file(dir.join("foo")).unwrap()),
        ("a set that was never used", |dir| {
            fs::create_dir_all(dir.join("..v9/sub")).unwrap();
            fs::write(dir.join("..v9/sub/foo"), "half").unwrap();
        }),
        ("a link that was not moved", |dir| symlink("..v9", dir.join(DATA_NEW)).unwrap()),
    ];
    for (name, leave) in left {
        for next in ["foo=foo bar=bar", "foo=foo2 bar=bar2 add/new=n"] {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &files("foo=foo bar=bar"), None).unwrap();
            leave(dir.path());
            write(dir.path(), &files(next), None).unwrap();
            assert_eq!(seen(dir.path()), files(next), "{name}, then {next}");
            assert!(!dir.path().join("..v9").exists(), "{name}, then {next}");
        }
    }
    assert!(write(Path::new("/none/such"), &files("a=b"), None).is_err(), "there is no volume");
}

#[test]
fn a_link_that_leads_elsewhere_is_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
    fs::create_dir(&volume).unwrap();
    fs::write(&outside, "mine").unwrap();
    // As a container with a writable mount of the volume could leave it.
    symlink(&outside, volume.join("foo")).unwrap();
    symlink(&outside, volume.join("gone")).unwrap();
    symlink(&outside, volume.join(DATA_NEW)).unwrap();
    write(&volume, &files("foo=foo"), None).unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
    assert!(fs::symlink_metadata(volume.join("gone")).is_err());
}

/// Source: `SetVolumeOwnership` of upstream's `pkg/volume`, for volumes that are only read.
#[test]
fn the_pods_group_reads_files_and_enters_folders() {
    assert!(nix::unistd::geteuid().is_root(), "this test changes owners: run it as root");
    let dir = tempfile::tempdir().unwrap();
    let set = files("plain=a:400 deep/down/file=b:644 deep/run=c:755");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    write(dir.path(), &set, Some(2000)).unwrap();
    for (path, mode) in [
        ("", 0o2777),
        ("..data/", 0o2755),
        ("plain", 0o440),
        ("deep", 0o2755),
        ("deep/down", 0o2755),
        ("deep/down/file", 0o644),
        ("deep/run", 0o755),
    ] {
        let found = fs::metadata(dir.path().join(path)).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o7777), (2000, mode), "{path}");
    }
    let current = fs::read_link(dir.path().join(DATA)).unwrap();
    write(dir.path(), &set, Some(2000)).unwrap();
    assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), current, "nothing is written anew");
}
