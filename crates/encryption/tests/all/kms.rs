//! KMS v2 against a plugin on a unix socket: seeds, rotation, a plugin that is away, health.

use std::path::PathBuf;
use std::time::Duration;

use base::{Clock, Metrics, Tasks};
use encryption::{Config, Encryption};
use testkit::kms::{Behaviour, Plugin};

const PLACE: &str = "/registry/secrets/default/a";
const PLAIN: &[u8] = b"a value";

struct Fixture {
    clock: Clock,
    metrics: Metrics,
    socket: PathBuf,
    timeout: &'static str,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
        let socket = folder.path().join("kms.sock");
        Self { clock, metrics: Metrics::new(), socket, timeout: "3s", _folder: folder }
    }

    fn plugin(&self) -> Plugin {
        Plugin::start(&self.socket).unwrap()
    }

    fn text(&self) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{{kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}', timeout: {}}}}}]\n",
            self.socket.display(),
            self.timeout,
        )
    }

    async fn server(&self) -> Encryption {
        let config = Config::parse(self.text().as_bytes(), false).unwrap();
        let (clock, tasks) = (self.clock.clone(), Tasks::new());
        Encryption::start(Some(&config), false, "test", &self.metrics, clock, &tasks).await
    }

    fn later(&self, seconds: i64) {
        let now = self.clock.now().saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
        self.clock.set(now);
    }
}

/// Lets so much time go by for timers, and none for sockets.
async fn wait(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

async fn open(server: &Encryption, stored: &[u8]) -> Result<bool, String> {
    let transformer = server.transformer("", "secrets");
    let opened = transformer.open(PLACE, stored).await;
    opened
        .map(|(plain, is_stale)| {
            assert_eq!(&*plain, PLAIN);
            is_stale
        })
        .map_err(|failure| failure.to_string())
}

fn seal(server: &Encryption) -> Result<Vec<u8>, String> {
    let transformer = server.transformer("", "secrets");
    transformer.seal(PLACE, PLAIN).map(|sealed| sealed.into_owned()).map_err(|failure| failure.to_string())
}

#[tokio::test]
async fn the_plugin_is_asked_once_per_key_and_once_per_foreign_seed() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin();
    let server = fixture.server().await;
    let values: Vec<_> = (0..20).map(|_| seal(&server).unwrap()).collect();
    for value in &values {
        assert!(value.starts_with(b"k8s:enc:kms:v2:vault:"));
        assert_eq!(open(&server, value).await, Ok(false));
    }
    assert_eq!((plugin.count("encrypt"), plugin.count("decrypt")), (1, 0));
    let known = |metrics: &Metrics, count: u32| {
        let line = format!("dek_source_cache_size{{provider_name=\"vault\"}} {count}\n");
        assert!(metrics.render().contains(&line), "{line}");
    };
    known(&fixture.metrics, 1);

    let fixture = Fixture { metrics: Metrics::new(), ..fixture };
    let restarted = fixture.server().await;
    for value in &values {
        assert_eq!(open(&restarted, value).await, Ok(false), "the same key, another seed");
    }
    assert_eq!((plugin.count("encrypt"), plugin.count("decrypt")), (2, 1));
    known(&fixture.metrics, 2);
}

#[tokio::test]
async fn another_key_makes_values_stale() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin();
    let server = fixture.server().await;
    let old = seal(&server).unwrap();
    plugin.set(|plugin| plugin.key_id = "key-2".into());
    server.health().await.unwrap();
    assert_eq!(open(&server, &old).await, Ok(false), "the last answer is good for 20 seconds");
    wait(21).await;
    server.health().await.unwrap();
    assert_eq!(open(&server, &old).await, Ok(true));
    assert_eq!(open(&server, &seal(&server).unwrap()).await, Ok(false));
    assert_eq!(plugin.count("encrypt"), 2);
}

