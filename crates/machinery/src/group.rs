//! Groups, versions and resources as one text or as parts.

use std::fmt;

/// A group and version, such as `apps/v1`; the core group is the empty text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
}

impl GroupVersion {
    /// Reads an `apiVersion`, `None` when it has more than one `/`.
    pub fn parse(api_version: &str) -> Option<Self> {
        let (group, version) = split_api_version(api_version)?;
        Some(Self { group: group.to_owned(), version: version.to_owned() })
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return f.write_str(&self.version);
        }
        write!(f, "{}/{}", self.group, self.version)
    }
}

/// Group and version of an `apiVersion`; `None` when it has more than one `/`.
pub fn split_api_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None => Some(("", api_version)),
        Some((_, version)) if version.contains('/') => None,
        Some(parts) => Some(parts),
    }
}

/// `deployments.apps`, or `pods` in the core group, as messages name a resource.
pub fn group_resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_group_is_empty() {
        assert_eq!(split_api_version("v1"), Some(("", "v1")));
        assert_eq!(split_api_version("apps/v1"), Some(("apps", "v1")));
        assert_eq!(split_api_version("a/b/c"), None);
        assert_eq!(group_resource("apps", "deployments"), "deployments.apps");
        assert_eq!(GroupVersion::parse("apps/v1").unwrap().to_string(), "apps/v1");
    }
}
