//! What entries of one layer come to together. Source: OCI image specification, "layer.md"; cases of containerd's
//! `archive` tests.

use super::*;

const FILE: T = T::Regular;
const DIR: T = T::Directory;
const SOFT: T = T::Symlink;
const HARD: T = T::Link;

/// Everything below a folder: a file with its text, a link with its target, a folder with `/`, and `!` for what is hidden.
fn listed(root: &Path, folder: &Path, found: &mut Vec<String>) {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let kind = path.symlink_metadata().unwrap();
        if kind.is_dir() {
            let hides = if sys::overlayfs::is_opaque(&path).unwrap() { "/!" } else { "/" };
            found.push(format!("{name}{hides}"));
            listed(root, &path, found);
        } else if kind.is_symlink() {
            found.push(format!("{name}>{}", fs::read_link(&path).unwrap().display()));
        } else if kind.file_type().is_char_device() {
            assert_eq!(kind.rdev(), 0);
            found.push(format!("!{name}"));
        } else {
            found.push(format!("{name}={}", fs::read_to_string(&path).unwrap()));
        }
    }
}

fn check(name: &str, rows: &[(&str, T, &str)], expect: Option<&str>) {
    let rows: Vec<Row<'_>> = rows.iter().map(|(path, kind, text)| (*path, *kind, 0o755, *text)).collect();
    let (dir, result) = unpacked(&rows);
    let found = result.ok().map(|_| {
        let (root, mut found) = (dir.path().join("root"), Vec::new());
        listed(&root, &root, &mut found);
        found.join(" ")
    });
    assert_eq!(found.as_deref(), expect, "{name}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{name}: nothing is beside the layer");
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    check("a file below", &[("a/", DIR, ""), ("a/.wh.x", FILE, "")], Some("a/ !a/x"));
    check("its own folder is only implied", &[("a/.wh.x", FILE, "")], Some("a/ !a/x"));
    check("twice", &[(".wh.x", FILE, ""), (".wh.x", FILE, "")], Some("!x"));
    check("a file that comes after it", &[(".wh.x", FILE, ""), ("x", FILE, "new")], Some("x=new"));
    check("a file that comes before it", &[("x", FILE, "new"), (".wh.x", FILE, "")], Some("x=new"));
    check("a link that comes before it", &[("x", SOFT, "y"), (".wh.x", FILE, "")], Some("x>y"));
    check("a folder that comes after it", &[(".wh.d", FILE, ""), ("d/", DIR, "")], Some("d/!"));
    check(
        "a folder that comes before it",
        &[("d/", DIR, ""), ("d/f", FILE, "1"), (".wh.d", FILE, "")],
        Some("d/! d/f=1"),
    );
    check("a folder that is implied after it", &[(".wh.d", FILE, ""), ("d/f", FILE, "1")], Some("d/! d/f=1"));
    check(
        "a folder that is implied before it",
        &[("d/f", FILE, "1"), (".wh.d", FILE, "")],
        Some("d/! d/f=1"),
    );
    check(
        "all that is below a folder, whenever it is said",
        &[("d/f", FILE, "1"), ("d/.wh..wh..opq", FILE, ""), ("d/g", FILE, "2")],
        Some("d/! d/f=1 d/g=2"),
    );
    check("all that is below", &[(".wh..wh..opq", FILE, ""), ("f", FILE, "1")], Some("f=1"));
    check(
        "by way of a link",
        &[("d/", DIR, ""), ("l", SOFT, "d"), ("l/.wh.x", FILE, "")],
        Some("d/ !d/x l>d"),
    );
    check("with text in it", &[(".wh.x", FILE, "not read")], Some("!x"));
    check("as a folder", &[(".wh.x/", DIR, "")], Some("!x"));
    check(
        "a name that only looks like one",
        &[("x.wh.y", FILE, "1"), (".whx", FILE, "2")],
        Some(".whx=2 x.wh.y=1"),
    );
    check("what AUFS keeps", &[(".wh..wh.aufs", FILE, ""), (".wh..wh.orph/", DIR, "")], Some(""));
    check("below what it hides", &[(".wh.a", FILE, ""), ("a/.wh.b", FILE, "")], Some("a/! !a/b"));
}

