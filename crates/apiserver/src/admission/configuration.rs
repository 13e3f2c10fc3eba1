//! The arguments of plugins in `--admission-control-config-file`.
//!
//! Source: `apiserver.config.k8s.io/v1.AdmissionConfiguration`.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::event_rate_limit::EventRateLimits;
use super::{is_on, webhooks};
use crate::configuration_error::{self, ConfigurationError, ReadFile, check_kind};
use crate::options::PluginChoice;
use crate::webhooks::AdmissionCredentials;
use crate::webhooks::client::Credentials;

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"];
const EVENTS: &str = "EventRateLimit";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    plugins: Vec<Told>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Webhooks {
    api_version: String,
    kind: String,
    kube_config_file: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Told {
    name: String,
    path: String,
    configuration: Option<Value>,
}

/// The content of the file for those that take a configuration.
#[derive(Debug, Default)]
pub struct Configured {
    /// To `EventRateLimit`.
    pub event_rate_limits: EventRateLimits,
    /// To the plugins that call webhooks.
    pub webhook_credentials: AdmissionCredentials,
}

/// Reads the configuration of the plugins that run; `text` is the file, and `read` reads one that it names.
///
/// # Errors
/// What is wrong with the file; that a plugin runs that needs one.
pub fn configured(
    chosen: &PluginChoice,
    text: Option<&str>,
    read: impl ReadFile,
) -> Result<Configured, ConfigurationError> {
    let told = text.map(parse).transpose()?.unwrap_or_default();
    let mut found = Configured::default();
    for plugin in &told {
        let name = plugin.name.as_str();
        if ![EVENTS, webhooks::MUTATING, webhooks::VALIDATING].contains(&name) {
            return Err(ConfigurationError::rule(format!("plugins: {name:?} takes no configuration")));
        }
        let text = match (&plugin.configuration, plugin.path.as_str()) {
            (Some(configuration), "") => configuration.to_string(),
            (None, path) if !path.is_empty() => read(path)?,
            _ => {
                let why = format!("plugins: {name} needs either path or configuration");
                return Err(ConfigurationError::rule(why));
            }
        };
        let wrong = ConfigurationError::of(name.to_owned());
        match name {
            EVENTS => found.event_rate_limits = EventRateLimits::parse(&text).map_err(wrong)?,
            webhooks::MUTATING => {
                found.webhook_credentials.mutating = credentials(&text, &read).map_err(wrong)?;
            }
            _ => found.webhook_credentials.validating = credentials(&text, &read).map_err(wrong)?,
        }
    }
    if found.event_rate_limits.is_empty() && is_on(chosen, EVENTS) {
        let why = format!("{EVENTS}: limits: Invalid value: null: must not be empty");
        return Err(ConfigurationError::rule(why));
    }
    Ok(found)
}

/// What webhooks see of this server: the users of the kubeconfig that a `WebhookAdmissionConfiguration` names.
fn credentials(text: &str, read: &impl ReadFile) -> Result<Credentials, ConfigurationError> {
    let told: Webhooks = configuration_error::read(text)?;
    check_kind(&told.kind, &told.api_version, "WebhookAdmissionConfiguration", &VERSIONS[..1])?;
    let file = told.kube_config_file;
    if file.is_empty() {
        return Ok(Credentials::default());
    }
    let path = Path::new(&file);
    if !path.is_absolute() {
        let why = format!("kubeConfigFile: Invalid value: {file:?}: must be an absolute file path");
        return Err(ConfigurationError::rule(why));
    }
    let folder = path.parent().unwrap_or(path);
    let beside = |name: &str| read(&folder.join(name).to_string_lossy());
    Credentials::parse(&read(&file)?, beside).map_err(ConfigurationError::of(file.clone()))
}

fn parse(text: &str) -> Result<Vec<Told>, ConfigurationError> {
    let file: File = configuration_error::read(text)?;
    check_kind(&file.kind, &file.api_version, "AdmissionConfiguration", &VERSIONS)?;
    Ok(file.plugins)
}

#[cfg(test)]
mod tests {
    use super::super::chosen;
    use super::*;

    #[test]
    fn the_plugin_needs_limits_and_finds_them_here_or_in_a_file() {
        let limits = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 1}]}";
        let file = |plugin: &str| {
            format!(
                "{{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{plugin}]}}"
            )
        };
        let with = chosen(&[EVENTS.to_owned()], &[]).unwrap();
        let without = chosen(&[], &[]).unwrap();
        let read =
            |path: &str| if path == "events.yaml" { Ok(limits.to_owned()) } else { Err("gone".into()) };
        let check = |plugins: &PluginChoice, text: Option<String>, expect: Result<bool, &str>| {
            let found =
                configured(plugins, text.as_deref(), read).map(|all| !all.event_rate_limits.is_empty());
            let found = found.map_err(|why| base::error_chain(&why));
            assert_eq!(found.as_ref().copied().map_err(String::as_str), expect, "{text:?}");
        };
        check(&without, None, Ok(false));
        check(&with, None, Err("EventRateLimit: limits: Invalid value: null: must not be empty"));
        check(&with, Some(file(&format!("{{name: EventRateLimit, configuration: {limits}}}"))), Ok(true));
        check(&with, Some(file("{name: EventRateLimit, path: events.yaml}")), Ok(true));
        check(&with, Some(file("{name: EventRateLimit, path: other.yaml}")), Err("gone"));
        check(
            &with,
            Some(file("{name: EventRateLimit}")),
            Err("plugins: EventRateLimit needs either path or configuration"),
        );
        check(
            &with,
            Some(file("{name: ServiceAccount, path: x}")),
            Err("plugins: \"ServiceAccount\" takes no configuration"),
        );
        check(
            &with,
            Some("{apiVersion: v1, kind: Pod}".to_owned()),
            Err("it is Pod of v1, not AdmissionConfiguration of apiserver.config.k8s.io/v1"),
        );
    }

    #[test]
    fn webhooks_see_the_users_of_a_kubeconfig() {
        let file = |plugin: &str, configuration: &str| {
            format!(
                "{{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [{{name: {plugin}, configuration: {configuration}}}]}}"
            )
        };
        let read = |path: &str| match path {
            "/etc/hooks/config" => Ok("{users: [{name: '*', user: {tokenFile: token}}]}".to_owned()),
            "/etc/hooks/token" => Ok("secret".to_owned()),
            _ => Err(format!("{path} is gone").into()),
        };
        let chosen = chosen(&[], &[]).unwrap();
        let check = |plugin: &str, configuration: &str, expect: Result<[bool; 2], &str>| {
            let found = configured(&chosen, Some(&file(plugin, configuration)), read).map(|all| {
                let AdmissionCredentials { mutating, validating } = all.webhook_credentials;
                [mutating, validating].map(|one| one.of("a.b.svc:443").authorization().unwrap().is_some())
            });
            let found = found.map_err(|why| base::error_chain(&why));
            assert_eq!(found.as_ref().copied().map_err(String::as_str), expect, "{plugin} {configuration}");
        };
        let of = |rest: &str| {
            format!("{{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration{rest}}}")
        };
        let good = of(", kubeConfigFile: /etc/hooks/config");
        check("MutatingAdmissionWebhook", &good, Ok([true, false]));
        check("ValidatingAdmissionWebhook", &good, Ok([false, true]));
        check("ValidatingAdmissionWebhook", &of(""), Ok([false, false]));
        check(
            "ValidatingAdmissionWebhook",
            &of(", kubeConfigFile: config"),
            Err(
                "ValidatingAdmissionWebhook: kubeConfigFile: Invalid value: \"config\": must be an absolute file path",
            ),
        );
        check(
            "ValidatingAdmissionWebhook",
            &of(", kubeConfigFile: /gone"),
            Err("ValidatingAdmissionWebhook: /gone is gone"),
        );
        check(
            "ValidatingAdmissionWebhook",
            "{apiVersion: v1, kind: Pod}",
            Err(
                "ValidatingAdmissionWebhook: it is Pod of v1, not WebhookAdmissionConfiguration of apiserver.config.k8s.io/v1",
            ),
        );
    }
}
