//! The host's iptables: found by trying, since a host may have it for a part of the kernel that is not there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use machinery::net::Family;
use sys::nftables::{self, TableFamily};

use super::saved::Saved;
use super::table::Table;

/// Where programs are that `PATH` does not lead to.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];
/// What the host has chosen, and what it may have beside: in a kernel without the one, the other works.
const VARIANTS: [&str; 3] = ["", "-legacy", "-nft"];
/// How long a program waits for another that changes rules, in seconds.
const LOCK_WAIT_SECONDS_MAX: &str = "5";
/// Of what a program says, this much is told.
const ERROR_BYTES_MAX: usize = 400;

/// iptables of one family. Each call is a process in the calling thread's network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Iptables {
    /// Up to what one program has and others have not.
    stem: PathBuf,
}

impl Iptables {
    /// The first that works here.
    ///
    /// # Errors
    /// `NotFound` if none is installed; what the last one said if none works.
    pub(crate) fn find(family: Family) -> sys::Result<Self> {
        let name = match family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        let missing = io::Error::new(io::ErrorKind::NotFound, format!("the host has no {name}-restore"));
        let mut last = sys::Error::new(format!("find {name}"), missing);
        // Reading proves nothing: a program may have nothing to read for a part of the kernel that is not there.
        let chain = format!("knarr-check-{}", std::process::id());
        let attempt = format!("*nat\n:{chain} - [0:0]\n-X {chain}\nCOMMIT\n");
        for variant in VARIANTS {
            let Some(stem) = installed(&format!("{name}{variant}")) else { continue };
            let found = Self { stem };
            match found.restore(&attempt) {
                Ok(()) => return Ok(found),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// All that work here and may have rules, in whichever part of the kernel. Where there are none, nothing is run, and
    /// so no part of the kernel is loaded for it.
    pub(crate) fn with_rules(family: Family) -> Vec<Self> {
        let (name, of_tables, legacy) = match family {
            Family::V4 => ("iptables", TableFamily::Ipv4, "/proc/thread-self/net/ip_tables_names"),
            Family::V6 => ("ip6tables", TableFamily::Ipv6, "/proc/thread-self/net/ip6_tables_names"),
        };
        // A kernel without nftables has no tables of it.
        let names = nftables::table_names_of(of_tables).unwrap_or_default();
        let in_nftables = Table::ALL.iter().any(|table| names.iter().any(|name| name == table.name()));
        let in_legacy = std::fs::read_to_string(legacy).is_ok_and(|names| !names.trim().is_empty());
        let may = |variant: &str| match variant {
            "-legacy" => in_legacy,
            "-nft" => in_nftables,
            _ => in_legacy || in_nftables,
        };
        let variants = VARIANTS.into_iter().filter(|variant| may(variant));
        let all =
            variants.filter_map(|variant| installed(&format!("{name}{variant}"))).map(|stem| Self { stem });
        all.filter(|found| found.list(Table::Nat, "POSTROUTING").is_ok()).collect()
    }

    fn program(&self, suffix: &str) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    /// One chain with its rules.
    pub(crate) fn list(&self, table: Table, chain: &str) -> sys::Result<Saved> {
        let mut command = Command::new(self.program(""));
        command.args(["-w", LOCK_WAIT_SECONDS_MAX, "-t", table.name(), "-S", chain]);
        run(command, "").map(|rules| Saved::read(&format!("*{}\n{rules}", table.name())))
    }

    /// What there is in all tables of ours.
    pub(crate) fn save(&self) -> sys::Result<Saved> {
        let mut saved = String::new();
        for table in Table::ALL {
            let mut command = Command::new(self.program("-save"));
            command.args(["-t", table.name()]);
            saved.push_str(&run(command, "")?);
        }
        Ok(Saved::read(&saved))
    }

    /// Has each table changed at once, and leaves what is not spoken of.
    pub(crate) fn restore(&self, input: &str) -> sys::Result<()> {
        if input.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(self.program("-restore"));
        command.args(["-w", LOCK_WAIT_SECONDS_MAX, "--noflush", "--counters"]);
        run(command, input).map(drop)
    }
}

/// The program of this name that has one to restore rules, too.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let is_whole = |stem: &PathBuf| {
        ["", "-save", "-restore"].iter().all(|suffix| {
            let mut program = stem.clone().into_os_string();
            program.push(suffix);
            Path::new(&program).is_file()
        })
    };
    folders.map(|folder| folder.join(name)).find(|stem| stem.is_absolute() && is_whole(stem))
}

fn run(mut command: Command, input: &str) -> sys::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source: io::Error| sys::Error::new(format!("run {program}"), source);
    let mut child = command
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It may say something before it has read everything.
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        child.wait_with_output()
    });
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(io::Error::other(reason(&said, input))))
}

/// What a program said, in one line, and the line that it did not take.
fn reason(said: &str, input: &str) -> String {
    let is_telling = |line: &&str| {
        !line.trim().is_empty() && !line.starts_with("Try ") && !line.starts_with("Error occurred")
    };
    let mut text = said.lines().filter(is_telling).map(str::trim).collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        text.push_str("it failed and did not say why");
    }
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= ERROR_BYTES_MAX).last();
    text.truncate(end.unwrap_or_default());
    // `line N failed` or, from nftables' own, `line N: ...`; `Error occurred at line: N`.
    let numbers = said.split("line").skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches([':', ' ']);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse::<usize>().ok()
    });
    let line = numbers.filter_map(|number| input.lines().nth(number.checked_sub(1)?)).next();
    line.map_or(text.clone(), |line| format!("{text}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_names_the_line_that_was_not_taken() {
        let input = "*nat\n:A - [0:0]\n-A A -j B\nCOMMIT\n";
        for (what, said, expect) in [
            (
                "nftables' own",
                "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (No such file or directory): rule in chain A\n",
                "iptables-restore v1.8.9 (nf_tables): line 3: RULE_APPEND failed (No such file or directory): rule in chain A: -A A -j B",
            ),
            (
                "the old one",
                "iptables-restore v1.8.9 (legacy): Couldn't load target `B':No such file or directory\n\nError occurred at line: 3\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
                "iptables-restore v1.8.9 (legacy): Couldn't load target `B':No such file or directory: -A A -j B",
            ),
            ("a line that there is not", "line 99 failed\n", "line 99 failed"),
            ("silence", "\n", "it failed and did not say why"),
        ] {
            assert_eq!(reason(said, input), expect, "{what}");
        }
        assert!(reason(&"ü".repeat(5000), "").len() <= ERROR_BYTES_MAX);
    }
}
