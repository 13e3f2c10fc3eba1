//! The payload's program: where it is found, and what is never executed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use libcontainer::oci_spec::runtime::Spec;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

/// Scripts whose interpreters are scripts, as far as the kernel follows them.
const INTERPRETERS_MAX: usize = 5;
/// How much of a script the kernel reads to find its interpreter.
const HEAD_BYTES_MAX: u64 = 256;

/// Why a payload has no program. The words are runc's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("no command specified")]
    NoCommand,
    #[error("exec: {0:?}: stat {0}: {missing}", missing = NotProgram::Missing)]
    Missing(String),
    #[error("exec: {0:?}: {1}")]
    NotProgram(String, NotProgram),
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotFound(String),
}

/// Why a file is no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotProgram {
    #[error("no such file or directory")]
    Missing,
    #[error("is a directory")]
    Directory,
    #[error("permission denied")]
    Denied,
    #[error("permission denied: it leads to the program of a running process")]
    OfProcess,
}

/// The payload's program, found as a shell would in the container's `PATH`.
pub(super) fn find(spec: &Spec) -> Result<PathBuf, ProgramError> {
    let process = spec.process().as_ref();
    let program = process.and_then(|p| p.args().as_ref()).and_then(|args| args.first());
    let Some(program) = program.filter(|program| !program.is_empty()) else {
        return Err(ProgramError::NoCommand);
    };
    if program.contains('/') {
        return match is_program(Path::new(program)) {
            Ok(()) => Ok(PathBuf::from(program)),
            Err(NotProgram::Missing) => Err(ProgramError::Missing(program.clone())),
            Err(error) => Err(ProgramError::NotProgram(program.clone(), error)),
        };
    }
    let env = process.and_then(|p| p.env().as_ref()).map(Vec::as_slice).unwrap_or_default();
    let path = env.iter().rev().find_map(|var| var.strip_prefix("PATH=")).unwrap_or(crate::oci::DEFAULT_PATH);
    let found = path.split(':').map(|dir| Path::new(if dir.is_empty() { "." } else { dir }).join(program));
    let mut denied = false;
    for candidate in found {
        match is_program(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => denied |= error == NotProgram::Denied,
        }
    }
    match denied {
        true => Err(ProgramError::NotProgram(program.clone(), NotProgram::Denied)),
        false => Err(ProgramError::NotFound(program.clone())),
    }
}

fn is_program(path: &Path) -> Result<(), NotProgram> {
    let Ok(metadata) = path.metadata() else {
        return Err(NotProgram::Missing);
    };
    if metadata.is_dir() {
        return Err(NotProgram::Directory);
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(NotProgram::Denied);
    }
    leads_to_no_process(path, INTERPRETERS_MAX)
}

/// Refuses what is found through a process that runs, such as `/proc/self/exe`, which at this moment is our own program;
/// the interpreters of scripts, too. What changes after this look does no harm either ([`sys::program`]). All other
/// trouble with the file is for the kernel to tell.
fn leads_to_no_process(path: &Path, more: usize) -> Result<(), NotProgram> {
    let program = match open_without_processes(path, OFlag::O_PATH) {
        Err(Errno::ELOOP) => return Err(NotProgram::OfProcess),
        Err(_) => return Ok(()),
        Ok(program) => program,
    };
    if more == 0 || !program.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let Ok(script) = open_without_processes(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
    else {
        return Ok(());
    };
    let mut head = Vec::new();
    match script.take(HEAD_BYTES_MAX).read_to_end(&mut head).ok().and_then(|_| interpreter(&head)) {
        Some(interpreter) => leads_to_no_process(interpreter, more - 1),
        None => Ok(()),
    }
}

fn open_without_processes(path: &Path, flags: OFlag) -> nix::Result<File> {
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(AT_FDCWD, path, how).map(File::from)
}

/// What a script's first line says. Source: execve(2), "Interpreter scripts".
fn interpreter(head: &[u8]) -> Option<&Path> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).filter(|word| !word.is_empty());
    words.next().map(|word| Path::new(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn programs_that_lead_to_a_process_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let program = |name: &str, text: &str| {
            std::fs::write(at(name), text).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        symlink("/proc/self/exe", at("link")).unwrap();
        symlink("link", at("link-to-link")).unwrap();
        symlink("/bin/sh", at("honest-link")).unwrap();
        program("script", "#!/proc/self/exe\n");
        program("spaced", "#! \t/proc/self/exe with words");
        program("script-of-script", &format!("#!{} -x\n", at("script").display()));
        program("script-of-link", &format!("#!{}\n", at("link").display()));
        program("endless", &format!("#!{}\n", at("endless").display()));
        program("honest", "#!/bin/sh\nexec /proc/self/exe\n");
        program("nothing", "");
        program("only-signs", "#!");
        program("lost", "#!/no/such/interpreter\n");
        program("second-line", "\n#!/proc/self/exe\n");
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o755)).unwrap();
        for (name, is_refused) in [
            ("link", true),
            ("link-to-link", true),
            ("honest-link", false),
            ("script", true),
            ("spaced", true),
            ("script-of-script", true),
            ("script-of-link", true),
            ("endless", false),
            ("honest", false),
            ("nothing", false),
            ("only-signs", false),
            ("lost", false),
            ("second-line", false),
            ("pipe", false),
        ] {
            let expect = if is_refused { Err(NotProgram::OfProcess) } else { Ok(()) };
            assert_eq!(is_program(&at(name)), expect, "{name}");
        }
        let pid = std::process::id();
        for path in
            ["/proc/self/exe", "/proc/thread-self/exe", &format!("/proc/{pid}/exe"), "/proc/self/root/bin/sh"]
        {
            assert_eq!(is_program(Path::new(path)), Err(NotProgram::OfProcess), "{path}");
        }
    }
}
