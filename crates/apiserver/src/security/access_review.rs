//! The question to an authorization webhook, and its answer: a SubjectAccessReview. Pure.
//!
//! Source: `k8s.io/apiserver/plugin/pkg/authorizer/webhook`.

use auth::{Attributes, UserInfo};
use machinery::{fields, labels};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::reviewed::{self, AnswerError, Kind};
use crate::authorization_config::ReviewVersion;

const GROUP: &str = "authorization.k8s.io";
const KIND: &str = "SubjectAccessReview";
/// How much of a webhook's reason is kept and told.
const REASON_BYTES_MAX: usize = 4096;
/// The answer to a question is not kept if what its sender chose of it is longer. Source: `maxControlledAttrCacheSize`.
const KEPT_BYTES_MAX: usize = 10_000;

/// What a webhook answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) allowed: bool,
    pub(super) denied: bool,
    pub(super) reason: String,
}

/// `spec` of a review of version `v1`.
pub(super) fn spec(user: &UserInfo, attributes: &Attributes) -> Map<String, Value> {
    let mut spec = Map::new();
    let about = if attributes.is_resource {
        ("resourceAttributes", resource(attributes))
    } else {
        ("nonResourceAttributes", texts(&[("path", &attributes.path), ("verb", &attributes.verb)]))
    };
    spec.insert(about.0.to_owned(), Value::Object(about.1));
    spec.extend(texts(&[("user", &user.name), ("uid", &user.uid)]));
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    spec
}

/// Those that say something: an absent one is an empty one.
fn texts(all: &[(&str, &str)]) -> Map<String, Value> {
    let given = all.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
}

fn resource(attributes: &Attributes) -> Map<String, Value> {
    let mut resource = texts(&[
        ("namespace", &attributes.namespace),
        ("verb", &attributes.verb),
        ("group", &attributes.group),
        ("version", &attributes.version),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("name", &attributes.name),
    ]);
    for (name, requirements) in [
        ("fieldSelector", field_requirements(&attributes.field_selector)),
        ("labelSelector", label_requirements(&attributes.label_selector)),
    ] {
        if !requirements.is_empty() {
            resource.insert(name.to_owned(), json!({"requirements": requirements}));
        }
    }
    resource
}

