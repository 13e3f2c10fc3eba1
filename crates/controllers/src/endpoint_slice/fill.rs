//! The distribution of endpoints over slices, so that as few slices as possible change.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::{Ports, Wanted};

/// Shares the endpoints of one address type among the `slices` that exist and new ones.
///
/// An endpoint stays where it is; those without a place go to slices that change anyway, then to those with
/// room, then to new ones. What is left over of `slices` is returned as surplus; when there is nothing to publish,
/// one slice without endpoints remains.
pub(super) fn fill(
    groups: Vec<(Ports, Vec<Endpoint>)>,
    slices: Vec<Arc<EndpointSlice>>,
    endpoints_max: usize,
) -> (Vec<Wanted>, Vec<Arc<EndpointSlice>>) {
    let mut unused = slices;
    let mut wanted: Vec<Wanted> = Vec::new();
    for (ports, endpoints) in groups {
        let (own, others) = unused
            .into_iter()
            .partition(|slice: &Arc<EndpointSlice>| slice.ports.as_deref().unwrap_or_default() == ports);
        unused = others;
        let (filled, emptied) = fill_group(&ports, endpoints, own, endpoints_max);
        wanted.extend(filled);
        unused.extend(emptied);
    }
    if wanted.is_empty() {
        wanted.push(Wanted { slice: None, ports: Ports::new(), endpoints: Vec::new() });
    }
    // A slice that would go can become one that would come: everything but its address type may change.
    for new in wanted.iter_mut().filter(|wanted| wanted.slice.is_none()) {
        if unused.is_empty() {
            break;
        }
        new.slice = Some(unused.remove(0));
    }
    (wanted, unused)
}

fn fill_group(
    ports: &Ports,
    endpoints: Vec<Endpoint>,
    slices: Vec<Arc<EndpointSlice>>,
    endpoints_max: usize,
) -> (Vec<Wanted>, Vec<Arc<EndpointSlice>>) {
    let places: HashMap<_, _> =
        endpoints.iter().enumerate().map(|(index, endpoint)| (identity(endpoint), index)).collect();
    let mut is_housed = vec![false; endpoints.len()];
    let mut filled: Vec<Wanted> = Vec::new();
    for slice in slices {
        let mut stays = Vec::new();
        for old in &slice.endpoints {
            let Some(index) = places.get(&identity(old)).copied().filter(|_| stays.len() < endpoints_max)
            else {
                continue;
            };
            if let (Some(housed @ false), Some(new)) = (is_housed.get_mut(index), endpoints.get(index)) {
                *housed = true;
                stays.push(new.clone());
            }
        }
        filled.push(Wanted { slice: Some(slice), ports: ports.clone(), endpoints: stays });
    }
    let mut homeless: Vec<Endpoint> = endpoints
        .iter()
        .zip(is_housed)
        .filter(|(_, housed)| !housed)
        .map(|(endpoint, _)| endpoint.clone())
        .collect();
    // Those that change anyway first, then the fullest that has room for all.
    filled.sort_by_cached_key(|wanted| (!is_changed(wanted), std::cmp::Reverse(wanted.endpoints.len())));
    let rest = homeless.len();
    for wanted in &mut filled {
        let room = endpoints_max.saturating_sub(wanted.endpoints.len());
        if !homeless.is_empty() && (is_changed(wanted) || room >= rest.min(endpoints_max)) {
            wanted.endpoints.extend(homeless.drain(..homeless.len().min(room)));
        }
    }
    while !homeless.is_empty() {
        let endpoints = homeless.drain(..homeless.len().min(endpoints_max)).collect();
        filled.push(Wanted { slice: None, ports: ports.clone(), endpoints });
    }
    let (kept, emptied): (Vec<_>, Vec<_>) =
        filled.into_iter().partition(|wanted| !wanted.endpoints.is_empty());
    (kept, emptied.into_iter().filter_map(|wanted| wanted.slice).collect())
}

fn is_changed(wanted: &Wanted) -> bool {
    !wanted.has_its_endpoints()
}

/// The same for endpoints that stand for the same Pod at the same address.
fn identity(endpoint: &Endpoint) -> (Option<&str>, Option<&str>) {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
    (uid, endpoint.addresses.first().map(String::as_str))
}
