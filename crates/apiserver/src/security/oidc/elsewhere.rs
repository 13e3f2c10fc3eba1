//! Distributed claims: groups that a token does not name itself, but where they are to be read.
//!
//! What is read there is a token too, of whichever issuer, for the same audience; the token that leads there vouches for
//! the place. Source: OpenID Connect Core 1.0, section 5.6.2; `claimResolver` of `plugin/pkg/authenticator/token/oidc`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use auth::oidc::{Claims, Issuer, issuer_of};
use base::Tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tokio::time::Instant;

use super::super::answer_cache::{AnswerCache, Key};
use super::error::IssuerError;
use super::fetch::get;
use super::keys::RemoteKeys;
use crate::authentication_config::JwtAuthenticator;

/// How many issuers one issuer may lead to.
const ISSUERS_MAX: usize = 16;
/// How many tokens' claims are kept.
const ANSWERS_MAX: usize = 1024;
/// How long they are kept. Source: `TokenSuccessCacheTTL`.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// How long whoever has the claim gets to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Where tokens of one issuer lead to.
pub(super) struct Elsewhere {
    /// The claim that may be elsewhere.
    claim: Option<String>,
    /// What tokens there must be like, but for whose they are.
    like: Issuer,
    keys: Mutex<HashMap<String, Arc<RemoteKeys>>>,
    answers: AnswerCache<Value>,
    tasks: Tasks,
}

impl Elsewhere {
    /// Nothing has been read yet.
    pub(super) fn new(authenticator: &JwtAuthenticator, tasks: Tasks) -> Self {
        Self {
            claim: authenticator.mapping.groups_claim().map(str::to_owned),
            like: authenticator.issuer.clone(),
            keys: Mutex::default(),
            answers: AnswerCache::new(ANSWERS_MAX),
            tasks,
        }
    }

    /// Reads the claim if the token says that it is elsewhere.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) async fn complete(
        &self,
        claims: &mut Claims,
        token: &str,
        now: Timestamp,
    ) -> Result<(), IssuerError> {
        let Some(claim) = &self.claim else { return Ok(()) };
        let Some(claim_source) = claim_source(claims, claim)? else { return Ok(()) };
        let mut key = Key::default();
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let value = match self.answers.get(&key, Instant::now()) {
            Some(known) => known,
            None => {
                let read = tokio::time::timeout(ANSWER_MAX, self.read(claim, &claim_source, now)).await;
                let read = read.unwrap_or(Err(IssuerError::Nobody));
                let value = read.map_err(|source| IssuerError::Claim {
                    claim: claim.clone(),
                    endpoint: claim_source.endpoint,
                    source: Box::new(source),
                })?;
                self.answers.put(key, value.clone(), Instant::now() + KEPT_FOR);
                value
            }
        };
        claims.insert(claim.clone(), value);
        Ok(())
    }

    async fn read(
        &self,
        claim: &str,
        claim_source: &ClaimSource,
        now: Timestamp,
    ) -> Result<Value, IssuerError> {
        let answer =
            get(&self.like.ca_pem, &claim_source.endpoint, claim_source.access_token.as_deref()).await?;
        let token = std::str::from_utf8(&answer)?.trim();
        let issuer = issuer_of(token).ok_or(IssuerError::NoToken)?;
        let mut claims = self.keys_of(&issuer)?.verify(token, now).await?;
        claims.remove(claim).ok_or(IssuerError::Absent)
    }

    fn keys_of(&self, issuer: &str) -> Result<Arc<RemoteKeys>, IssuerError> {
        let mut keys = self.keys.lock();
        if let Some(known) = keys.get(issuer) {
            return Ok(Arc::clone(known));
        }
        if keys.len() >= ISSUERS_MAX {
            return Err(IssuerError::TooMany(ISSUERS_MAX));
        }
        let like = Issuer { url: issuer.to_owned(), discovery_url: None, ..self.like.clone() };
        let made = RemoteKeys::new(like, self.tasks.clone(), None);
        keys.insert(issuer.to_owned(), Arc::clone(&made));
        Ok(made)
    }
}

/// The source of a distributed claim.
#[derive(Debug, PartialEq, Eq)]
struct ClaimSource {
    endpoint: String,
    access_token: Option<String>,
}

/// Where a token says that a claim is, if it has it not itself.
fn claim_source(claims: &Claims, claim: &str) -> Result<Option<ClaimSource>, IssuerError> {
    fn bad(why: impl Into<Cow<'static, str>>) -> IssuerError {
        IssuerError::Sources(why.into())
    }
    if claims.contains_key(claim) {
        return Ok(None);
    }
    let Some(names) = claims.get("_claim_names") else { return Ok(None) };
    let names = names.as_object().ok_or_else(|| bad("_claim_names is no object"))?;
    let sources = claims.get("_claim_sources").ok_or_else(|| bad("there are no _claim_sources"))?;
    let sources = sources.as_object().ok_or_else(|| bad("_claim_sources is no object"))?;
    let Some(source) = names.get(claim) else { return Ok(None) };
    let source = source.as_str().ok_or_else(|| bad(format!("_claim_names: {claim:?} is no text")))?;
    let claim_source = sources.get(source).ok_or_else(|| bad(format!("_claim_sources has no {source:?}")))?;
    let text = |name: &str| match claim_source.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(bad(format!("_claim_sources: {name} of {source:?} is no text"))),
    };
    let access_token = text("access_token")?;
    // Without an endpoint it is an aggregated claim, which nobody reads.
    Ok(text("endpoint")?.map(|endpoint| ClaimSource { endpoint, access_token }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(claims: Value, expect: Result<Option<(&str, Option<&str>)>, &str>) {
        let found = claim_source(claims.as_object().unwrap(), "groups");
        let expect = expect.map(|claim_source| {
            claim_source.map(|(endpoint, token)| ClaimSource {
                endpoint: endpoint.to_owned(),
                access_token: token.map(str::to_owned),
            })
        });
        assert_eq!(found.map_err(|why| why.to_string()), expect.map_err(str::to_owned), "{claims}");
    }

    #[test]
    fn a_token_says_where_its_groups_are() {
        let url = "https://groups.example";
        let names = json!({"groups": "s"});
        let sources = |source: Value| json!({"_claim_names": names, "_claim_sources": {"s": source}});
        check(json!({}), Ok(None));
        check(sources(json!({"endpoint": url})), Ok(Some((url, None))));
        check(sources(json!({"endpoint": url, "access_token": "t"})), Ok(Some((url, Some("t")))));
        check(sources(json!({"endpoint": url, "access_token": ""})), Ok(Some((url, None))));
        check(sources(json!({"JWT": "x.y.z"})), Ok(None));
        check(json!({"groups": null, "_claim_names": names}), Ok(None));
        check(json!({"_claim_names": {"roles": "s"}, "_claim_sources": {}}), Ok(None));
        check(json!({"_claim_names": names}), Err("there are no _claim_sources"));
        check(json!({"_claim_names": names, "_claim_sources": {}}), Err("_claim_sources has no \"s\""));
        check(json!({"_claim_names": ["groups"], "_claim_sources": {}}), Err("_claim_names is no object"));
        check(
            json!({"_claim_names": {"groups": 1}, "_claim_sources": {}}),
            Err("_claim_names: \"groups\" is no text"),
        );
        check(sources(json!({"endpoint": 1})), Err("_claim_sources: endpoint of \"s\" is no text"));
        check(sources(json!("https://groups.example")), Ok(None));
    }
}
