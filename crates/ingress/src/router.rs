//! The choice of the row that answers a request: rows by where it came in, by host and by path, ready to be asked.
//!
//! The most specific listener for a name has all of its requests. Of its rows those for an exact host go before those for a
//! wildcard, and these before rows for all hosts; a host whose rows have no such path is passed over. Of a host's paths an
//! exact one goes first, then expressions, then the longest prefix; of rows for the same path the first that is met. Asking
//! costs as much as the longest prefix has elements and as there are expressions and rows of the same path, however long the
//! path is.

use std::collections::HashMap;
use std::sync::Arc;

use crate::host::Host;
use crate::hosts::Hosts;
use crate::matching::{Facts, Pattern, When};
use crate::path::PathMatch;
use crate::table::{Entrance, Listener};

/// Rows, ready to be asked. What they lead to is `R`.
#[derive(Debug)]
pub struct Router<R> {
    entrances: HashMap<Entrance, Hosts<Hosts<Paths<R>>>>,
}

/// The requests that a row is for, and its target.
#[derive(Debug)]
pub struct Lead<R> {
    /// See [`crate::table::Row`].
    pub listener: Option<Listener>,
    /// Of the requests.
    pub host: Host,
    /// Of the requests.
    pub path: PathMatch,
    /// Other conditions on them.
    pub when: When,
    /// Their target.
    pub to: Arc<R>,
}

/// The facts of a request by which its row is found.
#[derive(Debug)]
pub struct Question<'a> {
    /// The entrance by which it came in.
    pub entrance: Entrance,
    /// The name that its connection was made for, where one was named.
    pub server_name: Option<&'a str>,
    /// The host that it asks for.
    pub host: &'a str,
    /// In normal form.
    pub path: &'a str,
    /// The rest.
    pub facts: Facts<'a>,
}

/// The row that a request leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a, R> {
    /// There.
    Row(&'a Arc<R>),
    /// Nowhere.
    Nothing,
    /// Its connection was made for another listener. Source: GEP-3567.
    Misdirected,
}

/// Those of one path, in order.
type Rows<R> = Vec<(When, Arc<R>)>;

#[derive(Debug)]
struct Paths<R> {
    exact: HashMap<String, Rows<R>>,
    patterns: Vec<(Pattern, Rows<R>)>,
    prefix: HashMap<String, Rows<R>>,
    /// Of the longest prefix, in bytes.
    longest: usize,
}

impl<R> Default for Paths<R> {
    fn default() -> Self {
        Self { exact: HashMap::new(), patterns: Vec::new(), prefix: HashMap::new(), longest: 0 }
    }
}

impl<R> Default for Router<R> {
    fn default() -> Self {
        Self { entrances: HashMap::new() }
    }
}

impl<R> Router<R> {
    /// Listeners, and rows in their order.
    pub fn of<'a>(
        listeners: impl IntoIterator<Item = &'a Listener>,
        rows: impl IntoIterator<Item = Lead<R>>,
    ) -> Self {
        let mut router = Self::default();
        for Listener { entrance, host } in listeners {
            let hosts = router.entrances.entry(*entrance).or_default();
            hosts.get_or_insert_with(host, Hosts::default);
        }
        for Lead { listener, host, path, when, to } in rows {
            let entrances = match &listener {
                Some(listener) => vec![(listener.entrance, &listener.host)],
                None => Entrance::OF_INGRESSES.map(|entrance| (entrance, &Host::Any)).into(),
            };
            for (entrance, of) in entrances {
                let listeners = router.entrances.entry(entrance).or_default();
                let hosts = listeners.get_or_insert_with(of, Hosts::default);
                let paths = hosts.get_or_insert_with(&host, Paths::default);
                paths.add(&path, when.clone(), Arc::clone(&to));
            }
        }
        router
    }

    /// The row that a request leads to.
    pub fn route<'r>(&'r self, asked: &Question<'_>) -> Found<'r, R> {
        let Some(listeners) = self.entrances.get(&asked.entrance) else { return Found::Nothing };
        let Some(hosts) = listeners.matching(asked.host).next() else { return Found::Nothing };
        if let Some(name) = asked.server_name {
            let of_connection = listeners.matching(name).next();
            if !of_connection.is_some_and(|other| std::ptr::eq(other, hosts)) {
                return Found::Misdirected;
            }
        }
        let found = hosts.matching(asked.host).find_map(|paths| paths.find(asked.path, &asked.facts));
        found.map_or(Found::Nothing, Found::Row)
    }
}

impl<R> Paths<R> {
    fn add(&mut self, path: &PathMatch, when: When, to: Arc<R>) {
        let rows = match path {
            PathMatch::Exact(path) => self.exact.entry(path.clone()).or_default(),
            PathMatch::Prefix(path) => {
                self.longest = self.longest.max(path.len());
                self.prefix.entry(path.clone()).or_default()
            }
            PathMatch::Pattern(pattern) => {
                // Rows of one expression stand together.
                if self.patterns.last().is_none_or(|(last, _)| last != pattern) {
                    self.patterns.push((pattern.clone(), Vec::new()));
                }
                let Some((_, rows)) = self.patterns.last_mut() else { return };
                rows
            }
        };
        rows.push((when, to));
    }

