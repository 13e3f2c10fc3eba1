//! Seccomp.
use std::collections::HashSet;

/// The runtime's default filter.
pub fn default_filter(_keep: &HashSet<caps::Capability>) -> Vec<sys::payload::Instruction> {
    Vec::new()
}
