//! Whole documents, by the places that a row is about. Source: cases of containerd's `container_create_linux_test.go`; the OCI
//! runtime specification, "config.md" and "config-linux.md".

use super::*;
use crate::cgroup_view;

/// Everything that a document is made of, as a plain container has it.
struct Asked {
    config: v1::ContainerConfig,
    context: v1::LinuxContainerSecurityContext,
    resources: v1::LinuxContainerResources,
    image: ImageConfig,
    pid: PidNamespace,
    userns: Option<PathBuf>,
    apparmor: Option<String>,
    view: Vec<(String, PathBuf)>,
    devices: Vec<HostDevice>,
    is_cgroup_v2: bool,
    is_external: bool,
}

fn made(change: fn(&mut Asked)) -> Result<Value, String> {
    let mut asked = Asked {
        config: v1::ContainerConfig { command: strings(&["run"]), ..Default::default() },
        context: v1::LinuxContainerSecurityContext::default(),
        resources: v1::LinuxContainerResources::default(),
        image: ImageConfig::default(),
        pid: PidNamespace::Own,
        userns: None,
        apparmor: None,
        view: Vec::new(),
        devices: Vec::new(),
        is_cgroup_v2: true,
        is_external: false,
    };
    change(&mut asked);
    asked.config.linux = Some(v1::LinuxContainerConfig {
        security_context: Some(asked.context.clone()),
        resources: Some(asked.resources.clone()),
    });
    let files =
        ["/etc/hosts", "/dev/shm"].map(|path| (path.to_owned(), PathBuf::from(format!("/pod{path}"))));
    let input = Input {
        config: &asked.config,
        image: &asked.image,
        rootfs: Path::new("/c/rootfs"),
        cgroup: "/pods/c",
        cgroup_view: &asked.view,
        hostname: "pod",
        sandbox_files: &files,
        pid_namespace: asked.pid.clone(),
        userns: asked.userns.clone(),
        apparmor: asked.apparmor.clone(),
        is_cgroup_v2: asked.is_cgroup_v2,
        all_capabilities: &strings(&["CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN", "CAP_SETPCAP"]),
        is_external: asked.is_external,
        devices: &asked.devices,
        edits: &Edits::default(),
    };
    let user = User { uid: 7, gid: 8, groups: vec![8, 9], home: "/home/7".into() };
    spec(&input, &user).map(|output| output.spec).map_err(|refusal| base::error_chain(&refusal))
}

/// What is at a JSON pointer; behind `mount `, the mount at a path in one line.
fn at(document: &Value, place: &str) -> Value {
    let Some(path) = place.strip_prefix("mount ") else {
        return document.pointer(place).cloned().unwrap_or_default();
    };
    let mounts = document["mounts"].as_array().unwrap();
    let of_path = mounts.iter().filter(|mount| mount["destination"] == path);
    let line = |mount: &Value| {
        let options = mount["options"].as_array().unwrap().iter().map(|option| option.as_str().unwrap());
        let options = options.collect::<Vec<_>>().join(",");
        format!("{} {options}", mount["source"].as_str().unwrap())
    };
    json!(of_path.map(line).collect::<Vec<_>>().join(" + "))
}

fn check(name: &str, change: fn(&mut Asked), expect: &[(&str, Value)]) {
    let document = made(change).unwrap();
    for (place, value) in expect {
        assert_eq!(at(&document, place), *value, "{name}: {place}");
    }
}

