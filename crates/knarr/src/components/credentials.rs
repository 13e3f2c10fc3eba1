//! A controller's own ServiceAccount, for controllers that run outside of the control plane's process: made if it is
//! absent, with a token that is renewed before it ends.
//!
//! Source: `k8s.io/controller-manager/pkg/clientbuilder`, `--use-service-account-credentials`.

use std::time::Duration;

use anyhow::{Context, Result};
use controller::Informers;
use http::{HeaderValue, Request, header};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::client::Body;
use tokio::sync::watch;
use tower::util::MapRequestLayer;

use super::api_client;

const NAMESPACE: &str = "kube-system";
const TOKEN_SECONDS: i64 = 3600;
/// After a renewal that failed; a token outlives many of them.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A client that is the ServiceAccount `account` of `kube-system`, reached as `config` says.
///
/// # Errors
/// If the account or its token cannot be had.
pub(super) async fn client(
    account: &'static str,
    config: &kube::Config,
    informers: &Informers,
) -> Result<kube::Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(informers.client().clone(), NAMESPACE);
    ensure(&accounts, account).await.with_context(|| format!("make the ServiceAccount {account}"))?;
    let (token, renew_after) = token(&accounts, account).await?;
    let (sender, receiver) = watch::channel(token);
    informers.tasks().spawn("token renewal", keep_renewed(accounts, account, sender, renew_after));
    let mut config = config.clone();
    config.auth_info = kube::config::AuthInfo::default();
    let with_token = MapRequestLayer::new(move |mut request: Request<Body>| {
        request.headers_mut().insert(header::AUTHORIZATION, receiver.borrow().clone());
        request
    });
    Ok(api_client::builder(&config, &api_client::by_name(&config)?)?.with_layer(&with_token).build())
}

async fn ensure(accounts: &Api<ServiceAccount>, name: &str) -> Result<()> {
    if accounts.get_opt(name).await?.is_some() {
        return Ok(());
    }
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A new token as a header, and when to ask for the next.
async fn token(accounts: &Api<ServiceAccount>, name: &str) -> Result<(HeaderValue, Duration)> {
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("ask for a token of the ServiceAccount {name}"))?;
    let seconds = answer.spec.expiration_seconds.unwrap_or(TOKEN_SECONDS);
    let status = answer.status.context("the API server answered without a token")?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", status.token))?;
    value.set_sensitive(true);
    Ok((value, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).mul_f64(0.8)))
}

async fn keep_renewed(
    accounts: Api<ServiceAccount>,
    name: &'static str,
    sender: watch::Sender<HeaderValue>,
    mut wait: Duration,
) {
    loop {
        tokio::time::sleep(wait).await;
        match token(&accounts, name).await {
            Ok((token, renew_after)) => {
                sender.send_replace(token);
                wait = renew_after;
            }
            Err(error) => {
                tracing::warn!(account = name, error = format!("{error:#}"), "a token was not renewed");
                wait = RETRY_AFTER;
            }
        }
    }
}
