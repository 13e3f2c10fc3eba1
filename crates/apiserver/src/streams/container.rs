//! The container of a Pod that is meant. Pure.

use machinery::metadata::Metadata;
use serde_json::Value;

use crate::status::{Error, Result};

/// The container that is meant.
pub(super) fn choose(pod: &Value, pod_name: &str, wanted: Option<&str>) -> Result<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|c| c.get("name")?.as_str()).map(str::to_owned).collect()
    };
    let (main, init, ephemeral) =
        (names("/spec/containers"), names("/spec/initContainers"), names("/spec/ephemeralContainers"));
    if let Some(wanted) = wanted {
        let is_known = [&main, &init, &ephemeral].iter().any(|list| list.iter().any(|name| name == wanted));
        return if is_known {
            Ok(wanted.to_owned())
        } else {
            Err(Error::bad_request(format!("container {wanted} is not valid for pod {pod_name}")))
        };
    }
    if let Some(name) = Metadata::of(pod).annotation("kubectl.kubernetes.io/default-container")
        && main.iter().any(|container| container == name)
    {
        return Ok(name.to_owned());
    }
    match main.as_slice() {
        [one] => Ok(one.clone()),
        _ => {
            let mut text = format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                main.join(" ")
            );
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Error::bad_request(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, wanted: Option<&str>, expect: std::result::Result<&str, &str>) {
        let pod = json!({"metadata": {"name": "x"}, "spec": spec});
        let got = choose(&pod, "x", wanted);
        assert_eq!(got.as_deref().map_err(|error| error.message.as_str()), expect);
    }

    #[test]
    fn a_container_is_named_or_the_only_one() {
        let one = json!({"containers": [{"name": "a"}]});
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(one.clone(), None, Ok("a"));
        check(two.clone(), Some("i"), Ok("i"));
        check(one, Some("z"), Err("container z is not valid for pod x"));
        check(
            two,
            None,
            Err(
                "a container name must be specified for pod x, choose one of: [a b] or one of the init containers: [i]",
            ),
        );
    }
}
