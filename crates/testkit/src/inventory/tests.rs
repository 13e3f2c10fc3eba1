//! What is left is found, whatever it is: each kind is planted here.

use std::os::unix::net::UnixListener;
use std::process::{Child, Command};

use super::*;

fn inventory(things: &[(Kind, &str)]) -> Inventory {
    let mut inventory = Inventory::default();
    things.iter().for_each(|(kind, name)| inventory.add(*kind, *name));
    inventory
}

#[test]
fn a_leak_is_what_was_not_there_before() {
    type Things<'a> = &'a [(Kind, &'a str)];
    let cases: [(&str, Things<'_>, Things<'_>, &[&str]); 6] = [
        ("nothing", &[], &[], &[]),
        ("the same", &[(Kind::Link, "br0")], &[(Kind::Link, "br0")], &[]),
        ("less", &[(Kind::Link, "br0")], &[], &[]),
        ("more", &[(Kind::Link, "br0")], &[(Kind::Link, "br0"), (Kind::Link, "veth")], &["Link veth"]),
        ("of another kind", &[(Kind::File, "a")], &[(Kind::Socket, "a")], &["Socket a"]),
        (
            "more of one name",
            &[(Kind::Process, "pause")],
            &[(Kind::Process, "pause"), (Kind::Process, "pause"), (Kind::Process, "pause")],
            &["Process pause, 2 times"],
        ),
    ];
    for (name, before, after, expect) in cases {
        assert_eq!(leaks(&inventory(before), &inventory(after)), expect, "{name}");
    }
}

/// Plants one thing; what is returned takes it back when dropped.
type Plant = fn(&Path, &NetNs) -> Box<dyn std::any::Any>;

/// Undone when dropped.
struct Undo<F: FnMut()>(F);

impl<F: FnMut()> Drop for Undo<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn undo(undo: impl FnMut() + 'static) -> Box<dyn std::any::Any> {
    Box::new(Undo(undo))
}

fn ended(mut child: Child) -> Box<dyn std::any::Any> {
    undo(move || {
        child.kill().unwrap();
        child.wait().unwrap();
    })
}

fn sleeper(folder: &Path) -> Child {
    let mut sleeper = Command::new("sh");
    sleeper.args(["-c", "read line", &folder.display().to_string()]).stdin(std::process::Stdio::piped());
    let child = sleeper.spawn().unwrap();
    // Who starts it goes on before the kernel tells others what was started.
    while fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {
        std::thread::yield_now();
    }
    child
}

fn in_namespace(namespace: &NetNs, command: &str) {
    let path = format!(
        "--net=/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(namespace))
    );
    assert!(
        Command::new("nsenter").arg(path).args(["sh", "-c", command]).status().unwrap().success(),
        "{command}"
    );
}

const PLANTS: [(Kind, &str, Plant); 10] = [
    (Kind::Process, "read line", |folder, _| ended(sleeper(folder))),
    (Kind::NetworkNamespace, "net:[", |folder, _| {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "read line", &folder.display().to_string()]);
        let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        // It is in its namespace when it becomes a shell; on the way it has no command line at all.
        while !fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().starts_with(b"sh\0") {
            std::thread::yield_now();
        }
        ended(child)
    }),
    (Kind::Mount, "planted", |folder, _| {
        let target = folder.join("planted");
        fs::create_dir(&target).unwrap();
        sys::mount::tmpfs(&target, None, 0o700).unwrap();
        undo(move || sys::mount::detach(&target).unwrap())
    }),
    (Kind::Link, "planted0", |_, namespace| {
        in_namespace(namespace, "ip link add planted0 type veth peer name planted1");
        undo(|| {})
    }),
    (Kind::Route, "192.0.2.0", |_, namespace| {
        in_namespace(namespace, "ip link set lo up && ip route add 192.0.2.0/24 dev lo");
        undo(|| {})
    }),
    (Kind::Rule, "192.0.2.7", |_, namespace| {
        in_namespace(
            namespace,
            "nft 'add table ip planted; add set ip planted s { type ipv4_addr; elements = { 192.0.2.7 }; }'",
        );
        undo(|| {})
    }),
    (Kind::Lease, "10.42.0.9", |folder, _| {
        fs::write(folder.join("10.42.0.9"), "container").unwrap();
        undo(|| {})
    }),
    (Kind::Socket, "planted.sock", |folder, _| {
        drop(UnixListener::bind(folder.join("planted.sock")).unwrap());
        undo(|| {})
    }),
    (Kind::File, "planted/below", |folder, _| {
        fs::create_dir_all(folder.join("planted/below")).unwrap();
        undo(|| {})
    }),
    (Kind::LoopDevice, "planted.img", |folder, _| {
        let file = folder.join("planted.img");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        sys::loop_device::attach(&file).unwrap();
        undo(move || sys::loop_device::detach(&file).unwrap())
    }),
];

