//! What a quota refuses.

use resources::quota::{self, Amounts, Quota};

/// A quota that does not allow something, in upstream's words.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum QuotaRefusal {
    /// A Pod does not say how much it needs of something that is limited.
    #[error("failed quota: {quota}: {missing}")]
    Unspecified {
        quota: String,
        /// What it does not say.
        missing: String,
    },
    /// There would be too much.
    #[error(
        "exceeded quota: {quota}, requested: {}, used: {}, limited: {}",
        quota::show(requested),
        quota::show(used),
        quota::show(limited)
    )]
    Exceeded { quota: String, requested: Amounts, used: Amounts, limited: Amounts },
}

/// Why `cost` is too much on top of `used`, if it is.
pub(super) fn exceeded(quota: &Quota, used: &Amounts, cost: &Amounts) -> Option<QuotaRefusal> {
    let (mut requested, mut counted, mut limited) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (name, more) in cost {
        let Some(hard) = quota.hard.get(name) else { continue };
        let before = used.get(name).copied().unwrap_or_default();
        if before.plus(*more) > *hard {
            requested.insert(name.clone(), *more);
            counted.insert(name.clone(), before);
            limited.insert(name.clone(), *hard);
        }
    }
    let quota = quota.name.clone();
    (!requested.is_empty()).then_some(QuotaRefusal::Exceeded { quota, requested, used: counted, limited })
}
