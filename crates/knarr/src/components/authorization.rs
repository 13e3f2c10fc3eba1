//! Who is asked whether somebody may: the file of `--authorization-config`, or the flags in its place with the kubeconfig of
//! the webhook.

use std::path::Path;

use anyhow::Result;
use apiserver::ApiServer;
use apiserver::authorization_config::{Authorization, Flags};
use apiserver::configuration_error::{Cause, ConfigurationError};
use base::error_chain;
use cli::api_server::AuthorityArgs;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use super::Settings;
use super::configuration::{Bundle, Configuration, Reader, read_named};

const FLAG: &str = "--authorization-config";
const WEBHOOK_FLAG: &str = "--authorization-webhook-config-file";

/// The file, or the kubeconfig.
pub(super) const CONFIGURATION: Configuration = Configuration {
    what: "authorization",
    good: "cred/authorization-config.json",
    broken: "cred/authorization-config-broken.json",
    named: |settings| named(&settings.args.api_server.authorities),
    check: |settings, text, read| {
        parse(&settings.args.api_server.authorities, text, read)?;
        Ok(())
    },
    reload,
};

fn named(args: &AuthorityArgs) -> Option<(&'static str, &Path)> {
    let file = args.authorization_config.as_deref().map(|path| (FLAG, path));
    file.or_else(|| Some((WEBHOOK_FLAG, args.authorization_webhook_config_file.as_deref()?)))
}

fn reload<'a>(
    settings: &'a Settings,
    server: &'a ApiServer,
    bundle: &'a Bundle,
) -> BoxFuture<'a, Result<bool>> {
    let (args, read) = (&settings.args.api_server.authorities, |file: &str| bundle.read(file));
    let reloaded = match args.authorization_config {
        Some(_) => server.reload_authorization(&bundle.text, |path: &str| Ok(read(path)?)),
        None => parse(args, &bundle.text, &read).and_then(|config| server.replace_authorization(config)),
    };
    ready(reloaded.map_err(anyhow::Error::from)).boxed()
}

/// What the flags come to; `server_folder` is where the files have been left.
///
/// # Errors
/// If it cannot be used.
pub(super) fn load(args: &AuthorityArgs, server_folder: &Path) -> Result<Authorization> {
    let Some((flag, _)) = named(args) else {
        return parse(args, "", &read_named).map_err(|why| anyhow::anyhow!(error_chain(&why)));
    };
    let bundle = Bundle::of(&CONFIGURATION, server_folder)?;
    parse(args, &bundle.text, &|file: &str| bundle.read(file))
        .map_err(|why| anyhow::anyhow!("{flag}: {}", error_chain(&why)))
}

fn parse(args: &AuthorityArgs, text: &str, read: &Reader<'_>) -> Result<Authorization, ConfigurationError> {
    let read = |path: &str| -> Result<String, Cause> { Ok(read(path)?) };
    if args.authorization_config.is_some() {
        return Authorization::parse(text, read);
    }
    let file = args.authorization_webhook_config_file.as_deref();
    let no_text = || ConfigurationError::Rule(format!("{WEBHOOK_FLAG} is no text").into());
    let file = file.map(|path| path.to_str().ok_or_else(no_text));
    let seconds = |given: Option<cli::duration::GoDuration>, default: u64| {
        given.map_or(std::time::Duration::from_secs(default), |given| given.0)
    };
    let flags = Flags {
        modes: &args.authorization_mode,
        webhook_config_file: file.transpose()?,
        webhook_version: args.authorization_webhook_version.as_deref().unwrap_or("v1beta1"),
        authorized_ttl: seconds(args.authorization_webhook_cache_authorized_ttl, 300),
        unauthorized_ttl: seconds(args.authorization_webhook_cache_unauthorized_ttl, 30),
    };
    Authorization::of_flags(&flags, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_without_a_file_mean_nodes_and_roles() {
        let parse = |args: &AuthorityArgs| parse(args, "", &read_named).map_err(|why| error_chain(&why));
        assert_eq!(parse(&AuthorityArgs::default()), Ok(Authorization::default()));
        assert_eq!(named(&AuthorityArgs::default()), None);
        let webhook = AuthorityArgs {
            authorization_mode: vec!["Webhook".to_owned()],
            authorization_webhook_config_file: Some("/gone".into()),
            ..AuthorityArgs::default()
        };
        assert_eq!(named(&webhook), Some((WEBHOOK_FLAG, Path::new("/gone"))));
        assert!(parse(&webhook).unwrap_err().starts_with("/gone: stat /gone: "));
    }
}
