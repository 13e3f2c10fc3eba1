//! What a rule in CEL costs an object that is written: of a ValidatingAdmissionPolicy, and of a custom kind.
//!
//! The same creates are made with no rule and with ten, in turns; a rule costs a tenth of the difference in CPU time.

use std::sync::Arc;

use anyhow::Result;
use http::Method;
use serde_json::{Map, Value, json};
use testkit::Cluster;

use crate::bench::{Bench, Series};
use crate::load::{Call, Door, Job, as_f64};
use crate::objects;

const RULES: usize = 10;
const CLIENTS: usize = 8;
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "rules.example.com";
/// Microseconds of CPU per object and rule.
const GOAL: Option<&str> = Some("20");

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let mut numbers = Numbers { next: 0, each: bench.extent.of(2_000, 300) };
        of_policies(bench, (cluster, &door), &mut numbers).await?;
        of_kinds(bench, (cluster, &door), &mut numbers).await
    })
}

/// Numbers of objects: each is made once.
struct Numbers {
    next: usize,
    each: usize,
}

impl Numbers {
    fn take(&mut self) -> std::ops::Range<usize> {
        let first = self.next;
        self.next += self.each;
        first..self.next
    }
}

async fn of_policies(
    bench: &mut Bench,
    (cluster, door): (&Cluster, &Door),
    numbers: &mut Numbers,
) -> Result<()> {
    for number in 0..RULES {
        door.call(Call::post(format!("{ADMISSION}/validatingadmissionpolicies"), policy(number))).await?;
    }
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
    let without =
        Series { what: "create of 1 kB, no policy", goal: None, job: objects::create_config_maps() };
    let with = Series { what: "create of 1 kB, 10 policies", goal: None, job: objects::create_config_maps() };
    let mut costs = Vec::new();
    for _ in 0..bench.extent.of(5, 1) {
        let before = bench.series(cluster, door, CLIENTS, numbers.take(), &without).await?;
        for number in 0..RULES {
            door.call(Call::post(bindings.clone(), binding(number))).await?;
        }
        let after = bench.series(cluster, door, CLIENTS, numbers.take(), &with).await?;
        costs.push(cost(before, after));
        for number in 0..RULES {
            let one = Call::get(format!("{bindings}/rule-{number}"));
            door.call(Call { method: Method::DELETE, ..one }).await?;
        }
    }
    bench.report.samples("a policy's rule: CPU per object", "us", GOAL, &costs);
    Ok(())
}

async fn of_kinds(
    bench: &mut Bench,
    (cluster, door): (&Cluster, &Door),
    numbers: &mut Numbers,
) -> Result<()> {
    for (plural, rules) in [("plains", 0), ("ruleds", RULES)] {
        door.call(Call::post(DEFINITIONS.to_owned(), definition(plural, rules))).await?;
    }
    let job = |plural: &'static str| -> Job {
        let path = format!("/apis/{GROUP}/v1/namespaces/{}/{plural}", objects::NAMESPACE);
        Arc::new(move |number| Call::post(path.clone(), object(plural, number)))
    };
    let without = Series { what: "create of a custom object, no rule", goal: None, job: job("plains") };
    let with = Series { what: "create of a custom object, 10 rules", goal: None, job: job("ruleds") };
    let mut costs = Vec::new();
    for _ in 0..bench.extent.of(5, 1) {
        let before = bench.series(cluster, door, CLIENTS, numbers.take(), &without).await?;
        let after = bench.series(cluster, door, CLIENTS, numbers.take(), &with).await?;
        costs.push(cost(before, after));
    }
    bench.report.samples("a custom kind's rule: CPU per object", "us", GOAL, &costs);
    Ok(())
}

/// What one rule costs, in microseconds, by what creates cost in milliseconds.
fn cost(without: f64, with: f64) -> f64 {
    (with - without) * 1e3 / as_f64(RULES)
}

fn policy(number: usize) -> String {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": format!("rule-{number}")},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }]},
            "validations": [{
                "expression": format!("object.metadata.name != 'forbidden-{number}' && object.data.value.size() <= 2000"),
            }],
        },
    })
    .to_string()
}

fn binding(number: usize) -> String {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("rule-{number}")},
        "spec": {
            "policyName": format!("rule-{number}"),
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {
                "kubernetes.io/metadata.name": objects::NAMESPACE,
            }}},
        },
    })
    .to_string()
}

fn definition(plural: &str, rules: usize) -> String {
    let field = |number: usize| (format!("field{number}"), json!({"type": "string", "maxLength": 2_000}));
    let rule = |number: usize| {
        let field = format!("self.field{number}");
        json!({"rule": format!("!has({field}) || {field}.startsWith('0') && {field} != 'x'")})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind(plural).to_lowercase(), "kind": kind(plural)},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object",
                    "properties": Value::Object((0..RULES).map(field).collect::<Map<_, _>>()),
                    "x-kubernetes-validations": (0..rules).map(rule).collect::<Vec<_>>(),
                }}}},
            }],
        },
    })
    .to_string()
}

fn kind(plural: &str) -> String {
    let (first, rest) = plural.trim_end_matches('s').split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

/// About 1 kB, in the fields that rules are about.
fn object(plural: &str, number: usize) -> String {
    let field = |at: usize| (format!("field{at}"), format!("{number:0>100}").into());
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind(plural),
        "metadata": {"name": format!("load-{number}"), "namespace": objects::NAMESPACE},
        "spec": Value::Object((0..RULES).map(field).collect::<Map<_, _>>()),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_costs_its_part_of_the_difference() {
        assert!((cost(0.5, 0.7) - 20.0).abs() < 1e-9);
        assert_eq!(kind("ruleds"), "Ruled");
    }
}
