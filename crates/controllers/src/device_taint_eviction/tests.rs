//! The cases of upstream's `TestController`: slices, rules, claims and a Pod in, what becomes of the Pod and of rules out.

mod woken;

use super::taints::Tainted;
use super::*;
use crate::fixture::{list, noon, parse, render};

/// When the taints of these tests were added: at noon.
const AT: &str = "timeAdded: '2026-01-01T12:00:00Z'";
const EVICTED: &str = "Normal DeviceTaintManagerEviction: Marking for deletion";
const CANCELLED: &str = "Normal DeviceTaintManagerEviction: Cancelling deletion";
const NAMED: &str = "resourceClaimName: c";
const TEMPLATE: &str = "resourceClaimTemplateName: t";

/// Names, and what each has: taints or tolerations.
type Named<'a> = &'a [(&'a str, &'a str)];
type Slices<'a> = &'a [(&'a str, i64, Named<'a>)];
type Rules<'a> = &'a [(&'a str, &'a str, &'a str)];
type Claims<'a> = &'a [(&'a str, &'a str, &'a str, Named<'a>)];

/// The world around a Pod.
#[derive(Clone, Copy)]
struct World<'a> {
    /// Slices: name, generation, and the devices with their taints.
    slices: Slices<'a>,
    /// Rules: name, selector, and taint.
    rules: Rules<'a>,
    /// Claims: name, what else of their metadata, their user's uid, and the devices with their tolerations.
    claims: Claims<'a>,
    /// What the Pod, which is called `p`, has of its Node and phase.
    pod: &'a str,
    /// The claims that it lists, and what is said of them in its status.
    uses: (&'a str, &'a str),
    was_leaving: bool,
}

impl World<'_> {
    fn tainted(&self) -> Tainted {
        let slice = |(name, generation, devices): &(&str, i64, &[(&str, &str)])| {
            let of = |(name, taints): &(&str, &str)| format!("{{name: {name}, taints: [{taints}]}}");
            let devices = devices.iter().map(of).collect::<Vec<_>>().join(", ");
            format!(
                "{{metadata: {{name: {name}}}, spec: {{driver: d, pool: {{name: w, generation: {generation}, \
                 resourceSliceCount: 1}}, devices: [{devices}]}}}}"
            )
        };
        Tainted::of(&list(&format!("[{}]", self.slices.iter().map(slice).collect::<Vec<_>>().join(", "))))
    }

    fn rules(&self) -> Vec<Arc<DeviceTaintRule>> {
        let rules = self.rules.iter().map(|(name, selector, taint)| rule(name, selector, taint));
        rules.map(Arc::new).collect()
    }

    fn claims(&self) -> Vec<Arc<ResourceClaim>> {
        let claims = self.claims.iter().map(|(name, metadata, user, devices)| {
            let of = |(device, tolerations): &(&str, &str)| {
                format!("{{request: r, driver: d, pool: w, device: {device}, tolerations: [{tolerations}]}}")
            };
            let results = devices.iter().map(of).collect::<Vec<_>>().join(", ");
            let allocation = match devices {
                [] => String::new(),
                _ => format!("allocation: {{devices: {{results: [{results}]}}}}, "),
            };
            Arc::new(parse(&format!(
                "{{metadata: {{name: {name}, namespace: s, {metadata}}}, spec: {{}}, status: {{{allocation}\
                 reservedFor: [{{resource: pods, name: p, uid: '{user}'}}]}}}}"
            )))
        });
        claims.collect()
    }

    fn pod(&self) -> Arc<Pod> {
        let (claims, statuses) = self.uses;
        Arc::new(parse(&format!(
            "{{metadata: {{name: p, namespace: s, uid: u}}, spec: {{containers: [], {}, resourceClaims: [{claims}]}}, \
             status: {{resourceClaimStatuses: [{statuses}]}}}}",
            self.pod
        )))
    }

    fn snapshot(&self) -> Snapshot {
        let (pod, claims) = (self.pod(), self.claims());
        let key = |claim: &ResourceClaim| format!("s/{}", name(&claim.metadata));
        let used = taints::claims_of(&pod, |wanted| claims.iter().find(|one| key(one) == wanted).cloned());
        let eviction = taints::eviction(&used, &self.tainted(), &self.rules());
        Snapshot { pod, eviction, was_leaving: self.was_leaving }
    }
}

