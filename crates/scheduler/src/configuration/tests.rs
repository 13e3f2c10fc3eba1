use expect_test::{Expect, expect};

use super::*;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(path: &str) -> io::Result<String> {
    match path {
        "ca.crt" => Ok("authorities".to_owned()),
        _ => Err(io::Error::other(format!("open {path}: no such file or directory"))),
    }
}

fn parse(rest: &str) -> Result<Configuration, ConfigurationError> {
    Configuration::parse(&format!("{HEAD}{rest}"), &read)
}

fn check_error(rest: &str, expect: Expect) {
    expect.assert_eq(&parse(rest).expect_err("it cannot be").to_string());
}

/// The plugins of a profile at a point, by what its `plugins` say.
fn check_plugins(plugins: &str, point: Point, expect: Expect) {
    let configuration = parse(&format!("profiles: [{{plugins: {{{plugins}}}}}]")).expect("a configuration");
    let profile = configuration.profiles.all().next().expect("a profile").clone();
    let names: Vec<String> = match point {
        Point::Score => profile.scores().map(|(name, weight)| format!("{name}:{weight}")).collect(),
        _ => profile.plugins(point).iter().map(|name| (*name).to_owned()).collect(),
    };
    expect.assert_eq(&names.join(" "));
}

/// What a plugin's arguments come to, or what is wrong with them.
fn check_arguments(name: &str, args: &str, expect: Expect) {
    let parsed = parse(&format!("profiles: [{{pluginConfig: [{{name: {name}, args: {{{args}}}}}]}}]"));
    let text = match parsed {
        Err(error) => error.to_string(),
        Ok(parsed) => {
            let arguments = &parsed.profiles.all().next().expect("a profile").arguments;
            match name {
                "NodeResourcesFit" => format!("{:?}", arguments.fit),
                "NodeResourcesBalancedAllocation" => format!("{:?}", arguments.balance),
                "InterPodAffinity" => format!("{:?}", arguments.near),
                "DefaultPreemption" => format!("{:?}", arguments.preemption),
                "VolumeBinding" => format!("{:?}", arguments.volumes),
                _ => "good".to_owned(),
            }
        }
    };
    expect.assert_eq(&text);
}

#[test]
fn an_empty_file_is_upstreams_default() {
    let parsed = parse("").expect("a configuration");
    assert_eq!(parsed.leader_election, LeaderElection::of(COMPONENT));
    assert_eq!(parsed.backoff, Backoff::default());
    assert_eq!((parsed.extenders.len(), parsed.kubeconfig), (0, None));
    let own = parsed.profiles.all().next().expect("a profile").clone();
    let default = Profile::default();
    for point in Point::ALL {
        assert_eq!(own.plugins(point), default.plugins(point), "{point:?}");
    }
    let scores = |profile: &Profile| profile.scores().collect::<Vec<_>>();
    assert_eq!(scores(&own), scores(&default));
    assert_eq!(own.arguments, default.arguments);
    assert_eq!(own.name, DEFAULT_NAME);
}

