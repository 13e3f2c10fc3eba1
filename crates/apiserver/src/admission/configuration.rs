//! What plugins are told by `--admission-control-config-file`.
//!
//! Source: `apiserver.config.k8s.io/v1.AdmissionConfiguration`.

use serde::Deserialize;
use serde_json::Value;

use super::event_rate_limit::EventRateLimits;
use super::is_on;
use crate::options::PluginChoice;

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
struct Told {
    name: String,
    path: String,
    configuration: Option<Value>,
}

/// The limits of Events for the plugins that run; `text` is the file, and `read` reads one that it names.
///
/// # Errors
/// What is wrong with the file; that a plugin runs that needs one.
pub fn event_rate_limits(
    chosen: &PluginChoice,
    text: Option<&str>,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<EventRateLimits, String> {
    let told = text.map(parse).transpose()?.unwrap_or_default();
    let mut limits = EventRateLimits::default();
    for plugin in &told {
        if plugin.name != EVENTS {
            return Err(format!("plugins: {:?} takes no configuration", plugin.name));
        }
        let text = match (&plugin.configuration, plugin.path.as_str()) {
            (Some(configuration), "") => configuration.to_string(),
            (None, path) if !path.is_empty() => read(path)?,
            _ => return Err(format!("plugins: {EVENTS} needs either path or configuration")),
        };
        limits = EventRateLimits::parse(&text).map_err(|why| format!("{EVENTS}: {why}"))?;
    }
    if limits.is_empty() && is_on(chosen, EVENTS) {
        return Err(format!("{EVENTS}: limits: Invalid value: null: must not be empty"));
    }
    Ok(limits)
}

fn parse(text: &str) -> Result<Vec<Told>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|failure| failure.to_string())?;
    if file.kind != "AdmissionConfiguration" || !VERSIONS.contains(&file.api_version.as_str()) {
        let (kind, version) = (file.kind, file.api_version);
        return Err(format!("it is {kind} of {version}, not AdmissionConfiguration of {}", VERSIONS[0]));
    }
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
            |path: &str| if path == "events.yaml" { Ok(limits.to_owned()) } else { Err("gone".to_owned()) };
        let check = |plugins: &PluginChoice, text: Option<String>, expect: Result<bool, &str>| {
            let found = event_rate_limits(plugins, text.as_deref(), read).map(|limits| !limits.is_empty());
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
}