fn rule(name: &str, selector: &str, taint: &str) -> DeviceTaintRule {
    parse(&format!(
        "{{metadata: {{name: {name}, uid: {name}-uid}}, spec: {{deviceSelector: {selector}, taint: {taint}}}}}"
    ))
}

/// A taint of this key and effect, added at noon.
fn taint(key: &str, effect: &str) -> String {
    format!("{{key: {key}, value: v, effect: {effect}, {AT}}}")
}

/// A toleration of NoExecute; `more` is its seconds, if it has any.
fn exists(more: &str) -> String {
    format!("{{operator: Exists, effect: NoExecute, {more}}}")
}

/// The last line of what is decided, and the rules that have a part in it.
fn check(case: &str, world: &World<'_>, expect: &str, rules: &[&str]) {
    let snapshot = world.snapshot();
    let text = render(&plan(&snapshot, noon()));
    let event =
        text.lines().map(str::trim).find(|line| line.starts_with("Normal") || line.starts_with("again"));
    assert_eq!(event.unwrap_or_default(), expect, "{case}: {text}");
    let found = snapshot.eviction.map(|eviction| eviction.rules).unwrap_or_default();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), rules, "{case}");
}

const NODE: &str = "nodeName: worker";

/// A world without rules.
fn with<'a>(slices: Slices<'a>, claims: Claims<'a>, pod: &'a str, uses: (&'a str, &'a str)) -> World<'a> {
    World { slices, rules: &[], claims, pod, uses, was_leaving: false }
}

/// A world of rules, and slices without taints.
fn ruled<'a>(rules: Rules<'a>, claims: Claims<'a>, uses: &'a str) -> World<'a> {
    World { rules, ..with(&[], claims, NODE, (uses, "")) }
}

#[test]
fn a_pod_leaves_when_a_device_of_a_claim_of_its_has_a_taint_that_is_not_tolerated() {
    let (bad, soft) = (taint("k", "NoExecute"), taint("k", "NoSchedule"));
    let (none, unknown) = (taint("k", "None"), taint("k", "Other"));
    let (named, made) = (format!("{{name: r, {NAMED}}}"), format!("{{name: r, {TEMPLATE}}}"));
    let owned = "ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u, controller: true}]";
    let other = "ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: other, controller: true}]";
    let status = "{name: r, resourceClaimName: c}";
    let a: &[(&str, &str)] = &[("a", "")];
    let mine = [("c", "", "u", a)];
    let on_a = [("a", bad.as_str())];
    let slice = [("one", 1, &on_a[..])];
    let by_name = (named.as_str(), "");
    for (case, world, expect) in [
        ("evict-pod-resourceclaim", with(&slice, &mine, NODE, by_name), EVICTED),
        (
            "evict-pod-resourceclaimtemplate",
            with(&slice, &[("c", owned, "u", a)], NODE, (&made, status)),
            EVICTED,
        ),
        ("no-evict-pod-not-scheduled", with(&slice, &mine, "nodeName: ''", by_name), ""),
        ("no-evict-no-taint", with(&[("one", 1, &[("a", "")])], &mine, NODE, by_name), ""),
        ("no-evict-no-slice", with(&[], &mine, NODE, by_name), ""),
        ("no-evict-pod-resourceclaimtemplate-no-status", with(&slice, &mine, NODE, (&made, "")), ""),
        ("no-evict-pod-resourceclaimtemplate-no-claim", with(&slice, &mine, NODE, (&made, "{name: r}")), ""),
        ("no-evict-other-device", with(&[("one", 1, &[("b", &bad)])], &mine, NODE, by_name), ""),
        ("no-evict-wrong-pod", with(&slice, &[("c", "", "v", a)], NODE, by_name), ""),
        ("no-evict-wrong-resourceclaim", with(&slice, &[("c", other, "u", a)], NODE, (&made, status)), ""),
        ("no-evict-resourceclaim-deallocated", with(&slice, &[("c", "", "u", &[])], NODE, by_name), ""),
        ("no-evict-resourceclaim-deleted", with(&slice, &[], NODE, by_name), ""),
        ("no-schedule", with(&[("one", 1, &[("a", &soft)])], &mine, NODE, by_name), ""),
        ("ignore-none-effect", with(&[("one", 1, &[("a", &none)])], &mine, NODE, by_name), ""),
        ("ignore-unknown-effect", with(&[("one", 1, &[("a", &unknown)])], &mine, NODE, by_name), ""),
        (
            "an older generation",
            with(&[("one", 1, &on_a), ("two", 2, &[("a", "")])], &mine, NODE, by_name),
            "",
        ),
        (
            "a newer generation",
            with(&[("one", 1, &[("a", "")]), ("two", 2, &on_a)], &mine, NODE, by_name),
            EVICTED,
        ),
    ] {
        check(case, &world, expect, &[]);
    }
    // Who has ended needs no device.
    let mut ended = with(&slice, &mine, NODE, by_name).snapshot();
    ended.pod = Arc::new(parse("{metadata: {name: p, namespace: s, uid: u}, status: {phase: Succeeded}}"));
    assert_eq!(render(&plan(&ended, noon())), "");
}