#[tokio::test]
async fn without_the_plugin_reads_go_on_and_writes_for_three_minutes() {
    let mut fixture = Fixture::new();
    fixture.timeout = "200ms";
    let plugin = fixture.plugin();
    let server = fixture.server().await;
    let old = seal(&server).unwrap();
    plugin.stop();
    std::fs::remove_file(&fixture.socket).unwrap();
    wait(21).await;
    assert!(
        server
            .health()
            .await
            .unwrap_err()
            .to_string()
            .contains("kms-provider-0: failed to perform status section")
    );
    fixture.later(179);
    assert!(seal(&server).is_ok());
    fixture.later(2);
    let refused = seal(&server).unwrap_err();
    assert!(refused.starts_with(r#"encryptedDEKSource with keyID hash "sha256:"#), "{refused}");
    assert!(
        refused.ends_with("expired at 2026-01-01T00:03:00Z (current time is 2026-01-01T00:03:01Z)"),
        "{refused}"
    );
    assert_eq!(open(&server, &old).await, Ok(false));

    let _back = fixture.plugin();
    wait(4).await;
    server.health().await.unwrap();
    assert!(seal(&server).is_ok());
}

#[tokio::test]
async fn a_server_starts_without_the_plugin_and_tells_when_it_is_there() {
    let mut fixture = Fixture::new();
    fixture.timeout = "100ms";
    let server = fixture.server().await;
    assert!(server.has_health() && server.health().await.is_err());
    assert_eq!(seal(&server), Err("got unexpected nil transformer".into()));
    let mut changed = server.changed();
    changed.borrow_and_update();
    let _plugin = fixture.plugin();
    wait(4).await;
    changed.changed().await.unwrap();
    assert!(seal(&server).is_ok());
}

#[tokio::test]
async fn a_plugin_that_refuses_is_an_error_that_says_so_and_is_tried_again() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin();
    let foreign = seal(&fixture.server().await).unwrap();
    plugin.set(|plugin| plugin.refuses = true);
    let fixture = Fixture { metrics: Metrics::new(), ..fixture };
    let server = fixture.server().await;
    assert_eq!(
        open(&server, &foreign).await,
        Err("failed to decrypt DEK, error: rpc error: code = FailedPrecondition desc = the vault is sealed"
            .into())
    );
    let mut changed = server.changed();
    changed.borrow_and_update();
    plugin.set(|plugin| plugin.refuses = false);
    wait(21).await;
    changed.changed().await.unwrap();
    assert_eq!(open(&server, &foreign).await, Ok(false));
}

#[tokio::test]
async fn what_is_wrong_with_a_plugin_is_said_in_upstreams_words() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin();
    let server = fixture.server().await;
    let check = async |change: fn(&mut Behaviour), expect: &str| {
        plugin.set(|plugin| *plugin = Behaviour::default());
        plugin.set(change);
        wait(21).await;
        assert_eq!(server.health().await.err().map(|error| error.to_string()).unwrap_or_default(), expect);
    };
    check(|_| {}, "").await;
    check(
        |plugin| plugin.healthz = "sealed".into(),
        "kms-provider-0: kmsv2 Provider vault is not healthy, error: got unexpected healthz status: sealed",
    )
    .await;
    check(
        |plugin| plugin.version = "v3".into(),
        "kms-provider-0: kmsv2 Provider vault is not healthy, error: expected KMSv2 API version v2, got v3",
    )
    .await;
    check(
        |plugin| plugin.version = "v2beta1".into(),
        "kms-provider-0: kmsv2 Provider vault is not healthy, error: KMSv2 API version should not change after the \
         initial status response version v2, got v2beta1",
    )
    .await;
    check(
        |plugin| plugin.key_id.clear(),
        r#"kms-provider-0: kmsv2 Provider vault is not healthy, error: got invalid KMSv2 KeyID hash "": keyID is empty"#,
    )
    .await;
    let text = fixture.metrics.render();
    for line in [
        r#"apiserver_envelope_encryption_invalid_key_id_from_status_total{provider_name="vault",error="empty"} 1"#,
        r#"apiserver_envelope_encryption_kms_operations_latency_seconds_count{provider_name="vault",method_name="/v2.KeyManagementService/Status",grpc_status_code="OK"} "#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_new_configuration_waits_until_its_plugin_is_well() {
    let mut fixture = Fixture::new();
    fixture.timeout = "100ms";
    let (metrics, tasks) = (Metrics::new(), Tasks::new());
    let server = Encryption::start(None, true, "test", &metrics, fixture.clock.clone(), &tasks).await;
    let plugin = fixture.plugin();
    plugin.set(|plugin| plugin.healthz = "not yet".into());
    let text = fixture.text();
    let reload = server.reload(text.as_bytes());
    let heal = async {
        while plugin.count("status") < 1 {
            tokio::task::yield_now().await;
        }
        plugin.set(|plugin| plugin.healthz = "ok".into());
    };
    let (reloaded, ()) = tokio::join!(reload, heal);
    assert!(reloaded.unwrap());
    assert!(server.transformer("", "secrets").is_configured());
}

/// Source: `TestIsKMSv2ProviderHealthyError` and `TestKMSv2SameVersionFromStatus` of upstream.
#[tokio::test]
async fn all_that_is_wrong_with_a_plugin_is_said_at_once() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin();
    plugin.set(|plugin| (plugin.version, plugin.healthz) = (String::new(), "unhealthy".into()));
    plugin.set(|plugin| plugin.key_id.clear());
    let server = fixture.server().await;
    let check = async |version: &str, healthz: &str, key_id: &str, expect: &str| {
        plugin.set(|plugin| {
            (plugin.version, plugin.healthz, plugin.key_id) = (version.into(), healthz.into(), key_id.into());
        });
        wait(21).await;
        let told = server.health().await.err().map(|error| error.to_string()).unwrap_or_default();
        let told = told.replace("kms-provider-0: kmsv2 Provider vault is not healthy, error: ", "");
        assert_eq!(told, expect, "{version:?} {healthz:?}");
    };
    check(
        "",
        "unhealthy",
        "",
        r#"[got unexpected healthz status: unhealthy, expected KMSv2 API version v2, got , got invalid KMSv2 KeyID hash "": keyID is empty]"#,
    )
    .await;
    check(
        "v1beta1",
        "",
        "",
        r#"[got unexpected healthz status: , expected KMSv2 API version v2, got v1beta1, got invalid KMSv2 KeyID hash "": keyID is empty]"#,
    )
    .await;
    check("v2beta1", "ok", "", r#"got invalid KMSv2 KeyID hash "": keyID is empty"#).await;
    let long = "k".repeat(1025);
    let told = "keyID is 1025 bytes, which exceeds the max size of 1024";
    plugin.set(|plugin| plugin.key_id.clone_from(&long));
    wait(21).await;
    let error = server.health().await.unwrap_err().to_string();
    assert!(error.contains(told) && !error.contains(&long), "{error}");
    check("v2beta1", "ok", "1", "").await;
    check(
        "v2",
        "ok",
        "1",
        "KMSv2 API version should not change after the initial status response version v2beta1, got v2",
    )
    .await;
    check("v2beta1", "ok", "1", "").await;
    assert!(seal(&server).is_ok());
    let text = fixture.metrics.render();
    let line = |error: &str, count: u32| {
        format!("invalid_key_id_from_status_total{{provider_name=\"vault\",error=\"{error}\"}} {count}\n")
    };
    assert!(text.contains(&line("too_long", 1)) && text.contains(&line("empty", 4)), "{text}");
}
