//! The arguments of plugins: defaults filled in, and every broken rule told in upstream's words.
//!
//! Source: `pkg/scheduler/apis/config/v1/defaults.go` and `validation/validation_pluginargs.go` of kube-scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint,
};
use machinery::features::Feature;
use machinery::field::{FieldError, FieldErrors, Path, Shown};
use machinery::names;
use serde_json::{Value, json};

use super::error::ArgumentsError;
use super::file::{self, Resource, ShapePoint, arguments};
use crate::arguments::{
    Arguments, Balance, Candidates, Fit, Line, Near, Spread, Strategy, Volumes, default_resources,
};

/// The largest score of a shape's point. Source: `MaxCustomPriorityScore`.
const SCORE_MAX: i32 = 10;
const HARD: &str = "DoNotSchedule";
const SOFT: &str = "ScheduleAnyway";
const LEAST: &str = "LeastAllocated";
const MOST: &str = "MostAllocated";
const RATIO: &str = "RequestedToCapacityRatio";
/// With the feature off. Source: `StorageCapacityScoring`, alpha.
const NO_SHAPE: &str =
    "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
const NO_BINDING_TIMEOUT: &str =
    "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled";

/// Reads one plugin's arguments into `all`, and says what is wrong with them.
type Take = fn(&mut Arguments, &Value, &Path, &mut FieldErrors) -> Result<(), ArgumentsError>;

/// The plugins that can be told something.
const TAKERS: [(&str, Take); 8] = [
    ("DefaultPreemption", |all, given, path, errors| {
        all.preemption = preemption(&arguments("DefaultPreemption", given)?, path, errors);
        Ok(())
    }),
    ("InterPodAffinity", |all, given, path, errors| {
        all.near = near(&arguments("InterPodAffinity", given)?, path, errors);
        Ok(())
    }),
    ("NodeAffinity", |all, given, path, errors| {
        let args: file::NodeAffinityArgs = arguments("NodeAffinity", given)?;
        let path = path.child("addedAffinity");
        args.added_affinity.iter().for_each(|affinity| check_affinity(affinity, &path, errors));
        all.added_affinity = args.added_affinity;
        Ok(())
    }),
    ("NodeResourcesBalancedAllocation", |all, given, path, errors| {
        all.balance = balance(arguments("NodeResourcesBalancedAllocation", given)?, path, errors);
        Ok(())
    }),
    ("NodeResourcesFit", |all, given, path, errors| {
        all.fit = fit(arguments("NodeResourcesFit", given)?, path, errors);
        Ok(())
    }),
    ("PodTopologySpread", |all, given, path, errors| {
        all.spread = spread(arguments("PodTopologySpread", given)?, path, errors);
        Ok(())
    }),
    ("VolumeBinding", |all, given, path, errors| {
        all.volumes = volumes(&arguments("VolumeBinding", given)?, path, errors);
        Ok(())
    }),
    ("DynamicResources", |_, given, path, errors| {
        check_devices(&arguments("DynamicResources", given)?, path, errors);
        Ok(())
    }),
];

