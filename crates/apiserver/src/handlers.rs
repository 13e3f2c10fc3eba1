//! The things that verbs cannot know: what is special about one kind, or one subresource of it, as rows.
//!
//! Verbs name no kind and stand below; whatever has no row here is theirs. Streams are served before, by `streams`: they
//! need the connection.

use futures::future::BoxFuture;

use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::status::Result;
use crate::{binding, component_statuses, custom, eviction, policy_status, reviews, tokens, verbs};

type Handle = for<'a> fn(&'a Api, &'a Authorized) -> BoxFuture<'a, Result<Answer>>;

/// Who answers for a resource, or for what is below it.
struct Handler {
    group: &'static str,
    resource: &'static str,
    /// Empty for the resource itself.
    subresource: &'static str,
    handle: Handle,
}

const fn handler(
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    handle: Handle,
) -> Handler {
    Handler { group, resource, subresource, handle }
}

const HANDLERS: &[Handler] = &[
    handler("", "pods", "binding", |api, request| Box::pin(binding::bind(api, request))),
    handler("", "pods", "eviction", |api, request| Box::pin(eviction::evict(api, request))),
    handler("", "serviceaccounts", "token", |api, request| Box::pin(tokens::request_token(api, request))),
    handler("", "bindings", "", |api, request| Box::pin(binding::bind_named(api, request))),
    handler("", "componentstatuses", "", |api, request| Box::pin(component_statuses::read(api, request))),
    handler("authentication.k8s.io", "selfsubjectreviews", "", review),
    handler("authentication.k8s.io", "tokenreviews", "", review),
    handler("authorization.k8s.io", "localsubjectaccessreviews", "", review),
    handler("authorization.k8s.io", "selfsubjectaccessreviews", "", review),
    handler("authorization.k8s.io", "selfsubjectrulesreviews", "", review),
    handler("authorization.k8s.io", "subjectaccessreviews", "", review),
];

fn review<'a>(api: &'a Api, request: &'a Authorized) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(reviews::review(api, request))
}

/// Answers a request that may be made: by its row here, or else by its verb.
///
/// # Errors
/// What the client is told.
pub(crate) async fn run(api: &Api, request: &Authorized) -> Result<Answer> {
    verbs::check(request)?;
    let Some(handler) = find(request) else {
        let answer = verbs::run(api, request).await?;
        if custom::is_followed(request) {
            return Box::pin(custom::settle(api, request, answer)).await;
        }
        if policy_status::is_followed(request) {
            return Box::pin(policy_status::settle(api, request, answer)).await;
        }
        return Ok(answer);
    };
    match handler.subresource {
        "" => verbs::begin(request)?,
        _ => verbs::subresources::check(request).map(drop)?,
    }
    (handler.handle)(api, request).await
}

fn find(request: &Authorized) -> Option<&'static Handler> {
    let (kind, subresource) = (&request.kind, request.resource.subresource.as_str());
    // Most of what is asked for is a stored object itself.
    if subresource.is_empty() && kind.row().is_stored() {
        return None;
    }
    HANDLERS.iter().find(|one| {
        one.subresource == subresource && one.resource == kind.resource() && one.group == kind.group()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_handled_is_served_and_whatever_is_not_stored_is_handled() {
        for one in HANDLERS {
            let row = resources::find(one.group, "v1", one.resource).unwrap();
            match one.subresource {
                "" => assert!(!row.is_stored(), "{}", one.resource),
                below => assert!(row.subresource(below).is_some(), "{}/{below}", one.resource),
            }
        }
        for row in resources::table().iter().filter(|row| row.is_served() && !row.is_stored()) {
            let is_it = |one: &&Handler| one.group == &*row.group && one.resource == &*row.plural;
            assert!(HANDLERS.iter().any(|one| is_it(&one)), "{}", row.plural);
        }
    }
}
