//! The scheduler as its operator sees it: profiles that Pods name, plugins with arguments, and files that cannot be.

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::must;

/// The second profile fills Nodes up, and looks at nothing else.
const CONFIGURATION: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  plugins:
    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}
    postFilter: {disabled: [{name: '*'}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [work]}]}]
";

#[test]
fn gangs_come_together_or_not_at_all() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let gates = "--feature-gates=GenericWorkload=true,GangScheduling=true";
    must(cluster.up_with(&["--disable-agent", gates]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "gangs"));
    must(session.run("gangs.txt", include_str!("sessions/gangs.txt")));
    drop(session);
    must(cluster.remove());
}

#[test]
fn a_scheduler_does_what_its_operator_says() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let file = cluster.scratch().join("scheduler.yaml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let config = format!("--kube-scheduler-arg=config={}", file.display());
    must(cluster.up_with(&["--disable-agent", &config]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "packed"));
    must(session.run("scheduler_profiles.txt", include_str!("sessions/scheduler_profiles.txt")));
    drop(session);
    must(cluster.remove());
}
