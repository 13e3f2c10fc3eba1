//! Processes beside the container's own, and attaching to it: exec, exec_sync, attach.
//!
//! The shim passes descriptors, not bytes: what a client and a process say to each other goes by pipe (or terminal)
//! between this process and the container.

mod detach;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cri::{CriError, CriResult, NoExitCode, Streams, v1};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};

use crate::client::{Exec, ShimClient};
use crate::shim::layout;
use crate::shim::protocol::Call;
use crate::state::{Container, Inner, Status, blocking, internal};
use detach::{DetachingInput, DetachingOutput, detachable};

/// Most output that `exec_sync` keeps of each stream, as containerd.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Terminal sizes that may wait.
const SIZES_MAX: usize = 8;

/// The process document of an exec: gone when a shim has taken it, or when nobody wants it any more.
struct ExecFile(PathBuf);

impl Drop for ExecFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(file = %self.0.display(), %error, "there is no file of an exec");
        }
    }
}

impl Inner {
    /// Writes the process document of an exec next to the container's files.
    async fn exec_file(
        self: &Arc<Self>,
        container: &Container,
        command: &[String],
        tty: bool,
    ) -> CriResult<ExecFile> {
        if command.is_empty() {
            return Err(CriError::InvalidArgument("command must be set".into()));
        }
        if !matches!(*container.status.borrow(), Status::Running(..)) {
            let state = container.status.borrow().cri().as_str_name();
            return Err(CriError::FailedPrecondition(format!(
                "container {} is in state {state}",
                container.id
            )));
        }
        let dir = self.container_dir(container);
        let name = format!("{}{}.json", layout::EXEC, self.config.random.name_suffix(10));
        let made = ExecFile(dir.join(name));
        let (command, file) = (command.to_vec(), made.0.clone());
        blocking(move || {
            let spec: Option<serde_json::Value> =
                layout::read_json(&dir.join(layout::SPEC)).map_err(internal)?;
            let spec = spec.unwrap_or_default();
            let process = crate::oci::exec_process(&spec["process"], &command, tty);
            layout::write_json(&file, &process).map_err(internal)
        })
        .await?;
        Ok(made)
    }

