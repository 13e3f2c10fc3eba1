//! LimitRanges and ResourceQuotas.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::quantities::{Names, amount, is_overcommittable, is_standard_quota, quantity};
use super::{At, internal};

const LIMIT_TYPES: &[&str] = &["Pod", "Container", "PersistentVolumeClaim"];
const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
const NOT_AN_OPERATOR: &str = "not a valid selector operator";
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]];
/// Scopes that are there or not; the others have values.
const PLAIN_SCOPES: [&str; 5] =
    ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];

/// A LimitRange.
pub(crate) fn limit_range(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for item in At::root(object).get("spec").get("limits").items() {
        let kind = item.get("type");
        limit_type(&kind, &mut errors);
        if !seen.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        let is_pod = kind.text() == "Pod";
        let rule = if matches!(kind.text(), "Pod" | "Container") { Names::Container } else { Names::Any };
        for list in LISTS {
            let amounts = item.get(list);
            if is_pod && matches!(list, "default" | "defaultRequest") {
                if !amounts.is_empty() {
                    errors.push(amounts.forbidden("may not be specified when `type` is 'Pod'"));
                }
                continue;
            }
            if list == "maxLimitRequestRatio" {
                claim_bounds(&item, &mut errors);
            }
            amounts.entries().for_each(|(name, at)| rule.check(&at.path, name, &mut errors));
        }
        let resources: BTreeSet<_> =
            LISTS.iter().flat_map(|list| item.get(list).entries()).map(|(name, _)| name).collect();
        resources.into_iter().for_each(|name| limits_fit(&item, name, is_pod, &mut errors));
    }
    errors
}

/// An update of a LimitRange.
pub(crate) fn limit_range_update(new: &Value, _: &Value) -> FieldErrors {
    limit_range(new)
}

fn limit_type(kind: &At<'_>, errors: &mut FieldErrors) {
    let rules = names::qualified_name(kind.text());
    if rules.is_empty() && !kind.text().contains('/') && !LIMIT_TYPES.contains(&kind.text()) {
        errors.push(kind.invalid("must be a standard limit type or fully qualified"));
    }
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&kind.path, kind.text(), rule)));
}

fn claim_bounds(item: &At<'_>, errors: &mut FieldErrors) {
    let has = |list: &str| item.get(list).get("storage").is_set();
    if item.get("type").text() == "PersistentVolumeClaim" && !has("min") && !has("max") {
        let path = item.path.child("limits");
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path, detail));
    }
}

fn limits_fit(item: &At<'_>, name: &str, is_pod: bool, errors: &mut FieldErrors) {
    let of = |list: &str| amount(&item.get(list).get(name));
    let (min, max, ratio) = (of("min"), of("max"), of("maxLimitRequestRatio"));
    let (limit, request) = if is_pod { (None, None) } else { (of("default"), of("defaultRequest")) };
    // The lower one and its noun, the upper one and its noun, and where and with which of them it is reported.
    let pairs: [(_, _, &str, Option<Quantity>, String); 6] = [
        (min, max, "min", min, "min value {} is greater than max value {}".to_owned()),
        (
            min,
            request,
            "defaultRequest",
            request,
            "min value {} is greater than default request value {}".to_owned(),
        ),
        (
            request,
            max,
            "defaultRequest",
            request,
            "default request value {} is greater than max value {}".to_owned(),
        ),
        (
            request,
            limit,
            "defaultRequest",
            request,
            "default request value {} is greater than default limit value {}".to_owned(),
        ),
        (min, limit, "default", min, "min value {} is greater than default value {}".to_owned()),
        (limit, max, "default", max, "default value {} is greater than max value {}".to_owned()),
    ];
    for (low, high, list, shown, text) in pairs {
        if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
            && low > high
        {
            let detail = text.replacen("{}", &low.to_string(), 1).replacen("{}", &high.to_string(), 1);
            errors.push(FieldError::invalid(&item.get(list).path.key(name), shown.to_string(), &detail));
        }
    }
    ratio_fits(item, name, ratio, min.zip(max), errors);
    if let (Some(limit), Some(request)) = (limit, request)
        && limit != request
        && !is_overcommittable(name)
    {
        let detail = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        let path = item.get("defaultRequest").path.key(name);
        errors.push(FieldError::invalid(&path, request.to_string(), &detail));
    }
}

