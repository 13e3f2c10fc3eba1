//! Webhooks: the administrator's own servers, which are asked while a request is under way.
//!
//! `client` calls any of them and knows nothing of admission. The rest is admission's: `hooks` are the configurations,
//! compiled once per change; `matching` says which of them a request concerns; `review` is what they are sent and what
//! they may answer; `mutating` and `validating` ask them.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook`, `k8s.io/apiserver/pkg/util/webhook`.

pub use crate::webhook_client as client;

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

use std::sync::Arc;

use base::Tasks;
use base::metrics::Metrics as Registry;

use crate::kinds::Kinds;
use client::{Clients, Credentials, Dial};
use conditions::Compile;
use hooks::{Compiler, Hooks};
use metrics::WebhookMetrics;

const GROUP: &str = "admissionregistration.k8s.io";

/// The admission webhooks of a server.
pub struct Webhooks {
    /// Those that may change objects.
    pub mutating: Hooks,
    /// Those that only refuse.
    pub validating: Hooks,
    /// The metrics about them.
    pub metrics: Arc<WebhookMetrics>,
}

/// The credentials that the two sorts of webhooks see. Source: `--admission-control-config-file`.
#[derive(Clone, Debug, Default)]
pub struct AdmissionCredentials {
    /// Those that may change objects.
    pub mutating: Credentials,
    /// Those that only refuse.
    pub validating: Credentials,
}

impl Webhooks {
    /// The webhooks that configurations name. `dial` opens connections, which live in `tasks`.
    pub fn new(
        builtin: &Kinds,
        credentials: AdmissionCredentials,
        dial: &Arc<dyn Dial>,
        tasks: &Tasks,
        conditions: &Arc<dyn Compile>,
        registry: &Registry,
    ) -> Self {
        let hooks = |resource, credentials| {
            let clients = Clients::new(Arc::clone(dial), credentials, tasks.clone());
            let compiler = Compiler { clients, conditions: Arc::clone(conditions) };
            Hooks::new(builtin.find(GROUP, "v1", resource).cloned(), Arc::new(compiler))
        };
        Self {
            mutating: hooks("mutatingwebhookconfigurations", credentials.mutating),
            validating: hooks("validatingwebhookconfigurations", credentials.validating),
            metrics: registry.part(WebhookMetrics::new),
        }
    }
}