    fn find<'r>(&'r self, path: &str, facts: &Facts<'_>) -> Option<&'r Arc<R>> {
        let first = |rows: &Rows<R>| rows.iter().position(|(when, _)| when.is_met(facts));
        let exact = self.exact.get(path).into_iter();
        let is_like = |(pattern, _): &&(Pattern, _)| pattern.is_match(path.as_bytes());
        let patterns = self.patterns.iter().filter(is_like).map(|(_, rows)| rows);
        // An element ends where the path does or before a slash.
        let ends = |end: &usize| *end == path.len() || path.as_bytes().get(*end) == Some(&b'/');
        let all = (0..=path.len().min(self.longest)).rev().filter(ends);
        let prefixes = all.filter_map(|end| path.get(..end)).filter_map(|prefix| self.prefix.get(prefix));
        let mut all = exact.chain(patterns).chain(prefixes);
        all.find_map(|rows| rows.get(first(rows)?).map(|(_, to)| to))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::matching::Text;

    type RowText = (&'static str, &'static str, &'static str);

    fn question<'a>(host: &'a str, path: &'a str, headers: &'a HeaderMap) -> Question<'a> {
        let facts = Facts::of(&Method::GET, headers, None);
        Question { entrance: Entrance::Http, server_name: None, host, path, facts }
    }

    fn matched(path: &str) -> PathMatch {
        match (path.strip_prefix('='), path.strip_prefix('~')) {
            (Some(path), _) => PathMatch::exact(path),
            (_, Some(pattern)) => PathMatch::Pattern(Pattern::new(pattern).unwrap()),
            _ => PathMatch::prefix(path),
        }
    }

    /// Rows `host path` with `=` before an exact path and `~` before an expression lead to their own text.
    fn check(rows: &[RowText], asked: &[(&str, &str, Option<&str>)]) {
        let rows = rows.iter().map(|(host, path, name)| Lead {
            listener: None,
            host: Host::of_rule(host),
            path: matched(path),
            when: When::default(),
            to: Arc::new(*name),
        });
        let router = Router::of([], rows);
        let headers = HeaderMap::new();
        for (host, path, expected) in asked {
            let found = match router.route(&question(host, path, &headers)) {
                Found::Row(found) => Some(**found),
                _ => None,
            };
            assert_eq!(found, *expected, "{host} {path}");
        }
    }

