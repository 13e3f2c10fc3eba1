//! An issuer of the file: `jwt[].issuer`.

use std::sync::Arc;

use auth::oidc::Issuer;
use machinery::field::{FieldError, FieldErrors, Path};

use super::{IssuerConfig, JwtAuthenticator};
use crate::configuration_error::ConfigurationError;

/// What an issuer's part of the file comes to.
pub(super) fn of(config: &IssuerConfig, algorithms: &[String]) -> Issuer {
    Issuer {
        url: config.url.clone(),
        discovery_url: Some(config.discovery_url.clone()).filter(|url| !url.is_empty()),
        ca_pem: config.certificate_authority.clone().into_bytes(),
        audiences: config.audiences.clone(),
        algorithms: algorithms.to_vec(),
    }
}

/// Checks that an issuer and its discovery document are no other one's.
pub(super) fn check_unique(
    config: &IssuerConfig,
    others: &[Arc<JwtAuthenticator>],
    path: &Path,
    errors: &mut FieldErrors,
) {
    if others.iter().any(|other| other.config.issuer.url == config.url) {
        errors.push(FieldError::duplicate(&path.child("url"), config.url.as_str()));
    }
    let discovery = config.discovery_url.as_str();
    if !discovery.is_empty() && others.iter().any(|other| other.config.issuer.discovery_url == discovery) {
        errors.push(FieldError::duplicate(&path.child("discoveryURL"), discovery));
    }
}

/// Checks an issuer by itself. `own` is the issuer of the cluster's own tokens.
pub(super) fn check(config: &IssuerConfig, path: &Path, own: &str, errors: &mut FieldErrors) {
    let url = path.child("url");
    if config.url.is_empty() {
        errors.push(FieldError::required(&url, ""));
    } else {
        if config.url == own {
            let why = format!("URL must not overlap with disallowed issuers: [{own}]");
            errors.push(FieldError::invalid(&url, config.url.as_str(), &why));
        }
        check_url(&config.url, &url, errors);
    }
    let discovery = path.child("discoveryURL");
    if !config.discovery_url.is_empty() {
        if config.discovery_url.trim_end_matches('/') == config.url.trim_end_matches('/') {
            let why = "discoveryURL must be different from URL";
            errors.push(FieldError::invalid(&discovery, config.discovery_url.as_str(), why));
        }
        check_url(&config.discovery_url, &discovery, errors);
    }
    check_audiences(config, path, errors);
    if let Err(why) = check_authority(config.certificate_authority.as_bytes()) {
        errors.push(FieldError::invalid(&path.child("certificateAuthority"), "<omitted>", &why.to_string()));
    }
    check_egress(&config.egress_selector_type, &path.child("egressSelectorType"), errors);
}

fn check_url(url: &str, path: &Path, errors: &mut FieldErrors) {
    let parsed = match url.parse::<http::Uri>() {
        Ok(parsed) => parsed,
        Err(failure) => {
            errors.push(FieldError::invalid(path, url, &failure.to_string()));
            return;
        }
    };
    let has_user = parsed.authority().is_some_and(|authority| authority.as_str().contains('@'));
    for (is_wrong, why) in [
        (parsed.scheme_str() != Some("https"), "URL scheme must be https"),
        (has_user, "URL must not contain a username or password"),
        (parsed.query().is_some_and(|query| !query.is_empty()), "URL must not contain a query"),
        (
            url.split_once('#').is_some_and(|(_, fragment)| !fragment.is_empty()),
            "URL must not contain a fragment",
        ),
    ] {
        if is_wrong {
            errors.push(FieldError::invalid(path, url, why));
        }
    }
}

fn check_audiences(config: &IssuerConfig, path: &Path, errors: &mut FieldErrors) {
    let audiences = path.child("audiences");
    if config.audiences.is_empty() {
        let why = format!("at least one {audiences} is required");
        errors.push(FieldError::required(&audiences, &why));
        return;
    }
    for (index, audience) in config.audiences.iter().enumerate() {
        let path = audiences.index(index);
        if audience.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        if config.audiences.iter().take(index).any(|other| other == audience) {
            errors.push(FieldError::duplicate(&path, audience.as_str()));
        }
    }
    let why = match (config.audiences.len(), config.audience_match_policy.as_str()) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    let path = path.child("audienceMatchPolicy");
    errors.push(FieldError::invalid(&path, config.audience_match_policy.as_str(), why));
}

/// The certificates that a text has; none need be there if there is no text.
fn check_authority(pem: &[u8]) -> Result<(), ConfigurationError> {
    if pem.is_empty() {
        return Ok(());
    }
    match tls::authorities(pem).map_err(ConfigurationError::unusable)?.is_empty() {
        true => Err(ConfigurationError::rule("data does not contain any valid RSA or ECDSA certificates")),
        false => Ok(()),
    }
}

/// No egress selector is configured, ever: whoever asks for one would get a connection that they do not want.
fn check_egress(kind: &str, path: &Path, errors: &mut FieldErrors) {
    let why = match kind {
        "" => return,
        "controlplane" | "cluster" => {
            format!("oidc: egress lookup required with egress selector type {kind:?}")
        }
        _ => "egress selector must be either controlplane or cluster".to_owned(),
    };
    errors.push(FieldError::invalid(path, kind, &why));
}
