//! One module per command.

pub(crate) mod agent;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod cni;
pub(crate) mod completion;
pub(crate) mod csi_hostpath;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod image;
pub(crate) mod part;
pub(crate) mod reset;
pub(crate) mod restore;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod why;
