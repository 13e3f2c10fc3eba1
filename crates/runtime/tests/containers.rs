//! Real containers through CRI: busybox in sandboxes, as root.
//!
//! Has its own `main`, since the shims are this program again. Each test takes a data directory and cgroup of its
//! own, and checks in the end that nothing is left.
#![allow(clippy::unwrap_used)]

#[path = "containers/deaths.rs"]
mod deaths;
mod support;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cri::{ImageService, RuntimeService, v1};
use flate2::read::MultiGzDecoder;
use support::{Host, Pod, container, output};
use v1::ContainerState::ContainerRunning;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "shim") {
        return runtime::shim::main(args.skip(1));
    }
    // The built-in image is made of this program too.
    if args.peek().is_some_and(|arg| arg == "hello-server") {
        println!("hello from {}", std::env::current_exe().unwrap().display());
        return ExitCode::SUCCESS;
    }
    support::run(args.collect::<Vec<OsString>>(), TESTS)
}

/// One row per test.
const TESTS: &[support::Test] = &[
    ("shims_have_names_and_a_program_that_cannot_be_written_to", |host| Box::pin(program_of_shims(host))),
    ("a_container_runs_ends_and_leaves_its_log", |host| Box::pin(runs(host))),
    ("a_command_that_is_not_there_is_a_start_error", |host| Box::pin(start_error(host))),
    ("exec_has_output_exit_code_and_timeout", |host| Box::pin(exec(host))),
    ("a_container_that_ignores_term_is_killed_after_its_grace", |host| Box::pin(grace(host))),
    ("containers_survive_the_runtime", |host| Box::pin(survives(host))),
    ("limits_are_the_kernels", |host| Box::pin(limits(host))),
    ("too_much_memory_is_an_oom_kill", |host| Box::pin(oom(host))),
    ("root_capabilities_and_paths_are_confined", |host| Box::pin(confined(host))),
    ("seccomp_and_no_new_privileges_hold", |host| Box::pin(seccomp(host))),
    ("another_user_has_no_capabilities", |host| Box::pin(users(host))),
    ("a_terminal_has_its_size_and_echoes", |host| Box::pin(terminal(host))),
    ("attach_reaches_stdin_and_output", |host| Box::pin(attach(host))),
    ("containers_of_a_pod_share_what_they_should", |host| Box::pin(sharing(host))),
    ("a_shared_pid_namespace_ends_with_its_container", |host| Box::pin(shared_pid(host))),
    ("a_shim_that_dies_is_replaced", |host| Box::pin(lost_shim(host))),
    ("a_shim_that_dies_with_the_runtime_is_replaced", |host| Box::pin(lost_both(host))),
    ("a_shim_that_is_killed_while_it_takes_over_is_replaced_again", |host| {
        Box::pin(deaths::while_it_takes_over(host))
    }),
    ("a_new_shim_that_knows_of_nothing_is_told_by_the_next_runtime", |host| {
        Box::pin(deaths::before_the_runtime_had_it_adopt(host))
    }),
    ("a_start_survives_the_runtime", |host| Box::pin(deaths::of_the_runtime_while_a_container_starts(host))),
    ("a_start_survives_the_shim", |host| Box::pin(deaths::while_a_container_starts(host))),
    ("what_shims_come_from_may_be_killed_at_any_moment", |host| {
        Box::pin(deaths::of_what_shims_come_from(host))
    }),
    ("a_stop_survives_the_runtime", |host| Box::pin(deaths::of_the_runtime_while_a_sandbox_stops(host))),
    ("a_stop_that_was_cut_off_is_finished", |host| {
        Box::pin(deaths::of_the_runtime_in_the_middle_of_a_stop(host))
    }),
    ("a_pause_process_that_nobody_knows_ends_with_its_shim", |host| {
        Box::pin(deaths::of_a_shim_before_it_wrote_down_its_pause_process(host))
    }),
    ("an_exec_on_its_way_ends_with_the_shim", |host| Box::pin(deaths::while_an_exec_starts(host))),
    ("execs_leave_no_file", |host| Box::pin(deaths::execs_leave_no_file(host))),
    ("input_survives_the_shim", |host| Box::pin(input_survives(host))),
    ("a_log_is_rotated_and_bounded", |host| Box::pin(flood(host))),
    ("names_are_taken_after_a_restart", |host| Box::pin(names_survive(host))),
    ("the_log_is_reopened_after_rotation", |host| Box::pin(rotation(host))),
    ("the_builtin_image_runs_without_any_other", |host| Box::pin(builtin(host))),
    ("a_missing_image_says_so", |host| Box::pin(missing_image(host))),
    (support::uml::TEST, |host| Box::pin(support::uml::run(host))),
];

