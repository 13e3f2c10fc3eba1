use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";
const BEFORE: &str = "2020-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn widgets() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": [], "storedVersions": ["v1"]},
    })
}

/// Another definition of the group that has these names.
fn rival(names: Value) -> Value {
    json!({"metadata": {"name": "rival"}, "spec": {"group": "example.com"}, "status": {"acceptedNames": names}})
}

/// `Type=Status Reason: message`, a line each.
fn shown(status: &Value) -> String {
    let conditions = status["conditions"].as_array().expect("conditions");
    let line = |condition: &Value| {
        let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        format!("{}={} {}: {}", text("type"), text("status"), text("reason"), text("message"))
    };
    conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(definition: &Value, others: &[Value], wanted: &str) -> Value {
    let status = plan(definition, others, now());
    assert_eq!(shown(&status), wanted);
    let mut again = definition.clone();
    again["status"] = status.clone();
    let later = "2030-01-01T00:00:00Z".parse().expect("a time");
    assert_eq!(plan(&again, others, later), status, "what was planned is left alone");
    status
}

const ACCEPTED: &str = "NamesAccepted=True NoConflicts: no conflicts found\n\
                        Established=True InitialNamesAccepted: the initial names have been accepted";

#[test]
fn a_definition_gets_its_names_and_is_established() {
    let status = check(&widgets(), &[], ACCEPTED);
    assert_eq!(status["acceptedNames"], widgets()["spec"]["names"]);
    assert_eq!(status["storedVersions"], json!(["v1"]));
    assert_eq!(status["conditions"][0]["lastTransitionTime"], NOW);
    let mut itself = widgets();
    itself["status"] = status;
    check(&widgets(), &[itself], ACCEPTED);
}

#[test]
fn a_definition_without_its_names_waits_and_an_established_one_stays() {
    let rival = [rival(json!({"plural": "others", "singular": "widgets"}))];
    let conflict = "NamesAccepted=False PluralConflict: \"widgets\" is already in use\n";
    let status = check(
        &widgets(),
        &rival,
        &format!("{conflict}Established=False NotAccepted: not all names are accepted"),
    );
    assert_eq!(
        status["acceptedNames"],
        json!({"plural": "", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    let mut freed = widgets();
    freed["status"] = status;
    check(&freed, &[], ACCEPTED);

    let mut established = widgets();
    established["status"]["acceptedNames"] =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "OldList"});
    established["status"]["conditions"] = json!([
        {"type": "NamesAccepted", "status": "True", "lastTransitionTime": BEFORE},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "m", "lastTransitionTime": BEFORE},
    ]);
    let rival = [self::rival(json!({"plural": "others", "kind": "WidgetList"}))];
    let status = check(
        &established,
        &rival,
        "NamesAccepted=False ListKindConflict: \"WidgetList\" is already in use\n\
         Established=True InitialNamesAccepted: m",
    );
    assert_eq!(status["acceptedNames"]["listKind"], "OldList");
    assert_eq!(status["conditions"][0]["lastTransitionTime"], NOW, "its status changed");
    assert_eq!(status["conditions"][1]["lastTransitionTime"], BEFORE, "its status did not");
}

#[test]
fn a_webhook_without_a_certificate_is_not_established() {
    let mut definition = widgets();
    definition["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "YWJj"}}});
    check(
        &definition,
        &[],
        "NamesAccepted=True NoConflicts: no conflicts found\n\
         Established=False InvalidCABundle: The conversion webhook CABundle is invalid",
    );
    definition["spec"]["conversion"]["webhook"]["clientConfig"] = json!({"url": "https://example.com"});
    check(&definition, &[], ACCEPTED);
}

#[test]
fn groups_of_the_community_say_whether_they_were_reviewed() {
    let condition = "KubernetesAPIApprovalPolicyConformant";
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    for (annotation, wanted) in [
        (
            json!({}),
            format!(
                "{condition}=False MissingAnnotation: protected groups must have approval annotation \"api-approved.kubernetes.io\", {see}"
            ),
        ),
        (
            json!({"api-approved.kubernetes.io": "https://example.com/1"}),
            format!("{condition}=True ApprovedAnnotation: approved in https://example.com/1"),
        ),
        (
            json!({"api-approved.kubernetes.io": "unapproved, x"}),
            format!("{condition}=False UnapprovedAnnotation: not approved: \"unapproved, x\""),
        ),
        (
            json!({"api-approved.kubernetes.io": "yes"}),
            format!(
                "{condition}=False InvalidAnnotation: protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", {see}"
            ),
        ),
    ] {
        let mut definition = widgets();
        definition["spec"]["group"] = json!("gateway.networking.k8s.io");
        definition["metadata"]["annotations"] = annotation;
        check(&definition, &[], &format!("{wanted}\n{ACCEPTED}"));
    }
}

#[test]
fn schemas_that_are_not_structural_are_told_until_they_are() {
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"a": {}}});
    let status = check(
        &definition,
        &[],
        &format!(
            "NonStructuralSchema=True Violations: spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields\n{ACCEPTED}"
        ),
    );
    let mut mended = widgets();
    mended["status"] = status;
    check(&mended, &[], ACCEPTED);

    definition["spec"]["preserveUnknownFields"] = json!(true);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({});
    check(
        &definition,
        &[],
        &format!(
            "NonStructuralSchema=True Violations: [spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be empty at the root]\n{ACCEPTED}"
        ),
    );
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"$ref": "x"});
    check(
        &definition,
        &[],
        &format!(
            "NonStructuralSchema=Unknown StructuralError: failed to check validation schema for version v1: OpenAPIV3Schema '$ref' is not supported\n{ACCEPTED}"
        ),
    );
    let many: Map<String, Value> = (0..200).map(|n| (format!("p{n}"), json!({}))).collect();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": many});
    let status = plan(&definition, [], now());
    let message = status["conditions"][0]["message"].as_str().expect("a message");
    assert!(message.ends_with("and 151 more]"), "{message}");
}

