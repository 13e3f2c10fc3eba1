//! The stored formats, by values that were made without this crate (`fixtures/vectors.py`), and what is done with
//! stored bytes that nobody wrote.

use base::{Clock, Metrics, Random, Tasks};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encryption::{Config, Encryption};
use serde::Deserialize;
use testkit::kms::Plugin;

#[derive(Deserialize)]
struct Vectors {
    place: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    provider: String,
    key: String,
    #[serde(default)]
    source: String,
    plain: String,
    stored: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../fixtures/vectors.json")).unwrap()
}

fn config(providers: &str) -> Config {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{providers}]\n"
    );
    Config::parse(text.as_bytes(), false).unwrap()
}

async fn start(providers: &str) -> Encryption {
    let tasks = Tasks::new();
    Encryption::start(Some(&config(providers)), false, "test", &Metrics::new(), Clock::system(), &tasks).await
}

fn keys(provider: &str, key: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: key1, secret: {key}}}]}}}}")
}

#[tokio::test]
async fn what_others_have_stored_is_read() {
    let Vectors { place, vectors } = vectors();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kms.sock");
    let plugin = Plugin::start(&socket).unwrap();
    let kms = format!("{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}'}}}}", socket.display());
    assert_eq!(vectors.len(), 45);
    for vector in vectors {
        let [key, source, plain, stored] = [&vector.key, &vector.source, &vector.plain, &vector.stored]
            .map(|text| STANDARD.decode(text).unwrap());
        plugin.set(|plugin| drop(plugin.known.insert(source, key)));
        let provider =
            if vector.provider == "kms" { kms.clone() } else { keys(&vector.provider, &vector.key) };
        let encryption = start(&provider).await;
        let opened = encryption.transformer("", "secrets").open(&place, &stored).await;
        let (opened, is_stale) = opened.unwrap_or_else(|failure| panic!("{}: {failure}", vector.name));
        assert_eq!(*opened, plain, "{}", vector.name);
        assert_eq!(is_stale, vector.name.starts_with("kms key"), "{}: seeds have replaced keys", vector.name);
        let elsewhere =
            encryption.transformer("", "secrets").open("/registry/secrets/default/b", &stored).await;
        let is_bound = matches!(vector.provider.as_str(), "aesgcm" | "kms");
        assert_eq!(elsewhere.is_err(), is_bound, "{}: a value is bound to its place", vector.name);
    }
}

#[tokio::test]
async fn what_is_written_is_read_back_and_never_written_twice_alike() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kms.sock");
    let _plugin = Plugin::start(&socket).unwrap();
    let random = Random::seeded(7);
    let key = |bytes: usize| STANDARD.encode(vec![3; bytes]);
    for (provider, prefix, longer) in [
        (keys("aescbc", &key(16)), "k8s:enc:aescbc:v1:key1:", None),
        (keys("aescbc", &key(24)), "k8s:enc:aescbc:v1:key1:", None),
        (keys("aescbc", &key(32)), "k8s:enc:aescbc:v1:key1:", None),
        (keys("aesgcm", &key(16)), "k8s:enc:aesgcm:v1:key1:", Some(12 + 16)),
        (keys("aesgcm", &key(24)), "k8s:enc:aesgcm:v1:key1:", Some(12 + 16)),
        (keys("aesgcm", &key(32)), "k8s:enc:aesgcm:v1:key1:", Some(12 + 16)),
        (keys("secretbox", &key(32)), "k8s:enc:secretbox:v1:key1:", Some(24 + 16)),
        (
            format!("{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}'}}}}", socket.display()),
            "k8s:enc:kms:v2:vault:",
            None,
        ),
    ] {
        let encryption = start(&provider).await;
        let transformer = encryption.transformer("", "secrets");
        for length in (0..50).chain([4096, 70_001]) {
            let plain: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            let (one, two) = (transformer.seal("p", &plain).unwrap(), transformer.seal("p", &plain).unwrap());
            assert_ne!(one, two, "{prefix}: a nonce is never used twice");
            assert!(one.starts_with(prefix.as_bytes()), "{prefix}");
            if let Some(longer) = longer {
                assert_eq!(one.len(), prefix.len() + plain.len() + longer);
            }
            if plain.len() > 8 {
                assert!(!one.windows(plain.len()).any(|window| window == plain), "{prefix}: plain text");
            }
            let (opened, is_stale) = transformer.open("p", &one).await.unwrap();
            assert_eq!((&*opened, is_stale), (&*plain, false), "{prefix}");
        }
    }
}

#[tokio::test]
async fn broken_bytes_are_an_error_and_nothing_worse() {
    let Vectors { place, vectors } = vectors();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kms.sock");
    let plugin = Plugin::start(&socket).unwrap();
    let kms = format!("{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}'}}}}", socket.display());
    let random = Random::seeded(11);
    for vector in vectors.iter().filter(|vector| !vector.name.contains("long")) {
        let [key, source, stored] =
            [&vector.key, &vector.source, &vector.stored].map(|text| STANDARD.decode(text).unwrap());
        plugin.set(|plugin| drop(plugin.known.insert(source, key)));
        let provider =
            if vector.provider == "kms" { kms.clone() } else { keys(&vector.provider, &vector.key) };
        let encryption = start(&provider).await;
        let transformer = encryption.transformer("", "secrets");
        // AES-CBC cannot tell: whoever may write to the store can change values. That is upstream's warning too.
        let is_authentic = vector.provider != "aescbc";
        let plain = STANDARD.decode(&vector.plain).unwrap();
        for length in 0..stored.len() {
            // What a plugin notes at the end of an envelope is the plugin's business.
            if let Ok((opened, _)) = transformer.open(&place, &stored[..length]).await {
                assert!(*opened == plain || !is_authentic, "{}: cut at {length}", vector.name);
            }
        }
        for _ in 0..400 {
            let mut flipped = stored.clone();
            let at = usize::try_from(random.below(flipped.len() as u64)).unwrap();
            flipped[at] ^= 1 << random.below(8);
            if let Ok((opened, _)) = transformer.open(&place, &flipped).await {
                assert!(*opened == plain || !is_authentic, "{}: flipped at {at}", vector.name);
            }
        }
        for _ in 0..200 {
            let tail = (0..random.below(80)).map(|_| u8::try_from(random.below(256)).unwrap());
            let made_up: Vec<u8> = stored[..stored.len().min(26)].iter().copied().chain(tail).collect();
            if let Ok((opened, _)) = transformer.open(&place, &made_up).await {
                assert!(!is_authentic, "{}: {opened:?}", vector.name);
            }
        }
    }
}