async fn program_of_shims(host: Host) {
    let pod = Pod::run(&host).await;
    let own = std::fs::metadata("/proc/self/exe").unwrap();
    let processes = [
        (host.zygotes()[0], "knarr-zygote", "knarr shim zygote "),
        (host.shim_of(&pod.id).unwrap(), "knarr-shim", "knarr shim /"),
    ];
    for (pid, name, command) in processes {
        assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim(), name);
        let found = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().replace('\0', " ");
        assert!(found.starts_with(command), "{found}");
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let found = std::fs::metadata(&exe).unwrap();
        assert_eq!((found.dev(), found.ino()), (own.dev(), own.ino()), "its pages are shared");
        let file = std::fs::File::options().write(true).truncate(true).open(&exe);
        assert_eq!(file.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    pod.remove().await;
}

async fn runs(host: Host) {
    let pod = Pod::run(&host).await;
    let started = Instant::now();
    let id = pod
        .start(
            container("main", &["sh", "-c", "echo out; echo err >&2; echo $HOSTNAME $(hostname) $A; exit 3"])
                .env("A", "b"),
        )
        .await;
    let status = pod.wait_exit(&id).await;
    eprintln!("start to exit: {:?}", started.elapsed());
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.started_at > 0 && status.finished_at >= status.started_at);
    let log = pod.log("main");
    let lines: Vec<&str> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert!(lines.contains(&"stdout F out") && lines.contains(&"stderr F err"), "{log}");
    assert!(lines.contains(&"stdout F pod pod b"), "{log}");
    pod.remove().await;
}

