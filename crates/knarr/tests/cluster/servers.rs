//! Servers of others, in Pods: what an administrator adds to a cluster, with certificates of their own.

use std::path::PathBuf;

use auth::pki::{Authority, Subject};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testkit::Session;

use crate::BUSYBOX;

/// A Deployment behind a Service. There is TLS in no applet of busybox: its Pod runs the host's Python, with the machine's
/// files to read, and has what is its ServiceAccount's in the environment.
const OBJECTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: NAME
        image: BUSYBOX
        command:
        - busybox
        - sh
        - -c
        - cd /var/run/secrets/kubernetes.io/serviceaccount; export TOKEN="$(cat token)" AUTHORITY="$(cat ca.crt)";
          exec busybox chroot /host /usr/bin/python3 FOLDER/server.py FOLDER
        readinessProbe: {httpGet: {path: /readyz, port: 8443, scheme: HTTPS}, periodSeconds: 1}
        volumeMounts: [{name: host, mountPath: /host, readOnly: true}]
      volumes: [{name: host, hostPath: {path: /}}]
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec:
  selector: {app: NAME}
  ports: [{name: https, port: 443, targetPort: 8443}]
"#;

/// Puts what makes the server `name` of a session's namespace into the session's folder: `NAME.yaml`, and in the folder `NAME`
/// its program, certificate and key. Returns the script with whom to believe in place of `BUNDLE`.
pub(crate) fn prepare(
    session: &Session<'_>,
    (namespace, name): (&str, &str),
    program: &str,
    script: &str,
) -> String {
    let folder: PathBuf = session.folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let now = jiff::Timestamp::now();
    let authority = Authority::load_or_create(&folder, now).unwrap();
    let subject = Subject::server(name, name, vec![format!("{name}.{namespace}.svc")], vec![]);
    let identity = authority.issue(&folder, &subject, now).unwrap();
    let objects = OBJECTS
        .replace("NAME", name)
        .replace("BUSYBOX", BUSYBOX)
        .replace("FOLDER", &folder.to_string_lossy());
    let files =
        [("server.py", program), ("tls.crt", &*identity.certificate_pem), ("tls.key", &*identity.key_pem)];
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    std::fs::write(session.folder().join(format!("{name}.yaml")), objects).unwrap();
    script.replace("BUNDLE", &STANDARD.encode(authority.certificate_pem()))
}
