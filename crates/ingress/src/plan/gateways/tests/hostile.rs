//! What is written to get what is somebody else's, or more than there is.

use std::time::Instant;

use expect_test::expect;
use serde_json::{Value, json};

use super::{OPEN, check, check_open, snapshot_of, text};
use crate::plan::plan;

/// A host of a port is whoever named it first: an older route's Gateway, or Ingresses.
#[test]
fn nobody_gets_requests_for_somebody_elses_host() {
    check(
        "
- kind: Gateway
  metadata: {name: victim, namespace: infra, creationTimestamp: '2026-02-01T00:00:00Z'}
  spec: {gatewayClassName: knarr, listeners: [{name: http, port: 80, protocol: HTTP}]}
- kind: Gateway
  metadata: {name: thief, namespace: apps, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec: {gatewayClassName: knarr, listeners: [{name: http, port: 80, protocol: HTTP}]}
- kind: HTTPRoute
  metadata: {name: bank, namespace: infra, creationTimestamp: '2026-02-02T00:00:00Z'}
  spec: {parentRefs: [{name: victim}], hostnames: [bank.example], rules: [{backendRefs: [{name: v1, port: 8080}]}]}
- kind: HTTPRoute
  metadata: {name: thief, namespace: apps, creationTimestamp: '2026-02-03T00:00:00Z'}
  spec:
    parentRefs: [{name: thief}]
    hostnames: [bank.example, shop.example, own.example]
    rules: [{matches: [{path: {type: Exact, value: /login}}], backendRefs: [{name: web, port: 8080}]}]
- kind: HTTPRoute
  metadata: {name: only-thief, namespace: apps, creationTimestamp: '2026-02-04T00:00:00Z'}
  spec: {parentRefs: [{name: thief}], hostnames: [bank.example], rules: [{backendRefs: [{name: web, port: 8080}]}]}
- kind: Ingress
  metadata: {name: shop, namespace: infra, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec: {rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: v2, port: {number: 8080}}}}]}}]}
- kind: Ingress
  metadata: {name: late, namespace: apps, creationTimestamp: '2026-03-01T00:00:00Z'}
  spec:
    tls: [{hosts: [bank.example], secretName: cert}]
    rules: [{host: bank.example, http: {paths: [{path: /login, pathType: Exact, backend: {service: {name: web, port: {number: 8080}}}}]}}]",
        &expect![[r#"
            https *: bank.example =/login [apps/late] to https apps/web:8080 -> 10.0.1.1:3000 (http)
            shop.example / [infra/shop] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: bank.example / [HTTPRoute infra/bank] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: own.example =/login [HTTPRoute apps/thief] apps/web:8080 -> 10.0.1.1:3000 (http)
            https * shows apps/cert
            Gateway apps/thief
              http: 2
            Gateway infra/victim
              http: 1
            HTTPRoute apps/only-thief at thief: Accepted!NoMatchingListenerHostname (the hostnames belong to an older route of another Gateway, or to an older Ingress)
            HTTPRoute apps/thief at thief:
            HTTPRoute infra/bank at victim:
        "#]],
    );
}

