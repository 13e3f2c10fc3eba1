use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn parse(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

fn check(group: &str, plural: &str, object: &str, expect: &str) {
    assert_eq!(show(&usage(group, plural, &parse(object), now())), expect, "{object}");
}

#[test]
fn objects_cost_what_upstream_counts() {
    check("apps", "deployments", "{}", "count/deployments.apps=1");
    check("", "configmaps", "{}", "configmaps=1,count/configmaps=1");
    check(
        "",
        "pods",
        "{spec: {containers: [{resources: {requests: {cpu: 100m, example.com/gpu: 1}, limits: {memory: 1Gi}}}]}}",
        "count/pods=1,cpu=100m,limits.memory=1Gi,pods=1,requests.cpu=100m,requests.example.com/gpu=1",
    );
    check("", "pods", "{status: {phase: Succeeded}, spec: {containers: []}}", "count/pods=1");
    check(
        "",
        "pods",
        "{metadata: {deletionTimestamp: '2026-01-01T11:00:00Z', deletionGracePeriodSeconds: 30}, spec: {}}",
        "count/pods=1",
    );
    check(
        "",
        "services",
        "{spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}}",
        "count/services=1,services=1,services.nodeports=2",
    );
    check(
        "",
        "services",
        "{spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 1, nodePort: 30000}, {port: 2}]}}",
        "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1",
    );
    check(
        "",
        "persistentvolumeclaims",
        "{spec: {storageClassName: gold, resources: {requests: {storage: 1Gi}}}}",
        "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
    );
}

fn matches(quota: &str, pod: &str) -> bool {
    Quota::of(&parse(quota)).matches("", "pods", &parse(pod))
}

#[test]
fn scopes_choose_what_a_quota_counts() {
    let scoped = |scope: &str| format!("{{spec: {{hard: {{pods: 1}}, scopes: [{scope}]}}}}");
    let plain = "{spec: {containers: [{name: a}]}}";
    let busy = "{spec: {activeDeadlineSeconds: 5, containers: [{resources: {requests: {cpu: 1}}}]}}";
    for (scope, of_plain, of_busy) in [
        ("BestEffort", true, false),
        ("NotBestEffort", false, true),
        ("Terminating", false, true),
        ("NotTerminating", true, false),
        ("CrossNamespacePodAffinity", false, false),
    ] {
        assert_eq!(
            (matches(&scoped(scope), plain), matches(&scoped(scope), busy)),
            (of_plain, of_busy),
            "{scope}"
        );
    }
    let high = "{spec: {hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, \
                values: [high]}]}}}";
    assert!(matches(high, "{spec: {priorityClassName: high}}"));
    assert!(!matches(high, "{spec: {priorityClassName: low}}"));
    assert!(!matches("{spec: {hard: {services: 1}}}", plain), "it counts no pods");
    let quota = Quota::of(&parse(&scoped("BestEffort")));
    assert!(!quota.matches("", "services", &parse("{}")), "scopes are about pods");
}

#[test]
fn containers_must_name_what_is_counted() {
    let pod = parse("{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b}]}}");
    let required = BTreeSet::from(["cpu", "limits.memory", "pods"]);
    assert_eq!(
        unspecified(&pod, &required).as_deref(),
        Some("must specify cpu for: b; limits.memory for: a,b")
    );
    assert_eq!(unspecified(&pod, &BTreeSet::from(["pods"])), None);
}

#[test]
fn an_update_costs_what_it_adds() {
    let amounts = |text: &str| amounts(Some(&parse(text)));
    let more = increase(&amounts("{a: 2, b: 1}"), &amounts("{a: 1500m, b: 3}"));
    assert_eq!(show(&more), "a=500m");
}

#[test]
fn claims_cost_the_devices_that_they_can_be_given_at_most() {
    let claim = parse(
        "{spec: {devices: {requests: [\
         {exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}, \
         {exactly: {deviceClassName: nic, allocationMode: All}}, \
         {firstAvailable: [{deviceClassName: gpu, allocationMode: ExactCount, count: 4}, \
          {deviceClassName: gpu, allocationMode: ExactCount, count: 1}, \
          {deviceClassName: fpga, allocationMode: ExactCount, count: 1}]}]}}}",
    );
    let cost = usage("resource.k8s.io", "resourceclaims", &claim, Timestamp::UNIX_EPOCH);
    assert_eq!(
        show(&cost),
        "count/resourceclaims.resource.k8s.io=1,fpga.deviceclass.resource.k8s.io/devices=1,\
         gpu.deviceclass.resource.k8s.io/devices=6,nic.deviceclass.resource.k8s.io/devices=32"
    );
    let quota = Quota::of(&parse("{spec: {hard: {gpu.deviceclass.resource.k8s.io/devices: 1}}}"));
    assert!(quota.counts("resource.k8s.io", "resourceclaims"));
    assert!(!quota.counts("resource.k8s.io", "resourceclaimtemplates"));
}
