//! A program under another kernel, with cgroup v2 alone, AppArmor, and what this machine's kernel may lack: user-mode
//! Linux, a process like any other.
//!
//! Its root is this machine's, with a layer in memory on top; `/run` and the folder for temporary files are in memory,
//! too. It has no link but `lo`. Sources: kernel and modules from Debian's `user-mode-linux`; from the packages that
//! `cargo xtask clients` fetched and that are installed nowhere else, programs that change what runs on a machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// From boot to end.
const SECONDS_MAX: &str = "400";

/// Lays a folder in memory over the root.
const FIRST: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
busybox insmod /usr/lib/uml/modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko
mount -t tmpfs memory /mnt && mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root && mkdir -p lib/modules below && pivot_root . below
exec chroot . FOLDER/then
"#;

const THEN: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/var/tmp
mount --bind /below/usr/lib/uml/modules /lib/modules
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t securityfs security /sys/kernel/security
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
mkdir -p /dev/pts && mount -t devpts -o ptmxmode=666 devpts /dev/pts
for folder in /run /var/tmp; do mount -t tmpfs memory $folder; done
tar -C PACKAGES -c . | tar -x --keep-directory-symlink -C /
ldconfig
modprobe -a overlay veth bridge br_netfilter nf_tables loop
ip link set lo up
cd PWD
"$@" <&1
echo "ended with $?"
busybox poweroff -f
"#;

/// Boots, runs a program with its arguments in `folder`, and ends. Returns what it printed.
///
/// # Errors
/// With all of the output if the program fails, or does not come to its end.
pub fn run(folder: &Path, program: &Path, arguments: &[&str]) -> Result<String> {
    let scratch = tempfile::tempdir()?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a folder's name is not UTF-8");
    let command = [&[text(program)?.as_str()], arguments].concat().join(" ");
    let (first, then) = (scratch.path().join("first"), scratch.path().join("then"));
    script(&first, &FIRST.replace("FOLDER", &text(scratch.path())?))?;
    let packages = text(&packages()?)?;
    script(
        &then,
        &THEN.replace("PACKAGES", &packages).replace("PWD", &text(folder)?).replace("\"$@\"", &command),
    )?;
    let mut linux = Command::new("timeout");
    linux.args(["--kill-after=2", SECONDS_MAX, "linux.uml"]);
    linux.args(["rootfstype=hostfs", "rootflags=/", "ro", "mem=3G", "quiet", "con=null", "con0=fd:0,fd:1"]);
    linux.args(["apparmor=1", "security=apparmor"]);
    linux.arg(format!("init={}", first.display())).arg(format!("uml_dir={}/", scratch.path().display()));
    let output = linux
        .stdin(Stdio::null())
        .output()
        .context("start user-mode Linux (`apt-get install user-mode-linux`)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.contains("ended with 0") {
        bail!("{command} under user-mode Linux:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// `true` if the calling process is in there.
#[must_use]
pub fn is_here() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("User Mode Linux"))
}

fn packages() -> Result<PathBuf> {
    crate::clients::folder_with("debian", "usr/sbin/exportfs")
}

fn script(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
