//! Who may come in, and how they are judged: users by certificate, by token of the cluster and of an outside issuer,
//! by impersonation; what the audit log then says of them; who is sent away for want of room; and how a server stops.

use serde_json::Value;
use testkit::clients::KUBECTLS;
use testkit::cluster::text;
use testkit::{Cluster, Session};

use crate::clients::{SCRIPTS, fetched};
use crate::must;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: ['system:apiserver', 'system:kube-scheduler', 'system:kube-controller-manager'], userGroups: []}
- {level: None, userGroups: ['system:nodes', 'system:serviceaccounts:kube-system']}
- {level: None, nonResourceURLs: ['/readyz*', '/livez*', '/healthz*']}
- {level: Metadata, resources: [{group: '', resources: [secrets, serviceaccounts/token]}]}
- {level: RequestResponse, verbs: [create, delete], resources: [{group: '', resources: [configmaps]}]}
- {level: Request, resources: [{group: certificates.k8s.io}]}
- {level: Metadata}
";

/// A cluster that believes an outside issuer and keeps an audit log.
fn cluster_with_issuer() -> Cluster {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(crate::BUSYBOX));
    let folder = cluster.scratch().to_owned();
    let mut prepare = cluster.command(must(fetched("python/bin/python")));
    let prepared =
        prepare.arg(format!("{SCRIPTS}/python_issuers.py")).arg("prepare").arg(&folder).output().unwrap();
    assert!(prepared.status.success(), "{}", text(&prepared));
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    must(cluster.up_with(&[
        &file("audit-policy-file", "policy.yaml"),
        &file("audit-log-path", "audit.log"),
        &file("oidc-ca-file", "issuer.crt"),
        "--oidc-issuer-url=https://127.0.0.1:8443",
        "--oidc-client-id=cluster",
        "--oidc-username-claim=email",
        "--oidc-username-prefix=oidc:",
        "--oidc-groups-claim=teams",
        "--oidc-groups-prefix=oidc:",
        "--oidc-required-claim=tier=paid",
        "--shutdown-delay-duration=3s",
    ]));
    cluster
}

/// What the log says of requests with this verb of this user, or who acted as them, for this resource.
fn said<'a>(events: &'a [Value], user: &str, verb: &str, resource: &str) -> Vec<&'a Value> {
    let name = |event: &Value, field: &str| event[field]["username"].as_str() == Some(user);
    let is_wanted = |event: &&Value| {
        (name(event, "user") || name(event, "impersonatedUser"))
            && event["verb"] == verb
            && event["objectRef"]["resource"] == resource
    };
    events.iter().filter(is_wanted).collect()
}