/// A Pod with a claim on device `a`, which has these taints and is tolerated so.
fn check_tolerated(case: &str, taints: &str, tolerations: &str, expect: &str) {
    let named = format!("{{name: r, {NAMED}}}");
    let world = World {
        slices: &[("one", 1, &[("a", taints)])],
        rules: &[],
        claims: &[("c", "", "u", &[("a", tolerations)])],
        pod: NODE,
        uses: (&named, ""),
        was_leaving: false,
    };
    check(case, &world, expect, &[]);
}

#[test]
fn of_tolerations_that_fit_the_shortest_counts_and_one_without_end_is_enough() {
    let bad = taint("k", "NoExecute");
    let both = [bad.clone(), taint("l", "NoExecute")].join(", ");
    let of = |key: &str, seconds: i64| {
        format!("{{key: {key}, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: {seconds}}}")
    };
    let (short, long) = (exists("tolerationSeconds: 30"), exists("tolerationSeconds: 60"));
    for (case, taints, tolerations, expect) in [
        ("evict-pod-later", &bad, of("k", 3_600), "again after 3600s"),
        ("evict-pod-later-many", &bad, format!("{}, {long}, {short}", of("other", 20)), "again after 30s"),
        ("evict-pod-toleration-mismatch", &bad, of("other", 60), EVICTED),
        ("no-evict-pod-toleration-forever", &bad, exists(""), ""),
        ("no-evict-pod-toleration-forever-many", &bad, format!("{long}, {}", exists("")), ""),
        (
            "evict-pod-partial-toleration",
            &both,
            "{key: k, operator: Exists, effect: NoExecute}".into(),
            EVICTED,
        ),
        ("each taint by its own", &both, format!("{}, {}", of("k", 60), of("l", 30)), "again after 30s"),
        ("less than nothing", &bad, of("k", -5), EVICTED),
        ("another effect", &bad, "{operator: Exists, effect: NoSchedule}".into(), EVICTED),
        ("every effect", &bad, "{operator: Exists}".into(), ""),
        ("seconds of every effect", &bad, "{operator: Exists, tolerationSeconds: 5}".into(), ""),
    ] {
        check_tolerated(case, taints, &tolerations, expect);
    }
    let ago = "{key: k, effect: NoExecute, timeAdded: '2026-01-01T11:59:50Z'}";
    check_tolerated("some of it is over", ago, &short, "again after 20s");
    check_tolerated("all of it is over", ago, &exists("tolerationSeconds: 10"), EVICTED);
}

