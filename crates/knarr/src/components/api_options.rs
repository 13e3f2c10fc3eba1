//! What the API server's flags come to: files are read and names checked here, so that a mistake is told at the start.
//! This happens as root: the control plane's own user need not be able to read what an administrator keeps.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown, lchown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::Options;
use apiserver::admission;
use apiserver::admission::configuration::Configured;
use apiserver::audit::{self, LogFile, policy::Policy};
use apiserver::authentication_config::{Anonymous, TokenWebhook};
use apiserver::configuration_error::Cause;
use apiserver::options::{PluginChoice, ProxyClient};
use apiserver::security::front_proxy::FrontProxy;
use apiserver::tunnels;
use auth::pki::public_keys;
use cli::api_server::{ApiServerArgs, EgressSelectorMode};
use nix::fcntl::OFlag;

use super::configuration::read_named;
use super::identity::FRONT_PROXY_CLIENT;
use super::{audit_webhook, authentication, authorities, authorization, service_accounts};

/// Reads what the flags name; `issuer` is that of the cluster's own tokens, `tls` has its authorities.
pub(crate) fn options(args: &ApiServerArgs, own_issuer: &str, tls: &Path) -> Result<Options> {
    let server_folder = tls.parent().unwrap_or(tls);
    let authentication = authentication::load(args, own_issuer, server_folder)?;
    let anonymous = match (authentication.anonymous.clone(), args.anonymous_auth) {
        (Some(_), false) => {
            bail!("--anonymous-auth and anonymous in --authentication-config exclude each other")
        }
        (Some(anonymous), true) => anonymous,
        (None, true) => Anonymous::Everywhere,
        (None, false) => Anonymous::Nowhere,
    };
    let plugins =
        apiserver::admission::chosen(&args.enable_admission_plugins, &args.disable_admission_plugins);
    let plugins = plugins?;
    let configured = configured(args, &plugins)?;
    Ok(Options {
        event_rate_limits: Arc::new(configured.event_rate_limits),
        webhook_credentials: configured.webhook_credentials,
        admission_plugins: plugins,
        front_proxy: Some(front_proxy(args, tls)?),
        proxy_client: proxy_client(args, tls)?,
        authentication,
        service_accounts: service_accounts::load(&args.service_accounts)?,
        anonymous,
        token_webhook: token_webhook(args)?,
        authorization: authorization::load(&args.authorities, server_folder)?,
        audit: audit(args)?,
        egress_selector_mode: match args.egress_selector_mode {
            EgressSelectorMode::Disabled => tunnels::EgressSelectorMode::Disabled,
            EgressSelectorMode::Agent => tunnels::EgressSelectorMode::Agent,
            EgressSelectorMode::Pod => tunnels::EgressSelectorMode::Pod,
        },
        is_fair: args.enable_priority_and_fairness,
        request_timeout: args.request_timeout.0,
        shutdown_delay: args.shutdown_delay_duration.0,
        ..Options::default()
    })
}

/// Lets the control plane's user write the audit log, which lies where root wants it. What is in a folder of that user
/// is his to make: root follows no link there.
pub(crate) fn own_log(args: &ApiServerArgs, uid: u32, gid: u32) -> Result<()> {
    let Some(path) = args.audit_log_path.as_deref().filter(|path| path.as_os_str() != "-") else {
        return Ok(());
    };
    let cannot = || format!("--audit-log-path: prepare {}", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_his = |way: &Path| way.symlink_metadata().is_ok_and(|is| is.uid() == uid);
    if folder.ancestors().any(is_his) {
        return super::as_control_plane(|| {
            std::fs::create_dir_all(folder)?;
            open_log(path).map(drop)
        })
        .with_context(cannot);
    }
    if !folder.exists() {
        std::fs::create_dir_all(folder).with_context(cannot)?;
        lchown(folder, Some(uid), Some(gid)).with_context(cannot)?;
        return super::as_control_plane(|| open_log(path).map(drop)).with_context(cannot);
    }
    let log = open_log(path).with_context(cannot)?;
    fchown(&log, Some(uid), Some(gid)).with_context(cannot)
}

/// The log's file, made if it is absent; nothing else that has its name.
fn open_log(path: &Path) -> Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let log =
        OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(flags.bits()).open(path)?;
    let is = log.metadata()?;
    if !is.is_file() || is.nlink() != 1 {
        bail!("it is no file, or has another name too");
    }
    Ok(log)
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{flag}: read {}", path.display()))
}

