//! The file, read: what is wrong with it, and whom tokens stand for by it.

use serde_json::{Value, json};

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
const OWN: &str = "https://own.example";
const GOOD: &str = "jwt:
- issuer: {url: 'https://issuer.example', audiences: [one, two], audienceMatchPolicy: MatchAny}
  claimValidationRules: [{claim: hd, requiredValue: example}]
  claimMappings:
    username: {claim: sub, prefix: 'ex:'}
    groups: {claim: roles, prefix: 'g:'}
    uid: {claim: oid}
anonymous: {enabled: true, conditions: [{path: /livez}]}
";

fn parse(text: &str) -> Result<Authentication, String> {
    Authentication::parse(&format!("{HEAD}{text}"), OWN).map_err(|why| base::error_chain(&why))
}

#[test]
fn a_file_is_read_as_it_is_written() {
    let read = parse(GOOD).unwrap();
    let issuer = &read.jwt[0].issuer;
    assert_eq!((issuer.url.as_str(), &issuer.discovery_url), ("https://issuer.example", &None));
    assert_eq!(issuer.audiences, ["one", "two"]);
    assert_eq!(read.anonymous, Some(Anonymous::At(vec!["/livez".into()])));
    assert_eq!(parse("").unwrap(), Authentication::default());
    assert_eq!(parse("anonymous: {enabled: false}").unwrap().anonymous, Some(Anonymous::Nowhere));
    for version in ["v1alpha1", "v1beta1"] {
        let text = HEAD.replace("io/v1", &format!("io/{version}"));
        assert!(Authentication::parse(&text, OWN).is_ok(), "{version}");
    }
    assert!(parse(GOOD).unwrap() == read && parse(&GOOD.replace("ex:", "x:")).unwrap() != read);
    assert_eq!(Authentication::parse("", OWN).unwrap_err().to_string(), "empty config data");
}

#[test]
fn what_is_not_known_is_refused() {
    for text in
        ["jwts: []", "jwt: [{issuer: {uri: x}}]", "jwt: [{claimMappings: {user: {}}}]", "jwt: []\njwt: []"]
    {
        assert!(parse(text).is_err(), "{text}");
    }
    let failure = Authentication::parse("apiVersion: v1\nkind: Config", OWN).unwrap_err().to_string();
    assert!(failure.starts_with("it must be an AuthenticationConfiguration"), "{failure}");
}

/// What is wrong after a change of the good file.
fn wrong(from: &str, to: &str, expect: &str) {
    let text = GOOD.replace(from, to);
    assert_ne!(text, GOOD, "{from}");
    assert_eq!(parse(&text).unwrap_err(), expect, "{from} -> {to}");
}

