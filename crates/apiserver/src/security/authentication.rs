//! The sender of a request: what was presented, in upstream's order, and what tokens are good for.

use auth::token::{Legacy, Lookup, TokenError};
use auth::{Decision, UserInfo};
use http::HeaderMap;
use machinery::metadata::Metadata;
use serde_json::Value;
use tracing::debug;

use super::credentials::Malformed;
use super::token_uses::{self, INVALID_SINCE};
use super::{Peer, Proof, Security, Verified, bearer, credentials, forbidden};
use crate::configuration_error::ConfigurationError;
use crate::impersonation;
use crate::kinds::Kinds;
use crate::status::{Error, Result};

/// How long a token is good after what it is bound to was to be deleted. Source: `jwt.DefaultLeeway`.
const DELETION_LEEWAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// A token that is not valid, as a TokenReview says it.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// It is no text that a token could be.
    #[error("{}", .0.0)]
    Malformed(Malformed),
    /// It is for others.
    #[error("token audiences {audiences:?} is invalid for the target audiences {accepted:?}")]
    Audience {
        /// For whom it is.
        audiences: Vec<String>,
        /// For one of whom it must be.
        accepted: Vec<String>,
    },
    /// Nobody here knows it. More of it is only in the log.
    #[error("invalid bearer token")]
    Invalid,
    /// It lay in a Secret for so long that it was taken back.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
         Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
         '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// The namespace of both.
        namespace: String,
        /// The Secret.
        secret: String,
        /// Whose token it is.
        account: String,
    },
    /// Nobody can say.
    #[error(transparent)]
    Unknown(#[from] Error),
}

