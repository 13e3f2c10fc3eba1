use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::serde::de::DeserializeOwned;

use super::*;

fn all<K: DeserializeOwned>(yaml: &str) -> Vec<Arc<K>> {
    let values: Vec<serde_json::Value> = serde_saphyr::from_str(yaml).unwrap();
    values.into_iter().map(|value| Arc::new(serde_json::from_value(value).unwrap())).collect()
}

const CLASSES: &str = "
- {metadata: {name: knarr}, spec: {controller: knarr.io/ingress}}
- {metadata: {name: other}, spec: {controller: example.com/other}}";

const SERVICES: &str = "
- {metadata: {name: web, namespace: a}, spec: {ports: [{name: http, port: 80}, {name: grpc, port: 90, appProtocol: kubernetes.io/h2c}]}}
- {metadata: {name: web, namespace: b}, spec: {ports: [{port: 80}]}}
- {metadata: {name: out, namespace: a}, spec: {type: ExternalName, externalName: example.org, ports: [{port: 80}]}}
- {metadata: {name: tls, namespace: a}, spec: {ports: [{port: 443, appProtocol: https}]}}
- {metadata: {name: sure, namespace: a, annotations: {ingress.knarr.io/backend-ca-secret: ca}}, spec: {ports: [{port: 443, appProtocol: HTTPS}]}}
- {metadata: {name: lost, namespace: a, annotations: {ingress.knarr.io/backend-ca-secret: gone}}, spec: {ports: [{port: 443, appProtocol: https}]}}
- {metadata: {name: dns, namespace: a}, spec: {ports: [{port: 53, protocol: UDP}]}}";

const SLICES: &str = "
- metadata: {name: web-1, namespace: a, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080}, {name: grpc, port: 9090}]
  endpoints:
  - {addresses: [10.42.0.3]}
  - {addresses: [10.42.0.2], conditions: {ready: true}}
  - {addresses: [10.42.0.4], conditions: {ready: false}}
  - {addresses: [10.42.0.5], conditions: {ready: false, serving: true, terminating: true}}
  - {addresses: [127.0.0.1]}
  - {addresses: [169.254.169.254]}
- metadata: {name: web-6, namespace: a, labels: {kubernetes.io/service-name: web}}
  addressType: IPv6
  ports: [{name: http, port: 8080}]
  endpoints: [{addresses: ['2001:db8::2']}, {addresses: ['::ffff:127.0.0.1']}, {addresses: ['fe80::1']}]
- metadata: {name: web-f, namespace: a, labels: {kubernetes.io/service-name: web}}
  addressType: FQDN
  ports: [{name: http, port: 8080}]
  endpoints: [{addresses: [example.org]}]
- metadata: {name: web-1, namespace: b, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 80}]
  endpoints: [{addresses: [10.42.1.1], conditions: {ready: false, serving: true, terminating: true}}]
- metadata: {name: tls-1, namespace: a, labels: {kubernetes.io/service-name: tls}}
  addressType: IPv4
  ports: [{port: 8443}]
  endpoints: [{addresses: [10.42.0.9]}]
- metadata: {name: sure-1, namespace: a, labels: {kubernetes.io/service-name: sure}}
  addressType: IPv4
  ports: [{port: 8443}]
  endpoints: [{addresses: [10.42.0.9]}]";

const SECRETS: &str = "
- {metadata: {name: cert, namespace: a, resourceVersion: '1'}, type: kubernetes.io/tls, data: {tls.crt: '', tls.key: ''}}
- {metadata: {name: ca, namespace: a}, type: kubernetes.io/tls, data: {ca.crt: UEVN}}";

fn snapshot(ingresses: &str) -> Snapshot {
    Snapshot {
        ingresses: all(ingresses),
        classes: all(CLASSES),
        services: by_key(all(SERVICES), |service: &Service| &service.metadata),
        slices: by_service(all(SLICES)),
        secrets: by_key(all(SECRETS), |secret: &Secret| &secret.metadata),
        ..Snapshot::default()
    }
}

fn text(planned: &Planned) -> String {
    let mut text = planned.table.to_string();
    for ((_, host), secrets) in &planned.certificates {
        for secret in secrets {
            text.push_str(&format!("certificate {host} {}\n", key(&secret.metadata)));
        }
    }
    for (key, findings) in &planned.findings {
        for finding in findings {
            text.push_str(&format!("{key} {}: {finding}\n", finding.reason()));
        }
    }
    text
}

fn check(ingresses: &str, expect: &Expect) {
    expect.assert_eq(&text(&plan(&snapshot(ingresses))));
}