/// The Gateway's own listener for a name has it, whatever listeners for more names are there.
#[test]
fn a_listener_of_a_name_keeps_it_from_listeners_of_many() {
    check(
        "
- kind: Gateway
  metadata: {name: own, namespace: infra, creationTimestamp: '2026-02-01T00:00:00Z'}
  spec: {gatewayClassName: knarr, listeners: [{name: http, port: 80, protocol: HTTP, hostname: bank.example}]}
- kind: Gateway
  metadata: {name: wide, namespace: apps, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec: {gatewayClassName: knarr, listeners: [{name: http, port: 80, protocol: HTTP}]}
- kind: HTTPRoute
  metadata: {name: thief, namespace: apps}
  spec: {parentRefs: [{name: wide}, {name: own, namespace: infra}], hostnames: [bank.example], rules: [{backendRefs: [{name: web, port: 8080}]}]}",
        &expect![[r#"
            http *: bank.example / [HTTPRoute apps/thief] apps/web:8080 -> 10.0.1.1:3000 (http)
            Gateway apps/wide
              http: 1
            Gateway infra/own
              http: 0
            HTTPRoute apps/thief at wide:
            HTTPRoute apps/thief at own: Accepted!NotAllowedByListeners (no listener takes routes of this kind from this namespace)
        "#]],
    );
}

const ODD_RULES: &str = r#"
- kind: HTTPRoute
  metadata: {name: partly, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [a.example]
    rules:
    - {matches: [{path: {value: /fine}}], backendRefs: [{name: v1, port: 8080}]}
    - matches: [{path: {value: /line}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: 'a: b}'}]}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /lines}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: "a\r\nHost: b"}]}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /frames}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: Transfer-Encoding, value: chunked}]}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /length}}]
      filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [content-length]}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /bomb}, headers: [{name: x, type: RegularExpression, value: '(a{1000}){1000}'}]}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {type: RegularExpression, value: '(?=x)'}}, {path: {value: /half}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /unknown}}]
      filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Auth, name: a}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /path}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: 'x y'}}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {type: Exact, value: /prefix}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /y}}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{path: {value: /host}}]
      filters: [{type: RequestRedirect, requestRedirect: {hostname: 'a.example/@b'}}]
    - matches: [{path: {value: /status}}]
      filters: [{type: RequestRedirect, requestRedirect: {statusCode: 200}}]
    - matches: [{path: {value: /port}}]
      filters: [{type: RequestRedirect, requestRedirect: {port: 70000}}]
    - matches: [{path: {value: /both}}]
      filters: [{type: RequestRedirect, requestRedirect: {port: 81}}, {type: URLRewrite, urlRewrite: {hostname: b}}]
    - matches: [{path: {value: /backend}}]
      backendRefs: [{name: v1, port: 8080, filters: [{type: URLRewrite, urlRewrite: {hostname: b}}]}]
    - {matches: [{path: {value: /late}}], timeouts: {request: soon}, backendRefs: [{name: v1, port: 8080}]}