#[test]
fn the_last_entry_of_a_path_counts() {
    check("a file twice", &[("x", FILE, "1"), ("x", FILE, "2")], Some("x=2"));
    check("a folder for a file", &[("x", FILE, "1"), ("x/", DIR, "")], Some("x/"));
    check("a file for a folder", &[("x/", DIR, ""), ("x/y", FILE, "1"), ("x", FILE, "2")], Some("x=2"));
    check(
        "a folder twice keeps what is in it",
        &[("x/", DIR, ""), ("x/y", FILE, "1"), ("x/", DIR, "")],
        Some("x/ x/y=1"),
    );
    check("a link for a file", &[("x", FILE, "1"), ("x", SOFT, "y")], Some("x>y"));
    check(
        "a file for a link, and not through it",
        &[("y", FILE, "1"), ("x", SOFT, "y"), ("x", FILE, "2")],
        Some("x=2 y=1"),
    );
    check(
        "a folder for a link",
        &[("d/", DIR, ""), ("x", SOFT, "d"), ("x/", DIR, ""), ("x/f", FILE, "1")],
        Some("d/ x/ x/f=1"),
    );
    check("a link for a folder", &[("x/", DIR, ""), ("x/f", FILE, "1"), ("x", SOFT, "y")], Some("x>y"));
    check(
        "hard links stay apart from what replaces one",
        &[("a", FILE, "1"), ("b", HARD, "a"), ("a", FILE, "2")],
        Some("a=2 b=1"),
    );
    check("a hard link to a link", &[("a", SOFT, "nowhere"), ("b", HARD, "a")], Some("a>nowhere b>nowhere"));
    check("a hard link to what is not there", &[("b", HARD, "a")], None);
    check("a hard link to itself", &[("a", FILE, "1"), ("a", HARD, "a")], None);
    check("a hard link to a folder", &[("a/", DIR, ""), ("b", HARD, "a")], None);
    check("a link to nothing", &[("a", SOFT, "")], None);
}

#[test]
fn paths_are_those_of_the_layer_however_they_are_written() {
    check(
        "with a slash before and dots in them",
        &[("/a", FILE, "1"), ("./b", FILE, "2"), ("c/./d", FILE, "3")],
        Some("a=1 b=2 c/ c/d=3"),
    );
    check("slashes in a row", &[("a//b///c", FILE, "1")], Some("a/ a/b/ a/b/c=1"));
    check("the root itself", &[("./", DIR, ""), ("/", DIR, ""), ("a", FILE, "1")], Some("a=1"));
    check("through a link to the root", &[("l", SOFT, "/"), ("l/a", FILE, "1")], Some("a=1 l>/"));
    check(
        "through a link that leads up and out",
        &[("d/l", SOFT, "../../../x"), ("d/l/a", FILE, "1")],
        Some("d/ d/l>../../../x x/ x/a=1"),
    );
    check(
        "through two links",
        &[("b", SOFT, "a"), ("c", SOFT, "b/x"), ("c/f", FILE, "1")],
        Some("a/ a/x/ a/x/f=1 b>a c>b/x"),
    );
    check("through links in a circle", &[("a", SOFT, "b"), ("b", SOFT, "a"), ("a/f", FILE, "1")], None);
    check("through a file", &[("a", FILE, "1"), ("a/f", FILE, "2")], None);
    check("through a link to a file", &[("a", FILE, "1"), ("l", SOFT, "a"), ("l/f", FILE, "2")], None);
    check("up and out", &[("d/../../a", FILE, "1")], None);
    check("up and in again", &[("d/../a", FILE, "1")], None);
    check("a hard link out", &[("a", HARD, "/../etc/passwd")], None);
    check(
        "a hard link by way of a link",
        &[("d/f", FILE, "1"), ("l", SOFT, "/d"), ("h", HARD, "l/f")],
        Some("d/ d/f=1 h=1 l>/d"),
    );
}
