//! `knarr version`

use std::io::Write;

use machinery::version::Build;

/// What the build script has found out.
pub(crate) const BUILD: Build = Build {
    commit: env!("KNARR_COMMIT"),
    tree_state: env!("KNARR_TREE_STATE"),
    date: env!("KNARR_BUILD_DATE"),
};

/// Prints the version and the API level, and what it was built from, if that is known.
pub(crate) fn run() -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", text(&BUILD))?;
    Ok(())
}

fn text(build: &Build) -> String {
    let version = format!("knarr {} (Kubernetes API v1.35)", env!("CARGO_PKG_VERSION"));
    match build.commit {
        "" => version,
        commit => format!("{version}\ncommit {commit} ({}) of {}", build.tree_state, build.date),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_git_says_nothing_of_a_commit() {
        let version = format!("knarr {} (Kubernetes API v1.35)", env!("CARGO_PKG_VERSION"));
        let unknown = Build { commit: "", tree_state: "", date: "1970-01-01T00:00:00Z" };
        assert_eq!(text(&unknown), version);
        let known = Build { commit: "0123abc", tree_state: "dirty", date: "2026-01-02T03:04:05Z" };
        assert_eq!(text(&known), format!("{version}\ncommit 0123abc (dirty) of 2026-01-02T03:04:05Z"));
    }

    /// The build script's date, against a calendar that is not its own.
    #[test]
    fn this_build_has_a_date() {
        let date: jiff::Timestamp = BUILD.date.parse().unwrap();
        assert_eq!(date.to_string(), BUILD.date);
        if !BUILD.commit.is_empty() {
            assert!(BUILD.commit.len() >= 40 && BUILD.commit.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let git =
                std::process::Command::new("git").args(["show", "-s", "--format=%ct", BUILD.commit]).output();
            let second = String::from_utf8(git.unwrap().stdout).unwrap().trim().parse::<i64>().unwrap();
            let given = option_env!("SOURCE_DATE_EPOCH").and_then(|text| text.parse().ok());
            assert_eq!(date.as_second(), given.unwrap_or(second));
        }
    }
}
