//! A container's environment: from ConfigMaps, Secrets, fields, resources, literals and services.
//!
//! Pure: whatever has to be looked up is handed in. Order and precedence as upstream's
//! `makeEnvironmentVariables`: services first, then `envFrom`, then `env`; a later name wins.

mod error;
pub(crate) mod expand;
pub(crate) mod fields;
pub(crate) mod file;
mod services;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvFromSource, EnvVar, Pod, Secret, Service};

pub use error::EnvError;
use file::NotRead;
pub(crate) use services::service_variables;

/// What the values are taken from.
#[derive(Clone, Debug, Default)]
pub struct EnvSources {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// Its addresses.
    pub pod_ips: Vec<String>,
    /// The node's addresses.
    pub host_ips: Vec<String>,
    /// Those of the Pod's namespace that its spec names; a missing one does not exist.
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    /// Those of the Pod's namespace that its spec names; a missing one does not exist.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// Whom to trust: all there are, if the Pod mounts any.
    pub trust_bundles: Vec<Arc<ClusterTrustBundle>>,
    /// Of the Pod's namespace, and `default/kubernetes`.
    pub services: Vec<Arc<Service>>,
    /// Env files that the container names, by volume and path; or why they cannot be read.
    pub files: BTreeMap<(String, String), Result<String, Arc<NotRead>>>,
    /// What the node can give, by resource, CPU in thousandths: the default of limits.
    pub allocatable: BTreeMap<String, i64>,
}

/// The environment of `container`, in order.
///
/// # Errors
/// Something that is not optional does not exist.
pub fn environment(container: &Container, sources: &EnvSources) -> Result<Vec<(String, String)>, EnvError> {
    let services = service_variables(&sources.pod, &sources.services);
    let mut result = Ordered::default();
    for source in container.env_from.iter().flatten() {
        env_from(source, sources, &mut result)?;
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = env_value(container, variable, sources, &result, &services)? {
            result.set(&variable.name, value);
        }
    }
    for (name, value) in &services {
        if result.get(name).is_none() {
            result.set(name, value.clone());
        }
    }
    Ok(result.entries)
}

#[derive(Default)]
struct Ordered {
    entries: Vec<(String, String)>,
    index: BTreeMap<String, usize>,
}

impl Ordered {
    fn get(&self, name: &str) -> Option<&str> {
        self.index.get(name).and_then(|at| self.entries.get(*at)).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: &str, value: String) {
        if let Some(entry) = self.index.get(name).and_then(|at| self.entries.get_mut(*at)) {
            entry.1 = value;
            return;
        }
        self.index.insert(name.to_owned(), self.entries.len());
        self.entries.push((name.to_owned(), value));
    }
}

fn env_from(source: &EnvFromSource, sources: &EnvSources, result: &mut Ordered) -> Result<(), EnvError> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let mut add = |key: &str, value: String| result.set(&format!("{prefix}{key}"), value);
    if let Some(reference) = &source.config_map_ref {
        match sources.config_maps.get(&reference.name) {
            Some(map) => map.data.iter().flatten().for_each(|(key, value)| add(key, value.clone())),
            None if reference.optional == Some(true) => {}
            None => return Err(EnvError::NoConfigMap(reference.name.clone())),
        }
    }
    if let Some(reference) = &source.secret_ref {
        match sources.secrets.get(&reference.name) {
            Some(secret) => {
                let data = secret.data.iter().flatten();
                data.for_each(|(key, value)| add(key, String::from_utf8_lossy(&value.0).into_owned()));
            }
            None if reference.optional == Some(true) => {}
            None => return Err(EnvError::NoSecret(reference.name.clone())),
        }
    }
    Ok(())
}

/// `None`: an optional source is missing, so there is no such variable.
fn env_value(
    container: &Container,
    variable: &EnvVar,
    sources: &EnvSources,
    so_far: &Ordered,
    services: &[(String, String)],
) -> Result<Option<String>, EnvError> {
    let Some(from) = &variable.value_from else {
        let lookup = |name: &str| {
            let service = || services.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            so_far.get(name).map(str::to_owned).or_else(service)
        };
        return Ok(Some(expand::expand(variable.value.as_deref().unwrap_or_default(), &lookup)));
    };
    let no_key = |kind, name: &str, key: &str| EnvError::NoKey {
        kind,
        namespace: sources.pod.metadata.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
        key: key.to_owned(),
    };
    if let Some(reference) = &from.field_ref {
        return fields::pod_field(sources, &reference.field_path).map(Some);
    }
    if let Some(reference) = &from.resource_field_ref {
        return fields::resource_field(sources, &container.name, reference).map(Some);
    }
    if let Some(reference) = &from.config_map_key_ref {
        let is_optional = reference.optional == Some(true);
        return match sources.config_maps.get(&reference.name) {
            None if is_optional => Ok(None),
            None => Err(EnvError::NoConfigMap(reference.name.clone())),
            Some(map) => match map.data.as_ref().and_then(|d| d.get(&reference.key)) {
                Some(value) => Ok(Some(value.clone())),
                None if is_optional => Ok(None),
                None => Err(no_key("ConfigMap", &reference.name, &reference.key)),
            },
        };
    }
    if let Some(reference) = &from.secret_key_ref {
        let is_optional = reference.optional == Some(true);
        return match sources.secrets.get(&reference.name) {
            None if is_optional => Ok(None),
            None => Err(EnvError::NoSecret(reference.name.clone())),
            Some(secret) => match secret.data.as_ref().and_then(|d| d.get(&reference.key)) {
                Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
                None if is_optional => Ok(None),
                None => Err(no_key("Secret", &reference.name, &reference.key)),
            },
        };
    }
    if let Some(reference) = &from.file_key_ref {
        let place = (reference.volume_name.clone(), reference.path.clone());
        return Ok(file::value(reference, sources.files.get(&place))?);
    }
    Ok(Some(String::new()))
}

#[cfg(test)]
mod tests;
