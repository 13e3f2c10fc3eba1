//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, PodCertificateProjection, PodSpec, Secret,
    ServiceAccountTokenProjection, Volume,
};

use super::atomic::{self, File};
use super::certificates::{CertificateError, Credentials};
use super::error::{Specific, VolumeError, at};
use super::folder::make_dir;
use super::trust_bundles::NoAnchors;
use super::{VolumeInput, empty_dir};
use crate::pod::env::EnvError;
use crate::pod::env::fields::{pod_field, resource_field};

type Files = BTreeMap<String, File>;

/// What a volume's files are made of is not there, and is not optional.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadError {
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error("invalid path: {0}")]
    Path(String),
    #[error("failed to fetch token")]
    NoToken,
    #[error("projected source is not supported")]
    NotSupported,
    #[error(transparent)]
    Field(#[from] EnvError),
    #[error(transparent)]
    Anchors(#[from] NoAnchors),
    #[error(transparent)]
    Certificate(#[from] Arc<CertificateError>),
}

impl Specific for PayloadError {}

/// Audience (empty for the API server's own) and lifetime in seconds of a service account token.
pub(crate) type TokenKey = (String, i64);

/// Lifetime of a token whose projection does not say, in seconds.
const TOKEN_SECONDS: i64 = 3600;
/// Permissions of files whose source does not say.
const MODE: i32 = 0o644;

/// The ConfigMaps and Secrets of its namespace that a Pod's volumes and environment name.
pub(crate) fn references(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else { return (maps, secrets) };
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|c| c.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|s| s.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            maps.extend(source.config_map.iter().map(|c| c.name.clone()));
            secrets.extend(source.secret.iter().map(|s| s.name.clone()));
        }
    }
    let ephemeral = crate::pod::roles::ephemeral(spec);
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()).chain(&ephemeral) {
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.iter().map(|r| r.name.clone()));
            secrets.extend(source.secret_ref.iter().map(|r| r.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
            secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
        }
    }
    // No object has no name: there is nothing to look at.
    maps.remove("");
    secrets.remove("");
    (maps, secrets)
}

/// The tokens that a Pod's volumes need.
pub(crate) fn token_keys(pod: &Pod) -> BTreeSet<TokenKey> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let sources = volumes.filter_map(|v| v.projected.as_ref()).flat_map(|p| p.sources.iter().flatten());
    sources.filter_map(|s| s.service_account_token.as_ref()).map(token_key).collect()
}

fn token_key(projection: &ServiceAccountTokenProjection) -> TokenKey {
    let audience = projection.audience.clone().unwrap_or_default();
    (audience, projection.expiration_seconds.unwrap_or(TOKEN_SECONDS))
}

/// Writes the files of one volume.
pub(super) fn on_disk(path: &Path, volume: &Volume, input: &VolumeInput) -> Result<(), VolumeError> {
    let files = files(volume, input)?;
    make_dir(path, 0o777)?;
    write(path, &files, input)
}

/// The same for what may be secret: nothing of it comes to a disk.
pub(super) fn in_memory(path: &Path, volume: &Volume, input: &VolumeInput) -> Result<(), VolumeError> {
    let files = files(volume, input)?;
    make_dir(path, 0o777)?;
    let size = empty_dir::memory_size(None, input.spec(), input.allocatable_memory());
    empty_dir::mount_memory(path, size, None)?;
    write(path, &files, input)
}

fn write(path: &Path, files: &Files, input: &VolumeInput) -> Result<(), VolumeError> {
    let fs_group = input.spec().security_context.as_ref().and_then(|context| context.fs_group);
    atomic::write(path, files, fs_group).map_err(at("write", path))
}

fn files(volume: &Volume, input: &VolumeInput) -> Result<Files, PayloadError> {
    let mut files = Files::new();
    let sources = &input.sources;
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(MODE);
        let object = sources.config_maps.get(&source.name);
        config_map(&source.name, object, source.items.as_deref(), source.optional, mode, &mut files)?;
    }
    if let Some(source) = &volume.secret {
        let mode = source.default_mode.unwrap_or(MODE);
        let name = source.secret_name.as_deref().unwrap_or_default();
        secret(name, sources.secrets.get(name), source.items.as_deref(), source.optional, mode, &mut files)?;
    }
    if let Some(source) = &volume.downward_api {
        downward(source.items.as_deref(), source.default_mode.unwrap_or(MODE), input, &mut files)?;
    }
    if let Some(projected) = &volume.projected {
        let mode = projected.default_mode.unwrap_or(MODE);
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            if let Some(s) = &source.config_map {
                let object = sources.config_maps.get(&s.name);
                config_map(&s.name, object, s.items.as_deref(), s.optional, mode, &mut files)?;
            }
            if let Some(s) = &source.secret {
                let object = sources.secrets.get(&s.name);
                secret(&s.name, object, s.items.as_deref(), s.optional, mode, &mut files)?;
            }
            if let Some(s) = &source.downward_api {
                downward(s.items.as_deref(), mode, input, &mut files)?;
            }
            if let Some(s) = &source.service_account_token {
                token(s, mode, input, &mut files)?;
            }
            if let Some(s) = &source.cluster_trust_bundle {
                let anchors = super::trust_bundles::anchors(s, &sources.trust_bundles)?;
                add(&mut files, &s.path, anchors.into_bytes(), mode)?;
            }
            if let Some(s) = &source.pod_certificate {
                // Without the feature nothing is issued; the API server drops the source then
                // (`resources/src/strategies/gated.rs`).
                let issued = input.certificates.get(&(volume.name.clone(), i));
                let issued = issued.ok_or(PayloadError::NotSupported)?.as_ref().map_err(Arc::clone)?;
                certificate(s, issued, mode, input, &mut files)?;
            }
        }
    }
    Ok(files)
}