#[test]
fn what_nobody_understands_is_refused() {
    let all = |text: &str| Configuration::parse(text, &read).expect_err("it cannot be").to_string();
    expect!["Object 'Kind' is missing"].assert_eq(&all("{}"));
    expect!["Object 'apiVersion' is missing"].assert_eq(&all("kind: KubeSchedulerConfiguration"));
    expect![[r#"no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3": it must be "KubeSchedulerConfiguration" of "kubescheduler.config.k8s.io/v1""#]]
        .assert_eq(&all("{apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: KubeSchedulerConfiguration}"));
    assert!(all("[").contains("line 1"), "no YAML");
    assert!(all("").contains("Kind"), "nothing");
    check_error(
        "profile: []\nleaderElection: {leader: true}\nextenders: [{}, {url: x}]",
        expect![[
            r#"strict decoding error: unknown field "extenders[1].url", unknown field "leaderElection.leader", unknown field "profile""#
        ]],
    );
    check_error(
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {foo: 1, scoringStrategy: {bar: 2}}}]}]",
        expect![[
            r#"strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeResourcesFit: strict decoding error: unknown field "foo", unknown field "scoringStrategy.bar""#
        ]],
    );
    check_error(
        "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchLabels: {a: b}}]}}}}]}]",
        expect![[
            r#"strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin NodeAffinity: strict decoding error: unknown field "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchLabels""#
        ]],
    );
    check_error(
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: InterPodAffinityArgs}}]}]",
        expect![
            "decoding .profiles[0].pluginConfig[0]: args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io"
        ],
    );
    check_error("parallelism: many", expect![[r#"parallelism: invalid type: string "many", expected i32"#]]);
    check_error(
        "profiles: [{}, {schedulerName: 5}]",
        expect!["profiles[1].schedulerName: invalid type: integer `5`, expected a string"],
    );
    assert!(parse("podMaxBackoffSeconds: 1\npodMaxBackoffSeconds: 2").is_err(), "twice");
    assert!(parse("extenders: [{urlPrefix: 'http://a', httpTimeout: soon}]").is_err());
    assert!(parse(&format!("a: {}", "[".repeat(100_000))).is_err(), "as deep as it gets");
}

#[test]
fn every_broken_rule_is_told() {
    check_error(
        "parallelism: 0\nclientConnection: {burst: -1}\npercentageOfNodesToScore: 101\npodInitialBackoffSeconds: 0\npodMaxBackoffSeconds: -1\nleaderElection: {leaseDuration: 5s, renewDeadline: 10s, retryPeriod: -1s, resourceLock: endpoints}",
        expect![[
            r#"[clientConnection.burst: Invalid value: -1: must be non-negative, leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero, leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`, leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases", parallelism: Invalid value: 0: should be an integer value greater than zero, percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100], podInitialBackoffSeconds: Invalid value: 0: must be greater than 0, podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds]"#
        ]],
    );
    check_error(
        "profiles: [{schedulerName: a}, {percentageOfNodesToScore: -1}, {schedulerName: a, plugins: {queueSort: {enabled: [{name: PrioritySort}]}, filter: {enabled: [{name: EBSLimits}]}}, pluginConfig: [{name: X}, {name: X}, {name: GCEPDLimits}]}]",
        expect![[
            r#"[profiles[2].pluginConfig[1]: Duplicate value: "X", profiles[2].pluginConfig[2]: Invalid value: "GCEPDLimits": was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1"), profiles[1].schedulerName: Required value, profiles[1].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100], profiles[2].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1"), profiles[2].schedulerName: Duplicate value: "profiles[0].schedulerName", profiles[2].plugins.queueSort: Invalid value: {"disabled":null,"enabled":[{"name":"PrioritySort","weight":null}]}: must be the same for all profiles]"#
        ]],
    );
    check_error(
        "extenders: [{urlPrefix: 'http://a', prioritizeVerb: p, bindVerb: b, managedResources: [{name: cpu}, {name: example.com/a}]}, {urlPrefix: ftp://b, weight: 1, bindVerb: b, httpTimeout: -1s, managedResources: [{name: example.com/a}, {name: a b}]}, {urlPrefix: 'https://c', bindVerb: b, enableHTTPS: true, tlsConfig: {caFile: gone, certData: '#'}}]",
        expect![[
            r#"[extenders[0].weight: Invalid value: 0: must have a positive weight applied to it, extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name, extenders[1].managedResources[0].name: Invalid value: "example.com/a": duplicate extender managed resource name, extenders[1].managedResources[1].name: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), extenders[1].httpTimeout: Invalid value: "-1s": must not be negative, extenders[1].urlPrefix: Invalid value: "ftp://b": must be a URL with the scheme http or https, extenders[2].tlsConfig.certData: Invalid value: must be in base64, extenders[2].tlsConfig.caFile: Invalid value: "gone": open gone: no such file or directory]"#
        ]],
    );
}

#[test]
fn plugins_come_and_go_by_point() {
    check_plugins("", Point::PostFilter, expect!["DynamicResources DefaultPreemption"]);
    check_plugins("postFilter: {disabled: [{name: '*'}]}", Point::PostFilter, expect![""]);
    check_plugins(
        "score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 7}, {name: ImageLocality}]}",
        Point::Score,
        expect!["NodeResourcesFit:7 ImageLocality:1"],
    );
    check_plugins(
        "score: {enabled: [{name: ImageLocality, weight: 9}]}, multiPoint: {disabled: [{name: InterPodAffinity}]}",
        Point::Score,
        expect![
            "ImageLocality:9 TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding:1 PodTopologySpread:2 DynamicResources:2 NodeResourcesBalancedAllocation:1"
        ],
    );
    check_plugins(
        "multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeName}, {name: TaintToleration}]}",
        Point::Filter,
        expect!["NodeName TaintToleration"],
    );
    check_plugins(
        "multiPoint: {enabled: [{name: TaintToleration, weight: 5}]}",
        Point::Score,
        expect![
            "TaintToleration:5 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding:1 PodTopologySpread:2 InterPodAffinity:2 DynamicResources:2 NodeResourcesBalancedAllocation:1 ImageLocality:1"
        ],
    );
    check_plugins(
        "preEnqueue: {disabled: [{name: SchedulingGates}]}",
        Point::PreEnqueue,
        expect!["DynamicResources DefaultPreemption"],
    );
}

#[test]
fn plugins_that_cannot_be_are_told() {
    let wrong = |plugins: &str, expect: Expect| {
        check_error(&format!("profiles: [{{schedulerName: s, plugins: {{{plugins}}}}}]"), expect);
    };
    wrong(
        "filter: {enabled: [{name: Foo}]}",
        expect![[r#"creating profile for scheduler name s: FilterPlugin "Foo" does not exist"#]],
    );
    wrong(
        "multiPoint: {enabled: [{name: Foo}]}",
        expect![[r#"creating profile for scheduler name s: PreFilterPlugin "Foo" does not exist"#]],
    );
    wrong(
        "filter: {enabled: [{name: ImageLocality}]}",
        expect![[
            r#"creating profile for scheduler name s: plugin "ImageLocality" does not extend FilterPlugin plugin"#
        ]],
    );
    wrong(
        "filter: {enabled: [{name: NodeName}, {name: NodeName}]}",
        expect![[
            r#"creating profile for scheduler name s: plugin "NodeName" already registered as "FilterPlugin""#
        ]],
    );
    wrong(
        "multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}",
        expect![[
            r#"creating profile for scheduler name s: plugin "NodeName" already registered as "FilterPlugin""#
        ]],
    );
    wrong(
        "queueSort: {disabled: [{name: '*'}]}",
        expect![[
            r#"creating profile for scheduler name s: only one queue sort plugin required for profile with scheduler name "s", but got 0"#
        ]],
    );
    wrong(
        "bind: {disabled: [{name: DefaultBinder}]}",
        expect![[
            r#"creating profile for scheduler name s: at least one bind plugin is needed for profile with scheduler name "s""#
        ]],
    );
    wrong(
        "preFilter: {disabled: [{name: NodePorts}]}",
        expect![[
            r#"creating profile for scheduler name s: plugin "NodePorts" is enabled as "FilterPlugin" and needs to be as "PreFilterPlugin""#
        ]],
    );
}

#[test]
fn arguments_of_room_are_defaulted_and_checked() {
    let fit = |args: &str, expect: Expect| check_arguments("NodeResourcesFit", args, expect);
    fit(
        "",
        expect![[
            r#"Fit { ignored: {}, ignored_groups: {}, strategy: LeastAllocated, resources: [("cpu", 1), ("memory", 1)] }"#
        ]],
    );
    fit(
        "apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs, scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}, {name: memory}]}",
        expect![[
            r#"Fit { ignored: {}, ignored_groups: {}, strategy: MostAllocated, resources: [("cpu", 3), ("memory", 1)] }"#
        ]],
    );
    fit(
        "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}",
        expect![[
            r#"Fit { ignored: {}, ignored_groups: {}, strategy: RequestedToCapacityRatio([(0, 0), (100, 100)]), resources: [("cpu", 1), ("memory", 1)] }"#
        ]],
    );
    fit(
        "scoringStrategy: {type: Best, resources: [{name: cpu, weight: 101}]}, ignoredResources: [a b], ignoredResourceGroups: [a/b]",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.ignoredResources[0]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), profiles[0].pluginConfig[0].args.ignoredResourceGroups[0]: Invalid value: "a/b": resource group name can't contain '/', profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: "Best": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]]"#
        ]],
    );
    fit(
        "scoringStrategy: {type: RequestedToCapacityRatio}",
        expect![
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio"
        ],
    );
    fit(
        "scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}",
        expect![
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio"
        ],
    );
    fit(
        "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 50, score: 11}, {utilization: 50, score: 1}, {utilization: 101}]}}",
        expect![
            "[profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: values must be sorted in increasing order, profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10], profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape[2].utilization: Invalid value: 101: not in valid range [0, 100]]"
        ],
    );
}

#[test]
fn arguments_of_counts_and_times_are_checked() {
    let balance =
        |args: &str, expect: Expect| check_arguments("NodeResourcesBalancedAllocation", args, expect);
    balance(
        "resources: [{name: cpu}, {name: example.com/gpu, weight: 1}]",
        expect![[r#"Balance { resources: ["cpu", "example.com/gpu"] }"#]],
    );
    balance(
        "resources: [{name: cpu, weight: 2}, {name: cpu}]",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.resources[0].weight: Invalid value: 2: must be 1, profiles[0].pluginConfig[0].args.resources[1].name: Duplicate value: "cpu"]"#
        ]],
    );
    check_arguments(
        "InterPodAffinity",
        "hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true",
        expect!["Near { hard_weight: 0, ignores_wishes_of_others: true }"],
    );
    check_arguments(
        "InterPodAffinity",
        "hardPodAffinityWeight: 101",
        expect![
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"
        ],
    );
    check_arguments(
        "DefaultPreemption",
        "minCandidateNodesAbsolute: 0",
        expect!["Candidates { percentage: 10, absolute: 0 }"],
    );
    check_arguments(
        "DefaultPreemption",
        "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0",
        expect![
            "[profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage]"
        ],
    );
    check_arguments(
        "DefaultPreemption",
        "minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1",
        expect![
            "[profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100], profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)]"
        ],
    );
    check_arguments(
        "VolumeBinding",
        "bindTimeoutSeconds: 0",
        expect!["Volumes { bind_timeout: 0ns, shape: [] }"],
    );
    check_arguments(
        "VolumeBinding",
        "bindTimeoutSeconds: -1, shape: [{utilization: 0, score: 10}]",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value, profiles[0].pluginConfig[0].args.shape: Invalid value: [{"score":10,"utilization":0}]: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring]"#
        ]],
    );
    check_arguments("DynamicResources", "filterTimeout: 1s", expect!["good"]);
    check_arguments(
        "DynamicResources",
        "filterTimeout: -1s, bindingTimeout: 5s",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.filterTimeout: Invalid value: "-1s": must be zero or positive, profiles[0].pluginConfig[0].args.bindingTimeout: Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled]"#
        ]],
    );
}