#[test]
fn a_deletion_waits_for_the_objects() {
    let mut definition = widgets();
    definition["metadata"]["finalizers"] = json!(["example.com/mine"]);
    begin_deletion(&mut definition, now());
    assert_eq!(definition["metadata"]["deletionTimestamp"], NOW);
    assert_eq!(definition["metadata"]["finalizers"], json!(["example.com/mine", FINALIZER]));
    assert_eq!(
        shown(&definition["status"]),
        "Terminating=True InstanceDeletionPending: CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    );
    let before = definition.clone();
    begin_deletion(&mut definition, "2030-01-01T00:00:00Z".parse().expect("a time"));
    assert_eq!(definition, before, "it is asked for once");
    for (how_far, wanted) in [
        (Terminating::InProgress, "True InstanceDeletionInProgress: CustomResource deletion is in progress"),
        (Terminating::Failed("no".into()), "True InstanceDeletionFailed: could not issue all deletes: no"),
        (
            Terminating::Unconfirmed("no".into()),
            "True InstanceDeletionCheck: could not confirm zero CustomResources remaining: no",
        ),
        (Terminating::Completed, "False InstanceDeletionCompleted: removed all instances"),
        (Terminating::NeverEstablished, "False NeverEstablished: resource was never established"),
        (
            Terminating::BuiltIn,
            "False OverlappingBuiltInResource: instances overlap with built-in resources in storage",
        ),
    ] {
        definition["status"] = terminating(&definition, how_far, now());
        assert_eq!(shown(&definition["status"]), format!("Terminating={wanted}"));
    }
    assert!(!is_built_in(&definition));
    assert!(is_built_in(
        &json!({"spec": {"group": "apiregistration.k8s.io", "names": {"plural": "apiservices"}}})
    ));
}

#[test]
fn definitions_without_sense_panic_nobody() {
    for broken in [
        json!(null),
        json!({"status": []}),
        json!({"status": {"conditions": {}}, "spec": {"versions": [null, 1, {"schema": 3}]}}),
        json!({"status": {"conditions": [null, {"type": 1}]}, "metadata": []}),
    ] {
        let status = plan(&broken, [&broken], now());
        assert!(shown(&status).contains("Established=True"), "{status}");
        let mut deleted = broken;
        begin_deletion(&mut deleted, now());
        drop(terminating(&deleted, Terminating::Completed, now()));
    }
}
