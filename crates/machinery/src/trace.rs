//! The chain of events as data: commits with what caused them, and spans.
//!
//! The API server answers with a [`Chain`] at `/debug/knarr/trace` and takes [`Span`]s at `/debug/knarr/spans`.

use serde::{Deserialize, Serialize};

/// The consequences of one object's commits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Chain {
    /// In revision order.
    pub commits: Vec<Commit>,
    /// In order of arrival.
    pub spans: Vec<Span>,
}

/// A write.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Commit {
    /// The revision it made.
    pub revision: u64,
    /// The revision that made the client act; 0 if unknown.
    pub parent: u64,
    /// The store's key without `/registry/`.
    pub key: String,
    /// The request's verb.
    pub verb: String,
    /// The subresource, empty if none.
    pub subresource: String,
    /// The first token of the client's `User-Agent`.
    pub component: String,
    /// The user's name.
    pub user: String,
    /// The time at which the request arrived, Unix microseconds.
    pub at_us: i64,
    /// The time at which the watch cache had it, Unix microseconds.
    pub committed_us: i64,
    /// `true` if the object went.
    pub is_deletion: bool,
}

/// A step that made no revision: a sandbox started, rules programmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The revision that caused it.
    pub cause: u64,
    /// The component that did it, such as `kubelet`.
    pub component: String,
    /// The step that was done, such as `sandbox started`.
    pub name: String,
    /// On what, such as `pods/default/web-1`.
    pub object: String,
    /// Unix microseconds.
    pub start_us: i64,
    /// Unix microseconds.
    pub end_us: i64,
    /// For people.
    pub detail: String,
}
