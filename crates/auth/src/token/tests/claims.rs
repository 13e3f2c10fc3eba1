//! What a token says of its account and of what it is bound to, against what there is.
//!
//! Source: `TestClaims` and `TestValidatePrivateClaims` of upstream's `pkg/serviceaccount`.

use super::*;

/// A cluster with these objects, each `KIND/NAME=UID`.
struct Objects(&'static [&'static str]);

impl Objects {
    fn uid(&self, kind: &str, name: &str) -> Option<String> {
        let wanted = format!("{kind}/{name}=");
        self.0.iter().find_map(|object| object.strip_prefix(&wanted)).map(str::to_owned)
    }
}

impl Lookup for Objects {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("account", name).filter(|_| namespace == "ns")
    }
    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("pod", name).filter(|_| namespace == "ns")
    }
    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("secret", name).filter(|_| namespace == "ns")
    }
    fn node_uid(&self, name: &str) -> Option<String> {
        self.uid("node", name)
    }
}

/// What a token is bound to, what there is, and what is gone.
const BINDINGS: &[(&str, &str, &[&str], Option<&str>)] = &[
    ("nothing", "", &["account/saname=sauid"], None),
    ("an account that is gone", "", &[], Some("service account")),
    ("an account that was made again", "", &["account/saname=new"], Some("service account")),
    ("an account of another name", "", &["account/other=sauid"], Some("service account")),
    ("a secret", "secret", &["account/saname=sauid", "secret/secretname=secretuid"], None),
    ("a secret that is gone", "secret", &["account/saname=sauid"], Some("secret")),
    ("a secret made again", "secret", &["account/saname=sauid", "secret/secretname=new"], Some("secret")),
    ("a pod", "pod", &["account/saname=sauid", "pod/podname=poduid"], None),
    ("a pod that is gone", "pod", &["account/saname=sauid"], Some("pod")),
    ("a pod made again", "pod", &["account/saname=sauid", "pod/podname=new"], Some("pod")),
    ("a node", "node", &["account/saname=sauid", "node/nodename=nodeuid"], None),
    ("a node that is gone", "node", &["account/saname=sauid"], Some("node")),
    ("a node made again", "node", &["account/saname=sauid", "node/nodename=new"], Some("node")),
    ("a pod, whose node is only told", "pod node", &["account/saname=sauid", "pod/podname=poduid"], None),
    (
        "a pod that is gone from a node that is there",
        "pod node",
        &["account/saname=sauid", "node/nodename=nodeuid"],
        Some("pod"),
    ),
    ("a pod, whose account is gone", "pod", &["pod/podname=poduid"], Some("service account")),
];

fn private(bound: &str) -> Private {
    let reference = |kind: &str| {
        let is_bound = bound.split(' ').any(|one| one == kind);
        is_bound.then(|| Reference { name: format!("{kind}name"), uid: format!("{kind}uid") })
    };
    Private {
        namespace: "ns".into(),
        serviceaccount: Reference { name: "saname".into(), uid: "sauid".into() },
        pod: reference("pod"),
        secret: reference("secret"),
        node: reference("node"),
        warnafter: None,
    }
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let tokens = tokens();
    for &(name, bound, objects, gone) in BINDINGS {
        let token = tokens.issue(private(bound), &[], 600, at(0), "id".into()).expect("a token");
        let found = tokens.verify(&token, &[], at(1), &Objects(objects)).map(|(user, _)| user.name);
        let expect = match gone {
            Some(what) => Err(TokenError::Gone { what }),
            None => Ok("system:serviceaccount:ns:saname".to_owned()),
        };
        assert_eq!(found, expect, "{name}");
    }
    let elsewhere = Private { namespace: "other".into(), ..private("") };
    let token = tokens.issue(elsewhere, &[], 600, at(0), "id".into()).expect("a token");
    let found = tokens.verify(&token, &[], at(1), &Objects(&["account/saname=sauid"])).map(drop);
    assert_eq!(found, Err(TokenError::Gone { what: "service account" }), "of another namespace");
}

