//! Security contexts: users, groups, capabilities, seccomp, paths, privilege.
#![allow(unreachable_pub)]

use std::sync::Arc;

use cri::v1;
use v1::security_profile::ProfileType;

use super::Spec;
use super::support::{Feature, Subject, container, security, sleeping};

pub const SPECS: &[Spec] = &[
    ("runtime should support RunAsUser and RunAsUserName", |it| Box::pin(users(it))),
    ("runtime should support RunAsGroup", |it| Box::pin(run_as_group(it))),
    ("runtime should return error if RunAsGroup is set without RunAsUser", |it| Box::pin(group_alone(it))),
    ("runtime should support SupplementalGroups", |it| Box::pin(supplemental_groups(it))),
    ("runtime should support SupplementalGroupsPolicy", |it| Box::pin(groups_policy(it))),
    ("ReadOnlyRootfs should be what is asked for", |it| Box::pin(readonly_rootfs(it))),
    ("Privileged should be what is asked for", |it| Box::pin(privileged(it))),
    ("capabilities are added and dropped", |it| Box::pin(capabilities(it))),
    ("an unknown capability is an error", |it| Box::pin(unknown_capability(it))),
    ("NoNewPrivs should not allow privilege escalation", |it| Box::pin(no_new_privs(it))),
    ("runtime should support setting masked and readonly paths", |it| Box::pin(paths(it))),
    ("runtime should support seccomp default, localhost and unconfined", |it| Box::pin(seccomp(it))),
    #[cfg(target_arch = "x86_64")]
    ("a seccomp profile counts for programs of 32 bits", |it| Box::pin(seccomp_of_32_bits(it))),
    ("a seccomp profile that is not there is an error", |it| Box::pin(missing_profile(it))),
    ("AppArmor confines by default, and is refused where the host has none", |it| Box::pin(apparmor(it))),
    ("SELinux options are accepted where the host has none", |it| Box::pin(selinux(it))),
    ("runtime should support user namespaces", |it| Box::pin(user_namespaces(it))),
];

fn int(value: i64) -> Option<v1::Int64Value> {
    Some(v1::Int64Value { value })
}

async fn users(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = container("uid", "id -u; grep CapEff /proc/self/status | cut -f2");
    security(&mut config).run_as_user = int(1234);
    assert_eq!(pod.run(config).await, (0, "1234\n0000000000000000".to_owned()));
    let mut config = container("name", "id -u; id -g; echo $HOME");
    security(&mut config).run_as_username = "web".into();
    assert_eq!(pod.run(config).await, (0, "1001\n1001\n/home/web".to_owned()));
    let mut config = sleeping("nobody");
    security(&mut config).run_as_username = "no-such-user".into();
    let created = pod.try_create(config).await;
    assert!(created.is_err(), "{created:?}");
    let mut config = sleeping("status");
    security(&mut config).run_as_user = int(1234);
    let id = pod.start(config).await;
    if let Some(user) = pod.status(&id).await.user.and_then(|user| user.linux) {
        assert_eq!((user.uid, user.gid), (1234, 0));
    }
    assert_eq!(pod.sh(&id, "id -u").await, ("1234".to_owned(), 0), "an exec is the same user");
    pod.remove().await;
}

async fn run_as_group(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for (name, user, username, expect) in [
        ("number", Some(1001), "", "1001:1002"),
        ("unlisted", Some(1234), "", "1234:1002"),
        ("named", None, "web", "1001:1002"),
    ] {
        let mut config = container(name, "echo $(id -u):$(id -g)");
        let context = security(&mut config);
        context.run_as_user = user.and_then(int);
        context.run_as_username = username.into();
        context.run_as_group = int(1002);
        assert_eq!(pod.run(config).await, (0, expect.to_owned()), "{name}");
    }
    pod.remove().await;
}

async fn group_alone(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = sleeping("main");
    security(&mut config).run_as_group = int(1002);
    let error = pod.try_create(config).await.unwrap_err().to_string();
    assert!(error.contains("user group \"1002\" is specified without user"), "{error}");
    pod.remove().await;
}

async fn supplemental_groups(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = container("main", "id -G");
    let context = security(&mut config);
    context.run_as_user = int(1234);
    context.supplemental_groups = vec![1300, 1400];
    let (code, text) = pod.run(config).await;
    let groups: Vec<&str> = text.split(' ').collect();
    assert!(code == 0 && groups.contains(&"1300") && groups.contains(&"1400"), "{text}");
    pod.remove().await;
}

