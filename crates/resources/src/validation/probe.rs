//! Probes and lifecycle handlers.

use machinery::field::{FieldError, FieldErrors};

use super::{At, PodView};

const PROBES: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const HOOKS: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];
const NOT_A_HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

/// The hooks and the three probes of a container.
pub(super) fn all(container: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    lifecycle(&container.get("lifecycle"), pod, errors);
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.some(kind) else { continue };
        check(&probe, pod, errors);
        let threshold = probe.get("successThreshold");
        if kind != "readinessProbe" && threshold.number() != Some(1) {
            errors.push(FieldError::invalid(
                &threshold.path,
                threshold.number().unwrap_or_default(),
                "must be 1",
            ));
        }
        let grace = probe.get("terminationGracePeriodSeconds");
        if kind == "readinessProbe" && grace.is_set() {
            errors.push(grace.invalid("must not be set for readinessProbes"));
        }
    }
}

fn lifecycle(lifecycle: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = lifecycle.some(hook) {
            handler(&hook, HOOKS, pod, errors);
        }
    }
    let signal = lifecycle.get("stopSignal");
    if signal.is_set() {
        stop_signal(&signal, pod, errors);
    }
}

fn stop_signal(signal: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    let os = pod.spec.get("os").get("name");
    match os.text() {
        "" => errors.push(signal.forbidden("may not be set for containers with empty `spec.os.name`")),
        "windows" => signal.if_one_of(&["SIGKILL", "SIGTERM"], errors),
        _ => signal.if_one_of(LINUX_SIGNALS, errors),
    }
}

fn check(probe: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    handler(probe, PROBES, pod, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.get(field).not_negative(errors);
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|n| n <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
}

/// Exactly one of `kinds`.
fn handler(at: &At<'_>, kinds: &[&str], pod: &PodView<'_>, errors: &mut FieldErrors) {
    let mut count = 0;
    for kind in kinds {
        let Some(action) = at.some(kind) else { continue };
        count += 1;
        if count > 1 {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        match *kind {
            "exec" if action.get("command").is_empty() => errors.push(action.get("command").required("")),
            "httpGet" => http(&action, errors),
            "tcpSocket" => action.get("port").port(errors),
            "grpc" => action.get("port").port_number(errors),
            "sleep" => sleep(&action, pod, errors),
            _ => {}
        }
    }
    if count == 0 {
        errors.push(at.required("must specify a handler type"));
    }
}

/// A Pod sleeps no longer than it has to end. A bad grace period is reported where it stands.
fn sleep(action: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    let seconds = action.get("seconds").number().unwrap_or_default();
    let Some(grace) = pod.spec.get("terminationGracePeriodSeconds").number() else { return };
    if seconds < 0 || seconds > grace {
        errors.push(FieldError::invalid(
            &action.path,
            seconds,
            &format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        ));
    }
}

fn http(action: &At<'_>, errors: &mut FieldErrors) {
    action.must_have("path", errors);
    action.get("port").port(errors);
    action.get("scheme").if_one_of(&["HTTP", "HTTPS"], errors);
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name").text();
        let is_good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_good {
            errors.push(FieldError::invalid(&headers.path, name, NOT_A_HEADER));
        }
    }
}

const LINUX_SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];
