//! AlwaysPullImages: every image is pulled anew, so that nobody runs what another's credentials have brought to a Node.
//! Off by default.
//!
//! Source: `plugin/pkg/admission/alwayspullimages`, KEP-4639.

use std::collections::BTreeSet;

use machinery::field::{FieldError, Path};
use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::{Context, Operation, text};
use crate::status::Result;

const ALWAYS: &str = "Always";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Sets the policy of all images.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if is_none_of_ours(context, pod) {
        return Ok(());
    }
    let Some(spec) = pod.get_mut("spec") else { return Ok(()) };
    for field in CONTAINERS {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            container["imagePullPolicy"] = json!(ALWAYS);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = volume.get_mut("image").filter(|image| image.is_object()) {
            image["pullPolicy"] = json!(ALWAYS);
        }
    }
    Ok(())
}

/// Refuses what another plugin has set since.
pub(super) fn validate(context: &Context<'_>, pod: &Value) -> Result<()> {
    if is_none_of_ours(context, pod) {
        return Ok(());
    }
    let spec = Path::new("spec");
    let list = |field: &str| pod.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_array);
    let containers = CONTAINERS.iter().flat_map(|field| {
        let path = spec.child(field);
        let all = list(field).into_iter().flatten().enumerate();
        all.map(move |(index, one)| {
            (path.index(index).child("imagePullPolicy"), text(one, "/imagePullPolicy"))
        })
    });
    let volumes = list("volumes").into_iter().flatten().enumerate();
    let images = volumes.filter(|(_, volume)| volume.get("image").is_some_and(Value::is_object)).map(
        |(index, volume)| {
            let path = spec.child("volumes").index(index).child("image").child("pullPolicy");
            (path, text(volume, "/image/pullPolicy"))
        },
    );
    match containers.chain(images).find(|(_, policy)| *policy != ALWAYS) {
        None => Ok(()),
        Some((path, policy)) => {
            let why = FieldError::not_supported(&path, policy, &[ALWAYS]);
            Err(context.forbidden(Metadata::of(pod).name(), &why.to_string()))
        }
    }
}

/// Whether it is no Pod, or one whose images were there before.
fn is_none_of_ours(context: &Context<'_>, pod: &Value) -> bool {
    if !context.is_core("pods") || context.operation == Operation::Delete {
        return true;
    }
    context.old.is_some_and(|old| images(pod).is_subset(&images(old)))
}

fn images(pod: &Value) -> BTreeSet<&str> {
    let list = |field: &&str| pod.get("spec").and_then(|spec| spec.get(*field)).and_then(Value::as_array);
    CONTAINERS.iter().filter_map(list).flatten().map(|container| text(container, "/image")).collect()
}
