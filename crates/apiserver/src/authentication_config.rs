//! The file of `--authentication-config`: which outside issuers' tokens are believed, and where nobody need say who
//! they are. Pure.
//!
//! CEL expressions are refused by the name of their field: what a rule forbids must never be let in because the rule
//! was not understood. Source: `apiserver.config.k8s.io/v1` `AuthenticationConfiguration`, KEP-3331, KEP-4633.

use std::time::Duration;

use auth::oidc::Issuer;
use machinery::field::{FieldError, FieldErrors, Path};
use serde::Deserialize;

use crate::authorization_config::ReviewVersion;
use crate::request_info::RequestInfo;
use crate::webhook_client::kubeconfig::Target;

const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];
/// What upstream accepts of an issuer that does not say.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];
const JWT_MAX: usize = 64;
const BOTH: &str = "claim and expression can't both be set";
const EITHER: &str = "claim or expression is required";
const NO_CEL: &str = "CEL expressions are not supported; use claims";
const PREFIX: &str =
    "prefix is required when claim is set. It can be set to an empty string to disable prefixing";

/// What the file comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// Whose tokens are believed.
    pub issuers: Vec<Issuer>,
    /// Where requests need not say who sends them, if the file says.
    pub anonymous: Option<Anonymous>,
}

/// Where requests need not say who sends them; what they may do there is another question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Everywhere.
    #[default]
    Everywhere,
    /// Nowhere.
    Nowhere,
    /// At these paths.
    At(Vec<String>),
}

impl Anonymous {
    /// Whether a request without credentials is `system:anonymous`'s.
    pub fn allows(&self, info: &RequestInfo) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Everywhere => true,
            Self::At(paths) => paths.contains(&info.path),
        }
    }
}

/// Which webhook is asked who somebody is whom nothing here knows. Source: `--authentication-token-webhook-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWebhook {
    /// Where it is.
    pub target: Target,
    /// In which version it is asked.
    pub version: ReviewVersion,
    /// How long answers are kept; nothing if not at all.
    pub cache_ttl: Duration,
}

