//! LIST: a picture of a collection at one revision, whole or in pages.
//!
//! Pages after the first are taken from the same revision, by rolling today's state back; when that is no longer
//! possible the client is told with 410 and gets a token to go on inconsistently, as upstream does.
//! Source: `k8s.io/apiserver/pkg/storage` (`continue.go`), KEP-365, KEP-2340.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use serde::{Deserialize, Serialize};

use super::list_options::{Purpose, validate};
use crate::answer::{Answer, Listed};
use crate::api::Api;
use crate::cache::{Listing, ResourceCache};
use crate::filter::Filter;
use crate::kinds::Kind;
use crate::request::Authorized;
use crate::status::{Error, Result};

/// Upstream's continue token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continue {
    v: String,
    rv: i64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// Reads a collection.
///
/// # Errors
/// 400 for contradictory options, 410 for revisions that are gone, 504 for such that do not come.
pub async fn list(api: &Api, request: &Authorized) -> Result<Answer> {
    read(api, request).await.map(Answer::List)
}

/// The part of a collection that the options of a request see.
///
/// # Errors
/// As [`list`].
pub async fn read(api: &Api, request: &Authorized) -> Result<Listed> {
    let query = &request.info.query;
    validate(query, Purpose::List)?;
    let filter = Filter::of(&request.kind, &request.resource, query)?;
    let limit = match (query.number("limit")?, query.get("resourceVersion")) {
        // Whatever the cache has comes as a whole.
        (_, Some("0")) => 0,
        (limit, _) => usize::try_from(limit.unwrap_or(0)).unwrap_or(0),
    };
    let token = query.get("continue").map(Continue::decode).transpose()?;
    let listing = match &token {
        Some(token) => page_source(api, request, &filter, token).await?,
        None => first_source(api, request, &filter, limit).await?,
    };
    page(&request.kind, listing, &filter, limit, token.as_ref()).await
}

async fn first_source(api: &Api, request: &Authorized, filter: &Filter, limit: usize) -> Result<Listing> {
    let query = &request.info.query;
    let version = query.get("resourceVersion");
    let cache = request.kind.cache();
    // Pages of a revision are exact even if that is not said.
    let exact = match query.get("resourceVersionMatch") {
        None => limit > 0 && !matches!(version, None | Some("0")),
        Some(matching) => matching == "Exact",
    };
    let complete = match version {
        Some("0") => api.cache.revision(),
        Some(text) => api.cache.reached(parse_revision(text)?).await?,
        None => api.cache.fresh().await?,
    };
    match (exact, version) {
        (true, Some(text)) => list_at(api, cache, filter, parse_revision(text)?),
        _ => cache.read_list(&filter.prefix, complete),
    }
}

/// The collection as it was at a revision that the store still has.
fn list_at(api: &Api, cache: &ResourceCache, filter: &Filter, revision: u64) -> Result<Listing> {
    if api.cache.is_compacted(revision) {
        return Err(Error::expired("The resourceVersion for the provided list is too old."));
    }
    cache.list_at(&filter.prefix, revision)
}

async fn page_source(api: &Api, request: &Authorized, filter: &Filter, token: &Continue) -> Result<Listing> {
    if request.info.query.get("resourceVersion").is_some_and(|version| version != "0") {
        return Err(Error::bad_request("specifying resource version is not allowed when using continue"));
    }
    let cache = request.kind.cache();
    let Ok(revision) = u64::try_from(token.rv) else {
        let complete = api.cache.fresh().await?;
        return cache.read_list(&filter.prefix, complete);
    };
    api.cache.reached(revision).await?;
    cache.check_readable(&filter.prefix)?;
    list_at(api, cache, filter, revision).map_err(|_| {
        let mut error = Error::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
             that were created, modified, or deleted between the time the first chunk was returned and now may show \
             up in the list.",
        );
        let inconsistent = Continue { rv: -1, ..token.clone() };
        error.continue_token = Some(inconsistent.encode());
        error
    })
}

