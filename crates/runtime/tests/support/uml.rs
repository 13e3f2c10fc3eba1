//! These tests again, on a kernel with cgroup v2 only: user-mode Linux, a process like any other.
//!
//! Its root is this machine's, read-only; what the tests write is in memory. Source of the kernel and of its
//! modules: Debian's `user-mode-linux`.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::Host;

pub const TEST: &str = "the_runtime_works_with_cgroup_v2";

/// What depends on cgroups, of the tests.
const TESTS: &str =
    "limits_are too_much_memory containers_survive a_shim_that_dies a_shared_pid a_container_that_ignores";

const INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/mnt
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmp /mnt
busybox insmod /usr/lib/uml/modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko
busybox ip link set lo up
PROGRAM TESTS && echo all is well
busybox poweroff -f
"#;

pub async fn run(host: Host) {
    let init = host.0.dir.path().join("init");
    let program = std::env::current_exe().unwrap();
    let script = INIT.replace("PROGRAM", program.to_str().unwrap()).replace("TESTS", TESTS);
    std::fs::write(&init, script).unwrap();
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut linux = Command::new("linux.uml");
    linux.args(["rootfstype=hostfs", "rootflags=/", "ro", "mem=768M", "quiet", "con=null", "con0=fd:0,fd:1"]);
    linux.arg(format!("init={}", init.display())).arg(format!("uml_dir={}/", host.0.dir.path().display()));
    linux.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || linux.output()).await.unwrap();
    let output =
        output.expect("user-mode Linux must start: install it with `apt-get install user-mode-linux`");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("all is well"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