#[test]
fn rules_become_rows_with_the_endpoints_of_their_services() {
    check(
        "
- metadata: {name: web, namespace: a}
  spec:
    ingressClassName: knarr
    rules:
    - host: Web.example
      http:
        paths:
        - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
        - {path: /grpc, pathType: ImplementationSpecific, backend: {service: {name: web, port: {name: grpc}}}}
        - {path: /only, pathType: Exact, backend: {service: {name: web, port: {name: http}}}}
    - host: '*.example'
      http: {paths: [{pathType: ImplementationSpecific, backend: {service: {name: tls, port: {number: 443}}}}]}
- metadata: {name: ending, namespace: b}
  spec:
    ingressClassName: knarr
    rules:
    - http: {paths: [{path: /sure, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}",
        &expect![[r#"
            web.example =/only [a/web] a/web:http -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            web.example / [a/web] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            web.example /grpc/ [a/web] a/web:grpc -> 10.42.0.2:9090 (h2c), 10.42.0.3:9090 (h2c)
            *.example / [a/web] a/tls:443 -> 10.42.0.9:8443 (https)
            * /sure/ [b/ending] b/web:80 -> 10.42.1.1:80 (http)
        "#]],
    );
}

#[test]
fn what_cannot_be_followed_leads_to_nobody_and_says_so() {
    check(
        "
- metadata: {name: bad, namespace: a, annotations: {ingress.knarr.io/ssl-redirect: 'maybe', ingress.knarr.io/response-timeout-seconds: '0'}}
  spec:
    ingressClassName: knarr
    tls: [{hosts: [x.example], secretName: gone}, {hosts: [y.example]}]
    rules:
    - http:
        paths:
        - {path: /gone, pathType: Prefix, backend: {service: {name: gone, port: {number: 80}}}}
        - {path: /out, pathType: Prefix, backend: {service: {name: out, port: {number: 80}}}}
        - {path: /port, pathType: Prefix, backend: {service: {name: web, port: {number: 81}}}}
        - {path: /name, pathType: Prefix, backend: {service: {name: web, port: {name: nope}}}}
        - {path: /udp, pathType: Prefix, backend: {service: {name: dns, port: {number: 53}}}}
        - {path: /lost, pathType: Prefix, backend: {service: {name: lost, port: {number: 443}}}}
        - {path: /sure, pathType: Prefix, backend: {service: {name: sure, port: {number: 443}}}}
        - {path: /bucket, pathType: Prefix, backend: {resource: {kind: Bucket, name: files}}}
- {metadata: {name: empty, namespace: a}, spec: {ingressClassName: knarr}}
- {metadata: {name: bare, namespace: a, annotations: {kubernetes.io/ingress.class: knarr}}}",
        &expect![[r#"
            * /bucket/ [a/bad] Bucket files -> nobody
            * /gone/ [a/bad] a/gone:80 -> nobody
            * /lost/ [a/bad] a/lost:443 -> nobody
            * /name/ [a/bad] a/web:nope -> nobody
            * /out/ [a/bad] a/out:80 -> nobody
            * /port/ [a/bad] a/web:81 -> nobody
            * /sure/ [a/bad] a/sure:443 -> 10.42.0.9:8443 (https, verified)
            * /udp/ [a/bad] a/dns:53 -> nobody
            a/bad ServiceNotFound: there is no Service gone: its requests are answered with 503
            a/bad BackendNotSupported: Service out is of type ExternalName, which Ingresses of this class do not lead to: its requests are answered with 503
            a/bad ServicePortNotFound: Service web has no port 81: its requests are answered with 503
            a/bad ServicePortNotFound: Service web has no port nope: its requests are answered with 503
            a/bad ServicePortNotFound: Service dns has no port 53: its requests are answered with 503
            a/bad SecretNotUsable: Service lost is to be verified by ca.crt of Secret gone of type kubernetes.io/tls, which is not there: its requests are answered with 503
            a/bad BackendNotSupported: Bucket files cannot be a backend of this class: its requests are answered with 503
            a/bad BadAnnotation: annotation ingress.knarr.io/response-timeout-seconds must be a number between 1 and 86400: it is passed over
            a/bad BadAnnotation: annotation ingress.knarr.io/ssl-redirect must be true or false: it is passed over
            a/bad SecretNotFound: there is no Secret gone of type kubernetes.io/tls: the certificate that knarr has made itself is shown
        "#]],
    );
}

#[test]
fn the_oldest_ingress_wins_and_others_are_told() {
    check(
        "
- metadata: {name: young, namespace: a, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec:
    ingressClassName: knarr
    tls: [{hosts: [x.example], secretName: cert}]
    rules:
    - host: x.example
      http:
        paths:
        - {path: /, pathType: Prefix, backend: {service: {name: tls, port: {number: 443}}}}
        - {path: /mine, pathType: Prefix, backend: {service: {name: tls, port: {number: 443}}}}
- metadata: {name: stranger, namespace: b, creationTimestamp: '2026-01-03T00:00:00Z'}
  spec:
    ingressClassName: knarr
    rules:
    - host: x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
- metadata: {name: old, namespace: a, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec:
    ingressClassName: knarr
    rules:
    - host: x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
- metadata: {name: going, namespace: a, creationTimestamp: '2025-01-01T00:00:00Z', deletionTimestamp: '2026-01-03T00:00:00Z'}
  spec:
    ingressClassName: knarr
    rules:
    - host: x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}",
        &expect![[r#"
            x.example / [a/old] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            x.example /mine/ [a/young] to https a/tls:443 -> 10.42.0.9:8443 (https)
            certificate x.example a/cert
            a/young RuleConflict: host x.example with path / belongs to Ingress old, which is older
            b/stranger RuleConflict: host x.example with path / belongs to an older Ingress of another namespace
        "#]],
    );
}

#[test]
fn a_default_backend_gets_what_is_left() {
    check(
        "
- metadata: {name: all, namespace: b, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec: {ingressClassName: knarr, defaultBackend: {service: {name: web, port: {number: 80}}}}
- metadata: {name: some, namespace: a, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec:
    ingressClassName: knarr
    defaultBackend: {service: {name: tls, port: {number: 443}}}
    rules:
    - host: x.example
      http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
- metadata: {name: rule, namespace: a, creationTimestamp: '2026-01-03T00:00:00Z'}
  spec:
    ingressClassName: knarr
    rules:
    - host: x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}",
        &expect![[r#"
            x.example / [a/rule] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            x.example /a/ [a/some] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            * / [a/some] a/tls:443 -> 10.42.0.9:8443 (https)
            b/all RuleConflict: host * with path / belongs to an older Ingress of another namespace
        "#]],
    );
}

#[test]
fn tls_shows_certificates_and_redirects() {
    check(
        "
- metadata: {name: listed, namespace: a, creationTimestamp: '2026-01-01T00:00:00Z'}
  spec:
    ingressClassName: knarr
    tls: [{hosts: ['*.x.example', y.example], secretName: cert}]
    rules:
    - host: a.x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
    - host: a.a.x.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
- metadata: {name: unlisted, namespace: a, annotations: {ingress.knarr.io/ssl-redirect: 'false'}, creationTimestamp: '2026-01-02T00:00:00Z'}
  spec:
    ingressClassName: knarr
    tls: [{secretName: cert}]
    rules:
    - host: z.example
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
    - http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
- metadata: {name: solver, namespace: a, creationTimestamp: '2026-01-03T00:00:00Z'}
  spec:
    ingressClassName: knarr
    rules:
    - host: a.x.example
      http: {paths: [{path: /.well-known/acme-challenge/t, pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]}",
        &expect![[r#"
            a.a.x.example / [a/listed] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            a.x.example / [a/listed] to https a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            a.x.example /.well-known/acme-challenge/t/ [a/solver] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            z.example / [a/unlisted] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            * / [a/unlisted] a/web:80 -> 10.42.0.2:8080 (http), 10.42.0.3:8080 (http), [2001:db8::2]:8080 (http)
            certificate y.example a/cert
            certificate z.example a/cert
            certificate *.x.example a/cert
        "#]],
    );
}

#[test]
fn an_ingress_is_ours_by_its_class() {
    let marked = |is_default: &str| {
        let text = format!(
            "- {{metadata: {{name: knarr, annotations: {{{DEFAULT_CLASS}: '{is_default}'}}}}, spec: {{controller: knarr.io/ingress}}}}
- {{metadata: {{name: second}}, spec: {{controller: knarr.io/ingress}}}}
- {{metadata: {{name: other, annotations: {{{DEFAULT_CLASS}: 'true'}}}}, spec: {{controller: example.com/other}}}}"
        );
        Classes::of(&all(&text))
    };
    let rows = [
        ("{spec: {ingressClassName: knarr}}", "false", true),
        ("{spec: {ingressClassName: second}}", "false", true),
        ("{spec: {ingressClassName: other}}", "true", false),
        ("{spec: {ingressClassName: absent}}", "true", false),
        ("{spec: {}}", "true", true),
        ("{spec: {}}", "false", false),
        ("{metadata: {annotations: {kubernetes.io/ingress.class: knarr}}}", "false", true),
        ("{metadata: {annotations: {kubernetes.io/ingress.class: nginx}}}", "true", false),
        (
            "{metadata: {annotations: {kubernetes.io/ingress.class: knarr}}, spec: {ingressClassName: other}}",
            "true",
            false,
        ),
    ];
    for (yaml, is_default, expected) in rows {
        let found: Vec<Arc<Ingress>> = all(&format!("- {yaml}"));
        assert_eq!(marked(is_default).is_ours(&found[0]), expected, "{yaml} {is_default}");
    }
    let without_object: Vec<Arc<Ingress>> =
        all("- {metadata: {annotations: {kubernetes.io/ingress.class: knarr}}}");
    assert!(Classes::default().is_ours(&without_object[0]));
}
