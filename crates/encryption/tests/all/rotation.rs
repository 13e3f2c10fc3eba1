//! One configuration after the other: rules and their precedence, keys that come and go, other configurations while
//! the server runs.

use base::{Clock, Metrics, Tasks};
use encryption::{Config, Encryption};
use expect_test::{Expect, expect};

const PLACE: &str = "/registry/secrets/default/a";
const PLAIN: &[u8] = br#"{"kind":"Secret","data":{"password":"aHVzaA=="}}"#;
const A: &str = "{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const B: &str = "{name: b, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}";
const OTHER_A: &str = "{name: a, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}";

fn text(rules: &[(&str, &str)]) -> String {
    let rules = rules
        .iter()
        .map(|(resources, providers)| format!("- {{resources: [{resources}], providers: [{providers}]}}\n"));
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    head.chars().chain(rules.collect::<String>().chars()).collect()
}

async fn start(rules: &[(&str, &str)], metrics: &Metrics) -> Encryption {
    let config = Config::parse(text(rules).as_bytes(), false).unwrap();
    Encryption::start(Some(&config), false, "test", metrics, Clock::system(), &Tasks::new()).await
}

fn secretbox(keys: &[&str]) -> String {
    format!("{{secretbox: {{keys: [{}]}}}}", keys.join(", "))
}

fn aesgcm(keys: &[&str]) -> String {
    format!("{{aesgcm: {{keys: [{}]}}}}", keys.join(", "))
}

/// Writes with one configuration and reads with another.
async fn check(writer: &str, reader: &str, expect: Expect) {
    let metrics = Metrics::new();
    let writer = start(&[("secrets", writer)], &metrics).await;
    let stored = writer.transformer("", "secrets").seal(PLACE, PLAIN).unwrap().into_owned();
    let reader = start(&[("secrets", reader)], &metrics).await;
    let opened = reader.transformer("", "secrets");
    let said = match opened.open(PLACE, &stored).await {
        Ok((plain, is_stale)) => {
            assert_eq!(&*plain, PLAIN);
            if is_stale { "stale".to_owned() } else { "as it would be written".to_owned() }
        }
        Err(failure) => failure.to_string(),
    };
    expect.assert_eq(&said);
}

const NONE: &str = "{identity: {}}";

#[tokio::test]
async fn keys_and_providers_rotate() {
    let (a, b, both) = (secretbox(&[A]), secretbox(&[B]), secretbox(&[B, A]));
    check(&a, &a, expect!["as it would be written"]).await;
    check(&a, &secretbox(&[A, B]), expect!["as it would be written"]).await;
    check(&a, &both, expect!["stale"]).await;
    check(&b, &both, expect!["as it would be written"]).await;
    check(&a, &format!("{}, {a}", aesgcm(&[A])), expect!["stale"]).await;
    check(NONE, &format!("{a}, {NONE}"), expect!["stale"]).await;
    check(&a, &format!("{NONE}, {a}"), expect!["stale"]).await;
    check(&a, &format!("{b}, {a}"), expect!["stale"]).await;
    check(&a, &format!("{}, {a}", secretbox(&[OTHER_A])), expect!["stale"]).await;
}