fn mount(inside: &str, host: &str) -> v1::Mount {
    v1::Mount { container_path: inside.into(), host_path: host.into(), ..Default::default() }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_process_is_what_the_pod_and_the_image_say() {
    const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut usual = capabilities::DEFAULT_CAPABILITIES;
    usual.sort_unstable();
    check(
        "a plain one",
        |_| {},
        &[
            ("/ociVersion", json!("1.0.2")),
            ("/root", json!({ "path": "/c/rootfs", "readonly": false })),
            ("/process/args", json!(["run"])),
            ("/process/cwd", json!("/")),
            ("/process/terminal", json!(false)),
            ("/process/env", json!([PATH, "HOSTNAME=pod", "HOME=/home/7"])),
            ("/process/user", json!({ "uid": 7, "gid": 8, "additionalGids": [8, 9] })),
            (
                "/process/capabilities/effective",
                // And what is needed on the way to the payload.
                json!([&usual[..13], &["CAP_SYS_ADMIN"], &usual[13..]].concat()),
            ),
            ("/process/capabilities/inheritable", json!(null)),
            ("/process/noNewPrivileges", json!(null)),
            ("/process/apparmorProfile", json!(null)),
            ("/linux/cgroupsPath", json!("/pods/c")),
            ("/linux/seccomp", json!(null)),
            ("/annotations", json!(null)),
            ("/hooks", json!(null)),
        ],
    );
    check(
        "with a terminal",
        |asked| asked.config.tty = true,
        &[("/process/terminal", json!(true)), ("/process/env/2", json!("TERM=xterm"))],
    );
    check(
        "variables of both",
        |asked| {
            asked.image.env = strings(&["PATH=/bin", "A=image", "B=image", "odd", "C=x=y"]);
            let pairs = [("B", "pod"), ("HOME", "/root"), ("B", "again"), ("D", "")];
            asked.config.envs =
                pairs.map(|(key, value)| v1::KeyValue { key: key.into(), value: value.into() }).into();
        },
        &[(
            "/process/env",
            json!(["PATH=/bin", "HOSTNAME=pod", "A=image", "B=again", "C=x=y", "HOME=/root", "D="]),
        )],
    );
    check(
        "the image's folder",
        |asked| asked.image.working_dir = "/app".into(),
        &[("/process/cwd", json!("/app"))],
    );
    check(
        "the Pod's folder",
        |asked| {
            asked.image.working_dir = "/app".into();
            asked.config.working_dir = "/work".into();
        },
        &[("/process/cwd", json!("/work"))],
    );
    check(
        "without new privileges",
        |asked| {
            asked.context.no_new_privs = true;
            asked.apparmor = Some("cri-containerd.apparmor.d".into());
        },
        &[
            ("/process/noNewPrivileges", json!(true)),
            ("/process/apparmorProfile", json!("cri-containerd.apparmor.d")),
        ],
    );
    check(
        "by another runtime",
        |asked| {
            asked.is_external = true;
            let seccomp = v1::SecurityProfile { profile_type: 0, ..Default::default() };
            asked.context.seccomp = Some(seccomp);
        },
        &[
            ("/process/capabilities/bounding", json!(usual)),
            ("/linux/seccomp/defaultAction", json!("SCMP_ACT_ERRNO")),
        ],
    );
    for (name, change, expect) in [
        ("no command", (|asked| asked.config.command.clear()) as fn(&mut Asked), "no command specified"),
        (
            "arguments are a command",
            |asked| {
                asked.config.command.clear();
                asked.config.args = strings(&["a"]);
            },
            "",
        ),
        (
            "a profile that is no path",
            |asked| {
                let seccomp =
                    v1::SecurityProfile { profile_type: 2, localhost_ref: "profiles/a.json".into() };
                asked.context.seccomp = Some(seccomp);
            },
            "cannot load seccomp profile \"profiles/a.json\": the path must be absolute",
        ),
    ] {
        assert_eq!(made(change).err().unwrap_or_default(), expect, "{name}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn namespaces_and_paths_are_as_private_as_is_asked_for() {
    let kinds = |kinds: &[&str]| json!(kinds.iter().map(|kind| json!({ "type": kind })).collect::<Vec<_>>());
    check(
        "a plain one",
        |_| {},
        &[
            ("/linux/namespaces", kinds(&["mount", "pid", "cgroup"])),
            ("/linux/rootfsPropagation", json!("private")),
            ("/linux/maskedPaths", json!([])),
            ("mount /sys", json!("sysfs nosuid,noexec,nodev,ro")),
            ("mount /sys/fs/cgroup", json!("cgroup nosuid,noexec,nodev,relatime,ro")),
            ("mount /proc", json!("proc nosuid,noexec,nodev")),
            ("mount /etc/hosts", json!("/pod/etc/hosts rbind,rprivate,rw")),
            ("/linux/resources", json!({ "devices": [{ "allow": false, "access": "rwm" }] })),
        ],
    );
    check(
        "cgroups of the first version",
        |asked| asked.is_cgroup_v2 = false,
        &[("/linux/namespaces", kinds(&["mount", "pid"])), ("mount /sys/fs/cgroup", json!(""))],
    );
    check(
        "a view of those",
        |asked| {
            asked.is_cgroup_v2 = false;
            asked.view = vec![(format!("{}/cpu", cgroup_view::PLACE), "/cg/cpu/pods/c".into())];
        },
        &[
            ("mount /sys/fs/cgroup", json!("tmpfs nosuid,noexec,nodev,mode=755,size=64k")),
            (
                "mount /sys/fs/cgroup/cpu",
                json!("/cg/cpu/pods/c bind,rprivate,nosuid,noexec,nodev,relatime,ro"),
            ),
            ("/linux/readonlyPaths", json!(["/sys/fs/cgroup"])),
        ],
    );
    check(
        "the host's processes",
        |asked| asked.pid = PidNamespace::Host,
        &[("/linux/namespaces", kinds(&["mount", "cgroup"]))],
    );
    check(
        "the Pod's processes and users",
        |asked| {
            asked.pid = PidNamespace::Path("/pod/pidns".into());
            asked.userns = Some("/pod/userns".into());
        },
        &[
            ("/linux/namespaces/1", json!({ "type": "pid", "path": "/pod/pidns" })),
            ("/linux/namespaces/2", json!({ "type": "user", "path": "/pod/userns" })),
        ],
    );
    check(
        "paths that nobody sees or writes to",
        |asked| {
            asked.context.masked_paths = strings(&["/proc/kcore"]);
            asked.context.readonly_paths = strings(&["/proc/sys"]);
            asked.context.readonly_rootfs = true;
        },
        &[
            ("/linux/maskedPaths", json!(["/proc/kcore"])),
            ("/linux/readonlyPaths", json!(["/proc/sys"])),
            ("/root/readonly", json!(true)),
            ("mount /etc/hosts", json!("/pod/etc/hosts rbind,rprivate,ro")),
            ("mount /dev/shm", json!("/pod/dev/shm rbind,rprivate,rw")),
        ],
    );
    check(
        "a privileged one",
        |asked| {
            asked.context.privileged = true;
            asked.context.masked_paths = strings(&["/proc/kcore"]);
            asked.context.readonly_paths = strings(&["/proc/sys"]);
        },
        &[
            ("/linux/namespaces", kinds(&["mount", "pid"])),
            ("/linux/maskedPaths", json!([])),
            ("/linux/readonlyPaths", json!([])),
            ("mount /sys", json!("sysfs nosuid,noexec,nodev,rw")),
            ("mount /sys/fs/cgroup", json!("cgroup nosuid,noexec,nodev,relatime,rw")),
            ("/linux/resources/devices", json!([{ "allow": true, "access": "rwm" }])),
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn mounts_are_made_from_the_top_down_and_take_the_place_of_usual_ones() {
    check(
        "in order",
        |asked| {
            asked.config.mounts =
                vec![mount("/a/b/c", "/3"), mount("/a", "/1"), mount("/a/b/", "/2"), mount("/", "/0")];
        },
        &[
            ("/mounts/8/destination", json!("/")),
            ("/mounts/9/destination", json!("/a")),
            ("/mounts/10/destination", json!("/a/b/")),
            ("/mounts/11/destination", json!("/a/b/c")),
        ],
    );
    check(
        "over usual ones",
        |asked| {
            asked.config.mounts = vec![mount("/sys/", "/host/sys"), mount("/etc/hosts", "/mine")];
        },
        &[
            ("mount /sys", json!("")),
            ("mount /sys/", json!("/host/sys rbind,rprivate,rw")),
            ("mount /etc/hosts", json!("/mine rbind,rprivate,rw")),
        ],
    );
    check(
        "which reach each other",
        |asked| {
            asked.config.mounts = vec![v1::Mount { propagation: 1, readonly: true, ..mount("/slave", "/s") }];
        },
        &[("mount /slave", json!("/s rbind,rslave,ro")), ("/linux/rootfsPropagation", json!("slave"))],
    );
    check(
        "one of which reaches the host",
        |asked| {
            asked.config.mounts = vec![
                v1::Mount { propagation: 1, ..mount("/slave", "/s") },
                v1::Mount { propagation: 2, ..mount("/shared", "/t") },
            ];
        },
        &[("mount /shared", json!("/t rbind,rshared,rw")), ("/linux/rootfsPropagation", json!("shared"))],
    );
    check(
        "read-only, all the way down",
        |asked| {
            asked.config.mounts =
                vec![v1::Mount { readonly: true, recursive_read_only: true, ..mount("/r", "/s") }];
        },
        &[("mount /r", json!("/s rbind,rprivate,rro"))],
    );
    check(
        "of an image",
        |asked| {
            let image = v1::ImageSpec { image: "a:1".into(), ..Default::default() };
            asked.config.mounts =
                vec![v1::Mount { image: Some(image), readonly: true, ..mount("/i", "/layers") }];
        },
        &[("mount /i", json!("/layers rbind,rprivate,ro,nosuid,nodev,noexec"))],
    );
    for (wanted, expect) in [
        (mount("relative", "/s"), "mount path \"relative\" must be absolute"),
        (mount("", "/s"), "mount path \"\" must be absolute"),
        (mount("/a", ""), "mount at /a has no source on the host"),
        (
            v1::Mount { recursive_read_only: true, ..mount("/a", "/s") },
            "mount at /a: recursive_read_only must come with readonly",
        ),
        (
            v1::Mount { recursive_read_only: true, readonly: true, propagation: 2, ..mount("/a", "/s") },
            "mount at /a: recursive_read_only must come with private propagation",
        ),
    ] {
        let refused = mounts::bind(&wanted, &[]).unwrap_err();
        assert_eq!(refused.to_string(), expect);
    }
}

#[test]
fn limits_and_devices_are_those_that_are_set() {
    check(
        "limits",
        |asked| {
            asked.resources = v1::LinuxContainerResources {
                cpu_shares: 512,
                cpu_quota: -1,
                cpu_period: 100_000,
                memory_limit_in_bytes: 1 << 20,
                memory_swap_limit_in_bytes: -1,
                cpuset_cpus: "0-1".into(),
                hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: 0 }],
                unified: [("memory.min", "1"), ("cpu.idle", "1")]
                    .map(|(key, value)| (key.into(), value.into()))
                    .into(),
                ..Default::default()
            };
        },
        &[
            ("/linux/resources/cpu", json!({ "shares": 512, "quota": -1, "period": 100_000, "cpus": "0-1" })),
            ("/linux/resources/memory", json!({ "limit": 1 << 20, "swap": -1 })),
            ("/linux/resources/hugepageLimits", json!([{ "pageSize": "2MB", "limit": 0 }])),
            ("/linux/resources/unified", json!({ "cpu.idle": "1", "memory.min": "1" })),
        ],
    );
    check(
        "devices",
        |asked| {
            let device = |path: &str, is_block, access: &str| HostDevice {
                source: "/dev/host".into(),
                path: path.into(),
                is_block,
                major: 7,
                minor: 3,
                mode: 0o660,
                uid: 0,
                gid: 6,
                access: access.into(),
            };
            asked.devices = vec![device("/dev/disk", true, "r"), device("/mnt/char", false, "rwm")];
        },
        &[
            (
                "/linux/devices",
                json!([{ "path": "/dev/disk", "type": "b", "major": 7, "minor": 3, "fileMode": 432, "uid": 0, "gid": 6 }]),
            ),
            (
                "/linux/resources/devices/1",
                json!({ "allow": true, "type": "b", "major": 7, "minor": 3, "access": "r" }),
            ),
            (
                "/linux/resources/devices/2",
                json!({ "allow": true, "type": "c", "major": 7, "minor": 3, "access": "rwm" }),
            ),
            ("mount /mnt/char", json!("/dev/host bind,rprivate,rw")),
            ("mount /dev/disk", json!("")),
        ],
    );
}

#[test]
fn an_exec_has_a_terminal_of_its_own_or_none() {
    let process = |env: &[&str]| json!({ "args": ["run"], "terminal": true, "env": env, "cwd": "/app" });
    for (env, tty, expect) in [
        (&["A=b", "TERM=xterm"][..], false, &["A=b"][..]),
        (&["A=b", "TERM=xterm"], true, &["A=b", "TERM=xterm"]),
        (&["A=b"], true, &["A=b", "TERM=xterm"]),
        (&["TERM=vt100"], true, &["TERM=vt100"]),
        (&["TERM=vt100"], false, &["TERM=vt100"]),
        (&[], false, &[]),
    ] {
        let expect = json!({ "args": ["ls", "-l"], "terminal": tty, "env": expect, "cwd": "/app" });
        assert_eq!(exec_process(&process(env), &strings(&["ls", "-l"]), tty), expect);
    }
    let bare = exec_process(&json!({}), &[], true);
    assert_eq!(bare, json!({ "args": [], "terminal": true, "env": ["TERM=xterm"] }));
}
