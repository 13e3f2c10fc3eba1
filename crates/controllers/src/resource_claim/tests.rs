//! What Pods and claims lack or have too much, as tables.

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, parse, render};

const TEMPLATE: &str = "[{metadata: {name: t, namespace: d}, spec: {metadata: {labels: {a: b}}, \
    spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}}]";

/// A Pod `p` with a claim from the template; `more` joins spec and status.
fn pod(spec: &str, status: &str) -> String {
    format!(
        "{{metadata: {{name: p, namespace: d, uid: u}}, spec: {{containers: [], \
         resourceClaims: [{{name: gpu, resourceClaimTemplateName: t}}], {spec}}}, status: {{{status}}}}}"
    )
}

fn claim(meta: &str, status: &str) -> String {
    format!("{{metadata: {{name: p-gpu-x, namespace: d, uid: c, {meta}}}, spec: {{}}, status: {{{status}}}}}")
}

const OWNED: &str = "annotations: {resource.kubernetes.io/pod-claim-name: gpu}, \
    ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u, controller: true}]";
const NAMED: &str = "resourceClaimStatuses: [{name: gpu, resourceClaimName: p-gpu-x}]";
const USED: &str = "allocation: {devices: {}}, reservedFor: [{resource: pods, name: p, uid: u}]";
const HELD: &str = "finalizers: [resource.kubernetes.io/delete-protection]";

fn check_pod(pod: &str, claims: &[&str], templates: &str, expect: Expect) {
    let claims = list(&format!("[{}]", claims.join(",")));
    expect.assert_eq(&render(&plan_pod(&parse(pod), &claims, &list(templates))));
}

#[test]
fn a_claim_is_made_from_its_template_and_named_in_the_status() {
    check_pod(
        &pod("", ""),
        &[],
        TEMPLATE,
        expect![[r#"
        step
          create resourceclaims (generated)
    "#]],
    );
    check_pod(
        &pod("", ""),
        &[&claim(OWNED, "")],
        TEMPLATE,
        expect![[r#"
        step
          patch pods/status p {"metadata":{"uid":"u"},"status":{"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"p-gpu-x"}]}}
    "#]],
    );
    check_pod(&pod("", NAMED), &[&claim(OWNED, "")], TEMPLATE, expect![""]);
    check_pod(
        &pod("", NAMED),
        &[],
        TEMPLATE,
        expect![[r#"
        step
          create resourceclaims (generated)
    "#]],
    );
    check_pod(
        &pod("", ""),
        &[],
        "[]",
        expect![[r#"
        step
          Warning FailedResourceClaimCreation: PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found
    "#]],
    );
    check_pod(&pod("", "phase: Succeeded"), &[], TEMPLATE, expect![""]);
}

#[test]
fn what_is_made_says_whose_it_is() {
    let template: Vec<Arc<ResourceClaimTemplate>> = list(TEMPLATE);
    let pod: Pod = parse(&pod("", ""));
    let made = made_from(&pod, &of_pod(&pod)[0], &template[0]);
    assert_eq!(made.metadata.generate_name.as_deref(), Some("p-gpu-"));
    assert_eq!(annotation(&made.metadata, POD_CLAIM_NAME), Some("gpu"));
    assert_eq!(made.metadata.labels.as_ref().and_then(|labels| labels.get("a")), Some(&"b".to_owned()));
    assert_eq!(owner(&made).map(|owner| owner.uid.as_str()), Some("u"));
    let long = base_name(&"p".repeat(100), &"c".repeat(50));
    assert_eq!((long.len(), long.starts_with("ppp"), long.ends_with("ccc")), (37 + 1 + 18, true, true));
}

#[test]
fn a_pod_that_was_given_a_node_by_others_reserves_its_claims() {
    let bound = pod("nodeName: one", NAMED);
    check_pod(
        &bound,
        &[&claim(OWNED, "allocation: {devices: {}}")],
        TEMPLATE,
        expect![[r#"
            step
              update resourceclaims/status p-gpu-x annotations {"resource.kubernetes.io/pod-claim-name":"gpu"} {"allocation":{"devices":{}},"reservedFor":[{"name":"p","resource":"pods","uid":"u"}]}
        "#]],
    );
    check_pod(&bound, &[&claim(OWNED, USED)], TEMPLATE, expect![""]);
    check_pod(&bound, &[&claim(OWNED, "")], TEMPLATE, expect![""]);
}

/// The verbs of the plan for a claim.
fn check_claim(claim: &str, pods: &[&str], expect: Expect) {
    let plan = plan_claim(&parse(claim), &list(&format!("[{}]", pods.join(","))));
    expect.assert_eq(&render(&plan));
}

#[test]
fn devices_go_back_with_the_last_user() {
    let shared = claim(HELD, USED);
    check_claim(&shared, &[&pod("", "phase: Running")], expect![""]);
    check_claim(
        &shared,
        &[&pod("nodeName: one", "phase: Failed")],
        expect![[r#"
            step
              update resourceclaims/status p-gpu-x {}
        "#]],
    );
    check_claim(
        &shared,
        &[],
        expect![[r#"
            step
              require no pods p
            step
              update resourceclaims/status p-gpu-x {}
        "#]],
    );
    let two = USED.replace("uid: u}]", "uid: u}, {resource: pods, name: q, uid: v}]");
    let other = pod("", "").replace("name: p,", "name: q,").replace("uid: u", "uid: v");
    check_claim(
        &claim(HELD, &two),
        &[&other, &pod("", "phase: Failed")],
        expect![[r#"
            step
              update resourceclaims/status p-gpu-x {"allocation":{"devices":{}},"reservedFor":[{"name":"q","resource":"pods","uid":"v"}]}
        "#]],
    );
}

#[test]
fn a_claim_goes_when_the_pod_it_was_made_for_has_ended() {
    let made = claim(OWNED, "");
    check_claim(&made, &[&pod("", "phase: Running")], expect![""]);
    check_claim(&made, &[], expect![""]);
    check_claim(
        &made,
        &[&pod("", "phase: Succeeded")],
        expect![[r#"
        step
          delete resourceclaims p-gpu-x
    "#]],
    );
    check_claim(&claim("", ""), &[&pod("", "phase: Succeeded")], expect![""]);
}

#[test]
fn a_deleted_claim_gives_its_devices_back_before_it_goes() {
    let deleted = |status: &str| claim(&format!("{HELD}, deletionTimestamp: '2026-01-01T00:00:00Z'"), status);
    check_claim(&deleted(USED), &[&pod("", "")], expect![""]);
    check_claim(
        &deleted("allocation: {devices: {}}"),
        &[],
        expect![[r#"
            step
              update resourceclaims/status p-gpu-x {}
        "#]],
    );
    check_claim(
        &deleted(""),
        &[],
        expect![[r#"
        step
          update resourceclaims p-gpu-x {"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[],"name":"p-gpu-x","namespace":"d","uid":"c"},"spec":{},"status":{}}
    "#]],
    );
}
