//! The requests of a claim: its requests, and the alternatives of each, as one kind of thing.

use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceToleration, ExactDeviceRequest,
    ResourceClaim,
};

use super::DeviceError;
use super::pools::Offered;

/// The devices of one claim. Source: `AllocationResultsMaxSize`.
pub(super) const RESULTS_MAX: usize = 32;

/// One claim with its requests.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) claim: &'a ResourceClaim,
    pub(super) requests: Vec<Request<'a>>,
    pub(super) constraints: Vec<Constraint<'a>>,
}

/// One request: the first of its alternatives that works is taken.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) name: &'a str,
    pub(super) alternatives: Vec<Alternative<'a>>,
}

/// Devices that would do.
#[derive(Debug)]
pub(super) struct Alternative<'a> {
    /// As results name it: `request`, or `request/alternative`.
    pub(super) name: String,
    pub(super) class: &'a DeviceClass,
    pub(super) selectors: &'a [DeviceSelector],
    pub(super) tolerations: &'a [DeviceToleration],
    pub(super) admin: Option<bool>,
    pub(super) count: Count<'a>,
}

/// How many.
#[derive(Debug)]
pub(super) enum Count<'a> {
    /// So many.
    Exactly(usize),
    /// These, which are all that are selected.
    All(Vec<Offered<'a>>),
}

impl Count<'_> {
    pub(super) fn number(&self) -> usize {
        match self {
            Self::Exactly(count) => *count,
            Self::All(devices) => devices.len(),
        }
    }
}

/// All devices of these requests have one value of an attribute.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    requests: &'a [String],
    pub(super) attribute: &'a str,
}

impl<'a> Constraint<'a> {
    /// The claim's constraints.
    ///
    /// # Errors
    /// One is of a kind that nobody knows.
    pub(super) fn of(claim: &'a ResourceClaim) -> Result<Vec<Self>, DeviceError> {
        let all = claim.spec.devices.iter().flat_map(|devices| devices.constraints.iter().flatten());
        let made = all.enumerate().map(|(index, constraint)| {
            let unknown = || DeviceError::Constraint { claim: super::claim_key(claim), index };
            let attribute = constraint.match_attribute.as_deref().ok_or_else(unknown)?;
            Ok(Self { requests: constraint.requests.as_deref().unwrap_or_default(), attribute })
        });
        made.collect()
    }

    /// Whether it is about the request, or the alternative of it.
    pub(super) fn concerns(&self, request: &str, alternative: &str) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == alternative)
    }
}

/// What is common to a request and to an alternative.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) class: &'a str,
    pub(super) selectors: &'a [DeviceSelector],
    pub(super) tolerations: &'a [DeviceToleration],
    pub(super) mode: &'a str,
    pub(super) count: i64,
    pub(super) admin: Option<bool>,
}

impl<'a> From<&'a ExactDeviceRequest> for Asked<'a> {
    fn from(request: &'a ExactDeviceRequest) -> Self {
        Self {
            class: &request.device_class_name,
            selectors: request.selectors.as_deref().unwrap_or_default(),
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            mode: request.allocation_mode.as_deref().unwrap_or("ExactCount"),
            count: request.count.unwrap_or(1),
            admin: request.admin_access,
        }
    }
}

impl<'a> From<&'a DeviceSubRequest> for Asked<'a> {
    fn from(request: &'a DeviceSubRequest) -> Self {
        Self {
            class: &request.device_class_name,
            selectors: request.selectors.as_deref().unwrap_or_default(),
            tolerations: request.tolerations.as_deref().unwrap_or_default(),
            mode: request.allocation_mode.as_deref().unwrap_or("ExactCount"),
            count: request.count.unwrap_or(1),
            admin: None,
        }
    }
}

/// The requests of a claim.
pub(super) fn requests_of(claim: &ResourceClaim) -> &[DeviceRequest] {
    claim.spec.devices.as_ref().and_then(|devices| devices.requests.as_deref()).unwrap_or_default()
}

/// What a request asks for, by the names that results have: one, or several of which one is enough.
pub(super) fn alternatives(request: &DeviceRequest) -> Vec<(String, Asked<'_>)> {
    if let Some(exactly) = &request.exactly {
        return vec![(request.name.clone(), exactly.into())];
    }
    let all = request.first_available.iter().flatten();
    all.map(|one| (format!("{}/{}", request.name, one.name), one.into())).collect()
}
