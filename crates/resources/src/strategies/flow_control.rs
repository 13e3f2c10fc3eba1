//! The strategies of priority and fairness.

use crate::strategy::{SPEC_AND_STATUS, Strategy};
use crate::validation as v;

/// FlowSchemas.
pub const FLOW_SCHEMA: Strategy = Strategy {
    validate_create: v::flow_control::schema,
    validate_update: v::flow_control::schema_update,
    validate_status_update: v::flow_control::status_update,
    ..SPEC_AND_STATUS
};
/// PriorityLevelConfigurations.
pub const PRIORITY_LEVEL_CONFIGURATION: Strategy = Strategy {
    validate_create: v::flow_control::level,
    validate_update: v::flow_control::level_update,
    validate_status_update: v::flow_control::status_update,
    ..SPEC_AND_STATUS
};
