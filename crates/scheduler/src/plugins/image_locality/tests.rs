//! The cases of upstream's `image_locality_test.go`.

use controller::pod::Pod;

use super::with_tag;
use crate::fixtures::{cluster, scores};
use crate::transform::parse;

fn images(each: &[(&str, i64)]) -> String {
    let image =
        |(name, mib): &(&str, i64)| format!("{{names: ['gcr.io/{name}'], sizeBytes: {}}}", mib * 1024 * 1024);
    format!("status: {{images: [{}]}}", each.iter().map(image).collect::<Vec<_>>().join(", "))
}

fn running(main: &[&str], init: &[&str]) -> Pod {
    let all = |each: &[&str]| {
        let image = |image: &&str| format!("{{name: c, image: 'gcr.io/{image}'}}");
        each.iter().map(image).collect::<Vec<_>>().join(", ")
    };
    parse(&format!(
        "{{metadata: {{uid: p}}, spec: {{containers: [{}], initContainers: [{}]}}}}",
        all(main),
        all(init)
    ))
}

#[test]
fn images_count_by_size_and_by_how_many_nodes_have_them() {
    const FEW: &[(&str, i64)] = &[("40:latest", 40), ("300:latest", 300), ("2000:latest", 2000)];
    const TWO: &[(&str, i64)] = &[("250:latest", 250), ("10:latest", 10)];
    const HUGE: &[(&str, i64)] = &[("600:latest", 600), ("40:latest", 40), ("900:latest", 900)];
    const LARGE: &[(&str, i64)] = &[("300:latest", 300), ("600:latest", 600), ("900:latest", 900)];
    const ODD: &[(&str, i64)] = &[("4000:latest", 4000), ("30:latest", 30)];
    const SMALL: &[(&str, i64)] = &[("20:latest", 20), ("30:latest", 30), ("40:latest", 40)];
    const NONE: &[(&str, i64)] = &[];
    for (case, main, init, nodes, expect) in [
        ("40 / 2 is too small", &["40", "250"][..], &[][..], &[FEW, TWO][..], Some(&[0, 5][..])),
        ("both on one", &["40", "300"], &[], &[FEW, TWO], Some(&[7, 0])),
        ("more than counts", &["4000", "10"], &[], &[ODD, TWO], Some(&[100, 0])),
        ("on one of three", &["4000", "10"], &[], &[ODD, TWO, NONE], Some(&[66, 0, 0])),
        ("several large", &["300", "600", "900"], &[], &[HUGE, LARGE, NONE], Some(&[32, 36, 0])),
        ("several small", &["30", "40"], &[], &[SMALL, ODD], Some(&[1, 0])),
        ("init containers", &["30"], &["300"], &[FEW, SMALL], Some(&[6, 0])),
        ("too small alone", &["40"], &[], &[FEW, TWO], Some(&[0, 0])),
        ("nobody has them", &["1", "2"], &["3"], &[FEW, TWO], None),
    ] {
        let images: Vec<_> = nodes.iter().map(|node| images(node)).collect();
        let names = ["a", "b", "c"].into_iter();
        let rows: Vec<_> = names.zip(&images).map(|(name, images)| (name, "", images.as_str())).collect();
        let found = scores("ImageLocality", &running(main, init), None, &cluster(&rows, &[]));
        assert_eq!(found.as_deref(), expect, "{case}");
    }
}

#[test]
fn a_name_without_a_tag_is_the_latest() {
    for (name, expect) in [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("gcr.io:5000/root", "gcr.io:5000/root:latest"),
        ("root@sha256:f7d6", "root@sha256:f7d6"),
        ("gcr.io:5000/root:tag", "gcr.io:5000/root:tag"),
    ] {
        assert_eq!(with_tag(name), expect);
    }
}
