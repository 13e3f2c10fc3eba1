//! The file of `--authorization-config`, and the flags that say the same: who is asked whether somebody may, in which
//! order. Pure: files that it names are read by who calls.
//!
//! ABAC is refused: there is none here. Source: `apiserver.config.k8s.io/v1` `AuthorizationConfiguration`, KEP-3221.

mod conditions;

use std::collections::BTreeSet;
use std::time::Duration;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::{duration, names};
use serde::Deserialize;

use crate::configuration_error::{self, ConfigurationError, ReadFile, check_fields, check_server_kind};
use crate::webhook_client::kubeconfig::Target;
pub use conditions::Conditions;

const KIND: &str = "AuthorizationConfiguration";
const UNREAD: &str = "failed to load AuthorizationConfiguration from file";
const NOT_AT_STARTUP: &str = "is not allowed if it was not enabled at initial server startup";
/// Upstream's types, sorted as its messages have them.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
const CONDITIONS_MAX: usize = 64;
/// How many authorizers there may be. Upstream has no bound; nobody waits for so many.
const AUTHORIZERS_MAX: usize = 64;
/// What the webhook of the flags is called. Source: `defaultWebhookName`.
const WEBHOOK_OF_FLAGS: &str = "default";

/// The authorizers that are asked, in order; the first with an opinion decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// Never empty.
    pub authorizers: Vec<Authorizer>,
}

/// One who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorizer {
    /// Nodes, about what is theirs.
    Node,
    /// Roles and bindings.
    Rbac,
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything that nobody before has allowed.
    AlwaysDeny,
    /// Somebody else's server.
    Webhook(Box<Webhook>),
}

/// A server that is asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The name in metrics.
    pub name: String,
    /// The target of calls.
    pub target: Target,
    /// The time that it gets to answer.
    pub timeout: Duration,
    /// In which version it is asked.
    pub version: ReviewVersion,
    /// The time for which a yes is kept; none if not at all.
    pub authorized_ttl: Duration,
    /// The time for which anything else is kept; none if not at all.
    pub unauthorized_ttl: Duration,
    /// The answer that is assumed when it does not answer.
    pub failure_policy: FailurePolicy,
    /// The conditions on requests that it is asked about.
    pub match_conditions: Conditions,
}

/// The version of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`
    V1,
    /// `v1beta1`, where a user's groups are called `group`.
    V1Beta1,
}

/// The answer that a webhook is assumed to give when it does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The next authorizer is asked.
    NoOpinion,
    /// No.
    Deny,
}

impl ReviewVersion {
    /// Reads `v1` or `v1beta1`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// Reads the value of a flag; `of` is who would be asked in this version.
    pub(crate) fn of_flag(text: &str, of: &str) -> Result<Self, ConfigurationError> {
        Self::parse(text).ok_or_else(|| {
            let why =
                format!("unsupported {of} version {text:?}, supported versions are \"v1\", \"v1beta1\"");
            ConfigurationError::rule(why)
        })
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

impl Authorizer {
    /// Upstream's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Webhook(_) => "Webhook",
        }
    }

    /// The name in metrics.
    pub fn name(&self) -> &str {
        match self {
            Self::Node => "node",
            Self::Rbac => "rbac",
            Self::AlwaysAllow => "alwaysallow",
            Self::AlwaysDeny => "alwaysdeny",
            Self::Webhook(webhook) => &webhook.name,
        }
    }

    fn of_type(name: &str) -> Option<Self> {
        [Self::Node, Self::Rbac, Self::AlwaysAllow, Self::AlwaysDeny]
            .into_iter()
            .find(|one| one.type_name() == name)
    }
}

impl Default for Authorization {
    /// Nodes, then roles: authorization is never off unless somebody says so.
    fn default() -> Self {
        Self { authorizers: vec![Authorizer::Node, Authorizer::Rbac] }
    }
}