async fn groups_policy(subject: Arc<Subject>) {
    if !subject.has(Feature::GroupsPolicy) {
        return;
    }
    let pod = subject.run().await;
    for (policy, expect) in [
        (v1::SupplementalGroupsPolicy::Merge, "1001 1300 50000"),
        (v1::SupplementalGroupsPolicy::Strict, "1001 1300"),
    ] {
        let mut config = container(policy.as_str_name(), "id -G | tr ' ' '\\n' | sort -n | tr '\\n' ' '");
        let context = security(&mut config);
        context.run_as_user = int(1001);
        context.run_as_group = int(1001);
        context.supplemental_groups = vec![1300];
        context.supplemental_groups_policy = policy.into();
        assert_eq!(pod.run(config).await.1.trim_end(), expect, "{policy:?}");
    }
    pod.remove().await;
}

async fn readonly_rootfs(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for is_readonly in [true, false] {
        let mut config = sleeping(&format!("readonly-{is_readonly}"));
        security(&mut config).readonly_rootfs = is_readonly;
        let id = pod.start(config).await;
        for place in ["/x", "/etc/y", "/etc/hostname", "/etc/resolv.conf"] {
            let (text, code) = pod.sh(&id, &format!("echo written >> {place}")).await;
            assert_eq!(code != 0, is_readonly, "{place}: {text}");
        }
        assert_eq!(pod.sh(&id, "echo written > /dev/shm/x").await.1, 0);
    }
    pod.remove().await;
}

async fn privileged(subject: Arc<Subject>) {
    let pod = subject.run_privileged().await;
    for is_privileged in [true, false] {
        let mut config = sleeping(&format!("privileged-{is_privileged}"));
        security(&mut config).privileged = is_privileged;
        let id = pod.start(config).await;
        let (text, code) = pod.sh(&id, "mount -t tmpfs none /tmp").await;
        assert_eq!(code == 0, is_privileged, "{text}");
        assert_eq!(pod.sh(&id, "test -e /dev/kmsg").await.1 == 0, is_privileged);
        assert_eq!(pod.sh(&id, "ip link add dummy type bridge").await.1 == 0, is_privileged);
    }
    pod.remove().await;
    let pod = subject.run().await;
    let mut config = sleeping("more-than-the-sandbox");
    security(&mut config).privileged = true;
    let error = pod.try_create(config).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to generate container"), "{error}");
    assert!(error.ends_with("no privileged container allowed in sandbox"), "{error}");
    pod.remove().await;
}

const BOUNDING: &str = "grep CapBnd /proc/self/status | cut -f2";

async fn capabilities(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).unwrap();
    let net_admin = "00000000a80435fb";
    for (name, add, drop, expect) in [
        ("default", &[][..], &[][..], "00000000a80425fb"),
        ("added", &["NET_ADMIN"][..], &[], net_admin),
        ("prefixed", &["CAP_NET_ADMIN"], &[], net_admin),
        ("dropped", &[], &["CHOWN", "KILL"], "00000000a80425da"),
        ("none", &[], &["ALL"], "0000000000000000"),
        ("one", &["NET_BIND_SERVICE"], &["ALL"], "0000000000000400"),
        ("all", &["ALL"], &[], own),
    ] {
        if name == "prefixed" && !subject.has(Feature::CapabilityNames) {
            continue;
        }
        let mut config = sleeping(name);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = v1::Capability {
            add_capabilities: list(add),
            drop_capabilities: list(drop),
            ..Default::default()
        };
        security(&mut config).capabilities = Some(wanted);
        let id = pod.start(config).await;
        assert_eq!(pod.sh(&id, BOUNDING).await.0, expect, "{name}");
        let (init, _) = pod.sh(&id, "grep CapPrm /proc/1/status | cut -f2").await;
        assert_eq!(init, expect, "{name}: the first process");
    }
    pod.remove().await;
}

async fn unknown_capability(subject: Arc<Subject>) {
    if !subject.has(Feature::CapabilityNames) {
        return;
    }
    let pod = subject.run().await;
    let mut config = sleeping("main");
    let wanted = v1::Capability { add_capabilities: vec!["FLY".into()], ..Default::default() };
    security(&mut config).capabilities = Some(wanted);
    let error = pod.try_create(config).await.unwrap_err().to_string();
    assert!(error.contains("unknown capability \"FLY\""), "{error}");
    pod.remove().await;
}

