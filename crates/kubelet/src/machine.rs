//! What the machine is: its CPUs, memory, NUMA nodes, huge pages and file systems, as the kernel tells. Blocking, and knows
//! nothing of Pods.

pub(crate) mod file_system;
pub(crate) mod layout;
pub(crate) mod nodes;
pub(crate) mod pages;

mod facts;

pub(crate) use facts::{Machine, boot_time, pids_max, read_machine, thermal_folders};
