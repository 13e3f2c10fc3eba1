//! kill -9 of a shim, the runtime or both, each in a moment in which something is half done.
//!
//! A moment is recognised by what it leaves on disk or in procfs, not by a time.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cri::{RuntimeService, v1};
use sys::process::PidFd;
use v1::ContainerState::ContainerRunning;

use super::support::{Host, Pod, container, output, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
/// Runs until it is killed, and says so once.
const STAYS: [&str; 3] = ["sh", "-c", "echo up; sleep 1000"];

/// How far a shim has come.
#[derive(Clone, Copy, Debug)]
enum Shim {
    /// It is a process.
    Runs,
    /// It has said who it is.
    IsNamed,
    /// It has opened the output of a container that it did not start.
    Adopts,
}

/// Kills the sandbox's shim as soon as it has come so far, and says which process it was.
fn kill_when(host: &Host, sandbox: &str, stage: Shim, last: i32) -> i32 {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < DEADLINE, "no shim has come as far as {stage:?}");
        let Some(pid) = host.shim_of(sandbox).filter(|pid| *pid != last) else { continue };
        let has_come = match stage {
            Shim::Runs => true,
            Shim::IsNamed => fs::read_to_string(host.sandbox_file(sandbox, "shim.json"))
                .is_ok_and(|text| text.contains(&format!("\"pid\":{pid},"))),
            Shim::Adopts => open_files(pid).iter().any(|file| file.ends_with("stdout")),
        };
        if has_come {
            kill(pid);
            return pid;
        }
    }
}

fn open_files(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

fn kill(pid: i32) {
    let Ok(process) = PidFd::open(pid) else { return };
    process.signal(nix::libc::SIGKILL).unwrap();
    assert!(process.wait(DEADLINE).unwrap());
}

/// The first process of a container, as the host sees it.
fn pid_of(host: &Host, pod: &Pod, id: &str) -> String {
    fs::read_to_string(host.container_file(&pod.id, id, "started.json")).unwrap()
}

async fn answers(pod: &Pod, id: &str) {
    let ran = pod.exec(id, &["echo", "hello"], 0).await.unwrap();
    assert_eq!(output(&ran.stdout), "hello\n");
}

pub(crate) async fn while_it_takes_over(host: Host) {
    let pod = Pod::run(&host).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(pod.start(container(name, &STAYS)).await);
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push((pod.status(id).await, pid_of(&host, &pod, id)));
    }
    for stage in [Shim::Runs, Shim::IsNamed, Shim::Adopts] {
        let mut last = kill_when(&host, &pod.id, Shim::Runs, 0);
        for _ in 0..4 {
            last = kill_when(&host, &pod.id, stage, last);
        }
        for (id, before) in ids.iter().zip(&before) {
            answers(&pod, id).await;
            assert_eq!((pod.status(id).await, pid_of(&host, &pod, id)), *before, "killed when {stage:?}");
        }
    }
    pod.remove().await;
}

pub(crate) async fn before_the_runtime_had_it_adopt(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &STAYS)).await;
    let before = (pod.status(&id).await, pid_of(&host, &pod, &id));
    let host = host.without_runtime();
    host.kill_shim(&pod.id);
    // As the runtime does, up to where it was killed.
    let dir = host.sandbox_file(&pod.id, "");
    let listener = sys::descriptors::listen_at(&dir.join("shim.sock")).unwrap();
    let (ours, theirs) = sys::descriptors::pair().unwrap();
    let mut zygote = Command::new("/proc/self/exe");
    // With room for the shim's name.
    zygote.args(["shim", "zygote"]).arg(" ".repeat(256)).stdin(Stdio::from(theirs));
    let mut zygote = zygote.spawn().unwrap();
    let request = format!("{{\"sandbox\":{dir:?}}}");
    let log = std::fs::File::create(dir.join("shim.log")).unwrap();
    let (first, its) = sys::descriptors::pair().unwrap();
    let files = [its.as_fd(), listener.as_fd(), log.as_fd()];
    sys::descriptors::send(ours.as_fd(), request.as_bytes(), &files).unwrap();
    drop((its, listener, first));
    wait_until(|| host.shim_of(&pod.id).is_some()).await;
    drop(ours);
    assert!(zygote.wait().unwrap().success(), "it ends with who started it");
    let host = host.restart().await;
    let pod = pod.on(&host);
    answers(&pod, &id).await;
    assert_eq!((pod.status(&id).await, pid_of(&host, &pod, &id)), before);
    pod.remove().await;
}

