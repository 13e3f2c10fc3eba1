//! A namespace's LimitRanges give containers the requests and limits that they do not name, and bound what is named.
//!
//! Source: `plugin/pkg/admission/limitranger`.

use machinery::metadata::{Metadata, metadata_mut};
use machinery::quantity::Quantity;
use resources::pod_resources::{Amounts, Half, amounts, of_container, without_overhead};
use serde_json::{Map, Value};

use super::{Context, Operation, child, text};
use crate::status::Result;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// What a request is about, as far as LimitRanges care.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Pod,
    Claim,
}

fn subject(context: &Context<'_>) -> Option<Subject> {
    let is_create = context.operation == Operation::Create;
    let is_resize = context.is_core_kind("pods") && context.request.resource.subresource == "resize";
    if context.operation == Operation::Delete {
        return None;
    }
    if is_resize || (is_create && context.is_core("pods")) {
        return Some(Subject::Pod);
    }
    context.is_core("persistentvolumeclaims").then_some(Subject::Claim)
}

/// The limits of the request's namespace, LimitRange by LimitRange.
fn ranges(context: &Context<'_>) -> Vec<Vec<Value>> {
    let Some(kind) = context.cluster.kind("", "v1", "limitranges") else { return Vec::new() };
    let listing = kind.cache().list(&kind.collection(&context.request.resource.namespace), 0);
    let limits = |range: Value| range.pointer("/spec/limits").and_then(Value::as_array).cloned();
    listing.objects.iter().filter_map(|object| limits(kind.value(object))).collect()
}

/// Fills in the defaults of type `Container`.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if subject(context) != Some(Subject::Pod) {
        return Ok(());
    }
    for limits in ranges(context) {
        set_defaults(pod, &limits);
    }
    Ok(())
}

fn set_defaults(pod: &mut Value, limits: &[Value]) {
    let merged = |field: &str| -> Map<String, Value> {
        let of_containers = limits.iter().filter(|limit| text(limit, "/type") == "Container");
        of_containers.filter_map(|limit| limit.get(field)?.as_object()).flatten().map(own).collect()
    };
    let (requests, most) = (merged("defaultRequest"), merged("default"));
    let mut told = Vec::new();
    if let Some(spec) = child(pod, "spec") {
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                for (half, defaults, word) in [("requests", &requests, "request"), ("limits", &most, "limit")]
                {
                    let set = fill(container, half, defaults);
                    if !set.is_empty() {
                        told.push(format!(
                            "{} {word} for {what} {}",
                            set.join(", "),
                            text(container, "/name")
                        ));
                    }
                }
            }
        }
    }
    if !told.is_empty()
        && let Some(metadata) = metadata_mut(pod)
        && let Some(annotations) =
            metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        annotations
            .insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", told.join("; ")).into());
    }
}

fn own((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// Adds what is missing; answers its names.
fn fill(container: &mut Value, half: &str, defaults: &Map<String, Value>) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let Some(resources) = child(container, "resources") else { return Vec::new() };
    let half = resources.entry(half.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    let Some(half) = half.as_object_mut() else { return Vec::new() };
    let mut set: Vec<String> = defaults.keys().filter(|name| !half.contains_key(*name)).cloned().collect();
    set.sort();
    for name in &set {
        half.insert(name.clone(), defaults.get(name).cloned().unwrap_or_default());
    }
    set
}

/// Refuses what is out of bounds, with every broken bound of the first LimitRange that has one.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let Some(subject) = subject(context) else { return Ok(()) };
    if matches!(context.operation, Operation::Update(_)) && Metadata::of(object).is_terminating() {
        return Ok(());
    }
    for limits in ranges(context) {
        let broken = match subject {
            Subject::Pod => check_pod(object, &limits),
            Subject::Claim => check_claim(object, &limits),
        };
        let why = match broken.as_slice() {
            [] => continue,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        return Err(context.forbidden(Metadata::of(object).name(), &why));
    }
    Ok(())
}

fn check_pod(pod: &Value, limits: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    for limit in limits {
        match text(limit, "/type") {
            "Container" => {
                for list in ["containers", "initContainers"] {
                    let all = pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
                    for container in all.into_iter().flatten() {
                        let requests = of_container(container, Half::Requests);
                        check_bounds(limit, &requests, &of_container(container, Half::Limits), &mut broken);
                    }
                }
            }
            "Pod" => {
                let requests = without_overhead(pod, Half::Requests);
                check_bounds(limit, &requests, &without_overhead(pod, Half::Limits), &mut broken);
            }
            _ => {}
        }
    }
    broken
}

fn check_claim(claim: &Value, limits: &[Value]) -> Vec<String> {
    let requests = amounts(claim.pointer("/spec/resources/requests"));
    let mut broken = Vec::new();
    for limit in limits.iter().filter(|limit| text(limit, "/type") == "PersistentVolumeClaim") {
        let of = text(limit, "/type");
        broken.extend(each(limit, "min", |name, bound| {
            below_minimum(of, name, bound, requests.get(name), None)
        }));
        broken.extend(each(limit, "max", |name, bound| {
            let head = format!("maximum {name} usage per {of} is {bound}");
            match requests.get(name) {
                None => Some(format!("{head}.  No request is specified")),
                Some(request) => (*request > bound).then(|| format!("{head}, but request is {request}")),
            }
        }));
    }
    broken
}

fn check_bounds(limit: &Value, requests: &Amounts, limits: &Amounts, broken: &mut Vec<String>) {
    let of = text(limit, "/type");
    let rules: [(&str, Bound); 3] =
        [("min", below_minimum), ("max", above_maximum), ("maxLimitRequestRatio", above_ratio)];
    for (list, rule) in rules {
        broken.extend(each(limit, list, |name, bound| {
            rule(of, name, bound, requests.get(name), limits.get(name))
        }));
    }
}

/// What of a bound is broken: type, resource, bound, request, limit.
type Bound = fn(&str, &str, Quantity, Option<&Quantity>, Option<&Quantity>) -> Option<String>;

/// Applies a rule to each bound in one list of a limit.
fn each(limit: &Value, list: &str, rule: impl Fn(&str, Quantity) -> Option<String>) -> Vec<String> {
    amounts(limit.get(list)).into_iter().filter_map(|(name, bound)| rule(&name, bound)).collect()
}

fn below_minimum(
    of: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("minimum {name} usage per {of} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{head}.  No request is specified")),
        (Some(request), _) if *request < bound => Some(format!("{head}, but request is {request}")),
        (_, Some(limit)) if *limit < bound => Some(format!("{head}, but limit is {limit}")),
        _ => None,
    }
}