#[test]
fn broken_issuers_are_named() {
    let url = "https://issuer.example";
    for (to, why) in [
        ("http://issuer.example", "URL scheme must be https"),
        ("https://a:b@issuer.example", "URL must not contain a username or password"),
        ("https://issuer.example?a=b", "URL must not contain a query"),
        ("https://issuer.example#a", "URL must not contain a fragment"),
        (OWN, "URL must not overlap with disallowed issuers: [https://own.example]"),
    ] {
        wrong(url, to, &format!("jwt[0].issuer.url: Invalid value: {to:?}: {why}"));
    }
    wrong(url, "", "jwt[0].issuer.url: Required value");
    let audiences = "audiences: [one, two], audienceMatchPolicy: MatchAny";
    let at = "jwt[0].issuer";
    for (to, expect) in [
        ("audiences: []", format!("{at}.audiences: Required value: at least one {at}.audiences is required")),
        ("audiences: ['']", format!("{at}.audiences[0]: Required value")),
        (
            "audiences: [a, a], audienceMatchPolicy: MatchAny",
            format!("{at}.audiences[1]: Duplicate value: \"a\""),
        ),
        (
            "audiences: [one, two]",
            format!(
                "{at}.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences"
            ),
        ),
        (
            "audiences: [one], audienceMatchPolicy: All",
            format!(
                "{at}.audienceMatchPolicy: Invalid value: \"All\": audienceMatchPolicy must be empty or MatchAny for single audience"
            ),
        ),
        (
            "audiences: [one], certificateAuthority: nonsense",
            format!(
                "{at}.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates"
            ),
        ),
        (
            "audiences: [one], egressSelectorType: etcd",
            format!(
                "{at}.egressSelectorType: Invalid value: \"etcd\": egress selector must be either controlplane or cluster"
            ),
        ),
        (
            "audiences: [one], egressSelectorType: cluster",
            format!(
                "{at}.egressSelectorType: Invalid value: \"cluster\": oidc: egress lookup required with egress selector type \"cluster\""
            ),
        ),
        (
            "audiences: [one], discoveryURL: 'https://issuer.example/'",
            format!(
                "{at}.discoveryURL: Invalid value: \"https://issuer.example/\": discoveryURL must be different from URL"
            ),
        ),
    ] {
        wrong(audiences, to, &expect);
    }
    let second = "jwt:\n- issuer: {url: 'https://issuer.example', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n";
    wrong("jwt:\n", second, "jwt[1].issuer.url: Duplicate value: \"https://issuer.example\"");
    let many = format!("jwt: [{}]", vec!["{}"; 65].join(","));
    assert_eq!(parse(&many).unwrap_err(), "jwt: Too many: 65: must have at most 64 items");
}

#[test]
fn broken_claims_are_named() {
    let username = "{claim: sub, prefix: 'ex:'}";
    let at = "jwt[0].claimMappings.username";
    for (to, expect) in [
        ("{}", format!("{at}: Required value: claim or expression is required")),
        (
            "{claim: a, expression: b}",
            format!("{at}: Invalid value: \"\": claim and expression can't both be set"),
        ),
        (
            "{claim: sub}",
            format!(
                "{at}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
            ),
        ),
        (
            "{expression: claims.sub, prefix: ''}",
            format!("{at}.prefix: Invalid value: \"\": may not be specified when expression is set"),
        ),
        (
            "{expression: user.name}",
            format!(
                "{at}.expression: Invalid value: \"user.name\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')\n | user.name\n | ^"
            ),
        ),
    ] {
        wrong(username, to, &expect);
    }
    wrong(
        "uid: {claim: oid}",
        "uid: {claim: a, expression: b}",
        "jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
    );
}

#[test]
fn broken_rules_are_named() {
    let rule = "{claim: hd, requiredValue: example}";
    let at = "jwt[0].claimValidationRules";
    for (to, expect) in [
        ("{}", format!("{at}[0]: Required value: claim or expression is required")),
        (
            "{claim: a, expression: b}",
            format!("{at}[0]: Invalid value: \"a\": claim and expression can't both be set"),
        ),
        (
            "{claim: a, message: b}",
            format!("{at}[0].message: Invalid value: \"b\": may not be specified when claim is set"),
        ),
        ("{claim: a}, {claim: a}", format!("{at}[1].claim: Duplicate value: \"a\"")),
        (
            "{expression: 'true'}, {expression: 'true'}",
            format!("{at}[1].expression: Duplicate value: \"true\""),
        ),
        (
            "{expression: 'true', requiredValue: a}",
            format!(
                "{at}[0].requiredValue: Invalid value: \"a\": may not be specified when expression is set"
            ),
        ),
        (
            "{expression: claims.a}",
            format!("{at}[0].expression: Invalid value: \"claims.a\": must evaluate to bool"),
        ),
        ("{expression: '1'}", format!("{at}[0].expression: Invalid value: \"1\": must evaluate to bool")),
    ] {
        wrong(rule, to, &expect);
    }
    let at = "jwt[0].userValidationRules";
    for (rules, expect) in [
        ("{}", format!("{at}[0].expression: Required value")),
        (
            "{expression: 'true'}, {expression: 'true'}",
            format!("{at}[1].expression: Duplicate value: \"true\""),
        ),
        (
            "{expression: user.username}",
            format!("{at}[0].expression: Invalid value: \"user.username\": must evaluate to bool"),
        ),
    ] {
        wrong("  claimMappings:", &format!("  userValidationRules: [{rules}]\n  claimMappings:"), &expect);
    }
}

