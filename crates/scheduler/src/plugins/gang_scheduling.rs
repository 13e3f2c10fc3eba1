//! A Pod of a gang is not tried before there are enough of them, and not bound before enough of them have a Node.
//!
//! What it holds back otherwise is held back by nothing else: which Node is a Pod's is the others' affair. Two gangs that each
//! have a part of the room wait for each other until their time is over, as upstream's do at v1.35.
//! Source: `plugins/gangscheduling` of kube-scheduler at v1.35.

use controller::pod::Pod;
use jiff::Timestamp;

use crate::gangs::{GangKey, Gangs};

/// Upstream's plugin name.
pub(crate) const NAME: &str = "GangScheduling";

/// What a Pod of a gang may do that found a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It is bound, and so are those of its gang that have waited.
    Go {
        /// Their keys, its own perhaps among them.
        with: Vec<String>,
    },
    /// It keeps its room and waits for the others, who are tried now.
    Wait {
        /// For how long.
        until: Timestamp,
        /// How many have a Node or are assumed on one, and how many are needed.
        count: (usize, usize),
    },
}

/// What a Pod's gang is that it was not when the Pod was tried.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GangError {
    #[error("failed to get workload {namespace}/{name}: workload.scheduling.k8s.io {name:?} not found")]
    NoWorkload { namespace: String, name: String },
    #[error("pod group {group:?} doesn't exist for a workload {workload:?}")]
    NoGroup { group: String, workload: String },
}

/// Why a Pod is not tried yet. Source: `PreEnqueue`.
pub(crate) fn refusal(gang: &GangKey, gangs: &Gangs) -> Option<String> {
    let Some(workload) = gangs.workload(gang) else {
        return Some(format!(
            "waiting for pods's workload {:?} to appear in scheduling queue",
            gang.workload()
        ));
    };
    let Some(policy) = Gangs::policy(workload, gang) else {
        return Some(missing_group(gang).to_string());
    };
    let needed = needed(policy.gang.as_ref()?.min_count);
    (gangs.known(gang) < needed)
        .then(|| "waiting for minCount pods from a gang to appear in scheduling queue".to_owned())
}

/// Whether a Pod is bound that found a Node and counts among those of its gang that are assumed on one; nothing if it belongs
/// to no gang.
///
/// # Errors
/// What the Pod names is gone.
pub(crate) fn permit(pod: &Pod, gangs: &mut Gangs, now: Timestamp) -> Result<Option<Permit>, GangError> {
    let Some(gang) = GangKey::of(pod) else { return Ok(None) };
    let Some(workload) = gangs.workload(&gang) else {
        let (namespace, name) = (gang.namespace().to_owned(), gang.workload().to_owned());
        return Err(GangError::NoWorkload { namespace, name });
    };
    let policy = Gangs::policy(workload, &gang).ok_or_else(|| missing_group(&gang))?;
    let Some(policy) = &policy.gang else { return Ok(None) };
    let needed = needed(policy.min_count);
    let placed = gangs.placed(&gang);
    Ok(Some(match placed < needed {
        true => Permit::Wait { until: gangs.deadline(&gang, now), count: (placed, needed) },
        false => Permit::Go { with: gangs.assumed(&gang) },
    }))
}

fn needed(min_count: i32) -> usize {
    usize::try_from(min_count).unwrap_or(0)
}

