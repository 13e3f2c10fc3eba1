//! Cases of the rules of questions about access.

use super::*;

#[test]
fn a_question_about_access_is_about_one_thing() {
    const REVIEWS: &str = "authorization.k8s.io";
    check_review(
        "subjectaccessreviews",
        "{spec: {}}",
        expect![[r#"
        spec.resourceAttributes: Invalid value: "null": exactly one of nonResourceAttributes or resourceAttributes must be specified
        spec.user: Invalid value: "": at least one of user or group must be specified"#]],
    );
    check_review(
        "selfsubjectaccessreviews",
        "{metadata: {name: a}, spec: {resourceAttributes: {}, nonResourceAttributes: {}}}",
        expect![[r#"
            spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":""}: cannot be specified in combination with resourceAttributes
            metadata: Invalid value: {"name":"a"}: must be empty"#]],
    );
    check_review(
        "localsubjectaccessreviews",
        "{metadata: {namespace: a}, spec: {user: u, resourceAttributes: {namespace: b}}}",
        expect![[r#"spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#]],
    );

    fn check_review(plural: &'static str, object: &str, expect: Expect) {
        expect.assert_eq(&shown(row((REVIEWS, plural)).validate_create(&parse(object))));
    }
}