/// The flags that say the same as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags<'a> {
    /// `--authorization-mode`
    pub modes: &'a [String],
    /// `--authorization-webhook-config-file`
    pub webhook_config_file: Option<&'a str>,
    /// `--authorization-webhook-version`
    pub webhook_version: &'a str,
    /// `--authorization-webhook-cache-authorized-ttl`
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`
    pub unauthorized_ttl: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    authorizers: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Entry {
    r#type: String,
    name: String,
    webhook: Option<WebhookEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct WebhookEntry {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Span,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Span,
    cache_unauthorized_requests: Option<bool>,
    timeout: Span,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfo,
    match_conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ConnectionInfo {
    r#type: String,
    kube_config_file: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Condition {
    expression: String,
}

/// Nanoseconds, written as Go writes them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct Span(i64);

impl TryFrom<String> for Span {
    type Error = duration::ParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        duration::parse(&text).map(Self)
    }
}

impl Span {
    fn or(self, default: Duration) -> Self {
        match self.0 {
            0 => Self(i64::try_from(default.as_nanos()).unwrap_or(i64::MAX)),
            _ => self,
        }
    }

    fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    fn text(self) -> String {
        duration::format(self.0)
    }
}

impl Authorization {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, every broken field by its name.
    pub fn parse(yaml: &str, read: impl ReadFile) -> Result<Self, ConfigurationError> {
        let file: File = configuration_error::read(yaml).map_err(ConfigurationError::of(UNREAD))?;
        check_server_kind(&file.kind, &file.api_version, KIND)?;
        let mut errors = FieldErrors::new();
        let authorizers = authorizers(&file.authorizers, &read, &mut errors);
        check_fields(errors, "; ")?;
        // Upstream looks at these names only when nothing else is wrong.
        let misnamed: Vec<String> = file
            .authorizers
            .iter()
            .zip(&authorizers)
            .filter(|(entry, known)| entry.name != known.name())
            .map(|(entry, known)| {
                let (name, found) = (known.name(), &entry.name);
                format!("expected name {name} for authorizer {} instead of {found}", known.type_name())
            })
            .collect();
        match misnamed.is_empty() {
            true => Ok(Self { authorizers }),
            false => Err(ConfigurationError::rule(misnamed.join("; "))),
        }
    }

    /// The configuration that the flags make.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of_flags(flags: &Flags<'_>, read: impl ReadFile) -> Result<Self, ConfigurationError> {
        if flags.modes.is_empty() && flags.webhook_config_file.is_none() {
            return Ok(Self::default());
        }
        let has_webhook = flags.modes.iter().any(|mode| mode == "Webhook");
        if flags.webhook_config_file.is_some() && !has_webhook {
            let why = "cannot specify --authorization-webhook-config-file without mode Webhook";
            return Err(ConfigurationError::rule(why));
        }
        let mut authorizers: Vec<Authorizer> = Vec::new();
        for mode in flags.modes {
            let one = match mode.as_str() {
                "Webhook" => Authorizer::Webhook(Box::new(webhook_of_flags(flags, &read)?)),
                "ABAC" => return Err(ConfigurationError::rule("authorization-mode ABAC is not supported")),
                other => Authorizer::of_type(other).ok_or_else(|| {
                    ConfigurationError::rule(format!("authorization-mode {other:?} is not a valid mode"))
                })?,
            };
            if authorizers.iter().any(|other| other.type_name() == one.type_name()) {
                let modes = flags.modes;
                let why = format!("authorization-mode {modes:?} has mode specified more than once");
                return Err(ConfigurationError::rule(why));
            }
            authorizers.push(one);
        }
        Ok(Self { authorizers })
    }

    /// The check that this may take another's place while the server runs: what it began with apart from webhooks must
    /// stay, and nothing apart from webhooks may come.
    ///
    /// # Errors
    /// What is missing, or new.
    pub fn may_replace(&self, first: &Self) -> Result<(), ConfigurationError> {
        let types = |all: &Self| -> BTreeSet<&'static str> {
            let types = all.authorizers.iter().map(Authorizer::type_name);
            types.filter(|name| *name != "Webhook").collect()
        };
        let (own, before) = (types(self), types(first));
        let missing: Vec<&str> = before.difference(&own).copied().collect();
        if !missing.is_empty() {
            let why = format!("missing required types: [{}]", missing.join(" "));
            return Err(ConfigurationError::rule(why));
        }
        match own.difference(&before).next() {
            Some(new) => Err(ConfigurationError::rule(format!("authorizer type {new} {NOT_AT_STARTUP}"))),
            None => Ok(()),
        }
    }
}

fn webhook_of_flags(flags: &Flags<'_>, read: &impl ReadFile) -> Result<Webhook, ConfigurationError> {
    let file = flags.webhook_config_file.ok_or_else(|| {
        ConfigurationError::rule("authorization-mode Webhook's authorization config file not passed")
    })?;
    Ok(Webhook {
        name: WEBHOOK_OF_FLAGS.to_owned(),
        target: Target::load(file, read).map_err(ConfigurationError::of(file.to_owned()))?,
        timeout: TIMEOUT_MAX,
        version: ReviewVersion::of_flag(flags.webhook_version, "webhook authorizer")?,
        authorized_ttl: flags.authorized_ttl,
        unauthorized_ttl: flags.unauthorized_ttl,
        failure_policy: FailurePolicy::NoOpinion,
        match_conditions: Conditions::default(),
    })
}

fn authorizers(entries: &[Entry], read: &impl ReadFile, errors: &mut FieldErrors) -> Vec<Authorizer> {
    let list = Path::new("authorizers");
    if entries.is_empty() {
        errors.push(FieldError::required(&list, "at least one authorization mode must be defined"));
    }
    if entries.len() > AUTHORIZERS_MAX {
        errors.push(FieldError::too_many(&list, entries.len(), AUTHORIZERS_MAX));
        return Vec::new();
    }
    let (mut types, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = list.index(index);
        if !check_type(&entry.r#type, &path.child("type"), &mut types, errors) {
            continue;
        }
        check_name(&entry.name, &path.child("name"), &mut seen, errors);
        match (Authorizer::of_type(&entry.r#type), &entry.webhook) {
            (Some(known), None) => found.push(known),
            (None, Some(webhook)) => found.extend(
                check_webhook(&entry.name, webhook, &path, read, errors)
                    .map(|webhook| Authorizer::Webhook(Box::new(webhook))),
            ),
            (None, None) => {
                errors.push(FieldError::required(&path.child("webhook"), "required when type=Webhook"));
            }
            (Some(_), Some(_)) => errors.push(FieldError::invalid(
                &path.child("webhook"),
                "non-null",
                "may only be specified when type=Webhook",
            )),
        }
    }
    found
}

fn check_type<'a>(
    name: &'a str,
    path: &Path,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut FieldErrors,
) -> bool {
    let error = match name {
        "" => FieldError::required(path, ""),
        _ if !TYPES.contains(&name) => FieldError::not_supported(path, name, &TYPES),
        "ABAC" => FieldError::forbidden(path, &format!("authorizer type ABAC {NOT_AT_STARTUP}")),
        _ if !seen.insert(name) && name != "Webhook" => FieldError::duplicate(path, name),
        _ => return true,
    };
    errors.push(error);
    false
}

fn check_name<'a>(name: &'a str, path: &Path, seen: &mut BTreeSet<&'a str>, errors: &mut FieldErrors) {
    let wrong = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !seen.insert(name) {
        errors.push(FieldError::duplicate(path, name));
    } else if !wrong.is_empty() {
        let why = format!("authorizer name is invalid: {}", wrong.join(", "));
        errors.push(FieldError::invalid(path, name, &why));
    }
}

/// Paths are those of the authorizer itself, as upstream has them.
fn check_webhook(
    name: &str,
    entry: &WebhookEntry,
    path: &Path,
    read: &impl ReadFile,
    errors: &mut FieldErrors,
) -> Option<Webhook> {
    let timeout = entry.timeout;
    let at = path.child("timeout");
    if timeout.0 == 0 {
        errors.push(FieldError::required(&at, ""));
    } else if timeout.0 < 0 || timeout.duration() > TIMEOUT_MAX {
        errors.push(FieldError::invalid(&at, timeout.text().as_str(), "must be > 0s and <= 30s"));
    }
    let authorized = entry.authorized_ttl.or(AUTHORIZED_TTL);
    let unauthorized = entry.unauthorized_ttl.or(UNAUTHORIZED_TTL);
    for (name, span) in [("authorizedTTL", authorized), ("unauthorizedTTL", unauthorized)] {
        if span.0 < 0 {
            errors.push(FieldError::invalid(&path.child(name), span.text().as_str(), "must be > 0s"));
        }
    }
    let version = check_versions(entry, path, errors);
    let failure_policy = check_failure_policy(&entry.failure_policy, &path.child("failurePolicy"), errors);
    let target = check_connection(&entry.connection_info, path, read, errors);
    let match_conditions = conditions(&entry.match_conditions, &path.child("matchConditions"), errors);
    let kept = |is_kept: Option<bool>, span: Span| match is_kept {
        Some(false) => Duration::ZERO,
        _ => span.duration(),
    };
    Some(Webhook {
        name: name.to_owned(),
        target: target?,
        timeout: timeout.duration(),
        version: version?,
        authorized_ttl: kept(entry.cache_authorized_requests, authorized),
        unauthorized_ttl: kept(entry.cache_unauthorized_requests, unauthorized),
        failure_policy: failure_policy?,
        match_conditions,
    })
}

fn check_versions(entry: &WebhookEntry, path: &Path, errors: &mut FieldErrors) -> Option<ReviewVersion> {
    let at = path.child("subjectAccessReviewVersion");
    let given = entry.subject_access_review_version.as_str();
    let version = ReviewVersion::parse(given);
    match (given, version) {
        ("", _) => errors.push(FieldError::required(&at, "")),
        (_, None) => errors.push(FieldError::not_supported(&at, given, &["v1", "v1beta1"])),
        _ => {}
    }
    let at = path.child("matchConditionSubjectAccessReviewVersion");
    match entry.match_condition_subject_access_review_version.as_str() {
        "" if !entry.match_conditions.is_empty() => {
            errors.push(FieldError::required(&at, "required if match conditions are specified"));
        }
        "" | "v1" => {}
        other => errors.push(FieldError::not_supported(&at, other, &["v1"])),
    }
    version
}

fn check_failure_policy(given: &str, path: &Path, errors: &mut FieldErrors) -> Option<FailurePolicy> {
    let error = match given {
        "NoOpinion" => return Some(FailurePolicy::NoOpinion),
        "Deny" => return Some(FailurePolicy::Deny),
        "" => FieldError::required(path, ""),
        other => FieldError::not_supported(path, other, &["NoOpinion", "Deny"]),
    };
    errors.push(error);
    None
}

fn check_connection(
    info: &ConnectionInfo,
    path: &Path,
    read: &impl ReadFile,
    errors: &mut FieldErrors,
) -> Option<Target> {
    let path = path.child("connectionInfo");
    let (at, file) = (path.child("kubeConfigFile"), info.kube_config_file.as_deref());
    let error = match (info.r#type.as_str(), file) {
        ("KubeConfigFile", None | Some("")) => FieldError::required(&at, ""),
        ("KubeConfigFile", Some(file)) if !file.starts_with('/') => {
            FieldError::invalid(&at, file, "must be an absolute path")
        }
        ("KubeConfigFile", Some(file)) => match Target::load(file, read) {
            Ok(target) => return Some(target),
            Err(why) => {
                FieldError::invalid(&at, file, &format!("error loading file: {}", base::error_chain(&why)))
            }
        },
        ("InClusterConfig", Some(file)) => {
            FieldError::invalid(&at, file, "can only be set when type=KubeConfigFile")
        }
        // The API server is in no Pod.
        ("InClusterConfig", None) => FieldError::invalid(
            &path.child("type"),
            "InClusterConfig",
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined",
        ),
        ("", _) => FieldError::required(&path.child("type"), ""),
        (other, _) => {
            let known = ["InClusterConfig", "KubeConfigFile"];
            FieldError::not_supported(&path.child("type"), other, &known)
        }
    };
    errors.push(error);
    None
}

fn conditions(conditions: &[Condition], path: &Path, errors: &mut FieldErrors) -> Conditions {
    let mut compiled = Conditions::default();
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path, conditions.len(), CONDITIONS_MAX));
        return compiled;
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index).child("expression");
        let expression = condition.expression.as_str();
        if expression.trim().is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !seen.insert(expression) {
            errors.push(FieldError::duplicate(&at, expression));
        } else if let Err(why) = compiled.add(expression) {
            errors.push(FieldError::invalid(&at, expression, &why.to_string()));
        }
    }
    compiled
}

#[cfg(test)]
mod tests;
