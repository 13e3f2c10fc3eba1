//! Quantities as whole numbers, rounded up as upstream's `Value()` and `MilliValue()` do.
//!
//! Texts that do not parse count as zero: the API server has validated them before.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn parse(quantity: &Quantity) -> Option<machinery::quantity::Quantity> {
    quantity.0.parse().ok()
}

/// The quantity in thousandths, rounded up.
pub(crate) fn milli(quantity: &Quantity) -> i64 {
    parse(quantity).map_or(0, machinery::quantity::Quantity::milli_value)
}

/// The quantity in whole units, rounded up.
pub(crate) fn whole(quantity: &Quantity) -> i64 {
    parse(quantity).map_or(0, machinery::quantity::Quantity::value)
}
