//! Source of the cases: the tests of `pkg/controller/podautoscaler`.

use controller::discovery::Served;
use expect_test::{Expect, expect};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::metrics::Reading;
use super::*;
use crate::fixture::{noon, parse, render, unanswered};

const TOLERANCE: f64 = 0.1;
const PERIOD: GoDuration = GoDuration(Duration::from_secs(15));
const CPU: &str =
    "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: TARGET}}}";

fn autoscaler(spec: &str, metrics: &str) -> Arc<HorizontalPodAutoscaler> {
    Arc::new(parse(&format!(
        "{{metadata: {{name: web, namespace: team, uid: h1}}, spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: \
         Deployment, name: web}}, maxReplicas: 10, {spec} metrics: [{metrics}]}}}}"
    )))
}

/// A Pod that has long been ready, or never, and asks for one CPU.
fn pod(name: &str, is_ready: bool) -> Arc<Pod> {
    let ready = if is_ready { "True" } else { "False" };
    Arc::new(parse(&format!(
        "{{metadata: {{name: {name}, namespace: team, labels: {{app: web}}}}, spec: {{containers: [{{name: main, \
         resources: {{requests: {{cpu: '1', memory: 1Gi}}}}}}]}}, status: {{phase: Running, startTime: \
         '2026-01-01T10:00:00Z', conditions: [{{type: Ready, status: '{ready}', lastTransitionTime: \
         '2026-01-01T10:00:05Z'}}]}}}}"
    )))
}

fn readings(milli: &[i64]) -> Measured {
    let reading = |value| Reading { value, at: noon(), window: SignedDuration::from_secs(60) };
    Measured::Pods(
        milli.iter().enumerate().map(|(index, value)| (format!("p{index}"), reading(*value))).collect(),
    )
}

fn deployment() -> ResourceRef {
    ResourceRef::of::<k8s_openapi::api::apps::v1::Deployment>()
}

fn snapshot(
    autoscaler: &Arc<HorizontalPodAutoscaler>,
    replicas: i32,
    ready: &[bool],
    measured: Vec<Result<Measured, MetricError>>,
) -> Snapshot {
    let scale = Scale {
        uid: "d1".into(),
        resource_version: "7".into(),
        replicas,
        status_replicas: replicas,
        selector: "app=web".into(),
    };
    let pods = ready.iter().enumerate().map(|(index, ready)| pod(&format!("p{index}"), *ready)).collect();
    let target = Ok((deployment(), scale));
    let options = Arc::default();
    Snapshot { autoscaler: autoscaler.clone(), target, pods, rivals: Vec::new(), measured, options }
}

/// What a share of the CPU asks for: replicas and what is told of the use.
fn by_cpu(target: i32, replicas: i32, ready: &[bool], milli: &[i64]) -> String {
    let metric: MetricSpec = parse(&CPU.replace("TARGET", &target.to_string()));
    let autoscaler = autoscaler("", "");
    let seen = snapshot(&autoscaler, replicas, ready, Vec::new());
    let tolerances = Tolerances { down: TOLERANCE, up: TOLERANCE };
    let scope = Scope {
        pods: &seen.pods,
        wanted: replicas,
        existing: replicas,
        tolerances,
        options: &seen.options,
        now: noon(),
    };
    match status::propose(&metric, Ok(readings(milli)), &scope) {
        Ok(told) => {
            let current = told.status.resource.unwrap().current;
            format!("{} at {}%", told.replicas, current.average_utilization.unwrap())
        }
        Err(failure) => failure.message,
    }
}

