//! The usage of Nodes and Pods. Source: metrics-server's table conversion.

use machinery::quantity::Quantity;
use serde_json::Value;

use super::{Column, NAME, column, list, text};

/// NodeMetrics.
pub const NODE_METRICS: &[Column] = &[
    NAME,
    column("cpu", |o, _| text(o, "/usage/cpu").into()).typed("string", "quantity"),
    column("memory", |o, _| text(o, "/usage/memory").into()).typed("string", "quantity"),
    column("window", |o, _| text(o, "/window").into()).typed("string", "duration"),
];

/// PodMetrics: all containers together.
pub const POD_METRICS: &[Column] = &[
    NAME,
    column("cpu", |o, _| sum(o, "/usage/cpu").into()).typed("string", "quantity"),
    column("memory", |o, _| sum(o, "/usage/memory").into()).typed("string", "quantity"),
    column("window", |o, _| text(o, "/window").into()).typed("string", "duration"),
];

fn sum(pod: &Value, field: &str) -> String {
    let amounts = list(pod, "/containers").iter().filter_map(|c| text(c, field).parse::<Quantity>().ok());
    amounts.reduce(Quantity::plus).unwrap_or_default().to_string()
}
