//! The file of `--authentication-config`, or the `--oidc-*` flags in its place: which outside issuers' tokens are believed
//! and whom they stand for, and where nobody need say who they are. Pure.
//!
//! Source: `apiserver.config.k8s.io/v1` `AuthenticationConfiguration`, KEP-3331, KEP-4633.

mod compile;
mod issuer;
mod token_webhook;
mod user;

use std::sync::Arc;

use auth::oidc::Issuer;
use machinery::field::{FieldError, FieldErrors, Path};
use serde::Deserialize;

use crate::configuration_error::{self, ConfigurationError, check_fields, check_server_kind};
use crate::request_info::RequestInfo;
pub use token_webhook::TokenWebhook;
pub use user::{Mapping, MappingError};

/// What is accepted of an issuer of the file. Source: `oidc.AllValidSigningAlgorithms`.
const ALGORITHMS: [&str; 9] =
    ["ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];
const JWT_MAX: usize = 64;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// The issuers whose tokens are believed.
    pub jwt: Vec<Arc<JwtAuthenticator>>,
    /// The paths where requests need not say who sends them, if the file says.
    pub anonymous: Option<Anonymous>,
}

/// An issuer, and whom its tokens stand for. Source: `JWTAuthenticator`.
#[derive(Debug)]
pub struct JwtAuthenticator {
    /// The conditions that make a token one of this issuer.
    pub issuer: Issuer,
    /// From its claims to a user.
    pub mapping: Mapping,
    /// As it was written.
    config: Jwt,
}

impl PartialEq for JwtAuthenticator {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.issuer == other.issuer
    }
}

/// The paths where requests need not say who sends them; authorization is another question.
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
    /// `true` if a request without credentials is `system:anonymous`'s.
    pub fn allows(&self, info: &RequestInfo) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Everywhere => true,
            Self::At(paths) => paths.contains(&info.path),
        }
    }
}

/// The flags that say the same of one issuer. Source: `--oidc-*`.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--oidc-issuer-url`
    pub issuer_url: String,
    /// `--oidc-client-id`
    pub client_id: String,
    /// The content of the file of `--oidc-ca-file`; empty if not given.
    pub ca_pem: String,
    /// `--oidc-username-claim`
    pub username_claim: String,
    /// `--oidc-username-prefix`
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`
    pub groups_claim: Option<String>,
    /// `--oidc-groups-prefix`
    pub groups_prefix: String,
    /// `--oidc-required-claim`
    pub required_claims: Vec<(String, String)>,
    /// `--oidc-signing-algs`
    pub signing_algorithms: Vec<String>,
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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Jwt {
    issuer: IssuerConfig,
    claim_validation_rules: Vec<ClaimRule>,
    claim_mappings: Mappings,
    user_validation_rules: Vec<UserRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ClaimRule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct UserRule {
    expression: String,
    message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Mappings {
    username: PrefixedClaim,
    groups: PrefixedClaim,
    uid: Claim,
    extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PrefixedClaim {
    claim: String,
    prefix: Option<String>,
    expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Claim {
    claim: String,
    expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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
    pub fn parse(yaml: &str, own: &str) -> Result<Self, ConfigurationError> {
        if yaml.is_empty() {
            return Err(ConfigurationError::rule("empty config data"));
        }
        let file: File = configuration_error::read(yaml)?;
        check_server_kind(&file.kind, &file.api_version, "AuthenticationConfiguration")?;
        Self::of(file, own, ALGORITHMS.map(str::to_owned).to_vec())
    }

    /// The configuration that the flags make.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of_flags(flags: &Flags, own: &str) -> Result<Self, ConfigurationError> {
        let algorithms = flags.signing_algorithms.as_slice();
        if let Some(unknown) = algorithms.iter().find(|name| !ALGORITHMS.contains(&name.as_str())) {
            return Err(ConfigurationError::rule(format!("unsupported signing alg: {unknown:?}")));
        }
        let file = File { jwt: vec![flags.jwt()], ..File::default() };
        Self::of(file, own, algorithms.to_vec())
    }

    fn of(file: File, own: &str, algorithms: Vec<String>) -> Result<Self, ConfigurationError> {
        let mut errors = FieldErrors::new();
        let at = Path::new("jwt");
        if file.jwt.len() > JWT_MAX {
            return Err(FieldError::too_many(&at, file.jwt.len(), JWT_MAX).into());
        }
        let mut jwt: Vec<Arc<JwtAuthenticator>> = Vec::new();
        for (index, config) in file.jwt.into_iter().enumerate() {
            let at = at.index(index);
            issuer::check(&config.issuer, &at.child("issuer"), own, &mut errors);
            issuer::check_unique(&config.issuer, &jwt, &at.child("issuer"), &mut errors);
            let mapping = compile::mapping(&config, &at, &mut errors);
            let issuer = issuer::of(&config.issuer, &algorithms);
            jwt.push(Arc::new(JwtAuthenticator { issuer, mapping, config }));
        }
        let anonymous = file.anonymous.as_ref().map(|config| anonymous(config, &mut errors));
        check_fields(errors, "; ")?;
        Ok(Self { jwt, anonymous })
    }

    /// The check that the file may take the place of the one that the server was started with.
    ///
    /// # Errors
    /// What it changes that does not change while a server runs.
    pub fn may_replace(&self, first: &Self) -> Result<(), ConfigurationError> {
        match self.anonymous == first.anonymous {
            true => Ok(()),
            false => {
                let why = "changed from initial configuration file";
                Err(FieldError::forbidden(&Path::new("anonymous"), why).into())
            }
        }
    }
}

fn anonymous(config: &AnonymousConfig, errors: &mut FieldErrors) -> Anonymous {
    if !config.enabled && !config.conditions.is_empty() {
        let why = "enabled should be set to true when conditions are defined";
        let path = Path::new("anonymous").child("conditions");
        errors.push(FieldError::invalid(&path, config.conditions.len() as i64, why));
    }
    match (config.enabled, config.conditions.as_slice()) {
        (false, _) => Anonymous::Nowhere,
        (true, []) => Anonymous::Everywhere,
        (true, all) => Anonymous::At(all.iter().map(|condition| condition.path.clone()).collect()),
    }
}

impl Flags {
    fn jwt(&self) -> Jwt {
        let prefix = match self.username_prefix.as_deref() {
            Some("-") => String::new(),
            // So that an issuer's users are nobody else's.
            None | Some("") if self.username_claim != "email" => format!("{}#", self.issuer_url),
            given => given.unwrap_or_default().to_owned(),
        };
        let rules = self.required_claims.iter().map(|(claim, value)| ClaimRule {
            claim: claim.clone(),
            required_value: value.clone(),
            ..ClaimRule::default()
        });
        let groups =
            self.groups_claim.as_ref().filter(|claim| !claim.is_empty()).map(|claim| PrefixedClaim {
                claim: claim.clone(),
                prefix: Some(self.groups_prefix.clone()),
                expression: String::new(),
            });
        let username = PrefixedClaim {
            claim: self.username_claim.clone(),
            prefix: Some(prefix),
            expression: String::new(),
        };
        Jwt {
            issuer: IssuerConfig {
                url: self.issuer_url.clone(),
                audiences: vec![self.client_id.clone()],
                certificate_authority: self.ca_pem.clone(),
                ..IssuerConfig::default()
            },
            claim_validation_rules: rules.collect(),
            claim_mappings: Mappings { username, groups: groups.unwrap_or_default(), ..Mappings::default() },
            user_validation_rules: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
