//! What the conformance suite asks, by the names of its tests.

use expect_test::expect;

use super::{check, check_open};

/// `HTTPRouteSimpleSameNamespace`, `HTTPRouteMatching`, `HTTPRouteMatchingAcrossRoutes`.
#[test]
fn matches_become_rows_the_most_specific_first() {
    check_open(
        "
- kind: HTTPRoute
  metadata: {name: one, namespace: infra, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec:
    parentRefs: [{name: open}]
    hostnames: [example.com, example.net]
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}, {headers: [{name: Version, value: one}]}]
      backendRefs: [{name: v1, port: 8080}]
- kind: HTTPRoute
  metadata: {name: two, namespace: infra, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec:
    parentRefs: [{name: open}]
    hostnames: [example.com]
    rules:
    - matches:
      - {path: {value: /v2}}
      - {headers: [{name: version, value: two}], method: GET}
      - {headers: [{name: version, value: two}], queryParams: [{name: q, type: RegularExpression, value: '[0-9]+'}]}
      - {path: {type: Exact, value: /v2}}
      - {path: {type: RegularExpression, value: '/v[0-9]+'}}
      backendRefs: [{name: v2, port: 8080}]",
        &expect![[r#"
            http *: example.com ~/v[0-9]+ [HTTPRoute infra/two] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: example.com =/v2 [HTTPRoute infra/two] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: example.com / GET version=two [HTTPRoute infra/two] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: example.com / version=two ?q~[0-9]+ [HTTPRoute infra/two] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: example.com / version=one [HTTPRoute infra/one] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: example.com / [HTTPRoute infra/one] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: example.com /v2/ [HTTPRoute infra/two] infra/v2:8080 -> 10.0.0.2:3000 (http)
            http *: example.net / version=one [HTTPRoute infra/one] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: example.net / [HTTPRoute infra/one] infra/v1:8080 -> 10.0.0.1:3000 (http)
            Gateway infra/open
              http: 2
            HTTPRoute infra/one at open:
            HTTPRoute infra/two at open:
        "#]],
    );
}

/// `GatewayHTTPListenerIsolation`, `HTTPRouteHostnameIntersection`, `HTTPRouteListenerHostnameMatching`.
#[test]
fn hosts_are_what_routes_and_listeners_have_in_common() {
    check(
        "
- kind: Gateway
  metadata: {name: many, namespace: infra}
  spec:
    gatewayClassName: knarr
    listeners:
    - {name: exact, port: 80, protocol: HTTP, hostname: very.specific.com}
    - {name: wild, port: 80, protocol: HTTP, hostname: '*.wildcard.io'}
    - {name: all, port: 8080, protocol: HTTP}
- kind: HTTPRoute
  metadata: {name: hosts, namespace: infra}
  spec:
    parentRefs: [{name: many}]
    hostnames: [very.specific.com, '*.specific.com', non.matching.com, foo.wildcard.io, '*.wildcard.io', wildcard.io]
    rules: [{backendRefs: [{name: v1, port: 8080}]}]
- kind: HTTPRoute
  metadata: {name: section, namespace: infra}
  spec:
    parentRefs: [{name: many, sectionName: wild}]
    rules: [{backendRefs: [{name: v2, port: 8080}]}]
- kind: HTTPRoute
  metadata: {name: none, namespace: infra}
  spec:
    parentRefs: [{name: many, sectionName: exact}, {name: many, sectionName: gone}, {name: many, port: 81}, {name: many, port: 8080}]
    hostnames: [other.com]
    rules: [{backendRefs: [{name: v2, port: 8080}]}]",
        &expect![[r#"
            http very.specific.com: very.specific.com / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http **.wildcard.io: foo.wildcard.io / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http **.wildcard.io: **.wildcard.io / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: foo.wildcard.io / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: non.matching.com / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: other.com / [HTTPRoute infra/none] infra/v2:8080 -> 10.0.0.2:3000 (http)
            8080 *: very.specific.com / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: wildcard.io / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: **.specific.com / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            8080 *: **.wildcard.io / [HTTPRoute infra/hosts] infra/v1:8080 -> 10.0.0.1:3000 (http)
            port 8080 http
            Gateway infra/many
              exact: 2
              wild: 2
              all: 2
            HTTPRoute infra/hosts at many:
            HTTPRoute infra/none at many/exact: Accepted!NoMatchingListenerHostname (no listener has a hostname in common with the route)
            HTTPRoute infra/none at many/gone: Accepted!NoMatchingParent (the Gateway has no such listener)
            HTTPRoute infra/none at many: Accepted!NoMatchingParent (the Gateway has no such listener)
            HTTPRoute infra/none at many:
            HTTPRoute infra/section at many/wild:
        "#]],
    );
}

/// `HTTPRouteCrossNamespace`, `HTTPRouteInvalidCrossNamespaceParentRef`, `GatewayInvalidRouteKind`,
/// `GatewayWithAttachedRoutes`.
#[test]
fn listeners_take_routes_of_namespaces_and_kinds() {
    check(
        "
- kind: Gateway
  metadata: {name: picky, namespace: infra}
  spec:
    gatewayClassName: knarr
    listeners:
    - {name: same, port: 80, protocol: HTTP}
    - {name: team, port: 8081, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: web}}}}}
    - {name: none, port: 8082, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}
    - {name: grpc, port: 8083, protocol: HTTP, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: GRPCRoute}]}}
    - {name: wrong, port: 8084, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}, {kind: HTTPRoute}]}}
    - {name: odd, port: 8085, protocol: HTTP, allowedRoutes: {kinds: [{group: example.com, kind: HTTPRoute}]}}
