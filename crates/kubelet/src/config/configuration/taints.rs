//! The taints that a Node registers with.
//!
//! Source: `registerWithTaints`, and `CheckTaintValidation` of upstream's `pkg/util/taints`.

use machinery::taints::{Flaw, Taint};
use serde_json::Value;

use super::Fields;

impl Fields<'_> {
    /// As `key=value:Effect`, which is how flags have them too.
    pub(super) fn taints(&mut self, name: &str) -> Option<Vec<String>> {
        let Some(items) = self.value(name)?.as_array().cloned() else {
            self.wrong(name, "a list of taints");
            return None;
        };
        let mut taints = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let mut refuse = |why: String| self.error(&format!("{name}[{index}]"), &why);
            if item.get("timeAdded").is_some_and(|time| !time.is_null()) {
                refuse("taint.TimeAdded is not nil".to_owned());
            }
            let taint = text_of(item);
            for rule in broken_rules(&taint) {
                refuse(format!("invalid taint spec: {taint}: {rule}"));
            }
            taints.push(taint);
        }
        Some(taints)
    }
}

fn text_of(item: &Value) -> String {
    let of = |field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default();
    match (item, of("value")) {
        (Value::String(text), _) => text.clone(),
        (_, "") => format!("{}:{}", of("key"), of("effect")),
        (_, value) => format!("{}={value}:{}", of("key"), of("effect")),
    }
}

fn broken_rules(taint: &str) -> Vec<String> {
    let told = |flaw| match flaw {
        Flaw::Form => "must be <key>[=<value>]:<effect>".to_owned(),
        Flaw::Name(why) => why,
        Flaw::Effect(effect) => format!("invalid taint effect: {effect}, unsupported taint effect"),
    };
    Taint::parse(taint).err().into_iter().flatten().map(told).collect()
}