pub(crate) async fn of_what_shims_come_from(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &STAYS)).await;
    let before = (pod.status(&id).await, pid_of(&host, &pod, &id));
    let shims = host.shims_of(&pod.id);
    assert_eq!((host.zygotes().len(), shims.len()), (1, 1));
    host.zygotes().into_iter().for_each(kill);
    answers(&pod, &id).await;
    assert_eq!(host.shims_of(&pod.id), shims, "a shim that runs does not notice");
    let other = Pod::run(&host).await;
    assert_eq!((host.zygotes().len(), host.shims_of(&other.id).len()), (1, 1), "the next one has another");
    for round in 0..16 {
        host.kill_shim(&pod.id);
        // While the runtime asks for the next one, waits for it, or speaks with it already.
        for _ in 0..=round % 4 {
            host.zygotes().into_iter().for_each(kill);
        }
        answers(&pod, &id).await;
        assert_eq!((pod.status(&id).await, pid_of(&host, &pod, &id)), before, "round {round}");
        assert_eq!(host.shims_of(&pod.id).len(), 1, "round {round}");
    }
    let shared = other.start(container("other", &STAYS)).await;
    answers(&other, &shared).await;
    other.remove().await;
    pod.remove().await;
}

/// Asks the shim what a runtime would, and is gone before it does anything with the answer.
fn ask_and_forget(socket: &Path, call: &str) {
    let connection = sys::descriptors::connect_to(socket).unwrap();
    let request = format!("{{\"id\":0,\"call\":{call}}}");
    sys::descriptors::send(connection.as_fd(), request.as_bytes(), &[]).unwrap();
    let mut answer = [0; 4096];
    let (len, _) = sys::descriptors::receive(connection.as_fd(), &mut answer).unwrap();
    let mut text = String::new();
    (&answer[..len]).read_to_string(&mut text).unwrap();
    assert!(text.contains("\"Ok\""), "{text}");
}

pub(crate) async fn of_the_runtime_while_a_container_starts(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.create(container("main", &STAYS)).await;
    let socket = host.sandbox_file(&pod.id, "shim.sock");
    let host = host.without_runtime();
    let call = format!("{{\"Start\":{{\"container\":\"{id}\"}}}}");
    ask_and_forget(&socket, &call);
    let pid = pid_of(&host, &pod, &id);
    // A request may also be repeated.
    ask_and_forget(&socket, &call);
    let host = host.restart().await;
    let pod = pod.on(&host);
    assert_eq!(pod.status(&id).await.state, ContainerRunning as i32);
    answers(&pod, &id).await;
    assert_eq!(pid_of(&host, &pod, &id), pid);
    pod.remove().await;
}

pub(crate) async fn while_a_container_starts(host: Host) {
    let pod = Pod::run(&host).await;
    type Moment = fn(&Host, &str, &str) -> bool;
    let moments: [(&str, Moment); 4] = [
        ("begun", |host, sandbox, id| host.sandbox_file(sandbox, "libcontainer").join(id).exists()),
        ("piped", |host, sandbox, id| host.container_file(sandbox, id, "stdout").exists()),
        ("forked", |host, _, id| !host.processes_of(id).is_empty()),
        ("started", |host, sandbox, id| host.container_file(sandbox, id, "started.json").exists()),
    ];
    for (name, has_come) in moments {
        for round in 0..4 {
            let id = pod.create(container(&format!("{name}-{round}"), &STAYS)).await;
            let mut start = pin!(pod.try_start(&id));
            // The rest happens on other threads.
            assert!(futures::poll!(&mut start).is_pending());
            let began = Instant::now();
            while !has_come(&host, &pod.id, &id) {
                assert!(began.elapsed() < DEADLINE, "{name}");
            }
            host.kill_shim(&pod.id);
            let started = tokio::time::timeout(DEADLINE, start).await.unwrap();
            started.unwrap();
            assert_eq!(pod.status(&id).await.state, ContainerRunning as i32, "killed when {name}");
            answers(&pod, &id).await;
            assert_eq!(
                host.processes_of(&id).len(),
                1,
                "killed when {name}: nothing of the first attempt is left"
            );
            pod.stop(&id, 0).await;
        }
    }
    pod.remove().await;
}