async fn no_new_privs(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for (forbidden, line, permitted) in [(true, "NoNewPrivs:\t1", false), (false, "NoNewPrivs:\t0", true)] {
        let mut config = container(&format!("no-new-privs-{forbidden}"), "");
        config.command = ["/suid/busybox", "grep", "-E", "NoNewPrivs|CapBnd", "/proc/self/status"]
            .map(String::from)
            .to_vec();
        let context = security(&mut config);
        context.run_as_user = int(1000);
        context.no_new_privs = forbidden;
        let (_, text) = pod.run(config.clone()).await;
        assert!(text.lines().any(|it| it == line), "{text}");
        // `su` is what keeps the rights of the program's owner.
        config.metadata.as_mut().unwrap().name += "-su";
        config.log_path = format!("{}.log", config.metadata.as_ref().unwrap().name);
        config.command = ["/suid/busybox", "su", "-c", "id -u"].map(String::from).to_vec();
        let (_, text) = pod.run(config).await;
        assert_eq!(!text.contains("must be suid"), permitted, "{text}");
    }
    pod.remove().await;
}

async fn paths(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = sleeping("main");
    let context = security(&mut config);
    context.masked_paths = vec!["/etc/group".into(), "/data".into(), "/proc/keys".into()];
    context.readonly_paths = vec!["/root".into(), "/proc/sys".into()];
    let id = pod.start(config).await;
    assert_eq!(pod.sh(&id, "wc -c < /etc/group; ls /data | wc -l; wc -c < /proc/keys").await.0, "0\n0\n0");
    assert_ne!(pod.sh(&id, "touch /data/x").await.1, 0);
    assert_ne!(pod.sh(&id, "touch /root/x").await.1, 0);
    assert_ne!(pod.sh(&id, "echo 1 > /proc/sys/net/ipv4/ip_forward").await.1, 0);
    let (bare, code) = pod.says(sleeping("bare"), "ls /data; touch /root/x /data/x").await;
    assert_eq!(code, 0, "{bare}");
    pod.remove().await;
}

async fn seccomp(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let profile = subject.scratch("seccomp").join("profile.json");
    std::fs::write(
        &profile,
        r#"{"defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["sethostname", "mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]}"#,
    )
    .unwrap();
    let localhost = |path: String| v1::SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: path,
    };
    let of = |kind: ProfileType| v1::SecurityProfile { profile_type: kind.into(), ..Default::default() };
    let script = "grep '^Seccomp:' /proc/self/status | cut -f2; mkdir /made && echo made; \
                  unshare -U true && echo unshared; true";
    for (name, profile, expect) in [
        ("unset", None, "0\nmade\nunshared"),
        ("unconfined", Some(of(ProfileType::Unconfined)), "0\nmade\nunshared"),
        ("default", Some(of(ProfileType::RuntimeDefault)), "2\nmade"),
        ("localhost", Some(localhost(profile.display().to_string())), "2\nunshared"),
    ] {
        let mut config = sleeping(name);
        security(&mut config).seccomp = profile;
        let id = pod.start(config).await;
        let mode = expect.split_once('\n').map(|(mode, _)| mode.to_owned()).unwrap();
        assert_eq!(pod.sh(&id, "grep '^Seccomp:' /proc/1/status | cut -f2").await, (mode, 0), "{name}");
        if !subject.has(Feature::SeccompOfExec) {
            continue;
        }
        let (text, _) = pod.sh(&id, &format!("({script}) 2>/tmp/err")).await;
        let (errors, _) = pod.sh(&id, "cat /tmp/err").await;
        assert_eq!(text, expect, "{name}: {errors}");
        if name == "localhost" {
            assert!(errors.contains("Permission denied"), "{errors}");
        }
    }
    pod.remove().await;
}

