//! Exec, attach, port-forward.
#![allow(unreachable_pub)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::{CriError, v1};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Spec;
use super::support::{Feature, Subject, container, read_until, sleeping};

pub const SPECS: &[Spec] = &[
    ("runtime should support execSync", |it| Box::pin(exec_sync(it))),
    ("runtime should support execSync with timeout", |it| Box::pin(exec_timeout(it))),
    ("runtime should support exec with tty=false", |it| Box::pin(exec(it))),
    ("runtime should support exec with tty=true", |it| Box::pin(exec_tty(it))),
    ("runtime should support attach", |it| Box::pin(attach(it))),
    ("an attachment ends as its stdin does", |it| Box::pin(attach_ends_with_stdin(it))),
    ("runtime should support portforward", |it| Box::pin(port_forward(it))),
];

async fn exec_sync(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let ran = pod.exec(&id, &["sh", "-c", "echo out; echo err >&2; exit 7"], 10).await.unwrap();
    assert_eq!(
        (ran.stdout.as_slice(), ran.stderr.as_slice(), ran.exit_code),
        (&b"out\n"[..], &b"err\n"[..], 7)
    );
    for (command, why) in [
        ("nothing-here", "executable file not found in $PATH"),
        ("/nothing-here", "stat /nothing-here: no such file or directory"),
        ("/etc/passwd", "permission denied"),
    ] {
        let error = pod.exec(&id, &[command], 10).await.map(drop).unwrap_err().to_string();
        let expect = format!(
            "OCI runtime exec failed: exec failed: unable to start container process: exec: {command:?}: {why}"
        );
        assert!(error.contains(&expect) || !subject.has(Feature::RuncsWords), "{error}");
    }
    let big = pod.exec(&id, &["sh", "-c", "head -c 1000000 /dev/zero"], 10).await.unwrap();
    assert_eq!(big.stdout.len(), 1_000_000);
    pod.stop(&id, 5).await;
    assert!(pod.exec(&id, &["true"], 1).await.is_err());
    pod.remove().await;
}

async fn exec_timeout(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let started = Instant::now();
    let error = pod.exec(&id, &["sleep", "321"], 1).await.map(drop).unwrap_err();
    assert!(matches!(error, CriError::DeadlineExceeded(_)), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(120));
    pod.wait_sh(&id, "! ps | grep -v grep | grep -q 'sleep 321'").await;
    pod.remove().await;
}

fn request(id: &str, script: &str, tty: bool) -> v1::ExecRequest {
    v1::ExecRequest {
        container_id: id.to_owned(),
        cmd: ["sh", "-c", script].map(String::from).into(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    }
}

async fn exec(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let script = "read line; echo got $line; echo err >&2; cat | wc -c; exit 5";
    let mut streams = subject.runtime.exec(request(&id, script, false)).await.unwrap();
    let mut stdin = streams.stdin.take().unwrap();
    stdin.write_all(b"one\nrest").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let (mut stdout, mut stderr) = (String::new(), String::new());
    streams.stdout.take().unwrap().read_to_string(&mut stdout).await.unwrap();
    streams.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str()), ("got one\n4\n", "err\n"));
    assert_eq!(streams.exit.await, Ok(5));
    pod.remove().await;
}

async fn exec_tty(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let script = "read line; tty; stty size; exit 4";
    let mut streams = subject.runtime.exec(request(&id, script, true)).await.unwrap();
    streams.resize.as_ref().unwrap().send((100, 40)).await.unwrap();
    // The size goes another way than the line.
    pod.wait_sh(&id, "stty size < /dev/pts/0 | grep '40 100'").await;
    let mut stdin = streams.stdin.take().unwrap();
    stdin.write_all(b"go\r").await.unwrap();
    let mut stdout = streams.stdout.take().unwrap();
    let text = read_until(&mut stdout, "40 100").await;
    assert!(text.starts_with("go\r\n/dev/pts/0\r\n"), "{text:?}");
    assert_eq!(streams.exit.await, Ok(4));
    pod.remove().await;
}

/// Says a word until it is answered: containerd may connect the output later than the input, and what comes before is lost.
async fn ask(stdin: &mut (impl AsyncWrite + Unpin), stdout: &mut (impl AsyncRead + Unpin), word: &str) {
    let answer = format!("got {word}");
    let mut answered = std::pin::pin!(read_until(stdout, &answer));
    loop {
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        if tokio::time::timeout(Duration::from_secs(5), &mut answered).await.is_ok() {
            return;
        }
    }
}

async fn attach(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for tty in [false, true] {
        let name = if tty { "terminal" } else { "pipes" };
        let mut config = container(name, "while read line; do echo got $line; done; exit 6");
        (config.stdin, config.tty) = (true, tty);
        config.stdin_once = !tty;
        let id = pod.start(config).await;
        let request =
            v1::AttachRequest { container_id: id.clone(), stdin: true, tty, stdout: true, stderr: !tty };
        let mut streams = subject.runtime.attach(request).await.unwrap();
        let mut stdin = streams.stdin.take().unwrap();
        let mut stdout = streams.stdout.take().unwrap();
        ask(&mut stdin, &mut stdout, "one").await;
        if tty {
            stdin.write_all(b"\x04").await.unwrap();
        } else {
            stdin.shutdown().await.unwrap();
            drop(stdin);
        }
        assert_eq!(pod.wait_exit(&id).await.exit_code, 6);
        pod.wait_log(name, "got one").await;
    }
    pod.remove().await;
}

async fn attach_ends_with_stdin(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = container("main", "while read line; do echo got $line; done; exit 6");
    config.stdin = true;
    let id = pod.start(config).await;
    let mut ended = Vec::new();
    for word in ["one", "two"] {
        let request = v1::AttachRequest {
            container_id: id.clone(),
            stdin: true,
            tty: false,
            stdout: true,
            stderr: true,
        };
        let mut streams = subject.runtime.attach(request).await.unwrap();
        let (mut stdin, mut stdout) = (streams.stdin.take().unwrap(), streams.stdout.take().unwrap());
        ask(&mut stdin, &mut stdout, word).await;
        stdin.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).await.unwrap();
        ended.push(streams.exit.await.is_ok());
    }
    assert_eq!(ended, [true, true], "the client has left; the container has not seen the end of its stdin");
    assert_eq!(pod.sh(&id, "echo runs").await, ("runs".to_owned(), 0));
    pod.remove().await;
}

async fn port_forward(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(container("main", "while :; do echo served | nc -l -p 80; done")).await;
    // It listens again after each connection.
    pod.wait_sh(&id, "grep -q ':0050 ' /proc/net/tcp /proc/net/tcp6").await;
    let request = v1::PortForwardRequest { pod_sandbox_id: pod.id.clone(), port: vec![80] };
    let mut streams = subject.runtime.port_forward(request).await.unwrap();
    let text = read_until(&mut streams.stdout.take().unwrap(), "served").await;
    assert_eq!(text, "served\n");
    pod.remove().await;
}
