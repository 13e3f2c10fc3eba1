//! Whom changes wake.

use std::convert::Infallible;

use bytes::Bytes;
use controller::Change;
use http::{Request, Response};
use http_body_util::Full;
use machinery::features;
use serde_json::Value;

use super::*;

/// Informers of a server that has these objects, by the plurals of their kinds.
async fn informers(objects: &[(&str, &str)]) -> Informers {
    let lists: Vec<(String, String)> = objects
        .iter()
        .map(|(plural, items)| {
            let items: Value = parse(&format!("[{items}]"));
            ((*plural).to_owned(), json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string())
        })
        .collect();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let list = lists.iter().find(|(plural, _)| path.ends_with(plural.as_str()) && !is_watch);
        let body = list.map(|(_, list)| Full::new(Bytes::from(list.clone())));
        async move {
            match body {
                Some(body) => Ok::<_, Infallible>(Response::new(body)),
                None => std::future::pending().await,
            }
        }
    });
    let clock = base::Clock::simulated(noon());
    let client = kube::Client::new(service, "default");
    let informers = Informers::new(client, base::Tasks::new(), clock, base::Random::seeded(1));
    informers.informer::<ResourceClaim>().synced().await;
    informers.informer::<ResourceSlice>().synced().await;
    informers.informer::<DeviceTaintRule>().synced().await;
    informers
}

fn change<K>(old: Option<&str>, new: Option<&str>) -> Change<K>
where
    K: serde::de::DeserializeOwned + 'static,
{
    let read = |yaml: &str| Arc::new(parse::<K>(yaml));
    Change { key: "it".into(), old: old.map(read), new: new.map(read), revision: 8 }
}

/// A claim that Pods have, with a device of pool `w`.
fn claim(name: &str, device: &str, pods: &[&str]) -> String {
    let users: Vec<_> =
        pods.iter().map(|pod| format!("{{resource: pods, name: {pod}, uid: {pod}}}")).collect();
    format!(
        "{{metadata: {{name: {name}, namespace: s, uid: {name}}}, spec: {{}}, status: {{allocation: {{devices: {{results: \
         [{{request: r, driver: d, pool: w, device: {device}}}]}}}}, reservedFor: [{}]}}}}",
        users.join(", ")
    )
}

fn slice(pool: &str, generation: i64, taints: &str) -> String {
    format!(
        "{{metadata: {{name: it}}, spec: {{driver: d, pool: {{name: {pool}, generation: {generation}, \
         resourceSliceCount: 1}}, devices: [{{name: a, taints: [{taints}]}}]}}}}"
    )
}

fn rule_text(selector: &str, effect: &str, status: &str) -> String {
    format!(
        "{{metadata: {{name: it, uid: u}}, spec: {{deviceSelector: {selector}, taint: {{key: k, effect: {effect}}}}}, \
         status: {{{status}}}}}"
    )
}

const BAD: &str = "{key: k, effect: NoExecute}";
const SOFT: &str = "{key: k, effect: NoSchedule}";

/// A server with two claims, and a rule whose Pods are counted.
async fn world() -> Informers {
    features::turn_on(
        &["DRADeviceTaints=true", "DRADeviceTaintRules=true"].map(|gate| gate.parse().unwrap()),
    )
    .unwrap();
    let claims = [claim("c", "a", &["p", "q"]), claim("e", "b", &["r"])].join(", ");
    let rules = "{metadata: {name: one}, spec: {deviceSelector: {}, taint: {key: k, effect: NoExecute}}}, \
                 {metadata: {name: soft}, spec: {deviceSelector: {}, taint: {key: k, effect: NoSchedule}}}";
    informers(&[("resourceclaims", &claims), ("resourceslices", ""), ("devicetaintrules", rules)]).await
}