#[test]
fn rules_taint_devices_beside_slices_and_are_the_reason() {
    let bad = format!("{{key: k, value: v, effect: NoExecute, {AT}}}");
    let later = "{key: k, effect: NoExecute, timeAdded: '2026-01-01T12:00:40Z'}";
    let uses = format!("{{name: r, {NAMED}}}, {{name: q, resourceClaimName: other}}");
    let claims: Claims<'_> = &[("c", "", "u", &[("a", "")]), ("other", "", "u", &[("b", "")])];
    let patient = exists("tolerationSeconds: 60");
    let tolerated: Claims<'_> = &[("c", "", "u", &[("a", &patient)])];
    let (of_driver, of_a, of_b) = ("{driver: d}", "{device: a}", "{device: b}");
    for (case, world, expect, rules) in [
        ("evict-pod-rule", ruled(&[("one", of_driver, &bad)], claims, &uses), EVICTED, &["one-uid"][..]),
        ("another driver", ruled(&[("one", "{driver: e}", &bad)], claims, &uses), "", &[]),
        ("no selector", ruled(&[("one", "null", &bad)], claims, &uses), "", &[]),
        (
            "evict-pod-rule-later",
            ruled(&[("one", of_a, &bad)], tolerated, &uses),
            "again after 60s",
            &["one-uid"],
        ),
        (
            "multiple-claims-different-rules",
            ruled(&[("one", of_a, &bad), ("two", of_b, later)], claims, &uses),
            EVICTED,
            &["one-uid", "two-uid"],
        ),
        (
            "a taint that comes",
            ruled(&[("two", of_b, later)], claims, &uses),
            "again after 40s",
            &["two-uid"],
        ),
        ("other effects", ruled(&[("one", of_a, "{key: k, effect: NoSchedule}")], claims, &uses), "", &[]),
    ] {
        check(case, &world, expect, rules);
    }
    let rules = [("two", of_a, later)];
    let world = World { slices: &[("s", 1, &[("b", &bad)])], ..ruled(&rules, claims, &uses) };
    check("evict-pod-many-taints", &world, EVICTED, &["two-uid"]);
}

