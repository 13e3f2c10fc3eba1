//! A machine that goes down: a logind of our own on a private bus, and Pods that end in order.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures::StreamExt;
use parking_lot::Mutex;
use zbus::{Connection, MessageStream};

use super::*;
use crate::config::ShutdownPeriod;

const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "busconfig.dtd">
<busconfig>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>"#;

/// Ends with the test.
struct Bus(Child, String);

impl Bus {
    /// It prints its address when it listens.
    fn start(folder: &std::path::Path) -> Self {
        use std::io::BufRead;
        let socket = folder.join("bus");
        let config = folder.join("bus.conf");
        std::fs::write(&config, CONFIG.replace("SOCKET", &socket.display().to_string())).unwrap();
        let mut child = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon is installed");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().to_owned())
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// As much of logind as somebody needs who wants it to wait. The lock is a pipe, whose other end tells when it is free.
struct Logind {
    connection: Connection,
    locks: Arc<Mutex<Vec<tokio::net::unix::pipe::Receiver>>>,
    asked: Arc<tokio::sync::watch::Sender<Vec<String>>>,
}

impl Logind {
    async fn start(bus: &Bus) -> Self {
        let connecting = zbus::connection::Builder::address(bus.1.as_str()).build();
        let connection = tokio::time::timeout(DEADLINE, connecting).await.expect("the bus answers").unwrap();
        let mut calls = MessageStream::from(&connection);
        connection.request_name("org.freedesktop.login1").await.unwrap();
        let locks = Arc::<Mutex<Vec<_>>>::default();
        let asked = Arc::new(tokio::sync::watch::channel(Vec::new()).0);
        let (server, kept, told) = (connection.clone(), locks.clone(), asked.clone());
        tokio::spawn(async move {
            while let Some(Ok(call)) = calls.next().await {
                let header = call.header();
                match header.member().map(|member| member.as_str()) {
                    Some("Get") => {
                        let delay = zbus::Variant::from(60_000_000_u64);
                        server.reply(&header, &delay).await.unwrap();
                    }
                    Some("Inhibit") => {
                        let (what, who, why, mode): (String, String, String, String) =
                            call.body().deserialize().unwrap();
                        let (reader, writer) = std::io::pipe().unwrap();
                        let reader = std::os::fd::OwnedFd::from(reader);
                        let writer = std::os::fd::OwnedFd::from(writer);
                        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader).unwrap();
                        kept.lock().push(reader);
                        server.reply(&header, &zbus::Fd::from(writer)).await.unwrap();
                        told.send_modify(|all| all.push(format!("{what}/{who}/{mode}: {why}")));
                    }
                    _ => {}
                }
            }
        });
        Self { connection, locks, asked }
    }

    async fn until_asked(&self, times: usize) -> String {
        let mut asked = self.asked.subscribe();
        let seen = asked.wait_for(|all| all.len() >= times);
        let all = tokio::time::timeout(DEADLINE, seen).await.expect("the kubelet asks").unwrap().clone();
        all[times - 1].clone()
    }

    async fn goes_down(&self, goes_down: bool) {
        let (path, interface) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        let to = None::<zbus::names::BusName<'_>>;
        self.connection.emit_signal(to, path, interface, "PrepareForShutdown", &goes_down).await.unwrap();
    }

    /// Waits until the lock that was given last is free.
    async fn until_free(&self) {
        use tokio::io::AsyncReadExt;
        let mut lock = self.locks.lock().pop().unwrap();
        let mut nothing = Vec::new();
        tokio::time::timeout(DEADLINE, lock.read_to_end(&mut nothing)).await.expect("it is let go").unwrap();
    }
}

#[tokio::test]
async fn pods_end_before_the_machine_does() {
    let dir = tempfile::tempdir().unwrap();
    let bus = Bus::start(dir.path());
    let logind = Logind::start(&bus).await;
    let address = bus.1.clone();
    let node = Node::start_with(move |config| {
        config.shutdown = vec![ShutdownPeriod { priority: 0, seconds: 30 }];
        config.system_bus = Some(address.clone());
    });
    let asked = logind.until_asked(1).await;
    assert_eq!(asked, "shutdown/kubelet/delay: Kubelet needs time to handle node shutdown");
    node.api.put(pod(json!({})));
    node.until("readiness", is_ready).await;

    logind.goes_down(true).await;
    let ended = node.until("the end", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(ended["status"]["reason"], "Terminated");
    let message = "Pod was terminated in response to imminent node shutdown.";
    assert_eq!(ended["status"]["message"], message);
    let conditions = ended["status"]["conditions"].as_array().unwrap();
    let disrupted = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&disrupted["reason"], &disrupted["message"]),
        (&json!("TerminationByKubelet"), &json!(message))
    );
    logind.until_free().await;
    let is_down = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Ready" && c["message"] == "node is shutting down")
    };
    node.api.until_node(is_down).await;
    node.api.delete();
    node.until_gone().await;

    let mut late = pod(json!({}));
    late["metadata"]["uid"] = json!("u2");
    node.api.put(late);
    let refused = node.until("the refusal", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "NodeShutdown");
    let message = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(refused["status"]["message"], message);

    logind.goes_down(false).await;
    logind.until_asked(2).await;
    node.api.until_node(|node| !is_down(node)).await;
}