impl TokenWebhook {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        file: &str,
        version: &str,
        cache_ttl: Duration,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let unsupported = || {
            format!(
                "unsupported authentication webhook version {version:?}, supported versions are \"v1\", \"v1beta1\""
            )
        };
        let version = ReviewVersion::parse(version).ok_or_else(unsupported)?;
        let target = Target::load(file, read).map_err(|why| format!("{file}: {why}"))?;
        Ok(Self { target, version, cache_ttl })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    jwt: Vec<Jwt>,
    anonymous: Option<AnonymousConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct AnonymousConfig {
    enabled: bool,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Condition {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Jwt {
    issuer: IssuerConfig,
    claim_validation_rules: Vec<ClaimRule>,
    claim_mappings: Mappings,
    user_validation_rules: Vec<UserRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct IssuerConfig {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: String,
    certificate_authority: String,
    audiences: Vec<String>,
    audience_match_policy: String,
    egress_selector_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ClaimRule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct UserRule {
    expression: String,
    #[serde(rename = "message")]
    _message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Mappings {
    username: Mapping,
    groups: Mapping,
    uid: Mapping,
    extra: Vec<ExtraMapping>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Mapping {
    claim: String,
    prefix: Option<String>,
    expression: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ExtraMapping {
    key: String,
    value_expression: String,
}

impl Authentication {
    /// Reads the file. `own` is the issuer of the cluster's own tokens, which no other may be.
    ///
    /// # Errors
    /// What is wrong with it, every broken field by its name.
    pub fn parse(yaml: &str, own: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(yaml).map_err(|failure| failure.to_string())?;
        if !VERSIONS.contains(&file.api_version.as_str()) || file.kind != "AuthenticationConfiguration" {
            return Err(format!(
                "it must be an AuthenticationConfiguration of {}, not {:?} of {:?}",
                VERSIONS[0], file.kind, file.api_version
            ));
        }
        let mut errors = FieldErrors::new();
        let jwt = Path::new("jwt");
        if file.jwt.len() > JWT_MAX {
            errors.push(FieldError::too_many(&jwt, file.jwt.len(), JWT_MAX));
        }
        let mut issuers: Vec<Issuer> = Vec::new();
        for (index, one) in file.jwt.iter().enumerate() {
            let path = jwt.index(index);
            let issuer = issuer(one, &path, own, &mut errors);
            let url = path.child("issuer").child("url");
            if issuers.iter().any(|other| other.url == issuer.url) {
                errors.push(FieldError::duplicate(&url, issuer.url.as_str()));
            }
            issuers.push(issuer);
        }
        let anonymous = file.anonymous.as_ref().map(|config| anonymous(config, &mut errors));
        if errors.is_empty() {
            return Ok(Self { issuers, anonymous });
        }
        Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

fn anonymous(config: &AnonymousConfig, errors: &mut FieldErrors) -> Anonymous {
    let path = Path::new("anonymous").child("conditions");
    if !config.enabled && !config.conditions.is_empty() {
        let why = "enabled should be set to true when conditions are defined";
        errors.push(FieldError::invalid(&path, config.conditions.len() as i64, why));
    }
    for (index, condition) in config.conditions.iter().enumerate() {
        if condition.path.is_empty() {
            errors.push(FieldError::required(&path.index(index).child("path"), ""));
        }
    }
    match (config.enabled, config.conditions.as_slice()) {
        (false, _) => Anonymous::Nowhere,
        (true, []) => Anonymous::Everywhere,
        (true, all) => Anonymous::At(all.iter().map(|condition| condition.path.clone()).collect()),
    }
}

fn issuer(jwt: &Jwt, path: &Path, own: &str, errors: &mut FieldErrors) -> Issuer {
    let (config, mappings) = (&jwt.issuer, &jwt.claim_mappings);
    check_issuer(config, &path.child("issuer"), own, errors);
    let rules = path.child("claimValidationRules");
    for (index, rule) in jwt.claim_validation_rules.iter().enumerate() {
        check_claim_rule(rule, &rules.index(index), errors);
    }
    let rules = path.child("userValidationRules");
    for (index, rule) in jwt.user_validation_rules.iter().enumerate() {
        let path = rules.index(index).child("expression");
        errors.push(match rule.expression.as_str() {
            "" => FieldError::required(&path, "expression is required"),
            _ => FieldError::forbidden(&path, NO_CEL),
        });
    }
    check_mappings(mappings, &path.child("claimMappings"), errors);
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let required = jwt.claim_validation_rules.iter();
    Issuer {
        url: config.url.clone(),
        discovery_url: some(&config.discovery_url),
        ca_pem: config.certificate_authority.clone().into_bytes(),
        audiences: config.audiences.clone(),
        username_claim: mappings.username.claim.clone(),
        username_prefix: mappings.username.prefix.clone().unwrap_or_default(),
        groups_claim: some(&mappings.groups.claim),
        groups_prefix: mappings.groups.prefix.clone().unwrap_or_default(),
        uid_claim: some(&mappings.uid.claim),
        required_claims: required.map(|rule| (rule.claim.clone(), rule.required_value.clone())).collect(),
        algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
    }
}

fn check_url(url: &str, path: &Path, errors: &mut FieldErrors) {
    match url.parse::<http::Uri>() {
        Err(failure) => errors.push(FieldError::invalid(path, url, &failure.to_string())),
        Ok(parsed) => {
            if parsed.scheme_str() != Some("https") {
                errors.push(FieldError::invalid(path, url, "URL scheme must be https"));
            }
            if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                errors.push(FieldError::invalid(path, url, "URL must not contain a username or password"));
            }
            if url.contains('?') {
                errors.push(FieldError::invalid(path, url, "URL must not contain a query"));
            }
            if url.contains('#') {
                errors.push(FieldError::invalid(path, url, "URL must not contain a fragment"));
            }
        }
    }
}

fn check_issuer(config: &IssuerConfig, path: &Path, own: &str, errors: &mut FieldErrors) {
    let url = path.child("url");
    if config.url.is_empty() {
        errors.push(FieldError::required(&url, "URL is required"));
    } else {
        check_url(&config.url, &url, errors);
        if config.url == own {
            let why = format!("URL must not overlap with disallowed issuers: [{own}]");
            errors.push(FieldError::invalid(&url, config.url.as_str(), &why));
        }
    }
    let discovery = path.child("discoveryURL");
    if !config.discovery_url.is_empty() {
        check_url(&config.discovery_url, &discovery, errors);
        if config.discovery_url.trim_end_matches('/') == config.url.trim_end_matches('/') {
            let why = "discoveryURL must be different from URL";
            errors.push(FieldError::invalid(&discovery, config.discovery_url.as_str(), why));
        }
    }
    if !config.egress_selector_type.is_empty() {
        errors.push(FieldError::forbidden(
            &path.child("egressSelectorType"),
            "there is no egress selector configuration",
        ));
    }
    check_audiences(config, path, errors);
}

fn check_audiences(config: &IssuerConfig, path: &Path, errors: &mut FieldErrors) {
    let audiences = path.child("audiences");
    if config.audiences.is_empty() {
        let why = format!("at least one {audiences} is required");
        errors.push(FieldError::required(&audiences, &why));
    }
    for (index, audience) in config.audiences.iter().enumerate() {
        let path = audiences.index(index);
        if audience.is_empty() {
            errors.push(FieldError::required(&path, "audience can't be empty"));
        }
        if config.audiences.iter().take(index).any(|other| other == audience) {
            errors.push(FieldError::duplicate(&path, audience.as_str()));
        }
    }
    let policy = config.audience_match_policy.as_str();
    let is_any = policy == "MatchAny";
    let path = path.child("audienceMatchPolicy");
    if config.audiences.len() > 1 && !is_any {
        let why = "audienceMatchPolicy must be MatchAny for multiple audiences";
        errors.push(FieldError::invalid(&path, policy, why));
    } else if !policy.is_empty() && !is_any {
        errors.push(FieldError::invalid(
            &path,
            policy,
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        ));
    }
}

fn check_claim_rule(rule: &ClaimRule, path: &Path, errors: &mut FieldErrors) {
    match (rule.claim.as_str(), rule.expression.as_str()) {
        ("", "") => errors.push(FieldError::required(path, EITHER)),
        ("", _) => errors.push(FieldError::forbidden(&path.child("expression"), NO_CEL)),
        (_, "") if !rule.message.is_empty() => {
            let why = "message can't be set when claim is set";
            errors.push(FieldError::invalid(&path.child("message"), rule.message.as_str(), why));
        }
        (_, "") => {}
        (claim, _) => errors.push(FieldError::invalid(path, claim, BOTH)),
    }
}

fn check_mappings(mappings: &Mappings, path: &Path, errors: &mut FieldErrors) {
    check_mapping(&mappings.username, &path.child("username"), true, errors);
    check_mapping(&mappings.groups, &path.child("groups"), false, errors);
    let (uid, at) = (&mappings.uid, path.child("uid"));
    if !uid.expression.is_empty() {
        errors.push(FieldError::forbidden(&at.child("expression"), NO_CEL));
    }
    for (index, extra) in mappings.extra.iter().enumerate() {
        let at = path.child("extra").index(index);
        if extra.key.is_empty() {
            errors.push(FieldError::required(&at.child("key"), ""));
        }
        let at = at.child("valueExpression");
        errors.push(match extra.value_expression.as_str() {
            "" => FieldError::required(&at, "valueExpression is required"),
            _ => FieldError::forbidden(&at, NO_CEL),
        });
    }
}

fn check_mapping(mapping: &Mapping, path: &Path, is_required: bool, errors: &mut FieldErrors) {
    let prefix = path.child("prefix");
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if is_required => errors.push(FieldError::required(path, EITHER)),
        ("", "") => {
            if let Some(given) = mapping.prefix.as_ref().filter(|given| !given.is_empty()) {
                errors.push(FieldError::invalid(
                    &prefix,
                    given.as_str(),
                    "non-empty prefix when claim is not set is not allowed",
                ));
            }
        }
        ("", _) => errors.push(FieldError::forbidden(&path.child("expression"), NO_CEL)),
        (_, "") if mapping.prefix.is_none() => errors.push(FieldError::required(&prefix, PREFIX)),
        (_, "") => {}
        (claim, _) => errors.push(FieldError::invalid(path, claim, BOTH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    const GOOD: &str = "jwt:
- issuer: {url: 'https://issuer.example', audiences: [one, two], audienceMatchPolicy: MatchAny}
  claimValidationRules: [{claim: hd, requiredValue: example}]
  claimMappings:
    username: {claim: sub, prefix: 'ex:'}
    groups: {claim: roles, prefix: ''}
    uid: {claim: oid}
anonymous: {enabled: true, conditions: [{path: /livez}]}
";

    fn parse(text: &str) -> Result<Authentication, String> {
        Authentication::parse(&format!("{HEAD}{text}"), "https://own.example")
    }

    #[test]
    fn claims_are_mapped_as_the_file_says() {
        let read = parse(GOOD).unwrap();
        let issuer = &read.issuers[0];
        assert_eq!(issuer.audiences, ["one", "two"]);
        assert_eq!((issuer.username_claim.as_str(), issuer.username_prefix.as_str()), ("sub", "ex:"));
        assert_eq!(
            (issuer.groups_claim.as_deref(), issuer.uid_claim.as_deref()),
            (Some("roles"), Some("oid"))
        );
        assert_eq!(issuer.required_claims, [("hd".to_owned(), "example".to_owned())]);
        assert_eq!(read.anonymous, Some(Anonymous::At(vec!["/livez".into()])));
        assert_eq!(parse("").unwrap(), Authentication::default());
        assert_eq!(parse("anonymous: {enabled: false}").unwrap().anonymous, Some(Anonymous::Nowhere));
    }

    fn check(from: &str, to: &str, expect: &str) {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        assert_eq!(parse(&text).unwrap_err(), expect, "{from} -> {to}");
    }

    #[test]
    fn every_broken_field_is_named() {
        check(
            "https://issuer",
            "http://issuer",
            "jwt[0].issuer.url: Invalid value: \"http://issuer.example\": URL scheme must be https",
        );
        check(
            "https://issuer",
            "https://own",
            "jwt[0].issuer.url: Invalid value: \"https://own.example\": URL must not overlap with disallowed issuers: [https://own.example]",
        );
        check(
            "[one, two]",
            "[]",
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        );
        check(
            ", audienceMatchPolicy: MatchAny",
            "",
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
        );
        check(
            ", prefix: 'ex:'",
            "",
            &format!("jwt[0].claimMappings.username.prefix: Required value: {PREFIX}"),
        );
        check(
            "claim: sub, prefix: 'ex:'",
            "",
            &format!("jwt[0].claimMappings.username: Required value: {EITHER}"),
        );
        check(
            "enabled: true",
            "enabled: false",
            "anonymous.conditions: Invalid value: 1: enabled should be set to true when conditions are defined",
        );
    }

    #[test]
    fn expressions_are_refused_by_name() {
        check(
            "claim: sub, prefix: 'ex:'",
            "expression: claims.sub",
            &format!("jwt[0].claimMappings.username.expression: Forbidden: {NO_CEL}"),
        );
        check(
            "claim: hd, requiredValue: example",
            "expression: 'true'",
            &format!("jwt[0].claimValidationRules[0].expression: Forbidden: {NO_CEL}"),
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(parse("jwts: []").unwrap_err().contains("jwts"));
        assert!(
            Authentication::parse("apiVersion: v1\nkind: Config", "").unwrap_err().starts_with("it must be")
        );
    }
}