/// Source: `TestWildcardStructure` of upstream, with a key for each plugin.
#[tokio::test]
async fn each_kind_is_written_by_the_rule_that_is_closest() {
    let rule = |resources: &str, key: &str| {
        let secret = STANDARD.encode([7; 32]);
        format!(
            "- {{resources: [{resources}], providers: [{{aescbc: {{keys: [{{name: {key}, secret: {secret}}}]}}}}]}}\n"
        )
    };
    let rules = [
        rule("configmaps, '*.apps'", "kms"),
        rule("secrets", "another"),
        rule("'*.'", "fancy"),
        rule("'*.*'", "yet-another"),
    ];
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{}",
        rules.concat()
    );
    let config = Config::parse(text.as_bytes(), false).unwrap();
    let tasks = Tasks::new();
    let encryption =
        Encryption::start(Some(&config), false, "test", &Metrics::new(), Clock::system(), &tasks).await;
    for (group, resource, key) in [
        ("", "configmaps", "kms"),
        ("", "secrets", "another"),
        ("", "events", "fancy"),
        ("apps", "deployments", "kms"),
        ("", "pods", "fancy"),
        ("", "pandas", "fancy"),
        ("bears", "pandas", "yet-another"),
        ("apps", "jobs", "kms"),
        ("bears", "secrets", "yet-another"),
    ] {
        let sealed = encryption.transformer(group, resource).seal("place", b"value").unwrap();
        let prefix = format!("k8s:enc:aescbc:v1:{key}:");
        assert!(sealed.starts_with(prefix.as_bytes()), "{resource}.{group}");
    }
}

/// Source: `TestEncryptionProviderConfigCorrect` of upstream: whoever stands first writes, and all of them read.
#[tokio::test]
async fn providers_read_what_any_of_them_has_written_wherever_they_stand() {
    let secret = |bytes: &[u8]| STANDARD.encode(bytes);
    let two = format!(
        "[{{name: key1, secret: {}}}, {{name: key2, secret: {}}}]",
        secret(b"secret is secure"),
        secret(b"this is password")
    );
    let one = format!("[{{name: key1, secret: {}}}]", secret(b"abcdefghijklmnopqrstuvwxyz123456"));
    let all = [
        ("k8s:enc:aesgcm:v1:key1:", format!("{{aesgcm: {{keys: {two}}}}}")),
        ("k8s:enc:aescbc:v1:key1:", format!("{{aescbc: {{keys: {two}}}}}")),
        ("k8s:enc:secretbox:v1:key1:", format!("{{secretbox: {{keys: {one}}}}}")),
        ("", "{identity: {}}".to_owned()),
    ];
    let mut servers = Vec::new();
    for first in 0..all.len() {
        let mut order: Vec<&str> = all.iter().map(|(_, provider)| provider.as_str()).collect();
        order.swap(0, first);
        servers.push((all[first].0, start(&order.join(", ")).await));
    }
    let original: &[u8] = &[77, 110, 78, 0, 255, b':'];
    for (prefix, writer) in &servers {
        let sealed = writer.transformer("", "secrets").seal("place", original).unwrap();
        assert!(sealed.starts_with(prefix.as_bytes()), "{prefix}");
        for (of, reader) in &servers {
            let opened = reader.transformer("", "secrets").open("place", &sealed).await;
            let (opened, is_stale) =
                opened.unwrap_or_else(|failure| panic!("{of} reads {prefix}: {failure}"));
            assert_eq!((&*opened, is_stale), (original, of != prefix), "{of} reads {prefix}");
        }
    }
    // What nobody in the list has written is told of, without the value.
    let alone = start(&format!("{{aesgcm: {{keys: {two}}}}}")).await;
    let secrets = alone.transformer("", "secrets");
    for (stored, expect) in [
        (&b"plain"[..], "no matching prefix found"),
        (
            b"k8s:enc:aescbc:v1:key1:xxxx",
            "no matching prefix found: the value begins with \"k8s:enc:aescbc:v1:key1:\"",
        ),
        (
            b"k8s:enc:aesgcm:v1:key3:xxxx",
            "no matching key was found for the provided AES transformer: the value begins with \"key3:\"",
        ),
        (b"k8s:enc:aesgcm:v1:", "no matching key was found for the provided AES transformer"),
        (b"k8s:enc:aesgcm:v1:key1:", "the stored data was shorter than the required size"),
        (b"k8s:enc:aesgcm:v1:key1:0123456789ab", "cipher: message authentication failed"),
    ] {
        let failure = secrets.open("place", stored).await.unwrap_err().to_string();
        assert_eq!(failure, expect, "{}", stored.escape_ascii());
    }
}
