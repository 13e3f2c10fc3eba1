use expect_test::{Expect, expect};

use super::*;

const KEY_32: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

fn file(resources: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{resources}")
}

fn check(text: &str, expect: Expect) {
    let errors = match Config::parse(text.as_bytes(), false) {
        Ok(_) => "sound".to_owned(),
        Err(ConfigError::Invalid(errors)) => {
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        Err(other) => other.to_string(),
    };
    expect.assert_eq(&errors);
}

/// One rule in flow style.
fn check_rule(rule: &str, expect: Expect) {
    check(&file(&format!("- {}", rule.replace("KEY", KEY_32))), expect);
}

#[test]
fn upstreams_examples_are_sound() {
    let providers = format!(
        "
- resources: [secrets, configmaps, pandas.awesome.bears.example]
  providers:
  - identity: {{}}
  - aesgcm: {{keys: [{{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}}, {{name: key2, secret: dGhpcyBpcyBwYXNzd29yZA==}}]}}
  - aescbc: {{keys: [{{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}}]}}
  - secretbox: {{keys: [{{name: key1, secret: {KEY_32}}}]}}
- resources: [events]
  providers: [{{identity: {{}}}}]
- resources: ['*.apps']
  providers: [{{kms: {{apiVersion: v2, name: myKms, endpoint: 'unix:///tmp/a.sock', timeout: 100ms}}}}]
- resources: ['*.*']
  providers: [{{aescbc: {{keys: [{{name: k, secret: {KEY_32}}}]}}}}]
"
    );
    check(&file(&providers), expect!["sound"]);
}

#[test]
fn the_file_must_be_an_encryption_configuration() {
    check("", expect!["encryption provider configuration file is empty"]);
    check(
        "kind: Pod\napiVersion: v1",
        expect![[
            r#"no kind "Pod" is registered for version "v1"; it must be EncryptionConfiguration of apiserver.config.k8s.io/v1"#
        ]],
    );
    check(&file("  []"), expect!["resources: Required value: at least one resources is required"]);
}

#[test]
fn a_broken_file_never_shows_its_keys() {
    for broken in [
        "- resources: [secrets]\n  providers: [{aescbc: {keys: [{name: a, secert: HUSHHUSH}]}}]",
        "- resources: [secrets]\n  providers: [{aescbc: {keys: [{name: a, secret: [HUSHHUSH]}]}}]",
        "- resources: [secrets]\n  providers: [{aescbc: {keys: {a: HUSHHUSH}}}]",
        "- resources: [secrets]\n  providers: [{aescbc: {keys: [{name: a, secret: HUSHHUSH}, {name: a, secret: 'HUSHHUSH]",
        "- resources: [secrets]\n  providers: [{aescbc: {keys: [{name: a, secret: HUSHHUSH}]}}]",
    ] {
        let failure = Config::parse(file(broken).as_bytes(), false).err().map(|failure| failure.to_string());
        assert!(failure.as_ref().is_some_and(|text| !text.contains("HUSH")), "{failure:?}");
    }
}

#[test]
fn unknown_fields_are_named() {
    let text = file("- resources: [secrets]\n  provider: []\n");
    let failure = Config::parse(text.as_bytes(), false).unwrap_err().to_string();
    assert!(failure.contains("unknown field `provider`"), "{failure}");
}

#[test]
fn rules_need_resources_and_providers() {
    check_rule(
        "{}",
        expect![[r#"
            resources[0].resources: Required value: at least one resources[0].resources is required
            resources[0].providers: Required value: at least one resources[0].providers is required"#]],
    );
}

#[test]
fn resources_are_names_that_can_be_stored() {
    let check = |resources: &str, expect: Expect| {
        check_rule(&format!("{{resources: [{resources}], providers: [{{identity: {{}}}}]}}"), expect);
    };
    check(
        "Secrets",
        expect![[
            r#"resources[0].resources[0]: Invalid value: "Secrets": resource name should not contain capital letters"#
        ]],
    );
    check(
        "'*'",
        expect![[
            r#"resources[0].resources[0]: Invalid value: "*": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"#
        ]],
    );
    check(
        "serviceipallocations, events.events.k8s.io, '*.extensions', 'secrets.*'",
        expect![[r#"
            resources[0].resources[0]: Invalid value: "serviceipallocations": resources which do not have REST API/s cannot be encrypted
            resources[0].resources[1]: Invalid value: "events.events.k8s.io": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file
            resources[0].resources[2]: Invalid value: "*.extensions": 'extensions' group has been removed and cannot be used for encryption
            resources[0].resources[3]: Invalid value: "secrets.*": encrypting the same resource across groups is not supported"#]],
    );
    check(
        "secrets, secrets",
        expect![[
            r#"resources[0].resources: Invalid value: ["secrets","secrets"]: the same resource cannot be specified multiple times"#
        ]],
    );
    check(
        "'*.', secrets",
        expect![[
            r#"resources[0].resources: Invalid value: ["*.","secrets"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"#
        ]],
    );
    check(
        "'*.*', deployments.apps",
        expect![[
            r#"resources[0].resources: Invalid value: ["*.*","deployments.apps"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"#
        ]],
    );
}

#[test]
fn a_provider_is_exactly_one() {
    let check = |providers: &str, expect: Expect| {
        check_rule(&format!("{{resources: [secrets], providers: [{providers}]}}"), expect);
    };
    check(
        "{}",
        expect![[
            "resources[0].providers[0]: Invalid value: {}: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        ]],
    );
    check(
        "{identity: {}, aescbc: {keys: [{name: a, secret: KEY}]}}",
        expect![[
            "resources[0].providers[0]: Invalid value: {aescbc, identity}: more than one provider specified in a single element, should split into different list elements"
        ]],
    );
}

#[test]
fn keys_have_names_and_lengths() {
    let check = |providers: &str, expect: Expect| {
        check_rule(&format!("{{resources: [secrets], providers: [{providers}]}}"), expect);
    };
    check(
        "{aesgcm: {}}",
        expect!["resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required"],
    );
    check(
        "{aescbc: {keys: [{}, {name: a, secret: '?'}, {name: b, secret: YQ==}]}}, {secretbox: {keys: [{name: c, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}",
        expect![[r#"
            resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key
            resources[0].providers[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key
            resources[0].providers[0].aescbc.keys[1].secret: Invalid value: "REDACTED": secrets must be base64 encoded
            resources[0].providers[0].aescbc.keys[2].secret: Invalid value: "REDACTED": secret is not of the expected length, got 1, expected one of [16 24 32]
            resources[0].providers[1].secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]"#]],
    );
}

#[test]
fn kms_providers_are_checked_field_by_field() {
    let check = |providers: &str, expect: Expect| {
        check_rule(&format!("{{resources: [secrets], providers: [{providers}]}}"), expect);
    };
    check(
        "{kms: {apiVersion: v3, name: 'a:b', endpoint: 'tcp://a', timeout: 0s, cachesize: 3}}",
        expect![[r#"
            resources[0].providers[0].kms.name: Invalid value: "a:b": invalid KMS provider name a:b, must not contain ':'
            resources[0].providers[0].kms.timeout: Invalid value: "0s": timeout should be a positive value
            resources[0].providers[0].kms.endpoint: Invalid value: "tcp://a": unsupported scheme "tcp" for KMS provider, only unix is supported
            resources[0].providers[0].kms.cachesize: Invalid value: 3: cachesize is not supported in v2
            resources[0].providers[0].kms.apiVersion: Invalid value: "v3": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"#]],
    );
    check(
        "{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}, {kms: {apiVersion: v2, name: a}}",
        expect![[r#"
            resources[0].providers[1].kms.name: Invalid value: "a": duplicate KMS provider name a, names must be unique
            resources[0].providers[1].kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms"#]],
    );
    check(
        "{kms: {name: old, endpoint: 'unix:///a'}}",
        expect![[
            r#"the KMS provider "old" has apiVersion v1: KMSv1 is deprecated and not supported. Use KMSv2 instead: apiVersion: v2"#
        ]],
    );
}

#[test]
fn a_rule_that_never_counts_is_refused() {
    let two = |first: &str, second: &str| {
        file(&format!(
            "- {{resources: ['{first}'], providers: [{{identity: {{}}}}]}}\n- {{resources: ['{second}'], providers: [{{identity: {{}}}}]}}"
        ))
    };
    check(&two("secrets", "*."), expect!["sound"]);
    check(&two("*.", "secrets"), expect![[r#"resource "secrets" is masked by earlier rule "*.""#]]);
    check(
        &two("*.*", "deployments.apps"),
        expect![[r#"resource "deployments.apps" is masked by earlier rule "*.*""#]],
    );
    check(&two("*.apps", "*.apps"), expect![[r#"resource "*.apps" is masked by earlier rule "*.apps""#]]);
    check(&two("secrets", "secrets"), expect!["sound"]);
}