- kind: Gateway
  metadata: {name: not-ours, namespace: infra}
  spec: {gatewayClassName: other, listeners: [{name: http, port: 80, protocol: HTTP}]}
- kind: HTTPRoute
  metadata: {name: web, namespace: apps}
  spec:
    parentRefs:
    - {name: picky, namespace: infra, sectionName: same}
    - {name: picky, namespace: infra, sectionName: team}
    - {name: picky, namespace: infra, sectionName: none}
    - {name: picky, namespace: infra, sectionName: grpc}
    - {name: not-ours, namespace: infra}
    - {name: picky}
    - {name: v1, kind: Service, group: ''}
    rules: [{backendRefs: [{name: web, port: 8080}]}]
- kind: GRPCRoute
  metadata: {name: calls, namespace: infra}
  spec: {parentRefs: [{name: picky, sectionName: grpc}], rules: [{backendRefs: [{name: v1, port: 8080}]}]}",
        &expect![[r#"
            8081 *: * / [HTTPRoute apps/web] apps/web:8080 -> 10.0.1.1:3000 (http)
            8083 *: * / [GRPCRoute infra/calls] infra/v1:8080 -> 10.0.0.1:3000 (h2c)
            port 8081 http
            port 8082 http
            port 8083 http
            port 8084 http
            port 8085 http
            Gateway infra/picky
              same: 0
              team: 1
              none: 0
              grpc: 1 takes ["GRPCRoute"]
              wrong: 0 takes ["HTTPRoute"] ResolvedRefs!InvalidRouteKinds (TCPRoute of gateway.networking.k8s.io cannot attach to listeners of HTTP)
              odd: 0 takes [] ResolvedRefs!InvalidRouteKinds (HTTPRoute of example.com cannot attach to listeners of HTTP)
            GRPCRoute infra/calls at picky/grpc:
            HTTPRoute apps/web at picky/same: Accepted!NotAllowedByListeners (no listener takes routes of this kind from this namespace)
            HTTPRoute apps/web at picky/team:
            HTTPRoute apps/web at picky/none: Accepted!NotAllowedByListeners (no listener takes routes of this kind from this namespace)
            HTTPRoute apps/web at picky/grpc: Accepted!NotAllowedByListeners (no listener takes routes of this kind from this namespace)
        "#]],
    );
}

