//! What clients are warned about.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::{Expect, expect};
use serde_json::Value;

use super::{changed, fill_in, row};

type Change<'a> = (&'a str, &'a str, &'a str);

/// The warnings about a new object, for each change of one that gets none.
fn check((api, plural): (&str, &str), good: &str, changes: &[Change<'_>], expect: Expect) {
    let row = row(api, plural);
    let base: Value = serde_saphyr::from_str(good).unwrap();
    let run = |mut object: Value| {
        fill_in(row, &mut object);
        row.strategy.begin_create(&mut object);
        (row.strategy.warnings)(&object)
    };
    assert_eq!(run(base.clone()), Vec::<String>::new(), "without a change");
    let mut lines = Vec::new();
    for (name, at, to) in changes {
        lines.push(format!("{name}:"));
        lines.extend(run(changed(base.clone(), at, to)).iter().map(|warning| format!("  {warning}")));
    }
    expect.assert_eq(&lines.join("\n"));
}

const POD: &str = "{metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}";

#[test]
fn pods() {
    check(
        ("v1", "pods"),
        POD,
        &[
            ("no host name", "/metadata/name", "a.b"),
            (
                "old labels",
                "/spec",
                "{containers: [{name: c, image: i}], nodeSelector: {beta.kubernetes.io/os: linux}, topologySpreadConstraints: [{topologyKey: failure-domain.beta.kubernetes.io/zone, labelSelector: {}}, {topologyKey: a}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node-role.kubernetes.io/master, operator: Exists}]}]}, preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [-b]}]}}]}, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}], preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}}",
            ),
            (
                "old annotations",
                "/metadata/annotations",
                "{scheduler.alpha.kubernetes.io/critical-pod: '', security.alpha.kubernetes.io/sysctls: a=b, seccomp.security.alpha.kubernetes.io/pod: unconfined, container.seccomp.security.alpha.kubernetes.io/c: unconfined, container.apparmor.security.beta.kubernetes.io/c: unconfined}",
            ),
            (
                "old volumes",
                "/spec/volumes",
                "[{name: a, gitRepo: {repository: a}}, {name: b, rbd: {image: a}}, {name: c, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 100m}}}}}}]",
            ),
            (
                "files in each other's way",
                "/spec/volumes",
                "[{name: a, configMap: {name: m, items: [{key: a, path: a}, {key: b, path: a/b}]}}, {name: b, projected: {sources: [{}, {secret: {name: s, items: [{key: a, path: x}]}}, {serviceAccountToken: {path: x}}]}}]",
            ),
            (
                "repeated host aliases",
                "/spec/hostAliases",
                "[{ip: 10.0.0.1}, {ip: 10.0.0.2}, {ip: 10.0.0.1}]",
            ),
            ("repeated pull secrets", "/spec/imagePullSecrets", "[{name: a}, {name: ''}, {name: a}]"),
            (
                "parts of bytes",
                "/spec/containers/0/resources",
                "{requests: {memory: 100m, cpu: 100m}, limits: {memory: 1.5, ephemeral-storage: 1500m, cpu: 1}}",
            ),
            ("parts of bytes of overhead", "/spec/overhead", "{memory: 100m}"),
            (
                "hidden variables",
                "/spec/containers/0/env",
                "[{name: A, value: a}, {name: A, value: $(A)b}, {name: A, value: $(A)}, {name: A, value: c}]",
            ),
            (
                "ports that may clash",
                "/spec/containers/0/ports",
                "[{containerPort: 80}, {containerPort: 80}, {containerPort: 80, hostPort: 80}, {containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}, {containerPort: 81, hostIP: 10.0.0.1}]",
            ),
            ("negative grace", "/spec/terminationGracePeriodSeconds", "-1"),
        ],
        expect![[r#"
            no host name:
              metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]
            old labels:
              spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: node-role.kubernetes.io/master is use "node-role.kubernetes.io/control-plane" instead
              spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: -b is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
              spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead
              spec.topologySpreadConstraints[1].labelSelector: a null labelSelector results in matching no pod
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod
              spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod
            old annotations:
              metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead
              metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the "sysctls" field instead
              metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead
              metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead
            old volumes:
              spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+
              spec.volumes[1].rbd: deprecated in v1.28, non-functional in v1.31+
              spec.volumes[2].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer
            files in each other's way:
              volume "a" (ConfigMap "m"): overlapping paths: "a/b" with "a"
              volume "b" (Projected) has no sources provided
              volume "b" (Projected ServiceAccountToken): overlapping paths: "x" with "x"
            repeated host aliases:
              spec.hostAliases[2].ip: duplicate ip "10.0.0.1"
            repeated pull secrets:
              spec.imagePullSecrets[2].name: duplicate name "a"
              spec.imagePullSecrets[1].name: invalid empty name ""
            parts of bytes:
              spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer
              spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer
              spec.containers[0].resources.limits[ephemeral-storage]: fractional byte value "1500m" is invalid, must be an integer
              spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "1500m" is invalid, must be an integer
            parts of bytes of overhead:
              spec.overhead[memory]: fractional byte value "100m" is invalid, must be an integer
            hidden variables:
              spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply
              spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply
            ports that may clash:
              spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]
              spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[0]
              spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[1]
              spec.containers[0].ports[3]: overlapping port definition with spec.containers[0].ports[0]
              spec.containers[0].ports[3]: overlapping port definition with spec.containers[0].ports[1]
              spec.containers[0].ports[3]: dangerously ambiguous port definition with spec.containers[0].ports[2]
              spec.containers[0].ports[4]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:81 Protocol:TCP HostIP:10.0.0.1}
            negative grace:
              spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"#]],
    );
}