#[test]
fn broken_extra_values_are_named() {
    let at = "jwt[0].claimMappings.extra";
    let reserved = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
    for (mappings, expect) in [
        ("{key: a.b/c}", format!("{at}[0].valueExpression: Required value")),
        ("{valueExpression: claims.a}", format!("{at}[0].key: Required value")),
        (
            "{key: plain, valueExpression: claims.a}",
            format!(
                "{at}[0].key: Invalid value: \"plain\": must be a domain-prefixed path (such as \"acme.io/foo\")"
            ),
        ),
        (
            "{key: a.b/C, valueExpression: claims.a}",
            format!("{at}[0].key: Invalid value: \"a.b/C\": must be lowercase"),
        ),
        (
            "{key: k8s.io/a, valueExpression: claims.a}",
            format!("{at}[0].key: Invalid value: \"k8s.io/a\": {reserved}"),
        ),
        (
            "{key: a.kubernetes.io/a, valueExpression: claims.a}",
            format!("{at}[0].key: Invalid value: \"a.kubernetes.io/a\": {reserved}"),
        ),
        (
            "{key: a.b/c, valueExpression: claims.a}, {key: a.b/c, valueExpression: claims.b}",
            format!("{at}[1].key: Duplicate value: \"a.b/c\""),
        ),
    ] {
        wrong("    uid:", &format!("    extra: [{mappings}]\n    uid:"), &expect);
    }
    let fine =
        GOOD.replace("    uid:", "    extra: [{key: notk8s.io/a, valueExpression: claims.a}]\n    uid:");
    assert!(parse(&fine).is_ok());
}

#[test]
fn an_address_that_names_a_user_must_be_verified() {
    let with = |username: &str, rest: &str| {
        parse(&format!(
            "jwt: [{{issuer: {{url: 'https://i.example', audiences: [a]}}, \
             claimMappings: {{username: {{expression: \"{username}\"}}{rest}}}]"
        ))
    };
    let rule = "}, claimValidationRules: [{expression: \"claims.?email_verified.orValue(true) == true\"}]";
    let extra = ", extra: [{key: a.b/c, valueExpression: \"string(claims.email_verified)\"}]}";
    for (username, rest, is_good) in [
        ("claims.sub", "}", true),
        ("claims.email", "}", false),
        ("has(claims.email) ? claims.email : claims.sub", "}", false),
        ("claims.?email.orValue('')", "}", false),
        ("claims.list.map(x, claims.email)[0]", "}", false),
        ("claims.a.email", "}", true),
        ("claims.email_verified ? claims.email : ''", "}", true),
        ("claims.email", rule, true),
        ("claims.email", extra, true),
    ] {
        let found = with(username, rest);
        assert_eq!(found.is_ok(), is_good, "{username} {rest}: {found:?}");
        if let Err(why) = found {
            assert!(
                why.contains("claims.email_verified must be used in claimMappings.username.expression"),
                "{why}"
            );
        }
    }
}

/// Whom a token stands for: name, groups, uid, further values; or why for nobody.
fn check(file: &str, claims: Value, expect: Result<Value, &str>) {
    let read = parse(file).unwrap();
    let found = read.jwt[0].mapping.user(claims.as_object().unwrap());
    match (&found, &expect) {
        (Err(why), Err(part)) => assert!(why.to_string().contains(part), "{claims}: {why}"),
        _ => {
            let shown = found.map(|user| json!([user.name, user.groups, user.uid, user.extra]));
            assert_eq!(shown.map_err(|why| why.to_string()), expect.map_err(str::to_owned), "{claims}");
        }
    }
}