/// `HTTPRouteReferenceGrant`, `HTTPRouteInvalidReferenceGrant`, `HTTPRouteInvalidNonExistentBackendRef`,
/// `HTTPRouteInvalidBackendRefUnknownKind`, `HTTPRouteWeight`.
#[test]
fn backends_have_their_part_whether_they_are_there_or_not() {
    check_open(
        "
- kind: ReferenceGrant
  metadata: {name: web, namespace: apps}
  spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}], to: [{group: '', kind: Service, name: web}]}
- kind: HTTPRoute
  metadata: {name: granted, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [a.example]
    rules:
    - backendRefs: [{name: web, namespace: apps, port: 8080, weight: 90}, {name: v1, port: 8080, weight: 10}, {name: v2, port: 8080, weight: 0}]
- kind: GRPCRoute
  metadata: {name: not-granted, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [b.example]
    rules: [{backendRefs: [{name: web, namespace: apps, port: 8080}]}]
- kind: HTTPRoute
  metadata: {name: other-name, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [c.example]
    rules: [{backendRefs: [{name: db, namespace: apps, port: 8080}]}]
- kind: HTTPRoute
  metadata: {name: wrong, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [d.example]
    rules:
    - {matches: [{path: {value: /gone}}], backendRefs: [{name: gone, port: 8080}, {name: v1, port: 8080}]}
    - {matches: [{path: {value: /port}}], backendRefs: [{name: v1, port: 81}]}
    - {matches: [{path: {value: /kind}}], backendRefs: [{name: v1, kind: Bucket, group: example.com, port: 8080}]}
    - {matches: [{path: {value: /out}}], backendRefs: [{name: out, port: 8080}]}
    - {matches: [{path: {value: /none}}]}
    - {matches: [{path: {value: /zero}}], backendRefs: [{name: v1, port: 8080, weight: 0}]}
- kind: HTTPRoute
  metadata: {name: kind, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    hostnames: [e.example]
    rules: [{backendRefs: [{name: v1, kind: Bucket, group: example.com, port: 8080}]}]",
        &expect![[r#"
            http *: a.example / [HTTPRoute infra/granted] 90 apps/web:8080 -> 10.0.1.1:3000 (http); 10 infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: b.example / [GRPCRoute infra/not-granted] apps/web:8080 -> nobody
            http *: c.example / [HTTPRoute infra/other-name] apps/db:8080 -> nobody
            http *: d.example /gone/ [HTTPRoute infra/wrong] 1 infra/gone:8080 -> nobody; 1 infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: d.example /kind/ [HTTPRoute infra/wrong] infra/v1:8080 -> nobody
            http *: d.example /none/ [HTTPRoute infra/wrong] 500
            http *: d.example /out/ [HTTPRoute infra/wrong] infra/out:8080 -> nobody
            http *: d.example /port/ [HTTPRoute infra/wrong] infra/v1:81 -> nobody
            http *: d.example /zero/ [HTTPRoute infra/wrong] 500
            http *: e.example / [HTTPRoute infra/kind] infra/v1:8080 -> nobody
            Gateway infra/open
              http: 5
            GRPCRoute infra/not-granted at open: ResolvedRefs!RefNotPermitted (no ReferenceGrant allows GRPCRoutes of infra to name Service apps/web)
            HTTPRoute infra/granted at open:
            HTTPRoute infra/kind at open: ResolvedRefs!InvalidKind (Bucket v1 cannot be a backend: it must be a Service)
            HTTPRoute infra/other-name at open: ResolvedRefs!RefNotPermitted (no ReferenceGrant allows HTTPRoutes of infra to name Service apps/db)
            HTTPRoute infra/wrong at open: ResolvedRefs!BackendNotFound (backend infra/gone:8080 is no Service)
        "#]],
    );
}

/// `HTTPRouteRedirect…`, `HTTPRouteRewrite…`, `HTTPRouteRequestHeaderModifier…`, `HTTPRouteRequestMirror`, `HTTPRouteTimeout…`.
#[test]
fn filters_become_what_is_done() {
    check_open(
        "
- kind: HTTPRoute
  metadata: {name: filters, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    rules:
    - matches: [{path: {value: /redirect}}]
      filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]
    - matches: [{path: {value: /rewrite}}, {path: {value: /other}}]
      filters:
      - {type: URLRewrite, urlRewrite: {hostname: b.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}
      - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-A, value: b}], add: [{name: X-C, value: d}], remove: [X-E]}}
      backendRefs: [{name: v1, port: 8080, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x, value: z}]}}]}]
    - matches: [{path: {value: /mirror}}]
      filters:
      - {type: RequestMirror, requestMirror: {backendRef: {name: v2, port: 8080}, percent: 20}}
      - {type: RequestMirror, requestMirror: {backendRef: {name: gone, port: 8080}}}
      backendRefs: [{name: v1, port: 8080}]
      timeouts: {request: 1s}",
        &expect![[r#"
            http *: * /mirror/ [HTTPRoute infra/filters] infra/v1:8080 -> 10.0.0.1:3000 (http); mirrored by infra/v2:8080
            http *: * /other/ [HTTPRoute infra/filters] infra/v1:8080 -> 10.0.0.1:3000 (http)
            http *: * /redirect/ [HTTPRoute infra/filters] 301 elsewhere
            http *: * /rewrite/ [HTTPRoute infra/filters] infra/v1:8080 -> 10.0.0.1:3000 (http)
            Gateway infra/open
              http: 1
            HTTPRoute infra/filters at open: ResolvedRefs!BackendNotFound (backend infra/gone:8080 is no Service)
        "#]],
    );
}

