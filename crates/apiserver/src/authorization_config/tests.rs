use super::*;
use crate::configuration_error::Cause;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
const KUBECONFIG: &str = "{current-context: c, contexts: [{name: c, context: {cluster: k}}], \
                          clusters: [{name: k, cluster: {server: 'https://authz.example'}}]}";
const WEBHOOK: &str = "timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, \
                       connectionInfo: {type: KubeConfigFile, kubeConfigFile: /hook}";

fn read(path: &str) -> Result<String, Cause> {
    match path {
        "/hook" => Ok(KUBECONFIG.to_owned()),
        "/nonsense" => Ok("[".to_owned()),
        other => Err(format!("open {other}: no such file or directory").into()),
    }
}

fn parse(authorizers: &str) -> Result<Authorization, String> {
    let parsed = Authorization::parse(&format!("{HEAD}authorizers: {authorizers}"), read);
    parsed.map_err(|why| base::error_chain(&why))
}

fn webhook(fields: &str) -> String {
    format!("[{{type: Webhook, name: hook, webhook: {{{fields}}}}}]")
}

#[test]
fn a_file_names_authorizers_in_their_order() {
    let found = parse(&format!(
        "[{{type: Webhook, name: first.example, webhook: {{{WEBHOOK}}}}}, {{type: Node, name: node}}, {{type: RBAC, name: rbac}}, \
         {{type: Webhook, name: last, webhook: {{timeout: 30s, subjectAccessReviewVersion: v1beta1, failurePolicy: NoOpinion, \
         authorizedTTL: 1s, cacheUnauthorizedRequests: false, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: /hook}}}}}}]"
    ))
    .unwrap();
    let names: Vec<&str> = found.authorizers.iter().map(Authorizer::name).collect();
    assert_eq!(names, ["first.example", "node", "rbac", "last"]);
    let webhook = |at: usize| match &found.authorizers[at] {
        Authorizer::Webhook(webhook) => Webhook::clone(webhook),
        other => panic!("{other:?}"),
    };
    let (first, last) = (webhook(0), webhook(3));
    let seconds = |webhook: &Webhook| {
        [webhook.timeout, webhook.authorized_ttl, webhook.unauthorized_ttl].map(|span| span.as_secs())
    };
    assert_eq!(seconds(&first), [3, 300, 30]);
    assert_eq!(seconds(&last), [30, 1, 0]);
    assert_eq!((first.version, first.failure_policy), (ReviewVersion::V1, FailurePolicy::Deny));
    assert_eq!((last.version, last.failure_policy), (ReviewVersion::V1Beta1, FailurePolicy::NoOpinion));
    for version in ["v1beta1", "v1alpha1"] {
        let text = format!(
            "{}authorizers: [{{type: RBAC, name: rbac}}]",
            HEAD.replace("/v1", &format!("/{version}"))
        );
        assert!(Authorization::parse(&text, read).is_ok(), "{version}");
    }
}

fn check(authorizers: &str, expect: &str) {
    let failure = parse(authorizers).unwrap_err();
    assert_eq!(failure, expect, "{authorizers}");
}

