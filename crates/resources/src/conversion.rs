//! Between the served and the stored form of objects that two group-versions share.
//!
//! Only `apiVersion` differs for most kinds; the functions here do the rest, in place.

use serde_json::{Map, Value};

mod autoscaler;

/// Both directions; `apiVersion` is set by the caller.
#[derive(Debug)]
pub struct Conversion {
    /// From the served form to the stored one.
    pub to_storage: fn(&mut Map<String, Value>),
    /// From the stored form to the served one.
    pub from_storage: fn(&mut Map<String, Value>),
}

/// `events.k8s.io/v1` Events, stored as core ones.
pub const EVENT: Conversion = Conversion { to_storage: event_to_core, from_storage: event_from_core };

/// `autoscaling/v1` HorizontalPodAutoscalers, stored as v2.
pub const HORIZONTAL_POD_AUTOSCALER: Conversion =
    Conversion { to_storage: autoscaler::to_v2, from_storage: autoscaler::from_v2 };

/// New name, old (core) name.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn event_to_core(event: &mut Map<String, Value>) {
    for (served, stored) in EVENT_FIELDS {
        rename(event, served, stored);
    }
}

fn event_from_core(event: &mut Map<String, Value>) {
    for (served, stored) in EVENT_FIELDS {
        rename(event, stored, served);
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(conversion: &Conversion, served: Value, stored: Value) {
        let mut map = served.as_object().unwrap().clone();
        (conversion.to_storage)(&mut map);
        assert_eq!(Value::Object(map.clone()), stored);
        (conversion.from_storage)(&mut map);
        assert_eq!(Value::Object(map), served);
    }

    #[test]
    fn events_have_other_field_names_in_core() {
        check(
            &EVENT,
            json!({"note": "n", "regarding": {"kind": "Pod"}, "reportingController": "c"}),
            json!({"message": "n", "involvedObject": {"kind": "Pod"}, "reportingComponent": "c"}),
        );
    }
}
