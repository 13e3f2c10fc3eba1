//! Conditions of a claim whose volume is being changed, and what they remember of a call that failed.
//!
//! Whether a call is tried again soon or late depends on how it failed, which is known only to the next run: it reads
//! the code, as gRPC prints it, from the condition that the failed plan has left.

use std::time::Duration;

use controller::metadata::time;
use controller::plan::grpc_code;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};

/// How long what cannot be is left alone before it is asked for again. Source: `slowSet` of external-resizer.
pub(super) const INFEASIBLE_RETRY: Duration = Duration::from_secs(300);
/// The same for everything else that has failed.
pub(super) const RETRY: Duration = Duration::from_secs(15);

/// The claim's conditions without those of `types`, and with a new one if there is one.
pub(super) fn replaced(
    claim: &PersistentVolumeClaim,
    types: &[&str],
    new: Option<(&str, String)>,
    now: Timestamp,
) -> Vec<PersistentVolumeClaimCondition> {
    let old = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut all: Vec<_> = old.filter(|one| !types.contains(&one.type_.as_str())).cloned().collect();
    all.extend(new.map(|(kind, message)| PersistentVolumeClaimCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        message: Some(message),
        last_transition_time: Some(time(now)),
        ..PersistentVolumeClaimCondition::default()
    }));
    all
}

fn find<'a>(claim: &'a PersistentVolumeClaim, kind: &str) -> Option<&'a PersistentVolumeClaimCondition> {
    claim.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == kind)
}

/// What the condition says of a failure; nothing if it is of none.
fn failure<'a>(claim: &'a PersistentVolumeClaim, kind: &str) -> Option<&'a str> {
    find(claim, kind)?.message.as_deref().filter(|message| message.contains("failed"))
}

/// Whether the condition says that the call failed in one of these ways.
pub(super) fn has_failed_with(claim: &PersistentVolumeClaim, kind: &str, codes: &[&str]) -> bool {
    failure(claim, kind).and_then(grpc_code).is_some_and(|code| codes.contains(&code))
}

/// How long what has failed is still left alone, if it has.
pub(super) fn rests_for(
    claim: &PersistentVolumeClaim,
    kind: &str,
    rest: Duration,
    now: Timestamp,
) -> Option<Duration> {
    failure(claim, kind)?;
    let since = find(claim, kind)?.last_transition_time.as_ref()?.0;
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    rest.checked_sub(passed).filter(|left| !left.is_zero())
}
