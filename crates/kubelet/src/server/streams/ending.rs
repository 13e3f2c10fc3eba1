//! What a client is told at the end: from v4 on a `Status` as JSON, before that a text that is empty if all went well.

use cri::NoExitCode;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// What counts as success.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) enum Ending {
    /// Exit code 0.
    ExitCode,
    /// That it ended.
    Success,
}

/// Waits for the process's end and describes it.
pub(super) async fn result(ending: Ending, exit: BoxFuture<'static, Result<i32, NoExitCode>>) -> Value {
    match (ending, exit.await) {
        (Ending::Success, _) | (_, Ok(0)) => json!({"metadata": {}, "status": "Success"}),
        (Ending::ExitCode, Ok(code)) => exit_error(code),
        (Ending::ExitCode, Err(why)) => internal_error(&why.to_string()),
    }
}

fn exit_error(code: i32) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// The process could not be started, or was lost.
pub(super) fn internal_error(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("{}{message}", cri::EXEC_FAILED),
        "reason": "InternalError",
        "details": {"causes": [{"message": format!("error executing command in container: {message}")}]},
        "code": 500,
    })
}

/// The result in the form of a protocol.
pub(super) fn render(result: &Value, protocol: &str) -> String {
    let is_json = protocol.starts_with("v4.") || protocol.starts_with("v5.");
    match (is_json, result["message"].as_str()) {
        (true, _) => result.to_string(),
        (false, message) => message.unwrap_or_default().to_owned(),
    }
}
