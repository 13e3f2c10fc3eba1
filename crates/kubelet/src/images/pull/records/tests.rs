use super::*;

fn source(uid: &str, hash: &str) -> Source {
    Source { uid: uid.into(), namespace: "ns".into(), name: "s".into(), hash: hash.into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

async fn may(records: &Records, image: &str, secrets: &[Source]) -> bool {
    records.check(image, "sha256:1", secrets.iter(), at(2)).await.is_enough()
}

#[tokio::test]
async fn an_image_is_for_those_who_have_proved_that_they_may_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), Verification::NeverVerifyPreloadedImages);
    records.recover(Vec::new(), at(0)).await;
    assert!(may(&records, "r.example/a:1", &[]).await, "it was there before");
    let intent = records.intend("r.example/a:1").await;
    assert_eq!(records.counts().await, (1, 0));
    assert!(!may(&records, "r.example/a:1", &[]).await, "it is being pulled");
    let mine = source("1", "h");
    records.pulled(intent, "r.example/a:1", "sha256:1", Access::Secret(mine.clone()), at(1)).await;
    for (name, image, secrets, expect) in [
        ("nobody", "r.example/a:1", &[][..], false),
        ("another", "r.example/a:1", &[source("2", "x")][..], false),
        ("by another name", "r.example/b:1", std::slice::from_ref(&mine), false),
        ("the same", "r.example/a:2", std::slice::from_ref(&mine), true),
        ("the same content elsewhere", "r.example/a:1", &[source("3", "h")], true),
        ("the same secret, changed", "r.example/a:1", &[source("1", "new")], true),
        ("what was learnt thereby", "r.example/a:1", &[source("4", "new")], true),
    ] {
        assert_eq!(may(&records, image, secrets).await, expect, "{name}");
    }
    assert_eq!(records.counts().await, (0, 1));
    let intent = records.intend("r.example/a:1").await;
    records.pulled(intent, "r.example/a:1", "sha256:1", Access::Everyone, at(3)).await;
    assert!(may(&records, "r.example/a:1", &[]).await, "the registry gives it to everybody");
    records.prune(BTreeSet::new(), at(9)).await;
    assert_eq!(std::fs::read_dir(dir.path().join("pulled")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_crash_does_not_make_a_pulled_image_everybodys() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path(), Verification::NeverVerifyPreloadedImages);
    records.recover(Vec::new(), at(0)).await;
    drop(records.intend("busybox").await);
    let records = Records::new(dir.path(), Verification::NeverVerifyPreloadedImages);
    let image = cri::v1::Image {
        id: "sha256:1".into(),
        repo_tags: vec!["docker.io/library/busybox:latest".into()],
        ..Default::default()
    };
    records.recover(vec![image], at(1)).await;
    assert!(!may(&records, "busybox", &[]).await);
    assert_eq!(std::fs::read_dir(dir.path().join("pulling")).unwrap().count(), 0);
}

#[tokio::test]
async fn other_policies_ask_others_for_proof() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, expect) in [(Verification::NeverVerify, true), (Verification::AlwaysVerify, false)] {
        let records = Records::new(dir.path(), policy.clone());
        records.recover(Vec::new(), at(0)).await;
        assert_eq!(may(&records, "r.example/a:1", &[]).await, expect, "{policy:?}");
    }
    let records = Records::new(dir.path(), Verification::AlwaysVerify);
    let intent = records.intend("r.example/a:1").await;
    records.pulled(intent, "r.example/a:1", "sha256:1", Access::Everyone, at(1)).await;
    assert!(may(&records, "r.example/a:1", &[]).await, "the registry gives it to everybody");
}

fn secret(uid: &str, namespace: &str, hash: &str) -> KubernetesSecret {
    KubernetesSecret {
        uid: uid.into(),
        namespace: namespace.into(),
        name: "pull-secret".into(),
        credential_hash: hash.into(),
    }
}

