//! Where the server connects to on behalf of somebody, through the whole server: Nodes, Pods and Services whose status says
//! what it should not, and what a backend gets to see.

use std::time::Duration;

use crate::server::{self, TestServer, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const NOT_ALLOWED: &str = "address not allowed";

async fn must(server: &TestServer, (method, path): (&str, &str), body: &str) {
    let answer = server.call(method, path, body).await;
    assert!(answer.code.is_success(), "{method} {path}: {} {}", answer.code, answer.body);
}

/// A server that listens, with a Node `n1`, a Pod `p` on it and a Service `s` of that Pod, and nothing of them known yet.
async fn with_objects(dials_also: &[&str]) -> TestServer {
    let allowed = dials_also.iter().map(|ip| ip.parse().unwrap()).collect();
    let server = start_with(Some("127.0.0.1:0".parse().unwrap()), |config| {
        config.options.is_fair = false;
        config.options.dials_also = allowed;
    })
    .await;
    let default = "/api/v1/namespaces/default";
    must(&server, ("POST", "/api/v1/nodes"), "{metadata: {name: n1}}").await;
    must(&server, ("POST", &format!("{default}/serviceaccounts")), "{metadata: {name: default}}").await;
    let pod = "{metadata: {name: p}, spec: {nodeName: n1, containers: [{name: a, image: b}]}}";
    must(&server, ("POST", &format!("{default}/pods")), pod).await;
    let service = "{metadata: {name: s}, spec: {ports: [{port: 80}]}}";
    must(&server, ("POST", &format!("{default}/services")), service).await;
    server
}

async fn node_is(server: &TestServer, kind: &str, address: &str, port: u16) {
    let status = format!(
        "{{metadata: {{name: n1}}, status: {{addresses: [{{type: {kind}, address: '{address}'}}], \
         daemonEndpoints: {{kubeletEndpoint: {{Port: {port}}}}}}}}}"
    );
    must(server, ("PUT", "/api/v1/nodes/n1/status"), &status).await;
}

async fn pod_is(server: &TestServer, address: &str) {
    let status =
        format!("{{\"status\": {{\"podIP\": \"{address}\", \"podIPs\": [{{\"ip\": \"{address}\"}}]}}}}");
    must(server, ("PATCH", "/api/v1/namespaces/default/pods/p/status"), &status).await;
}

/// Asked by each way that leads to a Node or its kubelet.
async fn check_node(server: &TestServer, (kind, address, port): (&str, &str, u16)) {
    node_is(server, kind, address, port).await;
    for path in [
        "/api/v1/nodes/n1/proxy/pods".to_owned(),
        format!("/api/v1/nodes/n1:{port}/proxy/pods"),
        format!("/api/v1/nodes/https:n1:{port}/proxy/pods"),
        "/api/v1/namespaces/default/pods/p/log".to_owned(),
    ] {
        let answer = server.call("GET", &path, "").await;
        assert_eq!(
            (answer.code.as_u16(), &answer.body["message"]),
            (400, &NOT_ALLOWED.into()),
            "{address} {path}"
        );
    }
    let answer = server.call("POST", "/api/v1/nodes/n1/csi", "{}").await;
    assert_eq!((answer.code.as_u16(), &answer.body["message"]), (400, &NOT_ALLOWED.into()), "{address}");
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=1";
    let answer = server.call_with("POST", exec, &upgrade, "").await;
    assert_eq!((answer.code.as_u16(), &answer.body["message"]), (400, &NOT_ALLOWED.into()), "{address}");
}

#[tokio::test]
async fn a_node_does_not_lead_the_server_to_itself() {
    let server = with_objects(&[]).await;
    let own = server.server.address().unwrap();
    for address in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.1", "10.43.0.1"] {
        check_node(&server, ("InternalIP", address, own.port())).await;
        check_node(&server, ("ExternalIP", address, 10250)).await;
    }
    // What is advertised to others, and a name that leads there.
    check_node(&server, ("InternalIP", "10.0.0.1", 6443)).await;
    check_node(&server, ("Hostname", "localhost", 10250)).await;
    server.stop().await;
}