#[test]
fn claims_say_who_it_is() {
    let with = |change: Value| {
        let mut claims = json!({"sub": "jane", "roles": ["dev"], "oid": "7", "hd": "example"});
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        claims
    };
    let good = || Ok(json!(["ex:jane", ["g:dev"], "7", {}]));
    check(GOOD, with(json!({})), good());
    check(GOOD, with(json!({"jti": "x"})), Ok(json!(["ex:jane", ["g:dev"], "7", {CREDENTIAL: ["JTI=x"]}])));
    check(GOOD, with(json!({"jti": 1})), good());
    check(GOOD, with(json!({"roles": "dev"})), good());
    check(GOOD, with(json!({"roles": null})), Ok(json!(["ex:jane", [], "7", {}])));
    for (change, why) in [
        (json!({"sub": null}), "the user's name is empty"),
        (json!({"sub": ["jane"]}), "claim \"sub\": it is no text"),
        (json!({"roles": ["dev", 1]}), "claim \"roles\" is neither a text nor a list of texts"),
        (json!({"roles": {"dev": true}}), "claim \"roles\" is neither a text nor a list of texts"),
        (json!({"oid": 7}), "claim \"oid\": it is no text"),
        (json!({"hd": "other"}), "required claim \"hd\" has another value"),
        (json!({"hd": ["example"]}), "required claim \"hd\": it is no text"),
    ] {
        check(GOOD, with(change), Err(why));
    }
    check(GOOD, json!({"sub": "jane"}), Err("claim \"oid\": it is missing"));
    check(GOOD, json!({"sub": "jane", "oid": "7"}), Err("required claim \"hd\": it is missing"));
    let by_email = GOOD.replace("claim: sub", "claim: email");
    check(&by_email, with(json!({"email": "a@b"})), Ok(json!(["ex:a@b", ["g:dev"], "7", {}])));
    check(
        &by_email,
        with(json!({"email": "a@b", "email_verified": true})),
        Ok(json!(["ex:a@b", ["g:dev"], "7", {}])),
    );
    for unverified in [json!(false), json!("true"), json!(null)] {
        check(&by_email, with(json!({"email": "a@b", "email_verified": unverified})), Err("is not verified"));
    }
}

const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// A file with these expressions: name, groups, uid, an extra value, a rule about claims, a rule about the user.
fn expressions([username, groups, uid, extra, claims, user]: [&str; 6]) -> String {
    let entry = json!({
        "issuer": {"url": "https://i.example", "audiences": ["a"]},
        "claimMappings": {
            "username": {"expression": username},
            "groups": {"expression": groups},
            "uid": {"expression": uid},
            "extra": [{"key": "a.b/c", "valueExpression": extra}],
        },
        "claimValidationRules": [{"expression": claims, "message": "not so"}],
        "userValidationRules": [{"expression": user, "message": "not they"}],
    });
    format!("jwt: [{entry}]")
}