/// The front proxies that are believed: those of the cluster's own authority for them, or those that the flags name.
///
/// Whoever has a certificate of such an authority is whom they say. So it must sign for nobody else.
fn front_proxy(args: &ApiServerArgs, tls: &Path) -> Result<FrontProxy> {
    const FLAG: &str = "--requestheader-client-ca-file";
    let Some(path) = &args.requestheader_client_ca_file else {
        let own = FrontProxy::new(authorities::read(tls, "front-proxy-ca.crt")?.into_bytes());
        return Ok(FrontProxy { allowed_names: vec![FRONT_PROXY_CLIENT.to_owned()], ..own });
    };
    let given = read(FLAG, path)?;
    let keys = public_keys(&given).with_context(|| format!("{FLAG}: {}", path.display()))?;
    for name in ["client-ca-bundle.crt", "ca.crt", "kubelet-serving-ca.crt"] {
        let taken = public_keys(authorities::read(tls, name)?.as_bytes())?;
        if keys.iter().any(|key| taken.contains(key)) {
            bail!("{FLAG}: {} must not be an authority of clients or Nodes of this cluster", path.display());
        }
    }
    Ok(FrontProxy { allowed_names: args.requestheader_allowed_names.clone(), ..FrontProxy::new(given) })
}

/// What this server shows to aggregated APIs: the certificate of this cluster's own front proxy, or that which flags name.
///
/// Nothing, if another authority is believed and no certificate of it is there: nobody would believe ours.
fn proxy_client(args: &ApiServerArgs, tls: &Path) -> Result<Option<ProxyClient>> {
    let (certificate, key) = (&args.proxy_client_cert_file, &args.proxy_client_key_file);
    if let Some((certificate, key)) = certificate.as_ref().zip(key.as_ref()) {
        return Ok(Some(ProxyClient {
            certificate_pem: read("--proxy-client-cert-file", certificate)?,
            key_pem: read("--proxy-client-key-file", key)?,
        }));
    }
    if args.requestheader_client_ca_file.is_some() {
        return Ok(None);
    }
    let own = |end: &str| authorities::read(tls, &format!("{FRONT_PROXY_CLIENT}.{end}"));
    Ok(Some(ProxyClient { certificate_pem: own("crt")?.into_bytes(), key_pem: own("key")?.into_bytes() }))
}

/// Files that the configuration names lie beside it, unless it says where.
fn configured(args: &ApiServerArgs, plugins: &PluginChoice) -> Result<Configured> {
    const FLAG: &str = "--admission-control-config-file";
    let text = |path: &Path| Ok::<_, anyhow::Error>(String::from_utf8(read(FLAG, path)?)?);
    let file = args.admission_control_config_file.as_deref();
    let folder = file.and_then(Path::parent).unwrap_or(Path::new("/"));
    let named = |path: &str| -> Result<String, Cause> { Ok(text(&folder.join(path))?) };
    let found = admission::configuration::configured(plugins, file.map(text).transpose()?.as_deref(), named);
    found.context(FLAG)
}

/// Where the audit log is unless a flag says otherwise, in the control plane's folder.
pub(crate) const AUDIT_LOG: &str = "logs/audit.log";

/// There is always a log: by default of what CIS and ours hold to be necessary. A policy of the single level None writes
/// nothing.
fn audit(args: &ApiServerArgs) -> Result<Option<audit::Config>> {
    let policy = match &args.audit_policy_file {
        None => Policy::by_default(),
        Some(path) => Policy::parse(
            &String::from_utf8(read("--audit-policy-file", path)?)
                .context("--audit-policy-file is no text")?,
        ),
    };
    let policy = policy.context("--audit-policy-file")?;
    let log = LogFile {
        path: args.audit_log_path.clone().unwrap_or_else(|| AUDIT_LOG.into()),
        days_max: args.audit_log_maxage,
        files_max: args.audit_log_maxbackup,
        megabytes_max: args.audit_log_maxsize,
    };
    let webhook = audit_webhook::load(&args.audit_webhook)?;
    Ok(Some(audit::Config { policy, log, webhook }))
}

