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

const OVERLAP: &str = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
                       allowed as they will be masked";
const TWICE: &str = "the same resource cannot be specified multiple times";

/// Source: the rows of `TestStructure` in upstream's `validation_encryption_test.go` that are about resources.
#[test]
fn resources_are_as_upstreams_rows_have_them() {
    const EVENTS: &str = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' \
                          instead in the config file";
    const EXTENSIONS: &str = "'extensions' group has been removed and cannot be used for encryption";
    const NO_REST: &str = "resources which do not have REST API/s cannot be encrypted";
    const STAR: &str =
        "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources";
    for (resources, at, expect) in [
        (&["events.events.k8s.io"][..], "[0]", &[EVENTS][..]),
        (&["secret", "events.events.k8s.io"], "[1]", &[EVENTS]),
        (&["*.events.k8s.io"], "[0]", &[EVENTS]),
        (&["*.extensions"], "[0]", &[EXTENSIONS]),
        (&["foo.extensions"], "[0]", &[EXTENSIONS]),
        (&["*"], "[0]", &[STAR]),
        (&["apiServerIPInfo"], "[0]", &["resource name should not contain capital letters"]),
        (&["apiserveripinfo"], "[0]", &[NO_REST]),
        (&["serviceipallocations"], "[0]", &[NO_REST]),
        (&["servicenodeportallocations"], "[0]", &[NO_REST]),
        (&["*.apps", "*."], "", &[]),
        (&["secrets.*"], "[0]", &["encrypting the same resource across groups is not supported"]),
        (&["secrets", "secrets"], "", &[TWICE]),
        (&["secrets", "secrets", "secrets", "secrets"], "", &[TWICE]),
        (&["secrets", "secrets."], "", &[TWICE]),
        (&["*.apps", "*.", "*.*"], "", &[OVERLAP]),
        (&["deployments.apps", "*."], "", &[]),
        (&["deployments.apps", "*.apps"], "", &[OVERLAP]),
        (&["secrets", "*."], "", &[OVERLAP]),
        (&["pods", "*."], "", &[OVERLAP]),
        (&["secrets", "*.*"], "", &[OVERLAP]),
        (&["*.", "*.*"], "", &[OVERLAP]),
        // What those rows leave open.
        (&["*.", "*."], "", &[TWICE, OVERLAP]),
        (&["*.*", "*.*"], "", &[TWICE, OVERLAP]),
        (&["*.apps", "*.batch", "secrets"], "", &[]),
        (&["secrets", "secrets.example.com"], "", &[]),
        (&["secrets", "configmaps", "secrets", "*."], "", &[TWICE, OVERLAP]),
    ] {
        let rule = ResourceConfiguration {
            resources: resources.iter().map(|&text| text.to_owned()).collect(),
            providers: vec![ProviderConfiguration { identity: Some(Identity {}), ..Default::default() }],
        };
        let errors = validation::validate(&[rule], false);
        let shown = |one: &str| match at {
            "" => format!("{resources:?}").replace("\", \"", "\",\""),
            _ => format!("{:?}", one),
        };
        let one = resources.last().copied().unwrap_or_default();
        let expect: Vec<String> = expect
            .iter()
            .map(|detail| format!("resources[0].resources{at}: Invalid value: {}: {detail}", shown(one)))
            .collect();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{resources:?}");
    }
}

/// Source: the rows of `TestStructure` and `TestKMSProviderName` of upstream that are about names of KMS providers.
#[test]
fn names_of_plugins_are_taken_once() {
    let (one, two) = ("resources[0].providers[1]", "resources[1].providers[0]");
    for (versions, is_one_rule, is_reloaded, expect) in [
        (["v1", "v2"], true, false, Some(one)),
        (["v2", "v2"], true, false, Some(one)),
        (["v2", "v2"], false, false, Some(two)),
        (["v1", "v2"], false, false, Some(two)),
        (["v1", "v1"], true, false, None),
        (["v1", "v1"], true, true, Some(one)),
        (["v2", "v1"], true, false, None),
        (["v2", "v1"], true, true, Some(one)),
    ] {
        let mut providers = versions.map(|version| ProviderConfiguration {
            kms: Some(Kms {
                api_version: version.to_owned(),
                name: "foo".to_owned(),
                endpoint: "unix:///tmp/kms-provider.socket".to_owned(),
                ..Kms::default()
            }),
            ..ProviderConfiguration::default()
        });
        let rule = |providers: &mut [ProviderConfiguration]| ResourceConfiguration {
            resources: vec!["secrets".to_owned()],
            providers: providers.iter_mut().map(std::mem::take).collect(),
        };
        let rules = match is_one_rule {
            true => vec![rule(&mut providers)],
            false => providers.chunks_mut(1).map(rule).collect(),
        };
        let errors = validation::validate(&rules, is_reloaded);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let expect = expect.map(|at| {
            format!(
                "{at}.kms.name: Invalid value: \"foo\": duplicate KMS provider name foo, names must be unique"
            )
        });
        assert_eq!(errors, Vec::from_iter(expect), "{versions:?} {is_one_rule} {is_reloaded}");
    }
}

