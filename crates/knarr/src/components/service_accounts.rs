//! Who signs the tokens of ServiceAccounts, by what they are checked and for whom they are: the cluster's own key and name, or
//! what `--service-account-*` and `--api-audiences` say.
//!
//! Read as root, like all files that flags name. Source: `pkg/kubeapiserver/options/authentication.go`, and `completeServiceAccountOptions`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result, bail};
use apiserver::options::ServiceAccounts;
use auth::keys::pem;
use auth::keys::private::PrivateKey;
use cli::api_server::ServiceAccountArgs;

const SIGNING: &str = "--service-account-signing-key-file";
const KEYS: &str = "--service-account-key-file";
const ISSUER: &str = "--service-account-issuer";
const MAX: &str = "--service-account-max-token-expiration";
/// A token lasts so long at most, in seconds, if there is a maximum.
const SECONDS_MAX: RangeInclusive<u64> = 3600..=1 << 32;

/// What the flags come to.
///
/// # Errors
/// Which flag cannot be as it is, and why.
pub(super) fn load(args: &ServiceAccountArgs) -> Result<ServiceAccounts> {
    check_issuers(&args.service_account_issuer)?;
    let mut believed = Vec::new();
    for path in &args.service_account_key_file {
        let found = pem::public_keys(&read(KEYS, path)?);
        believed.extend(found.with_context(|| format!("{KEYS}: {}", path.display()))?);
    }
    let key = args.service_account_signing_key_file.as_deref().map(signing_key).transpose()?;
    if let Some((_, signing)) = &key
        && !believed.is_empty()
        && !believed.contains(signing.public())
    {
        bail!(
            "{KEYS}: none of the keys is that of {SIGNING}: no token that is signed would be believed; name its public key, too"
        );
    }
    let token_seconds_max = match args.service_account_max_token_expiration.0.as_secs() {
        0 if args.service_account_max_token_expiration.0.is_zero() => None,
        seconds if SECONDS_MAX.contains(&seconds) => i64::try_from(seconds).ok(),
        _ => bail!("{MAX}: it must be between 1 hour and 2^32 seconds"),
    };
    if let Some(uri) = &args.service_account_jwks_uri
        && !(is_url(uri) && uri.starts_with("https://"))
    {
        bail!("--service-account-jwks-uri: {uri:?} is no https URL");
    }
    Ok(ServiceAccounts {
        key: key.map(|(der, _)| der),
        believed,
        issuers: args.service_account_issuer.clone(),
        jwks_uri: args.service_account_jwks_uri.clone(),
        audiences: args.api_audiences.clone(),
        token_seconds_max,
        extends_tokens: args.service_account_extend_token_expiration,
    })
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{flag}: read {}", path.display()))
}

/// The key in PKCS#8 form, and what it is.
fn signing_key(path: &Path) -> Result<(Vec<u8>, PrivateKey)> {
    let about = || format!("{SIGNING}: {}", path.display());
    let der = auth::keys::pkcs8(&read(SIGNING, path)?).with_context(about)?;
    let key = PrivateKey::of_pkcs8(&der).map_err(|_| auth::token::TokenError::Key).with_context(about)?;
    Ok((der, key))
}

fn check_issuers(issuers: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for issuer in issuers {
        if issuer.is_empty() {
            bail!("{ISSUER}: it must not be empty");
        }
        if issuer.contains(':') && !is_url(issuer) {
            bail!("{ISSUER}: {issuer:?} contains a ':' and is no URL");
        }
        if !seen.insert(issuer) {
            bail!("{ISSUER}: {issuer:?} is named twice");
        }
    }
    Ok(())
}

