//! How far one source is. Pure.
//!
//! Asked, then issued; asked again when that is due, with what there is until then; or denied or failed, for good.
//! Source: `credState` of `pkg/kubelet/podcertificate`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;

use super::Credentials;
use crate::pod::time::after;

/// A request that nobody has seen for so long after it was made must have been deleted.
const LOST_AFTER: Duration = Duration::from_mins(10);
/// After a renewal was due, before that is worth a word.
const OVERDUE_AFTER: Duration = Duration::from_mins(10);

/// A request that was made, and the key that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// `metadata.name` of the request.
    pub(super) name: String,
    /// PEM.
    key: String,
    lost_at: Timestamp,
    /// It is there: its answer or its deletion wakes us, and no time does.
    is_seen: bool,
}

impl Asked {
    pub(super) fn new(name: String, key: String, created: Timestamp, jitter: Duration) -> Self {
        Self { name, key, lost_at: after(created, LOST_AFTER + jitter), is_seen: false }
    }

    fn due(&self) -> Option<Timestamp> {
        (!self.is_seen).then_some(self.lost_at)
    }
}

/// What was issued, and until when it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fresh {
    credentials: Credentials,
    renew_at: Timestamp,
    expires_at: Timestamp,
    is_overdue_told: bool,
    is_expiry_told: bool,
}

/// How far one source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// For the first time.
    Waiting(Asked),
    /// There are credentials; maybe newer ones were asked for.
    Fresh(Fresh, Option<Asked>),
    /// Denied or failed: which, and what volumes say.
    Ended(&'static str, Unissued),
}

/// What follows from a look.
pub(super) struct Next {
    /// `None` if there is nothing any more, and it starts over.
    pub(super) state: Option<State>,
    /// Reasons and messages of warnings about the Pod.
    pub(super) events: Vec<(&'static str, String)>,
    /// Whether to ask now.
    pub(super) is_due: bool,
}

/// There is nothing that could go into the volume, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unissued {
    #[error("credential bundle is not issued yet")]
    NotYet,
    /// It was denied, or failed.
    #[error("PodCertificateRequest was permanently {which}: reason={reason:?} message={message:?}")]
    Ended { which: &'static str, reason: String, message: String },
}

impl State {
    /// A request was made; what there is stays until it is answered.
    pub(super) fn waiting(before: Option<Self>, asked: Asked) -> Self {
        match before {
            Some(Self::Fresh(fresh, _)) => Self::Fresh(fresh, Some(asked)),
            _ => Self::Waiting(asked),
        }
    }

    /// The request that an answer is waited for to.
    pub(super) fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Waiting(asked) => Some(asked),
            Self::Fresh(_, asked) => asked.as_ref(),
            Self::Ended(..) => None,
        }
    }

    /// What goes into the volume.
    ///
    /// # Errors
    /// There is nothing yet, or never will be.
    pub(super) fn credentials(&self) -> Result<Credentials, Unissued> {
        match self {
            Self::Waiting(_) => Err(Unissued::NotYet),
            Self::Fresh(fresh, _) => Ok(fresh.credentials.clone()),
            Self::Ended(_, why) => Err(why.clone()),
        }
    }

    /// What the metric `kubelet_podcertificate_states` calls it.
    pub(super) fn name(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Waiting(_) => "not_yet_issued",
            Self::Fresh(fresh, _) if now > fresh.expires_at => "expired",
            Self::Fresh(fresh, _) if now > fresh.overdue_at() => "overdue_for_refresh",
            Self::Fresh(..) => "fresh",
            Self::Ended(which, _) => which,
        }
    }

    /// When to look again if nothing happens before.
    pub(super) fn due(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting(asked) => asked.due(),
            Self::Fresh(fresh, None) => Some(fresh.renew_at),
            Self::Fresh(fresh, Some(asked)) => {
                let overdue = (!fresh.is_overdue_told).then(|| fresh.overdue_at());
                let expiry = (!fresh.is_expiry_told).then_some(fresh.expires_at);
                [asked.due(), overdue, expiry].into_iter().flatten().min()
            }
            Self::Ended(..) => None,
        }
    }

    /// What follows from the request as it is now, if it is known, and from the time.
    pub(super) fn next(
        self,
        request: Option<&PodCertificateRequest>,
        jitter: Duration,
        now: Timestamp,
    ) -> Next {
        let mut next = Next { state: None, events: Vec::new(), is_due: false };
        let Some(asked) = self.asked() else {
            match self {
                Self::Fresh(mut fresh, _) => {
                    next.is_due = now >= fresh.renew_at;
                    next.events = fresh.complaints(now);
                    next.state = Some(Self::Fresh(fresh, None));
                }
                other => next.state = Some(other),
            }
            return next;
        };
        if let Some((state, event)) = request.and_then(|request| answer(request, asked, jitter)) {
            next.state = Some(state);
            next.events.extend(event);
            return next;
        }
        let is_lost = request.is_none() && now >= asked.lost_at;
        next.is_due = is_lost;
        let waited_for = (!is_lost).then(|| Asked { is_seen: request.is_some(), ..asked.clone() });
        next.state = match self {
            Self::Fresh(mut fresh, _) => {
                next.events = fresh.complaints(now);
                Some(Self::Fresh(fresh, waited_for))
            }
            _ => waited_for.map(Self::Waiting),
        };
        next
    }
}