/// Source: `TestKMSProviderTimeout`, `TestKMSEndpoint`, `TestKMSProviderCacheSize`, `TestKMSProviderAPIVersion` and
/// `TestKMSProviderName` of upstream, and what defaults make of what is left out.
#[test]
fn fields_of_plugins_are_as_upstreams_rows_have_them() {
    let check = |field: &str, expect: &str| {
        let usual = ["apiVersion: v2", "name: foo", "endpoint: 'unix:///socket.sock'"];
        let name = field.split(':').next().unwrap();
        let others = usual.iter().filter(|text| !text.starts_with(name)).copied();
        let fields: Vec<&str> = others.chain([field]).collect();
        let text =
            file(&format!("- {{resources: [secrets], providers: [{{kms: {{{}}}}}]}}", fields.join(", ")));
        let found = match Config::parse(text.as_bytes(), false) {
            Ok(_) => String::new(),
            Err(error) => error.to_string().replace("resources[0].providers[0].kms.", ""),
        };
        assert_eq!(found, expect, "{field}");
    };
    let negative =
        |shown: &str| format!("timeout: Invalid value: {shown:?}: timeout should be a positive value");
    for sound in [
        "timeout: 1m0s",
        "timeout: 1.5h",
        "timeout: 1h2m3.5s",
        "timeout: 100ms",
        "timeout: .5s",
        "timeout: +1s",
        "timeout: 3\u{b5}s",
        "timeout: ",
        "cachesize: ",
    ] {
        check(sound, "");
    }
    for bad in ["-1m0s", "0s", "0", "3 seconds", "1d", "PT3S", "3", "1s ", "s", "soon"] {
        check(&format!("timeout: '{bad}'"), &negative(bad));
    }
    check("endpoint: ", "endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms");
    check(
        "endpoint: 'https://www.foo.com'",
        "endpoint: Invalid value: \"https://www.foo.com\": unsupported scheme \"https\" for KMS provider, only unix is supported",
    );
    check(
        r#"endpoint: "unix:///foo\n.socket""#,
        r#"endpoint: Invalid value: "unix:///foo\n.socket": invalid endpoint for kms provider, error: parse "unix:///foo\n.socket": net/url: invalid control character in URL"#,
    );
    check("cachesize: 10", "cachesize: Invalid value: 10: cachesize is not supported in v2");
    check("cachesize: 0", "cachesize: Invalid value: 0: cachesize is not supported in v2");
    check(
        "apiVersion: v3",
        "apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported",
    );
    check("name: ", "name: Required value: name is a mandatory field for a provider");
    check(
        "name: 'foo:bar'",
        "name: Invalid value: \"foo:bar\": invalid KMS provider name foo:bar, must not contain ':'",
    );
    let old = "the KMS provider \"foo\" has apiVersion v1: KMSv1 is deprecated and not supported. Use KMSv2 instead: \
               apiVersion: v2";
    for version in ["apiVersion: v1", "apiVersion: ''", "apiVersion: "] {
        check(version, old);
    }
}

/// Source: `TestKMSProviderCacheSize` of upstream, for what is not served.
#[test]
fn caches_of_old_plugins_are_as_upstreams_rows_have_them() {
    for (cachesize, expect) in [
        (10, ""),
        (-1, ""),
        (0, "cachesize: Invalid value: 0: cachesize should be a positive value, or negative to disable"),
    ] {
        let kms = Kms {
            name: "foo:bar".into(),
            endpoint: "unix:///a".into(),
            cachesize: Some(cachesize),
            ..Kms::default()
        };
        let rule = ResourceConfiguration {
            resources: vec!["secrets".into()],
            providers: vec![ProviderConfiguration { kms: Some(kms), ..ProviderConfiguration::default() }],
        };
        let errors: Vec<String> =
            validation::validate(&[rule], false).iter().map(ToString::to_string).collect();
        assert_eq!(errors.join("\n").replace("resources[0].providers[0].kms.", ""), expect, "{cachesize}");
    }
}