#[test]
fn what_a_token_says_is_what_was_asked_for() {
    let tokens = tokens();
    let audiences = |all: &[&str]| -> Vec<String> { all.iter().map(|one| (*one).to_owned()).collect() };
    for (name, bound, asked, seconds, expect) in [
        (
            "for the server itself",
            "pod",
            &[][..],
            100,
            r#"{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1800000100,"iat":1800000000,"iss":"https://kubernetes.default.svc.cluster.local","jti":"fixed","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"saname","uid":"sauid"},"pod":{"name":"podname","uid":"poduid"}},"nbf":1800000000,"sub":"system:serviceaccount:ns:saname"}"#,
        ),
        (
            "for one",
            "secret",
            &["1"],
            100,
            r#"{"aud":["1"],"exp":1800000100,"iat":1800000000,"iss":"https://kubernetes.default.svc.cluster.local","jti":"fixed","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"saname","uid":"sauid"},"secret":{"name":"secretname","uid":"secretuid"}},"nbf":1800000000,"sub":"system:serviceaccount:ns:saname"}"#,
        ),
        (
            "for two, bound to a node",
            "node",
            &["1", "2"],
            0,
            r#"{"aud":["1","2"],"exp":1800000000,"iat":1800000000,"iss":"https://kubernetes.default.svc.cluster.local","jti":"fixed","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"saname","uid":"sauid"},"node":{"name":"nodename","uid":"nodeuid"}},"nbf":1800000000,"sub":"system:serviceaccount:ns:saname"}"#,
        ),
    ] {
        let token = tokens.issue(private(bound), &audiences(asked), seconds, at(0), "fixed".into());
        let token = token.expect("a token");
        let body =
            token.split('.').nth(1).and_then(|body| URL_SAFE_NO_PAD.decode(body).ok()).expect("a body");
        assert_eq!(String::from_utf8_lossy(&body), expect, "{name}");
    }
}

/// Source: `TestTokenGenerateAndValidate`; whoever shows a token of a Pod is told apart by its Pod and Node.
#[test]
fn who_shows_a_token_has_its_account_groups_and_details() {
    let tokens = tokens();
    let all = Objects(&[
        "account/saname=sauid",
        "pod/podname=poduid",
        "node/nodename=nodeuid",
        "secret/secretname=secretuid",
    ]);
    for (bound, details) in [
        ("", "credential-id=JTI=id"),
        ("secret", "credential-id=JTI=id"),
        ("pod", "credential-id=JTI=id pod-name=podname pod-uid=poduid"),
        ("node", "credential-id=JTI=id node-name=nodename node-uid=nodeuid"),
        (
            "pod node",
            "credential-id=JTI=id node-name=nodename node-uid=nodeuid pod-name=podname pod-uid=poduid",
        ),
    ] {
        let token = tokens.issue(private(bound), &[], 600, at(0), "id".into()).expect("a token");
        let (user, _) = tokens.verify(&token, &[], at(0), &all).expect("good");
        let told: Vec<_> =
            user.extra.iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
        let told = told.join(" ").replace("authentication.kubernetes.io/", "");
        assert_eq!((user.uid.as_str(), told.as_str()), ("sauid", details), "{bound}");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(user.groups, groups, "{bound}");
    }
}

#[test]
fn audiences_are_those_of_whoever_asks() {
    let tokens = tokens();
    let all = Objects(&["account/saname=sauid"]);
    let list = |text: &str| -> Vec<String> {
        text.split(' ').filter(|one| !one.is_empty()).map(str::to_owned).collect()
    };
    for (meant, asked, is_good) in [
        ("", "", true),
        ("vault", "vault", true),
        ("a vault", "vault b", true),
        ("vault", "", false),
        ("", "vault", false),
        ("vault", "Vault", false),
        ("a b", "c", false),
    ] {
        let token = tokens.issue(private(""), &list(meant), 600, at(0), "id".into()).expect("a token");
        let found = tokens.verify(&token, &list(asked), at(0), &all);
        assert_eq!(found.is_ok(), is_good, "meant for {meant:?}, asked by {asked:?}");
        let legacy = tokens.verify_legacy(&token);
        assert_eq!(legacy, Err(TokenError::NotOurs), "it is none of a Secret");
    }
    let account = Reference { name: "saname".into(), uid: "sauid".into() };
    let legacy = tokens.issue_legacy("ns", "secretname", &account).expect("a token");
    let found = tokens.verify(&legacy, &[], at(0), &all).map(drop);
    assert_eq!(found, Err(TokenError::NotOurs), "one of a Secret is none that ends");
    for broken in ["", ".", "..", "a.b.c", &legacy[1..], &format!("{legacy}."), &format!("{legacy}=")] {
        assert_eq!(tokens.verify_legacy(broken), Err(TokenError::NotOurs), "{broken:?}");
        assert_eq!(tokens.verify(broken, &[], at(0), &all).map(drop), Err(TokenError::NotOurs), "{broken:?}");
    }
}
