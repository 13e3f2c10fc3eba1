//! An admission webhook as its administrator sees it: a server in a Pod behind a Service puts a second container into the Pods
//! of a Deployment, and they run; when it is gone, nothing is made that it was not asked about.

use auth::pki::{Authority, Subject};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testkit::Session;
use testkit::clients::KUBECTLS;

use crate::{BUSYBOX, cluster, must};

const NAMESPACE: &str = "hooks";
/// There is TLS in no applet of busybox: the Pod runs the host's Python.
const SERVER: &str = include_str!("webhooks/hook.py");

#[test]
fn a_webhook_in_a_pod_puts_a_sidecar_into_the_pods_of_a_deployment() {
    let mut cluster = cluster();
    must(cluster.import_busybox(BUSYBOX));
    let session = must(Session::new(&cluster, KUBECTLS[1], NAMESPACE));
    let folder = cluster.scratch().join("hook");
    std::fs::create_dir_all(&folder).unwrap();
    let now = jiff::Timestamp::now();
    let authority = Authority::load_or_create(&folder, now).unwrap();
    let name = format!("hook.{NAMESPACE}.svc");
    let identity =
        authority.issue(&folder, &Subject::server("hook", "hook", vec![name], vec![]), now).unwrap();
    for (file, text) in
        [("hook.py", SERVER), ("tls.crt", &*identity.certificate_pem), ("tls.key", &*identity.key_pem)]
    {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let script = include_str!("sessions/webhooks.txt")
        .replace("FOLDER", &folder.to_string_lossy())
        .replace("BUNDLE", &STANDARD.encode(authority.certificate_pem()))
        .replace("BUSYBOX", BUSYBOX);
    must(session.run("webhooks.txt", &script));
    must(cluster.remove());
}