fn above_maximum(
    of: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("maximum {name} usage per {of} is {bound}");
    match (request, limit) {
        (_, None) => Some(format!("{head}.  No limit is specified")),
        (_, Some(limit)) if *limit > bound => Some(format!("{head}, but limit is {limit}")),
        (Some(request), _) if *request > bound => Some(format!("{head}, but request is {request}")),
        _ => None,
    }
}

fn above_ratio(
    of: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("{name} max limit to request ratio per {of} is {bound}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    let milli = |quantity: Quantity| quantity.milli_value() as f64;
    let ratio = milli(*limit) / milli(*request);
    (ratio * 1000.0 > milli(bound)).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn check(limits: &str, pod: &str, expect: &[&str]) {
        let limits = parse(limits).as_array().cloned().unwrap();
        assert_eq!(check_pod(&parse(pod), &limits), expect, "{limits:?} {pod}");
    }

    #[test]
    fn bounds_hold_for_each_container_and_for_the_pod() {
        let pod = "{spec: {containers: [{resources: {requests: {cpu: 100m}, limits: {cpu: 400m}}}, {resources: {requests: {cpu: 1}}}]}}";
        check(
            "[{type: Container, min: {cpu: 200m}, max: {cpu: 300m}, maxLimitRequestRatio: {cpu: 3}}]",
            pod,
            &[
                "minimum cpu usage per Container is 200m, but request is 100m",
                "maximum cpu usage per Container is 300m, but limit is 400m",
                "cpu max limit to request ratio per Container is 3, but provided ratio is 4.000000",
                "maximum cpu usage per Container is 300m.  No limit is specified",
                "cpu max limit to request ratio per Container is 3, but no limit is specified or limit is 0",
            ],
        );
        check(
            "[{type: Pod, max: {cpu: 400m}}]",
            pod,
            &["maximum cpu usage per Pod is 400m, but request is 1100m"],
        );
        check(
            "[{type: Pod, min: {memory: 1Mi}}]",
            pod,
            &["minimum memory usage per Pod is 1Mi.  No request is specified"],
        );
    }

    #[test]
    fn a_claim_is_bounded_by_what_it_asks_for() {
        let limits = parse("[{type: PersistentVolumeClaim, min: {storage: 2Gi}, max: {storage: 4Gi}}]");
        let broken = |size: &str| {
            let claim = parse(&format!("{{spec: {{resources: {{requests: {{storage: {size}}}}}}}}}"));
            check_claim(&claim, limits.as_array().unwrap())
        };
        assert_eq!(
            broken("1Gi"),
            ["minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"]
        );
        assert_eq!(
            broken("5Gi"),
            ["maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"]
        );
        assert!(broken("3Gi").is_empty());
    }

    #[test]
    fn defaults_are_filled_in_and_told() {
        let mut pod = parse(
            "{metadata: {}, spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}], initContainers: [{name: i}]}}",
        );
        let limits =
            parse("[{type: Container, default: {cpu: 2, memory: 1Gi}, defaultRequest: {cpu: 500m}}]");
        set_defaults(&mut pod, limits.as_array().unwrap());
        assert_eq!(
            text(&pod, "/metadata/annotations/kubernetes.io~1limit-ranger"),
            "LimitRanger plugin set: cpu, memory limit for container a; cpu request for init container i; cpu, memory \
             limit for init container i"
        );
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], 1);
        assert_eq!(pod["spec"]["initContainers"][0]["resources"]["requests"]["cpu"], "500m");
    }
}