#[test]
fn arguments_of_placement_are_checked() {
    check_arguments(
        "PodTopologySpread",
        "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]",
        expect!["good"],
    );
    check_arguments(
        "PodTopologySpread",
        "defaultConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: X, labelSelector: {}}, {maxSkew: 1, topologyKey: a b, whenUnsatisfiable: ''}]",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.defaultingType: Invalid value: "System": when .defaultConstraints are not empty, profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), profiles[0].pluginConfig[0].args.defaultConstraints[0].topologyKey: Required value: can not be empty, profiles[0].pluginConfig[0].args.defaultConstraints[0].whenUnsatisfiable: Unsupported value: "X": supported values: "DoNotSchedule", "ScheduleAnyway", profiles[0].pluginConfig[0].args.defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod, profiles[0].pluginConfig[0].args.defaultConstraints[1].topologyKey: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), profiles[0].pluginConfig[0].args.defaultConstraints[1].whenUnsatisfiable: Required value: can not be empty]"#
        ]],
    );
    check_arguments(
        "PodTopologySpread",
        "defaultingType: Some, defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.defaultingType: Unsupported value: "Some": supported values: "System", "List", profiles[0].pluginConfig[0].args.defaultConstraints[1]: Duplicate value: "{a, ScheduleAnyway}"]"#
        ]],
    );
    check_arguments(
        "NodeAffinity",
        "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, {key: '', operator: Exists, values: [x]}, {key: b, operator: Near}, {key: c, operator: Gt, values: [x]}], matchFields: [{key: metadata.name, operator: In, values: []}]}]}}",
        expect![[
            r#"[profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty, profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: Invalid value: "": name part must be non-empty, profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Invalid value: ["x"]: values set must be empty for exists and does not exist, profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].operator: Unsupported value: "Near": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].values: Invalid value: ["x"]: for 'Gt', 'Lt' operators, the value must be an integer, profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values: Invalid value: []: must have one element]"#
        ]],
    );
}