/// Takes in what the plugin `name` is told. What nobody here is called is no matter, as upstream has it.
///
/// # Errors
/// They cannot be read.
pub(super) fn take(
    all: &mut Arguments,
    name: &str,
    given: &Value,
    path: &Path,
    errors: &mut FieldErrors,
) -> Result<(), ArgumentsError> {
    match TAKERS.iter().find(|(own, _)| *own == name) {
        Some((_, take)) => take(all, given, path, errors),
        None => Ok(()),
    }
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn preemption(args: &file::PreemptionArgs, path: &Path, errors: &mut FieldErrors) -> Candidates {
    let percentage = args.min_candidate_nodes_percentage.unwrap_or(10);
    let absolute = args.min_candidate_nodes_absolute.unwrap_or(100);
    let (of_percentage, of_absolute) =
        (path.child("minCandidateNodesPercentage"), path.child("minCandidateNodesAbsolute"));
    let mut refuse =
        |path: &Path, value: i32, why| errors.push(FieldError::invalid(path, i64::from(value), why));
    if !(0..=100).contains(&percentage) {
        refuse(&of_percentage, percentage, "not in valid range [0, 100]");
    }
    if absolute < 0 {
        refuse(&of_absolute, absolute, "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        refuse(&of_percentage, 0, "cannot be zero at the same time as minCandidateNodesAbsolute");
        refuse(&of_absolute, 0, "cannot be zero at the same time as minCandidateNodesPercentage");
    }
    Candidates { percentage: size(percentage), absolute: size(absolute) }
}

fn near(args: &file::NearArgs, path: &Path, errors: &mut FieldErrors) -> Near {
    let weight = i64::from(args.hard_pod_affinity_weight.unwrap_or(1));
    if !(0..=100).contains(&weight) {
        let path = path.child("hardPodAffinityWeight");
        errors.push(FieldError::invalid(&path, weight, "not in valid range [0, 100]"));
    }
    Near { hard_weight: weight, ignores_wishes_of_others: args.ignore_preferred_terms_of_existing_pods }
}

fn balance(args: file::BalanceArgs, path: &Path, errors: &mut FieldErrors) -> Balance {
    let path = path.child("resources");
    let mut seen = BTreeSet::new();
    for (index, (name, weight)) in weighed(args.resources.as_deref()).into_iter().enumerate() {
        let path = path.index(index);
        if weight != 1 {
            errors.push(FieldError::invalid(&path.child("weight"), weight, "must be 1"));
        }
        if !seen.insert(name.clone()) {
            errors.push(FieldError::duplicate(&path.child("name"), &name));
        }
    }
    let resources = weighed(args.resources.as_deref()).into_iter().map(|(name, _)| name);
    Balance { resources: resources.collect() }
}

/// Names and weights; CPU and memory if nothing was said, 1 where no weight was.
fn weighed(given: Option<&[Resource]>) -> Vec<(String, i64)> {
    let given = given.unwrap_or_default();
    if given.is_empty() {
        return default_resources();
    }
    let one = |resource: &Resource| {
        let weight = if resource.weight == 0 { 1 } else { resource.weight };
        (resource.name.clone(), weight)
    };
    given.iter().map(one).collect()
}

fn fit(args: file::FitArgs, path: &Path, errors: &mut FieldErrors) -> Fit {
    let list = path.child("ignoredResources");
    let ignored = args.ignored_resources.unwrap_or_default();
    for (index, name) in ignored.iter().enumerate() {
        check_name(name, &list.index(index), errors);
    }
    let list = path.child("ignoredResourceGroups");
    let groups = args.ignored_resource_groups.unwrap_or_default();
    for (index, group) in groups.iter().enumerate() {
        let path = list.index(index);
        if group.contains('/') {
            errors.push(FieldError::invalid(&path, group, "resource group name can't contain '/'"));
        }
        check_name(group, &path, errors);
    }
    let path = path.child("scoringStrategy");
    let (strategy, resources) = match args.scoring_strategy {
        None => (Strategy::LeastAllocated, default_resources()),
        Some(said) => (self::strategy(&said, &path, errors), weighed(said.resources.as_deref())),
    };
    let list = path.child("resources");
    for (index, (name, weight)) in resources.iter().enumerate() {
        if !(1..=100).contains(weight) {
            let why = format!("resource weight of {name} not in valid range (0, 100]");
            errors.push(FieldError::invalid(&list.index(index).child("weight"), *weight, &why));
        }
    }
    Fit {
        ignored: ignored.into_iter().collect(),
        ignored_groups: groups.into_iter().collect(),
        strategy,
        resources,
    }
}

fn strategy(said: &file::ScoringStrategy, path: &Path, errors: &mut FieldErrors) -> Strategy {
    let ratio = path.child("requestedToCapacityRatio");
    if said.r#type != RATIO && said.requested_to_capacity_ratio.is_some() {
        let why = "must be nil when type is not RequestedToCapacityRatio";
        errors.push(FieldError::forbidden(&ratio, why));
    }
    match (said.r#type.as_str(), &said.requested_to_capacity_ratio) {
        (LEAST, _) => Strategy::LeastAllocated,
        (MOST, _) => Strategy::MostAllocated,
        (RATIO, Some(said)) => {
            let points = said.shape.as_deref().unwrap_or_default();
            Strategy::RequestedToCapacityRatio(line(points, &ratio.child("shape"), errors))
        }
        (RATIO, None) => {
            let why = "must be specified when type is RequestedToCapacityRatio";
            errors.push(FieldError::required(&ratio, why));
            Strategy::LeastAllocated
        }
        (other, _) => {
            let known = [LEAST, MOST, RATIO];
            errors.push(FieldError::not_supported(&path.child("type"), other, &known));
            Strategy::LeastAllocated
        }
    }
}

fn line(points: &[ShapePoint], path: &Path, errors: &mut FieldErrors) -> Line {
    check_shape(points, path, errors);
    let scale = crate::plugins::SCORE_MAX / i64::from(SCORE_MAX);
    points.iter().map(|point| (i64::from(point.utilization), i64::from(point.score) * scale)).collect()
}

fn check_shape(points: &[ShapePoint], path: &Path, errors: &mut FieldErrors) {
    if points.is_empty() {
        errors.push(FieldError::required(path, "at least one point must be specified"));
    }
    let falls = points.windows(2).position(|pair| matches!(pair, [a, b] if a.utilization >= b.utilization));
    if let Some((index, point)) = falls.and_then(|before| Some((before + 1, points.get(before + 1)?))) {
        let path = path.index(index).child("utilization");
        let why = "values must be sorted in increasing order";
        errors.push(FieldError::invalid(&path, i64::from(point.utilization), why));
    }
    for (index, point) in points.iter().enumerate() {
        let path = path.index(index);
        for (field, value, max) in
            [("utilization", point.utilization, 100), ("score", point.score, SCORE_MAX)]
        {
            if !(0..=max).contains(&value) {
                let why = format!("not in valid range [0, {max}]");
                errors.push(FieldError::invalid(&path.child(field), i64::from(value), &why));
            }
        }
    }
}

fn check_name(name: &str, path: &Path, errors: &mut FieldErrors) {
    for why in names::qualified_name(name) {
        errors.push(FieldError::invalid(path, name, &why));
    }
}

fn spread(args: file::SpreadArgs, path: &Path, errors: &mut FieldErrors) -> Spread {
    let constraints = args.default_constraints.unwrap_or_default();
    let list = path.child("defaultConstraints");
    let path = path.child("defaultingType");
    match args.defaulting_type.as_str() {
        "" | "System" if !constraints.is_empty() => {
            errors.push(FieldError::invalid(&path, "System", "when .defaultConstraints are not empty"));
        }
        "" | "System" | "List" => {}
        other => errors.push(FieldError::not_supported(&path, other, &["System", "List"])),
    }
    for (index, constraint) in constraints.iter().enumerate() {
        check_constraint(constraint, &list.index(index), errors);
        let key = |one: &TopologySpreadConstraint| (one.topology_key.clone(), one.when_unsatisfiable.clone());
        if constraints.iter().take(index).any(|other| key(other) == key(constraint)) {
            let shown = format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
            errors.push(FieldError::duplicate(&list.index(index), shown));
        }
    }
    if args.defaulting_type == "List" { Spread::List(constraints) } else { Spread::System }
}

fn check_constraint(constraint: &TopologySpreadConstraint, path: &Path, errors: &mut FieldErrors) {
    let empty = "can not be empty";
    if constraint.max_skew <= 0 {
        let skew = i64::from(constraint.max_skew);
        errors.push(FieldError::invalid(&path.child("maxSkew"), skew, "not in valid range (0, inf)"));
    }
    let key = path.child("topologyKey");
    match constraint.topology_key.as_str() {
        "" => errors.push(FieldError::required(&key, empty)),
        text => check_name(text, &key, errors),
    }
    let action = path.child("whenUnsatisfiable");
    match constraint.when_unsatisfiable.as_str() {
        "" => errors.push(FieldError::required(&action, empty)),
        HARD | SOFT => {}
        other => errors.push(FieldError::not_supported(&action, other, &[HARD, SOFT])),
    }
    if constraint.label_selector.is_some() {
        let why = "constraint must not define a selector, as they deduced for each pod";
        errors.push(FieldError::forbidden(&path.child("labelSelector"), why));
    }
}

fn volumes(args: &file::VolumesArgs, path: &Path, errors: &mut FieldErrors) -> Volumes {
    let seconds = args.bind_timeout_seconds.unwrap_or(600);
    if seconds < 0 {
        let why = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.push(FieldError::invalid(&path.child("bindTimeoutSeconds"), seconds, why));
    }
    let mut volumes = Volumes {
        bind_timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        ..Volumes::default()
    };
    let path = path.child("shape");
    match &args.shape {
        Some(shape) if !Feature::StorageCapacityScoring.is_on() => {
            errors.push(FieldError::invalid(&path, &json!(shape), NO_SHAPE));
        }
        Some(shape) if !shape.is_empty() => volumes.shape = line(shape, &path, errors),
        _ => {}
    }
    volumes
}

fn check_devices(args: &file::DevicesArgs, path: &Path, errors: &mut FieldErrors) {
    if let Some(timeout) = args.filter_timeout.filter(|timeout| timeout.0 < 0) {
        let path = path.child("filterTimeout");
        errors.push(FieldError::invalid(&path, String::from(timeout), "must be zero or positive"));
    }
    if args.binding_timeout.is_some() {
        errors.push(FieldError::forbidden(&path.child("bindingTimeout"), NO_BINDING_TIMEOUT));
    }
}

fn check_affinity(affinity: &NodeAffinity, path: &Path, errors: &mut FieldErrors) {
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let path = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
        for (index, term) in required.node_selector_terms.iter().enumerate() {
            check_term(term, &path.index(index), errors);
        }
    }
    let path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (index, term) in preferred.enumerate().filter(|(_, term)| term.weight != 0) {
        check_term(&term.preference, &path.index(index), errors);
    }
}

