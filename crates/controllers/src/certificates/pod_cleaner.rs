//! The cleaner of PodCertificateRequests: however one has ended, it goes when it is old. Runs if the feature
//! PodCertificateRequest is on.
//!
//! Source: `pkg/controller/certificates/cleaner/pcrcleaner.go`, KEP-4317.

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{created, is_deleting, name, namespace, uid};
use controller::{Action, Controller, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;

use crate::pod::since_until;

/// How old a request gets: everything about it is over by then.
const LIFETIME: Duration = Duration::from_mins(15);

/// The controller's row. Keys are PodCertificateRequests.
pub const CONTROLLER: Controller = Controller {
    name: "podcertificaterequest-cleaner-controller",
    queue: "podcertificaterequest_cleaner",
    sources: |_| vec![Source::itself::<PodCertificateRequest>()],
    reconcile: |informers, key, now| match informers.informer::<PodCertificateRequest>().get(key) {
        Some(request) => plan(&Snapshot { request }, now),
        None => Plan::nothing(),
    },
};

/// The input of a decision about one request.
pub struct Snapshot {
    /// The request.
    pub request: Arc<PodCertificateRequest>,
}

/// Decides whether the request is to go, or when to look again.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let meta = &snapshot.request.metadata;
    if is_deleting(meta) {
        return plan;
    }
    let left = LIFETIME.saturating_sub(since_until(created(meta), now));
    if left.is_zero() {
        plan.push(Action::delete::<PodCertificateRequest>(
            namespace(meta),
            name(meta),
            Some(uid(meta)),
            Propagation::Background,
            None,
        ));
    } else {
        plan.requeue(left);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(created: &str, expect: &str) {
        let request = format!(
            "{{metadata: {{name: r, namespace: shop, uid: u, creationTimestamp: '{created}'}}, spec: {{signerName: a.b/c, \
             podName: p, podUID: p, serviceAccountName: s, serviceAccountUID: s, nodeName: n1, nodeUID: u1, \
             pkixPublicKey: '', proofOfPossession: ''}}}}"
        );
        let plan = plan(&Snapshot { request: Arc::new(parse(&request)) }, noon());
        assert_eq!(render(&plan), expect, "{created}");
    }

    #[test]
    fn requests_go_when_they_are_old() {
        check("2026-01-01T11:45:00Z", "step\n  delete podcertificaterequests r\n");
        check("2026-01-01T11:46:00Z", "again after 60s\n");
    }
}