#[test]
fn pods_follow_their_use_of_cpu() {
    const READY: [bool; 5] = [true; 5];
    for (target, replicas, ready, milli, expect) in [
        (30, 3, &READY[..3], &[300, 500, 700][..], "5 at 50%"),
        (50, 5, &READY[..], &[100, 300, 500, 250, 250], "3 at 28%"),
        // Near enough.
        (100, 3, &READY[..3], &[1010, 1030, 1020], "3 at 102%"),
        (91, 3, &READY[..3], &[1000, 1000, 1000], "3 at 100%"),
        // Those that are not ready use nothing when there are to be more, and count not at all when there are to be fewer.
        (30, 3, &[false, true, true], &[300, 500, 700], "4 at 60%"),
        (30, 3, &[true, false, false], &[400, 500, 700], "3 at 40%"),
        (50, 5, &[true, true, true, false, false], &[100, 300, 500, 250, 250], "2 at 30%"),
        // Those of which nothing is known use all that they asked for, or nothing: what changes least.
        (100, 2, &READY[..2], &[1000], "2 at 100%"),
        (100, 2, &READY[..2], &[1900], "2 at 190%"),
        (100, 2, &READY[..2], &[600], "2 at 60%"),
        (50, 5, &READY[..5], &[100, 100, 100, 100], "3 at 10%"),
        (
            30,
            2,
            &READY[..0],
            &[],
            "failed to get cpu utilization: no pods returned by selector while calculating replica count",
        ),
        (
            30,
            2,
            &[false, false],
            &[100, 100],
            "failed to get cpu utilization: did not receive metrics for targeted pods (pods might be unready)",
        ),
    ] {
        assert_eq!(by_cpu(target, replicas, ready, milli), expect, "{target}% of {milli:?} with {ready:?}");
    }
}

#[test]
fn a_pod_that_asks_for_nothing_has_no_share() {
    let mut seen = snapshot(&autoscaler("", ""), 1, &[true], Vec::new());
    seen.pods = vec![Arc::new(parse(
        "{metadata: {name: p0}, spec: {containers: [{name: main}]}, status: {phase: Running, startTime: \
         '2026-01-01T10:00:00Z', conditions: [{type: Ready, status: 'True'}]}}",
    ))];
    let tolerances = Tolerances { down: TOLERANCE, up: TOLERANCE };
    let scope =
        Scope { pods: &seen.pods, wanted: 1, existing: 1, tolerances, options: &seen.options, now: noon() };
    let failure = |metric: &str| {
        let metric: MetricSpec = parse(metric);
        status::propose(&metric, Ok(readings(&[10])), &scope).err().map(|failure| failure.told).unwrap()
    };
    assert_eq!(
        failure(&CPU.replace("TARGET", "50")),
        "failed to get cpu resource metric value: failed to get cpu utilization: missing request for cpu in container \
         main of Pod p0"
    );
    let container = "{type: ContainerResource, containerResource: {name: cpu, container: other, target: {type: \
                     Utilization, averageUtilization: 50}}}";
    assert_eq!(
        failure(container),
        "failed to get other container metric value: failed to get cpu utilization: container other not found in Pod p0"
    );
}

fn told(milli: &[i64]) -> Vec<Result<Measured, MetricError>> {
    vec![Ok(readings(milli))]
}

fn check(seen: &Snapshot, expect: &Expect) {
    expect.assert_eq(&render(&plan(seen, &mut Memory::default(), noon())));
}

