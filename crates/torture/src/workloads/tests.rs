use serde_json::json;
use store::{Entry, Event};

use super::*;

fn check(name: &str, objects: &[(&str, Value)], expect: &[Rule]) {
    check_by(Taken::ByBound, name, objects, expect);
}

fn check_by(taken: Taken, name: &str, objects: &[(&str, Value)], expect: &[Rule]) {
    let mut judge = Judge::by(taken);
    for ((key, object), revision) in objects.iter().zip(1..) {
        let key = format!("/registry/{key}");
        let entry =
            Entry { key: key.clone(), value: object.to_string().into(), revision, create_revision: revision };
        let entry = (!object.is_null()).then_some(entry);
        judge.see(&Event { revision, key, entry, previous: None, cause: Default::default() });
    }
    let rules: Vec<Rule> = judge.breaches.iter().map(|breach| breach.rule).collect();
    assert_eq!(rules, expect, "{name}: {:?}", judge.breaches);
}

fn owned(kind: &str, uid: &str) -> Value {
    json!([{"kind": kind, "uid": uid, "controller": true}])
}

fn pod(uid: &str, phase: &str, more: Value) -> Value {
    let mut pod = json!({"metadata": {"name": uid, "uid": uid, "finalizers": [FINALIZER], "ownerReferences": owned("Job", "j")},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]}, "status": {"phase": phase}});
    for (pointer, value) in more.as_object().into_iter().flatten() {
        *pod.pointer_mut(pointer).unwrap() = value.clone();
    }
    pod
}