    pub(crate) async fn exec_sync(
        self: &Arc<Self>,
        request: v1::ExecSyncRequest,
    ) -> CriResult<v1::ExecSyncResponse> {
        let container = self.container(&request.container_id)?;
        let file = self.exec_file(&container, &request.cmd, false).await?;
        let shim = self.shim_of(&container)?;
        let (stdout, stdout_in) = output_pipe()?;
        let (stderr, stderr_in) = output_pipe()?;
        let streams = [false, true, true];
        let exec = Exec { container: container.id.clone(), process: file.0.clone(), tty: false, streams };
        let started = shim.exec(exec, vec![stdout_in, stderr_in]).await;
        drop(file);
        let (number, _, exit) = started?;
        let collected = async {
            let (exited, exit) = exit_signal(exit);
            let (stdout, stderr) = tokio::join!(collect(stdout, exited.clone()), collect(stderr, exited));
            (exit.await, stdout, stderr)
        };
        let timeout = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0);
        let limit = timeout.map_or(Duration::MAX, Duration::from_secs);
        let Ok((exit_code, stdout, stderr)) = tokio::time::timeout(limit, collected).await else {
            let kill = Call::KillExec { exec: number, signal: nix::libc::SIGKILL };
            shim.ask(kill, Vec::new()).await?;
            let seconds = request.timeout;
            return Err(CriError::DeadlineExceeded(format!(
                "failed to exec in container: timeout {seconds}s exceeded: context deadline exceeded"
            )));
        };
        let exit_code = exit_code.ok_or_else(|| CriError::Internal("the pod's shim is gone".into()))?;
        Ok(v1::ExecSyncResponse {
            stdout: stdout.map_err(internal)?,
            stderr: stderr.map_err(internal)?,
            exit_code,
        })
    }

    pub(crate) async fn exec(self: &Arc<Self>, request: v1::ExecRequest) -> CriResult<Streams> {
        let container = self.container(&request.container_id)?;
        let file = self.exec_file(&container, &request.cmd, request.tty).await?;
        let shim = self.shim_of(&container)?;
        let mut streams = StreamsHalf::default();
        let mut theirs = Vec::new();
        if !request.tty {
            if request.stdin {
                let (reader, writer) = io::pipe().map_err(internal)?;
                let writer =
                    pipe::Sender::from_owned_fd_unchecked(nonblocking(writer.into())?).map_err(internal)?;
                streams.stdin = Some(Box::new(writer));
                theirs.push(reader.into());
            }
            for (wanted, slot) in
                [(request.stdout, &mut streams.stdout), (request.stderr, &mut streams.stderr)]
            {
                if wanted {
                    let (reader, writer) = output_pipe()?;
                    *slot = Some(Box::new(reader));
                    theirs.push(writer);
                }
            }
        }
        let wanted = [request.stdin, request.stdout, request.stderr];
        let process = file.0.clone();
        let exec = Exec { container: container.id.clone(), process, tty: request.tty, streams: wanted };
        let started = shim.exec(exec, theirs).await;
        drop(file);
        let (_, mut descriptors, exit) = started?;
        if let Some(terminal) = descriptors.pop() {
            let terminal = Arc::new(crate::client::watched(terminal).map_err(internal)?);
            streams.stdin = request.stdin.then(|| Box::new(Terminal(Arc::clone(&terminal))) as _);
            streams.stdout = Some(Box::new(Terminal(Arc::clone(&terminal))));
            streams.resize = Some(self.resizer(terminal));
        }
        Ok(streams.with_exit(exit))
    }

    pub(crate) async fn attach(self: &Arc<Self>, request: v1::AttachRequest) -> CriResult<Streams> {
        let container = self.container(&request.container_id)?;
        let mut status = container.status.subscribe();
        let shim = self.shim_of(&container)?;
        let mut streams = StreamsHalf::default();
        let mut theirs = Vec::new();
        let (detach, detached) = detachable();
        let wanted = [request.stdout, request.stderr && !container.config.tty];
        for (wanted, slot) in wanted.into_iter().zip([&mut streams.stdout, &mut streams.stderr]) {
            if wanted {
                let (reader, writer) = output_pipe()?;
                *slot = Some(Box::new(DetachingOutput::new(reader, detached.clone())));
                theirs.push(writer);
            }
        }
        let id = container.id.clone();
        let (_, mut descriptors) = shim.ask(Call::Attach { container: id, streams: wanted }, theirs).await?;
        match descriptors.pop() {
            Some(terminal) if container.config.tty => {
                let terminal = Arc::new(crate::client::watched(terminal).map_err(internal)?);
                let input = DetachingInput::new(Terminal(Arc::clone(&terminal)), detach);
                streams.stdin = request.stdin.then(|| Box::new(input) as _);
                streams.resize = Some(self.resizer(terminal));
            }
            Some(stdin) if request.stdin => {
                let sender = pipe::Sender::from_owned_fd_unchecked(nonblocking(stdin)?).map_err(internal)?;
                streams.stdin = Some(match container.config.stdin_once {
                    true => Box::new(ContainerStdin {
                        sender,
                        once: Some((Arc::clone(self), shim.clone(), container.id.clone())),
                        tasks: self.config.tasks.clone(),
                    }),
                    false => Box::new(DetachingInput::new(sender, detach)),
                });
            }
            _ => {}
        }
        let (sender, exit) = oneshot::channel();
        self.config.tasks.spawn("attached container", async move {
            let exited = status.wait_for(|status| matches!(status, Status::Exited { .. }));
            let code = tokio::select! {
                status = exited => match status.as_deref() {
                    Ok(Status::Exited { exited, .. }) => exited.code,
                    _ => return,
                },
                // The container goes on; the attachment has ended well.
                () = detached.wait() => 0,
            };
            sender.send(code).unwrap_or(()); // Nobody waits any more.
        });
        Ok(streams.with_exit(exit))
    }

    /// Sets the terminal to the sizes that come.
    fn resizer(&self, terminal: Arc<AsyncFd<OwnedFd>>) -> mpsc::Sender<(u16, u16)> {
        let (sender, mut sizes) = mpsc::channel(SIZES_MAX);
        self.config.tasks.spawn("terminal size", async move {
            while let Some((columns, rows)) = sizes.recv().await {
                if let Err(error) = sys::descriptors::set_terminal_size(terminal.get_ref(), columns, rows) {
                    tracing::debug!(%error, "terminal size not set");
                }
            }
        });
        sender
    }
}