/// Who is asked about tokens that nothing here knows.
fn token_webhook(args: &ApiServerArgs) -> Result<Option<TokenWebhook>> {
    const FLAG: &str = "--authentication-token-webhook-config-file";
    let args = &args.authorities;
    let Some(path) = &args.authentication_token_webhook_config_file else { return Ok(None) };
    let path = path.to_str().with_context(|| format!("{FLAG}: its name is no text"))?;
    let version = args.authentication_token_webhook_version.as_deref().unwrap_or("v1beta1");
    let ttl = args.authentication_token_webhook_cache_ttl.map_or(Duration::from_secs(120), |ttl| ttl.0);
    TokenWebhook::new(path, version, ttl, |file: &str| Ok(read_named(file)?)).map(Some).context(FLAG)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use auth::pki::Authority;
    use base::Clock;

    use super::super::users::CONTROL_PLANE_UID as UID;
    use super::authorities::Authorities;
    use super::*;

    #[test]
    fn the_audit_log_is_given_to_the_control_plane_and_no_other_file_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = |name: &str| {
            let args = ApiServerArgs { audit_log_path: Some(at(name)), ..ApiServerArgs::default() };
            own_log(&args, UID, UID)
        };
        let owner = |name: &str| at(name).symlink_metadata().unwrap().uid();
        std::fs::write(at("victim"), "").unwrap();
        std::fs::create_dir(at("theirs")).unwrap();
        std::os::unix::fs::chown(at("theirs"), Some(UID), Some(UID)).unwrap();
        symlink(at("victim"), at("theirs/link.log")).unwrap();
        symlink(at("victim"), at("link.log")).unwrap();
        std::fs::hard_link(at("victim"), at("hard.log")).unwrap();
        std::fs::create_dir(at("folder.log")).unwrap();
        for (name, is_fine) in [
            ("audit.log", true),
            ("audit.log", true),
            ("new/folder/audit.log", true),
            ("theirs/audit.log", true),
            ("theirs/new/audit.log", true),
            ("theirs/link.log", false),
            ("link.log", false),
            ("hard.log", false),
            ("folder.log", false),
        ] {
            let done = own(name);
            assert_eq!(done.is_ok(), is_fine, "{name}: {done:?}");
            assert_eq!(owner(name) == UID, is_fine, "{name}");
        }
        assert_eq!(owner("victim"), 0);
        assert_eq!((owner("new"), owner("new/folder")), (0, UID));
    }

    /// The certificate of the cluster's own front proxy.
    fn own_client(all: &Authorities, tls: &Path, now: jiff::Timestamp) -> Vec<u8> {
        let subject = auth::pki::Subject::user(FRONT_PROXY_CLIENT, FRONT_PROXY_CLIENT);
        all.front_proxy.issue(tls, &subject, now).unwrap().certificate_pem.into_bytes()
    }

    #[test]
    fn front_proxies_have_an_authority_of_their_own() {
        let folder = std::env::temp_dir().join(format!("knarr-front-proxy-{}", std::process::id()));
        let (tls, now) = (folder.join("tls"), Clock::system().now());
        let all = Authorities::load_or_create(&tls, now).unwrap();
        let own = front_proxy(&ApiServerArgs::default(), &tls).unwrap();
        assert_eq!(own.client_ca_pem, all.front_proxy.certificate_pem().as_bytes());
        assert!(own.believes("front-proxy-client") && !own.believes("admin"));

        let shown = own_client(&all, &tls, now);
        assert_eq!(proxy_client(&ApiServerArgs::default(), &tls).unwrap().unwrap().certificate_pem, shown);

        let other = Authority::named(&folder, "other", now).unwrap().certificate_pem().to_owned();
        let check = |name: &str, content: &str, expected: Option<&str>| {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            let args = ApiServerArgs { requestheader_client_ca_file: Some(path), ..ApiServerArgs::default() };
            let refused = front_proxy(&args, &tls).err().map(|error| format!("{error:#}"));
            match expected {
                None => assert_eq!(refused, None, "{name}"),
                Some(text) => assert!(refused.unwrap().contains(text), "{name}"),
            }
        };
        const TAKEN: Option<&str> = Some("must not be an authority of clients or Nodes of this cluster");
        check("other", &other, None);
        let mut args = ApiServerArgs {
            requestheader_client_ca_file: Some(folder.join("other")),
            ..ApiServerArgs::default()
        };
        assert!(proxy_client(&args, &tls).unwrap().is_none(), "nobody would believe it");
        args.proxy_client_cert_file = Some(folder.join("other"));
        args.proxy_client_key_file = Some(folder.join("absent"));
        assert!(proxy_client(&args, &tls).is_err());
        args.proxy_client_key_file = Some(folder.join("other"));
        assert_eq!(proxy_client(&args, &tls).unwrap().unwrap().certificate_pem, other.as_bytes());
        check("clients", all.clients.certificate_pem(), TAKEN);
        check("serving", all.serving.certificate_pem(), TAKEN);
        check("kubelets", all.kubelet_serving.certificate_pem(), TAKEN);
        check("among-others", &format!("{other}{}", all.clients.certificate_pem()), TAKEN);
        check(
            "nothing",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            Some("must hold PEM certificates"),
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