#[test]
fn extenders_that_can_be_ignored_are_asked_last() {
    let parsed = parse(
        "profiles: [{}]\nextenders:\n- {urlPrefix: 'http://a', ignorable: true, filterVerb: f, managedResources: [{name: example.com/a, ignoredByScheduler: true}]}\n- {urlPrefix: 'https://b/x', weight: 2, prioritizeVerb: p, nodeCacheCapable: true, enableHTTPS: true, httpTimeout: 300ms, tlsConfig: {caFile: ca.crt, serverName: b}}\n- {urlPrefix: 'https://c', bindVerb: b, enableHTTPS: true}\n",
    )
    .expect("a configuration");
    let urls: Vec<_> = parsed.extenders.iter().map(|one| one.url.as_str()).collect();
    assert_eq!(urls, ["https://b/x", "https://c", "http://a"]);
    let [b, c, a] = parsed.extenders.as_slice() else { panic!("three") };
    assert_eq!(b.tls.authorities.as_deref(), Some("YXV0aG9yaXRpZXM="));
    assert!(!b.tls.is_insecure && c.tls.is_insecure, "nobody vouches for the second");
    assert_eq!((b.timeout, c.timeout), (Duration::from_millis(300), Duration::from_secs(5)));
    assert!(a.is_ignorable && b.has_node_cache);
    assert!(parsed.profiles.all().all(|profile| profile.arguments.fit.ignored.contains("example.com/a")));
}

/// In a process of its own, as all tests are: gates are turned on once.
#[test]
fn a_shape_for_storage_needs_its_gate() {
    machinery::features::turn_on(&["StorageCapacityScoring=true".parse().expect("a gate")]).expect("once");
    check_arguments(
        "VolumeBinding",
        "",
        expect!["Volumes { bind_timeout: 600s, shape: [(0, 100), (100, 0)] }"],
    );
    check_arguments(
        "VolumeBinding",
        "shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]",
        expect!["Volumes { bind_timeout: 600s, shape: [(0, 0), (100, 100)] }"],
    );
    check_arguments(
        "VolumeBinding",
        "shape: [{utilization: 101, score: 11}]",
        expect![
            "[profiles[0].pluginConfig[0].args.shape[0].utilization: Invalid value: 101: not in valid range [0, 100], profiles[0].pluginConfig[0].args.shape[0].score: Invalid value: 11: not in valid range [0, 10]]"
        ],
    );
}
