//! Gives devices to claims on one Node: a pure function of what is known.
//!
//! Source: `Allocator.Allocate` of `k8s.io/dynamic-resource-allocation/structured`, KEP-4381, KEP-4816.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    ResourceClaim,
};

use super::pools::{self, Flaw, Pool};
use super::requests::{
    Alternative, Asked, Constraint, Count, RESULTS_MAX, Request, Wanted, alternatives, requests_of,
};
use super::search::{Given, Search, Stop, TIMED_OUT, is_whole, selects};
use super::{DeviceError, DeviceId, Devices, RequestFlaw, Taints, claim_key};

/// The reason why claims do not get devices on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are not enough that fit, or it could not be found out in time.
    Here(String),
    /// Something is wrong with a claim or a class, whatever the Node.
    Everywhere(DeviceError),
}

/// One allocation per claim, in order.
///
/// # Errors
/// In upstream's words.
pub fn allocate(
    devices: &Devices,
    taken: &BTreeSet<DeviceId>,
    claims: &[Arc<ResourceClaim>],
    node: &Node,
) -> Result<Vec<AllocationResult>, Refused> {
    let pools = pools::gather(devices, node);
    let wanted = claims.iter().map(|claim| wanted(devices, claim, &pools));
    let wanted = wanted.collect::<Result<Vec<_>, _>>().map_err(Refused::Everywhere)?;
    let found = Search::new(&wanted, &pools, taken, devices).run();
    let found = found.map_err(|stop| match stop {
        Stop::Failed(error) => Refused::Everywhere(error),
        Stop::TimedOut | Stop::TooMany => Refused::Here(TIMED_OUT.to_owned()),
    })?;
    let Some(found) = found else {
        let is_invalid = pools.iter().any(|pool| pool.flaw == Some(Flaw::Invalid));
        let why =
            if is_invalid { "invalid resource pools were encountered" } else { "cannot allocate all claims" };
        return Err(Refused::Here(why.to_owned()));
    };
    let of_claim = |(wanted, given): (&Wanted<'_>, &Vec<Given<'_>>)| result(wanted, given, &devices.taints);
    Ok(wanted.iter().zip(&found).map(of_claim).collect())
}

fn wanted<'a>(
    devices: &'a Devices,
    claim: &'a ResourceClaim,
    pools: &'a [Pool],
) -> Result<Wanted<'a>, DeviceError> {
    let mut wanted = Wanted { claim, requests: Vec::new(), constraints: Constraint::of(claim)? };
    let mut least = 0;
    for request in requests_of(claim) {
        let mut made = Request { name: &request.name, alternatives: Vec::new() };
        for (name, asked) in alternatives(request) {
            made.alternatives.push(alternative(devices, &wanted, name, asked, pools)?);
        }
        least += made.alternatives.iter().map(|one| one.count.number()).min().unwrap_or(0);
        wanted.requests.push(made);
    }
    if least > RESULTS_MAX {
        return Err(DeviceError::TooMany(claim_key(claim), least, RESULTS_MAX));
    }
    Ok(wanted)
}

fn alternative<'a>(
    devices: &'a Devices,
    wanted: &Wanted<'a>,
    name: String,
    asked: Asked<'a>,
    pools: &'a [Pool],
) -> Result<Alternative<'a>, DeviceError> {
    let request = name.clone();
    let refused =
        |flaw| DeviceError::Request { claim: claim_key(wanted.claim), request: request.clone(), flaw };
    if asked.class.is_empty() {
        return Err(refused(RequestFlaw::NoClassName));
    }
    let class = devices.class(asked.class);
    let class = class.ok_or_else(|| refused(RequestFlaw::NoClass(asked.class.to_owned())))?;
    let mut made = Alternative {
        name,
        class,
        selectors: asked.selectors,
        tolerations: asked.tolerations,
        admin: asked.admin,
        count: Count::Exactly(usize::try_from(asked.count).unwrap_or(usize::MAX)),
    };
    match asked.mode {
        "ExactCount" => return Ok(made),
        "All" => {}
        other => return Err(refused(RequestFlaw::Mode(other.to_owned()))),
    }
    let mut all = Vec::new();
    for pool in pools {
        if let Some(flaw) = pool.flaw {
            let state = match flaw {
                Flaw::Incomplete => "being updated",
                Flaw::Invalid => "invalid",
            };
            let pool = format!("{}/{}", pool.driver, pool.name);
            return Err(refused(RequestFlaw::Pool { pool, state }));
        }
        for offered in pool.devices() {
            if is_whole(offered.device) && selects(&devices.selectors, wanted, &made, &offered)? {
                all.push(offered);
            }
        }
    }
    made.count = Count::All(all);
    Ok(made)
}

