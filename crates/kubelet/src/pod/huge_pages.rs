//! Huge pages: what Pods ask for, in the kernel's words. Pure.
//!
//! Source: `v1helper.HugePageSizeFromResourceName` and `pkg/kubelet/cm/helpers_linux.go` of upstream.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::quantity;
use crate::pod::requests::pod_request;

/// The size of a page of the resource `hugepages-2Mi`, in bytes.
pub(crate) fn page_size(resource: &str) -> Option<i64> {
    let size = quantity::whole(&Quantity(resource.strip_prefix("hugepages-")?.to_owned()));
    (size > 0).then_some(size)
}

/// A page size as the kernel's files spell it: `2MB`.
pub(crate) fn kernel_name(size: i64) -> Option<String> {
    let (unit, power) =
        [("GB", 30), ("MB", 20), ("KB", 10)].into_iter().find(|(_, power)| size >> power > 0)?;
    Some(format!("{}{unit}", size >> power))
}

fn limit(resource: &str, bytes: i64) -> Option<v1::HugepageLimit> {
    let page_size = kernel_name(page_size(resource)?)?;
    Some(v1::HugepageLimit { page_size, limit: u64::try_from(bytes).ok()? })
}

/// What a container may have.
pub(crate) fn of_container(container: &Container) -> Vec<v1::HugepageLimit> {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    limits.filter_map(|(name, amount)| limit(name, quantity::whole(amount))).collect()
}

/// What a Pod may have: as much as it asks for, since requests and limits are the same.
pub(crate) fn of_pod(spec: &PodSpec) -> Vec<v1::HugepageLimit> {
    let sizes = requested(spec).into_keys();
    sizes.filter_map(|name| limit(name, pod_request(spec, name, quantity::whole))).collect()
}

/// The sizes that a Pod or a container of it asks for, by resource.
pub(crate) fn requested(spec: &PodSpec) -> BTreeMap<&str, i64> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let resources = containers.map(|container| container.resources.as_ref()).chain([spec.resources.as_ref()]);
    let requests = resources.flatten().flat_map(|resources| resources.requests.iter().flatten());
    requests.filter_map(|(name, _)| Some((name.as_str(), page_size(name)?))).collect()
}

/// Who asks for none of a size has none: the kernel's default is as many as there are. `sizes` are the host's, in bytes.
pub(crate) fn deny_others(limits: &mut Vec<v1::HugepageLimit>, sizes: &[u64]) {
    let all = sizes.iter().filter_map(|size| kernel_name(i64::try_from(*size).ok()?));
    let others: Vec<_> = all.filter(|name| limits.iter().all(|limit| limit.page_size != *name)).collect();
    limits.extend(others.into_iter().map(|page_size| v1::HugepageLimit { page_size, limit: 0 }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::qos;

    fn told(limits: &[v1::HugepageLimit]) -> Vec<(&str, u64)> {
        limits.iter().map(|limit| (limit.page_size.as_str(), limit.limit)).collect()
    }

    const SPEC: &str = "{containers: [
        {name: a, resources: {requests: {hugepages-2Mi: 8Mi, hugepages-1Gi: 1Gi}, limits: {cpu: '1', hugepages-2Mi: 8Mi, hugepages-1Gi: 1Gi}}},
        {name: b, resources: {requests: {hugepages-2Mi: 4Mi}, limits: {hugepages-2Mi: 4Mi}}}]}";

    #[test]
    fn pages_are_limited_by_size() {
        let spec: PodSpec = serde_saphyr::from_str(SPEC).unwrap();
        assert_eq!(told(&of_container(&spec.containers[0])), [("1GB", 1 << 30), ("2MB", 8 << 20)]);
        assert_eq!(told(&of_container(&spec.containers[1])), [("2MB", 4 << 20)]);
        assert_eq!(told(&of_pod(&spec)), [("1GB", 1 << 30), ("2MB", 12 << 20)]);
        let of_containers = qos::container_resources(&spec, &spec.containers[0], 1 << 31).hugepage_limits;
        assert_eq!(of_containers, of_container(&spec.containers[0]));
        assert_eq!(qos::pod_resources(&spec).hugepage_limits, of_pod(&spec));
    }

    #[test]
    fn who_asks_for_none_has_none() {
        let spec: PodSpec = serde_saphyr::from_str(SPEC).unwrap();
        let mut limits = of_container(&spec.containers[1]);
        deny_others(&mut limits, &[64 << 10, 2 << 20, 1 << 30]);
        assert_eq!(told(&limits), [("2MB", 4 << 20), ("64KB", 0), ("1GB", 0)]);
    }

    #[test]
    fn a_pods_own_pages_come_before_its_containers() {
        let text = "{resources: {requests: {hugepages-2Mi: 16Mi}}, containers: [{name: a, resources: {requests: {hugepages-2Mi: 8Mi}}}]}";
        let spec: PodSpec = serde_saphyr::from_str(text).unwrap();
        assert_eq!(told(&of_pod(&spec)), [("2MB", 16 << 20)]);
    }
}
