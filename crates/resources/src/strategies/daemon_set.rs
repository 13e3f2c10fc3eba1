//! The number of a DaemonSet's template, which upstream keeps for clients of `extensions/v1beta1`.

use serde_json::{Map, Value, json};

/// Source: `apps/v1.DeprecatedTemplateGeneration`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The first template is number 1, whatever the caller says.
pub(super) fn create(object: &mut Value) {
    number(object, 1);
}

/// A template that differs from the one before has the next number.
pub(super) fn update(new: &mut Value, old: &Value) {
    let template = |object: &Value| object.pointer("/spec/template").cloned();
    let before = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    let before = before.and_then(|text| text.parse().ok()).unwrap_or(1_i64);
    let is_changed = template(new) != template(old);
    number(new, before.saturating_add(i64::from(is_changed)));
}

fn number(object: &mut Value, generation: i64) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), json!(generation.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_template_raises_its_number() {
        let mut object =
            json!({"metadata": {"annotations": {TEMPLATE_GENERATION: "9"}}, "spec": {"template": {}}});
        create(&mut object);
        let numbered = |object: &Value| object["metadata"]["annotations"][TEMPLATE_GENERATION].clone();
        assert_eq!(numbered(&object), "1");
        let mut same = json!({"metadata": {}, "spec": {"template": {}, "minReadySeconds": 5}});
        update(&mut same, &object);
        assert_eq!(numbered(&same), "1");
        let mut other = json!({"metadata": {}, "spec": {"template": {"spec": {}}}});
        update(&mut other, &same);
        assert_eq!(numbered(&other), "2");
    }
}
