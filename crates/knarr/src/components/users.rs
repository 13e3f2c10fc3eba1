//! The users that parts become, so that no other process has their rights. They need no entries in `/etc/passwd`.

/// The user that the control plane becomes. It needs no entry in `/etc/passwd`; nothing else uses it.
pub(crate) const CONTROL_PLANE_UID: u32 = 64_250;

/// Its group.
pub(crate) const CONTROL_PLANE_GID: u32 = 64_250;

/// The user and group that the Ingress controller becomes: it has no file, and nobody else's process.
pub(crate) const INGRESS_UID: u32 = 64_251;