#[test]
fn a_planted_leak_of_each_kind_is_found() {
    for (kind, name, plant) in PLANTS {
        let (folder, namespace) = (tempfile::tempdir().unwrap(), NetNs::anonymous().unwrap());
        let mut seen = Seen::default();
        let mut look = || {
            let ignored = &["log/"];
            let mut inspector =
                Inspector { data_dir: folder.path(), namespace: &namespace, ignored, seen: &mut seen };
            inspector.look().unwrap()
        };
        let before = look();
        let planted = plant(folder.path(), &namespace);
        let found = leaks(&before, &look());
        drop(planted);
        let is_found = |line: &String| line.starts_with(&format!("{kind:?} ")) && line.contains(name);
        assert!(found.iter().any(is_found), "{kind:?}: {found:?}");
    }
}

#[test]
fn a_cgroup_that_outlives_its_processes_is_found() {
    let (folder, namespace) = (tempfile::tempdir().unwrap(), NetNs::anonymous().unwrap());
    let cgroup = format!("/testkit-{}", std::process::id());
    let hierarchies = sys::cgroup::Cgroups::detect().unwrap();
    hierarchies.create(&cgroup).unwrap();
    let child = sleeper(folder.path());
    hierarchies.add_process(&cgroup, i32::try_from(child.id()).unwrap()).unwrap();
    let mut seen = Seen::default();
    let mut look = || {
        let mut inspector =
            Inspector { data_dir: folder.path(), namespace: &namespace, ignored: &[], seen: &mut seen };
        inspector.look().unwrap()
    };
    let running = look();
    assert!(running.count(Kind::Process) == 1 && running.count(Kind::Cgroup) > 0, "{running:?}");
    drop(ended(child));
    let left = leaks(&Inventory::default(), &look());
    hierarchies.remove(&cgroup).unwrap();
    assert!(left.iter().any(|line| line.starts_with("Cgroup") && line.ends_with(&cgroup)), "{left:?}");
}

/// A runtime may make it there and forget it while what it runs is counted elsewhere.
#[test]
fn an_empty_cgroup_is_found_in_every_hierarchy() {
    let (folder, namespace) = (tempfile::tempdir().unwrap(), NetNs::anonymous().unwrap());
    let cgroup = format!("testkit-empty-{}", std::process::id());
    let hierarchies = sys::cgroup::Cgroups::detect().unwrap();
    hierarchies.create(&format!("/{cgroup}")).unwrap();
    let child = sleeper(folder.path());
    hierarchies.add_process(&format!("/{cgroup}"), i32::try_from(child.id()).unwrap()).unwrap();
    let mounts = sys::mount::mounts().unwrap().into_iter();
    let mounts = mounts.filter(|mount| mount.fs_type.starts_with("cgroup")).map(|mount| mount.target);
    let mut seen = Seen::default();
    let mut look = || {
        let mut inspector =
            Inspector { data_dir: folder.path(), namespace: &namespace, ignored: &[], seen: &mut seen };
        inspector.look().unwrap()
    };
    let running = look();
    drop(ended(child));
    for mount in mounts {
        fs::create_dir_all(mount.join(&cgroup).join("planted")).unwrap();
        let left = leaks(&running, &look());
        hierarchies.remove(&format!("/{cgroup}")).unwrap();
        let wanted = mount.join(&cgroup).join("planted").display().to_string();
        assert!(left.iter().any(|line| line.starts_with("Cgroup") && line.ends_with(&wanted)), "{left:?}");
    }
}

#[test]
fn what_is_ignored_is_no_leak() {
    let (folder, namespace) = (tempfile::tempdir().unwrap(), NetNs::anonymous().unwrap());
    fs::create_dir(folder.path().join("log")).unwrap();
    fs::write(folder.path().join("log/a"), "").unwrap();
    let mut inspector = Inspector {
        data_dir: folder.path(),
        namespace: &namespace,
        ignored: &["log/"],
        seen: &mut Seen::default(),
    };
    let found = inspector.look().unwrap();
    assert_eq!(found.count(Kind::File), 1, "the folder, not what is in it: {found:?}");
}

#[test]
fn a_name_of_a_network_namespace_that_outlives_it_is_found() {
    let (folder, namespace) = (tempfile::tempdir().unwrap(), NetNs::anonymous().unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let (kept, name) = (folder.path().join("kept"), elsewhere.path().join("name"));
    let mut seen = Seen::default();
    let mut look = || {
        let mut inspector =
            Inspector { data_dir: folder.path(), namespace: &namespace, ignored: &[], seen: &mut seen };
        inspector.look().unwrap()
    };
    let before = look();
    drop(NetNs::create(&kept).unwrap());
    fs::write(&name, "").unwrap();
    sys::mount::bind(&kept, &name, sys::mount::BindOptions::default()).unwrap();
    look();
    sys::netns::delete(&kept).unwrap();
    assert_eq!(leaks(&before, &look()), [format!("Mount {}", name.display())]);
    sys::netns::delete(&name).unwrap();
    assert!(leaks(&before, &look()).is_empty());
}