#[test]
fn the_target_is_scaled_and_the_status_says_why() {
    let cpu = CPU.replace("TARGET", "30");
    let web = autoscaler("", &cpu);
    check(
        &snapshot(&web, 3, &[true; 3], told(&[300, 500, 700])),
        &expect![[r#"
        step
          update deployments/scale web {"replicas":5}
        step
          Normal SuccessfulRescale: New size: 5; reason: cpu resource utilization (percentage of request) above target
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to update the target scale to 5","reason":"SucceededRescale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)","reason":"ValidMetricFound","status":"True","type":"ScalingActive"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the desired count is within the acceptable range","reason":"DesiredWithinRange","status":"False","type":"ScalingLimited"}],"currentMetrics":[{"resource":{"current":{"averageUtilization":50,"averageValue":"500m"},"name":"cpu"},"type":"Resource"}],"currentReplicas":3,"desiredReplicas":5,"lastScaleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &snapshot(&web, 3, &[true; 3], told(&[300, 310, 290])),
        &expect![[r#"
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"recommended size matches current size","reason":"ReadyForNewScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)","reason":"ValidMetricFound","status":"True","type":"ScalingActive"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the desired count is within the acceptable range","reason":"DesiredWithinRange","status":"False","type":"ScalingLimited"}],"currentMetrics":[{"resource":{"current":{"averageUtilization":30,"averageValue":"300m"},"name":"cpu"},"type":"Resource"}],"currentReplicas":3,"desiredReplicas":3}
    "#]],
    );
    check(
        &snapshot(&web, 0, &[], Vec::new()),
        &expect![[r#"
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to get the target's current scale","reason":"SucceededGetScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"scaling is disabled since the replica count of the target is zero","reason":"ScalingDisabled","status":"False","type":"ScalingActive"}],"currentReplicas":0,"desiredReplicas":0}
    "#]],
    );
    check(
        &snapshot(&web, 12, &[true; 3], Vec::new()),
        &expect![[r#"
        step
          update deployments/scale web {"replicas":10}
        step
          Normal SuccessfulRescale: New size: 10; reason: Current number of replicas above Spec.MaxReplicas
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to update the target scale to 10","reason":"SucceededRescale","status":"True","type":"AbleToScale"}],"currentReplicas":12,"desiredReplicas":10,"lastScaleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &snapshot(&autoscaler("minReplicas: 2,", &cpu), 1, &[true], Vec::new()),
        &expect![[r#"
        step
          update deployments/scale web {"replicas":2}
        step
          Normal SuccessfulRescale: New size: 2; reason: Current number of replicas below Spec.MinReplicas
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to update the target scale to 2","reason":"SucceededRescale","status":"True","type":"AbleToScale"}],"currentReplicas":1,"desiredReplicas":2,"lastScaleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
}

#[test]
fn what_is_not_known_changes_nothing() {
    let cpu = CPU.replace("TARGET", "30");
    let web = autoscaler("", &cpu);
    let mut lost = snapshot(&web, 3, &[true; 3], Vec::new());
    lost.target = Err(ScaleError::NotFound { resource: "deployments.apps".into(), name: "web".into() });
    check(
        &lost,
        &expect![[r#"
        step
          Warning FailedGetScale: deployments.apps "web" not found
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found","reason":"FailedGetScale","status":"False","type":"AbleToScale"}],"desiredReplicas":0}
    "#]],
    );
    let away =
        || vec![Err(MetricError::Unanswered("resource", unanswered("the server is currently unable")))];
    check(
        &snapshot(&web, 3, &[true; 3], away()),
        &expect![[r#"
        step
          Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable
          Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to get the target's current scale","reason":"SucceededGetScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable","reason":"FailedGetResourceMetric","status":"False","type":"ScalingActive"}],"currentMetrics":[{"type":""}],"currentReplicas":3,"desiredReplicas":0}
    "#]],
    );
}

#[test]
fn whose_pods_are_unclear_is_left_alone() {
    let web = autoscaler("", &CPU.replace("TARGET", "30"));
    let mut blind = snapshot(&web, 3, &[true; 3], told(&[300, 500, 700]));
    blind.target.as_mut().unwrap().1.selector.clear();
    check(
        &blind,
        &expect![[r#"
        step
          Warning SelectorRequired: selector is required
          Warning FailedComputeMetricsReplicas: selector is required
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to get the target's current scale","reason":"SucceededGetScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA target's scale is missing a selector","reason":"InvalidSelector","status":"False","type":"ScalingActive"}],"currentReplicas":3,"desiredReplicas":0}
    "#]],
    );
    let mut shared = snapshot(&web, 3, &[true; 3], told(&[300, 500, 700]));
    shared.rivals.push("team/api".into());
    check(
        &shared,
        &expect![[r#"
        step
          Warning AmbiguousSelector: pods by selector app=web are controlled by multiple HPAs: [{api team} {web team}]
          Warning FailedComputeMetricsReplicas: pods by selector app=web are controlled by multiple HPAs: [{api team} {web team}]
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to get the target's current scale","reason":"SucceededGetScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"pods by selector app=web are controlled by multiple HPAs: [{api team} {web team}]","reason":"AmbiguousSelector","status":"False","type":"ScalingActive"}],"currentReplicas":3,"desiredReplicas":0}
    "#]],
    );
}

#[test]
fn one_metric_is_enough_for_more_pods_and_not_for_fewer() {
    let cpu = CPU.replace("TARGET", "30");
    let away =
        || vec![Err(MetricError::Unanswered("resource", unanswered("the server is currently unable")))];
    let both = autoscaler("", &format!("{cpu}, {}", CPU.replace("TARGET", "90")));
    let measured = |milli: &[i64]| vec![away().remove(0), Ok(readings(milli))];
    check(
        &snapshot(&both, 3, &[true; 3], measured(&[1300, 1500, 1700])),
        &expect![[r#"
        step
          Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable
        step
          update deployments/scale web {"replicas":5}
        step
          Normal SuccessfulRescale: New size: 5; reason: cpu resource utilization (percentage of request) above target
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to update the target scale to 5","reason":"SucceededRescale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)","reason":"ValidMetricFound","status":"True","type":"ScalingActive"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the desired count is within the acceptable range","reason":"DesiredWithinRange","status":"False","type":"ScalingLimited"}],"currentMetrics":[{"type":""},{"resource":{"current":{"averageUtilization":150,"averageValue":"1500m"},"name":"cpu"},"type":"Resource"}],"currentReplicas":3,"desiredReplicas":5,"lastScaleTime":"2026-01-01T12:00:00Z"}
    "#]],
    );
    check(
        &snapshot(&both, 3, &[true; 3], measured(&[300, 100, 100])),
        &expect![[r#"
        step
          Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable
          Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable
        step
          update horizontalpodautoscalers/status web {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA controller was able to get the target's current scale","reason":"SucceededGetScale","status":"True","type":"AbleToScale"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server is currently unable","reason":"FailedGetResourceMetric","status":"False","type":"ScalingActive"}],"currentMetrics":[{"type":""},{"resource":{"current":{"averageUtilization":16,"averageValue":"166m"},"name":"cpu"},"type":"Resource"}],"currentReplicas":3,"desiredReplicas":0}
    "#]],
    );
}

#[test]
fn other_metrics_scale_by_their_numbers() {
    let object = |target: &str| {
        format!(
            "{{type: Object, object: {{describedObject: {{apiVersion: networking.k8s.io/v1, kind: Ingress, name: main}}, \
             metric: {{name: hits}}, target: {{{target}}}}}}}"
        )
    };
    let pods =
        "{type: Pods, pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: '20'}}}";
    let external = "{type: External, external: {metric: {name: jobs, selector: {matchLabels: {q: a}}}, \
                    target: {type: AverageValue, averageValue: 3}}}";
    for (metric, measured, expect) in [
        (object("type: Value, value: 10"), Measured::Total(20_000), "6 for Ingress metric hits, now 20"),
        (
            object("type: AverageValue, averageValue: 5"),
            Measured::Total(20_000),
            "4 for external metric hits(nil), now 6667m",
        ),
        (pods.to_owned(), readings(&[40_000, 60_000, 80_000]), "9 for pods metric queue, now 60"),
        (
            external.to_owned(),
            Measured::Total(12_000),
            "4 for external metric jobs(&LabelSelector{MatchLabels:map[string]string{q: a,},\
             MatchExpressions:[]LabelSelectorRequirement{},}), now 4",
        ),
        (external.to_owned(), Measured::Total(i64::MAX), "2147483647 for external metric"),
    ] {
        let metric: MetricSpec = parse(&metric);
        let seen = snapshot(&autoscaler("", ""), 3, &[true; 3], Vec::new());
        let tolerances = Tolerances { down: TOLERANCE, up: TOLERANCE };
        let scope = Scope {
            pods: &seen.pods,
            wanted: 3,
            existing: 3,
            tolerances,
            options: &seen.options,
            now: noon(),
        };
        let told = status::propose(&metric, Ok(measured), &scope).ok().unwrap();
        let status = json!(told.status);
        let kind =
            ["object", "pods", "external"].into_iter().find(|kind| status.get(kind).is_some()).unwrap();
        let current = &status[kind]["current"];
        let now =
            current.get("value").or_else(|| current.get("averageValue")).and_then(Value::as_str).unwrap();
        let text = format!("{} for {}, now {now}", told.replicas, told.name);
        assert!(text.starts_with(expect), "{text}\n{expect}");
    }
}

#[test]
fn a_target_without_pods_is_woken_by_what_is_outside_of_it_if_it_may_sleep() {
    let external =
        "{type: External, external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: 3}}}";
    let replicas = |spec: &str, current: i32, total: i64| {
        let seen = snapshot(&autoscaler(spec, external), current, &[], vec![Ok(Measured::Total(total))]);
        let told = render(&plan(&seen, &mut Memory::default(), noon()));
        told.lines().find(|line| line.contains("update deployments/scale")).map(|line| line.trim().to_owned())
    };
    let scaled = |count: i32| Some(format!("update deployments/scale web {{\"replicas\":{count}}}"));
    assert_eq!(replicas("minReplicas: 0,", 0, 12_000), scaled(4));
    assert_eq!(replicas("minReplicas: 0,", 0, 0), None);
    assert_eq!(replicas("minReplicas: 1,", 0, 12_000), None);
    assert_eq!(replicas("minReplicas: 0,", 1, 12_000), scaled(4));
}

#[test]
fn metrics_are_asked_for_where_upstream_asks() {
    let ask = |metric: &str| {
        let metric: MetricSpec = parse(metric);
        match metrics::question(&metric, "team", "app=web,tier in (a,b)", &Served::default()) {
            Ok(Question::Document(path)) => path,
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    };
    let selector = "app%3Dweb%2Ctier%20in%20%28a%2Cb%29";
    assert_eq!(
        ask(&CPU.replace("TARGET", "5")),
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/team/pods?labelSelector={selector}")
    );
    assert_eq!(
        ask(
            "{type: Pods, pods: {metric: {name: a/b, selector: {matchLabels: {x: z}}}, target: {type: AverageValue}}}"
        ),
        format!(
            "/apis/custom.metrics.k8s.io/v1beta1/namespaces/team/pods/*/a%2Fb?labelSelector={selector}\
             &metricLabelSelector=x%3Dz"
        )
    );
    assert_eq!(
        ask(
            "{type: Object, object: {describedObject: {apiVersion: v1, kind: Namespace, name: other}, metric: {name: hits}, \
             target: {type: Value}}}"
        ),
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/team/metrics/hits"
    );
    assert_eq!(
        ask(
            "{type: Object, object: {describedObject: {apiVersion: a/v1, kind: Thing, name: x}, metric: {name: hits}, target: \
             {type: Value}}}"
        ),
        "no matches for kind \"Thing\" in version \"a/v1\""
    );
    assert_eq!(
        ask(
            "{type: External, external: {metric: {name: jobs, selector: {matchExpressions: [{key: q, operator: In, \
             values: [a, b]}]}}, target: {type: Value}}}"
        ),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/jobs?labelSelector=q%20in%20%28a%2Cb%29"
    );
}

/// Whoever serves metrics may send anything.
#[test]
fn answers_are_read_and_never_trusted() {
    let cpu: MetricSpec = parse(&CPU.replace("TARGET", "5"));
    let read = |answer: Value| match metrics::read(&cpu, &answer) {
        Ok(Measured::Pods(readings)) => {
            readings.into_iter().map(|(name, one)| format!("{name}={} ", one.value)).collect::<String>()
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    };
    let item = |name: &str, containers: Value| json!({"metadata": {"name": name}, "timestamp": "2026-01-01T12:00:00Z", "window": "15s", "containers": containers});
    let good =
        item("a", json!([{"name": "x", "usage": {"cpu": "10m"}}, {"name": "y", "usage": {"cpu": "1"}}]));
    assert_eq!(read(json!({"items": [good]})), "a=1010 ");
    let none = "no metrics returned from resource metrics API";
    for nothing in [json!({}), json!(null), json!({"items": {}}), json!({"items": []}), json!("x")] {
        assert_eq!(read(nothing), none);
    }
    let hostile = json!([
        item("half", json!([{"usage": {"cpu": "1"}}, {"usage": {}}])),
        item("empty", json!([])),
        item("text", json!([{"usage": {"cpu": "much"}}])),
        item("large", json!([{"usage": {"cpu": "8E"}}, {"usage": {"cpu": "8E"}}])),
        json!({"containers": [{"usage": {"cpu": "1"}}]}),
        json!(7),
    ]);
    assert_eq!(read(json!({"items": hostile})), format!("large={} ", i64::MAX));
}

fn rules(up: &str, down: &str) -> String {
    let default = "selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]";
    let or = |text: &str| match text {
        "" => default.to_owned(),
        text if text.contains("policies") => text.to_owned(),
        text => format!("{text}, {default}"),
    };
    format!("behavior: {{scaleUp: {{{}}}, scaleDown: {{{}}}}},", or(up), or(down))
}

fn granted(spec: &str, history: &[(i64, i32)], changes: &[(i64, i32)], current: i32, wanted: i32) -> String {
    let autoscaler = autoscaler(spec, "");
    let spec = autoscaler.spec.as_ref().unwrap();
    let (mut past, now) = (History::default(), noon());
    history
        .iter()
        .for_each(|(ago, replicas)| past.recommended(now - SignedDuration::from_secs(*ago), *replicas));
    changes.iter().for_each(|(ago, by)| past.changed(now - SignedDuration::from_secs(*ago), *by));
    let wish = Wish {
        current,
        wanted,
        min: 1,
        max: 20,
        behavior: spec.behavior.as_ref(),
        stabilization: SignedDuration::from_mins(5),
    };
    let Grant { replicas, able, limited } = grant(&wish, &mut past, now);
    format!("{replicas} {} {}", able.0, limited.1)
}

#[test]
fn bounds_and_history_hold_changes_back() {
    for (spec, history, changes, current, wanted, expect) in [
        ("", &[][..], &[][..], 3, 6, "6 ReadyForNewScale DesiredWithinRange"),
        ("", &[], &[], 3, 9, "6 ReadyForNewScale ScaleUpLimit"),
        ("", &[], &[], 1, 9, "4 ReadyForNewScale ScaleUpLimit"),
        ("", &[], &[], 15, 25, "20 ReadyForNewScale TooManyReplicas"),
        ("", &[], &[], 3, 0, "1 ReadyForNewScale TooFewReplicas"),
        // The highest of the last five minutes.
        ("", &[(299, 8), (10, 4)], &[], 9, 2, "8 ScaleDownStabilized DesiredWithinRange"),
        ("", &[(301, 8), (10, 4)], &[], 9, 2, "4 ScaleDownStabilized DesiredWithinRange"),
    ] {
        assert_eq!(
            granted(spec, history, changes, current, wanted),
            expect,
            "{current} to {wanted}, {history:?}"
        );
    }
}

#[test]
fn behaviours_hold_changes_back() {
    let pods = |value: i32| {
        format!("selectPolicy: Max, policies: [{{type: Pods, value: {value}, periodSeconds: 60}}]")
    };
    let both = |select: &str| {
        format!(
            "stabilizationWindowSeconds: 0, selectPolicy: {select}, policies: [{{type: Pods, value: 4, periodSeconds: 60}}, \
             {{type: Percent, value: 10, periodSeconds: 60}}]"
        )
    };
    for (up, down, history, changes, current, wanted, expect) in [
        (pods(2), String::new(), &[][..], &[][..], 5, 9, "7 ReadyForNewScale ScaleUpLimit"),
        // One of the two has been made within the minute, and one before it.
        (pods(2), String::new(), &[], &[(30, 1), (70, 1)], 5, 9, "6 ReadyForNewScale ScaleUpLimit"),
        (pods(2), String::new(), &[], &[(30, 2)], 5, 9, "5 ReadyForNewScale ScaleUpLimit"),
        (both("Max"), String::new(), &[], &[], 10, 19, "14 ReadyForNewScale ScaleUpLimit"),
        (both("Min"), String::new(), &[], &[], 10, 19, "11 ReadyForNewScale ScaleUpLimit"),
        (both("Disabled"), String::new(), &[], &[], 10, 19, "10 ReadyForNewScale ScaleUpLimit"),
        (String::new(), both("Max"), &[], &[], 10, 2, "6 ReadyForNewScale ScaleDownLimit"),
        (String::new(), both("Min"), &[], &[], 10, 2, "9 ReadyForNewScale ScaleDownLimit"),
        (String::new(), both("Disabled"), &[], &[], 10, 2, "10 ReadyForNewScale ScaleDownLimit"),
        (String::new(), both("Max"), &[], &[(10, -3)], 10, 2, "9 ReadyForNewScale ScaleDownLimit"),
        (
            "stabilizationWindowSeconds: 60".into(),
            String::new(),
            &[(30, 6)],
            &[],
            5,
            9,
            "6 ScaleUpStabilized DesiredWithinRange",
        ),
        (
            String::new(),
            "stabilizationWindowSeconds: 60".into(),
            &[(30, 6), (90, 9)],
            &[],
            8,
            2,
            "6 ScaleDownStabilized DesiredWithinRange",
        ),
    ] {
        let spec = rules(&up, &down);
        assert_eq!(
            granted(&spec, history, changes, current, wanted),
            expect,
            "{spec}: {current} to {wanted}"
        );
    }
}

#[test]
fn a_turn_is_taken_every_15_seconds_or_when_something_else_is_asked() {
    let web = autoscaler("", &CPU.replace("TARGET", "30"));
    let after = |seconds| noon() + SignedDuration::from_secs(seconds);
    let mut memory = Memory::default();
    assert_eq!(memory.turn(&web, PERIOD, noon()), None);
    // Answers come, and it is still the same turn.
    assert_eq!((memory.turn(&web, PERIOD, after(2)), memory.since), (None, noon()));
    memory.is_decided = true;
    assert_eq!(memory.turn(&web, PERIOD, after(5)), Some(Duration::from_secs(10)));
    assert_eq!(memory.turn(&autoscaler("minReplicas: 2,", ""), PERIOD, after(6)), None, "it was changed");
    memory.is_decided = true;
    assert_eq!(
        (memory.turn(&autoscaler("minReplicas: 2,", ""), PERIOD, after(21)), memory.since),
        (None, after(21))
    );
    // The scale could not be changed: nothing is counted, and another turn begins.
    memory.is_decided = true;
    memory.pending = Some((after(21), 3));
    assert_eq!(memory.turn(&autoscaler("minReplicas: 2,", ""), PERIOD, after(22)), None);
    assert_eq!(memory.history, History::default());
    memory.is_decided = true;
    memory.pending = Some((after(22), 3));
    let mut scaled = (*autoscaler("minReplicas: 2,", "")).clone();
    scaled.status = Some(parse("{lastScaleTime: '2026-01-01T12:00:22Z', desiredReplicas: 5}"));
    assert_eq!(memory.turn(&scaled, PERIOD, after(23)), Some(Duration::from_secs(14)));
    assert_ne!(memory.history, History::default());
}

#[test]
fn what_was_asked_for_and_what_was_wrong_is_counted() {
    let labels = |labels: &controller::counter::Labels| {
        labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
    };
    let counted = |seen: &Snapshot| {
        let plan = plan(seen, &mut Memory::default(), noon());
        let metrics = plan.actions().filter_map(|action| match action {
            Action::Count(increment) => Some(labels(&increment.labels)),
            _ => None,
        });
        let metrics: Vec<_> = metrics.collect();
        let measured = plan.measured.clone().unwrap();
        format!("{}; failed: {}; {}", labels(&measured.done), labels(&measured.failed), metrics.join(", "))
    };
    let cpu = CPU.replace("TARGET", "30");
    let web = autoscaler("", &cpu);
    let of_web = |milli: &[i64]| counted(&snapshot(&web, 3, &[true; 3], told(milli)));
    assert_eq!(of_web(&[300, 500, 700]), "scale_up none; failed: none internal; scale_up none Resource");
    // What was just recommended holds fewer back.
    assert_eq!(of_web(&[100, 100, 100]), "none none; failed: none internal; scale_down none Resource");
    assert_eq!(of_web(&[300, 300, 300]), "none none; failed: none internal; none none Resource");
    let none = snapshot(&web, 3, &[true; 3], vec![Err(MetricError::NoDocument)]);
    assert_eq!(counted(&none), "none internal; failed: none internal; none internal Resource");
    // One metric is enough to grow by; that the other is away is told all the same.
    let two = autoscaler("", &format!("{cpu}, {}", cpu.replace("name: cpu", "name: memory")));
    let half = vec![Ok(readings(&[300, 500, 700])), Err(MetricError::NoDocument)];
    assert_eq!(
        counted(&snapshot(&two, 3, &[true; 3], half)),
        "scale_up internal; failed: none internal; scale_up none Resource, none internal Resource"
    );
    assert_eq!(
        counted(&snapshot(&web, 12, &[true; 3], Vec::new())),
        "scale_down none; failed: none internal; "
    );
    let unknown = autoscaler("", "{type: Weather}");
    assert_eq!(
        counted(&snapshot(&unknown, 3, &[true; 3], told(&[1]))),
        "none spec; failed: none spec; none spec Weather"
    );
    let lost = Snapshot { target: Err(unanswered("not found").into()), ..snapshot(&web, 3, &[], Vec::new()) };
    assert_eq!(counted(&lost), "none internal; failed: none internal; ");
    let mut odd = (*web).clone();
    odd.spec.as_mut().unwrap().scale_target_ref.api_version = Some("a/b/c".to_owned());
    let lost = Snapshot { autoscaler: Arc::new(odd), ..lost };
    assert_eq!(counted(&lost), "none spec; failed: none spec; ");
}