async fn start_error(host: Host) {
    let pod = Pod::run(&host).await;
    let check = async |command: &str, expect: &str| {
        let id = pod.create(container(command.trim_start_matches('/'), &[command])).await;
        let error = pod.try_start(&id).await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        let status = pod.status(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    };
    check("nothing", "exec: \"nothing\": executable file not found in $PATH").await;
    check("/nothing2", "stat /nothing2: no such file or directory").await;
    check("/broken", "exec: \"/broken\": exec format error").await;
    pod.remove().await;
}

async fn exec(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sleep", "1000"])).await;
    let ran = pod.exec(&id, &["sh", "-c", "echo $0 $(id -u); echo e >&2; exit 7"], 0).await.unwrap();
    assert_eq!((output(&ran.stdout), output(&ran.stderr), ran.exit_code), ("sh 0\n".into(), "e\n".into(), 7));
    // What it leaves running does not hold it up.
    let ran = pod.exec(&id, &["sh", "-c", "sleep 100 & echo started"], 0).await.unwrap();
    assert_eq!((output(&ran.stdout), ran.exit_code), ("started\n".into(), 0));
    let error = pod.exec(&id, &["sleep", "100"], 1).await.unwrap_err();
    assert!(matches!(error, cri::CriError::DeadlineExceeded(_)), "{error}");
    let error = pod.exec(&id, &["nothing"], 0).await.unwrap_err().to_string();
    assert!(error.contains("executable file not found in $PATH"), "{error}");
    let big = pod.exec(&id, &["sh", "-c", "head -c 3000000 /dev/zero"], 0).await.unwrap();
    assert_eq!(big.stdout.len(), 3_000_000);
    pod.remove().await;
}

async fn grace(host: Host) {
    let pod = Pod::run(&host).await;
    let polite = pod
        .start(container(
            "polite",
            &["sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"],
        ))
        .await;
    let rude = pod
        .start(container("rude", &["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]))
        .await;
    pod.wait_log("polite", "ready").await;
    pod.wait_log("rude", "ready").await;
    pod.stop(&polite, 30).await;
    assert_eq!(pod.status(&polite).await.exit_code, 5);
    let started = Instant::now();
    pod.stop(&rude, 1).await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(pod.status(&rude).await.exit_code, 137);
    // Again, and of one that never was.
    pod.stop(&rude, 1).await;
    pod.stop("gone", 1).await;
    pod.remove().await;
}

async fn survives(host: Host) {
    let pod = Pod::run(&host).await;
    let stays = pod.start(container("stays", &["sh", "-c", "echo one; sleep 1000"])).await;
    let before = pod.status(&stays).await;
    let ends = pod
        .start(container(
            "ends",
            &["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.02; done; echo end; exit 9"],
        ))
        .await;
    let go = host.rootfs_of(&pod.id, &ends).join("tmp/go");
    let host = host.without_runtime();
    std::fs::write(go, "").unwrap();
    support::wait_until(|| host.container_file(&pod.id, &ends, "exited.json").exists()).await;
    let host = host.restart().await;
    let pod = pod.on(&host);
    let after = pod.status(&stays).await;
    assert_eq!((after.state, after.started_at), (ContainerRunning as i32, before.started_at));
    assert_eq!(pod.status(&ends).await.exit_code, 9);
    assert!(pod.log("ends").contains("stdout F end"));
    let ran = pod.exec(&stays, &["echo", "hello"], 0).await.unwrap();
    assert_eq!(output(&ran.stdout), "hello\n");
    // Events come from the shim again.
    let mut events = host.events().await;
    pod.stop(&stays, 0).await;
    support::next_event(&mut events, &stays, v1::ContainerEventType::ContainerStoppedEvent).await;
    pod.remove().await;
}

async fn oom(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sh", "-c", "tail /dev/zero"]).memory(32 << 20)).await;
    let status = pod.wait_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    pod.remove().await;
}

async fn confined(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod
        .start(
            container("main", &["sleep", "1000"])
                .readonly()
                .drop_caps(&["ALL"])
                .add_caps(&["NET_BIND_SERVICE"]),
        )
        .await;
    let sh = async |script: &str| {
        let ran = pod.exec(&id, &["sh", "-c", script], 0).await.unwrap();
        (output(&ran.stdout), ran.exit_code)
    };
    assert_ne!(sh("touch /x").await.1, 0);
    assert_eq!(
        sh("grep -E 'Cap(Prm|Eff|Bnd)' /proc/1/status | cut -f2 | sort -u").await.0,
        "0000000000000400\n"
    );
    assert_eq!(
        sh("grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | cut -f2 | sort -u").await.0,
        "0000000000000400\n"
    );
    assert_eq!(sh("cat /proc/kcore | wc -c").await.0, "0\n");
    assert_ne!(sh("echo 1 > /proc/sys/kernel/domainname").await.1, 0);
    assert_eq!(sh("ls /proc/self/fd | wc -l").await.0, "4\n");
    assert_eq!(
        sh("grep SigBlk /proc/1/status | cut -f2; grep SigIgn /proc/1/status | cut -f2").await.0,
        "0000000000000000\n0000000000000000\n"
    );
    let other = pod.start(container("default", &["sleep", "1000"])).await;
    let ran = pod
        .exec(&other, &["sh", "-c", "touch /x && grep CapBnd /proc/self/status | cut -f2"], 0)
        .await
        .unwrap();
    assert_eq!(output(&ran.stdout), "00000000a80425fb\n");
    let all = pod.start(container("all", &["sleep", "1000"]).privileged()).await;
    let ran = pod
        .exec(&all, &["sh", "-c", "mount -t tmpfs none /tmp && touch /tmp/x && ls /dev/kmsg /dev/null"], 0)
        .await
        .unwrap();
    assert_eq!(ran.exit_code, 0, "{}", output(&ran.stderr));
    pod.remove().await;
}

async fn seccomp(host: Host) {
    let pod = Pod::run(&host).await;
    let status = "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status | cut -f2 | tr '\\n' ' '";
    let check = async |name: &str, wanted: support::Wanted, expect: &str, unshare_works: bool| {
        let id = pod.start(wanted).await;
        let ran = pod.exec(&id, &["sh", "-c", status], 0).await.unwrap();
        assert_eq!(output(&ran.stdout), expect, "{name}");
        let ran = pod.exec(&id, &["unshare", "-U", "true"], 0).await.unwrap();
        assert_eq!(ran.exit_code == 0, unshare_works, "{name}: {}", output(&ran.stderr));
    };
    let sleeping = |name: &str| container(name, &["sleep", "1000"]);
    check("plain", sleeping("plain"), "0 0 ", true).await;
    check("filtered", sleeping("filtered").seccomp(), "0 2 ", false).await;
    check("both", sleeping("both").seccomp().no_new_privs(), "1 2 ", false).await;
    check("user", sleeping("user").seccomp().user(1000), "0 2 ", false).await;
    let id = pod
        .start(
            container(
                "threads",
                &["sh", "-c", "(echo a | cat | cat; wait) && sleep 0.01 && date > /tmp/d && cat /tmp/d"],
            )
            .seccomp(),
        )
        .await;
    assert_eq!(pod.wait_exit(&id).await.exit_code, 0, "{}", pod.log("threads"));
    pod.remove().await;
}

async fn users(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod
        .start(
            container(
                "main",
                &["sh", "-c", "id -u; id -G; grep CapEff /proc/self/status | cut -f2; pwd; echo $HOME"],
            )
            .user(1000)
            .groups(&[7, 8])
            .cwd("/made/here"),
        )
        .await;
    assert_eq!(pod.wait_exit(&id).await.exit_code, 0);
    let log = pod.log("main");
    let lines: Vec<&str> = log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
    assert_eq!(lines, ["1000", "0 7 8", "0000000000000000", "/made/here", "/"]);
    pod.remove().await;
}

async fn terminal(host: Host) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sh", "-c", "tty; stty size; sleep 1000"]).tty()).await;
    pod.wait_log("main", "/dev/pts/0").await;
    // What is typed may be quicker than the terminal's size.
    let resized = "read line; n=0; while [ \"$(stty size)\" != '40 100' ] && [ $n -lt 600 ]; do n=$((n+1)); \
                   sleep 0.1; done; stty size; exit 4";
    let mut streams = host
        .runtime()
        .exec(v1::ExecRequest {
            container_id: id.clone(),
            cmd: ["sh", "-c", resized].map(String::from).into(),
            tty: true,
            stdin: true,
            stdout: true,
            stderr: false,
        })
        .await
        .unwrap();
    streams.resize.as_ref().unwrap().send((100, 40)).await.unwrap();
    streams.stdin.as_mut().unwrap().write_all(b"go\r").await.unwrap();
    let mut text = String::new();
    streams.stdout.as_mut().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "go\r\n40 100\r\n");
    assert_eq!(streams.exit.await.unwrap(), 4);
    pod.remove().await;
}

async fn attach(host: Host) {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let pod = Pod::run(&host).await;
    let id = pod
        .start(
            container("main", &["sh", "-c", "while read line; do echo got $line; done; exit 6"]).stdin_once(),
        )
        .await;
    let request =
        v1::AttachRequest { container_id: id.clone(), stdin: true, tty: false, stdout: true, stderr: true };
    let mut streams = host.runtime().attach(request).await.unwrap();
    let mut stdin = streams.stdin.take().unwrap();
    let mut stdout = BufReader::new(streams.stdout.take().unwrap());
    stdin.write_all(b"one\n").await.unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    assert_eq!(line, "got one\n");
    stdin.write_all(b"two\n").await.unwrap();
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "got two\n");
    assert_eq!(streams.exit.await.unwrap(), 6);
    assert!(pod.log("main").contains("stdout F got two"));
    pod.remove().await;
}

async fn sharing(host: Host) {
    let pod = Pod::run(&host).await;
    let a = pod.start(container("a", &["sleep", "1000"])).await;
    let b = pod.start(container("b", &["sleep", "1000"])).await;
    let links = async |id: &str| {
        let script = "for n in net ipc uts pid mnt; do readlink /proc/self/ns/$n; done; echo x > /dev/shm/$HOSTNAME; ls /dev/shm; cat /proc/1/cmdline | tr '\\0' ' '";
        output(&pod.exec(id, &["sh", "-c", script], 0).await.unwrap().stdout)
    };
    let (a, b) = (links(&a).await, links(&b).await);
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    assert_eq!(a[..3], b[..3]);
    assert_ne!(a[3], b[3]);
    assert_ne!(a[4], b[4]);
    assert_eq!(b[5..], ["pod", "sleep 1000 "]);
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(a[0], own.to_str().unwrap());
    pod.remove().await;
}

async fn shared_pid(host: Host) {
    let pod =
        Pod::run_with(&host, |config| support::namespaces(config).pid = v1::NamespaceMode::Pod as i32).await;
    let a = pod.start(container("a", &["sh", "-c", "sleep 1001 & sleep 1002"]).pod_pid()).await;
    let b = pod.start(container("b", &["sleep", "1003"]).pod_pid()).await;
    pod.wait_exec(&b, "ps | grep -q 'sleep 1001'").await;
    pod.stop(&a, 0).await;
    pod.wait_exec(&b, "! ps | grep -v grep | grep -q 'sleep 1001'").await;
    pod.remove().await;
}

/// Says a number whenever there is a new file, and ends when there is the last one.
const COUNT: &str = "n=0; while [ ! -e /tmp/end ]; do if [ -e /tmp/$n ]; then echo line $n; n=$((n+1)); fi; \
    sleep 0.01; done; exit 7";

async fn limits(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sleep", "1000"]).memory(64 << 20)).await;
    let cgroups = sys::cgroup::Cgroups::detect().unwrap();
    let read = |controller: &str, file: &str| {
        let dir = cgroups.dir_of(controller, &host.cgroup_of(&id)).unwrap();
        std::fs::read_to_string(dir.join(file)).unwrap().trim().to_owned()
    };
    match cgroups.version() {
        sys::cgroup::Version::V1 => {
            assert_eq!(read("memory", "memory.limit_in_bytes"), "67108864");
            assert_eq!(read("cpu", "cpu.shares"), "100");
        }
        sys::cgroup::Version::V2 => {
            assert_eq!(read("memory", "memory.max"), "67108864");
            // 100 shares. Source: KEP-2254, the conversion that runc has since 1.3.2.
            assert_eq!(read("cpu", "cpu.weight"), "17");
        }
    }
    let usage = cgroups.usage(&host.cgroup_of(&id));
    assert!(usage.memory_bytes > 0 && usage.threads == 1, "{usage:?}");
    pod.remove().await;
}

/// The exit code of a container whose first shim died; an older kernel may not know it.
fn assert_ended(status: &v1::ContainerStatus, code: i32) {
    let is_unknown = (status.exit_code, status.reason.as_str()) == (255, "Unknown");
    let may_be_unknown = !support::kernel_keeps_exit_codes();
    assert!(status.exit_code == code || may_be_unknown && is_unknown, "{status:?}");
}

async fn lost_shim(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sh", "-c", COUNT])).await;
    let tmp = host.rootfs_of(&pod.id, &id).join("tmp");
    std::fs::write(tmp.join("0"), "").unwrap();
    pod.wait_log("main", "line 0").await;
    eprintln!("{}", host.shim_memory(&pod.id));
    let namespaces = "for n in net ipc uts; do readlink /proc/self/ns/$n; done; hostname";
    let before = pod.status(&id).await;
    let inside = output(&pod.exec(&id, &["sh", "-c", namespaces], 0).await.unwrap().stdout);
    host.kill_shim(&pod.id);
    std::fs::write(tmp.join("1"), "").unwrap();
    pod.wait_log("main", "line 1").await;
    assert_eq!(output(&pod.exec(&id, &["sh", "-c", namespaces], 0).await.unwrap().stdout), inside);
    assert_eq!(pod.status(&id).await, before, "the container has not noticed");
    // Another one is in the same namespaces.
    let other = pod.start(container("other", &["sh", "-c", namespaces])).await;
    pod.wait_exit(&other).await;
    let log = pod.log("other");
    assert_eq!(
        log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect::<Vec<_>>(),
        inside.lines().collect::<Vec<_>>()
    );
    host.kill_shim(&pod.id);
    std::fs::write(tmp.join("end"), "").unwrap();
    assert_ended(&pod.wait_exit(&id).await, 7);
    pod.remove().await;
}

async fn lost_both(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &["sh", "-c", COUNT])).await;
    let ended = pod.start(container("ended", &["sh", "-c", "sleep 0.01; exit 3"])).await;
    pod.wait_exit(&ended).await;
    let before = pod.status(&id).await;
    let tmp = host.rootfs_of(&pod.id, &id).join("tmp");
    let host = host.without_runtime();
    host.kill_shim(&pod.id);
    std::fs::write(tmp.join("0"), "").unwrap();
    let host = host.restart().await;
    let pod = pod.on(&host);
    assert_eq!(pod.status(&id).await, before);
    pod.wait_log("main", "line 0").await;
    pod.stop(&id, 0).await;
    assert_ended(&pod.status(&id).await, 137);
    assert_eq!(pod.status(&ended).await.exit_code, 3);
    pod.remove().await;
}