#[tokio::test(start_paused = true)]
async fn pods_are_woken_by_what_counts_of_them_and_their_claims() {
    let informers = world().await;
    let pod = |node: &str, claims: &str, status: &str| {
        format!(
            "{{metadata: {{name: it, uid: u}}, spec: {{containers: [], nodeName: '{node}', resourceClaims: [{claims}]}}, \
             status: {{{status}}}}}"
        )
    };
    let one = "{name: r, resourceClaimName: c}";
    let (waits, bound) = (pod("", one, ""), pod("n", one, ""));
    let itself = &["later:one", "pod:it"][..];
    for (case, old, new, expect) in [
        ("it comes", None, Some(&bound), itself),
        ("it has no claims", None, Some(&pod("n", "", "")), &[]),
        ("it gets a Node", Some(&waits), Some(&bound), itself),
        ("it is ready", Some(&bound), Some(&pod("n", one, "phase: Running")), &[]),
        ("it ends", Some(&bound), Some(&pod("n", one, "phase: Failed")), itself),
        (
            "its claim is made",
            Some(&bound),
            Some(&pod("n", one, "resourceClaimStatuses: [{name: r, resourceClaimName: c}]")),
            itself,
        ),
        ("it goes", Some(&bound), None, itself),
    ] {
        let change = change(old.map(String::as_str), new.map(String::as_str));
        assert_eq!(wakes::pod_changed(&change, &informers), expect, "{case}");
    }
    let free = "{metadata: {name: c, namespace: s, uid: c}, spec: {}}";
    let (used, left) = (claim("c", "a", &["p", "q"]), claim("c", "a", &["q"]));
    for (case, old, new, expect) in [
        ("it has devices", Some(free), Some(used.as_str()), &["pod:s/p", "pod:s/q", "later:one"][..]),
        ("it has none", None, Some(free), &[]),
        ("a Pod goes", Some(&used), Some(&left), &["pod:s/p", "pod:s/q", "later:one"]),
        ("nothing", Some(&left), Some(&left), &[]),
        ("it goes", Some(&left), None, &["pod:s/q", "later:one"]),
    ] {
        assert_eq!(wakes::claim_changed(&change(old, new), &informers), expect, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_woken_by_taints_of_their_devices() {
    let informers = world().await;
    let (clean, bad, soft) = (slice("w", 1, ""), slice("w", 1, BAD), slice("w", 1, SOFT));
    let all = &["pod:s/p", "pod:s/q", "pod:s/r"][..];
    for (case, old, new, expect) in [
        ("a slice without taints", None, Some(&clean), &[][..]),
        ("a taint that ends nobody", Some(&clean), Some(&soft), &[]),
        ("a taint", Some(&clean), Some(&bad), all),
        ("it goes", Some(&bad), Some(&clean), all),
        ("the slice goes", Some(&bad), None, all),
        ("nothing of it", Some(&bad), Some(&bad), &[]),
        ("another pool", None, Some(&slice("m", 1, BAD)), &[]),
        ("another generation", Some(&clean), Some(&slice("w", 2, "")), &[]),
    ] {
        let change = change(old.map(String::as_str), new.map(String::as_str));
        assert_eq!(wakes::slice_changed(&change, &informers), expect, "{case}");
    }
    let (hard, of_b) = (rule_text("{}", "NoExecute", ""), rule_text("{device: b}", "NoExecute", ""));
    let told = rule_text("{device: b}", "NoExecute", "conditions: []");
    for (case, old, new, expect) in [
        ("a rule", None, Some(&hard), &["rule:it", "pod:s/p", "pod:s/q", "pod:s/r"][..]),
        ("a rule of another device", None, Some(&of_b), &["rule:it", "pod:s/r"]),
        ("a rule of another effect", None, Some(&rule_text("{}", "None", "")), &["rule:it"]),
        ("its selector", Some(&hard), Some(&of_b), &["rule:it", "pod:s/p", "pod:s/q", "pod:s/r"]),
        ("its status", Some(&of_b), Some(&told), &[]),
        ("it goes", Some(&of_b), None, &["pod:s/r"]),
    ] {
        let change = change(old.map(String::as_str), new.map(String::as_str));
        assert_eq!(wakes::rule_changed(&change, &informers), expect, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_wakes_pods_whose_pool_had_taints() {
    features::turn_on(&["DRADeviceTaints=true".parse().unwrap()]).unwrap();
    let claims = claim("c", "a", &["p"]);
    let old = slice("w", 1, BAD);
    let informers =
        informers(&[("resourceclaims", &claims), ("resourceslices", &old), ("devicetaintrules", "")]).await;
    let memory = Memory::of(&informers);
    assert!(memory.tainted(&informers).has_pool_of(&parse::<ResourceSlice>(&old).spec));
    let newer = change(None, Some(slice("w", 2, "").as_str()));
    assert_eq!(wakes::slice_changed(&newer, &informers), ["pod:s/p"]);
    assert_eq!(wakes::rules(&informers).len(), 0, "their feature is off");
}
