//! What CI runs, and what anyone runs before a commit: `cargo xtask ci`.
//!
//! Installs what the tests need when it is missing, then formats, tidies, builds once, shows the demo and tests; lints run
//! beside the tests, for what those leave of the processors. `.config/nextest.toml` says what runs beside what, and how
//! long it may take. The whole-cluster tests run the real binary with real clients, as root, in network namespaces of
//! their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::bench::{as_from_a_shell, cargo, step, target_directory};

/// The runner of tests: what is installed if there is none.
const NEXTEST: &str = "0.9.143";
/// Tests beside each other, per core; `.config/nextest.toml` says how many of these places each takes.
const PLACES_PER_CORE: usize = 3;
/// Program, by name or path, and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("busybox", "busybox-static"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("crun", "crun"),
    ("pkg-config", "pkg-config"),
    ("/usr/include/seccomp.h", "libseccomp-dev"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("docker-registry", "docker-registry"),
    ("dbus-daemon", "dbus-daemon"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("linux.uml", "user-mode-linux"),
    ("nft", "nftables"),
    ("/usr/sbin/iptables-restore", "iptables"),
    ("nsenter", "util-linux"),
    ("script", "bsdutils"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("strace", "strace"),
    ("faketime", "faketime"),
    ("npm", "npm"),
    ("node", "nodejs"),
    ("python3", "python3"),
    ("pip3", "python3-pip"),
    ("unzip", "unzip"),
];

pub(crate) fn run() -> Result<()> {
    let root = crate::tidy::root()?;
    install_needed()?;
    step(said(cargo().args(["fmt", "--all", "--check"]).current_dir(&root)))?;
    crate::tidy::run()?;
    let built = Built::new(&root)?;
    step(said(Command::new(&built.knarr).arg("demo")))?;
    let (tested, linted) = thread::scope(|scope| {
        let linted = scope.spawn(|| lint(&root));
        (built.test(&root), linted.join())
    });
    let linted = linted.map_err(|_| anyhow::anyhow!("what lints has panicked"))?;
    match (tested, linted) {
        (Err(tested), Err(linted)) => bail!("{tested:#}; and {linted:#}"),
        (tested, linted) => tested.and(linted),
    }
}

/// All tests, and the binary that whole-cluster tests run.
struct Built {
    /// What the runner has to know of them. It does not ask cargo, which has the lints to do.
    binaries: PathBuf,
    knarr: PathBuf,
}

impl Built {
    fn new(root: &Path) -> Result<Self> {
        let mut list = cargo();
        list.args(["nextest", "list", "--workspace", "--list-type=binaries-only", "--message-format=json"]);
        let listed = said(&mut list).current_dir(root).stderr(Stdio::inherit()).output()?;
        if !listed.status.success() {
            bail!("the tests could not be built");
        }
        let target = target_directory(root)?;
        let built = Self { binaries: target.join("test-binaries.json"), knarr: target.join("debug/knarr") };
        std::fs::write(&built.binaries, listed.stdout).context("write down which tests there are")?;
        Ok(built)
    }

    fn test(&self, root: &Path) -> Result<()> {
        let places = PLACES_PER_CORE * thread::available_parallelism().map_or(1, usize::from);
        let mut run = cargo();
        run.args(["nextest", "run", "--profile=ci", &format!("--test-threads={places}")]);
        run.arg("--binaries-metadata").arg(&self.binaries).env("KNARR_TEST_SEEDS", "fixed");
        // A failure says where it is; the frames below would only hide its words.
        run.env("RUST_BACKTRACE", "0");
        step(said(&mut run).current_dir(root))
    }
}

/// What the compiler has to complain of, and the examples in documents: quietly, unless something is wrong.
fn lint(root: &Path) -> Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
    let examples = ["test", "--workspace", "--doc", "--quiet"];
    for arguments in [&clippy[..], &examples] {
        // Tests have deadlines, this has none.
        let mut command = as_from_a_shell("nice");
        let output = said(command.arg("cargo").args(arguments)).current_dir(root).output()?;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            bail!("`cargo {}` failed:\n{}", arguments.join(" "), String::from_utf8_lossy(&text));
        }
    }
    Ok(())
}

fn install_needed() -> Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        step(said(Command::new("apt-get").args(["update", "--quiet"])))?;
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]);
        step(said(install.args(missing)))?;
    }
    if !has("cargo-nextest") {
        step(said(cargo().args(["install", "cargo-nextest", "--locked", "--version", NEXTEST])))?;
    }
    crate::clients::run()
}

fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// Prints the command, for whoever wonders what takes so long.
fn said(command: &mut Command) -> &mut Command {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    eprintln!("ci: {}", words.join(" "));
    command
}