async fn names_survive(host: Host) {
    let of_one_name =
        |config: &mut v1::PodSandboxConfig| config.metadata.as_mut().unwrap().uid = "one".into();
    let pod = Pod::run_with(&host, of_one_name).await;
    let id = pod.create(container("main", &["true"])).await;
    let host = host.without_runtime();
    let host = host.restart().await;
    let pod = pod.on(&host);
    let error = Pod::try_run_with(&host, of_one_name).await.map(drop).unwrap_err().to_string();
    assert!(error.ends_with(&format!("is reserved for {:?}", pod.id)), "{error}");
    let error = pod.try_create(container("main", &["true"])).await.unwrap_err().to_string();
    assert!(error.ends_with(&format!("is reserved for {id:?}")), "{error}");
    pod.remove().await;
    Pod::run_with(&host, of_one_name).await.remove().await;
}

async fn input_survives(host: Host) {
    use tokio::io::AsyncWriteExt;
    let pod = Pod::run(&host).await;
    let script = "while read line; do echo got $line; done; exit 6";
    let id = pod.start(container("main", &["sh", "-c", script]).stdin_once()).await;
    let tty = pod.start(container("tty", &["sh", "-c", script]).tty()).await;
    host.kill_shim(&pod.id);
    for (id, name, is_tty) in [(&id, "main", false), (&tty, "tty", true)] {
        let request = v1::AttachRequest {
            container_id: id.clone(),
            stdin: true,
            tty: is_tty,
            stdout: true,
            stderr: false,
        };
        let mut streams = host.runtime().attach(request).await.unwrap();
        streams.stdin.as_mut().unwrap().write_all(b"one\n").await.unwrap();
        pod.wait_log(name, "got one").await;
    }
    // The client that is gone was the only one.
    assert_ended(&pod.wait_exit(&id).await, 6);
    pod.remove().await;
}

