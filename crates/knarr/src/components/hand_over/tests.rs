use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A data directory that everybody may enter, and a file of root's beside it.
fn layout() -> (tempfile::TempDir, Layout) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(dir.path().join("victim"), "root's").unwrap();
    fs::create_dir(dir.path().join("victims")).unwrap();
    fs::write(dir.path().join("victims/one"), "root's").unwrap();
    let layout = Layout::new(&dir.path().join("data")).unwrap();
    (dir, layout)
}

fn owner(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

#[test]
fn what_root_puts_there_is_given_and_nothing_else() {
    let (dir, layout) = layout();
    prepare(&layout).unwrap();
    let (server, victim) = (layout.server(), dir.path().join("victim"));
    fs::create_dir_all(server.join("tls/deep")).unwrap();
    let own = ["tls", "tls/deep", "tls/deep/file", "db.made"];
    fs::write(server.join("tls/deep/file"), "").unwrap();
    fs::write(server.join("db.made"), "").unwrap();
    symlink(&victim, server.join("link")).unwrap();
    symlink(dir.path().join("victims"), server.join("folder")).unwrap();
    symlink("/proc/self/root", server.join("magic")).unwrap();
    symlink("loop", server.join("loop")).unwrap();
    fs::hard_link(&victim, server.join("hard")).unwrap();
    nix::unistd::mkfifo(&server.join("fifo"), Mode::S_IRWXU).unwrap();
    fs::write(server.join("setuid"), "").unwrap();
    fs::set_permissions(server.join("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(server.join("others"), "").unwrap();
    chown(server.join("others"), Some(1000), Some(1000)).unwrap();
    prepare(&layout).unwrap();
    for name in own {
        assert_eq!(owner(&server.join(name)), CONTROL_PLANE_UID, "{name}");
    }
    for name in ["link", "folder", "magic", "loop", "hard", "fifo", "setuid"] {
        assert_eq!(owner(&server.join(name)), 0, "{name}");
    }
    assert_eq!(owner(&server.join("others")), 1000);
    for path in ["victim", "victims", "victims/one"] {
        assert_eq!(owner(&dir.path().join(path)), 0, "{path}");
    }
    assert_eq!(fs::metadata(&server).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_folder_that_is_a_link_or_somebodys_is_refused() {
    let (dir, layout) = layout();
    fs::create_dir(layout.root()).unwrap();
    symlink(dir.path().join("victims"), layout.server()).unwrap();
    assert!(prepare(&layout).is_err());
    assert_eq!(owner(&dir.path().join("victims")), 0);
    fs::remove_file(layout.server()).unwrap();
    fs::create_dir(layout.server()).unwrap();
    chown(layout.server(), Some(1000), None).unwrap();
    let said = prepare(&layout).unwrap_err().to_string();
    assert!(said.contains("belongs to user 1000"), "{said}");
}

#[test]
fn names_that_change_on_the_way_lead_nowhere() {
    let (dir, layout) = layout();
    prepare(&layout).unwrap();
    let (server, victims) = (layout.server(), dir.path().join("victims"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            as_control_plane(|| {
                let name = server.join("name");
                while !is_over.load(Ordering::Relaxed) {
                    fs::create_dir(&name)?;
                    fs::remove_dir(&name)?;
                    symlink(&victims, &name)?;
                    fs::remove_file(&name)?;
                    symlink(victims.join("one"), &name)?;
                    fs::remove_file(&name)?;
                }
                Ok(())
            })
            .unwrap();
        });
        for _ in 0..3000 {
            // It may be gone, or something else by now: an error, and nothing done.
            if let Err(error) = take_in_new(&layout) {
                assert!(format!("{error:#}").contains("hand over"), "{error:#}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!((owner(&victims), owner(&victims.join("one"))), (0, 0));
}

#[test]
fn work_in_the_folder_goes_no_further_than_its_user_could() {
    let (dir, layout) = layout();
    prepare(&layout).unwrap();
    let (server, victim) = (layout.server(), dir.path().join("victim"));
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(dir.path().join("victims"), server.join("tls")).unwrap();
    symlink(&victim, server.join("ca.key.new")).unwrap();
    // The file beside which a new one is made is a link: it is replaced, not followed.
    let write = |path: &str| {
        let path = server.join(path);
        as_control_plane(|| Ok(auth::pki::write_file(&path, b"key", 0o600)?))
    };
    write("ca.key").unwrap();
    assert!(write("tls/ca.key").is_err(), "the folder is a link to one of root's");
    assert_eq!(fs::read(&victim).unwrap(), b"root's");
    assert_eq!(owner(&server.join("ca.key")), CONTROL_PLANE_UID);
    assert!(!dir.path().join("victims/ca.key").exists());
}

#[test]
fn a_closed_folder_on_the_way_is_named() {
    let (dir, layout) = layout();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let said = prepare(&layout).unwrap_err().to_string();
    let way = dir.path().display();
    assert!(
        said.contains(&format!("may not enter {way} (mode 0700): allow it with `chmod o+x {way}`")),
        "{said}"
    );
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    prepare(&layout).unwrap();
}