/// Source: `TestFileBasedImagePullManager_MustAttemptImagePull` of upstream's `pkg/kubelet/images/pullmanager`.
#[test]
fn a_pod_uses_what_it_has_a_right_to_as_upstream_says() {
    let record = |known: Credentials| Record {
        credential_mapping: [("docker.io/testing/test".to_owned(), known)].into(),
        ..Record::default()
    };
    let of = |hash: &str| Credentials {
        kubernetes_secrets: vec![secret("u", "default", hash)],
        ..Credentials::default()
    };
    let (one, broken) = (record(of("hash")), record(of("")));
    let everybodys = record(Credentials { node_pods_accessible: true, ..Credentials::default() });
    let (test, other) = ("docker.io/testing/test", "docker.io/testing/different");
    for (name, record, image, secrets, expect) in [
        ("the very secret", Some(&one), test, vec![secret("u", "default", "hash")], "use"),
        ("none", Some(&one), test, vec![], "ask"),
        ("with other content", Some(&one), test, vec![secret("u", "default", "different")], "remember"),
        ("another of its name", Some(&one), test, vec![secret("different", "default", "different")], "ask"),
        ("another of another namespace", Some(&one), test, vec![secret("u", "other", "different")], "ask"),
        ("which has the same content", Some(&one), test, vec![secret("u", "other", "hash")], "remember"),
        (
            "the second is right",
            Some(&one),
            test,
            vec![secret("x", "other", "x"), secret("u", "default", "hash")],
            "use",
        ),
        ("by another name", Some(&one), other, vec![secret("u", "default", "hash")], "ask"),
        (
            "nobody has ever proved anything",
            Some(&Record::default()),
            test,
            vec![secret("u", "default", "hash")],
            "ask",
        ),
        ("no record", None, test, vec![secret("u", "default", "hash")], "ask"),
        ("it is everybody's", Some(&everybodys), test, vec![], "use"),
        ("also with a secret", Some(&everybodys), test, vec![secret("u", "default", "hash")], "use"),
        ("no hash is like no other", Some(&broken), test, vec![secret("u", "other", "")], "ask"),
        ("but of the very secret", Some(&broken), test, vec![secret("u", "default", "")], "use"),
    ] {
        let found = match judge(record, image, &secrets) {
            Verdict::Use => "use",
            Verdict::UseAndRemember(_) => "remember",
            Verdict::Ask => "ask",
        };
        assert_eq!(found, expect, "{name}");
    }
}

/// Source: `Test_pulledRecordMergeNewCreds` of upstream's `pkg/kubelet/images/pullmanager`.
#[test]
fn rights_are_added_to_those_that_are_known() {
    let (a, b) = (secret("1", "a", "x"), secret("2", "b", "y"));
    let mut known = Credentials::default();
    let mut add = |secret: Option<&KubernetesSecret>| {
        remember(&mut known, secret.cloned());
        let shown = |it: &KubernetesSecret| format!("{}/{}={}", it.namespace, it.uid, it.credential_hash);
        let secrets: Vec<_> = known.kubernetes_secrets.iter().map(shown).collect();
        (known.node_pods_accessible, secrets.join(" "))
    };
    assert_eq!(add(Some(&b)), (false, "b/2=y".into()));
    assert_eq!(add(Some(&a)), (false, "a/1=x b/2=y".into()), "in order, whenever they come");
    assert_eq!(add(Some(&a)), (false, "a/1=x b/2=y".into()));
    assert_eq!(add(Some(&secret("1", "a", "new"))), (false, "a/1=new b/2=y".into()));
    assert_eq!(add(Some(&secret("9", "a", "new"))), (false, "a/1=new a/9=new b/2=y".into()));
    assert_eq!(add(None), (true, String::new()), "it is everybody's");
    assert_eq!(add(Some(&a)), (true, String::new()), "and stays so");
}

#[test]
fn so_many_secrets_are_known_and_no_more() {
    let mut known = Credentials::default();
    for number in 0..SECRETS_MAX + 5 {
        remember(&mut known, Some(secret(&number.to_string(), "a", "x")));
    }
    assert_eq!(known.kubernetes_secrets.len(), SECRETS_MAX);
    remember(&mut known, Some(secret("0", "a", "new")));
    assert!(known.kubernetes_secrets.contains(&secret("0", "a", "new")), "one that is known may change");
}