async fn flood(host: Host) {
    const BYTES_MAX: u64 = 64 << 10;
    let pod = Pod::run(&host).await;
    let wanted = container("main", &["sh", "-c", "yes | head -n 120000; echo last"]).log_limits(BYTES_MAX, 3);
    let id = pod.start(wanted).await;
    pod.wait_exit(&id).await;
    let folder = pod.log_path("main").parent().unwrap().to_owned();
    let paths = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let is_packed = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "gz");
    // All but the newest that is not written any more are compressed, by a process of their own.
    support::wait_until(|| paths().filter(|path| is_packed(path)).count() == 1 && paths().count() == 3).await;
    let files: Vec<String> = paths()
        .map(|path| match is_packed(&path) {
            true => std::io::read_to_string(MultiGzDecoder::new(std::fs::File::open(path).unwrap())).unwrap(),
            false => std::fs::read_to_string(path).unwrap(),
        })
        .collect();
    let sizes: Vec<usize> = files.iter().map(String::len).collect();
    assert_eq!(files.len(), 3, "{sizes:?}");
    // What is read at once is written at once: 16 KiB of lines with one letter.
    assert!(sizes.iter().all(|len| *len < BYTES_MAX as usize + (16 << 10) * 25), "{sizes:?}");
    assert!(files.iter().any(|text| text.ends_with("stdout F last\n")));
    pod.remove().await;
}

