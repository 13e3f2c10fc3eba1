//! The Secrets that a Pod refers to, and may not. Pure.
//!
//! Source: `plugin/pkg/admission/serviceaccount`, `limitSecretReferences`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::super::text;

/// A service account with this annotation set to true lends its Pods its own Secrets only.
const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
/// What Go's `strconv.ParseBool` takes for true.
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];

/// What a mirror Pod does that it may not, if anything.
pub(super) fn mirror_reference(pod: &Value) -> Option<&'static str> {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Some("reference service accounts");
    }
    let spec = pod.get("spec")?;
    if has_secret(spec) {
        return Some("reference secrets");
    }
    let sources = items(spec, "volumes").iter().flat_map(|volume| at(volume, "/projected/sources"));
    let uses_tokens = sources.into_iter().any(|source| is_set(source, "serviceAccountToken"));
    uses_tokens.then_some("use ServiceAccountToken volume projections")
}

fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_set(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|value| !value.is_null())
}

/// Whether anything in a Pod's spec names a Secret, wherever it stands.
fn has_secret(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(field, value)| {
            let is_reference = matches!(field.as_str(), "secretKeyRef" | "imagePullSecrets" | "secretName")
                || field.to_lowercase().ends_with("secretref")
                || (field == "secret" && value.is_object());
            let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            (is_reference && !is_empty) || has_secret(value)
        }),
        Value::Array(items) => items.iter().any(has_secret),
        _ => false,
    }
}

/// Why a Pod may not refer to a Secret that its service account does not list; of an update of its ephemeral
/// containers only those count.
pub(super) fn foreign(pod: &Value, account: &Value, is_debugging: bool) -> Option<String> {
    let metadata = Metadata::of(account);
    if !metadata.annotation(ENFORCED).is_some_and(|value| TRUE.contains(&value)) {
        return None;
    }
    let (name, spec) = (metadata.name(), pod.get("spec")?);
    let lists =
        |field: &str, wanted: &str| items(account, field).iter().any(|one| text(one, "/name") == wanted);
    let refused = |what: String, secret: &str| {
        (!lists("secrets", secret)).then(|| {
            format!(
                "{what}secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
            )
        })
    };
    if is_debugging {
        return of_containers(spec, "ephemeralContainers", "ephemeral container", &refused);
    }
    let volumes = items(spec, "volumes").iter().filter(|volume| is_set(volume, "secret"));
    let of_volumes = volumes
        .into_iter()
        .find_map(|volume| refused("volume with ".to_owned(), text(volume, "/secret/secretName")));
    let pull = || {
        items(spec, "imagePullSecrets").iter().enumerate().find_map(|(at, secret)| {
            let secret = text(secret, "/name");
            (!lists("imagePullSecrets", secret)).then(|| {
                format!(
                    "imagePullSecrets[{at}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
                )
            })
        })
    };
    of_volumes
        .or_else(|| of_containers(spec, "initContainers", "init container", &refused))
        .or_else(|| of_containers(spec, "containers", "container", &refused))
        .or_else(pull)
}

fn of_containers(
    spec: &Value,
    list: &str,
    what: &str,
    refused: &impl Fn(String, &str) -> Option<String>,
) -> Option<String> {
    items(spec, list).iter().find_map(|container| {
        let head = format!("{what} {}", text(container, "/name"));
        let of_variables = items(container, "env").iter().find_map(|variable| {
            let secret = variable.pointer("/valueFrom/secretKeyRef/name").and_then(Value::as_str)?;
            refused(format!("{head} with envVar {} referencing ", text(variable, "/name")), secret)
        });
        of_variables.or_else(|| {
            items(container, "envFrom").iter().find_map(|source| {
                let secret = source.pointer("/secretRef/name").and_then(Value::as_str)?;
                refused(format!("{head} with envFrom referencing "), secret)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn a_mirror_pod_refers_to_nothing() {
        for (spec, expect) in [
            ("{containers: [{name: c}]}", None),
            ("{serviceAccountName: a}", Some("reference service accounts")),
            ("{volumes: [{secret: {secretName: s}}]}", Some("reference secrets")),
            ("{containers: [{env: [{valueFrom: {secretKeyRef: {name: s}}}]}]}", Some("reference secrets")),
            ("{imagePullSecrets: []}", None),
            (
                "{volumes: [{projected: {sources: [{serviceAccountToken: {path: p}}]}}]}",
                Some("use ServiceAccountToken volume projections"),
            ),
        ] {
            assert_eq!(mirror_reference(&parse(&format!("{{spec: {spec}}}"))), expect, "{spec}");
        }
    }

    #[test]
    fn an_account_may_lend_its_own_secrets_only() {
        let account = |enforced: &str| {
            parse(&format!(
                "{{metadata: {{name: a, annotations: {{kubernetes.io/enforce-mountable-secrets: '{enforced}'}}}}, secrets: [{{name: own}}], imagePullSecrets: [{{name: pull}}]}}"
            ))
        };
        let not = |what: &str| {
            format!(
                "{what}secret.secretName=\"x\" is not allowed because service account a does not reference that secret"
            )
        };
        for (spec, expect) in [
            ("{volumes: [{secret: {secretName: own}}], imagePullSecrets: [{name: pull}]}", String::new()),
            ("{volumes: [{secret: {secretName: x}}]}", not("volume with ")),
            (
                "{initContainers: [{name: i, env: [{name: V, valueFrom: {secretKeyRef: {name: x}}}]}]}",
                not("init container i with envVar V referencing "),
            ),
            (
                "{containers: [{name: c, envFrom: [{secretRef: {name: x}}]}]}",
                not("container c with envFrom referencing "),
            ),
            (
                "{imagePullSecrets: [{name: x}]}",
                "imagePullSecrets[0].name=\"x\" is not allowed because service account a does not reference that imagePullSecret".to_owned(),
            ),
        ] {
            let pod = parse(&format!("{{spec: {spec}}}"));
            assert_eq!(foreign(&pod, &account("true"), false).unwrap_or_default(), expect, "{spec}");
            assert_eq!(foreign(&pod, &account("false"), false), None, "{spec}");
        }
    }
}
