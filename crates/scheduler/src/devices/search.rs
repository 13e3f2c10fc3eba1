//! Looks for devices for all claims of a Pod on one Node: depth first, in a fixed order, and the first solution counts.
//!
//! Claim after claim, request after request, device after device: each choice is tried, and taken back if no later one
//! fits. The steps are bounded, because trying everything may take for ever.
//! Source: `allocateOne` of `k8s.io/dynamic-resource-allocation/structured`.

use std::collections::{BTreeMap, BTreeSet};

use expressions::device::{SelectorError, Selectors};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use super::pools::{Offered, Pool};
use super::requests::{Alternative, Constraint, Count, RESULTS_MAX, Wanted};
use super::{DeviceError, DeviceId, Devices, Place, RequestFlaw};

/// Choices that are tried for one Node.
const STEPS_MAX: usize = 50_000;
/// What is said if that is not enough. Source: the plugin's `Filter`.
pub(super) const TIMED_OUT: &str = "timed out trying to allocate devices";

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Something is wrong with a claim or class: no other Node will do either.
    Failed(DeviceError),
    /// It takes too long here.
    TimedOut,
    /// The claim would have more devices than fit into it.
    TooMany,
}

/// A device that is given.
#[derive(Clone, Debug)]
pub(super) struct Given<'a> {
    /// The index of the request in its claim.
    pub(super) request: usize,
    /// The index of the alternative in the request.
    pub(super) alternative: usize,
    pub(super) offered: Offered<'a>,
    admin: bool,
}

/// Where the search is.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    claim: usize,
    request: usize,
    /// Which alternative is tried, once one is.
    alternative: Option<usize>,
    device: usize,
}

