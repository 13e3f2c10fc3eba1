//! Upstream's cases for what is in volumes that are made of objects: `TestMakePayload`, `TestCollectData*`, `TestValidatePath`,
//! `TestDownwardAPI` and `TestFsUserFrom` of its `pkg/volume`.

mod named;

use super::*;

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

fn input(spec: &str) -> VolumeInput {
    let mut input = VolumeInput::default();
    let pod = format!(
        "{{metadata: {{name: web, namespace: shop, labels: {{b: '2', a: '1'}}, annotations: {{a1: v1}}}}, spec: {{{spec}}}}}"
    );
    input.sources.pod = Arc::new(yaml(&pod));
    let map: ConfigMap = yaml("{data: {foo: f, bar: b}, binaryData: {bin: AAE=}}");
    input.sources.config_maps.insert("conf".into(), Arc::new(map));
    let secret: Secret = yaml("{data: {foo: Zg==, bar: Yg==}}");
    input.sources.secrets.insert("cred".into(), Arc::new(secret));
    input.tokens.insert((String::new(), 3600), "token".into());
    input.tokens.insert(("vault".into(), 600), "other".into());
    input
}

/// Files with their modes, or why there are none.
fn shown(volume: &str, input: &VolumeInput) -> String {
    let volume: Volume = yaml(&format!("{{name: v, {volume}}}"));
    match files(&volume, input) {
        Ok(files) => {
            let one = |(path, file): (&String, &File)| {
                let owner = file.owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
                format!("{path}={} {:o}{owner}", String::from_utf8_lossy(&file.data), file.mode)
            };
            files.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Err(error) => error.to_string(),
    }
}

const PLAIN: &str = "containers: [{name: c, resources: {limits: {cpu: 1500m, memory: 64Mi}}}]";

#[test]
fn maps_and_secrets_are_files_by_key_or_by_path() {
    let input = input(PLAIN);
    for (name, fields, expect) in [
        ("every key", "tty: 1", "bar=b 644, foo=f 644"),
        ("with modes", "defaultMode: 256", "bar=b 400, foo=f 400"),
        ("none is chosen", "items: []", "bar=b 644, foo=f 644"),
        ("one is chosen", "items: [{key: foo, path: path/to/foo.txt}]", "path/to/foo.txt=f 644"),
        (
            "two are",
            "items: [{key: foo, path: path/to/1/foo}, {key: bar, path: path/to/2/bar}]",
            "path/to/1/foo=f 644, path/to/2/bar=b 644",
        ),
        ("one twice", "items: [{key: foo, path: a}, {key: foo, path: b}]", "a=f 644, b=f 644"),
        (
            "each with its mode",
            "defaultMode: 511, items: [{key: foo, path: a, mode: 256}, {key: bar, path: b}]",
            "a=f 400, b=b 777",
        ),
        ("one that is not there", "items: [{key: zab, path: path/to}]", "NO KEY: zab"),
        ("and another that is", "items: [{key: foo, path: a}, {key: zab, path: b}]", "NO KEY: zab"),
        (
            "which need not be",
            "optional: true, items: [{key: zab, path: path/to}, {key: foo, path: a}]",
            "a=f 644",
        ),
        ("said to be needed", "optional: false, items: [{key: zab, path: a}]", "NO KEY: zab"),
        (
            "paths are made simple",
            "items: [{key: foo, path: ./a//b/./c/}, {key: bar, path: d/}]",
            "a/b/c=f 644, d=b 644",
        ),
        ("up is nowhere", "items: [{key: foo, path: a/../../b}]", "invalid path: a/../../b"),
    ] {
        let config = shown(&format!("configMap: {{name: conf, {fields}}}"), &input);
        let config = config.replace("bin=\0\u{1} 644, ", "").replace("bin=\0\u{1} 400, ", "");
        assert_eq!(
            config,
            expect.replace("NO KEY", "configmap references non-existent config key"),
            "{name}"
        );
        let secret = shown(&format!("secret: {{secretName: cred, {fields}}}"), &input);
        let expect = expect.replace("NO KEY", "references non-existent secret key");
        assert_eq!(secret, expect, "{name}, of a secret");
        let names = fields.replace("defaultMode: 256", "tty: 1").replace("defaultMode: 511, ", "");
        let mode = match fields.find("defaultMode") {
            Some(_) if fields.contains("511") => "defaultMode: 511, ",
            Some(_) => "defaultMode: 256, ",
            None => "",
        };
        let projected =
            shown(&format!("projected: {{{mode}sources: [{{secret: {{name: cred, {names}}}}}]}}"), &input);
        assert_eq!(projected, expect, "{name}, projected");
    }
    assert_eq!(shown("configMap: {name: conf, items: [{key: bin, path: b}]}", &input), "b=\0\u{1} 644");
    for (volume, expect) in [
        ("configMap: {name: none}", "configmap \"none\" not found"),
        ("configMap: {name: none, optional: false}", "configmap \"none\" not found"),
        ("configMap: {name: none, optional: true}", ""),
        ("configMap: {name: none, optional: true, items: [{key: a, path: b}]}", ""),
        ("secret: {secretName: none}", "secret \"none\" not found"),
        ("secret: {secretName: none, optional: true}", ""),
        ("projected: {sources: [{configMap: {name: none}}]}", "configmap \"none\" not found"),
        (
            "projected: {sources: [{configMap: {name: none, optional: true}}, {secret: {name: cred}}]}",
            "bar=b 644, foo=f 644",
        ),
    ] {
        assert_eq!(shown(volume, &input), expect, "{volume}");
    }
}

#[test]
fn paths_stay_in_their_volume() {
    let long = "a".repeat(256);
    let deep = vec!["a".repeat(200); 21].join("/");
    for (path, expect) in [
        ("i/am/well/behaved.txt", Some("i/am/well/behaved.txt")),
        ("plain.txt", Some("plain.txt")),
        ("a..b/..c", Some("a..b/..c")),
        ("foo////bar", Some("foo/bar")),
        ("./bar", Some("bar")),
        ("bar/.", Some("bar")),
        (&*long, None),
        (&*deep, None),
        ("/dev/null", None),
        ("..sneaky.txt", None),
        ("..data", None),
        ("..", None),
        ("hello/there/../../../../../../etc/passwd", None),
        ("hello/../etc/somethingbad", None),
        (".", None),
        ("//", None),
        ("", None),
    ] {
        assert_eq!(cleaned(path).ok().as_deref(), expect, "{path}");
    }
}

#[test]
fn a_pod_is_told_of_itself_in_files() {
    let input = input(&format!("nodeName: n1, {PLAIN}"));
    let of = |items: &str| shown(&format!("downwardAPI: {{items: [{items}]}}"), &input);
    let field =
        |path: &str, field: &str| of(&format!("{{path: {path}, fieldRef: {{fieldPath: \"{field}\"}}}}"));
    assert_eq!(field("labels", "metadata.labels"), "labels=a=\"1\"\nb=\"2\" 644");
    assert_eq!(field("annotations", "metadata.annotations"), "annotations=a1=\"v1\" 644");
    assert_eq!(field("a/name", "metadata.name"), "a/name=web 644");
    assert_eq!(field("one", "metadata.labels['b']"), "one=2 644");
    assert_eq!(field("x", "status.phase"), "unsupported fieldPath: status.phase");
    assert_eq!(
        of("{path: cpu, mode: 256, resourceFieldRef: {containerName: c, resource: limits.cpu}}, \
            {path: mem, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}"),
        "cpu=2 400, mem=64 644"
    );
    assert_eq!(
        of("{path: cpu, resourceFieldRef: {containerName: x, resource: limits.cpu}}"),
        "container x not found"
    );
    let projected = "projected: {defaultMode: 256, sources: [{downwardAPI: {items: [{path: n, fieldRef: {fieldPath: metadata.name}}]}}, \
                     {configMap: {name: conf, items: [{key: foo, path: n2}]}}, {secret: {name: cred, items: [{key: bar, path: n}]}}]}";
    assert_eq!(shown(projected, &input), "n=b 400, n2=f 400", "the later source wins");
}

#[test]
fn tokens_are_for_the_pods_user_and_group_alone_if_there_is_one() {
    const TOKEN: &str = "projected: {sources: [{serviceAccountToken: {path: token}}]}";
    let user = |pod: &str, first: &str, second: &str, init: &str| {
        let own = |user: &str| match user {
            "" => String::new(),
            user => format!("securityContext: {{runAsUser: {user}}}"),
        };
        format!(
            "{}, initContainers: [{{name: i, {}}}], containers: [{{name: a, {}}}, {{name: b, {}}}]",
            if pod.is_empty() { "tty: 1".to_owned() } else { format!("securityContext: {{{pod}}}") },
            own(init),
            own(first),
            own(second)
        )
    };
    for (name, spec, expect) in [
        ("nobody says", user("", "", "", ""), "token=token 644"),
        ("some say", user("", "1000", "", "1000"), "token=token 644"),
        ("they differ", user("", "1000", "1000", "999"), "token=token 644"),
        ("all say the same", user("", "1000", "1000", "1000"), "token=token 600 of 1000"),
        ("the Pod says", user("runAsUser: 1000", "", "", ""), "token=token 600 of 1000"),
        ("one says otherwise", user("runAsUser: 1000", "", "2000", ""), "token=token 644"),
        ("root", user("", "0", "0", "0"), "token=token 600 of 0"),
        ("a group", user("fsGroup: 5", "", "", ""), "token=token 600"),
    ] {
        assert_eq!(shown(TOKEN, &input(&spec)), expect, "{name}");
    }
    let input = input(PLAIN);
    for (source, expect) in [
        ("{audience: vault, expirationSeconds: 600, path: t}", "t=other 644"),
        ("{audience: none, path: t}", "failed to fetch token"),
        ("{path: ../t}", "invalid path: ../t"),
    ] {
        assert_eq!(
            shown(&format!("projected: {{sources: [{{serviceAccountToken: {source}}}]}}"), &input),
            expect
        );
    }
}
