//! `emptyDir`: a folder of the Pod's, on the disk, in memory, or in huge pages.

use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use nix::mount::MsFlags;

use super::VolumeInput;
use super::error::{Specific, VolumeError, at};
use super::folder::{make_dir, mount_new, set_mode};
use crate::pod::{huge_pages, quantity};

/// The size of the pages is not known.
#[derive(Debug, thiserror::Error)]
enum HugePagesError {
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    SeveralSizes(String),
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NotRequested(String),
}

impl Specific for HugePagesError {}

/// A folder that is there is whole: it is made beside and renamed. What is in memory is made whole by the mount, also
/// after a reboot, when the folder is there and nothing is mounted.
pub(super) fn prepare(path: &Path, volume: &Volume, input: &VolumeInput) -> Result<(), VolumeError> {
    let Some(source) = &volume.empty_dir else { return Ok(()) };
    let spec = input.spec();
    let group = spec.security_context.as_ref().and_then(|context| context.fs_group);
    let group = group.and_then(|group| u32::try_from(group).ok());
    let medium = source.medium.as_deref().unwrap_or_default();
    // Before anything is made: it may be that nothing can be.
    let page_size = medium.starts_with("HugePages").then(|| page_size(medium, spec)).transpose()?;
    if !path.exists() {
        let mut beside = path.as_os_str().to_owned();
        beside.push("~new");
        let beside = PathBuf::from(beside);
        make_dir(&beside, 0o777)?;
        // The process's umask may have taken bits away.
        set_mode(&beside, 0o777)?;
        if let Some(group) = group {
            chown(&beside, None, Some(group)).map_err(at("chown", &beside))?;
            set_mode(&beside, 0o2777)?;
        }
        std::fs::rename(&beside, path).map_err(at("mkdir", path))?;
    }
    let owner = |sticky: u32| {
        group.map_or(format!("mode={sticky}777"), |group| format!("mode={}777,gid={group}", sticky | 2))
    };
    if let Some(page_size) = page_size {
        let options = format!("pagesize={page_size},{}", owner(0));
        mount_new(path, "hugetlbfs", MsFlags::MS_NODEV, Some(&options))?;
        // The kernel takes no set-group-id bit as an option here.
        return if group.is_some() { set_mode(path, 0o2777) } else { Ok(()) };
    }
    if medium == "Memory" {
        // With the sticky bit, as the kernel's default for tmpfs and so upstream's.
        let size = memory_size(source.size_limit.as_ref(), spec, input.allocatable_memory());
        mount_memory(path, size, Some(owner(1)))?;
    }
    Ok(())
}

/// A file system in memory. It is never swapped out, where the kernel (6.4 and later) can see to that: it may hold
/// secrets.
pub(super) fn mount_memory(path: &Path, size: Option<i64>, owner: Option<String>) -> Result<(), VolumeError> {
    let size = size.map(|size| format!("size={size}"));
    let options: Vec<String> = size.into_iter().chain(owner).collect();
    let mount = |options: &[String]| mount_new(path, "tmpfs", MsFlags::empty(), Some(&options.join(",")));
    let kept = [&options[..], &["noswap".to_owned()]].concat();
    mount(&kept).or_else(|_| mount(&options))
}

/// Bytes that a volume in memory can hold: no more than its Pod may use, whatever the volume's own limit.
/// `allocatable` is what the node gives to Pods. Source: `calculateEmptyDirMemorySize`, KEP-1967.
pub(super) fn memory_size(limit: Option<&Quantity>, spec: &PodSpec, allocatable: Option<i64>) -> Option<i64> {
    let of_pod = crate::pod::qos::pod_resources(spec).memory_limit_in_bytes;
    let all = [allocatable.unwrap_or(0), of_pod, limit.map_or(0, quantity::whole)];
    all.into_iter().filter(|bytes| *bytes > 0).min()
}

/// Bytes of a page: as the medium says (`HugePages-2Mi`), or of the one size that the Pod asks for.
///
/// Source: `getPageSizeMountOption` of upstream's `pkg/volume/emptydir`.
fn page_size(medium: &str, spec: &PodSpec) -> Result<i64, HugePagesError> {
    let asked: BTreeSet<i64> = huge_pages::requested(spec).into_values().collect();
    let named = match medium {
        "HugePages" if asked.len() > 1 => {
            return Err(HugePagesError::SeveralSizes(medium.to_owned()));
        }
        "HugePages" => asked.first().copied(),
        sized => {
            let resource = sized.replacen("HugePages-", "hugepages-", 1);
            huge_pages::page_size(&resource).filter(|size| asked.contains(size))
        }
    };
    named.ok_or_else(|| HugePagesError::NotRequested(medium.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_no_more_than_the_least_of_what_limits_it() {
        let (node, one, two) = (Some(64 << 20), "memory: 1Mi", "memory: 2Mi");
        for (limit, first, second, allocatable, expect) in [
            (Some("4Mi"), one, two, node, Some(3 << 20)),
            (Some("2Mi"), one, two, node, Some(2 << 20)),
            (None, one, two, node, Some(3 << 20)),
            // Without a limit of each, there is none of the whole.
            (None, one, "cpu: 1", node, Some(64 << 20)),
            (Some("128Mi"), one, "cpu: 1", node, Some(64 << 20)),
            (Some("0"), "cpu: 1", "cpu: 1", node, Some(64 << 20)),
            (None, "cpu: 1", "cpu: 1", None, None),
        ] {
            let container = |limits| format!("{{name: c, resources: {{limits: {{{limits}}}}}}}");
            let text = format!("{{containers: [{}, {}]}}", container(first), container(second));
            let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
            let limit = limit.map(|limit| Quantity(limit.to_owned()));
            let found = memory_size(limit.as_ref(), &spec, allocatable);
            assert_eq!(found, expect, "{limit:?} {first} {second} {allocatable:?}");
        }
    }

    #[test]
    fn huge_pages_have_the_size_that_is_asked_for() {
        let none = "hugePages storage requested, but there is no resource request for huge pages";
        let many = "medium: HugePages can't be used if container requests multiple huge page sizes";
        let two = "hugepages-2Mi: 4Mi";
        let both = "hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi";
        for (medium, requests, expect) in [
            ("HugePages", two, Ok(2 << 20)),
            ("HugePages-2Mi", two, Ok(2 << 20)),
            ("HugePages-1Gi", both, Ok(1 << 30)),
            ("HugePages", both, Err(many.to_owned())),
            ("HugePages-1Gi", two, Err(format!("medium HugePages-1Gi: {none}"))),
            ("HugePages", "cpu: 1", Err(format!("medium HugePages: {none}"))),
        ] {
            let text = format!("{{containers: [{{name: a, resources: {{requests: {{{requests}}}}}}}]}}");
            let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
            let found = page_size(medium, &spec).map_err(|error| error.to_string());
            assert_eq!(found, expect, "{medium} of {requests}");
        }
    }
}