impl Security {
    /// The user behind what was presented, in upstream's order: a front proxy's headers, a client certificate, a
    /// token. The first that is good counts; `None` if nothing was presented.
    ///
    /// # Errors
    /// 401 when something was presented and none of it is good.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Option<(UserInfo, Proof)>> {
        let proxied = self.front_proxy.as_ref().zip(peer.and_then(|peer| peer.proxy.as_ref()));
        let by_proxy = proxied.filter(|(proxy, name)| proxy.believes(name));
        if let Some((user, name)) = by_proxy.and_then(|(proxy, name)| Some((proxy.user(headers)?, name))) {
            return Ok(Some((known(user), Proof::FrontProxy(name.clone()))));
        }
        if let Some(user) = peer.and_then(|peer| peer.user.as_ref()) {
            return Ok(Some((known(user.clone()), Proof::Certificate)));
        }
        let mut is_refused = peer.is_some_and(|peer| peer.is_refused);
        let tokens = credentials::tokens(headers);
        if !tokens.is_empty() {
            // What this server has made or taken back of tokens and accounts counts at once.
            self.cache.reached(self.cache.policy_revision()).await?;
        }
        for token in tokens {
            is_refused = true;
            let checked = match token {
                Ok(token) => self.check_token(&token, &[]).await,
                Err(malformed) => Err(TokenRefusal::Malformed(malformed)),
            };
            match checked {
                Ok(found) => return Ok(Some((known(found.user), found.proof))),
                Err(why) => debug!(%why, "a token was refused"),
            }
        }
        if is_refused { Err(Error::unauthorized()) } else { Ok(None) }
    }

    /// Takes out of a request's headers what was sent to prove who it is.
    pub fn clear(&self, headers: &mut HeaderMap) {
        credentials::clear(headers, self.front_proxy.as_ref());
    }

    /// The user that an authenticated one acts as: `Impersonate-User` and its kin. `None` if they stay who they are.
    ///
    /// # Errors
    /// 400 when something but no user is asked for, 403 when they may not.
    pub async fn impersonate(&self, user: &UserInfo, headers: &HeaderMap) -> Result<Option<UserInfo>> {
        let Some(wanted) =
            impersonation::wanted(headers).map_err(|why| Error::bad_request(why.to_string()))?
        else {
            return Ok(None);
        };
        for attributes in &wanted.attributes {
            match self.decide(user, attributes).await.decision {
                Decision::Allow(_) => {}
                Decision::NoOpinion(why) | Decision::Deny(why) => {
                    return Err(forbidden(user, attributes, &why));
                }
            }
        }
        Ok(Some(wanted.user))
    }

    /// The user that a token stands for: service accounts', bootstrap tokens, outside issuers', what the webhook knows.
    ///
    /// # Errors
    /// Why it is not valid.
    pub async fn check_token(&self, token: &str, audiences: &[String]) -> Result<Verified, TokenRefusal> {
        let why = match (self.check_own_token(token, audiences).await, &self.token_webhook) {
            (Ok(found), _) => return Ok(found),
            (Err(why), None) => return Err(why),
            (Err(why), Some(_)) => why,
        };
        self.ask_about(token, audiences).await.ok_or(why)
    }

    /// Whom the webhook knows by a token; `None` also if it cannot be asked.
    async fn ask_about(&self, token: &str, audiences: &[String]) -> Option<Verified> {
        let accepted = if audiences.is_empty() { self.tokens.audiences() } else { audiences };
        let known = self.token_webhook.as_ref()?.known(token, accepted).await.ok()??;
        // A webhook that does not care for audiences means this server.
        let named = if known.audiences.is_empty() { self.tokens.audiences() } else { &known.audiences };
        let audiences: Vec<String> =
            accepted.iter().filter(|audience| named.contains(audience)).cloned().collect();
        let is_for_one = !audiences.is_empty();
        is_for_one.then(|| Verified { user: known.user.clone(), audiences, proof: Proof::Webhook })
    }

    /// Whom a token stands for that this server can check.
    async fn check_own_token(&self, token: &str, audiences: &[String]) -> Result<Verified, TokenRefusal> {
        let accepted = if audiences.is_empty() { self.tokens.audiences() } else { audiences };
        let now = self.clock.now();
        let verified = self.tokens.verify(token, audiences, now, &Existing(&self.builtin, now));
        let why = match verified {
            Ok((user, claims)) => {
                let late = claims.private.warnafter.map(|end| now.as_second() - end).filter(|late| *late > 0);
                let proof = late.map_or(Proof::BoundToken, Proof::StaleToken);
                let audiences =
                    claims.aud.into_iter().filter(|audience| accepted.contains(audience)).collect();
                return Ok(Verified { user, audiences, proof });
            }
            Err(TokenError::Audience { audiences }) => {
                return Err(TokenRefusal::Audience { audiences, accepted: accepted.to_vec() });
            }
            Err(why) => why,
        };
        // What else there is means the API server itself, and nobody else.
        let own: Vec<String> =
            self.tokens.audiences().iter().filter(|audience| accepted.contains(audience)).cloned().collect();
        if own.is_empty() {
            return Err(TokenRefusal::Invalid);
        }
        let verified = |user, proof| Verified { user, audiences: own.clone(), proof };
        if let Some((user, proof)) = self.of_secret(token).await? {
            return Ok(verified(user, proof));
        }
        if let Some(user) = bearer::bootstrap(&self.builtin, token, now) {
            return Ok(verified(user, Proof::BootstrapToken));
        }
        match self.issuers.user(token, now).await {
            Some(Ok((user, issuer))) => Ok(verified(user, Proof::Oidc(issuer))),
            Some(Err(why)) => {
                debug!(%why, "an issuer's token was refused");
                Err(TokenRefusal::Invalid)
            }
            None => {
                debug!(%why, "a token was refused");
                Err(TokenRefusal::Invalid)
            }
        }
    }

    /// The service account of a token that lies in a Secret. The Secret may be so new that only the store knows it; anybody
    /// may send anything, and only what our key has signed is worth a question to the store.
    async fn of_secret(&self, token: &str) -> Result<Option<(UserInfo, Proof)>, TokenRefusal> {
        let Ok(claims) = self.tokens.verify_legacy(token) else { return Ok(None) };
        let mut found = bearer::legacy(&self.builtin, &claims, token);
        if found.is_none() {
            self.cache.fresh().await?;
            found = bearer::legacy(&self.builtin, &claims, token);
        }
        let Some(found) = found else { return Ok(None) };
        let Legacy { namespace, secret, account, .. } = claims;
        if !token_uses::is_current(&found.last_used, self.clock.now()) {
            self.uses.note(&namespace, &secret);
        }
        if !found.invalid_since.is_empty() {
            return Err(TokenRefusal::MarkedInvalid { namespace, secret, account });
        }
        let proof =
            if found.is_generated { Proof::GeneratedToken(secret) } else { Proof::SecretToken(secret) };
        Ok(Some((found.user, proof)))
    }

    /// Believes the issuers of another file from now on, as soon as they have told their keys; says whether it is another
    /// one.
    ///
    /// # Errors
    /// That it cannot be used. Then nothing changes.
    pub async fn reload_authentication(&self, text: &str) -> Result<bool, ConfigurationError> {
        self.issuers.reload(text, self.tokens.issuer()).await
    }
}

/// Whoever is known is in `system:authenticated`, unless a proxy says that they are not.
fn known(mut user: UserInfo) -> UserInfo {
    let is_said = user.is_in(auth::AUTHENTICATED) || user.is_in(auth::UNAUTHENTICATED);
    if user.name != "system:anonymous" && !is_said {
        user.groups.push(auth::AUTHENTICATED.to_owned());
    }
    user
}

/// Whether what a token is bound to is still there.
struct Existing<'a>(&'a Kinds, jiff::Timestamp);

impl Existing<'_> {
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = self.0.find("", "v1", resource)?;
        kind.cache().get(&kind.key(namespace, name)).map(|object| object.value())
    }

    /// The uid of what is there, and was not to be deleted long ago: finalizers do not keep a token alive.
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object = self.object(resource, namespace, name)?;
        let metadata = Metadata::of(&object);
        let is_over = |deletion: jiff::Timestamp| deletion + DELETION_LEEWAY < self.1;
        (!metadata.deletion_timestamp().is_some_and(is_over)).then(|| metadata.uid().to_owned())
    }
}

impl Lookup for Existing<'_> {
    fn service_account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("serviceaccounts", namespace, name)
    }

    fn pod_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("pods", namespace, name)
    }

    fn secret_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.uid("secrets", namespace, name)
    }

    fn node_uid(&self, name: &str) -> Option<String> {
        self.uid("nodes", "", name)
    }
}