impl Fresh {
    fn overdue_at(&self) -> Timestamp {
        after(self.renew_at, OVERDUE_AFTER)
    }

    /// What is to be said about a renewal that does not come, once.
    fn complaints(&mut self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut events = Vec::new();
        if now >= self.overdue_at() && !self.is_overdue_told {
            self.is_overdue_told = true;
            events.push(("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned()));
        }
        if now >= self.expires_at && !self.is_expiry_told {
            self.is_expiry_told = true;
            events.push(("CertificateExpired", "PodCertificate expired".to_owned()));
        }
        events
    }
}

/// What a request that has ended leads to, and what is told about it.
///
/// Of a denial upstream prints the reason, and what is here the message as something that it did not expect.
fn answer(
    request: &PodCertificateRequest,
    asked: &Asked,
    jitter: Duration,
) -> Option<(State, Option<(&'static str, String)>)> {
    let status = request.status.as_ref()?;
    let end =
        status.conditions.iter().flatten().find(|it| ["Issued", "Denied", "Failed"].contains(&&*it.type_))?;
    let (kind, verb, which) = match end.type_.as_str() {
        "Denied" => ("Denied", "was denied", "denied"),
        "Failed" => ("Failed", "failed", "failed"),
        _ => {
            let fresh = Fresh {
                credentials: Credentials {
                    key: asked.key.clone(),
                    chain: clean(status.certificate_chain.as_deref().unwrap_or_default()),
                },
                renew_at: after(status.begin_refresh_at.as_ref()?.0, jitter),
                expires_at: status.not_after.as_ref()?.0,
                is_overdue_told: false,
                is_expiry_told: false,
            };
            return Some((State::Fresh(fresh, None), None));
        }
    };
    let key = format!("{}/{}", request.metadata.namespace.as_deref().unwrap_or_default(), asked.name);
    let message =
        format!("PodCertificateRequest {key} {verb}, reason={:?}, message={:?}", end.reason, end.message);
    let why = Unissued::Ended { which, reason: end.reason.clone(), message: end.message.clone() };
    Some((State::Ended(which, why), Some((kind, message))))
}

/// The chain's certificates and nothing that stood between them.
fn clean(chain: &str) -> String {
    crate::volumes::pem::blocks(chain)
        .iter()
        .map(|block| crate::volumes::pem::write("CERTIFICATE", block))
        .collect()
}

/// A key as PEM, from PKCS#8.
pub(super) fn key_pem(pkcs8: &[u8]) -> String {
    crate::volumes::pem::write("PRIVATE KEY", pkcs8)
}

#[cfg(test)]
mod tests;