#[test]
fn a_broken_list_is_refused_by_its_fields() {
    check("[]", "authorizers: Required value: at least one authorization mode must be defined");
    check("[{}]", "authorizers[0].type: Required value");
    check(
        "[{type: Foo, name: foo}]",
        "authorizers[0].type: Unsupported value: \"Foo\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
    );
    check(
        "[{type: ABAC, name: abac}]",
        "authorizers[0].type: Forbidden: authorizer type ABAC is not allowed if it was not enabled at initial server startup",
    );
    check(
        "[{type: RBAC, name: rbac}, {type: RBAC, name: rbac}]",
        "authorizers[1].type: Duplicate value: \"RBAC\"",
    );
    check("[{type: RBAC}]", "authorizers[0].name: Required value");
    check("[{type: RBAC, name: roles}]", "expected name rbac for authorizer RBAC instead of roles");
    check(
        "[{type: RBAC, name: rbac, webhook: {}}]",
        "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
    );
    check(
        "[{type: Webhook, name: hook}]",
        "authorizers[0].webhook: Required value: required when type=Webhook",
    );
    let twice = format!(
        "[{{type: Webhook, name: a, webhook: {{{WEBHOOK}}}}}, {{type: Webhook, name: a, webhook: {{{WEBHOOK}}}}}]"
    );
    check(&twice, "authorizers[1].name: Duplicate value: \"a\"");
    let named = parse(&webhook(WEBHOOK).replace("name: hook", "name: 'Hook!'")).unwrap_err();
    assert!(
        named.starts_with(
            "authorizers[0].name: Invalid value: \"Hook!\": authorizer name is invalid: a lowercase RFC 1123"
        ),
        "{named}"
    );
    let many = format!("[{}]", vec!["{type: RBAC, name: rbac}"; 10_000].join(","));
    check(&many, "authorizers: Too many: 10000: must have at most 64 items");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_broken_webhook_is_refused_by_its_fields() {
    let with = |from: &str, to: &str| webhook(&WEBHOOK.replace(from, to));
    for (from, to, expect) in [
        ("timeout: 3s, ", "", "authorizers[0].timeout: Required value"),
        ("3s", "31s", "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s"),
        ("3s", "-1s", "authorizers[0].timeout: Invalid value: \"-1s\": must be > 0s and <= 30s"),
        (
            "3s",
            "3s, authorizedTTL: -1s",
            "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
        ),
        (
            "3s",
            "3s, unauthorizedTTL: -1s",
            "authorizers[0].unauthorizedTTL: Invalid value: \"-1s\": must be > 0s",
        ),
        ("Version: v1", "Version: ''", "authorizers[0].subjectAccessReviewVersion: Required value"),
        (
            "Version: v1",
            "Version: v2",
            "authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
        ),
        ("failurePolicy: Deny, ", "", "authorizers[0].failurePolicy: Required value"),
        (
            "Policy: Deny",
            "Policy: Allow",
            "authorizers[0].failurePolicy: Unsupported value: \"Allow\": supported values: \"NoOpinion\", \"Deny\"",
        ),
        ("type: KubeConfigFile, ", "", "authorizers[0].connectionInfo.type: Required value"),
        (
            "type: KubeConfigFile, ",
            "type: Other, ",
            "authorizers[0].connectionInfo.type: Unsupported value: \"Other\": supported values: \"InClusterConfig\", \"KubeConfigFile\"",
        ),
        (", kubeConfigFile: /hook", "", "authorizers[0].connectionInfo.kubeConfigFile: Required value"),
        (
            "/hook",
            "hook",
            "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"hook\": must be an absolute path",
        ),
        (
            "/hook",
            "/gone",
            "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/gone\": error loading file: open /gone: no such file or directory",
        ),
        (
            "type: KubeConfigFile",
            "type: InClusterConfig",
            "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/hook\": can only be set when type=KubeConfigFile",
        ),
        (
            "3s",
            "3s, matchConditions: [{expression: ' '}], matchConditionSubjectAccessReviewVersion: v1",
            "authorizers[0].matchConditions[0].expression: Required value",
        ),
        (
            "3s",
            "3s, matchConditionSubjectAccessReviewVersion: v1beta1",
            "authorizers[0].matchConditionSubjectAccessReviewVersion: Unsupported value: \"v1beta1\": supported values: \"v1\"",
        ),
    ] {
        check(&with(from, to), expect);
    }
    let nonsense = parse(&with("/hook", "/nonsense")).unwrap_err();
    assert!(nonsense.contains("error loading file: "), "{nonsense}");
    let conditions = "3s, matchConditions: [{expression: 'true'}]";
    let unversioned = parse(&with("3s", conditions)).unwrap_err();
    assert!(
        unversioned.contains("Required value: required if match conditions are specified"),
        "{unversioned}"
    );
    let many = format!("3s, matchConditions: [{}]", vec!["{expression: x}"; 65].join(","));
    let many = parse(&with("3s", &many)).unwrap_err();
    assert!(
        many.contains("authorizers[0].matchConditions: Too many: 65: must have at most 64 items"),
        "{many}"
    );
}

#[test]
fn what_is_no_such_file_is_refused() {
    for text in [
        "",
        "%",
        "{}",
        "apiVersion: v1\nkind: Pod\n",
        "apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration\n",
        &format!("{HEAD}authorizers: [{{type: RBAC, name: rbac, extra: 1}}]"),
        &format!("{HEAD}authorizers: {{}}"),
        &format!("{HEAD}authorizers: [{{type: Webhook, name: a, webhook: {{timeout: 3}}}}]"),
        &format!("{HEAD}authorizers: {}", "[".repeat(10_000)),
    ] {
        assert!(Authorization::parse(text, read).is_err(), "{text}");
    }
}

#[test]
fn flags_say_the_same_as_a_file() {
    let check = |modes: &[&str], file: Option<&str>, version: &str, expect: Result<&[&str], &str>| {
        let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
        let flags = Flags {
            modes: &modes,
            webhook_config_file: file,
            webhook_version: version,
            authorized_ttl: AUTHORIZED_TTL,
            unauthorized_ttl: Duration::ZERO,
        };
        let found = Authorization::of_flags(&flags, read).map_err(|why| base::error_chain(&why));
        let names =
            found.as_ref().map(|found| found.authorizers.iter().map(Authorizer::name).collect::<Vec<_>>());
        assert_eq!(names.map_err(String::as_str), expect.map(<[_]>::to_vec), "{modes:?} {file:?}");
    };
    check(&[], None, "v1beta1", Ok(&["node", "rbac"]));
    check(&["RBAC"], None, "v1beta1", Ok(&["rbac"]));
    check(&["Node", "Webhook", "RBAC"], Some("/hook"), "v1beta1", Ok(&["node", "default", "rbac"]));
    check(&["AlwaysAllow"], None, "v1", Ok(&["alwaysallow"]));
    check(&["AlwaysDeny"], None, "v1", Ok(&["alwaysdeny"]));
    check(&["Nod"], None, "v1", Err("authorization-mode \"Nod\" is not a valid mode"));
    check(&["ABAC"], None, "v1", Err("authorization-mode ABAC is not supported"));
    check(
        &["RBAC", "RBAC"],
        None,
        "v1",
        Err("authorization-mode [\"RBAC\", \"RBAC\"] has mode specified more than once"),
    );
    check(&["Webhook"], None, "v1", Err("authorization-mode Webhook's authorization config file not passed"));
    let lonely = "cannot specify --authorization-webhook-config-file without mode Webhook";
    check(&["RBAC"], Some("/hook"), "v1", Err(lonely));
    check(&[], Some("/hook"), "v1", Err(lonely));
    check(&["Webhook"], Some("/gone"), "v1", Err("/gone: open /gone: no such file or directory"));
    check(
        &["Webhook"],
        Some("/hook"),
        "v2",
        Err("unsupported webhook authorizer version \"v2\", supported versions are \"v1\", \"v1beta1\""),
    );
}

#[test]
fn a_running_server_neither_gains_nor_loses_what_is_its_own() {
    let of = |names: &[&str]| Authorization {
        authorizers: names.iter().map(|name| Authorizer::of_type(name).unwrap()).collect(),
    };
    let first = of(&["Node", "RBAC"]);
    let with_webhook = parse(&format!(
        "[{{type: RBAC, name: rbac}}, {{type: Webhook, name: a, webhook: {{{WEBHOOK}}}}}, {{type: Node, name: node}}]"
    ));
    assert!(with_webhook.unwrap().may_replace(&first).is_ok());
    let check = |new: &Authorization, expect: &str| {
        assert_eq!(new.may_replace(&first).unwrap_err().to_string(), expect);
    };
    check(&of(&["RBAC"]), "missing required types: [Node]");
    check(&of(&["AlwaysAllow"]), "missing required types: [Node RBAC]");
    check(
        &of(&["Node", "RBAC", "AlwaysAllow"]),
        "authorizer type AlwaysAllow is not allowed if it was not enabled at initial server startup",
    );
}