pub(crate) async fn of_the_runtime_while_a_sandbox_stops(host: Host) {
    let pod = Pod::run(&host).await;
    let shim = host.shim_of(&pod.id).unwrap();
    let host = host.without_runtime();
    let record = host.sandbox_file(&pod.id, "sandbox.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("\"is_stopped\":false", "\"is_stopped\":true")).unwrap();
    let host = host.restart().await;
    wait_until(|| host.shim_of(&pod.id).is_none_or(|pid| pid != shim)).await;
    assert!(!host.sandbox_file(&pod.id, "netns").exists());
    pod.on(&host).remove().await;
}

/// The runtime was killed between two steps of a stop; what is left is taken down, by the next one or when it is asked.
pub(crate) async fn of_the_runtime_in_the_middle_of_a_stop(host: Host) {
    let pod = Pod::run(&host).await;
    pod.stop_sandbox().await;
    let shm = host.sandbox_file(&pod.id, "shm");
    sys::mount::tmpfs(&shm, None, 0o1777).unwrap();
    let host = host.restart().await;
    assert!(!sys::mount::is_mounted(&shm).unwrap(), "the next runtime finds it");
    let pod = pod.on(&host);
    sys::mount::tmpfs(&shm, None, 0o1777).unwrap();
    pod.stop_sandbox().await;
    assert!(!sys::mount::is_mounted(&shm).unwrap(), "a stop that failed may be asked for again");
    sys::mount::tmpfs(&shm, None, 0o1777).unwrap();
    pod.remove().await;
}

/// As long as it is not written down who it is, nobody would find it.
pub(crate) async fn of_a_shim_before_it_wrote_down_its_pause_process(host: Host) {
    let mut pause = Command::new("/proc/self/exe");
    let mut pause = pause.args(["shim", "pause"]).stdin(Stdio::piped()).spawn().unwrap();
    drop(pause.stdin.take());
    assert!(!pause.wait().unwrap().success());
    let mut maker = Command::new("/proc/self/exe");
    let maker = maker.args(["shim", "pause", "make"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut maker = maker.spawn().unwrap();
    let (stdin, mut said) = (maker.stdin.take(), String::new());
    maker.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(maker.wait().unwrap().success());
    let made = PidFd::open(said.parse().unwrap()).unwrap();
    drop(stdin);
    assert!(made.wait(DEADLINE).unwrap(), "{said}");
    host.finish().await;
}

/// Neither one that ended, nor one that was cut off with the runtime.
pub(crate) async fn execs_leave_no_file(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &STAYS)).await;
    let files = |host: &Host| {
        let folders =
            [host.container_file(&pod.id, &id, ""), host.sandbox_file(&pod.id, "libcontainer").join(&id)];
        let entries =
            folders.map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()));
        let mut names: Vec<_> = entries.into_iter().flatten().collect();
        names.sort();
        names
    };
    let before = files(&host);
    for _ in 0..3 {
        answers(&pod, &id).await;
    }
    assert_eq!(files(&host), before);
    for name in ["exec-a.json", "exec-a.json.new", "exec-a.sock"] {
        fs::write(host.container_file(&pod.id, &id, name), "").unwrap();
    }
    let host = host.restart().await;
    assert_eq!(files(&host), before);
    pod.on(&host).remove().await;
}

/// What is on its way to be an exec's process has the shim's command line, and nobody to have it go on.
pub(crate) async fn while_an_exec_starts(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &STAYS)).await;
    let dir = host.sandbox_file(&pod.id, "").display().to_string();
    let shims = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands =
            processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        commands.filter(|command| command.contains(dir.trim_end_matches('/'))).count()
    };
    for round in 0..12 {
        let (runtime, before) = (host.runtime(), shims());
        let command = ["sleep", "1000"].map(str::to_owned).to_vec();
        let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: command, timeout: 0 };
        let exec = tokio::spawn(async move { runtime.exec_sync(request).await });
        let began = Instant::now();
        // At the fork, and more and more after it.
        while shims() == before && began.elapsed() < Duration::from_millis(200) {}
        let forked = Instant::now();
        while forked.elapsed() < Duration::from_millis(round) {}
        host.kill_shim(&pod.id);
        exec.abort();
        // Whoever asks before the runtime has heard of the death is told of it.
        let answered = async { while pod.exec(&id, &["true"], 0).await.is_err() {} };
        tokio::time::timeout(DEADLINE, answered).await.unwrap();
        wait_until(|| shims() == 1).await;
    }
    pod.remove().await;
}
