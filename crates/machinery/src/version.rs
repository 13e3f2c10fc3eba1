//! Which Kubernetes this is: what `/version` says, and `kubernetes_build_info`.

/// What components say that they are: the API level, and who made them.
pub const GIT_VERSION: &str = "v1.35.0+knarr";

/// A fact: its name in `/version`, its label of `kubernetes_build_info`, and its value.
///
/// Source: `version.Info` of `k8s.io/apimachinery`; `registerBuildInfo` of `k8s.io/component-base/metrics`.
pub type Fact = (&'static str, &'static str, String);

/// All of them. What only Go has is empty, and nothing says when this was built: builds are the same whenever they are made.
pub fn facts() -> [Fact; 9] {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    [
        ("major", "major", "1".to_owned()),
        ("minor", "minor", "35".to_owned()),
        ("gitVersion", "git_version", GIT_VERSION.to_owned()),
        ("gitCommit", "git_commit", String::new()),
        ("gitTreeState", "git_tree_state", "clean".to_owned()),
        ("buildDate", "build_date", "1970-01-01T00:00:00Z".to_owned()),
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
}
