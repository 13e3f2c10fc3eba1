//! Times that the server sets where nobody else has: defaults that no function of the object alone can give.
//!
//! A path leads from the object to a time; `*` stands for every item of a list. What lies on the way is not made.
//! Source: `SetDefaults_DeviceTaint` of `pkg/apis/resource/*/defaults.go`.

use serde_json::Value;

/// Sets the time at `path`, in every object that the path leads to and that has none.
pub(crate) fn set_absent(path: &str, object: &mut Value, time: &str) {
    let steps: Vec<&str> = path.split('/').collect();
    set(&steps, object, time);
}

fn set(steps: &[&str], value: &mut Value, time: &str) {
    match steps {
        [] => {}
        ["*", rest @ ..] => {
            value.as_array_mut().into_iter().flatten().for_each(|item| set(rest, item, time));
        }
        [field] => {
            let Some(map) = value.as_object_mut() else { return };
            if map.get(*field).is_none_or(Value::is_null) {
                map.insert((*field).to_owned(), time.into());
            }
        }
        [field, rest @ ..] => value.get_mut(field).into_iter().for_each(|inner| set(rest, inner, time)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &str, object: Value, expect: &Value) {
        let mut object = object;
        set_absent(path, &mut object, "now");
        assert_eq!(object, *expect, "{path}");
    }

    #[test]
    fn a_time_is_set_where_there_is_none_and_nothing_is_made_for_it() {
        let of_rule = "spec/taint/timeAdded";
        check(
            of_rule,
            json!({"spec": {"taint": {"key": "k"}}}),
            &json!({"spec": {"taint": {"key": "k", "timeAdded": "now"}}}),
        );
        for kept in [
            json!({"spec": {"taint": {"timeAdded": "then"}}}),
            json!({"spec": {}}),
            json!({"spec": {"taint": null}}),
            json!({"spec": {"taint": "k"}}),
            json!({"spec": [{"taint": {}}]}),
        ] {
            check(of_rule, kept.clone(), &kept);
        }
        check(
            "devices/*/taints/*/timeAdded",
            json!({"devices": [{}, {"taints": [{}, {"timeAdded": null}, {"timeAdded": "then"}, 7]}, {"taints": {}}]}),
            &json!({"devices": [{}, {"taints": [{"timeAdded": "now"}, {"timeAdded": "now"}, {"timeAdded": "then"}, 7]},
                {"taints": {}}]}),
        );
    }
}