/// Filters, skips to where the token points, and cuts at the limit. What would be left out anyway is not converted.
async fn page(
    kind: &Kind,
    listing: Listing,
    filter: &Filter,
    limit: usize,
    token: Option<&Continue>,
) -> Result<Listed> {
    let start = token.map(|token| format!("{}{}", filter.prefix, token.start));
    let revision = listing.revision;
    let mut objects = listing.objects;
    if let Some(start) = &start {
        objects.retain(|object| *object.key >= **start);
    }
    if let Some(key) = filter.exact_key() {
        objects.retain(|object| *object.key == *key);
    }
    if filter.is_selective() {
        objects = kind.all_served(objects).await?;
        objects.retain(|object| filter.matches(object));
    }
    if limit == 0 || objects.len() <= limit {
        let objects = kind.all_served(objects).await?;
        return Ok(Listed { objects, revision, continue_token: None, remaining: None });
    }
    let remaining = objects.len() - limit;
    objects.truncate(limit);
    let last = objects.last().map(|object| object.key.strip_prefix(&*filter.prefix).unwrap_or_default());
    let next = Continue {
        v: TOKEN_VERSION.to_owned(),
        rv: i64::try_from(revision).unwrap_or(i64::MAX),
        start: format!("{}\0", last.unwrap_or_default()),
    };
    Ok(Listed {
        objects: kind.all_served(objects).await?,
        revision,
        continue_token: Some(next.encode()),
        remaining: (!filter.is_selective()).then_some(remaining),
    })
}

impl Continue {
    /// The text that clients send back.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads what a client sent back.
    ///
    /// # Errors
    /// 400 if it is no token.
    pub fn decode(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Error::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            invalid(&format!("illegal base64 data at input byte {}", illegal_byte(text, &error)))
        })?;
        let token: Self =
            serde_json::from_slice(&bytes).map_err(|_| invalid("unable to decode the token"))?;
        // Never at a higher level of the hierarchy.
        let climbs = token.start.split('/').any(|part| matches!(part, "." | ".."));
        match token {
            token if token.v != TOKEN_VERSION => {
                Err(invalid(&format!("server does not recognize this encoded version {}", token.v)))
            }
            Self { rv: 0, .. } => {
                Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))
            }
            token if token.start.is_empty() => {
                Err(invalid("encoded start key empty (version meta.k8s.io/v1)"))
            }
            token if climbs => Err(invalid(&token.start)),
            token => Ok(token),
        }
    }
}

/// Where Go's decoder would have stopped.
fn illegal_byte(text: &str, error: &DecodeError) -> usize {
    match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(len) => len.saturating_sub(1),
        DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len()),
    }
}

/// Reads a resourceVersion.
///
/// # Errors
/// 400 if it is no number.
pub fn parse_revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        Error::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_its_way_through_the_client() {
        let token = Continue { v: TOKEN_VERSION.into(), rv: 12, start: "a/b\0".into() };
        assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
    }

    #[test]
    fn what_is_no_token_is_told_as_upstream_tells_it() {
        let check = |text: &str, why: &str| {
            let error = Continue::decode(text).unwrap_err();
            assert_eq!(error.message, format!("invalid continue token: continue key is not valid{why}"));
            assert_eq!(error.code, http::StatusCode::BAD_REQUEST);
        };
        let token = |v: &str, rv, start: &str| Continue { v: v.into(), rv, start: start.into() }.encode();
        check("!!", ": illegal base64 data at input byte 0");
        check("x", ": illegal base64 data at input byte 0");
        check("YQ==", ": illegal base64 data at input byte 2");
        check("YQ", ": unable to decode the token");
        check(&token("v2", 1, "a"), ": server does not recognize this encoded version v2");
        check(
            &token(TOKEN_VERSION, 0, "a"),
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        );
        check(&token(TOKEN_VERSION, 1, ""), ": encoded start key empty (version meta.k8s.io/v1)");
        check(&token(TOKEN_VERSION, 1, "../secrets/a"), ": ../secrets/a");
    }
}
