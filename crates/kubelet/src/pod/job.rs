//! What can be under way for a Pod: a job's key tells what it does, and to what.

use std::fmt;

/// A job's key. A job is not begun while one with its key is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKey {
    /// The Pod's directories, files and mounts are made.
    Volumes,
    /// They are brought up to date with their sources.
    VolumeUpdate,
    /// Drivers prepare the Pod's claims, or take them back.
    Claims,
    /// A sandbox is started.
    Sandbox,
    /// An image is had, by its name in the spec.
    Image(String),
    /// A container is started, by its name in the spec.
    Start(String),
    /// A container is killed.
    Kill {
        /// The runtime's id.
        id: String,
        /// Seconds: another grace period is another job.
        grace: i64,
    },
    /// Somebody is told that a container waits; by its id, as in all that follow.
    BackOff(String),
    /// A container's limits change.
    Resize(String),
    /// A container's CPUs change.
    Cpus(String),
    /// A dead container is removed.
    RemoveContainer(String),
    /// A sandbox is stopped.
    StopSandbox(String),
    /// A stopped sandbox is removed.
    RemoveSandbox(String),
    /// Volumes and the cgroup are taken back.
    Release,
    /// Everything is taken back.
    Cleanup,
    /// The object is deleted.
    Delete,
    /// The runtime is asked for everything.
    Refresh,
    /// The status is written.
    Status,
    /// Nothing but the time is waited for.
    Wake,
}

impl JobKey {
    /// Makes a container, or what containers are in.
    pub fn starts_something(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Sandbox)
    }

    /// Leaves something on the node that a Pod's end would have to take back.
    pub fn makes_something(&self) -> bool {
        !matches!(self, Self::Status | Self::Refresh | Self::Image(_) | Self::Cpus(_))
    }
}

/// For the log.
impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volumes => f.write_str("volumes"),
            Self::VolumeUpdate => f.write_str("volumes-update"),
            Self::Claims => f.write_str("claims"),
            Self::Sandbox => f.write_str("sandbox"),
            Self::Image(image) => write!(f, "image/{image}"),
            Self::Start(name) => write!(f, "start/{name}"),
            Self::Kill { id, grace } => write!(f, "kill/{id}/{grace}"),
            Self::BackOff(id) => write!(f, "back-off/{id}"),
            Self::Resize(id) => write!(f, "resize/{id}"),
            Self::Cpus(id) => write!(f, "cpus/{id}"),
            Self::RemoveContainer(id) => write!(f, "remove/{id}"),
            Self::StopSandbox(id) => write!(f, "stop/{id}"),
            Self::RemoveSandbox(id) => write!(f, "remove-sandbox/{id}"),
            Self::Release => f.write_str("release"),
            Self::Cleanup => f.write_str("cleanup"),
            Self::Delete => f.write_str("delete"),
            Self::Refresh => f.write_str("refresh"),
            Self::Status => f.write_str("status"),
            Self::Wake => f.write_str("wake"),
        }
    }
}

#[cfg(test)]
mod tests;
