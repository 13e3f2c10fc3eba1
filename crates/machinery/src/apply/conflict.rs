//! Fields that somebody else owns with another value, and how users are told.

use super::element::FieldPath;
use super::managers::{Identity, Operation};

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as upstream prints it.
    pub manager: String,
    /// The path, such as `.spec.replicas`.
    pub field: String,
}

/// All conflicts of one apply, by manager and path; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", message(.0))]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflict {
    /// A conflict with the owner of `path`.
    pub fn new(owner: &Identity<'_>, path: &FieldPath<'_>) -> Self {
        Self { manager: shown(owner), field: path.to_string() }
    }
}

fn shown(owner: &Identity<'_>) -> String {
    let mut text = format!("{:?}", owner.manager);
    if !owner.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", owner.subresource));
    }
    if owner.operation == Operation::Update {
        text.push_str(&format!(" using {}", owner.api_version));
    }
    text
}

fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field);
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
