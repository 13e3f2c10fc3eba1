//! Claims and ingresses that name no class get the cluster's default one.
//!
//! Source: `plugin/pkg/admission/storage/storageclass/setdefault`, `plugin/pkg/admission/network/defaultingressclass`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, child};
use crate::status::Result;

const STORAGE_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const INGRESS_DEFAULT: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
const STORAGE_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Gives a new claim the default StorageClass.
pub(super) fn storage(context: &Context<'_>, claim: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !context.is_core("persistentvolumeclaims") {
        return Ok(());
    }
    // An empty name is a name: it asks for a volume without a class.
    let is_named = claim.pointer("/spec/storageClassName").is_some_and(|name| !name.is_null())
        || Metadata::of(claim).annotation(STORAGE_ANNOTATION).is_some();
    if is_named {
        return Ok(());
    }
    let newest = defaults(context, "storage.k8s.io", "storageclasses", &STORAGE_DEFAULT).into_iter().next();
    if let (Some(class), Some(spec)) = (newest, child(claim, "spec")) {
        spec.insert("storageClassName".to_owned(), class.into());
    }
    Ok(())
}

/// Gives a new ingress the newest default IngressClass.
pub(super) fn ingress(context: &Context<'_>, ingress: &mut Value) -> Result<()> {
    let kind = &context.request.kind;
    let is_ingress = kind.group() == "networking.k8s.io"
        && kind.resource() == "ingresses"
        && context.request.resource.subresource.is_empty();
    if context.operation != Operation::Create || !is_ingress {
        return Ok(());
    }
    let is_named = ingress.pointer("/spec/ingressClassName").is_some_and(|name| !name.is_null())
        || Metadata::of(ingress).annotation(INGRESS_ANNOTATION).is_some();
    if is_named {
        return Ok(());
    }
    let newest =
        defaults(context, "networking.k8s.io", "ingressclasses", &INGRESS_DEFAULT).into_iter().next();
    if let (Some(class), Some(spec)) = (newest, child(ingress, "spec")) {
        spec.insert("ingressClassName".to_owned(), class.into());
    }
    Ok(())
}

/// The default classes, newest first, then by name.
fn defaults(context: &Context<'_>, group: &str, resource: &str, annotations: &[&str]) -> Vec<String> {
    let Some(kind) = context.cluster.kind(group, "v1", resource) else { return Vec::new() };
    let listing = kind.cache().list(kind.prefix(), 0);
    let classes = listing.objects.iter().map(|object| kind.value(object)).collect();
    ranked(classes, annotations)
}

fn ranked(mut classes: Vec<Value>, annotations: &[&str]) -> Vec<String> {
    classes.retain(|class| {
        let metadata = Metadata::of(class);
        annotations.iter().any(|annotation| metadata.annotation(annotation) == Some("true"))
    });
    classes.sort_by_key(|class| {
        let metadata = Metadata::of(class);
        (std::cmp::Reverse(metadata.creation_timestamp()), metadata.name().to_owned())
    });
    classes.iter().map(|class| Metadata::of(class).name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_default_class_comes_first() {
        let class = |name: &str, at: &str, default: &str| -> Value {
            let yaml = format!(
                "{{metadata: {{name: {name}, creationTimestamp: '{at}', annotations: {{storageclass.kubernetes.io/is-default-class: '{default}'}}}}}}"
            );
            serde_saphyr::from_str(&yaml).unwrap()
        };
        let classes = vec![
            class("b", "2026-01-01T00:00:00Z", "true"),
            class("old", "2025-01-01T00:00:00Z", "true"),
            class("a", "2026-01-01T00:00:00Z", "true"),
            class("no", "2026-02-01T00:00:00Z", "false"),
        ];
        assert_eq!(ranked(classes, &STORAGE_DEFAULT), ["a", "b", "old"]);
    }
}