#[tokio::test]
async fn what_cannot_be_read_says_which_key_it_needs() {
    let (a, b) = (secretbox(&[A]), secretbox(&[B]));
    check(
        &a,
        &b,
        expect![[
            r#"no matching key was found for the provided Secretbox transformer: the value begins with "a:""#
        ]],
    )
    .await;
    check(
        &a,
        &aesgcm(&[A]),
        expect![[r#"no matching prefix found: the value begins with "k8s:enc:secretbox:v1:a:""#]],
    )
    .await;
    check(NONE, &a, expect!["no matching prefix found"]).await;
    check(
        &a,
        NONE,
        expect![[r#"no matching prefix found: the value begins with "k8s:enc:secretbox:v1:a:""#]],
    )
    .await;
    check(&a, &secretbox(&[OTHER_A]), expect!["cipher: message authentication failed"]).await;
    check(
        &a,
        &format!("{}, {}", secretbox(&[OTHER_A]), b),
        expect![[
            r#"[cipher: message authentication failed, no matching key was found for the provided Secretbox transformer: the value begins with "a:"]"#
        ]],
    )
    .await;
}

#[tokio::test]
async fn kinds_without_a_rule_are_plain_and_refuse_what_is_encrypted() {
    let metrics = Metrics::new();
    let encryption = start(&[("secrets", &secretbox(&[A]))], &metrics).await;
    let plain = encryption.transformer("", "configmaps");
    assert!(!plain.is_configured());
    assert_eq!(&*plain.seal(PLACE, PLAIN).unwrap(), PLAIN);
    assert_eq!(&*plain.open(PLACE, PLAIN).await.unwrap().0, PLAIN);
    let refused = plain.open(PLACE, b"k8s:enc:aescbc:v1:a:x").await.unwrap_err();
    assert_eq!(refused.to_string(), "identity transformer tried to read encrypted data");
}

#[tokio::test]
async fn the_narrowest_rule_counts() {
    let metrics = Metrics::new();
    let encryption = start(
        &[
            ("secrets", &secretbox(&[A])),
            ("configmaps", NONE),
            ("'*.'", &aesgcm(&[A])),
            ("deployments.apps", NONE),
            ("'*.apps'", &aesgcm(&[B])),
            ("'*.*'", &secretbox(&[B])),
        ],
        &metrics,
    )
    .await;
    for (group, resource, prefix) in [
        ("", "secrets", "k8s:enc:secretbox:v1:a:"),
        ("", "configmaps", "{"),
        ("", "pods", "k8s:enc:aesgcm:v1:a:"),
        ("apps", "deployments", "{"),
        ("apps", "daemonsets", "k8s:enc:aesgcm:v1:b:"),
        ("batch", "jobs", "k8s:enc:secretbox:v1:b:"),
        ("bears.example", "pandas", "k8s:enc:secretbox:v1:b:"),
    ] {
        let transformer = encryption.transformer(group, resource);
        let stored = transformer.seal(PLACE, PLAIN).unwrap();
        assert!(stored.starts_with(prefix.as_bytes()), "{resource}.{group}");
    }
}

#[tokio::test]
async fn another_configuration_takes_over_and_a_broken_one_does_not() {
    let metrics = Metrics::new();
    let tasks = Tasks::new();
    let first = text(&[("secrets", &secretbox(&[A]))]);
    let config = Config::parse(first.as_bytes(), true).unwrap();
    let encryption = Encryption::start(Some(&config), true, "test", &metrics, Clock::system(), &tasks).await;
    let stored = encryption.transformer("", "secrets").seal(PLACE, PLAIN).unwrap().into_owned();
    let mut changed = encryption.changed();
    changed.borrow_and_update();

    assert!(!encryption.reload(first.as_bytes()).await.unwrap(), "the same file changes nothing");
    assert!(encryption.reload(b"kind: Pod").await.is_err());
    assert!(encryption.reload(text(&[("secrets", "{}")]).as_bytes()).await.is_err());
    assert!(!changed.has_changed().unwrap());
    assert!(!encryption.transformer("", "secrets").open(PLACE, &stored).await.unwrap().1);

    assert!(encryption.reload(text(&[("secrets", &secretbox(&[B, A]))]).as_bytes()).await.unwrap());
    assert!(changed.has_changed().unwrap());
    assert!(encryption.transformer("", "secrets").open(PLACE, &stored).await.unwrap().1, "stale now");
    assert!(encryption.has_health() && encryption.health().await.is_ok());

    let text = metrics.render();
    for line in [
        r#"apiserver_storage_transformation_operations_total{transformation_type="to_storage",transformer_prefix="k8s:enc:secretbox:v1:",status="OK"} 1"#,
        r#"apiserver_storage_transformation_operations_total{transformation_type="to_storage",transformer_prefix="a:",status="OK"} 1"#,
        r#"apiserver_storage_transformation_operations_total{transformation_type="from_storage",transformer_prefix="a:",status="OK"} 2"#,
        r#"apiserver_encryption_config_controller_automatic_reloads_total{status="failure""#,
        r#"apiserver_encryption_config_controller_automatic_reloads_total{status="success""#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(text.matches("last_config_info{").count(), 1, "only the configuration that counts is told");
}
