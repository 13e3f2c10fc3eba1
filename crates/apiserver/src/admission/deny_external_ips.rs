//! DenyServiceExternalIPs: nobody may give a Service an external IP that it does not have. On by default, unlike
//! upstream's: whoever may write Services could take over what others send to an address (CVE-2020-8554).
//!
//! Source: `plugin/pkg/admission/network/denyserviceexternalips`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation};
use crate::status::Result;

/// Refuses new external IPs; those that are there may stay, and may go.
pub(super) fn validate(context: &Context<'_>, service: &Value) -> Result<()> {
    if !context.is_core("services") || context.operation == Operation::Delete {
        return Ok(());
    }
    let had = context.old.map(external_ips).unwrap_or_default();
    if external_ips(service).iter().all(|ip| had.contains(ip)) {
        return Ok(());
    }
    let why = "Use of external IPs is denied by admission control";
    Err(context.forbidden(Metadata::of(service).name(), why))
}

fn external_ips(service: &Value) -> &[Value] {
    service.pointer("/spec/externalIPs").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
