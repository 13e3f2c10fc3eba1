//! The answer, before it has a form: `respond` makes a response of it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::body::Body;
use crate::cache::CachedObject;

/// A collection, or a page of it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// In key order.
    pub objects: Vec<Arc<CachedObject>>,
    /// The revision it is a picture of.
    pub revision: u64,
    /// The place where the next page starts.
    pub continue_token: Option<String>,
    /// The number of objects after this page; unknown with selectors.
    pub remaining: Option<usize>,
}

/// The answer of a verb.
pub enum Answer {
    /// One stored object.
    Object {
        /// 200 or 201.
        code: StatusCode,
        /// The object.
        object: Arc<CachedObject>,
    },
    /// Something that is not stored: a dry run's result, a Status, a Scale, a review.
    Value {
        /// The HTTP status.
        code: StatusCode,
        /// The object.
        value: Value,
    },
    /// A collection.
    List(Listed),
    /// A collection of what is not stored.
    Unstored(Vec<Value>),
    /// A finished response: watches, streams.
    Response(http::Response<Body>),
}

impl Answer {
    /// 200 with a value.
    pub fn value(value: Value) -> Self {
        Self::Value { code: StatusCode::OK, value }
    }
}
