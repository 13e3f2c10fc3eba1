//! A row per rule of Jobs and CronJobs.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::expect;

use machinery::features;
use serde_json::Value;

use super::{changed, check_each, check_each_status, check_each_update, fill_in, row};

const JOB: (&str, &str) = ("batch/v1", "jobs");
const GOOD: &str = "
metadata: {name: j, namespace: d, uid: u}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
";
const INDEXED: &str = "
metadata: {name: j, namespace: d, uid: u}
spec: {completions: 5, parallelism: 5, completionMode: Indexed, backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
";

#[test]
fn jobs() {
    check_each(
        JOB,
        GOOD,
        &[
            ("negative numbers", "/spec/parallelism", "-1"),
            ("a bad mode", "/spec/completionMode", "X"),
            ("a limit per index without indexes", "/spec/backoffLimitPerIndex", "1"),
            ("a success policy without indexes", "/spec/successPolicy", "{rules: [{succeededCount: 1}]}"),
            ("Pods that always restart", "/spec/template/spec/restartPolicy", "Always"),
            ("a manager without a domain", "/spec/managedBy", "x"),
            ("a label of another Job", "/spec/template/metadata/labels", "{job-name: x}"),
            ("a selector of its own", "/spec/selector", "{matchLabels: {a: b}}"),
            (
                "a bad failure policy",
                "/spec/podFailurePolicy",
                "{rules: [{action: X}, {action: FailIndex, onExitCodes: {operator: In, values: [0, 2, 1, 1], containerName: x}, onPodConditions: [{type: '', status: X}]}, {action: '', onExitCodes: {operator: '', values: []}}]}",
            ),
            (
                "a failure policy of Pods that restart",
                "/spec",
                "{podFailurePolicy: {rules: []}, podReplacementPolicy: TerminatingOrFailed, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}",
            ),
        ],
        expect![[r#"
            negative numbers
              spec.parallelism: Invalid value: -1: must be greater than or equal to 0
            a bad mode
              spec.completionMode: Unsupported value: "X": supported values: "NonIndexed", "Indexed"
            a limit per index without indexes
              spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode
            a success policy without indexes
              spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed completion mode
            Pods that always restart
              spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
            a manager without a domain
              spec.managedBy: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")
            a label of another Job
              spec.template.metadata.labels[job-name]: Invalid value: {"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"x"}: must be 'j'
            a selector of its own
              spec.selector: Invalid value: {"matchLabels":{"a":"b","batch.kubernetes.io/controller-uid":"u"}}: `selector` not auto-generated
              spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}: `selector` does not match template `labels`
            a bad failure policy
              spec.podFailurePolicy.rules[0].action: Unsupported value: "X": supported values: "Count", "FailIndex", "FailJob", "Ignore"
              spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required
              spec.podFailurePolicy.rules[1].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set
              spec.podFailurePolicy.rules[1].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template
              spec.podFailurePolicy.rules[1].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator
              spec.podFailurePolicy.rules[1].onExitCodes.values[3]: Duplicate value: 1
              spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [0,2,1,1]: must be ordered
              spec.podFailurePolicy.rules[1].onPodConditions[0].type: Invalid value: "": name part must be non-empty
              spec.podFailurePolicy.rules[1].onPodConditions[0].type: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              spec.podFailurePolicy.rules[1].onPodConditions[0].status: Unsupported value: "X": supported values: "False", "True", "Unknown"
              spec.podFailurePolicy.rules[1]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported
              spec.podFailurePolicy.rules[2].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]
              spec.podFailurePolicy.rules[2].onExitCodes.operator: Required value: valid values: ["In" "NotIn"]
              spec.podFailurePolicy.rules[2].onExitCodes.values: Invalid value: []: at least one value is required
            a failure policy of Pods that restart
              spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"
              spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified"#]],
    );
    check_each(
        JOB,
        INDEXED,
        &[
            ("no completions", "/spec/completions", "null"),
            ("more failed than there are", "/spec/maxFailedIndexes", "6"),
            (
                "many completions",
                "/spec",
                "{completions: 100001, parallelism: 10001, completionMode: Indexed, backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            ),
            (
                "a bad success policy",
                "/spec/successPolicy",
                "{rules: [{}, {succeededCount: 6}, {succeededIndexes: '4,9'}, {succeededIndexes: '0-1', succeededCount: 3}]}",
            ),
            (
                "a name too long for its Pods",
                "/metadata/name",
                "a123456789012345678901234567890123456789012345678901234567890b",
            ),
        ],
        expect![[r#"
            no completions
              spec.completions: Required value: when completion mode is Indexed
            more failed than there are
              spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions
            many completions
              spec.maxFailedIndexes: Required value: must be specified when completions is above 100000
              spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index
            a bad success policy
              spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified
              spec.successPolicy.rules[1].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)
              spec.successPolicy.rules[2].succeededIndexes: Invalid value: "4,9": error parsing succeededIndexes: too large index: "9"
              spec.successPolicy.rules[3].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)
            a name too long for its Pods
              metadata.name: Invalid value: "a123456789012345678901234567890123456789012345678901234567890b": will not able to create pod with invalid DNS label: a123456789012345678901234567890123456789012345678901234567890b-4"#]],
    );
}

#[test]
fn a_job_stays_what_it_is() {
    // The labels and the selector that the API server generates.
    let generated = GOOD.replace(
        "template: {",
        "selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {batch.kubernetes.io/controller-uid: u, controller-uid: u, batch.kubernetes.io/job-name: j, job-name: j}}, ",
    );
    check_each_update(
        JOB,
        &generated,
        &[
            ("other parallelism", "/spec/parallelism", "3"),
            ("other completions", "/spec/completions", "3"),
            ("another template", "/spec/template/spec/nodeSelector", "{a: b}"),
            ("another mode", "/spec", "{completionMode: Indexed}"),
            ("another manager", "/spec/managedBy", "a.b/c"),
        ],
        expect![[r#"
            other parallelism
              spec.completions: Invalid value: "null": field is immutable
            other completions
              spec.completions: Invalid value: 3: field is immutable
            another template
              spec.template: Invalid value: {"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[{"Name":"c","Image":"i","Command":null,"Args":null,"WorkingDir":"","Ports":null,"EnvFrom":null,"Env":null,"Resources":{"Limits":null,"Requests":null,"Claims":null},"ResizePolicy":null,"RestartPolicy":null,"RestartPolicyRules":null,"VolumeMounts":null,"VolumeDevices":null,"LivenessProbe":null,"ReadinessProbe":null,"StartupProbe":null,"Lifecycle":null,"TerminationMessagePath":"/dev/termination-log","TerminationMessagePolicy":"File","ImagePullPolicy":"Always","SecurityContext":null,"Stdin":false,"StdinOnce":false,"TTY":false}],"EphemeralContainers":null,"RestartPolicy":"Never","TerminationGracePeriodSeconds":30,"ActiveDeadlineSeconds":null,"DNSPolicy":"ClusterFirst","NodeSelector":{"a":"b"},"ServiceAccountName":"","AutomountServiceAccountToken":null,"NodeName":"","SecurityContext":{"HostNetwork":false,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"SupplementalGroups":null,"SupplementalGroupsPolicy":null,"FSGroup":null,"FSGroupChangePolicy":null,"Sysctls":null,"SeccompProfile":null,"AppArmorProfile":null,"SELinuxChangePolicy":null},"ImagePullSecrets":null,"Hostname":"","Subdomain":"","SetHostnameAsFQDN":null,"Affinity":null,"SchedulerName":"default-scheduler","Tolerations":null,"HostAliases":null,"PriorityClassName":"","Priority":null,"PreemptionPolicy":null,"DNSConfig":null,"ReadinessGates":null,"RuntimeClassName":null,"Overhead":null,"EnableServiceLinks":null,"TopologySpreadConstraints":null,"OS":null,"SchedulingGates":null,"ResourceClaims":null,"Resources":null,"HostnameOverride":null,"WorkloadRef":null}}: field is immutable
            another mode
              spec.template.spec.containers: Required value
              spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
              spec.selector: Required value
              spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
              spec.template.spec.containers: Required value
              spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
              spec.selector: Required value
              spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
              spec.selector: Invalid value: "null": field is immutable
              spec.template: Invalid value: {"Spec":{"Volumes":null,"InitContainers":null,"Containers":null,"EphemeralContainers":null,"RestartPolicy":"Always","TerminationGracePeriodSeconds":30,"ActiveDeadlineSeconds":null,"DNSPolicy":"ClusterFirst","NodeSelector":null,"ServiceAccountName":"","AutomountServiceAccountToken":null,"NodeName":"","SecurityContext":{"HostNetwork":false,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"SupplementalGroups":null,"SupplementalGroupsPolicy":null,"FSGroup":null,"FSGroupChangePolicy":null,"Sysctls":null,"SeccompProfile":null,"AppArmorProfile":null,"SELinuxChangePolicy":null},"ImagePullSecrets":null,"Hostname":"","Subdomain":"","SetHostnameAsFQDN":null,"Affinity":null,"SchedulerName":"default-scheduler","Tolerations":null,"HostAliases":null,"PriorityClassName":"","Priority":null,"PreemptionPolicy":null,"DNSConfig":null,"ReadinessGates":null,"RuntimeClassName":null,"Overhead":null,"EnableServiceLinks":null,"TopologySpreadConstraints":null,"OS":null,"SchedulingGates":null,"ResourceClaims":null,"Resources":null,"HostnameOverride":null,"WorkloadRef":null}}: field is immutable
              spec.completionMode: Invalid value: "Indexed": field is immutable
            another manager
              spec.managedBy: Invalid value: "a.b/c": field is immutable"#]],
    );
    check_each_update(
        JOB,
        &generated.replace("spec: {selector", "spec: {suspend: true, selector"),
        &[
            ("other nodes", "/spec/template/spec/nodeSelector", "{a: b}"),
            ("another image", "/spec/template/spec/containers/0/image", "j"),
        ],
        expect![[r#"
            other nodes
            another image
              spec.template: Invalid value: {"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[{"Name":"c","Image":"j","Command":null,"Args":null,"WorkingDir":"","Ports":null,"EnvFrom":null,"Env":null,"Resources":{"Limits":null,"Requests":null,"Claims":null},"ResizePolicy":null,"RestartPolicy":null,"RestartPolicyRules":null,"VolumeMounts":null,"VolumeDevices":null,"LivenessProbe":null,"ReadinessProbe":null,"StartupProbe":null,"Lifecycle":null,"TerminationMessagePath":"/dev/termination-log","TerminationMessagePolicy":"File","ImagePullPolicy":"Always","SecurityContext":null,"Stdin":false,"StdinOnce":false,"TTY":false}],"EphemeralContainers":null,"RestartPolicy":"Never","TerminationGracePeriodSeconds":30,"ActiveDeadlineSeconds":null,"DNSPolicy":"ClusterFirst","NodeSelector":null,"ServiceAccountName":"","AutomountServiceAccountToken":null,"NodeName":"","SecurityContext":{"HostNetwork":false,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"SupplementalGroups":null,"SupplementalGroupsPolicy":null,"FSGroup":null,"FSGroupChangePolicy":null,"Sysctls":null,"SeccompProfile":null,"AppArmorProfile":null,"SELinuxChangePolicy":null},"ImagePullSecrets":null,"Hostname":"","Subdomain":"","SetHostnameAsFQDN":null,"Affinity":null,"SchedulerName":"default-scheduler","Tolerations":null,"HostAliases":null,"PriorityClassName":"","Priority":null,"PreemptionPolicy":null,"DNSConfig":null,"ReadinessGates":null,"RuntimeClassName":null,"Overhead":null,"EnableServiceLinks":null,"TopologySpreadConstraints":null,"OS":null,"SchedulingGates":null,"ResourceClaims":null,"Resources":null,"HostnameOverride":null,"WorkloadRef":null}}: field is immutable"#]],
    );
}

#[test]
fn the_status_of_a_job_only_goes_forward() {
    check_each_status(
        JOB,
        &INDEXED.replacen("spec:", "status: {failed: 1, startTime: '2026-01-01T00:00:00Z', conditions: [{type: FailureTarget, status: 'True'}]}\nspec:", 1),
        &[
            ("fewer failures", "/status/failed", "0"),
            ("complete without a time", "/status/conditions", "[{type: FailureTarget, status: 'True'}, {type: Complete, status: 'True'}]"),
            ("a target taken back", "/status/conditions", "[]"),
            ("no start", "/status/startTime", "null"),
            ("a time without completion", "/status/completionTime", "'2025-01-01T00:00:00Z'"),
            ("more ready than active", "/status/ready", "1"),
            ("indexes that overlap", "/status", "{failed: 1, startTime: '2026-01-01T00:00:00Z', completedIndexes: '1-3', failedIndexes: '3', conditions: [{type: FailureTarget, status: 'True'}]}"),
            ("finished with Pods", "/status", "{failed: 1, active: 1, terminating: 1, conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}], uncountedTerminatedPods: {failed: [a, a]}}"),
        ],
        expect![[r#"
            fewer failures
              status.failed: Invalid value: 0: cannot decrease the failed counter
            complete without a time
              status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions
              status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition
              status.completionTime: Required value: completionTime is required for Complete jobs
            a target taken back
              status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition
            no start
              status.startTime: Required value: startTime cannot be removed for unsuspended job
            a time without completion
              status.completionTime: Invalid value: "2025-01-01T00:00:00Z": cannot set completionTime when there is no Complete=True condition
              status.completionTime: Invalid value: "2025-01-01T00:00:00Z": must be equal to or after `startTime`
            more ready than active
              status.ready: Invalid value: 1: cannot set more ready pods than active
            indexes that overlap
              status.failedIndexes: Invalid value: "3": failedIndexes and completedIndexes overlap at index: 3
            finished with Pods
              status.uncountedTerminatedPods.failed[1]: Duplicate value: "a"
              status.startTime: Required value: startTime cannot be removed for unsuspended job
              status.active: Invalid value: 1: active>0 is invalid for finished job
              status.startTime: Required value: startTime is required for finished job
              status.uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["a","a"]}: must be empty for finished job
              status.terminating: Invalid value: 1: terminating>0 is invalid for finished job"#]],
    );
}

#[test]
fn cron_jobs() {
    let cron = ("batch/v1", "cronjobs");
    let good = "{metadata: {name: c, namespace: d}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}";
    check_each(
        cron,
        good,
        &[
            ("a long name", "/metadata/name", "a1234567890123456789012345678901234567890123456789012"),
            ("no schedule", "/spec/schedule", "''"),
            ("a bad schedule", "/spec/schedule", "61 * * * *"),
            ("a zone in the schedule", "/spec/schedule", "TZ=UTC * * * * *"),
            ("an unknown zone", "/spec/timeZone", "Mars/Olympus"),
            ("a known zone", "/spec/timeZone", "Europe/Paris"),
            ("the local zone", "/spec/timeZone", "Local"),
            ("the local zone, as nobody knows it", "/spec/timeZone", "LOCAL"),
            ("a zone beside the others", "/spec/timeZone", "Europe/../Paris"),
            ("a long zone", "/spec/timeZone", "Europe/Saint_Petersburg"),
            ("a zone in small letters", "/spec/timeZone", "europe/paris"),
            ("no zone", "/spec/timeZone", "''"),
            ("a bad policy", "/spec/concurrencyPolicy", "X"),
            ("a selector", "/spec/jobTemplate/spec/selector", "{matchLabels: {a: b}}"),
            ("a manual selector", "/spec/jobTemplate/spec/manualSelector", "true"),
            ("negative limits", "/spec/failedJobsHistoryLimit", "-1"),
        ],
        expect![[r#"
            a long name
              metadata.name: Invalid value: "a1234567890123456789012345678901234567890123456789012": must be no more than 52 characters
            no schedule
              spec.schedule: Required value
            a bad schedule
              spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61
            a zone in the schedule
              spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
            an unknown zone
              spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus
            a known zone
            the local zone
              spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones
            the local zone, as nobody knows it
              spec.timeZone: Invalid value: "LOCAL": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones
              spec.timeZone: Invalid value: "LOCAL": unknown time zone LOCAL
            a zone beside the others
              spec.timeZone: Invalid value: "Europe/../Paris": unknown time zone Europe/../Paris
            a long zone
              spec.timeZone: Invalid value: "Europe/Saint_Petersburg": unknown time zone Europe/Saint_Petersburg
            a zone in small letters
              spec.timeZone: Invalid value: "europe/paris": unknown time zone europe/paris
            no zone
              spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string
            a bad policy
              spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow", "Forbid", "Replace"
            a selector
              spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: `selector` will be auto-generated
            a manual selector
              spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"
            negative limits
              spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn the_template_of_a_job_that_is_suspended_changes_where_gates_let_it() {
    let gates =
        ["MutablePodResourcesForSuspendedJobs=true", "MutableSchedulingDirectivesForSuspendedJobs=true"];
    features::turn_on(&gates.map(|gate| gate.parse().unwrap())).unwrap();
    let job = |spec: &str, status: &str| {
        let text = format!(
            "{{metadata: {{name: j, namespace: d, uid: u}}, spec: {{{spec}, manualSelector: true, selector: {{matchLabels: \
             {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{restartPolicy: Never, containers: [{{name: c, \
             image: i}}], initContainers: [{{name: d, image: i}}]}}}}}}, status: {{{status}}}}}"
        );
        serde_saphyr::from_str::<Value>(&text).unwrap()
    };
    let resources = "{requests: {cpu: 100m}}";
    let changes = [
        ("node selector", "/spec/template/spec/nodeSelector", "{a: b}"),
        ("resources", "/spec/template/spec/containers/0/resources", resources),
        ("resources of the other", "/spec/template/spec/initContainers/0/resources", resources),
        ("image", "/spec/template/spec/containers/0/image", "j"),
        ("one container more", "/spec/template/spec/containers/1", "{name: e, image: i}"),
        ("resources of the Pod", "/spec/template/spec/resources", resources),
    ];
    let told = "startTime: '2026-01-01T12:00:00Z', conditions: [{type: Suspended, status: 'True'}]";
    let allowed = ["node selector", "resources", "resources of the other"];
    for (what, spec, status, allowed) in [
        ("new", "suspend: true", "", &allowed[..]),
        ("suspended", "suspend: true", told, &allowed),
        ("not yet suspended", "suspend: true", "startTime: '2026-01-01T12:00:00Z'", &[]),
        ("suspended, with Pods", "suspend: true", &format!("{told}, active: 1"), &[]),
        ("resumed", "suspend: false", told, &[]),
    ] {
        let row = row("batch/v1", "jobs");
        let mut old = job(spec, status);
        fill_in(row, &mut old);
        let found = changes.iter().filter(|(_, at, to)| {
            let mut new = changed(old.clone(), at, to);
            fill_in(row, &mut new);
            row.validate_update(&new, &old).is_empty()
        });
        assert_eq!(found.map(|(name, ..)| *name).collect::<Vec<_>>(), allowed, "{what}");
    }
}
