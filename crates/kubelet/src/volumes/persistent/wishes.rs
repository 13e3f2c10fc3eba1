//! What a driver's object asks of the kubelet, and what the driver is told for it: the Pod, tokens, a label.
//!
//! Source: `CSIDriverSpec`, storage/v1.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec, SELinuxOptions};
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::json;

use crate::pod::identity::identity;
use crate::volumes::TokenKey;
use crate::volumes::Volumes;
use crate::volumes::error::Specific;
use crate::volumes::objects::{Token, TokenError, request_token};

/// Lifetime of a driver's token if it does not say. Source: `storage/v1.TokenRequest.expirationSeconds`.
const TOKEN_SECONDS: i64 = 3600;

/// The driver has no volumes that live so long.
#[derive(Debug, thiserror::Error)]
#[error(
    "kubernetes.io/csi: mounter.SetUpAt failed to check volume lifecycle mode: volume mode \"{mode}\" not supported by \
     driver {driver} (only supports {known:?})"
)]
pub(super) struct OtherMode {
    mode: String,
    driver: String,
    known: Vec<String>,
}

impl Specific for OtherMode {}

/// What a driver's object says, with upstream's defaults.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    pub(super) attach: bool,
    pub(super) republish: bool,
    pub(super) se_linux: bool,
    /// How many volumes a node may have changes.
    pub(super) counts_again: bool,
    group_policy: String,
    pod_info: bool,
    tokens: Vec<TokenKey>,
    are_tokens_secrets: bool,
    modes: Vec<String>,
}

/// What a driver is told beside what the volume's object says.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Beside the volume's attributes.
    pub(super) context: HashMap<String, String>,
    /// Beside the volume's secrets.
    pub(super) secrets: HashMap<String, String>,
}

impl Wishes {
    /// Asks for the driver's object.
    pub(super) async fn asked(volumes: &Volumes, driver: &str) -> Self {
        let drivers = volumes.informers.informer::<CSIDriver>();
        drivers.synced().await;
        Self::of(drivers.get(driver).as_deref())
    }

    fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| driver.spec.clone()).unwrap_or_default();
        let tokens = spec.token_requests.into_iter().flatten();
        Self {
            attach: spec.attach_required != Some(false),
            republish: spec.requires_republish == Some(true),
            se_linux: spec.se_linux_mount == Some(true),
            counts_again: spec.node_allocatable_update_period_seconds.is_some_and(|period| period > 0),
            are_tokens_secrets: spec.service_account_token_in_secrets == Some(true),
            pod_info: spec.pod_info_on_mount == Some(true),
            group_policy: spec.fs_group_policy.unwrap_or_else(|| "ReadWriteOnceWithFSType".to_owned()),
            tokens: tokens.map(|t| (t.audience, t.expiration_seconds.unwrap_or(TOKEN_SECONDS))).collect(),
            modes: spec.volume_lifecycle_modes.unwrap_or_else(|| vec!["Persistent".to_owned()]),
        }
    }

    /// Whether the driver has volumes that live as long as `mode` says.
    pub(super) fn allow(&self, mode: &str, driver: &str) -> Result<(), OtherMode> {
        if self.modes.iter().any(|one| one == mode) {
            return Ok(());
        }
        Err(OtherMode { mode: mode.to_owned(), driver: driver.to_owned(), known: self.modes.clone() })
    }

    /// Whether a volume's files are the kubelet's to give to the Pod's group. Source: `CSIDriverSpec.fsGroupPolicy`.
    pub(super) fn takes_group(&self, fs_type: Option<&str>, is_write_once: bool) -> bool {
        match self.group_policy.as_str() {
            "File" => true,
            "None" => false,
            _ => fs_type.is_some_and(|fs_type| !fs_type.is_empty()) && is_write_once,
        }
    }

    /// What the driver is told of the Pod. Tokens are no secrets to drivers which do not say that they are.
    /// Source: `CSIDriverSpec.serviceAccountTokenInSecrets`, KEP-5538.
    pub(super) async fn told(
        &self,
        volumes: &Volumes,
        pod: &Pod,
        is_inline: bool,
    ) -> Result<Told, TokenError> {
        let mut told = Told::default();
        if self.pod_info {
            told.context.extend(pod_info(pod, is_inline));
        }
        let tokens = tokens(volumes, pod, &self.tokens).await?;
        let place = if self.are_tokens_secrets { &mut told.secrets } else { &mut told.context };
        place.extend(tokens);
        Ok(told)
    }
}