/// `GRPCExactMethodMatching`, `GRPCRouteHeaderMatching`, `GRPCRouteListenerHostnameMatching`.
#[test]
fn calls_are_matched_by_service_and_method() {
    check_open(
        "
- kind: GRPCRoute
  metadata: {name: calls, namespace: infra}
  spec:
    parentRefs: [{name: open}]
    rules:
    - matches: [{method: {service: echo.Echo, method: Say}}]
      backendRefs: [{name: v1, port: 8080}]
    - matches: [{method: {service: echo.Echo}, headers: [{name: version, value: two}]}]
      backendRefs: [{name: h2c, port: 8080}]
    - matches: [{method: {method: Do.It}}, {method: {type: RegularExpression, service: 'a|b', method: 'Get.*'}}]
      backendRefs: [{name: v2, port: 8080}]
    - backendRefs: [{name: gone, port: 8080}]",
        &expect![[r#"
            http *: * ~/(?:a|b)/(?:Get.*) [GRPCRoute infra/calls] infra/v2:8080 -> 10.0.0.2:3000 (h2c)
            http *: * ~/[^/]+/Do\.It [GRPCRoute infra/calls] infra/v2:8080 -> 10.0.0.2:3000 (h2c)
            http *: * =/echo.Echo/Say [GRPCRoute infra/calls] infra/v1:8080 -> 10.0.0.1:3000 (h2c)
            http *: * / [GRPCRoute infra/calls] infra/gone:8080 -> nobody
            http *: * /echo.Echo/ version=two [GRPCRoute infra/calls] infra/h2c:8080 -> 10.0.0.3:3000 (h2c)
            Gateway infra/open
              http: 1
            GRPCRoute infra/calls at open: ResolvedRefs!BackendNotFound (backend infra/gone:8080 is no Service)
        "#]],
    );
}

/// `GatewaySecretReferenceGrant…`, `GatewaySecretInvalidReferenceGrant`, `GatewayInvalidTLSConfiguration`,
/// `GatewayModifyListeners`.
#[test]
fn certificates_are_shown_where_they_may_be() {
    check(
        "
- kind: ReferenceGrant
  metadata: {name: cert, namespace: apps}
  spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}], to: [{group: '', kind: Secret, name: cert}]}
- kind: Gateway
  metadata: {name: tls, namespace: infra}
  spec:
    gatewayClassName: knarr
    listeners:
    - {name: own, port: 443, protocol: HTTPS, hostname: own.example, tls: {certificateRefs: [{name: cert}]}}
    - {name: granted, port: 443, protocol: HTTPS, hostname: granted.example, tls: {certificateRefs: [{name: cert, namespace: apps}, {name: cert}]}}
    - {name: not-granted, port: 443, protocol: HTTPS, hostname: b.example, tls: {certificateRefs: [{name: other, namespace: apps}]}}
    - {name: gone, port: 443, protocol: HTTPS, hostname: c.example, tls: {certificateRefs: [{name: gone}]}}
    - {name: garbage, port: 443, protocol: HTTPS, hostname: d.example, tls: {certificateRefs: [{name: garbage}]}}
    - {name: kind, port: 443, protocol: HTTPS, hostname: e.example, tls: {certificateRefs: [{name: cert, kind: Bag, group: example.com}]}}
    - {name: nothing, port: 443, protocol: HTTPS, hostname: f.example}
    - {name: half, port: 443, protocol: HTTPS, hostname: g.example, tls: {certificateRefs: [{name: gone}, {name: cert}]}}
    - {name: through, port: 443, protocol: HTTPS, hostname: h.example, tls: {mode: Passthrough}}
    - {name: clients, port: 443, protocol: HTTPS, hostname: i.example, tls: {certificateRefs: [{name: cert}], frontendValidation: {caCertificateRefs: []}}}
- kind: HTTPRoute
  metadata: {name: all, namespace: infra}
  spec: {parentRefs: [{name: tls}], rules: [{backendRefs: [{name: v1, port: 8080}]}]}",
        &expect![[r#"
            https g.example: g.example / [HTTPRoute infra/all] infra/v1:8080 -> 10.0.0.1:3000 (http)
            https granted.example: granted.example / [HTTPRoute infra/all] infra/v1:8080 -> 10.0.0.1:3000 (http)
            https own.example: own.example / [HTTPRoute infra/all] infra/v1:8080 -> 10.0.0.1:3000 (http)
            https g.example shows infra/cert
            https granted.example shows apps/cert, infra/cert
            https own.example shows infra/cert
            Gateway infra/tls Accepted=ListenersNotValid (some listeners cannot be served)
              own: 1
              granted: 1
              not-granted: 1 Programmed!Invalid (requests are not led on from here) ResolvedRefs!RefNotPermitted (no ReferenceGrant allows Gateways of infra to name Secret apps/other)
              gone: 1 Programmed!Invalid (requests are not led on from here) ResolvedRefs!InvalidCertificateRef (there is no Secret infra/gone of type kubernetes.io/tls)
              garbage: 1 Programmed!Invalid (requests are not led on from here) ResolvedRefs!InvalidCertificateRef (Secret infra/garbage is not usable: it must have tls.crt and tls.key)
              kind: 1 Programmed!Invalid (requests are not led on from here) ResolvedRefs!InvalidCertificateRef (Bag cert must be a Secret)
              nothing: 1 Programmed!Invalid (requests are not led on from here) ResolvedRefs!InvalidCertificateRef (tls.certificateRefs must name a Secret)
              half: 1 ResolvedRefs!InvalidCertificateRef (there is no Secret infra/gone of type kubernetes.io/tls)
              through: 1 Accepted!UnsupportedProtocol (TLS mode Passthrough is not served: it must be Terminate) Programmed!Invalid (requests are not led on from here) ResolvedRefs!InvalidCertificateRef (tls.certificateRefs must name a Secret)
              clients: 1 Accepted!UnsupportedValue (certificates of clients are not looked at here: nothing is served) Programmed!Invalid (requests are not led on from here)
            HTTPRoute infra/all at tls:
        "#]],
    );
}

/// `GatewayListenerConflicts…`, and what a Node cannot listen for.
#[test]
fn listeners_that_cannot_be_told_apart_or_have_no_port_are_not_served() {
    check(
        "
- kind: Gateway
  metadata: {name: first, namespace: infra, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec:
    gatewayClassName: knarr
    listeners:
    - {name: fine, port: 80, protocol: HTTP}
    - {name: same-1, port: 8080, protocol: HTTP, hostname: a.example}
    - {name: same-2, port: 8080, protocol: HTTP, hostname: A.example}
    - {name: http, port: 8081, protocol: HTTP, hostname: a.example}
    - {name: https, port: 8081, protocol: HTTPS, hostname: b.example, tls: {certificateRefs: [{name: cert}]}}
    - {name: low, port: 81, protocol: HTTP}
    - {name: api, port: 6443, protocol: HTTP}
    - {name: crossed, port: 443, protocol: HTTP}
    - {name: tcp, port: 9000, protocol: TCP}
    - {name: high, port: 9443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
- kind: Gateway
  metadata: {name: second, namespace: apps, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec:
    gatewayClassName: knarr
    listeners: [{name: crossed, port: 9443, protocol: HTTP}]
- kind: Gateway
  metadata: {name: named, namespace: infra}
  spec:
    gatewayClassName: knarr
    addresses: [{type: Hostname, value: a.example}]
    listeners: [{name: http, port: 8086, protocol: HTTP}]
- kind: Gateway
  metadata: {name: clients, namespace: infra}
  spec:
    gatewayClassName: knarr
    tls: {frontend: {default: {}}}
    listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]",
        &expect![[r#"
            9443 * shows infra/cert
            port 9443 https
            Gateway apps/second is not served Accepted!ListenersNotValid (no listener can be served)
              crossed: 0 Accepted!PortUnavailable (another Gateway has the port with another protocol) Programmed!Invalid (requests are not led on from here)
            Gateway infra/clients is not served Accepted!ListenersNotValid (no listener can be served)
              https: 0 Accepted!UnsupportedValue (certificates of clients are not looked at here: nothing is served) Programmed!Invalid (requests are not led on from here)
            Gateway infra/first Accepted=ListenersNotValid (some listeners cannot be served)
              fine: 0
              same-1: 0 Accepted!HostnameConflict (listeners with port 8080 must differ in their hostname) Programmed!Invalid (requests are not led on from here) Conflicted=HostnameConflict (listeners with port 8080 must differ in their hostname)
              same-2: 0 Accepted!HostnameConflict (listeners with port 8080 must differ in their hostname) Programmed!Invalid (requests are not led on from here) Conflicted=HostnameConflict (listeners with port 8080 must differ in their hostname)
              http: 0 Accepted!ProtocolConflict (listeners with port 8081 must have the same protocol) Programmed!Invalid (requests are not led on from here) Conflicted=ProtocolConflict (listeners with port 8081 must have the same protocol)
              https: 0 Accepted!ProtocolConflict (listeners with port 8081 must have the same protocol) Programmed!Invalid (requests are not led on from here) Conflicted=ProtocolConflict (listeners with port 8081 must have the same protocol)
              low: 0 Accepted!PortUnavailable (port 81 needs root, which whoever answers requests has given up: use a port of --ingress-http-port or --ingress-https-port, or one of 1024 and more) Programmed!Invalid (requests are not led on from here)
              api: 0 Accepted!PortUnavailable (port 6443 is one that the cluster itself or NodePorts use) Programmed!Invalid (requests are not led on from here)
              crossed: 0 Accepted!PortUnavailable (port 443 is served by knarr with TLS: the protocol must be HTTPS) Programmed!Invalid (requests are not led on from here)
              tcp: 0 takes [] Accepted!UnsupportedProtocol (protocol TCP is not served: it must be HTTP or HTTPS) Programmed!Invalid (requests are not led on from here)
              high: 0
            Gateway infra/named is not served Accepted!UnsupportedAddress (addresses of type Hostname cannot be asked for)
              http: 0 Accepted!UnsupportedAddress (addresses of type Hostname cannot be asked for) Programmed!Invalid (requests are not led on from here)
        "#]],
    );
}