/// What cannot be read is left out: less is asked for than is allowed then, never more.
fn field_requirements(text: &str) -> Vec<Value> {
    let terms = fields::Selector::parse(text).map(|selector| selector.terms).unwrap_or_default();
    let one = |term: fields::Term| {
        let operator = if term.is_negated { "NotIn" } else { "In" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    terms.into_iter().map(one).collect()
}

fn label_requirements(text: &str) -> Vec<Value> {
    let Ok(selector) = labels::Selector::parse(text) else { return Vec::new() };
    let one = |requirement: &labels::Requirement| {
        let key = &requirement.key;
        Some(match &requirement.operator {
            labels::Operator::In(values) => json!({"key": key, "operator": "In", "values": values}),
            labels::Operator::NotIn(values) => json!({"key": key, "operator": "NotIn", "values": values}),
            labels::Operator::Exists => json!({"key": key, "operator": "Exists"}),
            labels::Operator::DoesNotExist => json!({"key": key, "operator": "DoesNotExist"}),
            labels::Operator::GreaterThan(_) | labels::Operator::LessThan(_) => return None,
        })
    };
    selector.requirements().iter().filter_map(one).collect()
}

/// The whole question, in a version.
pub(super) fn request(version: ReviewVersion, spec: &Map<String, Value>) -> Value {
    let mut spec = spec.clone();
    if version == ReviewVersion::V1Beta1
        && let Some(groups) = spec.remove("groups")
    {
        spec.insert("group".to_owned(), groups);
    }
    json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{}", version.as_str()),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    })
}

/// Reads the answer to a question of this version.
///
/// # Errors
/// What is wrong with it.
pub(super) fn status(version: ReviewVersion, answer: &[u8]) -> Result<Status, AnswerError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Said {
        allowed: bool,
        denied: bool,
        reason: String,
    }
    let kind = Kind { group: GROUP, version: version.as_str(), kind: KIND };
    let said: Said = reviewed::status(kind, answer)?;
    let reason = reviewed::cut(&said.reason, REASON_BYTES_MAX).to_owned();
    Ok(Status { allowed: said.allowed, denied: said.denied, reason })
}

/// Whether an answer may be kept.
pub(super) fn is_kept(attributes: &Attributes) -> bool {
    let chosen = [
        &attributes.namespace,
        &attributes.verb,
        &attributes.group,
        &attributes.version,
        &attributes.resource,
        &attributes.subresource,
        &attributes.name,
        &attributes.path,
    ];
    chosen.into_iter().map(String::len).sum::<usize>() < KEPT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(version: ReviewVersion, attributes: &Attributes, expect: Expect) {
        let mut user = UserInfo::new("jane", &["dev"]);
        user.uid = "7".to_owned();
        user.extra.insert("scopes".to_owned(), vec!["a".to_owned()]);
        expect.assert_eq(&request(version, &spec(&user, attributes)).to_string());
    }

    #[test]
    fn a_question_says_who_wants_what() {
        let pods = Attributes {
            verb: "list".to_owned(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            namespace: "a".to_owned(),
            field_selector: "spec.nodeName=n,metadata.name!=x".to_owned(),
            label_selector: "app in (a,b),!old,new,size>3,tier!=c".to_owned(),
            path: "/api/v1/namespaces/a/pods".to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        check(
            ReviewVersion::V1,
            &pods,
            expect![[
                r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"extra":{"scopes":["a"]},"groups":["dev","system:authenticated"],"resourceAttributes":{"fieldSelector":{"requirements":[{"key":"metadata.name","operator":"NotIn","values":["x"]},{"key":"spec.nodeName","operator":"In","values":["n"]}]},"labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a","b"]},{"key":"new","operator":"Exists"},{"key":"old","operator":"DoesNotExist"},{"key":"tier","operator":"NotIn","values":["c"]}]},"namespace":"a","resource":"pods","verb":"list","version":"v1"},"uid":"7","user":"jane"},"status":{"allowed":false}}"#
            ]],
        );
        let path =
            Attributes { verb: "get".to_owned(), path: "/metrics".to_owned(), ..Attributes::default() };
        check(
            ReviewVersion::V1Beta1,
            &path,
            expect![[
                r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","metadata":{},"spec":{"extra":{"scopes":["a"]},"group":["dev","system:authenticated"],"nonResourceAttributes":{"path":"/metrics","verb":"get"},"uid":"7","user":"jane"},"status":{"allowed":false}}"#
            ]],
        );
    }

    #[test]
    fn an_answer_is_of_the_kind_and_version_that_was_asked() {
        let check = |answer: &str, expect: Result<(bool, bool, &str), &str>| {
            let found = status(ReviewVersion::V1, answer.as_bytes());
            match (found, expect) {
                (Ok(found), Ok((allowed, denied, reason))) => {
                    assert_eq!(found, Status { allowed, denied, reason: reason.to_owned() }, "{answer}");
                }
                (Err(why), Err(expect)) => assert!(why.to_string().contains(expect), "{answer}: {why}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        };
        let good = |status: &str| {
            format!(
                "{{\"apiVersion\": \"authorization.k8s.io/v1\", \"kind\": \"SubjectAccessReview\", \"status\": {status}}}"
            )
        };
        check(&good("{\"allowed\": true, \"reason\": \"so\", \"x\": 1}"), Ok((true, false, "so")));
        check(&good("{\"denied\": true}"), Ok((false, true, "")));
        check(&good("{}"), Ok((false, false, "")));
        check(&good("null"), Ok((false, false, "")));
        check(&good("{\"allowed\": \"true\"}"), Err("invalid type"));
        check(&good("{\"allowed\": 1}"), Err("invalid type"));
        check(&good("[true]"), Err("invalid type"));
        check("{}", Err("the answer is \"\" of \"\""));
        check("", Err("no object"));
        check("null", Err("no object"));
        check(
            "[\"authorization.k8s.io/v1\", \"SubjectAccessReview\", {\"allowed\": true}]",
            Err("no object"),
        );
        check("{\"status\": {\"allowed\": true}}", Err("not SubjectAccessReview"));
        check(
            &good("{\"allowed\": true}").replace("/v1", "/v1beta1"),
            Err("of \"authorization.k8s.io/v1beta1\""),
        );
        check(&good("{\"allowed\": true}").replace("Subject", "SelfSubject"), Err("SelfSubjectAccessReview"));
        check(&"{\"a\":".repeat(100_000), Err("EOF"));
        let long = good(&format!("{{\"reason\": \"{}\"}}", "ä".repeat(5000)));
        assert_eq!(status(ReviewVersion::V1, long.as_bytes()).unwrap().reason.len(), REASON_BYTES_MAX);
    }

    #[test]
    fn what_is_long_is_not_kept() {
        let of = |length: usize| Attributes { name: "a".repeat(length), ..Attributes::default() };
        assert!(is_kept(&of(9_999)) && !is_kept(&of(10_000)));
    }
}