/// Source: `CSIDriverSpec.podInfoOnMount`.
fn pod_info(pod: &Pod, is_inline: bool) -> [(String, String); 5] {
    let (name, namespace, uid) = identity(pod);
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    [
        ("csi.storage.k8s.io/pod.name", name),
        ("csi.storage.k8s.io/pod.namespace", namespace),
        ("csi.storage.k8s.io/pod.uid", uid),
        ("csi.storage.k8s.io/serviceAccount.name", account),
        ("csi.storage.k8s.io/ephemeral", is_inline.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Source: `CSIDriverSpec.tokenRequests`.
async fn tokens(
    volumes: &Volumes,
    pod: &Pod,
    wanted: &[TokenKey],
) -> Result<Option<(String, String)>, TokenError> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut all = serde_json::Map::new();
    for key in wanted {
        let token = token(volumes, pod, key).await?;
        let expires = token.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        all.insert(key.0.clone(), json!({"token": token.text, "expirationTimestamp": expires}));
    }
    let text = serde_json::Value::Object(all).to_string();
    Ok(Some(("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), text)))
}

/// The token that the driver has been given, or when that gets old, another one.
async fn token(volumes: &Volumes, pod: &Pod, key: &TokenKey) -> Result<Token, TokenError> {
    let now = volumes.clock.now();
    let known = (pod.metadata.uid.clone().unwrap_or_default(), key.clone());
    {
        let mut all = volumes.csi.tokens.lock();
        all.retain(|_, token| token.expires_at > now);
        if let Some(token) = all.get(&known).filter(|token| token.refresh_at > now) {
            return Ok(token.clone());
        }
    }
    let token = request_token(volumes, pod, key).await?;
    volumes.csi.tokens.lock().insert(known, token.clone());
    Ok(token)
}

/// The label that the files of the Pod's volume of that name are to have, as a mount option; the level is what tells Pods
/// apart. Only where the host has SELinux. Source: `SELinuxOptionsToFileLabel`, KEP-1710.
pub(super) fn se_linux_option(pod: &Pod, volume: &str) -> Option<String> {
    let label = label(pod.spec.as_ref()?, volume)?;
    Path::new("/sys/fs/selinux/status").exists().then_some(label)
}

/// The label on which all containers agree that have the volume; none if the Pod has its files changed one by one.
///
/// Source: `getSELinuxLabel`, `PodSecurityContext.seLinuxChangePolicy`.
fn label(spec: &PodSpec, volume: &str) -> Option<String> {
    let of_pod = spec.security_context.as_ref();
    if of_pod.and_then(|context| context.se_linux_change_policy.as_deref()) == Some("Recursive") {
        return None;
    }
    let of_pod = of_pod.and_then(|context| context.se_linux_options.as_ref());
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let having = all.filter(|one| one.volume_mounts.iter().flatten().any(|mount| mount.name == volume));
    let labels: BTreeSet<Option<String>> = having
        .map(|container| {
            let own = container.security_context.as_ref().and_then(|own| own.se_linux_options.as_ref());
            own.or(of_pod).and_then(file_label)
        })
        .collect();
    match labels.len() {
        1 => labels.into_iter().next().flatten(),
        _ => None,
    }
}

fn file_label(options: &SELinuxOptions) -> Option<String> {
    let level = options.level.as_deref().filter(|level| !level.is_empty())?;
    let user = options.user.as_deref().filter(|user| !user.is_empty()).unwrap_or("system_u");
    Some(format!("context=\"{user}:object_r:container_file_t:{level}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_whose_business_the_group_is() {
        for (policy, fs_type, is_write_once, expect) in [
            ("File", None, false, true),
            ("None", Some("ext4"), true, false),
            ("ReadWriteOnceWithFSType", Some("ext4"), true, true),
            ("ReadWriteOnceWithFSType", Some("ext4"), false, false),
            ("ReadWriteOnceWithFSType", None, true, false),
            ("ReadWriteOnceWithFSType", Some(""), true, false),
        ] {
            let wishes = Wishes { group_policy: policy.to_owned(), ..Wishes::of(None) };
            assert_eq!(
                wishes.takes_group(fs_type, is_write_once),
                expect,
                "{policy} {fs_type:?} {is_write_once}"
            );
        }
    }

    #[test]
    fn files_have_the_level_of_their_pod() {
        let options = |level: &str| SELinuxOptions {
            level: Some(level.to_owned()),
            type_: Some("spc_t".to_owned()),
            ..SELinuxOptions::default()
        };
        let label = file_label(&options("s0:c1,c2"));
        assert_eq!(label.as_deref(), Some("context=\"system_u:object_r:container_file_t:s0:c1,c2\""));
        assert_eq!(file_label(&options("")), None);
    }

    #[test]
    fn a_volume_has_the_label_of_the_containers_that_have_it() {
        let one = "seLinuxOptions: {level: 's0:c1'}";
        let two = "seLinuxOptions: {level: 's0:c2'}";
        for (of_pod, first, second, expect) in [
            (one, "", "", Some("s0:c1")),
            (one, two, two, Some("s0:c2")),
            ("", two, two, Some("s0:c2")),
            (one, two, "", None),
            ("", two, "", None),
            ("", "", "", None),
            ("seLinuxChangePolicy: Recursive, seLinuxOptions: {level: 's0:c1'}", "", "", None),
        ] {
            let container = |context: &str, volume: &str| {
                format!("{{name: c, securityContext: {{{context}}}, volumeMounts: [{{name: {volume}}}]}}")
            };
            let all = [container(first, "data"), container(second, "data"), container(two, "other")];
            let text = format!("{{securityContext: {{{of_pod}}}, containers: [{}]}}", all.join(", "));
            let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
            let expect =
                expect.map(|level| format!("context=\"system_u:object_r:container_file_t:{level}\""));
            assert_eq!(label(&spec, "data"), expect, "{of_pod} {first} {second}");
        }
    }

    #[test]
    fn a_driver_without_an_object_is_asked_to_attach() {
        let wishes = Wishes::of(None);
        assert!(wishes.attach && !wishes.pod_info && wishes.modes == ["Persistent"]);
        assert_eq!(wishes.group_policy, "ReadWriteOnceWithFSType");
    }
}