#[expect(clippy::cast_precision_loss, reason = "upstream compares ratios as floating point numbers too")]
fn ratio_fits(
    item: &At<'_>,
    name: &str,
    ratio: Option<Quantity>,
    bounds: Option<(Quantity, Quantity)>,
    errors: &mut FieldErrors,
) {
    let Some(ratio) = ratio else { return };
    let path = item.get("maxLimitRequestRatio").path.key(name);
    if ratio.milli_value() < 1000 {
        let detail = format!("ratio {ratio} is less than 1");
        errors.push(FieldError::invalid(&path, ratio.to_string(), &detail));
    }
    let Some((min, max)) = bounds else { return };
    let most = max.milli_value() as f64 / min.milli_value() as f64;
    if ratio.milli_value() as f64 / 1000.0 > most {
        let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
        errors.push(FieldError::invalid(&path, ratio.to_string(), &detail));
    }
}

/// A ResourceQuota.
pub(crate) fn resource_quota(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let quota = At::root(object);
    quota_spec(&quota.get("spec"), &mut errors);
    quota_status(&quota.get("status"), &mut errors);
    errors
}

/// An update of a ResourceQuota.
pub(crate) fn resource_quota_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    quota_spec(&new, &mut errors);
    let scopes = |spec: &At<'_>| spec.get("scopes").texts().map(str::to_owned).collect::<BTreeSet<_>>();
    if scopes(&new) != scopes(&old) {
        errors.push(new.get("scopes").invalid("field is immutable"));
    }
    errors
}

/// A write to `/status`.
pub(crate) fn resource_quota_status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    quota_status(&At::root(new).get("status"), &mut errors);
    errors
}

fn quota_status(status: &At<'_>, errors: &mut FieldErrors) {
    amounts(&status.get("hard"), errors);
    amounts(&status.get("used"), errors);
}

fn amounts(list: &At<'_>, errors: &mut FieldErrors) {
    for (name, at) in list.entries() {
        Names::Quota.check(&at.path, name, errors);
        quantity(&at, name, errors);
    }
}

fn quota_spec(spec: &At<'_>, errors: &mut FieldErrors) {
    amounts(&spec.get("hard"), errors);
    let hard: Vec<&str> =
        spec.get("hard").entries().map(|(name, _)| name).filter(|name| is_standard_quota(name)).collect();
    let scopes = spec.get("scopes");
    for scope in scopes.texts() {
        if !is_scope(scope) {
            errors.push(scopes.invalid("unsupported scope"));
        }
        for _ in hard.iter().filter(|name| !scope_counts(scope, name)) {
            errors.push(scopes.invalid("unsupported scope applied to resource"));
        }
    }
    conflicts(&scopes, &scopes.texts().collect::<Vec<_>>(), &scopes, errors);
    let selector = spec.get("scopeSelector");
    // Upstream names the list, not its element.
    let list = selector.get("matchExpressions");
    for rule in list.items() {
        let rule = At { path: list.path.clone(), ..rule };
        scope_rule(&rule, &selector, &hard, errors);
    }
    let selected: Vec<_> = list.items().map(|rule| rule.get("scopeName").text()).collect();
    conflicts(&list, &selected, &scopes, errors);
}

fn scope_rule(rule: &At<'_>, selector: &At<'_>, hard: &[&str], errors: &mut FieldErrors) {
    let (scope, operator, values) = (rule.get("scopeName"), rule.get("operator"), rule.get("values"));
    if !is_scope(scope.text()) {
        errors.push(scope.invalid("unsupported scope"));
    }
    for _ in hard.iter().filter(|name| !scope_counts(scope.text(), name)) {
        let whole = At { path: rule.path.clone(), ..selector.clone() };
        errors.push(internal::invalid(&whole, "ScopeSelector", "unsupported scope applied to resource"));
    }
    if PLAIN_SCOPES.contains(&scope.text()) && operator.text() != "Exists" {
        errors.push(operator.invalid("must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"));
    }
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => errors
            .push(values.required(
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(
            values
                .invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        text => errors.push(FieldError::invalid(&operator.path, text, NOT_AN_OPERATOR)),
    }
}

fn conflicts(at: &At<'_>, scopes: &[&str], shown: &At<'_>, errors: &mut FieldErrors) {
    for pair in CONFLICTS {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            let value = Some(shown.value).filter(|value| !value.is_null());
            errors.push(FieldError::invalid(&at.path, value, "conflicting scopes"));
        }
    }
}

fn is_scope(scope: &str) -> bool {
    PLAIN_SCOPES.contains(&scope) || matches!(scope, "PriorityClass" | "VolumeAttributesClass")
}

/// Whether the objects of a scope have something of the resource.
fn scope_counts(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ if is_scope(scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}
