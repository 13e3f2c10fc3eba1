//! Documents of images, in order and hostile. Source: OCI image specification, "config.md", "image-layout.md"; Docker's
//! image specification 1.2, as `docker save` writes it.

use serde_json::{Value, json};

use super::super::import::ImageDocument;
use super::*;

const LAYER: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_configuration_is_read_as_far_as_a_node_needs_it() {
    let roots = json!({ "type": "layers", "diff_ids": [LAYER] });
    let config = |config: Value| json!({ "rootfs": roots, "config": config });
    let all = json!({
        "User": "7:8", "Env": ["A=b"], "Entrypoint": ["/e"], "Cmd": ["c"], "WorkingDir": "/w", "StopSignal": "SIGQUIT",
        "Volumes": { "/v": {} }, "Labels": { "a": "b" }, "ExposedPorts": { "80/tcp": {} }, "ArgsEscaped": true,
    });
    let nothing = json!({ "User": "", "Env": null, "Entrypoint": null, "Cmd": null, "WorkingDir": "", "StopSignal": "", "Volumes": null });
    for (name, document, expect) in [
        ("everything", config(all), Ok("7:8 A=b /e c /w SIGQUIT /v")),
        ("nothing, as Docker says it", config(nothing), Ok("      ")),
        ("no configuration", json!({ "rootfs": roots }), Ok("      ")),
        ("one that is null", config(json!(null)), Ok("      ")),
        ("more than is known", json!({ "rootfs": roots, "history": [{}], "os.features": [] }), Ok("      ")),
        ("no layers", json!({ "rootfs": { "diff_ids": [] } }), Ok("      ")),
        ("no root", json!({ "config": {} }), Err("missing field `rootfs`")),
        ("a root without layers", json!({ "rootfs": {} }), Err("missing field `diff_ids`")),
        ("layers that are none", json!({ "rootfs": { "diff_ids": "x" } }), Err("invalid type: string")),
        ("an environment that is a map", config(json!({ "Env": { "A": "b" } })), Err("invalid type: map")),
        ("a command that is one text", config(json!({ "Cmd": "run" })), Err("invalid type: string")),
        ("a number for a user", config(json!({ "User": 7 })), Err("invalid type: integer")),
        ("not an object", json!("x"), Err("invalid type: string")),
    ] {
        let found = ImageDocument::parse(document.to_string().as_bytes()).map(|found| {
            let ImageConfig { user, env, entrypoint, cmd, working_dir, stop_signal, volumes } = found.config;
            let volumes: Vec<String> = volumes.into_keys().collect();
            [
                user,
                env.join(","),
                entrypoint.join(","),
                cmd.join(","),
                working_dir,
                stop_signal,
                volumes.join(","),
            ]
            .join(" ")
        });
        match (found.map_err(|error| error.to_string()), expect) {
            (Err(found), Err(expect)) => assert!(found.contains(expect), "{name}: {found}"),
            (found, expect) => assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{name}"),
        }
    }
    for text in ["", "{", "null", "\u{feff}{}", "[[[[[["] {
        assert!(ImageDocument::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn digests_of_layers_are_of_the_one_kind_and_no_paths() {
    let hex = &LAYER["sha256:".len()..];
    for (digest, is_one) in [
        (LAYER.to_owned(), true),
        (hex.to_owned(), false),
        (LAYER.to_uppercase(), false),
        (LAYER.replace("sha256", "sha512"), false),
        (LAYER.replace("sha256", "SHA256"), false),
        (format!("{LAYER}a"), false),
        (LAYER[..LAYER.len() - 1].to_owned(), false),
        (LAYER.replace('a', "g"), false),
        (format!("sha256:../../../{}", &hex[9..]), false),
        (format!("sha256:/{}", &hex[1..]), false),
        ("sha256:".to_owned(), false),
        (String::new(), false),
    ] {
        let document = json!({ "rootfs": { "diff_ids": [digest] } });
        let found = ImageDocument::parse(document.to_string().as_bytes());
        assert_eq!(found.is_ok(), is_one, "{digest}");
        assert!(found.map_or(true, |found| found.layers == [hex]));
    }
}

/// What comes of an archive of `docker save` with these files beside a good configuration and layer: names, or the error.
fn imported(manifest: &Value, more: &[Row<'_>]) -> String {
    let (_dir, store, random) = store();
    let layer = archive(&[("x", T::Regular, 0o644, "y")]);
    let (config, manifest, layer) = (config_of(&layer), manifest.to_string(), text(&layer));
    let mut rows: Vec<Row<'_>> = vec![
        ("manifest.json", T::Regular, 0o644, &manifest),
        ("c.json", T::Regular, 0o644, &config),
        ("l/layer.tar", T::Regular, 0o644, &layer),
    ];
    rows.extend_from_slice(more);
    match import(&store, Cursor::new(archive(&rows)), &Hints::default(), &random) {
        Ok(images) => {
            let names = images.iter().map(|image| image.names.iter().cloned().collect::<Vec<_>>().join(" "));
            names.collect::<Vec<_>>().join("; ")
        }
        Err(error) => {
            assert!(store.list().is_empty(), "{error}");
            error.to_string()
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn archives_of_docker_name_what_they_have_and_nothing_else() {
    let one = |config: &str, tags: Value, layers: Value| json!([{ "Config": config, "RepoTags": tags, "Layers": layers }]);
    let (good, tags) = (json!(["l/layer.tar"]), json!(["r.example/a:1"]));
    let link: Row<'_> = ("again/layer.tar", T::Symlink, 0o777, "../l/layer.tar");
    let out: Row<'_> = ("out.tar", T::Symlink, 0o777, "../../../etc/passwd");
    for (name, manifest, more, expect) in [
        ("one image", one("c.json", tags.clone(), good.clone()), None, "r.example/a:1"),
        (
            "two names",
            one("c.json", json!(["a:2", "a:1"]), good.clone()),
            None,
            "docker.io/library/a:1 docker.io/library/a:2",
        ),
        ("no names", one("c.json", json!(null), good.clone()), None, ""),
        (
            "paths with dots",
            one("./c.json", tags.clone(), json!(["l/../l/layer.tar"])),
            None,
            "r.example/a:1",
        ),
        (
            "a layer by way of a link",
            one("c.json", tags.clone(), json!(["again/layer.tar"])),
            Some(link),
            "r.example/a:1",
        ),
        ("no images", json!([]), None, ""),
        (
            "a name that is none",
            one("c.json", json!(["UPPER:1"]), good.clone()),
            None,
            "invalid image: \"UPPER:1\" is no image reference",
        ),
        (
            "no configuration",
            one("d.json", tags.clone(), good.clone()),
            None,
            "invalid image: the archive has no d.json",
        ),
        (
            "a configuration outside",
            one("../../etc/passwd", tags.clone(), good.clone()),
            None,
            "invalid image: the archive has no etc/passwd",
        ),
        (
            "no layer",
            one("c.json", tags.clone(), json!(["m/layer.tar"])),
            None,
            "invalid image: the archive has no m/layer.tar",
        ),
        (
            "a layer outside, by way of a link",
            one("c.json", tags.clone(), json!(["out.tar"])),
            Some(out),
            "invalid image: the archive has no out.tar",
        ),
        (
            "fewer layers than digests",
            one("c.json", tags.clone(), json!([])),
            None,
            "invalid image: 0 layers but 1 digests",
        ),
        (
            "more layers than digests",
            one("c.json", tags.clone(), json!(["l/layer.tar", "l/layer.tar"])),
            None,
            "invalid image: 2 layers but 1 digests",
        ),
    ] {
        assert_eq!(imported(&manifest, more.as_slice()), expect, "{name}");
    }
    for manifest in [json!({}), json!([{}]), json!([{ "Config": 7, "Layers": [] }]), json!("x")] {
        assert!(imported(&manifest, &[]).starts_with("invalid image: manifest.json: "), "{manifest}");
    }
}

/// Nothing is followed for ever.
#[test]
fn indexes_in_indexes_end() {
    let (dir, store, random) = store();
    let layout = dir.path().join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let keep = |blob: &[u8]| {
        fs::write(layout.join("blobs/sha256").join(&digest(blob)[7..]), blob).unwrap();
        digest(blob)
    };
    let layer = archive(&[("x", T::Regular, 0o644, "y")]);
    let (config, layer) = (keep(config_of(&layer).as_bytes()), keep(&layer));
    let manifest = json!({ "config": { "digest": config }, "layers": [{ "digest": layer }] });
    let mut inner = keep(manifest.to_string().as_bytes());
    let mut outcomes = Vec::new();
    for depth in 0..8 {
        let index = json!({ "manifests": [{ "digest": inner, "annotations": { "io.containerd.image.name": format!("a:{depth}") } }] });
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
        let found = import_dir(&store, &layout, &Hints::default(), &random);
        outcomes.push(
            found.map_or_else(|error| error.to_string(), |images| images[0].names.last().unwrap().clone()),
        );
        let nested = json!({ "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [{ "digest": inner }] });
        inner = keep(nested.to_string().as_bytes());
    }
    let deepest = registry::document::INDEX_DEPTH_MAX;
    for (depth, outcome) in outcomes.iter().enumerate() {
        let expect = match depth <= deepest {
            true => format!("docker.io/library/a:{depth}"),
            false => "invalid image: indexes nested too deeply".to_owned(),
        };
        assert_eq!(*outcome, expect, "{depth} indexes");
    }
    assert!(deepest < 7, "one was too deep");
}