fn bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0o644) & 0o777
}

fn add(files: &mut Files, path: &str, data: Vec<u8>, mode: i32) -> Result<(), PayloadError> {
    files.insert(cleaned(path)?, File { data, mode: bits(mode), owner: None });
    Ok(())
}

fn config_map(
    name: &str,
    object: Option<&Arc<ConfigMap>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let Some(object) = object else {
        return if optional == Some(true) { Ok(()) } else { Err(PayloadError::NoConfigMap(name.to_owned())) };
    };
    let text = object.data.iter().flatten().map(|(k, v)| (k.as_str(), v.as_bytes()));
    let binary = object.binary_data.iter().flatten().map(|(k, v)| (k.as_str(), v.0.as_slice()));
    let chosen = Chosen { items, optional, no_key: PayloadError::NoConfigMapKey };
    pick(text.chain(binary).collect(), &chosen, mode, files)
}

fn secret(
    name: &str,
    object: Option<&Arc<Secret>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
    mode: i32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let Some(object) = object else {
        return if optional == Some(true) { Ok(()) } else { Err(PayloadError::NoSecret(name.to_owned())) };
    };
    let data = object.data.iter().flatten().map(|(k, v)| (k.as_str(), v.0.as_slice()));
    let chosen = Chosen { items, optional, no_key: PayloadError::NoSecretKey };
    pick(data.collect(), &chosen, mode, files)
}

/// Which keys of an object are files.
struct Chosen<'a> {
    /// All if there are none.
    items: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
    no_key: fn(String) -> PayloadError,
}

fn pick(
    data: BTreeMap<&str, &[u8]>,
    chosen: &Chosen<'_>,
    mode: i32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let Some(items) = chosen.items.filter(|items| !items.is_empty()) else {
        return data.into_iter().try_for_each(|(key, value)| add(files, key, value.to_vec(), mode));
    };
    for item in items {
        match data.get(item.key.as_str()) {
            Some(value) => add(files, &item.path, value.to_vec(), item.mode.unwrap_or(mode))?,
            None if chosen.optional == Some(true) => {}
            None => return Err((chosen.no_key)(item.key.clone())),
        }
    }
    Ok(())
}

/// Characters of a path.
const PATH_MAX: usize = 4096;
/// Characters of what is between its slashes.
const NAME_MAX: usize = 255;

/// The path without what means nothing in it. The API server has checked it before; nothing is ever written outside of
/// the volume all the same. Source: `validatePayload` of upstream's `pkg/volume/util/atomic_writer.go`.
fn cleaned(path: &str) -> Result<String, PayloadError> {
    let is_bad = |part: &str| part == ".." || part.len() > NAME_MAX;
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let leads_out = path.starts_with('/') || path.starts_with("..") || parts.iter().any(|part| is_bad(part));
    if leads_out || parts.is_empty() || path.len() > PATH_MAX {
        return Err(PayloadError::Path(path.to_owned()));
    }
    Ok(parts.join("/"))
}

fn downward(
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: i32,
    input: &VolumeInput,
    files: &mut Files,
) -> Result<(), PayloadError> {
    for item in items.unwrap_or_default() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => pod_field(&input.sources, &field.field_path)?,
            (None, Some(resource)) => resource_field(&input.sources, "", resource)?,
            (None, None) => continue,
        };
        add(files, &item.path, text.into_bytes(), item.mode.unwrap_or(mode))?;
    }
    Ok(())
}

fn token(
    projection: &ServiceAccountTokenProjection,
    mode: i32,
    input: &VolumeInput,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let key = token_key(projection);
    let token = input.tokens.get(&key).ok_or(PayloadError::NoToken)?;
    let file = private(token.clone().into_bytes(), mode, input);
    files.insert(cleaned(&projection.path)?, file);
    Ok(())
}

fn certificate(
    projection: &PodCertificateProjection,
    Credentials { key, chain }: &Credentials,
    mode: i32,
    input: &VolumeInput,
    files: &mut Files,
) -> Result<(), PayloadError> {
    for (path, data) in [
        (&projection.credential_bundle_path, [key.as_str(), chain].concat()),
        (&projection.key_path, key.clone()),
        (&projection.certificate_chain_path, chain.clone()),
    ] {
        if let Some(path) = path.as_deref().filter(|path| !path.is_empty()) {
            files.insert(cleaned(path)?, private(data.into_bytes(), mode, input));
        }
    }
    Ok(())
}

/// A file that only the Pod's user and group read, if those are known.
fn private(data: Vec<u8>, mode: i32, input: &VolumeInput) -> File {
    let owner = input.sources.pod.spec.as_ref().and_then(single_user);
    let fs_group = input.sources.pod.spec.as_ref().and_then(|s| s.security_context.as_ref()?.fs_group);
    let mode = if owner.is_some() || fs_group.is_some() { 0o600 } else { bits(mode) };
    File { data, mode, owner }
}

/// The user that all containers run as, if it is one and the same.
fn single_user(spec: &PodSpec) -> Option<u32> {
    let shared = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let users: BTreeSet<_> =
        containers.map(|c| c.security_context.as_ref().and_then(|s| s.run_as_user).or(shared)).collect();
    match users.into_iter().collect::<Vec<_>>().as_slice() {
        [Some(user)] => u32::try_from(*user).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