    fn check_paths(paths: &[&'static str], asked: &str, expected: Option<&str>) {
        let rows: Vec<RowText> = paths.iter().map(|path| ("", *path, *path)).collect();
        check(&rows, &[("a.example", asked, expected)]);
    }

    /// The table of upstream's documentation of Ingress, "Examples" of path types.
    #[test]
    fn paths_match_as_the_documentation_of_ingress_says() {
        check_paths(&["/"], "/any/path", Some("/"));
        check_paths(&["=/foo"], "/foo", Some("=/foo"));
        check_paths(&["=/foo"], "/bar", None);
        check_paths(&["=/foo"], "/foo/", None);
        check_paths(&["=/foo/"], "/foo", None);
        check_paths(&["/foo"], "/foo", Some("/foo"));
        check_paths(&["/foo"], "/foo/", Some("/foo"));
        check_paths(&["/foo/"], "/foo", Some("/foo/"));
        check_paths(&["/foo/"], "/foo/", Some("/foo/"));
        check_paths(&["/aaa/bb"], "/aaa/bbb", None);
        check_paths(&["/aaa/bbb"], "/aaa/bbb", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb/"], "/aaa/bbb", Some("/aaa/bbb/"));
        check_paths(&["/aaa/bbb"], "/aaa/bbb/", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb"], "/aaa/bbb/ccc", Some("/aaa/bbb"));
        check_paths(&["/aaa/bbb"], "/aaa/bbbxyz", None);
        check_paths(&["/", "/aaa"], "/aaa/ccc", Some("/aaa"));
        check_paths(&["/", "/aaa", "/aaa/bbb"], "/aaa/bbb", Some("/aaa/bbb"));
        check_paths(&["/", "/aaa", "/aaa/bbb"], "/ccc", Some("/"));
        check_paths(&["/aaa"], "/ccc", None);
        check_paths(&["/foo", "=/foo"], "/foo", Some("=/foo"));
    }

    #[test]
    fn paths_are_compared_by_element_and_by_case() {
        check_paths(&["/foo"], "/FOO", None);
        check_paths(&["/foo"], "/foo//bar", Some("/foo"));
        check_paths(&["/foo/bar"], "/foo//bar", None);
        check_paths(&["=/"], "/", Some("=/"));
        check_paths(&["=/"], "/a", None);
        check_paths(&["/é"], "/é/x", Some("/é"));
        let deep = "/a".repeat(30_000);
        check_paths(&["/a", "/"], &deep, Some("/a"));
    }

    /// The table of upstream's documentation of Ingress, "Hostname wildcards", and what conformance asks beside it.
    #[test]
    fn hosts_match_exactly_or_by_one_label() {
        let rows = [("*.foo.com", "/", "wild")];
        check(
            &rows,
            &[
                ("bar.foo.com", "/", Some("wild")),
                ("baz.bar.foo.com", "/", None),
                ("foo.com", "/", None),
                ("xfoo.com", "/", None),
            ],
        );
        let rows = [
            ("foo.bar.com", "/", "exact"),
            ("*.bar.com", "/", "wild"),
            ("*.bar.com", "/only", "wild only"),
            ("", "/", "any"),
            ("deep.bar.com", "/x", "deep"),
        ];
        check(
            &rows,
            &[
                ("foo.bar.com", "/only", Some("exact")),
                ("x.bar.com", "/only/y", Some("wild only")),
                ("x.bar.com", "/", Some("wild")),
                ("deep.bar.com", "/x/y", Some("deep")),
                ("deep.bar.com", "/only", Some("wild only")),
                ("other.example", "/", Some("any")),
                ("192.0.2.1", "/", Some("any")),
                ("", "/", Some("any")),
            ],
        );
    }

    #[test]
    fn of_two_rows_the_first_stays() {
        check(&[("", "/a", "first"), ("", "/a/", "second")], &[("", "/a", Some("first"))]);
    }

    #[test]
    fn an_exact_path_goes_before_expressions_and_these_before_prefixes() {
        check_paths(&["/a", "~/a/[0-9]+", "~/a/.*", "=/a/1"], "/a/1", Some("=/a/1"));
        check_paths(&["/a", "~/a/[0-9]+", "~/a/.*"], "/a/12", Some("~/a/[0-9]+"));
        check_paths(&["/a", "~/a/[0-9]+", "/a/x/y/z"], "/a/x/y/z", Some("/a/x/y/z"));
        check_paths(&["/a", "~/a/[0-9]+"], "/a/1/2", Some("/a"));
    }

    #[test]
    fn of_rows_for_one_path_the_first_that_is_met_is_meant_and_wider_ones_follow() {
        let row = |path: &str, header: Option<&str>, name: &'static str| Lead {
            listener: None,
            host: Host::Any,
            path: matched(path),
            when: When {
                headers: header
                    .map(|value| ("v".to_owned(), Text::Exact(value.to_owned())))
                    .into_iter()
                    .collect(),
                ..When::default()
            },
            to: Arc::new(name),
        };
        let rows = [row("/a", Some("1"), "one"), row("/a", Some("2"), "two"), row("/", None, "all")];
        let router = Router::of([], rows);
        for (value, expected) in [("1", "one"), ("2", "two"), ("3", "all")] {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static("v"), value.parse().unwrap())]);
            assert_eq!(router.route(&question("x", "/a/b", &headers)), Found::Row(&Arc::new(expected)));
        }
    }

    #[test]
    fn a_name_is_its_most_specific_listeners_and_no_others() {
        let listener = |entrance, host| Listener { entrance, host: Host::of_gateway(host) };
        let listeners = [
            listener(Entrance::Https, "a.example"),
            listener(Entrance::Https, "*.example"),
            listener(Entrance::Port(8443), "b.example"),
        ];
        let row = |listener: Option<&Listener>, host, name: &'static str| Lead {
            listener: listener.cloned(),
            host: Host::of_gateway(host),
            path: PathMatch::all(),
            when: When::default(),
            to: Arc::new(name),
        };
        let rows = [
            row(Some(&listeners[1]), "a.example", "narrow row of a wide listener"),
            row(Some(&listeners[1]), "*.example", "wide"),
            row(None, "a.example", "Ingress"),
            row(None, "other.test", "other Ingress"),
        ];
        let router = Router::of(&listeners, rows);
        let headers = HeaderMap::new();
        let asked = |entrance, server_name, host| {
            let question = Question { entrance, server_name, ..question(host, "/", &headers) };
            match router.route(&question) {
                Found::Row(found) => **found,
                Found::Nothing => "nothing",
                Found::Misdirected => "misdirected",
            }
        };
        let (http, https) = (Entrance::Http, Entrance::Https);
        assert_eq!(asked(https, None, "a.example"), "nothing", "its listener has no row");
        assert_eq!(asked(http, None, "a.example"), "Ingress");
        assert_eq!(asked(https, None, "x.y.example"), "wide");
        assert_eq!(asked(https, Some("z.example"), "y.example"), "wide");
        assert_eq!(asked(https, Some("a.example"), "y.example"), "misdirected");
        assert_eq!(asked(https, Some("other.test"), "y.example"), "misdirected");
        assert_eq!(asked(https, Some("other.test"), "other.test"), "other Ingress");
        assert_eq!(asked(Entrance::Port(8443), None, "other.test"), "nothing");
        assert_eq!(asked(Entrance::Port(1), None, "a.example"), "nothing");
    }
}