#[test]
fn who_leaves_has_a_condition_first_and_who_need_not_any_more_is_told() {
    let (bad, named) = (taint("k", "NoExecute"), format!("{{name: r, {NAMED}}}"));
    let devices = [("a", bad.as_str())];
    let mut world = World {
        slices: &[("one", 1, &devices)],
        rules: &[],
        claims: &[("c", "", "u", &[("a", "")])],
        pod: NODE,
        uses: (&named, ""),
        was_leaving: true,
    };
    expect_test::expect![[r#"
        step
          Normal DeviceTaintManagerEviction: Marking for deletion
        step
          patch pods/status p {"metadata":{"uid":"u"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Device Taint manager: deleting due to NoExecute taint","reason":"DeletionByDeviceTaintManager","status":"True","type":"DisruptionTarget"}]}}
        step
          delete pods p
    "#]]
    .assert_eq(&render(&plan(&world.snapshot(), noon())));
    world.slices = &[];
    check("cancel-eviction-remove-slice", &world, CANCELLED, &[]);
    world.claims = &[];
    check("no-evict-resourceclaim-deleted", &world, CANCELLED, &[]);
    world.was_leaving = false;
    check("it was to stay before", &world, "", &[]);
}

/// What the status says: the condition's status, reason and message.
fn status_of(rule: &DeviceTaintRule, counts: Counts) -> String {
    let text = render(&rule_status::plan(rule, &counts, noon()));
    let Some((_, body)) = text.split_once("patch devicetaintrules/status one ") else { return text };
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let condition = &body["status"]["conditions"][0];
    let part = |field: &str| condition[field].as_str().unwrap().to_owned();
    assert_eq!(body["metadata"]["uid"], "one-uid");
    assert_eq!(part("type"), "EvictionInProgress");
    format!("{} {}: {}", part("status"), part("reason"), part("message"))
}

#[test]
fn a_rules_status_says_how_many_pods_leave_and_have_left() {
    let of = |effect: &str| rule("one", "{driver: d}", &format!("{{key: k, effect: {effect}}}"));
    let pending = |pods: usize, namespaces: usize| Pending { pods, namespaces };
    let none = pending(0, 0);
    for (case, effect, pending, evicted, expect) in [
        ("rule-status", "NoExecute", none, 0, "False NotStarted: "),
        (
            "evict-pod-rule",
            "NoExecute",
            pending(1, 1),
            0,
            "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.",
        ),
        (
            "evict-many-pods-many-namespaces",
            "NoExecute",
            pending(2, 2),
            0,
            "True PodsPendingEviction: 2 pods need to be evicted in 2 different namespaces.",
        ),
        (
            "some have left",
            "NoExecute",
            pending(2, 1),
            1,
            "True PodsPendingEviction: 2 pods need to be evicted in 1 namespace. 1 pod evicted since starting the controller.",
        ),
        (
            "all have left",
            "NoExecute",
            none,
            2,
            "False Completed: 2 pods evicted since starting the controller.",
        ),
        (
            "another effect",
            "NoSchedule",
            none,
            0,
            "False OtherEffect: Eviction only happens for the NoExecute effect.",
        ),
    ] {
        let counts = Counts { pending, evicted, ..Counts::default() };
        assert_eq!(status_of(&of(effect), counts), expect, "{case}");
    }
    let selected = Selected { published: 3, allocated: 1 };
    let end = "if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule \
               to trigger an update.";
    for (selected, pending, expect) in [
        (
            selected,
            pending(1, 1),
            "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace",
        ),
        (
            Selected { published: 0, allocated: 3 },
            pending(2, 2),
            "0 published devices selected. 3 allocated devices selected. 2 pods would be evicted in 2 different namespaces",
        ),
        (
            Selected { published: 1, allocated: 0 },
            none,
            "1 published device selected. 0 allocated devices selected. 0 pods would be evicted in 0 different namespaces",
        ),
    ] {
        let counts = Counts { selected, pending, evicted: 0 };
        assert_eq!(status_of(&of("None"), counts), format!("False NoEffect: {expect} {end}"));
    }
}

#[test]
fn a_status_is_written_when_it_says_something_new_and_not_too_often() {
    let written = |generation: i64, message: &str, at: &str| -> DeviceTaintRule {
        parse(&format!(
            "{{metadata: {{name: one, uid: one-uid, generation: 2}}, spec: {{taint: {{key: k, effect: NoSchedule}}}}, \
             status: {{conditions: [{{type: EvictionInProgress, status: 'False', reason: OtherEffect, \
             message: '{message}', observedGeneration: {generation}, lastTransitionTime: '2026-01-01T{at}Z'}}]}}}}"
        ))
    };
    let same = "Eviction only happens for the NoExecute effect.";
    let told = format!("False OtherEffect: {same}");
    for (case, rule, rests, expect) in [
        ("the same", written(2, same, "11:00:00"), None, ""),
        ("of another generation", written(1, same, "11:59:59"), None, told.as_str()),
        ("just written", written(2, "x", "11:59:56"), Some(6), &told),
        ("written a while ago", written(2, "x", "11:59:50"), None, &told),
    ] {
        assert_eq!(rule_status::rests(&rule, noon()), rests.map(Duration::from_secs), "{case}");
        assert_eq!(status_of(&rule, Counts::default()), expect, "{case}");
    }
}

#[test]
fn pods_and_devices_of_a_rule_are_counted_whatever_its_effect() {
    let rule = rule("one", "{driver: d}", "{key: k, effect: None}");
    let claim = |namespace: &str, uid: &str, tolerations: &str| {
        format!(
            "{{metadata: {{name: c-{uid}, namespace: {namespace}}}, spec: {{}}, status: {{allocation: {{devices: {{results: \
             [{{request: r, driver: d, pool: w, device: a, tolerations: [{tolerations}]}}, \
             {{request: r, driver: other, pool: w, device: a}}]}}}}, \
             reservedFor: [{{resource: pods, name: '{uid}', uid: '{uid}'}}]}}}}"
        )
    };
    let forever = "{operator: Exists}";
    let claims = [claim("s", "a", ""), claim("s", "b", ""), claim("t", "c", ""), claim("u", "d", forever)];
    let claims: Vec<Arc<ResourceClaim>> = list(&format!("[{}]", claims.join(", ")));
    let pod = |namespace: &str, uid: &str, more: &str| {
        format!(
            "{{metadata: {{name: {uid}, namespace: {namespace}, uid: {uid}, {more}}}, spec: {{containers: [], nodeName: w, \
             resourceClaims: [{{name: r, resourceClaimName: c-{uid}}}]}}}}"
        )
    };
    let all = |more: &str| -> Vec<Arc<Pod>> {
        let pods = [pod("s", "a", ""), pod("s", "b", more), pod("t", "c", ""), pod("u", "d", "")];
        list(&format!("[{}]", pods.join(", ")))
    };
    let find = |key: &str| claims.iter().find(|one| controller::metadata::key(&one.metadata) == key).cloned();
    let deleted = "deletionTimestamp: '2026-01-01T12:00:00Z'";
    assert_eq!(Pending::of(&rule, &all(""), find), Pending { pods: 3, namespaces: 2 });
    assert_eq!(Pending::of(&rule, &all(deleted), find), Pending { pods: 2, namespaces: 2 });
    let slice = |driver: &str, generation: i64| {
        format!(
            "{{metadata: {{name: s}}, spec: {{driver: {driver}, pool: {{name: w, generation: {generation}, \
             resourceSliceCount: 1}}, devices: [{{name: a}}, {{name: b}}]}}}}"
        )
    };
    let slices = list(&format!("[{}, {}, {}]", slice("d", 1), slice("d", 2), slice("other", 1)));
    assert_eq!(Selected::by(&rule, &slices, &claims), Selected { published: 2, allocated: 4 });
}

#[test]
fn pods_that_have_left_are_counted_once_and_only_if_they_were_made_to() {
    let leaving = |uid: &str, state: State| Leaving {
        uid: uid.to_owned(),
        eviction: Eviction { when: noon(), rules: ["r".to_owned()].into() },
        state,
    };
    let memory = Memory::default();
    memory.keep("s/p", leaving("u", State::Waits));
    assert!(memory.is_leaving("s/p"));
    assert_eq!(memory.take_gone("s/p", Some("u")), None, "it is there");
    assert_eq!(memory.take_gone("s/p", None), None, "somebody else has deleted it");
    assert_eq!(memory.evicted("r"), 0);
    for (staying, evicted) in [(Some("u"), 0), (Some("v"), 1), (None, 1)] {
        memory.keep("s/p", leaving("u", State::Goes));
        assert_eq!(memory.take_gone("s/p", staying).is_some(), evicted == 1, "{staying:?}");
        assert_eq!(memory.take_gone("s/p", staying), None, "again");
        assert_eq!(memory.evicted("r"), evicted, "{staying:?}");
        memory.forget("s/p");
        memory.forget_rule("r");
    }
}

#[test]
fn a_rules_status_waits_for_more_changes_of_pods() {
    let memory = Memory::default();
    let after = |seconds: i64| noon() + jiff::SignedDuration::from_secs(seconds);
    let waits = |seconds: i64| memory.waits("r", after(seconds)).map(|left| left.as_secs());
    assert_eq!([waits(0), waits(4), waits(10), waits(11)], [Some(10), Some(6), None, Some(10)]);
    memory.postpone("r", after(30));
    assert_eq!([waits(25), waits(30)], [Some(5), None]);
}

#[test]
fn a_key_is_of_a_pod_or_a_rule() {
    for (key, expect) in
        [("pod:s/p", Key::Pod("s/p")), ("rule:one", Key::Rule("one")), ("later:one", Key::RuleLater("one"))]
    {
        assert_eq!(Key::read(key), expect);
    }
}