/// Source: `TestKey` of upstream.
#[test]
fn keys_are_as_upstreams_rows_have_them() {
    for (key, expect) in [
        ("{name: foo, secret: c2VjcmV0IGlzIHNlY3VyZQ==}", ""),
        ("{name: foo, secret: \"c2VjcmV0IGlz\\nIHNlY3VyZQ==\\r\\n\"}", ""),
        ("{secret: c2VjcmV0IGlzIHNlY3VyZQ==}", "name: Required value: name is a mandatory field for a key"),
        (
            "{name: , secret: c2VjcmV0IGlzIHNlY3VyZQ==}",
            "name: Required value: name is a mandatory field for a key",
        ),
        ("{name: foo}", "secret: Required value: secret is a mandatory field for a key"),
        ("{name: foo, secret: }", "secret: Required value: secret is a mandatory field for a key"),
        (
            "{name: foo, secret: 'P@ssword'}",
            "secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        // Without padding, with blanks, or of the other alphabet it is none.
        (
            "{name: foo, secret: c2VjcmV0IGlzIHNlY3VyZQ}",
            "secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            "{name: foo, secret: 'c2VjcmV0IGlz IHNlY3VyZQ=='}",
            "secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            "{name: foo, secret: '________________________________________-_8='}",
            "secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            "{name: foo, secret: cGFzc3dvcmQK}",
            "secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 9, expected one of [16 24 32]",
        ),
    ] {
        let text = file(&format!("- {{resources: [secrets], providers: [{{aescbc: {{keys: [{key}]}}}}]}}"));
        let found =
            Config::parse(text.as_bytes(), false).err().map(|error| error.to_string()).unwrap_or_default();
        let found = found.replace("resources[0].providers[0].aescbc.keys[0].", "");
        assert_eq!(found, expect, "{key}");
    }
}

/// Source: `TestWildcardMasking` of upstream.
#[test]
fn rules_are_masked_as_upstreams_rows_have_it() {
    let masked =
        |rule: &str, earlier: &str| format!("resource {rule:?} is masked by earlier rule {earlier:?}");
    for (rules, expect) in [
        (&[&["configmaps"][..], &["*."], &["secrets"]][..], masked("secrets", "*.")),
        (&[&["*."], &["*."]], masked("*.", "*.")),
        (&[&["*.foo"], &["*.foo"]], masked("*.foo", "*.foo")),
        (&[&["*.*"], &["*.*"]], masked("*.*", "*.*")),
        (&[&["configmaps"], &["*.*"], &["secrets"]], masked("secrets", "*.*")),
        (&[&["configmaps"], &["*.*"], &["*."]], masked("*.", "*.*")),
        (&[&["*."], &["*.*"]], String::new()),
        (&[&["configmaps"], &["secrets"], &["*.*"]], String::new()),
        (&[&["configmaps", "secrets"], &["*.*"]], String::new()),
        (&[&["*.apps"], &["*."], &["deployments.batch"], &["*.*"]], String::new()),
        (&[&["*.apps"], &["deployments.apps"]], masked("deployments.apps", "*.apps")),
        (&[&["*."], &["secrets."]], masked("secrets", "*.")),
    ] {
        let text: String = rules
            .iter()
            .map(|resources| format!("- {{resources: {resources:?}, providers: [{{identity: {{}}}}]}}\n"))
            .collect();
        let found = Config::parse(file(&text).as_bytes(), false);
        assert_eq!(found.err().map(|error| error.to_string()).unwrap_or_default(), expect, "{rules:?}");
    }
}

/// Source: upstream's `testdata/invalid-configs`, and files that nobody would write.
#[test]
fn files_that_are_none_are_refused() {
    let text = file("- {resources: [secrets], providers: [{aesgcm: {keys: }}]}");
    let error = Config::parse(text.as_bytes(), false).unwrap_err().to_string();
    assert_eq!(error, "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required");
    let kind = |from: &str, to: &str| {
        file("- {resources: [secrets], providers: [{identity: {}}]}").replace(from, to)
    };
    for (name, text, expect) in [
        ("a typo", kind("{identity: {}}", "{identity: {pandas: are the best}}"), "unknown field `pandas`"),
        ("another kind", kind("Configuration\n", "Configurations\n"), "no kind \"EncryptionConfigurations\""),
        ("no kind", kind("kind:", "kinds:"), "no kind \"\""),
        ("another version", kind("k8s.io/v1", "k8s.io/v2"), "for version \"apiserver.config.k8s.io/v2\""),
        ("blanks", " \n".to_owned(), ""),
        ("a comment", "# nothing".to_owned(), ""),
        ("a list", "[]".to_owned(), ""),
        ("a text", "secrets".to_owned(), ""),
        ("no text", "\0".to_owned(), ""),
        ("nested without end", "[".repeat(100_000), ""),
        ("a bomb", format!("a: &a [{}]\nb: *a\nresources: *a\n", "x, ".repeat(1000)), ""),
    ] {
        let error = Config::parse(text.as_bytes(), false).expect_err(name).to_string();
        assert!(error.contains(expect), "{name}: {error}");
    }
    assert!(Config::parse(b"\xff\xfe", false).is_err(), "no UTF-8");
}
