use super::*;

mod upstream;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap()
}

fn volume(name: &str, more: &str) -> Arc<PersistentVolume> {
    Arc::new(parse(&format!(
        "{{metadata: {{name: {name}, labels: {{tier: {name}}}}}, status: {{phase: Available}}, \
          spec: {{accessModes: [ReadWriteOnce], {more}}}}}"
    )))
}

fn check(claim: &str, search: Search<'_>, expect: Option<&str>) {
    let volumes = [
        volume("big", "capacity: {storage: 9Gi}"),
        volume("classy", "capacity: {storage: 2Gi}, storageClassName: fast"),
        volume(
            "far",
            "capacity: {storage: 2Gi}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [x]}]}]}}",
        ),
        volume("mine", "capacity: {storage: 3Gi}, claimRef: {namespace: d, name: special}"),
        volume("raw", "capacity: {storage: 1Gi}, volumeMode: Block"),
        volume("theirs", "capacity: {storage: 1Gi}, claimRef: {namespace: d, name: other}"),
    ];
    let claim: PersistentVolumeClaim = parse(claim);
    let found = find(&claim, &volumes, search).and_then(|volume| volume.metadata.name.clone());
    assert_eq!(found.as_deref(), expect);
}

#[test]
fn the_smallest_that_fits_is_taken() {
    let claim = |name: &str, size: &str, more: &str| {
        format!(
            "{{metadata: {{name: {name}, namespace: d, uid: u}}, spec: {{accessModes: [ReadWriteOnce], \
              resources: {{requests: {{storage: {size}}}}}{more}}}}}"
        )
    };
    let zone = BTreeMap::from([("zone".to_owned(), "x".to_owned())]);
    check(&claim("a", "1Gi", ""), Search::All, Some("far"));
    check(&claim("a", "1Gi", ""), Search::On(None), Some("big"));
    check(&claim("a", "1Gi", ""), Search::On(Some(&zone)), Some("far"));
    check(&claim("a", "10Gi", ""), Search::All, None);
    check(&claim("a", "1Gi", ", storageClassName: fast"), Search::All, Some("classy"));
    check(&claim("a", "1Gi", ", volumeMode: Block"), Search::All, Some("raw"));
    check(&claim("a", "1Gi", ", selector: {matchLabels: {tier: big}}"), Search::All, Some("big"));
    check(&claim("special", "1Gi", ""), Search::SetAside, Some("mine"));
    check(&claim("special", "5Gi", ""), Search::SetAside, None);
    check(&claim("a", "1Gi", ""), Search::SetAside, None);
    check(&claim("a", "1Gi", ", volumeAttributesClassName: gold"), Search::All, None);
}
