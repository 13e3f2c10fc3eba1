//! The preparation of an object by its kind's strategy before it is checked: what clients may not set is as it was,
//! what only the server sets is set.

use machinery::metadata::{self, Metadata};
use resources::PartialStrategy;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::codec;
use crate::kinds::{Kind, Part};
use crate::status::Result;

/// Fills in defaults, and the times that are the server's to set.
///
/// # Errors
/// 413 if the defaults of a custom kind take too much memory.
pub fn default(cluster: &Cluster, kind: &Kind, object: &mut Value) -> Result<()> {
    codec::default(kind, object)?;
    kind.strategy().set_times(object, cluster.clock.now());
    Ok(())
}

/// Prepares a new object; answers what its author is to be warned of.
pub fn for_create(cluster: &Cluster, kind: &Kind, object: &mut Value) -> Vec<String> {
    let strategy = kind.strategy();
    metadata::set(object, "uid", cluster.random.uuid());
    metadata::set(object, "creationTimestamp", metadata::time(cluster.clock.now()));
    metadata::remove(object, "selfLink");
    drop_empty_metadata(object);
    strategy.begin_create(object);
    (strategy.warnings)(object)
}

/// Prepares a changed object; answers what its author is to be warned of.
pub fn for_update(cluster: &Cluster, kind: &Kind, part: Part, new: &mut Value, old: &Value) -> Vec<String> {
    let strategy = kind.strategy();
    match part {
        Part::Object => {
            // Of what admission has added.
            strategy.set_times(new, cluster.clock.now());
            strategy.begin_update(new, old);
        }
        Part::Status => strategy.begin_status_update(new, old, cluster.clock.now()),
        Part::Approval => resources::strategies::approve(new, old, cluster.clock.now()),
        // Prepared before the managed fields were set; no plugin changes what it must not.
        Part::Partial(_) | Part::Raw => {}
    }
    metadata::set(new, "resourceVersion", Metadata::of(old).resource_version());
    machinery::apply::restore_times(old, new);
    drop_empty_metadata(new);
    match part {
        Part::Object => (strategy.warnings_on_update)(new, old),
        Part::Status => (strategy.warnings_on_status_update)(new, old),
        Part::Approval | Part::Partial(_) | Part::Raw => Vec::new(),
    }
}

/// The strategy of a write to a part that has one of its own.
pub fn partial_of(kind: &Kind, part: Part) -> Option<&'static PartialStrategy> {
    match part {
        Part::Partial(subresource) => resources::partial(kind.row(), subresource),
        _ => None,
    }
}

/// Empty maps and lists in metadata are the same as none: upstream omits them.
fn drop_empty_metadata(object: &mut Value) {
    let Some(metadata) = metadata::metadata_mut(object) else { return };
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = match metadata.get(name) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            metadata.remove(name);
        }
    }
}