async fn rotation(host: Host) {
    let pod = Pod::run(&host).await;
    let id = pod
        .start(container(
            "main",
            &["sh", "-c", "echo one; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo two"],
        ))
        .await;
    pod.wait_log("main", "one").await;
    std::fs::rename(pod.log_path("main"), pod.log_path("main.1")).unwrap();
    let request = v1::ReopenContainerLogRequest { container_id: id.clone() };
    host.runtime().reopen_container_log(request).await.unwrap();
    std::fs::write(host.rootfs_of(&pod.id, &id).join("tmp/go"), "").unwrap();
    pod.wait_exit(&id).await;
    assert!(pod.log("main").ends_with("stdout F two\n"));
    assert!(!pod.log("main").contains("one"));
    pod.remove().await;
}

async fn builtin(host: Host) {
    host.runtime().ensure_builtin_images().await.unwrap();
    let pod = Pod::run(&host).await;
    let id = pod.start(container("main", &[]).image("knarr.local/hello").seccomp().user(65534)).await;
    assert_eq!(pod.wait_exit(&id).await.exit_code, 0, "{}", pod.log("main"));
    assert!(pod.log("main").contains("hello from /knarr"));
    let status = pod.status(&id).await;
    assert_eq!(status.image.unwrap().image, "knarr.local/hello:latest");
    pod.remove().await;
}

async fn missing_image(host: Host) {
    let image = Some(v1::ImageSpec { image: "example.com/none:1".into(), ..Default::default() });
    let status =
        host.runtime().image_status(v1::ImageStatusRequest { image: image.clone(), verbose: false }).await;
    assert!(status.unwrap().image.is_none());
    let error =
        host.runtime().pull_image(v1::PullImageRequest { image, ..Default::default() }).await.unwrap_err();
    assert!(error.to_string().contains("example.com/none:1"), "{error}");
    host.finish().await;
}