fn indexed(uid: &str, phase: &str, index: u32) -> Value {
    let mut pod = pod(uid, phase, json!({}));
    pod["metadata"]["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index.to_string()});
    pod
}

fn job(mode: &str, status: Value) -> Value {
    json!({"metadata": {"name": "j", "uid": "j"}, "spec": {"parallelism": 2, "completionMode": mode}, "status": status})
}

fn over(outcome: &str, succeeded: u32, failed: u32) -> Value {
    let condition = json!([{"type": outcome, "status": "True"}]);
    json!({"succeeded": succeeded, "failed": failed, "completedIndexes": "0", "conditions": condition})
}

#[test]
fn pods_of_a_node_fit_on_it() {
    let node = json!({"status": {"allocatable": {"cpu": "1"}}});
    let on = |uid: &str, phase: &str| {
        let mut pod = pod(uid, phase, json!({"/metadata/ownerReferences": []}));
        pod["spec"]["nodeName"] = json!("n");
        pod
    };
    let two = vec![("minions/n", node), ("pods/a/a", on("a", "Running")), ("pods/a/b", on("b", "Running"))];
    check("two are not too many", &two, &[]);
    let third = |last: Vec<(&'static str, Value)>| [two.clone(), last].concat();
    check("three are", &third(vec![("pods/a/c", on("c", ""))]), &[Rule::NodesAreNotOverfull]);
    check("one is over", &third(vec![("pods/a/a", on("a", "Failed")), ("pods/a/c", on("c", ""))]), &[]);
    check("one is gone", &third(vec![("pods/a/a", Value::Null), ("pods/a/c", on("c", ""))]), &[]);
    let by_admitted = |name: &str, phase: &str, expect: &[Rule]| {
        check_by(Taken::ByAdmitted, name, &third(vec![("pods/a/c", on("c", phase))]), expect);
    };
    by_admitted("one is not taken in", "Pending", &[]);
    by_admitted("one is refused", "Failed", &[]);
    by_admitted("all are taken in", "Running", &[Rule::NodesAreNotOverfull]);
}

#[test]
fn a_pod_keeps_its_node() {
    let on = |uid: &str, node: Value| {
        let mut pod = pod(uid, "", json!({"/metadata/ownerReferences": []}));
        pod["spec"]["nodeName"] = node;
        ("pods/a/a", pod)
    };
    let check_last = |name: &str, last: (&'static str, Value), expect: &[Rule]| {
        check(name, &[on("a", json!(null)), on("a", json!("n")), last], expect);
    };
    check_last("it stays", on("a", json!("n")), &[]);
    check_last("it moves", on("a", json!("m")), &[Rule::PodsStayOnTheirNodes]);
    check_last("it is taken away", on("a", json!(null)), &[Rule::PodsStayOnTheirNodes]);
    check_last("a namesake", on("b", json!("m")), &[]);
}

#[test]
fn who_does_not_lead_has_nothing_written() {
    let check = |holder: Option<&str>, process: &str, expect: &[Rule]| {
        let mut judge = Judge::default();
        let key = "/registry/leases/kube-system/scheduler".to_owned();
        let value = holder.map(|holder| json!({"spec": {"holderIdentity": holder}}).to_string().into());
        let entry = value.map(|value| Entry { key: key.clone(), value, revision: 1, create_revision: 1 });
        judge.see(&Event { revision: 1, key, entry, previous: None, cause: Default::default() });
        judge.written("kube-system/scheduler", process);
        let rules: Vec<Rule> = judge.breaches.iter().map(|breach| breach.rule).collect();
        assert_eq!(rules, expect, "{holder:?} {process}");
    };
    check(Some("a"), "a", &[]);
    check(Some("b"), "a", &[Rule::OnlyTheLeaderWrites]);
    check(Some(""), "a", &[Rule::OnlyTheLeaderWrites]);
    check(None, "a", &[Rule::OnlyTheLeaderWrites]);
}

#[test]
fn owners_have_no_more_pods_than_they_want() {
    let of = |uid: &str| pod(uid, "Running", json!({"/metadata/ownerReferences": owned("ReplicaSet", "r")}));
    let set = |replicas: u32| {
        ("replicasets/a/r", json!({"metadata": {"uid": "r"}, "spec": {"replicas": replicas}}))
    };
    check("as many", &[set(1), ("pods/a/a", of("a"))], &[]);
    check("one too many", &[set(1), ("pods/a/a", of("a")), ("pods/a/b", of("b"))], &[Rule::NoSurplus]);
    check("it wanted more", &[set(2), set(1), ("pods/a/a", of("a")), ("pods/a/b", of("b"))], &[]);
    let many: Vec<_> = [("pods/a/a", "a"), ("pods/a/b", "b"), ("pods/a/c", "c")]
        .map(|(key, uid)| (key, pod(uid, "Running", json!({}))))
        .to_vec();
    check("a Job", &[vec![("jobs/a/j", job("NonIndexed", json!({})))], many].concat(), &[Rule::NoSurplus]);
}

#[test]
fn an_index_has_one_pod_at_once() {
    let begin = vec![("jobs/a/j", job("Indexed", json!({}))), ("pods/a/a", indexed("a", "Running", 0))];
    let then = |last: Vec<(&'static str, Value)>| [begin.clone(), last].concat();
    check("another index", &then(vec![("pods/a/b", indexed("b", "", 1))]), &[]);
    check("the same", &then(vec![("pods/a/b", indexed("b", "", 0))]), &[Rule::OnePodPerIndex]);
    let after = vec![("pods/a/a", indexed("a", "Failed", 0)), ("pods/a/b", indexed("b", "", 0))];
    check("the next", &then(after), &[]);
}

#[test]
fn a_turn_has_one_job() {
    let of = |name: &str, due: &str, status: Value| {
        json!({"metadata": {"name": name, "uid": name, "ownerReferences": owned("CronJob", "c"),
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": due}}, "status": status})
    };
    let cron = ("cronjobs/a/c", json!({"metadata": {"uid": "c"}, "spec": {"concurrencyPolicy": "Forbid"}}));
    let first = ("jobs/a/x", of("x", "1", json!({})));
    let done = ("jobs/a/x", of("x", "1", over("Complete", 0, 0)));
    check(
        "the next turn",
        &[cron.clone(), first.clone(), done.clone(), ("jobs/a/y", of("y", "2", json!({})))],
        &[],
    );
    check("twice", &[first.clone(), done, ("jobs/a/y", of("y", "1", json!({})))], &[Rule::OneJobPerTurn]);
    check("beside", &[cron, first, ("jobs/a/y", of("y", "2", json!({})))], &[Rule::OneJobPerTurn]);
}

#[test]
fn counts_are_those_of_pods_that_ended() {
    let wrong = [Rule::PodsAreCountedOnce];
    let pods = |second: Value| vec![("pods/a/a", pod("a", "Succeeded", json!({}))), ("pods/a/b", second)];
    let failed = || pods(pod("b", "Failed", json!({})));
    let surplus = || pods(pod("b", "Failed", json!({"/metadata/finalizers": []})));
    let ignored = || {
        let mut ignored = pod("b", "Failed", json!({}));
        ignored["status"]["containerStatuses"] = json!([{"state": {"terminated": {"exitCode": 43}}}]);
        pods(ignored)
    };
    let deleted = || {
        let mut deleted = pod("b", "Running", json!({}));
        deleted["metadata"]["deletionTimestamp"] = json!("now");
        pods(deleted)
    };
    let check_end = |name, mut objects: Vec<(&'static str, Value)>, status: Value, expect: &[Rule]| {
        objects.push(("jobs/a/j", job("NonIndexed", status)));
        check(name, &objects, expect);
    };
    check_end("right", failed(), over("Complete", 1, 1), &[]);
    check_end("one not counted", failed(), over("Complete", 1, 0), &wrong);
    check_end("one counted twice", failed(), over("Complete", 2, 1), &[wrong[0]; 2]);
    check_end("what was let go", surplus(), over("Complete", 1, 0), &[]);
    check_end("what was let go counts", surplus(), over("Complete", 1, 1), &wrong);
    check_end("what nobody ignores", ignored(), over("Complete", 1, 0), &wrong);
    let mut policy = job("NonIndexed", over("Complete", 1, 0));
    policy["spec"]["podFailurePolicy"] = json!({});
    check("what is ignored", &[ignored(), vec![("jobs/a/j", policy)]].concat(), &[]);
    check_end("what was deleted", deleted(), over("Complete", 1, 1), &[]);
    check_end("what worked has failed", pods(pod("b", "Running", json!({}))), over("Failed", 1, 1), &[]);
    let mut waiting = over("Complete", 1, 0);
    waiting["uncountedTerminatedPods"] = json!({"failed": ["b"]});
    check_end("over too early", failed(), waiting, &[wrong[0]; 2]);
    let falls = |succeeded: u32| ("jobs/a/j", job("NonIndexed", json!({"succeeded": succeeded})));
    check("a count falls", &[failed(), vec![falls(1), falls(0)]].concat(), &wrong);
    let one = vec![("pods/a/a", indexed("a", "Succeeded", 0)), ("pods/a/b", indexed("b", "Succeeded", 0))];
    let end = |count| vec![("jobs/a/j", job("Indexed", over("Complete", count, 0)))];
    check("an index counts once", &[one.clone(), end(1)].concat(), &[]);
    check("an index counts twice", &[one, end(2)].concat(), &wrong);
}