- kind: HTTPRoute
  metadata: {name: wholly, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [b.example]
    rules:
    - filters: [{type: CORS, cors: {allowOrigins: ['*']}}]
      backendRefs: [{name: v1, port: 8080}]"#;

/// What would break into messages, or lead where nobody meant, is refused where it stands, and nothing else is.
#[test]
fn what_cannot_be_done_is_refused_and_not_left_out() {
    check_open(
        ODD_RULES,
        &expect![[r#"
            http *: a.example =/prefix [HTTPRoute infra/partly] 500
            http *: a.example /backend/ [HTTPRoute infra/partly] infra/v1:8080 -> nobody
            http *: a.example /both/ [HTTPRoute infra/partly] 500
            http *: a.example /fine/ [HTTPRoute infra/partly] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: a.example /frames/ [HTTPRoute infra/partly] 500
            http *: a.example /half/ [HTTPRoute infra/partly] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: a.example /host/ [HTTPRoute infra/partly] 500
            http *: a.example /late/ [HTTPRoute infra/partly] 500
            http *: a.example /length/ [HTTPRoute infra/partly] 500
            http *: a.example /line/ [HTTPRoute infra/partly] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: a.example /lines/ [HTTPRoute infra/partly] 500
            http *: a.example /path/ [HTTPRoute infra/partly] 500
            http *: a.example /port/ [HTTPRoute infra/partly] 500
            http *: a.example /status/ [HTTPRoute infra/partly] 500
            http *: a.example /unknown/ [HTTPRoute infra/partly] 500
            http *: b.example / [HTTPRoute infra/wholly] 500
            Gateway infra/open
              http: 2
            HTTPRoute infra/partly at open: PartiallyInvalid=UnsupportedValue (Dropped Rule: rule 2: the value of header x must be one line; rule 3: header transfer-encoding cannot be changed; rule 4: header content-length cannot be changed; rule 5: header x cannot be matched: it must be a regular expression in RE2's syntax, of moderate size; rule 6: path cannot be matched: it must be a regular expression in RE2's syntax, of moderate size; rule 7: filter ExtensionRef is not supported; rule 8: path "x y" must be one that begins with /; rule 9: ReplacePrefixMatch needs a match with a PathPrefix; rule 10: hostname "a.example/@b" must be a name; rule 11: a redirect's status 200 must be 301, 302, 303, 307 or 308; rule 12: a redirect's port must be between 1 and 65535; rule 13: filter RequestRedirect must not stand with URLRewrite or RequestMirror; rule 14: filter URLRewrite is not supported for a backend; rule 15: timeout "soon" must be a duration such as 1m30s)
            HTTPRoute infra/wholly at open: Accepted!UnsupportedValue (rule 0: filter CORS is not supported)
        "#]],
    );
}

/// A host is either HTTPRoutes' or GRPCRoutes'. Source: `GRPCRoute`.
#[test]
fn a_host_of_a_listener_is_one_kinds() {
    check_open(
        "
- kind: HTTPRoute
  metadata: {name: old, namespace: infra, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec: {parentRefs: [{name: open}], hostnames: ['*.example'], rules: [{backendRefs: [{name: v1, port: 8080}]}]}
- kind: GRPCRoute
  metadata: {name: young, namespace: apps, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec: {parentRefs: [{name: open, namespace: infra}], hostnames: [a.example], rules: [{backendRefs: [{name: web, port: 8080}]}]}",
        &expect![[r#"
            http *: **.example / [HTTPRoute infra/old] infra/v1:8080 -> 10.0.0.1:3000 (http)
            Gateway infra/open
              http: 2
            GRPCRoute apps/young at open: Accepted!NotAllowedByListeners (hostname a.example of the listener belongs to an HTTPRoute that is older)
            HTTPRoute infra/old at open:
        "#]],
    );
}

/// Objects whose definitions let through what upstream's do not.
#[test]
fn what_no_definition_should_let_through_does_no_harm() {
    check(
        "
- kind: Gateway
  metadata: {name: odd, namespace: infra}
  spec:
    gatewayClassName: knarr
    listeners:
    - {name: port, port: -1, protocol: HTTP}
    - {name: large, port: 65616, protocol: HTTP}
    - {name: host, port: 80, protocol: HTTP, hostname: '*.*'}
    - {}
- {kind: Gateway, metadata: {name: bare, namespace: infra}, spec: {gatewayClassName: knarr}}
- {kind: HTTPRoute, metadata: {name: bare, namespace: infra}, spec: {parentRefs: [{name: odd}]}}
- kind: HTTPRoute
  metadata: {name: odd, namespace: infra}
  spec:
    parentRefs: [{name: odd}, {name: odd}]
    hostnames: ['', '*', 'a/b']
    rules:
    - matches: [{path: {value: x}}, {path: {type: Glob, value: /x}}, {headers: [{name: 'a b', value: c}]}, {method: 'x y'}]
      backendRefs: [{name: v1, port: 8080, weight: -5}, {name: v1}, {name: v2, port: 8080, weight: 99999999999}]",
        &expect![[r#"
            http **.*: **.* / x y [HTTPRoute infra/odd] 1 infra/v1:0 -> nobody; 1000000 infra/v2:8080 -> 10.0.0.2:3000 (http)
            Gateway infra/bare is not served Accepted!ListenersNotValid (no listener can be served)
            Gateway infra/odd Accepted=ListenersNotValid (some listeners cannot be served)
              port: 3 Accepted!PortUnavailable (port -1 is no port) Programmed!Invalid (requests are not led on from here)
              large: 3 Accepted!PortUnavailable (port 65616 is no port) Programmed!Invalid (requests are not led on from here)
              host: 3
              : 0 takes [] Accepted!UnsupportedProtocol (protocol  is not served: it must be HTTP or HTTPS) Programmed!Invalid (requests are not led on from here)
            HTTPRoute infra/bare at odd:
            HTTPRoute infra/odd at odd: ResolvedRefs!BackendNotFound (backend infra/v1:0 is no port of a Service) PartiallyInvalid=UnsupportedValue (Dropped Rule: rule 0: path "x" must begin with /; rule 0: path match Glob is not supported; rule 0: header "a b" must be a name)
            HTTPRoute infra/odd at odd: ResolvedRefs!BackendNotFound (backend infra/v1:0 is no port of a Service) PartiallyInvalid=UnsupportedValue (Dropped Rule: rule 0: path "x" must begin with /; rule 0: path match Glob is not supported; rule 0: header "a b" must be a name)
        "#]],
    );
}

/// Routes with so many rules each, beside an open Gateway.
fn many(all: &[(usize, &str, usize)]) -> Vec<Value> {
    let rule = |route: usize, rule: usize| {
        json!({
            "matches": [{"path": {"value": format!("/{route}/{rule}")}}],
            "backendRefs": [{"name": "v1", "port": 8080}],
        })
    };
    let route = |number: usize, namespace: &str, rules: usize| {
        json!({
            "kind": "HTTPRoute",
            "metadata": {"name": format!("r{number:05}"), "namespace": namespace},
            "spec": {
                "parentRefs": [{"name": "open", "namespace": "infra"}],
                "hostnames": [format!("{namespace}.example")],
                "rules": (0..rules).map(|index| rule(number, index)).collect::<Vec<_>>(),
            },
        })
    };
    let mut objects: Vec<Value> = serde_saphyr::from_str(OPEN).unwrap();
    for (count, namespace, rules) in all {
        objects.extend((0..*count).map(|number| route(number, namespace, *rules)));
    }
    objects
}

#[test]
fn ten_thousand_rules_are_planned_and_more_are_those_of_their_namespace() {
    let all = snapshot_of(&many(&[(625, "infra", 16)]));
    let began = Instant::now();
    let planned = plan(&all);
    eprintln!("10,000 rules were planned in {:?}", began.elapsed());
    assert_eq!(planned.table.rows.len(), 10_000);
    let planned = plan(&snapshot_of(&many(&[(1300, "infra", 16), (1, "apps", 1)])));
    let of = |namespace: &str| {
        let is_of = |of: &str| of.starts_with(&format!("HTTPRoute {namespace}/"));
        planned.table.rows.iter().filter(|row| is_of(&row.route.of)).count()
    };
    assert_eq!((of("infra"), of("apps")), (20_000, 1));
    let told = text(&planned);
    assert_eq!(
        told.matches("Accepted!UnsupportedValue (the routes of this namespace come to more").count(),
        50
    );
}

#[test]
fn many_hosts_of_both_kinds_are_told_apart_in_time() {
    let route = |kind: &str, number: usize| {
        let hosts: Vec<String> = (0..16).map(|host| format!("*.{host}.{kind}{number}.example")).collect();
        json!({
            "kind": format!("{kind}Route"),
            "metadata": {"name": format!("r{number}"), "namespace": "infra"},
            "spec": {
                "parentRefs": [{"name": "open"}],
                "hostnames": hosts,
                "rules": [{"backendRefs": [{"name": "v1", "port": 8080}]}],
            },
        })
    };
    let mut all: Vec<Value> = serde_saphyr::from_str(OPEN).unwrap();
    all.extend((0..600).flat_map(|number| [route("HTTP", number), route("GRPC", number)]));
    assert_eq!(plan(&snapshot_of(&all)).table.rows.len(), 600 * 2 * 16);
}
