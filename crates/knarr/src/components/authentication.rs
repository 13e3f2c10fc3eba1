//! Whose tokens are believed: the file of `--authentication-config`, or the `--oidc-*` flags in its place.

use std::path::Path;

use anyhow::{Context, Result, bail};
use apiserver::ApiServer;
use apiserver::authentication_config::{Authentication, Flags};
use cli::api_server::ApiServerArgs;
use futures::future::BoxFuture;

use super::Settings;
use super::configuration::{Bundle, Configuration, Reader};

const FLAG: &str = "--authentication-config";

/// The file.
pub(super) const CONFIGURATION: Configuration = Configuration {
    what: "authentication",
    good: "cred/authentication-config.json",
    broken: "cred/authentication-config-broken.json",
    named: |settings| Some((FLAG, settings.args.api_server.authentication_config.as_deref()?)),
    check,
    reload,
};

fn check(settings: &Settings, text: &str, _: &Reader<'_>) -> Result<()> {
    Authentication::parse(text, &settings.issuer())?;
    Ok(())
}

fn reload<'a>(_: &'a Settings, server: &'a ApiServer, bundle: &'a Bundle) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move { Ok(server.reload_authentication(&bundle.text).await?) })
}

/// What the flags come to. `own` is the issuer of the cluster's own tokens, `server_folder` where the file has been left.
///
/// # Errors
/// If it cannot be used.
pub(super) fn load(args: &ApiServerArgs, own: &str, server_folder: &Path) -> Result<Authentication> {
    if args.authentication_config.is_some() {
        let bundle = Bundle::of(&CONFIGURATION, server_folder)?;
        return Authentication::parse(&bundle.text, own).context(FLAG);
    }
    let (issuer_url, client_id) = match (&args.oidc_issuer_url, &args.oidc_client_id) {
        (None, None) => return Ok(Authentication::default()),
        (Some(url), Some(client)) => (url.clone(), client.clone()),
        _ => bail!("--oidc-issuer-url and --oidc-client-id need each other"),
    };
    let required = args.oidc_required_claim.iter().map(|pair| {
        let (name, value) = pair
            .split_once('=')
            .with_context(|| format!("--oidc-required-claim: {pair:?} is not CLAIM=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    let authorities = args.oidc_ca_file.as_deref().map(|path| {
        std::fs::read_to_string(path).with_context(|| format!("--oidc-ca-file: read {}", path.display()))
    });
    let flags = Flags {
        issuer_url,
        client_id,
        ca_pem: authorities.transpose()?.unwrap_or_default(),
        username_claim: args.oidc_username_claim.clone(),
        username_prefix: args.oidc_username_prefix.clone(),
        groups_claim: args.oidc_groups_claim.clone(),
        groups_prefix: args.oidc_groups_prefix.clone().unwrap_or_default(),
        required_claims: required.collect::<Result<_>>()?,
        signing_algorithms: args.oidc_signing_algs.clone(),
    };
    Authentication::of_flags(&flags, own).context("--oidc-issuer-url and its kin")
}