/// Reads the audit log back: whoever did something in the sessions is in it, as much of them as the policy wants.
fn check_audit_log(cluster: &Cluster) {
    let log = std::fs::read_to_string(cluster.scratch().join("audit.log")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_event = |event: &Value| event["kind"] == "Event" && event["apiVersion"] == "audit.k8s.io/v1";
    assert!(events.iter().all(is_event));
    assert!(events.iter().all(|event| event["stage"] != "RequestReceived"));
    assert!(events.iter().all(|event| event["user"]["groups"] != "system:nodes"));
    assert!(!log.contains("eyJ"), "no token is in the log");
    assert!(!log.contains("hidden-in-a-secret"), "what is in Secrets is not in the log");

    let listed = said(&events, "jane", "list", "pods");
    let codes: Vec<&Value> = listed.iter().map(|event| &event["responseStatus"]["code"]).collect();
    assert!(codes.contains(&&Value::from(403)) && codes.contains(&&Value::from(200)), "{codes:?}");
    let refused = listed.iter().find(|event| event["responseStatus"]["code"] == 403).unwrap();
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert!(refused["userAgent"].as_str().unwrap().starts_with("kubectl/"));

    let acted = said(&events, "ann", "create", "configmaps");
    assert_eq!(acted.len(), 1, "{acted:?}");
    assert_eq!(acted[0]["user"]["username"], "system:admin");
    assert_eq!(acted[0]["impersonatedUser"]["groups"], serde_json::json!(["ships", "system:authenticated"]));
    assert_eq!(acted[0]["level"], "RequestResponse");
    assert_eq!(acted[0]["requestObject"]["data"]["colour"], "blue");
    assert!(acted[0]["responseObject"]["metadata"]["uid"].is_string());
    assert!(acted[0]["responseObject"]["metadata"]["managedFields"].is_null());

    let secret = &said(&events, "system:admin", "create", "secrets")[0];
    assert_eq!((&secret["level"], &secret["requestObject"]), (&Value::from("Metadata"), &Value::Null));
    assert!(!said(&events, "oidc:jane@example.com", "list", "configmaps").is_empty());
    assert!(!said(&events, "system:anonymous", "list", "pods").is_empty());
}

/// An operator's own keys: one signs, another is of an older cluster, and both are read as openssl writes them.
#[test]
fn tokens_of_service_accounts_are_signed_and_checked_as_operators_say() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let folder = cluster.scratch().to_owned();
    let make = "openssl ecparam -genkey -name secp521r1 -out new.pem && openssl genrsa -traditional -out old.pem 2048 && \
                openssl ec -in new.pem -pubout -out public.pem && openssl rsa -in old.pem -pubout >> public.pem";
    let mut shell = std::process::Command::new("sh");
    let made = shell.args(["-c", make]).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    must(cluster.up_with(&[
        "--disable-agent",
        &file("service-account-signing-key-file", "new.pem"),
        &file("service-account-key-file", "public.pem"),
        "--service-account-issuer=https://new.example.com",
        "--service-account-issuer=https://old.example.com",
        "--service-account-max-token-expiration=2h",
        "--api-audiences=here,there",
        "--kube-controller-manager-arg=controllers=*,-root-ca-certificate-publisher-controller",
    ]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "accounts"));
    must(session.run("service_accounts.txt", include_str!("sessions/service_accounts.txt")));
    drop(session);
    must(cluster.remove());
}

#[test]
fn users_come_in_by_every_door_and_are_judged_and_written_down() {
    let mut cluster = cluster_with_issuer();
    const SESSIONS: [(&str, &str); 3] = [
        ("certificate.txt", include_str!("sessions/certificate.txt")),
        ("impersonation.txt", include_str!("sessions/impersonation.txt")),
        ("fairness.txt", include_str!("sessions/fairness.txt")),
    ];
    let failures: Vec<String> = std::thread::scope(|scope| {
        let cluster = &cluster;
        let sessions = SESSIONS.map(|(name, script)| {
            scope.spawn(move || {
                Session::new(cluster, KUBECTLS[1], name.trim_end_matches(".txt"))?.run(name, script)
            })
        });
        let issuers = scope.spawn(move || {
            let python = fetched("python/bin/python")?;
            let command =
                format!("{} {SCRIPTS}/python_issuers.py {}", python.display(), cluster.scratch().display());
            Session::new(cluster, KUBECTLS[1], "issuers")?.must(&command).map(drop)
        });
        let all = sessions.into_iter().chain([issuers]);
        all.filter_map(|one| one.join().unwrap().err().map(|error| format!("{error:#}"))).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));

    // Readiness fails at once, requests go on; what is under way is answered.
    let session = must(Session::new(&cluster, KUBECTLS[1], "drain"));
    must(session.run("drain.txt", include_str!("sessions/drain.txt")));
    drop(session);
    // Who has stopped has written down everything.
    check_audit_log(&cluster);
    must(cluster.up());
    let session = must(Session::new(&cluster, KUBECTLS[1], "drain"));
    assert_eq!(must(session.must("kubectl get configmap slow -o 'jsonpath={.data.word}'")), "written");
    drop(session);
    must(cluster.remove());
}
