//! The version of Kubernetes: the content of `/version`, and `kubernetes_build_info`.

use std::sync::OnceLock;

/// The version that components report: the API level, and who made them.
pub const GIT_VERSION: &str = "v1.35.0+knarr";

/// A fact: its name in `/version`, its label of `kubernetes_build_info`, and its value.
///
/// Source: `version.Info` of `k8s.io/apimachinery`; `registerBuildInfo` of `k8s.io/component-base/metrics`.
pub type Fact = (&'static str, &'static str, String);

/// The source of this build. Where nobody knows, it is as upstream's own defaults are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The commit, in full.
    pub commit: &'static str,
    /// `clean` if the files were the commit's, else `dirty`.
    pub tree_state: &'static str,
    /// The time, as RFC 3339: of a commit its own time, so that builds of it are the same whenever they are made.
    pub date: &'static str,
}

const UNKNOWN: Build = Build { commit: "", tree_state: "", date: "1970-01-01T00:00:00Z" };

static BUILD: OnceLock<Build> = OnceLock::new();

/// Says once, before anybody asks, what this program was built from. Later calls say nothing.
pub fn built_from(build: Build) {
    BUILD.get_or_init(|| build);
}

/// The source of this program's build.
pub fn build() -> Build {
    BUILD.get().copied().unwrap_or(UNKNOWN)
}

/// All of them. What only Go has is empty.
pub fn facts() -> [Fact; 9] {
    let build = build();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    [
        ("major", "major", "1".to_owned()),
        ("minor", "minor", "35".to_owned()),
        ("gitVersion", "git_version", GIT_VERSION.to_owned()),
        ("gitCommit", "git_commit", build.commit.to_owned()),
        ("gitTreeState", "git_tree_state", build.tree_state.to_owned()),
        ("buildDate", "build_date", build.date.to_owned()),
        ("goVersion", "go_version", String::new()),
        ("compiler", "compiler", "rustc".to_owned()),
        ("platform", "platform", format!("linux/{arch}")),
    ]
}

/// Name, help and labels of the metric that says so in every component.
pub fn build_info() -> (&'static str, &'static str, Vec<(&'static str, String)>) {
    let help = "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, \
                build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running";
    ("kubernetes_build_info", help, facts().map(|(_, label, value)| (label, value)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_what_the_parts_say() {
        let [(_, _, major), (_, _, minor), (_, _, version), ..] = facts();
        assert!(version.starts_with(&format!("v{major}.{minor}.")));
    }

    #[test]
    fn what_the_program_was_built_from_is_said_once() {
        assert_eq!(build(), UNKNOWN);
        let one = Build { commit: "abc", tree_state: "clean", date: "2026-01-01T00:00:00Z" };
        built_from(one);
        built_from(Build { commit: "def", ..one });
        let said: Vec<String> = facts().into_iter().skip(3).take(3).map(|(_, _, value)| value).collect();
        assert_eq!(said, ["abc", "clean", "2026-01-01T00:00:00Z"]);
    }
}
