//! The built-in container runtime: CRI in-process, containers by libcontainer in a shim per Pod.
//!
//! What a call does to the host is written down in the data directory before it is done, so that a restart finds
//! it, and [`Runtime::remove_everything`] takes it back. The runtime knows CRI and nothing of API objects. It forks
//! nothing itself: it has shims made ([`shim`]) and talks to them.

pub mod cdi;
pub mod handlers;
pub mod images;
pub mod network;
pub mod oci;
pub mod seccomp;
pub mod shim;

mod apparmor;
mod cgroup_view;
mod client;
mod config;
mod containers;
mod declared_volumes;
mod devices;
mod files;
mod filters;
mod image_service;
mod image_volumes;
mod in_root;
mod metrics;
mod names;
mod port_forward;
mod propagation;
mod recovery;
mod refusal;
mod resize;
mod sandboxes;
mod service;
mod shim_recovery;
mod state;
mod stats;
mod stop_signal;
mod streams;
mod userns;
mod users;
mod verbose;
mod zygote;

pub use config::Config;
pub use network::{NetworkError, PodNetwork, SandboxNetwork};
pub use recovery::{clean_up, layers_in_use, remove_sandboxes};
pub use refusal::Refusal;
pub use state::{OpenError, Runtime};