#[test]
fn expressions_say_who_it_is() {
    let file = |nth: usize, expression: &'static str| {
        let mut all = ["claims.sub", "[]", "''", "''", "true", "true"];
        all[nth] = expression;
        expressions(all)
    };
    let check = |nth: usize, expression: &'static str, claims: Value, expect: Result<Value, &str>| {
        let mut all = json!({"sub": "jane"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        check(&file(nth, expression), all, expect);
    };
    let with = |nth: usize, value: Value| {
        let mut user = json!(["jane", [], "", {}]);
        user[nth] = value;
        Ok(user)
    };
    check(
        0,
        "claims.a.b__dot__c + claims['x/y']",
        json!({"a": {"b.c": "1"}, "x/y": "2"}),
        with(0, json!("12")),
    );
    check(0, "string(claims.n)", json!({"n": 7}), with(0, json!("7")));
    check(
        0,
        "claims.n == 7 && type(claims.n) == double ? 'yes' : 'no'",
        json!({"n": 7}),
        with(0, json!("yes")),
    );
    check(0, "claims.?nope.orValue('none')", json!({}), with(0, json!("none")));
    check(1, "claims.groups", json!({"groups": ["a", "", "b"]}), with(1, json!(["a", "b"])));
    check(1, "claims.groups", json!({"groups": "a"}), with(1, json!(["a"])));
    check(1, "claims.groups", json!({"groups": null}), with(1, json!([])));
    check(2, "claims.id", json!({"id": "7"}), with(2, json!("7")));
    check(3, "claims.x", json!({"x": ["p"]}), with(3, json!({"a.b/c": ["p"]})));
    check(3, "claims.x", json!({"x": ""}), with(3, json!({})));
    check(4, "claims.exp > claims.iat", json!({"exp": 2, "iat": 1}), with(3, json!({})));
    check(5, "user.extra.size() == 0 && user.groups == [] && has(user.uid)", json!({}), with(3, json!({})));
    for (nth, expression, claims, why) in [
        (0, "claims.sub", json!({"sub": ""}), "the user's name is empty"),
        (0, "claims.nope", json!({}), "expression 'claims.nope' resulted in error: no such key: nope"),
        (0, "claims.n", json!({"n": 7}), "expression 'claims.n' must return a string"),
        (0, "claims.n", json!({"n": null}), "must return a string"),
        (1, "claims.g", json!({"g": [1]}), "must return a string or a list of strings"),
        (1, "claims.g", json!({"g": {"a": 1}}), "must return a string or a list of strings"),
        (1, "claims.?g", json!({}), "must return a string or a list of strings"),
        (2, "claims.id", json!({"id": null}), "must return a string"),
        (3, "claims.x", json!({"x": true}), "must return a string or a list of strings"),
        (
            4,
            "claims.a == 'b'",
            json!({"a": "c"}),
            "claim validation rules: validation expression 'claims.a == 'b'' failed: not so",
        ),
        (4, "claims.nope == 1", json!({}), "no such key: nope"),
        (
            5,
            "!user.username.startsWith('system:')",
            json!({"sub": "system:admin"}),
            "user validation rules: validation",
        ),
        (
            4,
            "claims.l.all(a, claims.l.all(b, claims.l.all(c, a + b + c != '')))",
            json!({"l": vec!["x"; 1000]}),
            "cost limit exceeded",
        ),
    ] {
        check(nth, expression, claims, Err(why));
    }
}

#[test]
fn flags_say_the_same_of_one_issuer() {
    let flags = Flags {
        issuer_url: "https://i.example".into(),
        client_id: "cluster".into(),
        username_claim: "sub".into(),
        signing_algorithms: vec!["RS256".into()],
        ..Flags::default()
    };
    let of = |flags: &Flags| Authentication::of_flags(flags, OWN);
    let name = |flags: &Flags| {
        let claims = json!({"sub": "jane", "email": "a@b"});
        of(flags).unwrap().jwt[0].mapping.user(claims.as_object().unwrap()).unwrap().name
    };
    assert_eq!(name(&flags), "https://i.example#jane");
    assert_eq!(name(&Flags { username_prefix: Some("-".into()), ..flags.clone() }), "jane");
    assert_eq!(name(&Flags { username_prefix: Some("ex:".into()), ..flags.clone() }), "ex:jane");
    assert_eq!(name(&Flags { username_claim: "email".into(), ..flags.clone() }), "a@b");
    let refused = |flags: Flags| of(&flags).unwrap_err().to_string();
    assert_eq!(
        refused(Flags { signing_algorithms: vec!["HS256".into()], ..flags.clone() }),
        "unsupported signing alg: \"HS256\""
    );
    assert!(
        refused(Flags { issuer_url: "http://i".into(), ..flags.clone() })
            .contains("URL scheme must be https")
    );
    assert!(refused(Flags { issuer_url: OWN.into(), ..flags }).contains("disallowed issuers"));
}
