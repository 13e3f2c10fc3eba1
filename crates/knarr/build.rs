//! What the program is built from, for `/version`: commit, state and time, as git knows them; and how it is linked.
//!
//! It is asked again when HEAD moves, and not for each file that changes: this is the last crate of all, so that a commit
//! costs no more than linking it. Without git, or where the files are no work tree of their own, nothing is said.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let known = commit();
    let (commit, state, second) = known.unwrap_or_default();
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.trim().parse().ok());
    println!("cargo::rustc-env=KNARR_COMMIT={commit}");
    println!("cargo::rustc-env=KNARR_TREE_STATE={state}");
    println!("cargo::rustc-env=KNARR_BUILD_DATE={}", date(given.unwrap_or(second)));
    if packs_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if folds_functions() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether functions of the same code can be kept once: what is linked with the toolchain's own LLD, as rustup's is on this target.
/// Who names another linker has one that may not know the flag.
fn folds_functions() -> bool {
    let target = "x86_64-unknown-linux-gnu";
    let is_chosen =
        !variable("RUSTC_LINKER").is_empty() || variable("CARGO_ENCODED_RUSTFLAGS").contains("link");
    let own = Path::new("lib/rustlib").join(target).join("bin/gcc-ld/ld.lld");
    variable("TARGET") == target
        && variable("PROFILE") == "release"
        && !is_chosen
        && sysroot().is_some_and(|root| root.join(own).exists())
}

/// What Cargo says of the build; empty if it says nothing.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The folder of the toolchain.
fn sysroot() -> Option<PathBuf> {
    let output = Command::new(std::env::var_os("RUSTC")?).args(["--print", "sysroot"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// Whether the program's relative relocations may be packed (DT_RELR), to a few percent of their size: the loader of the C library here
/// knows them from glibc 2.36 on. A program that was built here needs this library or a newer one anyway.
fn packs_relocations() -> bool {
    let is_native = variable("HOST") == variable("TARGET") && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    is_native && glibc().is_some_and(|version| version >= (2, 36))
}

/// The version of the C library that programs are linked with here.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The commit, the state of the files, and the commit's time in Unix seconds.
fn commit() -> Option<(String, &'static str, u64)> {
    let root = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join("../..").canonicalize().ok()?;
    // A tarball that was unpacked below somebody else's work tree is none of it.
    if PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // What HEAD is, and the log of its moves: a branch moves without HEAD's own file. What is not there is not named, or
    // everything would be built each time.
    for name in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    let second = git(&root, &["show", "--no-patch", "--format=%ct", "HEAD"])?.parse().ok()?;
    let changed = git(&root, &["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])?;
    Some((commit, if changed.is_empty() { "clean" } else { "dirty" }, second))
}

/// What git answers; nothing if it cannot.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned())
}

/// RFC 3339, in UTC. Source: `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
fn date(second: u64) -> String {
    let (days, rest) = (second / 86_400 + 719_468, second % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March.
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let (month, carried) = if march < 10 { (march + 3, 0) } else { (march - 9, 1) };
    let year = year_of_era + era * 400 + carried;
    let (hour, minute) = (rest / 3_600, rest % 3_600 / 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", rest % 60)
}