/// See the module.
pub(super) struct Search<'a> {
    pub(super) wanted: &'a [Wanted<'a>],
    pub(super) pools: &'a [Pool],
    pub(super) taken: &'a BTreeSet<DeviceId>,
    devices: &'a Devices,
    /// By claim.
    given: Vec<Vec<Given<'a>>>,
    known: BTreeMap<(DeviceId, usize, usize, usize), bool>,
    steps: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        wanted: &'a [Wanted<'a>],
        pools: &'a [Pool],
        taken: &'a BTreeSet<DeviceId>,
        devices: &'a Devices,
    ) -> Self {
        let given = wanted.iter().map(|_| Vec::new()).collect();
        Self { wanted, pools, taken, devices, given, known: BTreeMap::new(), steps: 0 }
    }

    /// The devices of each claim; nothing if there are not enough.
    pub(super) fn run(mut self) -> Result<Option<Vec<Vec<Given<'a>>>>, Stop> {
        match self.go_on(Position::default()) {
            Ok(true) => Ok(Some(self.given)),
            Ok(false) | Err(Stop::TooMany) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    fn go_on(&mut self, at: Position) -> Result<bool, Stop> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Stop::TimedOut);
        }
        let all = self.wanted;
        let Some(wanted) = all.get(at.claim) else { return Ok(true) };
        let Some(request) = wanted.requests.get(at.request) else {
            let next = Position { claim: at.claim + 1, ..Position::default() };
            // An earlier claim may choose something smaller.
            return match self.go_on(next) {
                Err(Stop::TooMany) => Ok(false),
                other => other,
            };
        };
        let Some(index) = at.alternative else {
            return self.try_alternatives(at, request.alternatives.len());
        };
        let Some(alternative) = request.alternatives.get(index) else { return Ok(false) };
        let count = alternative.count.number();
        if matches!(&alternative.count, Count::All(devices) if devices.is_empty()) {
            return Ok(false);
        }
        if at.device >= count {
            return self.go_on(Position { claim: at.claim, request: at.request + 1, ..Position::default() });
        }
        let given = self.given.get(at.claim).map_or(0, Vec::len);
        if given + count - at.device > RESULTS_MAX {
            return Err(Stop::TooMany);
        }
        match &alternative.count {
            Count::All(devices) => match devices.get(at.device) {
                Some(offered) => self.take_all(at, wanted, request.name, alternative, *offered),
                None => Ok(false),
            },
            Count::Exactly(_) => self.take_one(at, wanted, request.name, alternative),
        }
    }

    fn try_alternatives(&mut self, at: Position, count: usize) -> Result<bool, Stop> {
        let mut is_always_too_many = count > 0;
        for index in 0..count {
            match self.go_on(Position { alternative: Some(index), ..at }) {
                Ok(true) => return Ok(true),
                Ok(false) => is_always_too_many = false,
                Err(Stop::TooMany) => {}
                Err(stop) => return Err(stop),
            }
        }
        if is_always_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// One of all: it is this one or none.
    fn take_all(
        &mut self,
        at: Position,
        wanted: &Wanted<'a>,
        request: &str,
        alternative: &Alternative<'a>,
        offered: Offered<'a>,
    ) -> Result<bool, Stop> {
        if self.is_in_use(at, alternative, &offered) || self.is_withheld(alternative, &offered) {
            return Ok(false);
        }
        if !self.holds_together(at, wanted, request, alternative, &offered) {
            return Err(Stop::Failed(DeviceError::Request {
                claim: super::claim_key(wanted.claim),
                request: alternative.name.clone(),
                flaw: RequestFlaw::Unsatisfied(offered.id().to_string()),
            }));
        }
        self.with(at, alternative, offered)
    }

    /// Any that is free and selected.
    fn take_one(
        &mut self,
        at: Position,
        wanted: &Wanted<'a>,
        request: &str,
        alternative: &Alternative<'a>,
    ) -> Result<bool, Stop> {
        let pools = self.pools;
        for pool in pools.iter().filter(|pool| pool.flaw.is_none()) {
            for offered in pool.devices() {
                if self.is_in_use(at, alternative, &offered)
                    || !self.is_selected(at, wanted, alternative, &offered)?
                    || !is_whole(offered.device)
                    || self.is_withheld(alternative, &offered)
                    || !self.holds_together(at, wanted, request, alternative, &offered)
                {
                    continue;
                }
                if self.with(at, alternative, offered)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Gives the device and looks for the rest; takes it back if there is none.
    fn with(
        &mut self,
        at: Position,
        alternative: &Alternative<'a>,
        offered: Offered<'a>,
    ) -> Result<bool, Stop> {
        let index = at.alternative.unwrap_or(0);
        let admin = alternative.admin == Some(true);
        let given = Given { request: at.request, alternative: index, offered, admin };
        if let Some(of_claim) = self.given.get_mut(at.claim) {
            of_claim.push(given);
        }
        let found = self.go_on(Position { device: at.device + 1, ..at });
        if found != Ok(true)
            && let Some(of_claim) = self.given.get_mut(at.claim)
        {
            of_claim.pop();
        }
        found
    }

    /// Who administers a device may have it whoever uses it, but once.
    fn is_in_use(&self, at: Position, alternative: &Alternative<'a>, offered: &Offered<'a>) -> bool {
        let same = |given: &Given<'a>| is_same(&given.offered, offered);
        if alternative.admin == Some(true) {
            return self.given.get(at.claim).is_some_and(|of_claim| of_claim.iter().any(same));
        }
        self.taken.contains(&offered.id())
            || self.given.iter().flatten().any(|given| !given.admin && same(given))
            || self.given.get(at.claim).is_some_and(|of_claim| of_claim.iter().any(same))
    }

    /// Whether the device has a taint that the request does not tolerate; administrators are no exception.
    fn is_withheld(&self, alternative: &Alternative<'a>, offered: &Offered<'a>) -> bool {
        self.devices.taints.prevent(&offered.slice.spec, offered.device, alternative.tolerations)
    }

    fn is_selected(
        &mut self,
        at: Position,
        wanted: &Wanted<'a>,
        alternative: &Alternative<'a>,
        offered: &Offered<'a>,
    ) -> Result<bool, Stop> {
        let key = (offered.id(), at.claim, at.request, at.alternative.unwrap_or(0));
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let answer = selects(&self.devices.selectors, wanted, alternative, offered).map_err(Stop::Failed)?;
        self.known.insert(key, answer);
        Ok(answer)
    }

    /// Whether the claim's constraints hold with the device.
    fn holds_together(
        &self,
        at: Position,
        wanted: &Wanted<'a>,
        request: &str,
        alternative: &Alternative<'a>,
        offered: &Offered<'a>,
    ) -> bool {
        let concerning = wanted.constraints.iter().filter(|one| one.concerns(request, &alternative.name));
        concerning.into_iter().all(|constraint| {
            let Some(value) = attribute(offered, constraint.attribute) else { return false };
            let of_claim = self.given.get(at.claim).into_iter().flatten();
            let mut others = of_claim.filter(|given| self.is_concerned(constraint, wanted, given));
            others.all(|given| attribute(&given.offered, constraint.attribute) == Some(value))
        })
    }

    fn is_concerned(&self, constraint: &Constraint<'a>, wanted: &Wanted<'a>, given: &Given<'a>) -> bool {
        let Some(request) = wanted.requests.get(given.request) else { return false };
        let alternative = request.alternatives.get(given.alternative).map_or("", |one| one.name.as_str());
        constraint.concerns(request.name, alternative)
    }
}

/// Whether class and request select the device.
///
/// # Errors
/// An expression is none, or fails.
pub(super) fn selects(
    selectors: &Selectors,
    wanted: &Wanted<'_>,
    alternative: &Alternative<'_>,
    offered: &Offered<'_>,
) -> Result<bool, DeviceError> {
    let class = alternative.class.spec.selectors.as_deref().unwrap_or_default();
    let class_name = alternative.class.metadata.name.as_deref().unwrap_or_default();
    let claim = super::claim_key(wanted.claim);
    for (owner, name, all) in [("class", class_name, class), ("claim", &claim, alternative.selectors)] {
        for (index, selector) in all.iter().enumerate() {
            let place = || Place { owner, name: name.to_owned(), index };
            let Some(cel) = &selector.cel else { return Err(DeviceError::EmptySelector(place())) };
            let answer = selectors.matches(&cel.expression, &offered.slice.spec.driver, offered.device);
            let answer = answer.map_err(|error| match error {
                SelectorError::Compile(_) => DeviceError::Selector(place(), error),
                SelectorError::Runtime(_) => {
                    DeviceError::SelectorOnDevice(place(), offered.id().to_string(), error)
                }
            })?;
            if !answer {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Devices that share counters, or that bind later, are for gates that are off by default.
pub(super) fn is_whole(device: &Device) -> bool {
    let has_counters = device.consumes_counters.as_ref().is_some_and(|counters| !counters.is_empty());
    let has_conditions = device.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty());
    !has_counters && !has_conditions
}

/// The attribute of a fully qualified name: under that name, or for the driver's own domain without it.
fn attribute<'a>(offered: &Offered<'a>, name: &str) -> Option<&'a DeviceAttribute> {
    let all = offered.device.attributes.as_ref()?;
    let own = || {
        let (domain, id) = name.split_once('/')?;
        (domain == offered.slice.spec.driver).then(|| all.get(id))?
    };
    all.get(name).or_else(own)
}

fn is_same(one: &Offered<'_>, other: &Offered<'_>) -> bool {
    one.device.name == other.device.name && one.slice.metadata.name == other.slice.metadata.name
}
