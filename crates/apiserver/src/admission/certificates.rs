//! The rights to approve and sign for a signer; nobody asks for `system:masters`.
//!
//! Source: `plugin/pkg/admission/certificates`.

use auth::{Attributes, Decision};
use jiff::{SignedDuration, Timestamp};
use machinery::field::{FieldError, FieldErrors, Path};
use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::{Context, Operation, Step, judged, text};
use crate::kinds::Part;
use crate::status::{Error, Result};

const GROUP: &str = "certificates.k8s.io";
/// Between our clock and a signer's.
const SKEW_MAX: SignedDuration = SignedDuration::from_mins(5);
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

fn is_request(context: &Context<'_>, subresource: &str) -> bool {
    let kind = &context.request.kind;
    kind.group() == GROUP
        && kind.resource() == "certificatesigningrequests"
        && context.request.resource.subresource == subresource
}

/// A request says who sent it and from where; what its sender says about that does not count: approval goes by it.
/// Source: `csrStrategy.PrepareForCreate` of `pkg/registry/certificates`.
pub(super) fn requester(context: &Context<'_>, request: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !is_request(context, "") {
        return Ok(());
    }
    let user = context.request.user();
    let Some(spec) = super::child(request, "spec") else { return Ok(()) };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), user.name.as_str().into());
    spec.insert("groups".to_owned(), json!(user.groups));
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    let mut extra = user.extra.clone();
    // Nobody says this of themselves, by whatever way their extra came.
    extra.retain(|key, _| !key.eq_ignore_ascii_case(auth::PEER_ADDRESS));
    if let Some(origin) = context.request.origin {
        extra.insert(auth::PEER_ADDRESS.to_owned(), vec![origin.to_string()]);
    }
    if !extra.is_empty() {
        spec.insert("extra".to_owned(), json!(extra));
    }
    Ok(())
}

/// Who approves needs `approve` on the signer.
pub(super) fn approval<'a>(context: &'a Context<'a>, request: &'a Value) -> Step<'a> {
    if !is_request(context, "approval") || !matches!(context.operation, Operation::Update(_)) {
        return Step::Done(Ok(()));
    }
    let signer = context.old.map_or("", |old| text(old, "/spec/signerName"));
    judged(async move {
        if may(context, "approve", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to approve requests with signerName {signer:?}");
        Err(context.forbidden(Metadata::of(request).name(), &why))
    })
}

/// Who issues a certificate, or says how that went, needs `sign` on the signer.
pub(super) fn signing<'a>(context: &'a Context<'a>, request: &'a Value) -> Step<'a> {
    if !is_request(context, "status") || !matches!(context.operation, Operation::Update(_)) {
        return Step::Done(Ok(()));
    }
    let Some(old) = context.old else { return Step::Done(Ok(())) };
    let is_same = |pointer: &str| old.pointer(pointer) == request.pointer(pointer);
    if is_same("/status/certificate") && is_same("/status/conditions") {
        return Step::Done(Ok(()));
    }
    let signer = text(old, "/spec/signerName");
    judged(async move {
        if may(context, "sign", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to sign requests with signerName {signer:?}");
        Err(context.forbidden(Metadata::of(request).name(), &why))
    })
}

/// Who tells whom to trust for a signer needs `attest` on it. Source: `plugin/pkg/admission/certificates/ctbattest`.
pub(super) fn attest<'a>(context: &'a Context<'a>, bundle: &'a Value) -> Step<'a> {
    let kind = &context.request.kind;
    let is_write = matches!(context.operation, Operation::Create | Operation::Update(_));
    if kind.group() != GROUP || kind.resource() != "clustertrustbundles" || !is_write {
        return Step::Done(Ok(()));
    }
    let signer = text(bundle, "/spec/signerName");
    judged(async move {
        if signer.is_empty() || may(context, "attest", signer).await {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {signer:?}");
        Err(context.forbidden(Metadata::of(bundle).name(), &why))
    })
}

/// Who ends a request for a Pod's certificate needs `sign` on the signer, and what is issued begins now.
///
/// Upstream's registry does this after the rules that need neither a clock nor an authorizer.
/// Source: `StatusStrategy.ValidateUpdate` of `pkg/registry/certificates/podcertificaterequest`.
pub(super) fn pod_certificate<'a>(context: &'a Context<'a>, request: &'a Value) -> Step<'a> {
    let kind = &context.request.kind;
    let is_status = matches!(context.operation, Operation::Update(Part::Status));
    let Some(old) = context.old.filter(|_| is_status) else { return Step::Done(Ok(())) };
    let is_ours = kind.group() == GROUP && kind.resource() == "podcertificaterequests";
    if !is_ours || old.get("status") == request.get("status") {
        return Step::Done(Ok(()));
    }
    judged(async move {
        let refuse = |error: FieldError| {
            let errors = FieldErrors::from(error);
            Err(Error::invalid(kind.kind_subject(), Metadata::of(request).name(), &errors))
        };
        let begins = text(request, "/status/notBefore");
        if let Ok(begins_at) = begins.parse::<Timestamp>()
            && context.cluster.clock.now().duration_since(begins_at).abs() >= SKEW_MAX
        {
            let path = Path::new("status").child("notBefore");
            let rule = "must be set to within 5 minutes of kube-apiserver's current time";
            return refuse(FieldError::invalid(&path, begins, rule));
        }
        let signer = text(old, "/spec/signerName");
        if may(context, "sign", signer).await {
            return Ok(());
        }
        let path = Path::new("spec").child("signerName");
        let why = format!(
            "User {:?} is not permitted to \"sign\" for signer {signer:?}",
            context.request.user().name
        );
        refuse(FieldError::forbidden(&path, &why))
    })
}

/// No client certificate for `system:masters`: it could not be taken back.
pub(super) fn subject(context: &Context<'_>, request: &Value) -> Result<()> {
    let is_create = context.operation == Operation::Create && is_request(context, "");
    if !is_create || text(request, "/spec/signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let asked = match auth::signing::Asked::parse(text(request, "/spec/request")) {
        Ok(asked) => asked,
        // What is no request at all has been refused before.
        Err(why) => return Err(context.forbidden(Metadata::of(request).name(), &why.to_string())),
    };
    if asked.organizations.iter().any(|organization| organization == auth::MASTERS) {
        let why =
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        return Err(context.forbidden(Metadata::of(request).name(), why));
    }
    Ok(())
}

/// Whether the user has a verb on a signer, or on all of its domain.
async fn may(context: &Context<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            is_resource: true,
            ..Attributes::default()
        };
        let verdict = context.cluster.security.decide(context.request.user(), &attributes).await;
        if matches!(verdict.decision, Decision::Allow(_)) {
            return true;
        }
    }
    false
}