/// Even where a kubelet is on loopback, as in tests, the server's own port is not reached.
#[tokio::test]
async fn a_server_never_connects_to_its_own_port() {
    let server = with_objects(&["127.0.0.1"]).await;
    let own = server.server.address().unwrap();
    check_node(&server, ("InternalIP", "127.0.0.1", own.port())).await;
    check_node(&server, ("InternalIP", "127.0.0.1", 6443)).await;
    server.stop().await;
}

#[tokio::test]
async fn a_pod_or_service_does_not_lead_the_server_to_itself() {
    let server = with_objects(&[]).await;
    let default = "/api/v1/namespaces/default";
    let slice = |address: &str, family: &str| {
        format!(
            "{{metadata: {{name: s, labels: {{kubernetes.io/service-name: s}}}}, addressType: {family}, ports: [{{port: 80}}], \
             endpoints: [{{addresses: ['{address}'], targetRef: {{kind: Pod, name: p}}}}]}}"
        )
    };
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "10.43.0.1"]
    {
        pod_is(&server, address).await;
        for path in ["pods/p/proxy/", "pods/https:p:6443/proxy/version", "pods/p:80/proxy/"] {
            let answer = server.call("GET", &format!("{default}/{path}"), "").await;
            let told = (answer.code.as_u16(), &answer.body["message"]);
            assert_eq!(told, (400, &NOT_ALLOWED.into()), "{address} {path}");
        }
    }
    // A range of Services cannot be told by the address alone, so that a slice takes it.
    pod_is(&server, "10.43.0.7").await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    must(&server, ("POST", slices), &slice("10.43.0.7", "IPv4")).await;
    let answer = server.call("GET", &format!("{default}/services/s/proxy/"), "").await;
    assert_eq!(
        (answer.code.as_u16(), &answer.body["message"]),
        (400, &NOT_ALLOWED.into()),
        "{}",
        answer.body
    );
    server.stop().await;
}

/// Whatever a client sends to prove who it is, a backend does not see it, and does not speak for the server.
#[tokio::test]
async fn a_backend_sees_no_credentials_and_sets_none_of_the_servers_headers() {
    let server = with_objects(&["127.0.0.1"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    pod_is(&server, "127.0.0.1").await;
    let backend = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            head.push(byte[0]);
        }
        let answer = "HTTP/1.1 200 OK\r\naudit-id: forged\r\nAccess-Control-Allow-Origin: *\r\nset-cookie: a=b\r\n\
                      content-length: 2\r\n\r\nok";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    });
    let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
    let protocols = format!("v4.channel.k8s.io, {token}");
    let path = format!("/api/v1/namespaces/default/pods/p:{port}/proxy/page");
    let headers = [
        ("authorization", "Bearer secret"),
        ("proxy-authorization", "Basic secret"),
        ("x-remote-user", "secret"),
        ("x-remote-extra-secret", "secret"),
        ("sec-websocket-protocol", &protocols),
        ("cookie", "of=thepod"),
        ("knarr-cause", "7"),
    ];
    let answered = server::send(server.server.service(), Some(server::admin()), "GET", &path, &headers, "");
    let response = tokio::time::timeout(Duration::from_secs(20), answered).await.unwrap();
    assert_eq!(response.status(), 200);
    let names = ["audit-id", "access-control-allow-origin", "set-cookie"];
    let got = names.map(|name| response.headers().contains_key(name));
    assert_eq!(got, [false, false, true], "{:?}", response.headers());
    let head = backend.await.unwrap();
    for hidden in ["secret", "bearer", "authorization", "x-remote", "knarr-cause"] {
        assert!(!head.contains(hidden), "{hidden}: {head}");
    }
    assert!(head.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n"), "{head}");
    assert!(head.contains("cookie: of=thepod"), "{head}");
    server.stop().await;
}
