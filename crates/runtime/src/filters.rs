//! What filters of CRI's lists and stats have in common.

use std::collections::HashMap;

/// `true` if every label that is wanted is there.
pub(crate) fn has_labels(labels: &HashMap<String, String>, wanted: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}