/// A program of 32 bits that makes one call and ends with the error's number.
#[cfg(target_arch = "x86_64")]
fn program_of_32_bits(call: u32, argument: u32) -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS_BYTES: u16 = 52 + 32;
    let [call, argument, base] = [call, argument, BASE].map(u32::to_le_bytes);
    let entry = (BASE + u32::from(HEADERS_BYTES)).to_le_bytes();
    // mov eax, call; mov ebx, argument; int 0x80; mov ebx, eax; neg ebx; mov eax, exit; int 0x80; hlt
    let code = [
        &[0xb8][..],
        &call,
        &[0xbb],
        &argument,
        &[0xcd, 0x80, 0x89, 0xc3, 0xf7, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80, 0xf4],
    ]
    .concat();
    let bytes = (u32::from(HEADERS_BYTES) + code.len() as u32).to_le_bytes();
    // ELF of 32 bits, little-endian; an executable for the i386; its only segment is the whole file.
    let header = [
        &b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0"[..],
        &[2, 0, 3, 0, 1, 0, 0, 0],
        &entry,
        &[52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    const READ_EXECUTE: [u8; 4] = [5, 0, 0, 0];
    let segment = [[1, 0, 0, 0], [0; 4], base, base, bytes, bytes, READ_EXECUTE, [0, 0x10, 0, 0]];
    [header.concat(), segment.concat(), code].concat()
}

#[cfg(target_arch = "x86_64")]
async fn seccomp_of_32_bits(subject: Arc<Subject>) {
    use std::os::unix::fs::PermissionsExt;
    const NEW_USER: u32 = 0x1000_0000;
    let pod = subject.run().await;
    let folder = subject.scratch("of-32-bits");
    for (name, call, argument) in [("getuid32", 199, 0), ("unshare", 310, NEW_USER)] {
        let program = folder.join(name);
        std::fs::write(&program, program_of_32_bits(call, argument)).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let localhost = |architectures: &str| {
        let text = format!(
            r#"{{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"{architectures}],
                "syscalls": [{{"names": ["unshare"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}}]}}"#
        );
        let path = folder.join(format!("profile{}.json", architectures.len()));
        std::fs::write(&path, text).unwrap();
        let localhost_ref = path.display().to_string();
        v1::SecurityProfile { profile_type: ProfileType::Localhost.into(), localhost_ref }
    };
    let default = v1::SecurityProfile::default();
    let unconfined =
        v1::SecurityProfile { profile_type: ProfileType::Unconfined.into(), ..Default::default() };
    for (name, profile, expect) in [
        ("unconfined", unconfined, [0, 0]),
        ("default", default, [0, 1]),
        ("localhost", localhost(r#", "SCMP_ARCH_X86""#), [0, 13]),
    ] {
        for (program, expect) in ["getuid32", "unshare"].into_iter().zip(expect) {
            let mut config = container(&format!("{name}-{program}"), "");
            config.command = vec![format!("/programs/{program}")];
            config.mounts = vec![super::support::mount(&folder, "/programs")];
            security(&mut config).seccomp = Some(profile.clone());
            assert_eq!(pod.run(config).await.0, expect, "{name} {program}");
        }
    }
    let mut config = container("not-named", "");
    config.command = vec!["/programs/getuid32".into()];
    config.mounts = vec![super::support::mount(&folder, "/programs")];
    security(&mut config).seccomp = Some(localhost(""));
    let code = pod.run(config).await.0;
    assert!(code > 128, "what the profile does not name does not run: {code}");
    pod.remove().await;
}

async fn missing_profile(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for (name, path) in [("missing", "/nothing/here.json"), ("broken", "/etc/passwd")] {
        let mut config = sleeping(name);
        security(&mut config).seccomp = Some(v1::SecurityProfile {
            profile_type: ProfileType::Localhost.into(),
            localhost_ref: path.into(),
        });
        let error = pod.try_create(config).await.unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
    pod.remove().await;
}

async fn apparmor(subject: Arc<Subject>) {
    let pod = subject.run().await;
    if std::path::Path::new("/sys/kernel/security/apparmor").exists() {
        for is_privileged in [true, false] {
            let privileged = subject.run_privileged().await;
            let mut config = sleeping("confined");
            security(&mut config).privileged = is_privileged;
            let id = privileged.start(config).await;
            let expect = if is_privileged { "unconfined" } else { "cri-containerd.apparmor.d (enforce)" };
            for process in ["1", "self"] {
                let script = format!("cat /proc/{process}/attr/current");
                assert_eq!(privileged.sh(&id, &script).await, (expect.to_owned(), 0), "{process}");
            }
            privileged.stop(&id, 20).await;
            assert_eq!(privileged.status(&id).await.exit_code, 0, "its signal reaches it");
            privileged.remove().await;
        }
        return pod.remove().await;
    }
    let with = |name: &str, kind: ProfileType, localhost_ref: &str| {
        let mut config = sleeping(name);
        let profile = v1::SecurityProfile { profile_type: kind.into(), localhost_ref: localhost_ref.into() };
        security(&mut config).apparmor = Some(profile);
        config
    };
    let error = pod.try_create(with("localhost", ProfileType::Localhost, "localhost/k8s-test")).await;
    assert!(error.unwrap_err().to_string().to_lowercase().contains("apparmor"));
    assert!(pod.try_create(with("default", ProfileType::RuntimeDefault, "")).await.is_err());
    pod.start(with("unconfined", ProfileType::Unconfined, "")).await;
    pod.remove().await;
}

async fn selinux(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = sleeping("main");
    security(&mut config).selinux_options = Some(v1::SeLinuxOption {
        user: "system_u".into(),
        role: "system_r".into(),
        r#type: "container_t".into(),
        level: "s0:c4,c5".into(),
    });
    pod.start(config).await;
    pod.remove().await;
}

async fn user_namespaces(subject: Arc<Subject>) {
    use std::os::unix::fs::MetadataExt;
    if !subject.has(Feature::UserNamespaces) {
        return;
    }
    let mapping = v1::IdMapping { host_id: 131_072, container_id: 0, length: 65536 };
    let users =
        v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] };
    let wanted = users.clone();
    let pod =
        subject.run_with(|config| super::support::namespaces(config).userns_options = Some(wanted)).await;
    let folder = subject.scratch("userns");
    std::fs::write(folder.join("roots"), "text").unwrap();
    let mut config = sleeping("main");
    security(&mut config).namespace_options.as_mut().unwrap().userns_options = Some(users);
    let (mapped, plain) =
        (super::support::mount(&folder, "/mnt/mapped"), super::support::mount(&folder, "/mnt/plain"));
    config.mounts =
        vec![v1::Mount { uid_mappings: vec![mapping], gid_mappings: vec![mapping], ..mapped }, plain];
    config.working_dir = "/made/here".into();
    let context = security(&mut config);
    context.masked_paths = vec!["/proc/keys".into(), "/proc/kcore".into()];
    context.readonly_paths = vec!["/proc/sys".into()];
    context.seccomp = Some(v1::SecurityProfile::default());
    let all = v1::Capability { add_capabilities: vec!["ALL".into()], ..Default::default() };
    context.capabilities = Some(all);
    let id = pod.start(config).await;
    let (map, _) = pod.sh(&id, "cat /proc/self/uid_map | tr -s ' '").await;
    assert_eq!(map.trim(), "0 131072 65536");
    let script = "id -u; stat -c %u /bin/busybox /mnt/mapped/roots /mnt/plain/roots /made /dev/null; touch /mnt/mapped/new /own";
    let (text, code) = pod.sh(&id, script).await;
    assert_eq!((text.as_str(), code), ("0\n0\n0\n65534\n0\n65534", 0));
    assert_eq!(std::fs::metadata(folder.join("new")).unwrap().uid(), 0, "as the mapping says");
    assert_ne!(pod.sh(&id, "touch /mnt/plain/x").await.1, 0, "root inside is nobody there");
    assert_eq!(
        pod.sh(&id, "hostname inside && ip link set lo down && hostname").await,
        ("inside".to_owned(), 0)
    );
    assert_ne!(pod.sh(&id, "echo 1 > /proc/sys/kernel/panic").await.1, 0);
    let info = subject
        .runtime
        .container_status(v1::ContainerStatusRequest { container_id: id.clone(), verbose: true });
    let info: serde_json::Value = serde_json::from_str(&info.await.unwrap().info["info"]).unwrap();
    let process = std::fs::metadata(format!("/proc/{}", info["pid"])).unwrap();
    assert_eq!(process.uid(), 131_072, "outside");
    let second = pod.start(sleeping("second")).await;
    let (same, _) = pod.sh(&second, "readlink /proc/self/ns/user").await;
    assert_eq!(same, pod.sh(&id, "readlink /proc/self/ns/user").await.0);
    pod.remove().await;
}
