//! The probes that a container can have.

use k8s_openapi::api::core::v1::{Container, Probe};

/// Which probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    /// Has it come up?
    Startup,
    /// Is it alive?
    Liveness,
    /// May it get traffic?
    Readiness,
}

impl ProbeKind {
    pub(crate) const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    pub(crate) fn of(self, spec: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => spec.startup_probe.as_ref(),
            Self::Liveness => spec.liveness_probe.as_ref(),
            Self::Readiness => spec.readiness_probe.as_ref(),
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}