/// Whether a text has a scheme, and nothing that no URL has.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_clean = !rest.bytes().any(|byte| byte.is_ascii_control() || byte == b' ');
    let host = rest.strip_prefix("//").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let port = host.and_then(|host| host.rsplit(']').next()?.rsplit_once(':')).map_or("", |(_, port)| port);
    is_scheme && is_clean && host != Some("") && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use auth::pki::service_account_key;

    use super::*;

    /// `--name=value` of the flags, files in `folder`; what they come to.
    fn found(folder: &Path, flags: &[(&str, &str)]) -> String {
        let mut args = ServiceAccountArgs::default();
        for (flag, value) in flags {
            match *flag {
                "keys" => args.service_account_key_file.push(folder.join(value)),
                "signing" => args.service_account_signing_key_file = Some(folder.join(value)),
                "issuer" => args.service_account_issuer.push((*value).to_owned()),
                "jwks" => args.service_account_jwks_uri = Some((*value).to_owned()),
                "max" => args.service_account_max_token_expiration = value.parse().unwrap(),
                other => panic!("{other}"),
            }
        }
        match load(&args) {
            Ok(all) => format!(
                "signs {}, believes {}, max {:?}",
                if all.key.is_some() { "another" } else { "its own" },
                all.believed.len(),
                all.token_seconds_max
            ),
            Err(why) => format!("{why:#}").replace(&format!("{}/", folder.display()), ""),
        }
    }

    /// A folder with two keys, both of them in one file, and a file that holds none.
    fn keys() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut both = String::new();
        for name in ["a", "b"] {
            std::fs::create_dir(at(name)).unwrap();
            service_account_key(&at(name)).unwrap();
            let text = std::fs::read_to_string(at(name).join("service-account.key")).unwrap();
            std::fs::write(at(&format!("{name}.key")), &text).unwrap();
            both += &text;
        }
        std::fs::write(at("both"), both).unwrap();
        std::fs::write(at("none"), "no key").unwrap();
        dir
    }

    #[test]
    fn flags_say_who_signs_and_who_is_believed() {
        let dir = keys();
        let check = |flags: &[(&str, &str)], expected: &str| assert_eq!(found(dir.path(), flags), expected);
        check(&[], "signs its own, believes 0, max None");
        check(&[("keys", "both")], "signs its own, believes 2, max None");
        check(
            &[("keys", "a.key"), ("keys", "b.key"), ("signing", "b.key"), ("max", "1h")],
            "signs another, believes 2, max Some(3600)",
        );
        check(
            &[("signing", "b.key"), ("issuer", "https://a"), ("issuer", "urn:b"), ("issuer", "plain")],
            "signs another, believes 0, max None",
        );
    }

    #[test]
    fn flags_that_cannot_be_are_told() {
        const ROWS: [(&[(&str, &str)], &str); 10] = [
            (
                &[("keys", "a.key"), ("signing", "b.key")],
                "--service-account-key-file: none of the keys is that of --service-account-signing-key-file: no token \
                 that is signed would be believed; name its public key, too",
            ),
            (
                &[("keys", "none")],
                "--service-account-key-file: none: data does not contain any valid RSA or ECDSA public keys",
            ),
            (
                &[("signing", "none")],
                "--service-account-signing-key-file: none: read a private key in the form PKCS#8, PKCS#1 or SEC1, PEM",
            ),
            (
                &[("keys", "gone")],
                "--service-account-key-file: read gone: No such file or directory (os error 2)",
            ),
            (&[("issuer", "")], "--service-account-issuer: it must not be empty"),
            (
                &[("issuer", "https://a"), ("issuer", "https://a")],
                "--service-account-issuer: \"https://a\" is named twice",
            ),
            (&[("jwks", "http://a/jwks")], "--service-account-jwks-uri: \"http://a/jwks\" is no https URL"),
            (
                &[("max", "59m")],
                "--service-account-max-token-expiration: it must be between 1 hour and 2^32 seconds",
            ),
            (
                &[("max", "1ns")],
                "--service-account-max-token-expiration: it must be between 1 hour and 2^32 seconds",
            ),
            (
                &[("max", "1200000h")],
                "--service-account-max-token-expiration: it must be between 1 hour and 2^32 seconds",
            ),
        ];
        let dir = keys();
        for (flags, expected) in ROWS {
            assert_eq!(found(dir.path(), flags), expected);
        }
        for bad in ["1a:b", "https://a:port", "https://a b", "https://", ":x"] {
            let told = found(dir.path(), &[("issuer", bad)]);
            assert!(told.ends_with("contains a ':' and is no URL"), "{bad}: {told}");
        }
    }
}