fn missing_group(gang: &GangKey) -> GangError {
    GangError::NoGroup { group: gang.group().to_owned(), workload: gang.workload().to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::scheduling::v1alpha1::Workload;

    use super::*;
    use crate::binding_error::BindingError;
    use crate::transform::parse;

    const WORKLOADS: [&str; 2] = [
        "{metadata: {name: gang, namespace: d}, spec: {podGroups: \
         [{name: one, policy: {gang: {minCount: 3}}}, {name: two, policy: {gang: {minCount: 4}}}]}}",
        "{metadata: {name: basic, namespace: d}, spec: {podGroups: [{name: one, policy: {basic: {}}}]}}",
    ];

    /// A Pod whose name begins with its group (`1`, `2`), or says that it has none; `1x-` is of another replica.
    fn pod(name: &str) -> Pod {
        let named = match name.split_once('-').map(|(kind, _)| kind) {
            Some("1") => "workloadRef: {name: gang, podGroup: one}",
            Some("1x") => "workloadRef: {name: gang, podGroup: one, podGroupReplicaKey: x}",
            Some("2") => "workloadRef: {name: gang, podGroup: two}",
            Some("3") => "workloadRef: {name: gang, podGroup: three}",
            Some("basic") => "workloadRef: {name: basic, podGroup: one}",
            _ => "",
        };
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{containers: [{{name: c}}], {named}}}}}"
        ))
    }

    /// What is said to `1-a` or another first Pod: `known` are there, `assumed` have found a Node before it, `bound` have one.
    fn check(first: &str, workloads: &[&str], known: &[&str], assumed: &[&str], expect: &str) {
        check_with_bound(first, workloads, known, assumed, &[], expect);
    }

    fn check_with_bound(
        first: &str,
        workloads: &[&str],
        known: &[&str],
        assumed: &[&str],
        bound: &[&str],
        expect: &str,
    ) {
        let now = Timestamp::UNIX_EPOCH;
        let mut gangs = Gangs::default();
        for workload in workloads.iter().map(|text| parse::<Workload>(text)) {
            let key = format!("d/{}", workload.metadata.name.clone().unwrap());
            gangs.set_workload(&key, Some(Arc::new(workload)));
        }
        for name in known.iter().chain([&first]) {
            let pod = pod(name);
            if let Some(gang) = GangKey::of(&pod) {
                gangs.wants(&gang, name, &pod);
            }
        }
        for name in bound {
            gangs.has(&GangKey::of(&pod(name)).unwrap(), &pod(name));
        }
        for name in assumed.iter().chain([&first]) {
            let pod = pod(name);
            let Some(gang) = GangKey::of(&pod) else { break };
            if let Some(why) = refusal(&gang, &gangs) {
                assert_eq!((*name, why.as_str()), (first, expect));
                return;
            }
            gangs.assume(&gang, name, &pod);
        }
        let found = match permit(&pod(first), &mut gangs, now) {
            Ok(None) => "bound".to_owned(),
            Ok(Some(Permit::Go { with })) => format!("bound with {}", with.join(" ")),
            Ok(Some(Permit::Wait { until, count })) => {
                let others = gangs.unscheduled(&GangKey::of(&pod(first)).unwrap()).join(" ");
                format!("waits {count:?} {:#}, tries {others}", until.duration_since(now))
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect, "{first} {known:?} {assumed:?}");
    }

    /// Source: the cases of `TestGangSchedulingFlow`.
    #[test]
    fn a_gang_comes_together_or_waits() {
        let all = ["1-b", "1-c", "2-a", "1x-a"];
        check("none", &WORKLOADS, &[], &[], "bound");
        check("basic-a", &WORKLOADS, &[], &[], "bound");
        check("1-a", &[], &all, &[], "waiting for pods's workload \"gang\" to appear in scheduling queue");
        let few = "waiting for minCount pods from a gang to appear in scheduling queue";
        check("1-a", &WORKLOADS, &["1-b", "2-a", "1x-a"], &[], few);
        check("1-a", &WORKLOADS, &all, &["1-b"], "waits (2, 3) 5m, tries 1-c");
        check("1-a", &WORKLOADS, &all, &["1-b", "1-c"], "bound with 1-a 1-b 1-c");
    }

    #[test]
    fn what_is_bound_already_counts_and_more_than_enough_go_at_once() {
        let all = ["1-b", "1-c", "1-d"];
        check_with_bound("1-a", &WORKLOADS, &all, &[], &["1-b", "1-c"], "bound with 1-a");
        check_with_bound("1-a", &WORKLOADS, &all, &["1-c"], &["1-b"], "bound with 1-a 1-c");
        check_with_bound("1-a", &WORKLOADS, &all, &[], &["1-b"], "waits (2, 3) 5m, tries 1-c 1-d");
        check("1-a", &WORKLOADS, &all, &["1-b", "1-c", "1-d"], "bound with 1-a 1-b 1-c 1-d");
    }

    #[test]
    fn a_workload_without_the_group_helps_nobody() {
        let no_group = "pod group \"three\" doesn't exist for a workload \"gang\"";
        check("3-a", &WORKLOADS, &["3-b", "3-c"], &[], no_group);
        let elsewhere = WORKLOADS.map(|text| text.replace("namespace: d", "namespace: e"));
        let mut gangs = Gangs::default();
        gangs.set_workload("e/gang", Some(Arc::new(parse(&elsewhere[0]))));
        let gang = GangKey::of(&pod("1-a")).unwrap();
        assert!(refusal(&gang, &gangs).unwrap().starts_with("waiting for pods's workload"));
    }

    #[test]
    fn what_has_gone_since_a_node_was_found_is_an_error() {
        let mut gangs = Gangs::default();
        let said = |gangs: &mut Gangs, name: &str| {
            let error = permit(&pod(name), gangs, Timestamp::UNIX_EPOCH).unwrap_err();
            BindingError::from(error).to_string()
        };
        assert_eq!(
            said(&mut gangs, "1-a"),
            "running Permit plugin \"GangScheduling\": failed to get workload d/gang: \
             workload.scheduling.k8s.io \"gang\" not found"
        );
        gangs.set_workload("d/gang", Some(Arc::new(parse(WORKLOADS[0]))));
        assert_eq!(
            said(&mut gangs, "3-a"),
            "running Permit plugin \"GangScheduling\": pod group \"three\" doesn't exist for a workload \"gang\""
        );
    }

    #[test]
    fn a_count_that_no_server_lets_in_holds_nobody_back() {
        let mut gangs = Gangs::default();
        let odd = WORKLOADS[0].replace("minCount: 3", "minCount: -3");
        gangs.set_workload("d/gang", Some(Arc::new(parse(&odd))));
        assert_eq!(refusal(&GangKey::of(&pod("1-a")).unwrap(), &gangs), None);
    }
}