fn result(wanted: &Wanted<'_>, given: &[Given<'_>], taints: &Taints) -> AllocationResult {
    let results = given.iter().map(|given| {
        let chosen = wanted
            .requests
            .get(given.request)
            .and_then(|request| request.alternatives.get(given.alternative));
        let id = given.offered.id();
        // Of claims from the time when taints counted, nothing is tolerated where they do not.
        let tolerations =
            chosen.map(|one| one.tolerations).filter(|all| !all.is_empty() && taints.are_heeded());
        DeviceRequestAllocationResult {
            request: chosen.map(|one| one.name.clone()).unwrap_or_default(),
            driver: id.driver,
            pool: id.pool,
            device: id.device,
            admin_access: chosen.and_then(|one| one.admin),
            tolerations: tolerations.map(<[_]>::to_vec),
            ..DeviceRequestAllocationResult::default()
        }
    });
    let results: Vec<_> = results.collect();
    let config = configuration(wanted, given);
    AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: Some(results),
        }),
        node_selector: node_selector(given),
    }
}

/// What drivers are told: first what classes say, each once, then what the claim says about requests that were chosen.
fn configuration(wanted: &Wanted<'_>, given: &[Given<'_>]) -> Vec<DeviceAllocationConfiguration> {
    let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut chosen: Vec<(&str, &Alternative<'_>)> = Vec::new();
    for (index, request) in wanted.requests.iter().enumerate() {
        let found = given.iter().find(|given| given.request == index).map_or(0, |given| given.alternative);
        chosen.extend(request.alternatives.get(found).map(|alternative| (request.name, alternative)));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (_, alternative) in &chosen {
        let class = alternative.class.metadata.name.as_deref().unwrap_or_default();
        if seen.contains(&class) {
            continue;
        }
        seen.push(class);
        let of_class = chosen.iter().filter(|(_, other)| other.class.metadata.name.as_deref() == Some(class));
        let requests: Vec<String> = of_class.map(|(_, other)| other.name.clone()).collect();
        let configs = alternative.class.spec.config.iter().flatten();
        all.extend(configs.map(|config| DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: Some(requests.clone()),
            source: "FromClass".to_owned(),
        }));
    }
    let configs = wanted.claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
    for config in configs {
        let requests = config.requests.as_deref().unwrap_or_default();
        let is_meant = |(request, one): &(&str, &Alternative<'_>)| {
            requests.iter().any(|name| name == request || *name == one.name)
        };
        if requests.is_empty() || chosen.iter().any(is_meant) {
            all.push(DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: config.requests.clone(),
                source: "FromClaim".to_owned(),
            });
        }
    }
    all
}

/// Where the devices can be reached; `None` is everywhere.
fn node_selector(given: &[Given<'_>]) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for given in given {
        let spec = &given.offered.slice.spec;
        if let Some(name) = spec.node_name.as_ref().filter(|name| !name.is_empty()) {
            let field = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![name.clone()]),
            };
            let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
            return Some(NodeSelector { node_selector_terms: vec![term] });
        }
        // A slice's selector has one term.
        let Some(of_slice) =
            spec.node_selector.as_ref().and_then(|selector| selector.node_selector_terms.first())
        else {
            continue;
        };
        add_new(&mut term.match_expressions, of_slice.match_expressions.as_deref().unwrap_or_default());
        add_new(&mut term.match_fields, of_slice.match_fields.as_deref().unwrap_or_default());
    }
    let is_anywhere = term.match_expressions.is_none() && term.match_fields.is_none();
    (!is_anywhere).then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn add_new(list: &mut Option<Vec<NodeSelectorRequirement>>, more: &[NodeSelectorRequirement]) {
    for one in more {
        let list = list.get_or_insert_default();
        if !list.contains(one) {
            list.push(one.clone());
        }
    }
}
