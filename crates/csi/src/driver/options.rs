//! The parameters of a class: `backing` is fixed, `allocation` may change during the volume's life.
//!
//! Both are parameters of StorageClasses; `allocation` is one of VolumeAttributesClasses too.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tonic::Status;

/// What parameters of the cluster's own begin with: they are not for the driver.
const CLUSTERS: &str = "csi.storage.k8s.io/";

/// What a file system volume is on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Backing {
    /// A directory: it shares its disk with all others, so that its size is a wish.
    #[default]
    Directory,
    /// A file system of its own in a file: it is never larger than its size.
    Image,
}

/// When the disk's space is taken for a volume that is a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Allocation {
    /// Allocation at the first write.
    #[default]
    Thin,
    /// At once: what was promised can be written.
    Thick,
}

/// What a volume is to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) backing: Backing,
    pub(super) allocation: Allocation,
}

impl Options {
    /// Reads a StorageClass's parameters, and those of a VolumeAttributesClass, which come first.
    pub(super) fn of(
        parameters: &HashMap<String, String>,
        mutable: &HashMap<String, String>,
    ) -> crate::Result<Self> {
        let mut options = Self::default();
        let mut names: Vec<_> = parameters.keys().filter(|name| !name.starts_with(CLUSTERS)).collect();
        names.sort();
        for name in names {
            match name.as_str() {
                "backing" => {
                    let all = [("directory", Backing::Directory), ("image", Backing::Image)];
                    options.backing = choose(name, parameters, &all)?;
                }
                "allocation" => options.allocation = choose(name, parameters, &ALLOCATIONS)?,
                other => return invalid(format!("unknown parameter {other:?}")),
            }
        }
        options.allocation = allocation(mutable)?.unwrap_or(options.allocation);
        Ok(options)
    }
}

const ALLOCATIONS: [(&str, Allocation); 2] = [("thin", Allocation::Thin), ("thick", Allocation::Thick)];

/// Reads what may change while a volume lives; nothing if nothing is asked for.
pub(super) fn allocation(mutable: &HashMap<String, String>) -> crate::Result<Option<Allocation>> {
    let mut names: Vec<_> = mutable.keys().collect();
    names.sort();
    if let Some(unknown) = names.into_iter().find(|name| *name != "allocation") {
        return invalid(format!("unknown mutable parameter {unknown:?}"));
    }
    mutable.contains_key("allocation").then(|| choose("allocation", mutable, &ALLOCATIONS)).transpose()
}

/// The refusal of a request that cannot be.
pub(super) fn invalid<T>(why: impl Into<String>) -> crate::Result<T> {
    Err(Status::invalid_argument(why))
}

fn choose<T: Copy>(name: &str, from: &HashMap<String, String>, among: &[(&str, T)]) -> crate::Result<T> {
    let text = from.get(name).map(String::as_str).unwrap_or_default();
    let found = among.iter().find(|(known, _)| *known == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<_> = among.iter().map(|(known, _)| format!("{known:?}")).collect();
        Status::invalid_argument(format!("parameter {name:?} must be {}, not {text:?}", known.join(" or ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        parameters: &[(&str, &str)],
        mutable: &[(&str, &str)],
        expect: Result<(Backing, Allocation), &str>,
    ) {
        let map =
            |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let found = Options::of(&map(parameters), &map(mutable));
        let found = found.map(|options| (options.backing, options.allocation));
        let found = found.map_err(|status| status.message().to_owned());
        assert_eq!(found, expect.map_err(str::to_owned), "{parameters:?} {mutable:?}");
    }

    #[test]
    fn classes_say_what_a_volume_is_and_attributes_say_it_louder() {
        use {Allocation::*, Backing::*};
        check(&[], &[], Ok((Directory, Thin)));
        check(&[("csi.storage.k8s.io/fstype", "xfs"), ("backing", "image")], &[], Ok((Image, Thin)));
        check(&[("allocation", "thick")], &[], Ok((Directory, Thick)));
        check(&[("allocation", "thick")], &[("allocation", "thin")], Ok((Directory, Thin)));
        check(
            &[("backing", "tape")],
            &[],
            Err("parameter \"backing\" must be \"directory\" or \"image\", not \"tape\""),
        );
        check(&[("size", "1")], &[], Err("unknown parameter \"size\""));
        check(&[], &[("backing", "image")], Err("unknown mutable parameter \"backing\""));
    }
}
