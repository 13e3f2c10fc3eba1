//! Acting as somebody else: the `Impersonate-*` headers, each of which must be allowed by itself.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/filters/impersonation`.

use std::collections::BTreeMap;

use auth::{AUTHENTICATED, Attributes, SERVICE_ACCOUNT_PREFIX, UNAUTHENTICATED, UserInfo};
use http::HeaderMap;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Whom a request wants to act as, and what its sender must be allowed for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Each must be allowed.
    pub attributes: Vec<Attributes>,
    /// The user that is impersonated.
    pub user: UserInfo,
}

/// Headers that ask for something but no user: what they ask for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("requested [{}] without impersonating a user", .0.join(" "))]
pub(crate) struct WithoutUser(Vec<String>);

/// Reads the headers; `None` if they ask for nothing.
///
/// # Errors
/// Upstream's text, when something but no user is asked for.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<Wanted>, WithoutUser> {
    let first = |name: &str| headers.get(name).and_then(text).unwrap_or_default().to_owned();
    let name = first("impersonate-user");
    let uid = first("impersonate-uid");
    let groups: Vec<String> =
        headers.get_all("impersonate-group").iter().filter_map(text).map(str::to_owned).collect();
    let extra = extra(headers, EXTRA_PREFIX);
    if name.is_empty() {
        return without_user(&groups, &extra, &uid);
    }
    let mut attributes = vec![of_user(&name)];
    attributes.extend(groups.iter().map(|group| ask("", "groups", "", group)));
    for (key, values) in &extra {
        attributes.extend(values.iter().map(|value| ask(AUTHENTICATION, "userextras", key, value)));
    }
    if !uid.is_empty() {
        attributes.push(ask(AUTHENTICATION, "uids", "", &uid));
    }
    let groups = all_groups(&name, groups);
    Ok(Some(Wanted { attributes, user: UserInfo { name, uid, groups, extra } }))
}

fn text(value: &http::HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Headers with a prefix, which are keys with percent escapes.
pub(crate) fn extra(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Some(value)) = (name.as_str().strip_prefix(prefix), text(value)) {
            all.entry(unescape(key)).or_default().push(value.to_owned());
        }
    }
    all
}

/// Decodes percent escapes; a text with a malformed one stays as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let Some((high, low)) = tail.first().zip(tail.get(1)).and_then(|(h, l)| digit(*h).zip(digit(*l)))
        else {
            return text.to_owned();
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
        rest = tail.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn without_user(
    groups: &[String],
    extra: &BTreeMap<String, Vec<String>>,
    uid: &str,
) -> Result<Option<Wanted>, WithoutUser> {
    // As Go prints object references: kind, namespace, name, uid, apiVersion, resourceVersion, fieldPath.
    let mut asked: Vec<String> = groups.iter().map(|group| format!("{{Group  {group}    }}")).collect();
    for (key, values) in extra {
        asked
            .extend(values.iter().map(|value| format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}")));
    }
    if !uid.is_empty() {
        asked.push(format!("{{UID  {uid}  {AUTHENTICATION}/v1  }}"));
    }
    if asked.is_empty() { Ok(None) } else { Err(WithoutUser(asked)) }
}

fn ask(group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
    Attributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: name.to_owned(),
        is_resource: true,
        ..Attributes::default()
    }
}

/// A service account's user name is asked for as the account.
fn of_user(name: &str) -> Attributes {
    match account(name) {
        Some((namespace, account)) => {
            Attributes { namespace: namespace.to_owned(), ..ask("", "serviceaccounts", "", account) }
        }
        None => ask("", "users", "", name),
    }
}

fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains(':');
    (is_name(namespace) && is_name(account)).then_some((namespace, account))
}

/// The groups asked for, or those that follow from the name; and whether one is known at all.
fn all_groups(name: &str, mut groups: Vec<String>) -> Vec<String> {
    if groups.is_empty()
        && let Some((namespace, _)) = account(name)
    {
        let all = "system:serviceaccounts";
        groups = vec![all.to_owned(), format!("{all}:{namespace}")];
    }
    let has = |group: &str| groups.iter().any(|own| own == group);
    if name == "system:anonymous" {
        if !has(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expect: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let shown = match wanted(&map) {
            Ok(None) => "nobody".to_owned(),
            Err(why) => why.to_string(),
            Ok(Some(wanted)) => {
                let asks = wanted.attributes.iter().map(|a| {
                    let (sub, group, namespace) = (&a.subresource, &a.group, &a.namespace);
                    format!("{}/{sub} {group} {namespace} {}", a.resource, a.name)
                });
                let asks = asks.collect::<Vec<_>>().join("; ");
                let user = wanted.user;
                format!("{} {} {:?} {:?} | {asks}", user.name, user.uid, user.groups, user.extra)
            }
        };
        assert_eq!(shown, expect);
    }

    #[test]
    fn each_header_is_a_question() {
        check(&[], "nobody");
        check(&[("impersonate-user", "jane")], "jane  [\"system:authenticated\"] {} | users/   jane");
        check(
            &[
                ("impersonate-user", "jane"),
                ("impersonate-group", "dev"),
                ("impersonate-uid", "7"),
                ("impersonate-extra-a.example%2fscopes", "x"),
            ],
            "jane 7 [\"dev\", \"system:authenticated\"] {\"a.example/scopes\": [\"x\"]} | users/   jane; groups/   dev; \
             userextras/a.example/scopes authentication.k8s.io  x; uids/ authentication.k8s.io  7",
        );
        check(
            &[("impersonate-user", "system:serviceaccount:ns:web")],
            "system:serviceaccount:ns:web  [\"system:serviceaccounts\", \"system:serviceaccounts:ns\", \
             \"system:authenticated\"] {} | serviceaccounts/  ns web",
        );
        check(
            &[("impersonate-user", "system:anonymous")],
            "system:anonymous  [\"system:unauthenticated\"] {} | users/   system:anonymous",
        );
    }

    #[test]
    fn groups_without_a_user_are_an_error() {
        check(&[("impersonate-group", "dev")], "requested [{Group  dev    }] without impersonating a user");
        check(
            &[("impersonate-extra-k", "v")],
            "requested [{UserExtra  v  authentication.k8s.io/v1  k}] without impersonating a user",
        );
    }

    #[test]
    fn malformed_escapes_stay() {
        assert_eq!(unescape("a%zz"), "a%zz");
        assert_eq!(unescape("a%2"), "a%2");
        assert_eq!(unescape("a%2Fb"), "a/b");
    }
}
