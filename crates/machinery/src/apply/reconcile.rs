//! Owned paths under a schema that has changed since they were written down.
//!
//! What was merged part by part and changes hands as a whole now is owned as a whole by whoever owned a part of it. The
//! other way round nothing is done: who owned the whole owns it as before, until they write it again.
//! Source: `typed.ReconcileFieldSetWithSchema` of `sigs.k8s.io/structured-merge-diff`.

use super::Versions;
use super::managers::Managers;
use super::remove::below;
use super::set::Set;
use super::typed::{Atom, Typed, Values};

/// Brings all entries in line with the schemas of today; those of versions that are not served any more go.
pub(super) fn reconcile(versions: &dyn Versions, managers: &mut Managers<'_>) {
    managers.retain_sets(|api_version, set| {
        let schema = versions.schema(api_version)?;
        Some(sets(Typed::root(schema), set))
    });
}

/// The same for one set; says whether it has changed.
pub(super) fn sets(typed: Typed<'_>, set: &mut Set<'_>) -> bool {
    let mut is_changed = false;
    for node in set.nodes_mut().iter_mut().filter(|node| !node.children.is_empty()) {
        let item = below(typed, &node.element);
        if is_atomic(item) {
            node.is_member = true;
            node.children = Set::new();
            is_changed = true;
        } else {
            is_changed |= sets(item, &mut node.children);
        }
    }
    is_changed
}

/// Whether values of the type have parts, but change hands as a whole.
fn is_atomic(typed: Typed<'_>) -> bool {
    let has_parts = matches!(typed.values(), Values::Object(_) | Values::Map(_) | Values::List(_));
    has_parts && matches!(typed.atom(), Atom::Leaf)
}

#[cfg(test)]
mod tests {
    use super::super::fields_v1;
    use super::*;
    use serde_json::{Value, json};

    fn check(owned: Value, expect: Option<Value>) {
        let schema = schema::builtin().kind("", "v1", "Pod").unwrap();
        let mut set = fields_v1::decode(&owned).unwrap();
        let is_changed = sets(Typed::root(schema), &mut set);
        assert_eq!(is_changed.then(|| fields_v1::encode(&set)), expect, "{owned}");
    }

    #[test]
    fn parts_of_what_is_atomic_now_become_the_whole() {
        check(
            json!({"f:spec": {"f:nodeSelector": {"f:a": {}}, "f:hostname": {}}}),
            Some(json!({"f:spec": {"f:nodeSelector": {}, "f:hostname": {}}})),
        );
        let container = |command: Value| json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:command": command}}}});
        check(container(json!({"v:\"sh\"": {}})), Some(container(json!({}))));
        check(container(json!({})), None);
    }

    #[test]
    fn what_is_merged_or_unknown_stays() {
        check(
            json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": {}}}),
            None,
        );
        check(json!({"f:spec": {"f:nonsense": {"f:a": {}}}}), None);
    }
}
