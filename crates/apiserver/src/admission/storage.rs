//! Volumes and claims in use are not removed, and claims grow only where their class allows it.
//!
//! Source: `plugin/pkg/admission/storage/storageobjectinuseprotection`, `.../persistentvolume/resize`.

use machinery::metadata::{self, Metadata};
use resources::pod_resources::amounts;
use serde_json::Value;

use super::{Context, Operation, text};
use crate::status::Result;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const ATTRIBUTES_FINALIZER: &str = "kubernetes.io/vac-protection";

/// Gives new claims, volumes and attributes classes the finalizers that hold them while they are in use.
pub(super) fn protect(context: &Context<'_>, object: &mut Value) -> Result<()> {
    if context.operation != Operation::Create {
        return Ok(());
    }
    let finalizer = if context.is_core("persistentvolumeclaims") {
        CLAIM_FINALIZER
    } else if context.is_core("persistentvolumes") {
        VOLUME_FINALIZER
    } else if is_attributes_class(context) {
        ATTRIBUTES_FINALIZER
    } else {
        return Ok(());
    };
    let mut finalizers: Vec<String> =
        Metadata::of(object).finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|one| one == finalizer) {
        finalizers.push(finalizer.to_owned());
        let all: Vec<&str> = finalizers.iter().map(String::as_str).collect();
        metadata::set_finalizers(object, &all);
    }
    Ok(())
}

fn is_attributes_class(context: &Context<'_>) -> bool {
    let kind = &context.request.kind;
    kind.group() == "storage.k8s.io" && kind.resource() == "volumeattributesclasses"
}

/// The claim's StorageClass, in an annotation or in its field.
fn class_of(claim: &Value) -> &str {
    let annotated = Metadata::of(claim).annotation("volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(claim, "/spec/storageClassName"))
}

/// A bound claim of a class that allows it may ask for more.
pub(super) fn resize(context: &Context<'_>, claim: &Value) -> Result<()> {
    let Some(old) = context.old.filter(|_| matches!(context.operation, Operation::Update(_))) else {
        return Ok(());
    };
    if !context.is_core("persistentvolumeclaims") {
        return Ok(());
    }
    let size = |object: &Value| {
        amounts(object.pointer("/spec/resources/requests")).get("storage").copied().unwrap_or_default()
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| Err(context.forbidden(Metadata::of(claim).name(), why));
    if text(old, "/status/phase") != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let (name, before) = (class_of(claim), class_of(old));
    let class = Some(name).filter(|name| !name.is_empty() && *name == before);
    let class = class.and_then(|name| context.lookup("storage.k8s.io", "v1", "storageclasses", "", name));
    let allows =
        class.is_some_and(|class| class.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true));
    if allows {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}
