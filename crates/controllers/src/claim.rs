//! The objects of a controller: adoption and release by selector and controller reference.
//!
//! An object that somebody else controls is left alone. Every patch carries the object's uid, so that a namesake
//! made meanwhile is never touched.

use std::sync::Arc;

use controller::metadata::Object;
use controller::metadata::{controller_of, controller_reference, is_deleting, name, namespace, uid};
use controller::{Action, Patch, ResourceRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::json;

use controller::selector::selects;

/// The outcome of [`claim`].
pub(crate) struct Claims<K> {
    /// What belongs to the owner once `actions` are done.
    pub(crate) owned: Vec<Arc<K>>,
    /// The adoptions and releases to make; they can run concurrently.
    pub(crate) actions: Vec<Action>,
}

/// Sorts `candidates` (what the owner controls, and orphans) into what belongs to `owner`, and says which to
/// adopt and which to release.
pub(crate) fn claim<O: Object, K: Object>(
    owner: &O,
    selector: &LabelSelector,
    candidates: impl IntoIterator<Item = Arc<K>>,
) -> Claims<K> {
    claim_holding(owner, selector, None, candidates)
}

/// The same for an owner that has a finalizer on what belongs to it.
pub(crate) fn claim_holding<O: Object, K: Object>(
    owner: &O,
    selector: &LabelSelector,
    finalizer: Option<&str>,
    candidates: impl IntoIterator<Item = Arc<K>>,
) -> Claims<K> {
    let owner_uid = uid(owner.metadata());
    let owner_stays = !is_deleting(owner.metadata());
    let mut claims = Claims { owned: Vec::new(), actions: Vec::new() };
    for candidate in candidates {
        let meta = candidate.metadata();
        let selected = selects(selector, meta.labels.as_ref());
        match controller_of(meta) {
            Some(reference) if reference.uid != owner_uid => {}
            Some(_) if selected => claims.owned.push(candidate),
            Some(_) if owner_stays => claims.actions.push(release::<K>(meta, owner_uid, finalizer)),
            Some(_) => {}
            None if selected && owner_stays && !is_deleting(meta) => {
                claims.actions.push(adopt::<O, K>(owner, meta, finalizer));
                claims.owned.push(candidate);
            }
            None => {}
        }
    }
    claims
}

fn adopt<O: Object, K: Object>(owner: &O, meta: &ObjectMeta, finalizer: Option<&str>) -> Action {
    let mut body = json!({"metadata": {"uid": uid(meta), "ownerReferences": [controller_reference(owner)]}});
    if let Some(finalizer) = finalizer {
        body["metadata"]["finalizers"] = json!([finalizer]);
    }
    patch::<K>(meta, body)
}

fn release<K: Object>(meta: &ObjectMeta, owner_uid: &str, finalizer: Option<&str>) -> Action {
    let owners = json!([{"$patch": "delete", "uid": owner_uid}]);
    let mut body = json!({"metadata": {"uid": uid(meta), "ownerReferences": owners}});
    if let Some(finalizer) = finalizer {
        body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patch::<K>(meta, body)
}

fn patch<K: Object>(meta: &ObjectMeta, body: serde_json::Value) -> Action {
    Action::patch_ref(ResourceRef::of::<K>(), namespace(meta), name(meta), "", Patch::Strategic(body))
}