fn check_term(term: &NodeSelectorTerm, path: &Path, errors: &mut FieldErrors) {
    let list = path.child("matchExpressions");
    for (index, one) in term.match_expressions.iter().flatten().enumerate() {
        check_requirement(one, &list.index(index), errors);
    }
    let list = path.child("matchFields");
    for (index, one) in term.match_fields.iter().flatten().enumerate() {
        let path = list.index(index);
        if !matches!(one.operator.as_str(), "In" | "NotIn") {
            errors.push(FieldError::not_supported(&path.child("operator"), &one.operator, &["In", "NotIn"]));
        } else if one.values.as_ref().map_or(0, Vec::len) != 1 {
            let shown = Shown::from(&json!(one.values));
            errors.push(FieldError::invalid(&path.child("values"), shown, "must have one element"));
        }
    }
}

/// Source: `labels.NewRequirement`.
fn check_requirement(one: &NodeSelectorRequirement, path: &Path, errors: &mut FieldErrors) {
    for why in names::qualified_name(&one.key) {
        errors.push(FieldError::invalid(&path.child("key"), &one.key, &why));
    }
    let given = one.values.as_deref().unwrap_or_default();
    let values = path.child("values");
    let is_number = |text: &String| text.parse::<i64>().is_ok();
    let why = match one.operator.as_str() {
        "In" | "NotIn" if given.is_empty() => "for 'in', 'notin' operators, values set can't be empty",
        "Exists" | "DoesNotExist" if !given.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        "Gt" | "Lt" if given.len() != 1 => "for 'Gt', 'Lt' operators, exactly one value is required",
        "Gt" | "Lt" if !given.iter().all(is_number) => {
            "for 'Gt', 'Lt' operators, the value must be an integer"
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => "",
        other => {
            let known = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
            return errors.push(FieldError::not_supported(&path.child("operator"), other, &known));
        }
    };
    if !why.is_empty() {
        errors.push(FieldError::invalid(&values, Shown::from(&json!(given)), why));
    }
    for (index, value) in given.iter().enumerate() {
        for why in names::label_value(value) {
            errors.push(FieldError::invalid(&values.index(index), value, &why));
        }
    }
}
