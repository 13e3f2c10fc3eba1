//! `knarr token`: the tokens that hosts join a cluster with. Each is a Secret in `kube-system`, as kubeadm's are.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use auth::bootstrap_token::{self, secret_name};
use cli::args::{DataDirArgs, TokenCommand};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};

use crate::async_runtime::AsyncRuntime;
use crate::commands::cluster::{self, Asked};
use crate::components::{Settings, TOKEN_GROUP, authority_hash};
use crate::layout::Layout;

const TYPE: &str = "bootstrap.kubernetes.io/token";

/// Does what was asked for.
pub(crate) fn run(command: &TokenCommand) -> Result<()> {
    let runtime = AsyncRuntime::on_this_thread()?;
    runtime.block_on(async {
        match command {
            TokenCommand::Create { ttl, description, data } => {
                create(data, *ttl, description.as_deref()).await
            }
            TokenCommand::List(data) => list(data).await,
            TokenCommand::Delete { token, data } => delete(data, token).await,
        }
    })
}

async fn secrets(data: &DataDirArgs) -> Result<(Api<Secret>, Asked, Layout)> {
    let layout = Layout::new(&data.data_dir)?;
    let asked = cluster::administered(&layout).await?;
    Ok((Api::namespaced(asked.client.clone(), "kube-system"), asked, layout))
}

/// Prints the token, with the hash of the authority that it is for.
async fn create(data: &DataDirArgs, ttl: Duration, description: Option<&str>) -> Result<()> {
    let (secrets, asked, layout) = secrets(data).await?;
    let authority = layout.agent().join("tls/ca.crt");
    let authority = std::fs::read(&authority).with_context(|| format!("read {}", authority.display()))?;
    let (id, secret) = bootstrap_token::new().map_err(|_| anyhow::anyhow!("no randomness can be had"))?;
    let expires = match ttl.is_zero() {
        true => None,
        false => Some(Timestamp::now() + SignedDuration::try_from(ttl)?),
    };
    let fields = fields(&id, &secret, expires, description);
    let object = Secret {
        metadata: ObjectMeta { name: Some(secret_name(&id)), ..ObjectMeta::default() },
        type_: Some(TYPE.to_owned()),
        string_data: Some(fields),
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &object).await.map_err(|error| asked.explained(error))?;
    let token = format!("K10{}::{id}.{secret}", authority_hash(&authority));
    writeln!(std::io::stdout(), "{token}")?;
    if let Ok(settings) = Settings::load(&layout) {
        let server = std::net::SocketAddr::new(settings.node_ip, settings.args.https_listen_port);
        eprintln!("on the host that joins: sudo KNARR_TOKEN={token} knarr agent --server https://{server}");
    }
    Ok(())
}

/// The Secret's fields, as kubeadm has them.
fn fields(
    id: &str,
    secret: &str,
    expires: Option<Timestamp>,
    description: Option<&str>,
) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::from([
        ("token-id".to_owned(), id.to_owned()),
        ("token-secret".to_owned(), secret.to_owned()),
        ("usage-bootstrap-authentication".to_owned(), "true".to_owned()),
        ("auth-extra-groups".to_owned(), TOKEN_GROUP.to_owned()),
    ]);
    if let Some(expires) = expires {
        fields.insert("expiration".to_owned(), expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    if let Some(description) = description {
        fields.insert("description".to_owned(), description.to_owned());
    }
    fields
}

async fn list(data: &DataDirArgs) -> Result<()> {
    let (secrets, asked, _) = secrets(data).await?;
    let params = ListParams::default().fields(&format!("type={TYPE}"));
    let all = secrets.list(&params).await.map_err(|error| asked.explained(error))?;
    let rows: Vec<[String; 4]> = all.iter().map(|secret| row(secret, Timestamp::now())).collect();
    let mut out = std::io::stdout();
    let head = ["ID", "TTL", "EXPIRES", "DESCRIPTION"].map(str::to_owned);
    for [id, ttl, expires, description] in std::iter::once(head).chain(rows) {
        writeln!(out, "{}", format!("{id:<8}{ttl:<12}{expires:<23}{description}").trim_end())?;
    }
    Ok(())
}

fn row(secret: &Secret, now: Timestamp) -> [String; 4] {
    let field = |name: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(name));
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    };
    let expires = field("expiration");
    let ttl = match expires.parse::<Timestamp>() {
        Err(_) if expires.is_empty() => "<forever>".to_owned(),
        Err(_) => "<invalid>".to_owned(),
        Ok(end) if end <= now => "<over>".to_owned(),
        Ok(end) => left(end.duration_since(now)),
    };
    let expires = if expires.is_empty() { "<never>".to_owned() } else { expires };
    [field("token-id"), ttl, expires, field("description")]
}

/// The two largest units, as kubectl has ages.
fn left(time: SignedDuration) -> String {
    let minutes = time.as_mins();
    match (minutes / 1440, minutes % 1440 / 60, minutes % 60) {
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// The token may be given by its id, or whole.
async fn delete(data: &DataDirArgs, token: &str) -> Result<()> {
    let bearer = token.rsplit_once("::").map_or(token, |(_, bearer)| bearer);
    let id = bearer.split('.').next().unwrap_or_default();
    let (secrets, asked, _) = secrets(data).await?;
    match secrets.delete(&secret_name(id), &DeleteParams::default()).await {
        Ok(_) => {
            eprintln!("the token {id} is no longer good");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => bail!("there is no token {id}"),
        Err(error) => Err(asked.explained(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn a_token_is_listed_with_the_time_that_it_has_left() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let check = |expires: Option<&str>, expected: &str| {
            let end = expires.map(|text| text.parse().unwrap());
            let data = fields("abcdef", "0123456789abcdef", end, Some("for a"));
            let data = data.into_iter().map(|(name, text)| (name, ByteString(text.into_bytes()))).collect();
            let secret = Secret { data: Some(data), ..Secret::default() };
            assert_eq!(row(&secret, now).join("|"), expected);
        };
        check(None, "abcdef|<forever>|<never>|for a");
        check(Some("2026-06-02T11:30:00Z"), "abcdef|23h30m|2026-06-02T11:30:00Z|for a");
        check(Some("2026-06-05T12:00:00Z"), "abcdef|4d0h|2026-06-05T12:00:00Z|for a");
        check(Some("2026-06-01T11:30:00Z"), "abcdef|<over>|2026-06-01T11:30:00Z|for a");
    }
}
