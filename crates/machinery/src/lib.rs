//! The things that all kinds share: metadata, names, selectors, quantities, addresses, field errors, patches.
//!
//! Nothing here knows a kind by name, does I/O, or reads a clock.

pub mod features;
pub mod field;
pub mod metadata;
pub mod names;

pub mod fields;
pub mod jsonpath;
pub mod labels;
pub mod node_labels;
pub mod taints;

pub mod address_range;
pub mod configuration;
pub mod cron;
pub mod duration;
pub mod int_or_string;
pub mod leader_election;
pub mod net;
pub mod pattern;
pub mod quantity;

pub mod apply;
pub mod custom;

pub mod group;
pub mod trace;
pub mod unserved;
pub mod version;