#[test]
fn workloads() {
    let template = "{metadata: {name: a}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}";
    let annotated = (
        "an old annotation",
        "/spec/template/metadata/annotations",
        "{container.apparmor.security.beta.kubernetes.io/c: unconfined}",
    );
    check(
        ("apps/v1", "deployments"),
        template,
        &[
            annotated,
            (
                "an annotation that says the same as the Pod's field",
                "/spec/template",
                "{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}}, spec: {securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: c, image: i}]}}",
            ),
            (
                "an annotation that says otherwise than the Pod's field",
                "/spec/template",
                "{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}}, spec: {securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c, image: i}]}}",
            ),
            ("no host name", "/metadata/name", "a.b"),
        ],
        expect![[r#"
            an old annotation:
              spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead
            an annotation that says the same as the Pod's field:
            an annotation that says otherwise than the Pod's field:
              spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead
            no host name:
              metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"#]],
    );
    check(
        ("apps/v1", "statefulsets"),
        template,
        &[
            annotated,
            ("all revisions", "/spec/revisionHistoryLimit", "-1"),
            (
                "parts of bytes",
                "/spec/volumeClaimTemplates",
                "[{metadata: {name: a}, spec: {resources: {requests: {storage: 100m}}}}]",
            ),
        ],
        expect![[r#"
            an old annotation:
              spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead
            all revisions:
              spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended
            parts of bytes:
              spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer"#]],
    );
    check(
        ("batch/v1", "jobs"),
        template,
        &[
            ("no host name", "/metadata/name", "a.b"),
            (
                "too many indexes",
                "/spec",
                "{completionMode: Indexed, completions: 100001, parallelism: 10001, template: {spec: {terminationGracePeriodSeconds: -1}}}",
            ),
        ],
        expect![[r#"
            no host name:
              metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]
            too many indexes:
              spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail
              spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"#]],
    );
    check(
        ("batch/v1", "cronjobs"),
        "{metadata: {name: a}, spec: {jobTemplate: {spec: {template: {spec: {}}}}}}",
        &[("negative grace", "/spec/jobTemplate/spec/template/spec/terminationGracePeriodSeconds", "-1")],
        expect![[r#"
            negative grace:
              spec.jobTemplate.spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"#]],
    );
}

#[test]
fn networks() {
    check(
        ("v1", "services"),
        "{metadata: {name: a}, spec: {ports: [{port: 80}]}}",
        &[
            ("old hints", "/metadata/annotations", "{service.kubernetes.io/topology-aware-hints: auto}"),
            (
                "ignored by headless Services",
                "/spec",
                "{clusterIP: None, loadBalancerIP: 10.0.0.1, externalIPs: [192.0.2.1], sessionAffinity: ClientIP}",
            ),
            ("an old address", "/spec/externalIPs", "['010.0.0.1', '::ffff:10.0.0.1', 'FD00::1', 'fd00::1']"),
            ("an old range", "/spec/loadBalancerSourceRanges", "[10.0.0.1/8]"),
            ("an ignored name", "/spec/externalName", "example.com"),
            ("ignored addresses", "/spec", "{type: ExternalName, externalName: a, externalIPs: [192.0.2.1]}"),
            ("an old name", "/spec/trafficDistribution", "PreferClose"),
        ],
        expect![[r#"
            old hints:
              annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead
            ignored by headless Services:
              spec.loadBalancerIP is ignored for headless services
              spec.externalIPs is ignored for headless services
              spec.SessionAffinity is ignored for headless services
            an old address:
              spec.externalIPs[0]: non-standard IP address "010.0.0.1" will be considered invalid in a future Kubernetes release: use "10.0.0.1"
              spec.externalIPs[1]: non-standard IP address "::ffff:10.0.0.1" will be considered invalid in a future Kubernetes release: use "10.0.0.1"
              spec.externalIPs[2]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")
            an old range:
              spec.loadBalancerSourceRanges[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)
            an ignored name:
              spec.externalName is ignored when spec.type is not "ExternalName"
            ignored addresses:
              spec.externalIPs is ignored when spec.type is "ExternalName"
            an old name:
              spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#]],
    );
    check(
        ("v1", "endpoints"),
        "{metadata: {name: a}}",
        &[(
            "an old address",
            "/subsets",
            "[{addresses: [{ip: 010.0.0.1}], notReadyAddresses: [{ip: 'fd00:0::1'}]}]",
        )],
        expect![[r#"
            an old address:
              subsets[0].addresses[0].ip: non-standard IP address "010.0.0.1" will be considered invalid in a future Kubernetes release: use "10.0.0.1"
              subsets[0].notReadyAddresses[0].ip: IPv6 address "fd00:0::1" should be in RFC 5952 canonical format ("fd00::1")"#]],
    );
}

#[test]
fn nodes() {
    check(
        ("v1", "nodes"),
        "{metadata: {name: a}}",
        &[("old fields", "/spec", "{externalID: a, podCIDRs: [10.0.0.1/24]}")],
        expect![[r#"
            old fields:
              spec.externalID: this field is deprecated, and is unused by Kubernetes
              spec.podCIDRs[0]: CIDR value "10.0.0.1/24" is ambiguous in this context (should be "10.0.0.0/24" or "10.0.0.1/32"?)"#]],
    );
    check(
        ("node.k8s.io/v1", "runtimeclasses"),
        "{metadata: {name: a}, handler: a}",
        &[("an old label", "/scheduling", "{nodeSelector: {beta.kubernetes.io/arch: amd64}}")],
        expect![[r#"
            an old label:
              scheduling.nodeSelector: deprecated since v1.14; use "kubernetes.io/arch" instead"#]],
    );
}

#[test]
fn ports_and_addresses_of_pods() {
    check(
        ("v1", "pods"),
        POD,
        &[
            (
                "one name for two ports",
                "/spec",
                "{initContainers: [{name: i, image: i, ports: [{name: x, containerPort: 1}]}, {name: s, image: i, restartPolicy: Always, ports: [{name: web, containerPort: 2}]}], containers: [{name: c, image: i, ports: [{name: x, containerPort: 3}, {name: web, containerPort: 4}]}]}",
            ),
            (
                "addresses that are written oddly",
                "/spec",
                "{containers: [{name: c, image: i}], dnsConfig: {nameservers: [1.2.3.4, 05.06.07.08]}, hostAliases: [{ip: '::ffff:1.2.3.4'}]}",
            ),
        ],
        expect![[r#"
            one name for two ports:
              spec.containers[0].ports[1]: duplicate port name "web" with spec.initContainers[1].ports[0], services and probes that select ports by name will use spec.initContainers[1].ports[0]
            addresses that are written oddly:
              spec.dnsConfig.nameservers[1]: non-standard IP address "05.06.07.08" will be considered invalid in a future Kubernetes release: use "5.6.7.8"
              spec.hostAliases[0].ip: non-standard IP address "::ffff:1.2.3.4" will be considered invalid in a future Kubernetes release: use "1.2.3.4""#]],
    );
}

#[test]
fn slices_and_accounts() {
    check(
        ("discovery.k8s.io/v1", "endpointslices"),
        "{metadata: {name: a}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}]}",
        &[("names", "/addressType", "FQDN"), ("an odd address", "/endpoints/0/addresses/0", "010.0.0.1")],
        expect![[r#"
            names:
              spec.addressType: FQDN endpoints are deprecated
            an odd address:
              endpoints[0].addresses[0]: non-standard IP address "010.0.0.1" will be considered invalid in a future Kubernetes release: use "10.0.0.1""#]],
    );
    check(
        ("v1", "serviceaccounts"),
        "{metadata: {name: a}}",
        &[("its own secrets", "/metadata/annotations", "{kubernetes.io/enforce-mountable-secrets: 'true'}")],
        expect![[r#"
            its own secrets:
              metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"#]],
    );
}

#[test]
fn an_update_is_warned_about_when_the_generation_rises() {
    let row = row("apps/v1", "deployments");
    let old: Value = serde_saphyr::from_str(
        "{metadata: {name: a, generation: 1}, spec: {template: {spec: {terminationGracePeriodSeconds: -1}}}}",
    )
    .unwrap();
    let mut new = old.clone();
    assert_eq!((row.strategy.warnings_on_update)(&new, &old), Vec::<String>::new());
    new["metadata"]["generation"] = 2.into();
    assert_eq!((row.strategy.warnings_on_update)(&new, &old).len(), 1);
}

#[test]
fn a_cron_job_with_a_zone_in_its_schedule_is_warned_of_whenever_it_is_written() {
    let update = row("batch/v1", "cronjobs").strategy.warnings_on_update;
    let told = |schedule: &str| {
        let job = serde_json::json!({"metadata": {"generation": 1}, "spec": {"schedule": schedule}});
        update(&job, &job)
    };
    let said = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
    assert_eq!(told("CRON_TZ=UTC * * * * *"), [said]);
    assert_eq!(told("* * * * *"), Vec::<String>::new());
}