#[derive(Default)]
struct StreamsHalf {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    resize: Option<mpsc::Sender<(u16, u16)>>,
}

impl StreamsHalf {
    fn with_exit(self, exit: oneshot::Receiver<i32>) -> Streams {
        let exit = async { exit.await.map_err(|_| NoExitCode::Unreported) };
        Streams {
            stdin: self.stdin,
            stdout: self.stdout,
            stderr: self.stderr,
            resize: self.resize,
            exit: Box::pin(exit),
        }
    }
}

fn nonblocking(fd: OwnedFd) -> CriResult<OwnedFd> {
    sys::descriptors::set_nonblocking(fd.as_fd()).map_err(internal)?;
    Ok(fd)
}

/// Our reading end and the process's writing end.
fn output_pipe() -> CriResult<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = io::pipe().map_err(internal)?;
    let reader = pipe::Receiver::from_owned_fd_unchecked(nonblocking(reader.into())?).map_err(internal)?;
    Ok((reader, writer.into()))
}

/// Splits the exit into something to wait for and the code.
fn exit_signal(exit: oneshot::Receiver<i32>) -> (watch::Receiver<bool>, impl Future<Output = Option<i32>>) {
    let (sender, receiver) = watch::channel(false);
    let code = async move {
        let code = exit.await.ok();
        sender.send_replace(true);
        code
    };
    let code = tokio::spawn(code);
    (receiver, async move { code.await.ok().flatten() })
}

/// Reads until the end, or until the process has ended and what it wrote is read: what it left running may hold
/// the pipe open for ever.
///
/// What is left then is read from the pipe itself: whether tokio has heard yet that there is something says nothing.
async fn collect(mut reader: pipe::Receiver, mut exited: watch::Receiver<bool>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    loop {
        let len = tokio::select! {
            biased;
            len = reader.read(&mut chunk) => len?,
            _ = exited.wait_for(|exited| *exited) => match nix::unistd::read(&reader, &mut chunk) {
                Err(nix::errno::Errno::EAGAIN) => return Ok(output),
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            },
        };
        if len == 0 {
            return Ok(output);
        }
        let room = OUTPUT_BYTES_MAX.saturating_sub(output.len());
        output.extend_from_slice(chunk.get(..len.min(room)).unwrap_or_default());
    }
}

/// The controlling end of a terminal. Its other end closed is the end of the stream.
struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let unfilled = buffer.initialize_unfilled();
            match guard.try_io(|fd| nix::unistd::read(fd.get_ref(), unfilled).map_err(io::Error::from)) {
                Ok(Ok(len)) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.raw_os_error() == Some(nix::libc::EIO) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            let written = guard.try_io(|fd| nix::unistd::write(fd.get_ref(), bytes).map_err(io::Error::from));
            if let Ok(result) = written {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The writing end of the stdin of a container with `stdinOnce`, which sees its end when this is closed.
struct ContainerStdin {
    sender: pipe::Sender,
    once: Option<(Arc<Inner>, ShimClient, String)>,
    tasks: base::Tasks,
}

impl AsyncWrite for ContainerStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.sender).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sender).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sender).poll_shutdown(cx)
    }
}

impl Drop for ContainerStdin {
    fn drop(&mut self) {
        let Some((runtime, shim, container)) = self.once.take() else { return };
        runtime.release_input(&container);
        self.tasks.spawn("close stdin", async move {
            if let Err(error) = shim.ask(Call::CloseStdin { container }, Vec::new()).await {
                tracing::debug!(%error, "stdin not closed");
            }
        });
    }
}
