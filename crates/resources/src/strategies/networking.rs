//! The strategies of Ingresses, NetworkPolicies and service addresses.

use serde_json::{Value, json};

use super::prepare::set_status;
use crate::strategy::NameRule;
use crate::strategy::{FREE_STATUS_ONLY, GENERIC, SPEC, SPEC_AND_FREE_STATUS, Strategy};
use crate::validation as v;

/// Ingresses.
pub const INGRESS: Strategy = Strategy {
    prepare_for_create: no_load_balancer,
    validate_create: v::ingress::create,
    validate_update: v::ingress::update,
    validate_status_update: v::ingress::status_update,
    warnings: v::ingress::warnings,
    warnings_on_status_update: |new, _| v::warnings::load_balancer(new),
    ..SPEC_AND_FREE_STATUS
};
/// IngressClasses.
pub const INGRESS_CLASS: Strategy =
    Strategy { validate_create: v::ingress::class, validate_update: v::ingress::class_update, ..SPEC };
/// NetworkPolicies.
pub const NETWORK_POLICY: Strategy = Strategy {
    validate_create: v::network_policy::check,
    validate_update: v::network_policy::update,
    warnings: v::network_policy::warnings,
    warnings_on_update: |new, _| v::network_policy::warnings(new),
    ..SPEC
};
/// IPAddresses; their name is the address.
pub const IP_ADDRESS: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    validate_create: v::ip::address,
    validate_update: v::ip::address_update,
    ..GENERIC
};
/// ServiceCIDRs.
pub const SERVICE_CIDR: Strategy = Strategy {
    validate_create: v::ip::service_cidr,
    validate_update: v::ip::service_cidr_update,
    ..FREE_STATUS_ONLY
};

/// A new Ingress has no load balancer yet.
fn no_load_balancer(ingress: &mut Value) {
    set_status(ingress, json!({"loadBalancer": {}}));
}
