//! The cleaner of CertificateSigningRequests: those that nobody answered go after a day, those that were answered after
//! an hour, or when their certificate has ended.
//!
//! Source: `pkg/controller/certificates/cleaner/cleaner.go`.

use std::time::Duration;

use controller::metadata::{is_deleting, name, uid};
use controller::{Action, Controller, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::has_certificate;
use crate::pod::since_until;

/// How long a request stays that was denied, has failed, or has its certificate.
const ANSWERED: Duration = Duration::from_hours(1);
/// How long a request stays that nobody answered, or that was approved and has no certificate.
const PENDING: Duration = Duration::from_hours(24);

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-cleaner-controller",
    queue: "certificate_cleaner",
    sources: |_| vec![Source::itself::<CertificateSigningRequest>()],
    reconcile: |informers, key, now| {
        let request = informers.informer::<CertificateSigningRequest>().get(key);
        request.map_or_else(Plan::nothing, |request| plan(&request, now))
    },
};

/// Decides whether the request is to go, or when to look again.
pub fn plan(request: &CertificateSigningRequest, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let meta = &request.metadata;
    let Some(end) = end(request).filter(|_| !is_deleting(meta)) else { return plan };
    if end > now {
        plan.requeue(since_until(now, end));
    } else {
        plan.push(Action::delete::<CertificateSigningRequest>(
            "",
            name(meta),
            Some(uid(meta)),
            Propagation::Background,
            None,
        ));
    }
    plan
}

/// When the request is of no use any more; `None` if nobody wrote down since when it is what it is.
fn end(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let conditions =
        request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_issued = has_certificate(request);
    let answered = conditions.iter().filter_map(|condition| {
        let stays = match condition.type_.as_str() {
            "Denied" | "Failed" => ANSWERED,
            "Approved" if is_issued => ANSWERED,
            "Approved" => PENDING,
            _ => return None,
        };
        after(condition.last_update_time.as_ref()?.0, stays)
    });
    let created = request.metadata.creation_timestamp.as_ref().filter(|_| conditions.is_empty());
    let unanswered = created.and_then(|created| after(created.0, PENDING));
    let is_approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    answered.chain(unanswered).chain(certificate_end(request).filter(|_| is_approved)).min()
}

fn after(start: Timestamp, stays: Duration) -> Option<Timestamp> {
    start.checked_add(stays).ok()
}

fn certificate_end(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let pem = request.status.as_ref()?.certificate.as_ref()?;
    let end = auth::pki::ends_at(std::str::from_utf8(&pem.0).ok()?)?;
    Timestamp::from_second(end).ok()
}

#[cfg(test)]
mod tests {
    use auth::issuing::Signer;
    use auth::pki::Authority;
    use k8s_openapi::ByteString;

    use super::super::signing::tests::request_of;
    use super::*;
    use crate::fixture::{noon, parse, render};

    const GOES: &str = "step\n  delete certificatesigningrequests r\n";

    fn of(created: &str, status: &str) -> CertificateSigningRequest {
        parse(&format!(
            "{{metadata: {{name: r, uid: u, creationTimestamp: '{created}'}}, spec: {{request: '', signerName: a.b/c}}, \
             status: {status}}}"
        ))
    }

    fn check(created: &str, status: &str, expect: &str) {
        assert_eq!(render(&plan(&of(created, status), noon())), expect, "{created} {status}");
    }

    fn answered(kind: &str, when: &str, more: &str) -> String {
        format!("{{conditions: [{{type: {kind}, status: 'True', lastUpdateTime: '{when}'}}]{more}}}")
    }

    #[test]
    fn requests_go_when_they_are_of_no_use() {
        check("2025-12-31T12:00:00Z", "{}", GOES);
        check("2025-12-31T12:01:00Z", "{}", "again after 60s\n");
        let issued = ", certificate: Y2VydA==";
        for (kind, more) in [("Denied", ""), ("Failed", ""), ("Approved", issued)] {
            check("2025-01-01T00:00:00Z", &answered(kind, "2026-01-01T11:00:00Z", more), GOES);
            let later = answered(kind, "2026-01-01T11:01:00Z", more);
            check("2025-01-01T00:00:00Z", &later, "again after 60s\n");
        }
        check("2025-01-01T00:00:00Z", &answered("Approved", "2025-12-31T12:00:00Z", ""), GOES);
        let waiting = answered("Approved", "2025-12-31T12:01:00Z", "");
        check("2025-01-01T00:00:00Z", &waiting, "again after 60s\n");
    }

    #[test]
    fn a_request_goes_with_its_certificate() {
        let folder = std::env::temp_dir().join(format!("knarr-cleaner-{}", std::process::id()));
        let long_ago = "2026-01-01T10:00:00Z".parse().unwrap();
        let authority = Authority::named(&folder, "clients", long_ago).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let signer = Signer::new(authority.certificate_pem(), authority.key_pem()).unwrap();
        let asked = request_of("kubernetes.io/kube-apiserver-client").spec.request.0;
        for (signed, expect) in [("11:40:00", GOES), ("11:50:30", "again after 30s\n")] {
            let signed = format!("2026-01-01T{signed}Z").parse().unwrap();
            let certificate = signer.sign(&asked, &[], 600, signed).unwrap();
            let mut request = of(
                "2025-01-01T00:00:00Z",
                &answered("Approved", "2026-01-01T11:39:00Z", ", certificate: ''"),
            );
            request.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
            assert_eq!(render(&plan(&request, noon())), expect, "{signed}");
        }
    }

    #[test]
    fn what_says_nothing_of_its_age_stays() {
        check("2025-01-01T00:00:00Z", "{conditions: [{type: Denied, status: 'True'}]}", "");
        check("2025-01-01T00:00:00Z", "{conditions: [{type: Odd, status: 'True'}]}", "");
        let mut going = of("2025-01-01T00:00:00Z", "{}");
        going.metadata.deletion_timestamp = Some(controller::metadata::time(noon()));
        assert!(plan(&going, noon()).is_empty());
    }
}
