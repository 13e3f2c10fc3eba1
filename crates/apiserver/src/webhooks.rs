//! Webhooks: the administrator's own servers, which are asked while a request is under way.
//!
//! `client` calls any of them and knows nothing of admission. The rest is admission's: `hooks` are the configurations,
//! compiled once per change; `matching` says which of them a request concerns; `review` is what they are sent and what
//! they may answer; `mutating` and `validating` ask them.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook`, `k8s.io/apiserver/pkg/util/webhook`.

pub mod client;

pub mod hooks;
pub mod rules;

pub mod attributes;
pub mod conditions;
pub mod matching;

pub mod metrics;
pub mod review;

pub mod call;
pub mod mutating;
pub mod validating;
